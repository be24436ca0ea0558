//! Plans that would stall: exit code 1, and the reason in the last line.

use super::{plan, with_plan};
use crate::workdir::{Ran, Workdir};

/// A Deployment of two pods whose budget allows no eviction.
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

/// A rehearsal of these Plans on four nodes.
fn rehearsed(text: &str, arguments: &str) -> Ran {
    let dir = Workdir::new([("plan.yaml", text)]);
    dir.run(&format!("rehearse plan.yaml -q --nodes 4 {arguments}"))
}

/// The last line of a rehearsal that ends with 1.
#[track_caller]
fn reason(text: &str, arguments: &str) -> String {
    rehearsed(text, arguments).ends(1).last_line().to_owned()
}

/// Checks the beginning of a line, and what is in it.
#[track_caller]
fn says(line: &str, begins: &str, parts: &[&str]) {
    assert!(line.starts_with(begins), "{line}");
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
}

#[test]
fn a_budget_that_never_allows_is_named() {
    let forever = plan("locked", "  jobActiveDeadlineSecs: 0\n  drain: {}\n") + LOCKED;
    let waits = [" waits for PodDisruptionBudget db "];
    says(
        &reason(&forever, ""),
        "would stall: Plan locked makes no progress on node-",
        &waits,
    );
    let ran = rehearsed(&(plan("locked", "  drain: {}\n") + LOCKED), "").ends(1);
    let failed = "would fail: Plan locked failed on node-";
    says(
        ran.last_line(),
        failed,
        &["DeadlineExceeded", " waits for PodDisruptionBudget db "],
    );
    ran.out_has("PodDisruptionBudget data/db allows no eviction");
    rehearsed(
        &(plan("locked", "  drain: {disableEviction: true}\n") + LOCKED),
        "",
    )
    .ends(0);
}

/// A virtual machine of KubeVirt with its budget, which its webhook makes void: the machine moves.
#[test]
fn a_budget_of_an_operator_holds_no_drain() {
    let node = |name: &str| {
        format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, \
             kubernetes.io/os: linux}}}}, status: {{conditions: [{{type: Ready, status: 'True'}}]}}}}\n"
        )
    };
    let machine = "- apiVersion: v1
  kind: Pod
  metadata:
    name: virt-launcher-web-0
    namespace: shop
    labels: {vm: web-0}
    ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: web-0, uid: vmi, controller: true}]
  spec: {nodeName: a, containers: [{name: c, image: i}]}
  status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}
- apiVersion: policy/v1
  kind: PodDisruptionBudget
  metadata: {name: vm, namespace: shop}
  spec: {minAvailable: 1, selector: {matchLabels: {vm: web-0}}}
";
    let snapshot = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}{}{machine}",
        node("a"),
        node("b")
    );
    let plan = plan("p", "  drain: {checkFirst: true}\n");
    let dir = Workdir::new([("plan.yaml", plan.as_str()), ("cluster.yaml", snapshot.as_str())]);
    let ran = dir.run("rehearse plan.yaml -q --snapshot cluster.yaml").ends(0);
    ran.out_lacks("allows no eviction")
        .err_has("assumed: operators let their pods go in spite of 1 disruption budget\n");
}

#[test]
fn a_node_whose_lease_another_program_holds_in_the_snapshot_waits_for_its_end() {
    let snapshot = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: a, labels: {kubernetes.io/hostname: a, kubernetes.io/os: linux}}
  status: {conditions: [{type: Ready, status: 'True'}]}
- apiVersion: coordination.k8s.io/v1
  kind: Lease
  metadata: {name: node-a, namespace: medik8s-leases}
  spec: {holderIdentity: snr, leaseDurationSeconds: 3600, renewTime: '2026-01-05T08:30:00.000000Z'}
- {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a, namespace: kube-node-lease}, spec: {}}
";
    let plan = plan("p", "  pauseRemediation: true\n");
    let dir = Workdir::new([("plan.yaml", plan.as_str()), ("cluster.yaml", snapshot)]);
    let ran = dir.run("rehearse plan.yaml -q --snapshot cluster.yaml --start 2026-01-05T09:00:00Z");
    ran.ends(0)
        .out_has("snr holds Lease medik8s-leases/node-a until 2026-01-05T09:30:00Z")
        .err_has("left out, because refit does not simulate it: 1 Lease\n");
}

