//! `refit convert`: Plans from the objects of kured, the Flatcar update operator and kairos-operator. What comes of each
//! field is tested beside the code; here the Plans are valid and roll out.

use std::process::Command;

use crate::workdir::Workdir;

const KURED: &str = "# A comment
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kured, namespace: kube-system}
spec:
  selector: {matchLabels: {name: kured}}
  template:
    metadata: {labels: {name: kured}}
    spec:
      serviceAccountName: kured
      hostPID: true
      tolerations:
        - {key: node-role.kubernetes.io/control-plane, effect: NoSchedule}
      volumes:
        - {name: sentinel, hostPath: {path: /var/run, type: Directory}}
      containers:
        - name: kured
          image: ghcr.io/kubereboot/kured:1.17.0
          env: [{name: KURED_NODE_ID, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
          volumeMounts: [{mountPath: /sentinel, name: sentinel, readOnly: true}]
          command:
            - /usr/bin/kured
            - --reboot-sentinel=/sentinel/reboot-required
            - --reboot-days=mon,tue
            - --start-time=1am
            - --end-time=5am
            - --time-zone=Europe/Berlin
            - --drain-timeout=30m
            - --blocking-pod-selector=app=batch
            - --prometheus-url=http://prometheus.monitoring:9090
            - --alert-filter-regexp=^Watchdog$
            - --drain-delay=10s
            - --prefer-no-schedule-taint=weave.works/kured-node-reboot
";

const OTHERS: &str = "apiVersion: v1
kind: List
items:
  - apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: flatcar-linux-update-agent, namespace: reboot-coordinator}
    spec:
      template:
        spec:
          containers: [{name: agent, image: flatcar-linux-update-operator, command: [/bin/update-agent]}]
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: flatcar-linux-update-operator, namespace: reboot-coordinator}
    spec:
      template:
        spec:
          containers:
            - name: operator
              image: flatcar-linux-update-operator
              command: [/bin/update-operator, -reboot-window-start=14:00, -reboot-window-length=1h]
  - apiVersion: operator.kairos.io/v1alpha1
    kind: NodeOp
    metadata: {name: example-nodeop, namespace: default}
    spec:
      command: [sh, -c, echo]
      image: busybox:1.37
      hostMountPath: /mnt/host
      cordon: true
      drainOptions: {enabled: true, force: true}
      preflight: {command: [/bin/true]}
      concurrency: 1
  - apiVersion: operator.kairos.io/v1alpha1
    kind: NodeOpUpgrade
    metadata: {name: kairos-upgrade, namespace: default}
    spec:
      image: quay.io/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2-k3sv1.30.11-k3s1
      concurrency: 1
      stopOnFailure: true
";

#[test]
fn the_daemonset_of_kured_becomes_a_plan_with_what_differs_as_comments() {
    let dir = Workdir::new([("kured.yaml", KURED)]);
    let from = "DaemonSet kube-system/kured (kured.yaml:2)";
    dir.run("convert kured.yaml")
        .ends(0)
        .err_has(&format!("{from}: --drain-delay was left out"))
        .prints(&format!(
            r#"# From {from}.
# - `refit agent` (deploy/overlays/agent) must run on these nodes: it says which of them need a
#   reboot.
# - --drain-delay was left out: a `prepare` container that waits does the same, with the node still
#   schedulable.
# - the taint weave.works/kured-node-reboot is called pending.refit.rs/<plan>.
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata:
  name: kured
  namespace: system-upgrade
spec:
  concurrency: 1
  checks:
  - name: alerts
    prometheus:
      url: http://prometheus.monitoring:9090
      query: count(ALERTS{{alertname!~".*(?:^Watchdog$).*"}} != 0) or vector(0)
      max: 0.0
  jobActiveDeadlineSecs: 2100
  nodeSelector: {{}}
  serviceAccountName: system-upgrade
  trigger: RebootNeeded
  tolerations:
  - effect: NoSchedule
    key: node-role.kubernetes.io/control-plane
  windows:
  - days:
    - mon
    - tue
    startTime: 1am
    endTime: 5am
    timeZone: Europe/Berlin
  drain:
    timeout: 30m0s
    force: true
    blockedBy:
    - selector:
        matchLabels:
          app: batch
    avoidPendingNodes: true
  reboot: {{}}
"#
        ));
}

