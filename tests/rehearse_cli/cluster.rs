//! The effect on the cluster (control plane, versions, taints), and the format of times and waits.

use serde_json::json;

use super::{plan, with_plan};
use crate::workdir::Workdir;

/// A Plan for the control plane.
fn servers(concurrency: usize, version: &str, more: &str) -> String {
    plan("servers", more)
        .replace("concurrency: 2", &format!("concurrency: {concurrency}"))
        .replace("operator: DoesNotExist", "operator: In, values: ['true']")
        .replace("v1.34.1", version)
}

/// A cluster of three servers and a worker, as kubectl prints it.
fn snapshot(kubelet: &str, ready: [bool; 3], taint: &str) -> String {
    let node = |name: &str, role: &str, is_ready: bool, taints: &str| {
        let status = if is_ready { "True" } else { "False" };
        format!(
            "- apiVersion: v1
  kind: Node
  metadata: {{name: {name}, uid: uid-{name}, labels: {{kubernetes.io/hostname: {name}, kubernetes.io/os: linux{role}}}}}
  spec: {{{taints}}}
  status:
    conditions: [{{type: Ready, status: '{status}', reason: r, message: m}}]
    nodeInfo: {{bootID: boot-{name}, kubeletVersion: {kubelet}}}
"
        )
    };
    let role = ", node-role.kubernetes.io/control-plane: 'true', node-role.kubernetes.io/etcd: 'true'";
    let mut text = "apiVersion: v1\nkind: List\nitems:\n".to_owned();
    for (number, is_ready) in (1..).zip(ready) {
        text += &node(&format!("server-{number}"), role, is_ready, taint);
    }
    text + &node("agent-1", "", true, "")
}

/// A folder with one Plan, and a snapshot of a cluster if there is one.
fn folder(plan: &str, cluster: &str) -> Workdir {
    Workdir::new([("plan.yaml", plan), ("cluster.yaml", cluster)])
}

#[test]
fn control_plane_nodes_that_are_down_together_are_counted() {
    let run = |plan: &str, output: &str| {
        let line = format!("rehearse plan.yaml --nodes 7 {output}");
        folder(plan, "").run(&line).ends(0)
    };
    let (one, three) = (servers(1, "v1.34.1", ""), servers(3, "v1.34.1", ""));
    run(&one, "-q").out_has("\nControl plane: 1 of 3 nodes down at a time\n");
    let ran = run(&three, "-q").out_has("\nControl plane: 3 of 3 nodes down together, first at +0:0");
    ran.out_has(
        "(control-1, control-2, control-3); etcd loses its quorum with 3 of 3 members down; set concurrency: 1 in Plan servers\n",
    );
    let control = run(&three, "-o json").json()["controlPlane"].clone();
    for (field, expected) in [
        ("nodes", json!(3)),
        ("mostDown", json!(3)),
        ("losesQuorum", json!(true)),
        ("plans", json!(["servers"])),
    ] {
        assert_eq!(control[field], expected, "{control}");
    }
    run(&plan("workers", ""), "-q").out_lacks("Control plane");
}

#[test]
fn a_server_that_is_not_ready_counts_as_down() {
    let plan = servers(1, "v1.34.1", "  tolerations: [{operator: Exists}]\n");
    let dir = folder(&plan, &snapshot("v1.33.5", [true, true, false], ""));
    let json = dir
        .run("rehearse plan.yaml --snapshot cluster.yaml -o json")
        .json();
    let control = &json["controlPlane"];
    assert_eq!(control["mostDown"], 2, "{control}");
    assert_eq!(control["notReady"], json!(["server-3"]));
    assert_eq!(control["losesQuorum"], true);
}

/// K3s labels the nodes that run its etcd. Others have a database outside of the cluster.
#[test]
fn servers_of_k3s_without_the_role_of_etcd_lose_no_quorum() {
    for (build, loses) in [("+k3s1", false), ("", true)] {
        let servers = servers(3, &format!("v1.34.1{build}"), "");
        let kubelet = format!("v1.33.5{build}");
        let cluster = snapshot(&kubelet, [true; 3], "").replace(", node-role.kubernetes.io/etcd: 'true'", "");
        let run = |output: &str| {
            folder(&servers, &cluster).run(&format!("rehearse plan.yaml --snapshot cluster.yaml {output}"))
        };
        let ran = run("-q").out_has("Control plane: 3 of 3 nodes down together");
        assert_eq!(ran.out.contains("etcd"), loses, "{ran:#?}");
        assert_eq!(run("-o json").json()["controlPlane"]["losesQuorum"], loses);
    }
}