#[test]
fn a_window_that_never_opens_is_reported() {
    let never = "  window: {startTime: '22:00', endTime: '23:00'}\n";
    assert_eq!(
        reason(&plan("closed", never), ""),
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
        reason(&agents, ""),
        "would stall: Plan agents makes no progress on node-1 (and on 1 more node): Prepare: `prepare` waits for Plan servers, \
         which does not exist; apply it too, or name another one in spec.prepare.args; 1 node is left waiting"
    );
    let both = agents + SERVERS;
    let failed = "would fail: Plan servers failed on control-1: ";
    says(
        &reason(&both, "--fail control-1"),
        failed,
        &["made to fail by --fail"],
    );
    let suspended = both.clone() + "  suspend: true\n";
    assert_eq!(
        reason(&suspended, ""),
        "would stall: Plan servers starts no node: Suspended: spec.suspend is true; 1 node is left waiting"
    );
    rehearsed(&both, "").ends(0);
}

/// If the Plan of the servers has another name, the control plane is upgraded nevertheless, but the script of K3s and
/// RKE2 looks for the Plan first.
#[test]
fn a_prepare_that_waits_for_a_plan_that_does_not_exist_never_ends() {
    let agents = |args: &str, more: &str| {
        let prepare = format!("  prepare: {{image: rancher/k3s-upgrade, args: {args}}}\n{more}");
        plan("agents", &prepare) + SERVERS
    };
    let forever = "  jobActiveDeadlineSecs: 0\n";
    assert_eq!(
        reason(&agents("[prepare, server]", forever), ""),
        "would stall: Plan agents makes no progress on node-1 (and on 1 more node): Prepare: `prepare` waits for Plan server, \
         which does not exist (did you mean Plan servers?); 1 node is left waiting"
    );
    let failed = "would fail: Plan agents failed on node-";
    let waited = "; it waited for Plan server, which does not exist (did you";
    says(
        &reason(&agents("[prepare, server]", ""), ""),
        failed,
        &["PrepareTimedOut", "DeadlineExceeded", waited],
    );
    assert_eq!(
        reason(&agents("[prepare, agents]", forever), ""),
        "would stall: Plan agents makes no progress on node-1 (and on 1 more node): Prepare: `prepare` waits for Plan agents \
         itself, which is applying while it waits; name the Plan of the control-plane nodes in spec.prepare.args; 1 node is left \
         waiting"
    );
    for (args, word) in [("[servers]", "servers"), ("[prepare servers]", "prepare servers")] {
        let unknown =
            format!("{word:?} is neither a function of this image nor a program: write args: [prepare, ");
        says(&reason(&agents(args, ""), ""), failed, &[&unknown]);
    }
    rehearsed(&agents("[upgrade]", ""), "")
        .ends(0)
        .err_has("Plan agents: its `prepare` upgrades the node at once and waits for no Plan");
    rehearsed(&agents("[sleep, '5']", ""), "")
        .ends(0)
        .err_has("assumed: Plan agents: what its `prepare` runs is unknown to refit, and succeeds");
    says(
        &reason(&agents("[prepare, servers]", forever), "--plan agents"),
        "would stall: Plan agents",
        &["waits for Plan servers, which is in the files, but left out by --plan; add --plan servers; "],
    );
    let nameless = reason(&agents("[prepare]", ""), "");
    says(&nameless, failed, &["without the name of a Plan"]);
    let newer = agents("[prepare, servers]", forever).replacen("v1.34.1", "v1.34.2", 1);
    let line = reason(&newer, "");
    assert!(
        line.ends_with(
            "`prepare` waits for control-plane nodes of version v1.34.2, and control-1 runs v1.34.1; Plan servers has v1.34.1; \
             give both Plans the same version; 1 node is left waiting"
        ),
        "{line}"
    );
}

#[test]
fn a_plan_of_another_namespace_is_not_found_by_prepare_nor_by_depends_on() {
    let more =
        "  jobActiveDeadlineSecs: 0\n  prepare: {image: rancher/k3s-upgrade, args: [prepare, servers]}\n";
    let elsewhere = SERVERS.replace("namespace: system-upgrade", "namespace: other");
    says(
        &reason(&(plan("agents", more) + &elsewhere), "--namespace system-upgrade"),
        "would stall: Plan agents makes no progress on node-",
        &[
            "`prepare` waits for Plan servers, which is in namespace other, and a Plan waits only for Plans of its own; \
             name one of those, or move one of the two",
        ],
    );
    let depends = plan("agents", "  dependsOn: [{name: servers}]\n") + &elsewhere;
    let line = reason(&depends, "--namespace system-upgrade");
    let parts = [
        "; Plan servers is in namespace other, and a Plan waits only for Plans of its own; name one of those",
    ];
    says(
        &line,
        "would stall: Plan agents starts no node: DependencyUnknown",
        &parts,
    );
    assert!(!line.contains("prepare"), "{line}");
}

