//! `refit render`: the Job, offline from files.

use serde_json::{Value, json};

use crate::testenv::channel::ChannelServer;
use crate::workdir::{Ran, Workdir};

/// The Plan of the vectors in S29 and S43.
const PLAN: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: k3s-server, namespace: system-upgrade, labels: {team: a}}
spec:
  concurrency: 1
  version: v1.20.11+k3s1
  nodeSelector: {matchLabels: {k3s-upgrade: enabled}}
  serviceAccountName: system-upgrade
  drain: {force: true}
  upgrade: {image: rancher/k3s-upgrade}
";
const JOB: &str = "apply-k3s-server-on-node1-with-21c75c607087495cc7f2c945c5-43b87";

/// A folder with a Plan.
fn written(text: &str) -> Workdir {
    Workdir::new([("plan.yaml", text)])
}

fn render(dir: &Workdir, arguments: &str) -> Ran {
    dir.run(&format!("render plan.yaml {arguments}"))
}

#[track_caller]
fn job(dir: &Workdir, arguments: &str) -> Value {
    render(dir, &format!("-o json {arguments}")).ends(0).json()
}

fn own_image(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]["initContainers"][0]["image"]
}

#[test]
fn a_job_is_made_offline_with_the_name_and_hash_that_the_controller_gives() {
    let dir = written(PLAN);
    // The UID of the Plan is assumed.
    let ran = render(&dir, "--node node1.example.com")
        .ends(0)
        .err_has("00000000-0000-0000-0000-000000000000");
    let job = job(&dir, "--node node1.example.com");
    assert_eq!(serde_saphyr::from_str::<Value>(&ran.out).unwrap(), job);
    let pod = &job["spec"]["template"]["spec"];
    let labels = &job["metadata"]["labels"];
    let hash = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";
    for (found, expected) in [
        (&job["apiVersion"], "batch/v1"),
        (&job["kind"], "Job"),
        (&job["metadata"]["name"], JOB),
        (&job["metadata"]["namespace"], "system-upgrade"),
        (&labels["team"], "a"),
        (&labels["plan.upgrade.cattle.io/k3s-server"], hash),
        (
            &pod["containers"][0]["image"],
            "rancher/k3s-upgrade:v1.20.11-k3s1",
        ),
        (&pod["initContainers"][0]["args"][1], "node1.example.com"),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn settings_are_the_controllers_by_environment_and_by_its_config_map() {
    let dir = written(PLAN);
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "default-controller-env" },
        "data": { "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT": "99", "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS": "900" },
    });
    dir.write("config.yaml", config.to_string());
    let line = "render -o=json --node=a --config=config.yaml --name=mine plan.yaml";
    let variables = [
        ("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7"),
        ("REFIT_IMAGE", "example.com/refit:v9"),
    ];
    let job = dir.run_with(line, &variables, "").json();
    // The environment takes precedence.
    assert_eq!(job["spec"]["backoffLimit"], 7);
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 900);
    assert_eq!(job["metadata"]["labels"]["upgrade.cattle.io/controller"], "mine");
    assert_eq!(own_image(&job), "example.com/refit:v9");
}

