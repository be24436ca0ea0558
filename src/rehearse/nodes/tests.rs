use std::collections::BTreeSet;

use super::*;
use crate::api::selector::Selector;

fn selector(yaml: &str) -> LabelSelector {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Names of the nodes that each of the selectors selects, of so many.
fn selected(count: usize, selectors: &[&str]) -> (Generated, Vec<Vec<String>>) {
    let selectors: Vec<LabelSelector> = selectors.iter().map(|yaml| selector(yaml)).collect();
    let asks: Vec<Asks<'_>> = selectors
        .iter()
        .map(|selector| Asks {
            plan: "plan",
            selector: Some(selector),
        })
        .collect();
    let generated = generate(count, &asks);
    assert_eq!(generated.nodes.len(), count);
    let names: BTreeSet<&str> = generated
        .nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names.len(), count, "each has a name of its own");
    let of = |selector: &LabelSelector| {
        let selector = Selector::new(Some(selector)).unwrap();
        let is_selected =
            |node: &&Value| selector.matches_by(|key| node["metadata"]["labels"].get(key)?.as_str());
        let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
        generated.nodes.iter().filter(is_selected).map(name).collect()
    };
    let all = selectors.iter().map(of).collect();
    (generated, all)
}

const SERVERS: &str = "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}, {key: \
                       k3s-upgrade, operator: Exists}, {key: k3s-upgrade, operator: NotIn, values: [enabled, 'false']}]";
const AGENTS: &str = "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}, {key: \
                      k3s-upgrade, operator: Exists}]";

#[test]
fn servers_and_agents_are_told_apart_and_opt_in() {
    let (generated, all) = selected(12, &[SERVERS, AGENTS]);
    assert_eq!(all[0], ["control-1", "control-2", "control-3"]);
    assert_eq!(all[1].len(), 9);
    assert_eq!(
        generated.assumed,
        [
            "3 control-plane nodes and 9 workers in 3 zones, Linux, kubelet v1.33.5",
            "label k3s-upgrade=enabled on 9 nodes, which a Plan asks for",
            "label k3s-upgrade=true on 3 nodes, which a Plan asks for",
        ]
    );
}

#[test]
fn plans_that_cannot_have_the_same_nodes_share_them() {
    let (_, all) = selected(
        12,
        &[
            "matchLabels: {patches: zypper}",
            "matchLabels: {patches: transactional}",
            "matchExpressions: [{key: patches, operator: DoesNotExist}]",
        ],
    );
    for nodes in &all {
        assert!(nodes.len() >= 3, "{all:?}");
    }
    let union: BTreeSet<&String> = all.iter().flatten().collect();
    assert_eq!(union.len(), 12, "{all:?}");
}

#[test]
fn a_plan_is_for_all_nodes_that_it_can_be_for() {
    let (_, all) = selected(
        9,
        &[
            "matchLabels: {patches: zypper}",
            "matchLabels: {patches: transactional}",
            "matchLabels: {k3s-upgrade: enabled}",
        ],
    );
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [5, 4, 9]);
}

#[test]
fn names_and_zones_that_a_plan_asks_for_are_given() {
    let (generated, all) = selected(
        6,
        &[
            "matchLabels: {kubernetes.io/hostname: db-7}",
            "matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [eu-1a, eu-1b]}]",
            "matchExpressions: [{key: kubernetes.io/arch, operator: NotIn, values: [amd64]}]",
        ],
    );
    assert_eq!(all[0], ["db-7"]);
    assert!(!all[1].is_empty() && !all[2].is_empty(), "{all:?}");
    assert!(
        generated
            .assumed
            .contains(&"nodes have the names that Plans ask for: db-7".to_owned()),
        "{:?}",
        generated.assumed
    );
}

#[test]
fn roles_that_no_node_has_become_nodes_of_their_own() {
    let (_, all) = selected(
        9,
        &[
            "matchExpressions: [{key: node-role.kubernetes.io/etcd, operator: Exists}, {key: \
             node-role.kubernetes.io/control-plane, operator: DoesNotExist}]",
            "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}, {key: \
             node-role.kubernetes.io/etcd, operator: DoesNotExist}]",
            "matchExpressions: [{key: node-role.kubernetes.io/gpu, operator: Exists}]",
        ],
    );
    assert!(all.iter().all(|nodes| !nodes.is_empty()), "{all:?}");
}

#[test]
fn a_selector_that_selects_nothing_is_told() {
    let yaml = "matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]";
    let (generated, all) = selected(3, &[yaml]);
    assert_eq!(all, [[""; 0]; 1]);
    assert_eq!(
        generated.assumed[1],
        "Plan plan selects no node at all: its spec.nodeSelector contradicts itself about a"
    );
    let none = Asks {
        plan: "p",
        selector: None,
    };
    assert_eq!(
        generate(3, &[none]).assumed[1],
        "Plan p selects no node at all: it has no spec.nodeSelector"
    );
}

#[test]
fn any_number_of_nodes_has_a_control_plane_and_workers() {
    for (count, control) in [(1, 1), (2, 1), (3, 1), (6, 1), (7, 3), (5_000, 3)] {
        let (generated, _) = selected(count, &["{}"]);
        let is_control =
            |node: &&Value| node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_string();
        assert_eq!(
            generated.nodes.iter().filter(is_control).count(),
            control,
            "{count}"
        );
    }
}

#[test]
fn applications_grow_in_number_with_the_nodes() {
    let names: Vec<String> = (0..45).map(|number| format!("node-{number}")).collect();
    let all = workloads(&names, 30);
    let count = |kind: &str| all.iter().filter(|one| one["kind"] == kind).count();
    assert_eq!(count("ReplicaSet"), 1 + 3 * 3);
    assert_eq!(count("PodDisruptionBudget"), 1 + 3 * 2);
    assert_eq!((count("DaemonSet"), count("Pod")), (1, 45));
}