#[test]
fn a_label_of_a_snapshot_that_is_no_text_is_an_error_with_its_node() {
    let cluster = snapshot("v1.33.5", [true; 3], "");
    for value in ["true", "1"] {
        let cluster = cluster.replacen("etcd: 'true'", &format!("etcd: {value}"), 1);
        let refused =
            folder(&servers(1, "v1.34.1", ""), &cluster).run("rehearse plan.yaml --snapshot cluster.yaml");
        refused.ends(2).err_has(&format!(
            "cluster.yaml: Node server-1: metadata.labels.node-role.kubernetes.io/etcd must be text, but is {value}; write \"{value}\""
        ));
    }
}

#[test]
fn skips_of_a_minor_version_and_downgrades_are_named() {
    let of = |kubelet: &str, version: &str| {
        let dir = folder(&servers(1, version, ""), &snapshot(kubelet, [true; 3], ""));
        let run = |output: &str| dir.run(&format!("rehearse plan.yaml --snapshot cluster.yaml {output}"));
        (run("-q"), run("-o json").json()["versionChanges"].clone())
    };
    let (ran, changes) = of("v1.31.4+k3s1", "v1.33.1+k3s1");
    ran.out_has(
        "\nPlan servers skips a minor version on 3 nodes: v1.31.4+k3s1 to v1.33.1+k3s1; upgrade to v1.32 first (server-",
    );
    assert_eq!(changes[0]["kind"], "skipsMinor", "{changes}");
    assert_eq!(changes[0]["nodes"].as_array().unwrap().len(), 3);
    let (ran, changes) = of("v1.34.1+rke2r1", "v1.33.4+rke2r1");
    ran.out_has("\nPlan servers downgrades 3 nodes: v1.34.1+rke2r1 to v1.33.4+rke2r1; ");
    assert_eq!(changes[0]["kind"], "downgrade");
    let (ran, changes) = of("v1.33.5", "v1.34.0");
    ran.out_lacks("skips").out_lacks("downgrades");
    assert_eq!(changes, json!([]));
}

/// Generated nodes run a version from which all Plans upgrade, unless a flag sets another one.
#[test]
fn generated_nodes_run_a_version_that_the_plans_upgrade() {
    for version in ["v1.24.3", "v1.33.4+k3s1", "v1.34.1", "v1.36.0-rke2r1", "v1.41.0"] {
        let dir = folder(&servers(1, version, ""), "");
        let json = dir.run("rehearse plan.yaml --nodes 7 -o json").json();
        assert_eq!(
            json["versionChanges"],
            json!([]),
            "{version}: {}",
            json["assumed"]
        );
    }
    let dir = folder(&servers(1, "v1.34.1", ""), "");
    let ran = dir
        .run("rehearse plan.yaml --kubelet v1.31.2 -q")
        .err_has("kubelet v1.31.2");
    ran.out_has("v1.31.2 to v1.34.1; upgrade to v1.32 first");
    dir.run("rehearse plan.yaml --kubelet new").ends(2);
}