#[test]
fn a_given_node_must_match_the_selector_and_windows_has_its_own_job() {
    let dir = written(PLAN);
    let node = |labels: Value| {
        let metadata = json!({ "name": "node1", "uid": "node-uid", "labels": labels });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
        dir.write("node.yaml", node.to_string());
    };
    let unschedulable = "refit.rs/unschedulable-before";
    node(json!({ "kubernetes.io/hostname": "node1", "k3s-upgrade": "enabled", "kubernetes.io/os": "linux" }));
    let linux = job(&dir, "--node-file node.yaml");
    assert_eq!(linux["metadata"]["annotations"]["refit.rs/node-uid"], "node-uid");
    assert_eq!(linux["metadata"]["annotations"].get(unschedulable), None);
    let host = ("kubernetes.io/hostname", "node1");
    let enabled = ("k3s-upgrade", "enabled");
    for (labels, why) in [
        (
            vec![host],
            "Plan k3s-server does not select node node1: spec.nodeSelector requires the label k3s-upgrade=enabled, and it has \
             no such label; the controller would create no Job",
        ),
        (
            vec![host, ("k3s-upgrade", "no")],
            "the label k3s-upgrade=enabled, and it has k3s-upgrade=no",
        ),
        (
            vec![host, enabled, ("plan.upgrade.cattle.io/k3s-server", "disabled")],
            "plan.upgrade.cattle.io/k3s-server=disabled excludes it from the Plan",
        ),
    ] {
        node(labels.into_iter().collect());
        render(&dir, "--node-file node.yaml")
            .ends(1)
            .prints("")
            .err_has(why);
    }
    render(&dir, "--node=node1 --label=k3s-upgrade=disabled").ends(1);
    // As kubectl takes several.
    render(&dir, "--node=node1 --label=k3s-upgrade=enabled,pool=a").ends(0);
    render(&dir, "--node=node1 --label=pool=a,k3s-upgrade=no")
        .ends(1)
        .err_has("and it has k3s-upgrade=no;");
    render(&dir, "--node=node1 --label=k3s-upgrade=enabled,pool")
        .ends(2)
        .err_has("write KEY=VALUE");

    let image = "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS";
    let without = render(&dir, "--node=node1 --os=windows").ends(1);
    without.err_has(&format!("{image} is required"));
    let line = "render -o=json --node=node1 --os=windows plan.yaml";
    let job = dir
        .run_with(line, &[(image, "example.com/kubectl:v1")], "")
        .json();
    assert_eq!(job["metadata"]["annotations"][unschedulable], "false");
    assert_eq!(own_image(&job), "example.com/kubectl:v1");
}

#[test]
fn secrets_in_the_files_count_towards_the_hash_as_on_a_cluster() {
    // S43: version bionic, this account, and a Secret whose hash is 2tg9fbfm4c.
    let text = "apiVersion: v1
kind: Secret
metadata: {name: test, namespace: system-upgrade}
stringData: {config: test}
---
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: bionic, namespace: system-upgrade}
spec:
  version: bionic
  serviceAccountName: system-upgrade
  secrets: [{name: test, path: /a}]
  nodeSelector: {}
  upgrade: {image: ubuntu}
";
    let hash = |job: &Value| job["metadata"]["labels"]["plan.upgrade.cattle.io/bionic"].clone();
    let expected = "95450d71b15c26e5794af5b4d6cd1daf20a090727be74570816c5eba";
    assert_eq!(hash(&job(&written(text), "--node=a")), expected);
    let (_, plan) = text.split_once("---\n").unwrap();
    let ran = render(&written(plan), "--node=a -o=json").ends(0);
    assert_ne!(hash(&ran.json()), expected);
    ran.err_has("no file has Secret test");
}

