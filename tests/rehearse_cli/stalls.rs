//! Plans that would not come to their end: each ends with 1, and the last line says why.

use super::{plan, rehearse, write};

/// A Deployment of two pods whose budget lets none of them go.
const LOCKED: &str = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: data}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: db}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db, namespace: data}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: db}}}
";

/// The last line of a rehearsal that ends with 1.
fn reason(text: &str, arguments: &[&str]) -> String {
    let folder = write(&[("plan.yaml", text)]);
    let ended = rehearse(folder.path(), &[&["plan.yaml", "-q"], arguments].concat());
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    ended.last_line().to_owned()
}

#[test]
fn a_budget_that_never_allows_is_named() {
    let forever = plan("locked", "  jobActiveDeadlineSecs: 0\n  drain: {}\n") + LOCKED;
    let line = reason(&forever, &["--nodes", "4"]);
    assert!(
        line.starts_with("would stall: Plan locked gets no further on node-"),
        "{line}"
    );
    assert!(line.contains(" waits for PodDisruptionBudget db "), "{line}");
    let ends = plan("locked", "  drain: {}\n") + LOCKED;
    let line = reason(&ends, &["--nodes", "4"]);
    assert!(
        line.starts_with("would fail: Plan locked failed on node-"),
        "{line}"
    );
    assert!(
        line.contains("DeadlineExceeded") && line.contains("PodDisruptionBudget data/db"),
        "{line}"
    );
    let folder = write(&[("plan.yaml", &ends)]);
    let text = rehearse(folder.path(), &["plan.yaml", "-q", "--nodes", "4"]).stdout;
    assert!(
        text.contains("PodDisruptionBudget data/db never lets a pod go"),
        "{text}"
    );
    let past = plan("locked", "  drain: {disableEviction: true}\n") + LOCKED;
    let folder = write(&[("plan.yaml", &past)]);
    assert_eq!(
        rehearse(folder.path(), &["plan.yaml", "-q", "--nodes", "4"]).code,
        0
    );
}

#[test]
fn a_window_that_never_opens_is_told() {
    let never = "  window: {startTime: '22:00', endTime: '23:00'}\n";
    assert_eq!(
        reason(&plan("closed", never), &["--nodes", "4"]),
        "would stall: Plan closed starts no node: WindowClosed: spec.window is closed and never opens (never \
         22:00:00-23:00:00 UTC); 3 nodes are left waiting"
    );
}

const SERVERS: &str = "---
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: servers, namespace: system-upgrade}
spec:
  concurrency: 1
  version: v1.34.1
  nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}
  upgrade: {image: example.com/upgrade}
";

#[test]
fn a_dependency_that_never_completes_is_followed_to_its_cause() {
    let prepare = "  jobActiveDeadlineSecs: 0\n  prepare: {image: i, args: [prepare, servers]}\n";
    let agents = plan("agents", prepare);
    assert_eq!(
        reason(&agents, &["--nodes", "4"]),
        "would stall: Plan agents gets no further: 2 nodes wait in `prepare` for Plan servers, which is neither in the files \
         nor on the cluster"
    );
    let both = agents + SERVERS;
    let line = reason(&both, &["--nodes", "4", "--fail", "control-1"]);
    assert!(
        line.starts_with("would fail: Plan servers failed on control-1: "),
        "{line}"
    );
    assert!(line.contains("made to fail by --fail"), "{line}");
    let suspended = both.clone() + "  suspend: true\n";
    assert_eq!(
        reason(&suspended, &["--nodes", "4"]),
        "would stall: Plan servers starts no node: Suspended: spec.suspend is true; 1 node is left waiting"
    );
    let folder = write(&[("plan.yaml", &both)]);
    assert_eq!(
        rehearse(folder.path(), &["plan.yaml", "-q", "--nodes", "4"]).code,
        0
    );
}

#[test]
fn a_selector_that_finds_nothing_is_told() {
    let none = plan("none", "").replace(
        "operator: DoesNotExist}",
        "operator: DoesNotExist}, {key: node-role.kubernetes.io/control-plane, operator: Exists}",
    );
    assert_eq!(
        reason(&none, &[]),
        "would fail: Plan none selects no node: its spec.nodeSelector contradicts itself about \
         node-role.kubernetes.io/control-plane"
    );
    let snapshot = "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {kubernetes.io/hostname: a}}, status: \
                    {conditions: [{type: Ready, status: 'True'}], nodeInfo: {bootID: b}}}\n";
    let text = plan("gpu", "").replace(
        "{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}",
        "{matchLabels: {gpu: 'yes'}}",
    );
    let folder = write(&[("plan.yaml", &text), ("cluster.yaml", snapshot)]);
    let ended = rehearse(folder.path(), &["plan.yaml", "--snapshot", "cluster.yaml"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(
        ended.last_line(),
        "would fail: Plan gpu selects no node: none of 1 node has the label gpu=yes"
    );
}

#[test]
fn a_failed_node_keeps_its_slot_and_is_told_with_its_last_words() {
    let line = reason(
        &plan("some", "  cordon: true\n"),
        &["--nodes", "8", "--fail", "node-2"],
    );
    assert!(
        line.starts_with("would fail: Plan some failed on node-2: "),
        "{line}"
    );
    assert!(
        line.ends_with("made to fail by --fail"),
        "all others are done: {line}"
    );
    let line = reason(
        &plan("some", ""),
        &["--nodes", "12", "--fail", "node-1,node-2,50%"],
    );
    assert!(
        line.contains(" (and on 1 more node): ") && line.contains("nodes are left waiting"),
        "{line}"
    );
}