#[test]
fn servers_and_agents_of_a_usual_pair_get_the_nodes_that_they_are_for() {
    let agents = plan("agents", "").replace("operator: DoesNotExist", "operator: NotIn, values: ['true']");
    let dir = folder(&(agents + "---\n" + &servers(1, "v1.34.1", "")), "");
    let json = dir.run("rehearse plan.yaml --nodes 9 -o json").json();
    let turns = json["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 9);
    for turn in turns {
        let is_server = turn["node"].as_str().unwrap().starts_with("control-");
        assert_eq!(turn["plan"] == "servers", is_server, "{turn}");
    }
}

#[test]
fn a_node_with_a_taint_that_is_not_tolerated_does_not_start() {
    let taint =
        "taints: [{key: dedicated, value: etcd, effect: NoExecute}, {key: seen, effect: PreferNoSchedule}]";
    let cluster = snapshot("v1.33.5", [true; 3], taint);
    let line = |more: &str, code: i32| {
        let dir = folder(&servers(1, "v1.34.1", more), &cluster);
        let ran = dir
            .run("rehearse plan.yaml --snapshot cluster.yaml -q")
            .ends(code);
        ran.last_line().to_owned()
    };
    let line_of_all = "would stall: Plan servers starts no node: TaintNotTolerated: Node server-1: the node has the taint dedicated=etcd:NoExecute, which \
                       the Plan does not tolerate; to upgrade such nodes, add to spec.tolerations: {key: dedicated, value: \"etcd\", \
                       effect: NoExecute}; 3 nodes are left waiting";
    assert_eq!(line("", 1), line_of_all);
    line(
        "  tolerations: [{key: dedicated, value: \"etcd\", effect: NoExecute}]\n",
        0,
    );
    line("  tolerations: [{key: dedicated, operator: Exists}]\n", 0);
}

#[test]
fn the_advice_about_taints_depends_on_what_sets_them() {
    let advice = |taints: &str| {
        let cluster = snapshot("v1.33.5", [true; 3], &format!("taints: [{taints}]"));
        let dir = folder(&servers(1, "v1.34.1", ""), &cluster);
        let ran = dir.run("rehearse plan.yaml --snapshot cluster.yaml -q").ends(1);
        ran.last_line().to_owned()
    };
    let pressure = "{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}";
    let (etcd, gpu) = (
        "{key: dedicated, value: etcd, effect: NoExecute}",
        "{key: gpu, effect: NoSchedule}",
    );
    for (taints, remedy) in [
        (
            format!("{etcd}, {gpu}"),
            "; to upgrade such nodes, add to spec.tolerations: {key: dedicated, value: \"etcd\", effect: NoExecute}, {key: gpu, \
             operator: Exists, effect: NoSchedule}",
        ),
        (
            pressure.to_owned(),
            ", which the Plan does not tolerate; Kubernetes removes node.kubernetes.io/disk-pressure:NoSchedule when the node is \
             healthy",
        ),
        (
            format!("{pressure}, {gpu}"),
            "; to upgrade such nodes, add to spec.tolerations: {key: gpu, operator: Exists, effect: NoSchedule}; Kubernetes removes \
             node.kubernetes.io/disk-pressure:NoSchedule when the node is healthy",
        ),
    ] {
        let line = advice(&taints);
        let end = format!("{remedy}; 3 nodes are left waiting");
        assert!(line.ends_with(&end), "{end:?} does not end {line}");
    }
}

#[test]
fn times_can_be_clock_times_in_the_zone_of_the_window() {
    let window = "  window: {days: [mon], startTime: '10:00', endTime: '20:00', timeZone: Europe/Berlin}\n";
    let dir = with_plan("daily", window);
    let line = "rehearse plan.yaml --nodes 4 --upgrade 2m --times";
    let ran = dir.run(line).ends(0).out_lacks("+0:");
    // The window opens at ten in Berlin.
    let ran = ran.out_has(" 2026-01-05 10:00:0");
    let last = ran.last_line();
    let is_local = last.starts_with("complete: 1 Plan, 3 nodes, in ") && last.ends_with(" CET");
    assert!(is_local, "{last}");
    let json = dir.run(&format!("{line} -o json")).json();
    assert_eq!(json["plans"][0]["window"]["timeZone"], "Europe/Berlin");
}

#[test]
fn nodes_that_wait_for_the_same_thing_are_grouped() {
    let prepare = "  prepare: {image: i, args: [prepare, servers]}\n  jobActiveDeadlineSecs: 0\n";
    let text = plan("agents", prepare) + "---\n" + &servers(1, "v1.34.1", "");
    let dir = folder(&text, "");
    let ran = dir.run("rehearse plan.yaml --nodes 9 -q").ends(0);
    assert_eq!(ran.out.matches(" for Plan servers ").count(), 1, "{ran:#?}");
    let ran = ran.out_has("  2 nodes of agents for Plan servers (from +0:00:0");
    ran.out_has("): node-");
    let json = dir.run("rehearse plan.yaml --nodes 9 -o json").json();
    let mut groups = json["waitGroups"].as_array().unwrap().iter();
    let group = groups.find(|group| group["blocker"] == "Plan servers").unwrap();
    assert_eq!(group["nodes"].as_array().unwrap().len(), 2, "{group}");
}

#[test]
fn assumed_settings_are_named() {
    let dir = with_plan("p", "");
    let assumption = "the controller's settings are those of deploy/config.yaml (Job deadline 900s, 99 retries); --config reads another file";
    let rehearsed = dir.run("rehearse plan.yaml --nodes 3 -q");
    rehearsed.err_has(&format!("assumed: {assumption}\n"));
    let rendered = dir.run("render plan.yaml --node a -o json").err_has(assumption);
    let spec = &rendered.json()["spec"];
    assert_eq!(
        (&spec["activeDeadlineSeconds"], &spec["backoffLimit"]),
        (&json!(900), &json!(99))
    );
}

#[test]
fn every_command_ends_with_two_for_files_without_a_plan_and_does_not_wait_for_a_named_pipe() {
    let dir = Workdir::new([(
        "none.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
    )]);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = dir.path().join("pipe.yaml");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for command in [
        "validate",
        "pin",
        "pin --check",
        "resolve",
        "render --node a",
        "rehearse",
    ] {
        let none = dir.run(&format!("{command} none.yaml")).ends(2);
        none.err_has("error: there is no Plan in these files");
        let pipe = dir.run(&format!("{command} pipe.yaml")).ends(2);
        pipe.err_has("pipe.yaml: a FIFO, and not a file");
    }
}