#[test]
fn two_plans_that_wait_for_each_other_never_end() {
    let prepare = |plan: &str| {
        format!("  jobActiveDeadlineSecs: 0\n  prepare: {{image: i, args: [prepare, {plan}]}}\n")
    };
    let both = plan("agents", &prepare("servers")) + SERVERS + &prepare("agents");
    let line = reason(&both, "");
    assert!(line.starts_with("would stall: Plan "), "{line}");
    assert!(line.contains("; remove `prepare` from one of the two"), "{line}");
    let more = format!("---\n{}", plan("more", &prepare("agents")));
    let three = plan("agents", &prepare("servers")) + SERVERS + &prepare("more") + &more;
    let line = reason(&three, "");
    assert!(
        line.contains("; remove `prepare` from one of these 3 Plans"),
        "{line}"
    );
}

#[test]
fn a_plan_that_is_left_out_is_named_where_another_one_waits_for_it() {
    let prepare = "  jobActiveDeadlineSecs: 0\n  prepare: {image: i, args: [prepare, servers]}\n";
    rehearsed(&(plan("agents", prepare) + SERVERS), "--plan agents")
        .ends(1)
        .err_has(
            "Plan agents waits in `prepare` for Plan servers, which --plan leaves out: add --plan servers",
        );
}

#[test]
fn a_selector_without_a_match_is_reported() {
    let none = plan("none", "").replace(
        "operator: DoesNotExist}",
        "operator: DoesNotExist}, {key: node-role.kubernetes.io/control-plane, operator: Exists}",
    );
    assert_eq!(
        reason(&none, ""),
        "would fail: Plan none selects no node: its spec.nodeSelector contradicts itself about \
         node-role.kubernetes.io/control-plane"
    );
    let snapshot = "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {kubernetes.io/hostname: a}}, status: \
                    {conditions: [{type: Ready, status: 'True'}], nodeInfo: {bootID: b}}}\n";
    let text = plan("gpu", "").replace(
        "{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}",
        "{matchLabels: {gpu: 'yes'}}",
    );
    let dir = Workdir::new([("plan.yaml", &text), ("cluster.yaml", snapshot)]);
    let ran = dir.run("rehearse plan.yaml --snapshot cluster.yaml").ends(1);
    assert_eq!(
        ran.last_line(),
        "would fail: Plan gpu selects no node: the only node does not have the label gpu=yes"
    );
}

#[test]
fn a_failed_node_keeps_its_slot_and_is_reported_with_its_termination_message() {
    let ran = with_plan("some", "  cordon: true\n")
        .run("rehearse plan.yaml -q --nodes 8 --fail node-2")
        .ends(1);
    let line = ran.last_line();
    says(
        line,
        "would fail: Plan some failed on node-2: ContainerFailed: ",
        &[],
    );
    // All others are done.
    let words = "container upgrade exited with 1: made to fail by --fail; Job was active longer than specified deadline";
    assert!(line.ends_with(words), "{line}");
    let ran = with_plan("some", "")
        .run("rehearse plan.yaml -q --nodes 12 --fail node-1,node-2,50%")
        .ends(1);
    says(
        ran.last_line(),
        "would fail: ",
        &[" (and on 1 more node): ", "nodes are left waiting"],
    );
}

#[test]
fn a_check_passes_unless_it_is_said_to_fail() {
    let checks = "  checks:\n  - {name: alerts, http: {url: 'https://a.example.com'}}\n  - {name: shop, http: {url: 'https://b.example.com'}}\n";
    let text = plan("checked", checks);
    rehearsed(&text, "")
        .ends(0)
        .err_has("assumed: Plan checked: no server is asked for alerts and shop, which pass");
    let ran = rehearsed(&text, "--fail-check alerts")
        .ends(1)
        .err_has("assumed: check alerts fails always");
    says(
        ran.last_line(),
        "would stall: Plan checked starts no node: CheckFailing: spec.checks: no node starts, because check alerts fails, since ",
        &[": made to fail by --fail-check", "3 nodes are left waiting"],
    );
    rehearsed(&text, "--fail-check alerts=2h,shop=90m").ends(0);
    let json = rehearsed(&text, "--fail-check shop -o json").ends(1).json();
    assert!(json.to_string().contains("CheckFailing"), "{json:#}");
    rehearsed(&text, "--fail-check alert")
        .ends(2)
        .err_has("--fail-check alert: there is no such check; the Plans have alerts, shop");
}