#[test]
fn a_node_of_unknown_labels_has_at_least_the_name_and_the_system_that_the_flags_say() {
    let of = |selector: &str, arguments: &str, why: &str| {
        let text = format!(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: p, namespace: system-upgrade}}\n\
             spec:\n  version: v1\n  nodeSelector: {selector}\n  upgrade: {{image: i}}\n"
        );
        let ran = render(&written(&text), arguments);
        if why.is_empty() {
            ran.ends(0);
        } else {
            ran.ends(1)
                .err_has(&format!("Plan p does not select node n1: {why}"));
        }
    };
    let labels = "{matchLabels: {kubernetes.io/os: linux, kubernetes.io/hostname: n1, gpu: 'yes'}}";
    of(labels, "--node=n1 --os=linux", "");
    of("null", "--node=n1", "it has no spec.nodeSelector");
    of(
        "{matchLabels: {kubernetes.io/os: windows}}",
        "--node=n1 --os=linux",
        "spec.nodeSelector requires the label kubernetes.io/os=windows, and it has kubernetes.io/os=linux",
    );
    of(
        "{matchLabels: {kubernetes.io/hostname: n2}}",
        "--node=n1",
        "spec.nodeSelector requires the label kubernetes.io/hostname=n2, and it has kubernetes.io/hostname=n1",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_is_the_one_given_the_plans_own_or_that_of_its_channel() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.34.1+k3s1").fails("/gone", 404);
    let following = |path: &str| {
        PLAN.replace(
            "version: v1.20.11+k3s1",
            &format!("channel: {}", server.url(path)),
        )
    };
    let dir = written(&following("/stable"));
    for (arguments, version) in [
        ("--node=a", "v1.34.1-k3s1"),
        ("--node=a --version=v1.30.0+k3s1", "v1.30.0-k3s1"),
    ] {
        let job = job(&dir, arguments);
        assert_eq!(job["metadata"]["labels"]["upgrade.cattle.io/version"], version);
    }
    assert_eq!(server.asked("/stable").len(), 1, "not queried with --version");
    // A version that the Plan's policy holds back is not rendered.
    let held = following("/stable") + "  versionPolicy: {range: <1.34}\n";
    let ran = render(&written(&held), "--node=a").ends(1).prints("");
    ran.err_has("v1.34.1+k3s1 is not in the range <1.34; set one with --version");
    let ran = render(&written(&following("/gone")), "--node=a").ends(1);
    ran.err_has("404 Not Found").err_has("set one with --version");
}

#[test]
fn an_invalid_plan_is_not_rendered_and_one_plan_can_be_chosen() {
    let dir = written(&PLAN.replace("concurrency: 1", "concurrency: one"));
    let ran = render(&dir, "--node=a").ends(1).prints("");
    ran.err_has("plan.yaml:5:16: spec.concurrency must be a whole number, but is text [wrong-type]");
    let other = PLAN.replace("name: k3s-server", "name: other");
    let dir = written(&format!("{PLAN}---\n{other}"));
    assert_eq!(job(&dir, "--node=a")["items"].as_array().unwrap().len(), 2);
    let one = job(&dir, "--node=a --plan=other");
    assert_eq!(one["metadata"]["labels"]["upgrade.cattle.io/plan"], "other");
    render(&dir, "--node=a --plan=none").ends(2);
}

#[test]
fn the_pod_that_reboots_the_node_follows_the_job_of_a_plan_that_may_reboot() {
    let with = |reboot: &str| format!("{PLAN}  reboot: {reboot}\n");
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node1, uid: uid-of-the-node, labels: {k3s-upgrade: enabled, kubernetes.io/hostname: node1}}\nstatus:\n  nodeInfo: {bootID: \
                boot-1, architecture: amd64, containerRuntimeVersion: x, kernelVersion: x, kubeProxyVersion: x, \
                kubeletVersion: v1, machineID: x, operatingSystem: linux, osImage: x, systemUUID: x}\n";
    for when in ["Always", "IfRequired"] {
        let dir = written(&with(&format!("{{when: {when}, timeout: 7m, command: [halt]}}")));
        dir.write("node.yaml", node);
        let list = job(&dir, "--node-file node.yaml");
        let items = list["items"].as_array().unwrap();
        let kinds: Vec<_> = items.iter().map(|item| &item["kind"]).collect();
        assert_eq!(kinds, ["Job", "Pod"], "{list:#}");
        let pod = &items[1]["spec"];
        assert_eq!(
            (&pod["nodeName"], &pod["activeDeadlineSeconds"]),
            (&json!("node1"), &json!(420))
        );
        let args = pod["containers"][0]["args"].to_string();
        assert!(
            args.contains("--boot-id=boot-1") && args.contains("halt"),
            "{args}"
        );

        let ran = render(&dir, "--node node1")
            .ends(0)
            .err_has("the boot ID of the node");
        assert_eq!(ran.out.matches("\nkind: ").count(), 2, "{ran:#?}");
    }
    let never = job(&written(&with("{when: Never}")), "--node node1");
    assert_eq!(never["kind"], "Job");
}
