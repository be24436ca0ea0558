//! Objects other than Plans: NodeOps become Plans, and nodes in maintenance are held.

use serde_json::Value;

use super::plan;
use crate::workdir::Workdir;

const OP: &str = "apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: firmware, namespace: default}
spec:
  command: [/update.sh]
  image: registry.example.com/firmware:v3
  cordon: true
  concurrency: 2
  backoffLimit: 3
";

const MAINTENANCE: &str = "apiVersion: nodemaintenance.medik8s.io/v1beta1
kind: NodeMaintenance
metadata: {name: disk}
spec: {nodeName: node-2, reason: a new disk}
";

#[test]
fn a_node_op_is_rehearsed_as_the_plan_that_the_controller_makes_of_it() {
    let dir = Workdir::new([("op.yaml", OP)]);
    let ran = dir.run("rehearse op.yaml --nodes 4 -q").ends(0);
    ran.err_has(
        "op.yaml:1: NodeOp default/firmware: the controller makes Plan nodeop-firmware of it, and that is rehearsed\n",
    )
    .err_has("op.yaml:1: NodeOp default/firmware: backoffLimit was left out")
    .out_has("complete: 1 Plan, 4 nodes");
    let broken = OP.replace("concurrency: 2", "concurrency: two");
    let dir = Workdir::new([("op.yaml", &broken)]);
    dir.run("rehearse op.yaml")
        .ends(2)
        .err_has("op.yaml:8:16: spec.concurrency must be a whole number, but is text [wrong-type]");
}

#[test]
fn a_node_op_is_in_the_namespace_of_the_plans_beside_it() {
    let text = format!(
        "{}---\n{OP}",
        plan("a", "").replace("namespace: system-upgrade", "namespace: team")
    );
    let dir = Workdir::new([("both.yaml", &text)]);
    let json = dir.run("rehearse both.yaml --nodes 4 -o json").ends(0).json();
    let names: Vec<_> = json["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| &plan["name"])
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_node_in_maintenance_keeps_a_plan_from_it_until_the_end() {
    let dir = Workdir::new([("plan.yaml", &plan("a", "")), ("disk.yaml", MAINTENANCE)]);
    let ran = dir.run("rehearse plan.yaml disk.yaml --nodes 4 -q").ends(1);
    ran.err_has("assumed: NodeMaintenance disk holds Node node-2 until the end\n")
        .out_has("would stall: Plan a starts no further node: NodeBusy: Node node-2: NodeMaintenance disk works on the node; 1 node is left waiting");
    let elsewhere = MAINTENANCE.replace("node-2", "worker-17");
    let dir = Workdir::new([("plan.yaml", &plan("a", "")), ("disk.yaml", &elsewhere)]);
    dir.run("rehearse plan.yaml disk.yaml --nodes 4 -q")
        .ends(0)
        .err_has("NodeMaintenance disk holds nothing: there is no Node worker-17");
    let nameless = MAINTENANCE.replace("node-2", "''");
    let dir = Workdir::new([("plan.yaml", &plan("a", "")), ("disk.yaml", &nameless)]);
    dir.run("rehearse plan.yaml disk.yaml")
        .ends(2)
        .err_has("disk.yaml:4:18: spec.nodeName is empty; it must be the name of a node");
}

#[test]
fn a_snapshot_has_node_ops_and_nodes_in_maintenance_too() {
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, uid: uid-{name}, labels: {{kubernetes.io/hostname: {name}}}}}\n\
             status: {{conditions: [{{type: Ready, status: 'True'}}], nodeInfo: {{kubeletVersion: v1.33.0, bootID: b-{name}}}}}\n"
        )
    };
    let begun = OP.replace("name: firmware", "name: begun, uid: aaaaaaaa-1") + "status: {phase: Running}\n";
    let fresh = OP.replace("name: firmware", "name: fresh, uid: 0c9f1e7a-2b7b");
    let cluster =
        [node("node-1"), node("node-2")].concat() + &format!("---\n{begun}---\n{fresh}---\n{MAINTENANCE}");
    let dir = Workdir::new([("cluster.yaml", cluster.as_str())]);
    let ran = dir.run("rehearse --snapshot cluster.yaml -o json").ends(1);
    let ran = ran
        .err_has("assumed: the controller makes Plan nodeop-fresh-0c9f1e7a of NodeOp default/fresh\n")
        .err_has("assumed: NodeMaintenance disk holds Node node-2 until the end\n");
    let json: Value = ran.json();
    assert_eq!(json["plans"][0]["name"], "nodeop-fresh-0c9f1e7a");
    assert_eq!(json["plans"].as_array().unwrap().len(), 1);
}
