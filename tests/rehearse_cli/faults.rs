//! `--fault`: what goes wrong on one node.

use super::with_plan;
use crate::workdir::Ran;

const MORE: &str = "  prepare: {image: example.com/prepare}
  drain: {force: true}
  reboot: {when: Always, timeout: 10m}
";

/// A rehearsal on a control-plane node and three workers, which the Plan selects.
fn rehearsed(more: &str, arguments: &str) -> Ran {
    with_plan("patch", more).run(&format!("rehearse plan.yaml -q --nodes 4 {arguments}"))
}

#[test]
fn each_fault_ends_its_node_with_its_own_reason_and_is_in_the_report() {
    for (fault, set, reason) in [
        (
            "away",
            "node-2 does not come back from its reboot",
            "RebootTimedOut: ",
        ),
        (
            "reboot",
            "node-2 stays in its boot when it is to reboot",
            "NeverRebooted: ",
        ),
        (
            "prepare",
            "prepare fails on node-2",
            "container prepare exited with 1: made to fail by --fault",
        ),
        (
            "drain",
            "drain fails on node-2",
            "container drain exited with 1: made to fail by --fault",
        ),
    ] {
        let ran = rehearsed(MORE, &format!("--fault node-2:{fault}")).ends(1);
        let last = ran.last_line().to_owned();
        assert!(
            last.starts_with("would fail: Plan patch failed on node-2: ") && last.contains(reason),
            "{last}"
        );
        let ran = ran.out_has(&format!("Fault: {set}\n")).out_has("  2/3   1 ");
        ran.err_has(&format!("assumed: {set}\n"));
    }
    let report = rehearsed(MORE, "-o json --fault node-1:away,node-2:drain").json();
    assert_eq!(
        report["faults"],
        serde_json::json!([
            "node-1 does not come back from its reboot",
            "drain fails on node-2"
        ])
    );
}

#[test]
fn a_late_node_starts_after_it_has_joined_and_the_rehearsal_waits_for_it() {
    let report = rehearsed("", "-o json --fault node-2:late=2h").ends(0).json();
    let turns = report["turns"].as_array().unwrap();
    let of = |node: &str| turns.iter().find(|turn| turn["node"] == node).unwrap();
    assert_eq!(turns.len(), 3);
    assert!(of("node-2")["start"].as_str().unwrap() >= "2026-01-05T11:00");
    for node in ["node-1", "node-3"] {
        assert!(of(node)["end"].as_str().unwrap() < "2026-01-05T10:00:00Z");
    }
    // Nobody waits for a node that no Plan selects.
    let ran = rehearsed("", "--fault control-1:late=2h").ends(0);
    assert!(
        ran.last_line().starts_with("complete: 1 Plan, 3 nodes"),
        "{ran:#?}"
    );
}

#[test]
fn a_late_node_of_a_snapshot_has_no_pods_before_it_joins() {
    let node = |name: &str| {
        format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: {name}, uid: uid-{name}, creationTimestamp: 2026-01-01T00:00:00Z, \
             labels: {{kubernetes.io/hostname: {name}}}}}, status: {{conditions: [{{type: Ready, status: \"True\"}}], \
             nodeInfo: {{bootID: {name}, kubeletVersion: v1.33.1}}}}}}\n"
        )
    };
    let pod = "- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a, uid: p}, spec: {nodeName: two, containers: [{name: a, image: a}]}}\n";
    let cluster = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}{pod}",
        node("one"),
        node("two")
    );
    let dir = with_plan("patch", "");
    dir.write("cluster.yaml", cluster);
    let ran = dir
        .run("rehearse plan.yaml -q --snapshot cluster.yaml --fault two:late=30m")
        .ends(0);
    // A node that has just joined waits for a minute.
    ran.out_has("two   patch  +0:31:00");
}

#[test]
fn a_fault_that_cannot_happen_is_said_and_one_of_no_node_is_refused() {
    let without = "--fault: it has no effect that node-1 does not come back from its reboot: no Plan that selects the node reboots \
                   it (spec.reboot)\n";
    rehearsed("", "--fault node-1:away").ends(0).err_has(without);
    let other = rehearsed(MORE, "--fault control-1:drain").ends(0);
    other.err_has("no Plan that selects the node drains it (spec.drain)");
    let unknown = rehearsed(MORE, "--fault nod-1:away").ends(2).prints("");
    unknown.err_has(
        "error: --fault: the cluster has no node nod-1; did you mean node-1? (the nodes are control-1, node-1, node-2, node-3)\n",
    );
    let wrong = rehearsed(MORE, "--fault node-1:gone").ends(2).prints("");
    wrong.err_has("\"gone\" is no fault; write away, drain, late, late=TIME, prepare or reboot");
}