#[test]
fn each_converted_plan_is_valid() {
    let dir = Workdir::new([("a.yaml", KURED), ("b.yaml", OTHERS)]);
    let plans = dir.run("convert a.yaml b.yaml").ends(0).out;
    assert_eq!(plans.matches("kind: Plan").count(), 4, "{plans}");
    let both = "# From DaemonSet reboot-coordinator/flatcar-linux-update-agent (b.yaml:4) and Deployment";
    assert!(plans.contains(both), "{plans}");
    dir.run_with("validate -", &[], &plans)
        .ends(0)
        .err_has("4 Plans in 1 file: 0 errors, 0 warnings, 2 notes\n"); // all nodes, as the NodeOps say
    let json = dir.run("convert b.yaml -o json -n upgrades").ends(0).json();
    assert_eq!(json["items"].as_array().unwrap().len(), 3);
    assert_eq!(json["items"][2]["metadata"]["namespace"], "upgrades");
    let one = dir.run("convert a.yaml -o json").ends(0).json();
    assert_eq!(one["kind"], "Plan");
}

#[test]
fn converted_node_ops_roll_out_in_a_rehearsal() {
    let dir = Workdir::new([("b.yaml", OTHERS)]);
    let plans = dir.run("convert b.yaml").ends(0).out;
    let ops: Vec<&str> = plans.split("---\n").skip(1).collect();
    assert_eq!(ops.len(), 2);
    dir.run_with("rehearse -", &[], &ops.join("---\n")).ends(0);
}

#[test]
fn an_object_that_cannot_be_converted_is_named_and_the_others_are_printed() {
    let dir = Workdir::new([
        ("kured.yaml", KURED),
        (
            "bad.yaml",
            "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: bad}, spec: {command: 3}}",
        ),
        (
            "other.yaml",
            "{apiVersion: v1, kind: Secret, metadata: {name: s}}",
        ),
        ("broken.yaml", "a: [b"),
        ("twice.yaml", KURED),
    ]);
    dir.run("convert kured.yaml bad.yaml")
        .ends(1)
        .err_has("error: NodeOp bad (bad.yaml:1): invalid type: ")
        .out_has("name: kured");
    dir.run("convert other.yaml")
        .ends(2)
        .err_has("nothing in these files can be converted: refit knows the DaemonSet of kured");
    dir.run("convert broken.yaml")
        .ends(1)
        .err_has("error: broken.yaml:1: this is not YAML");
    dir.run("convert nowhere.yaml").ends(2).err_has("nowhere.yaml");
    dir.run("convert kured.yaml twice.yaml")
        .ends(1)
        .err_has("two Plans would be called kured");
}

/// What a container of a converted Plan runs.
fn script(plan: &str, container: &str) -> String {
    let plan: serde_json::Value = serde_saphyr::from_str(plan).unwrap();
    plan["spec"][container]["args"][0].as_str().unwrap().to_owned()
}

#[test]
fn the_preflight_of_an_upgrade_skips_a_node_of_the_same_version_and_no_other() {
    let dir = Workdir::new([("b.yaml", OTHERS)]);
    let plans = dir.run("convert b.yaml").ends(0).out;
    let root = dir.path().to_str().unwrap();
    let script = script(plans.split("---\n").last().unwrap(), "preflight")
        .replace("version \"\"", &format!("version {root}/image"))
        .replace("/host", &format!("{root}/host"))
        .replace("/dev/termination-log", &format!("{root}/said"));
    for folder in ["image/etc", "host/etc"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    let run = || {
        let _ = std::fs::remove_file(dir.path().join("said"));
        let status = Command::new("sh").args(["-c", &script]).status().unwrap();
        (
            status.code(),
            std::fs::read_to_string(dir.path().join("said")).unwrap_or_default(),
        )
    };
    let release = |version: &str| {
        format!("KAIROS_VERSION={version}\nKAIROS_SOFTWARE_VERSION_PREFIX=k3s\nKAIROS_SOFTWARE_VERSION=v1\n")
    };
    assert_eq!(run().0, Some(0), "neither has a version");
    dir.write("image/etc/kairos-release", release("v3"));
    assert_eq!(run().0, Some(0), "the host has none");
    dir.write("host/etc/os-release", release("v2"));
    assert_eq!(run().0, Some(0), "the host has another");
    dir.write("host/etc/kairos-release", release("v3"));
    assert_eq!(run(), (Some(77), "node is already at v3-k3sv1\n".to_owned()));
}
