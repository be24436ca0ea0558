//! Where a node comes in the order of a Plan: by `spec.order`, and else by a digest.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use refit_api::{ControlPlaneOrder, Criterion};
use refit_facts::{NodeFacts, PlanFacts, Text};

/// The parsed `spec.order`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    criteria: Vec<Criterion>,
    /// Number of criteria up to the last one that makes later nodes wait. Nodes that differ in one of them are in different
    /// groups.
    barriers: usize,
    /// The node on which the controller runs, if there is an order. Without one, nodes start exactly in the order of
    /// system-upgrade-controller.
    own_node: Option<Text>,
}

/// Where a node comes. Without an order, only the digest differs. The derived comparison takes the fields in their
/// sequence, the most significant first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey {
    /// Index of the first wave whose selector matches; [`UNASSIGNED`] if none does, and 0 without waves.
    pub(super) wave: u16,
    pub(super) group: Group,
    rest: Box<[OrderValue]>,
    /// The node of the controller comes last among its equals, so that the controller's pod is evicted at most once
    /// per group.
    is_own_node: bool,
    /// SHA-256 of node UID, Plan UID and hash: Plans and versions differ in the order of nodes (S50).
    digest: [u8; 32],
}

/// The wave of nodes that no selector of a wave matches.
pub(super) const UNASSIGNED: u16 = u16::MAX;

impl SortKey {
    /// A key that comes before all others of its wave.
    pub(super) fn first_of(wave: u16) -> Self {
        Self {
            wave,
            group: Group(None),
            rest: [].into(),
            is_own_node: false,
            digest: [0; 32],
        }
    }
}

/// Nodes that may be upgraded at the same time: they are equal by all criteria up to the last one that makes later nodes
/// wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group(Option<Arc<[OrderValue]>>);

/// Where a node comes by one criterion. Variants are in the order of nodes: those without a value come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OrderValue {
    Early,
    Late,
    Value(Text),
    Number(i64),
    /// The node lacks the label, or its value is not a number.
    Absent,
}

impl Order {
    /// The order by these criteria; the own node comes last among nodes that are equal.
    pub(super) fn new(criteria: Vec<Criterion>, own_node: Option<Text>) -> Self {
        let last = criteria.iter().rposition(Criterion::is_barrier);
        Self {
            barriers: last.map_or(0, |last| last + 1),
            own_node,
            criteria,
        }
    }

    /// Whether nodes of one group wait for those of another.
    pub(super) fn has_groups(&self) -> bool {
        self.barriers > 0
    }

    pub(super) fn group(&self, node: &NodeFacts) -> Group {
        let places = self.criteria.iter().take(self.barriers);
        let places = places.map(|criterion| order_value(criterion, node));
        Group(self.has_groups().then(|| places.collect()))
    }

    pub(super) fn sort_key(&self, wave: u16, node: &NodeFacts, plan: &PlanFacts, hash: &str) -> SortKey {
        let rest = self.criteria.iter().skip(self.barriers);
        SortKey {
            wave,
            group: self.group(node),
            rest: rest.map(|criterion| order_value(criterion, node)).collect(),
            is_own_node: self.own_node.as_ref().is_some_and(|own| **own == *node.name),
            digest: digest(&node.uid, &plan.uid, hash),
        }
    }

    pub(super) fn describe(&self, group: &Group) -> String {
        let places = group.0.as_deref().unwrap_or_default();
        let words = self.criteria.iter().zip(places);
        let words: Vec<_> = words
            .map(|(criterion, order_value)| in_words(criterion, order_value))
            .collect();
        words.join(", ")
    }
}

fn order_value(criterion: &Criterion, node: &NodeFacts) -> OrderValue {
    match criterion {
        Criterion::ControlPlane(order) => {
            let is_first = *order == ControlPlaneOrder::First;
            if node.is_control_plane() == is_first {
                OrderValue::Early
            } else {
                OrderValue::Late
            }
        }
        Criterion::Topology(key) => node
            .labels
            .get(key)
            .map_or(OrderValue::Absent, |value| OrderValue::Value(value.into())),
        Criterion::Number(key) => {
            let number = node.labels.get(key).and_then(|value| value.parse().ok());
            number.map_or(OrderValue::Absent, OrderValue::Number)
        }
    }
}

fn in_words(criterion: &Criterion, order_value: &OrderValue) -> String {
    match criterion {
        Criterion::ControlPlane(order) => {
            let is_first = *order == ControlPlaneOrder::First;
            let is_control_plane = (*order_value == OrderValue::Early) == is_first;
            if is_control_plane {
                "control plane".to_owned()
            } else {
                "not control plane".to_owned()
            }
        }
        Criterion::Topology(key) | Criterion::Number(key) => match order_value {
            OrderValue::Value(value) => format!("{key}={value}"),
            OrderValue::Number(number) => format!("{key}={number}"),
            OrderValue::Early | OrderValue::Late | OrderValue::Absent => format!("without {key}"),
        },
    }
}

fn digest(node_uid: &str, plan_uid: &str, hash: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(node_uid);
    digest.update(plan_uid);
    digest.update(hash);
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use refit_api::names;
    use refit_fixtures::{labels, node, plan, read};

    const ZONE: &str = "topology.kubernetes.io/zone";
    const RANK: &str = "example.com/rank";
    const SERVER: &str = "node-role.kubernetes.io/control-plane";

    #[test]
    fn nodes_come_in_the_order_of_the_vector() {
        let hash = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";
        let hex = |node| hex::encode(digest(node, "plan-uid", hash));
        assert!(hex("node-uid-3").starts_with("01ff"), "{}", hex("node-uid-3"));
        assert!(hex("node-uid-2").starts_with("306b"), "{}", hex("node-uid-2"));
        assert!(hex("node-uid-1").starts_with("a953"), "{}", hex("node-uid-1"));
    }

    fn order_of(order: &serde_json::Value) -> Order {
        let spec: refit_api::PlanSpec = serde_json::from_value(json!({ "order": order })).unwrap();
        let own_node = spec.order.is_some().then(|| "own".into());
        Order::new(spec.order().unwrap(), own_node)
    }

    /// The names of nodes with these labels in the order of a Plan, with `|` between groups.
    fn sorted(order: &serde_json::Value, nodes: &[(&str, &[(&str, &str)])]) -> String {
        let order = order_of(order);
        let plan = read(plan("p"));
        let mut keys: Vec<_> = nodes
            .iter()
            .map(|(name, own)| {
                let mut node = node(name, "same-uid");
                node.labels = labels(own.iter().copied().chain([(names::LABEL_HOSTNAME, *name)]));
                (order.sort_key(0, &node, &plan, "hash"), *name)
            })
            .collect();
        keys.sort();
        let mut out = String::new();
        for (index, (key, name)) in keys.iter().enumerate() {
            if index > 0 {
                let is_new = keys[index - 1].0.group != key.group;
                out.push_str(if is_new { " | " } else { " " });
            }
            out.push_str(name);
        }
        out
    }

    #[test]
    fn control_plane_nodes_come_first_or_last_and_the_others_wait() {
        let nodes: [(&str, &[_]); 4] = [
            ("agent", &[]),
            ("master", &[("node-role.kubernetes.io/master", "")]),
            ("no-server", &[(SERVER, "false")]),
            ("server", &[(SERVER, "true")]),
        ];
        let first = sorted(&json!([{"controlPlane": "First"}]), &nodes);
        assert_eq!(first, "master server | agent no-server");
        let last = sorted(&json!([{"controlPlane": "Last"}]), &nodes);
        assert_eq!(last, "agent no-server | master server");
        for order in ["First", "Last"] {
            let order = order_of(&json!([{ "controlPlane": order }]));
            let group = |own: &[_]| {
                let mut node = node("a", "uid");
                node.labels = labels(own.iter().copied());
                order.describe(&order.group(&node))
            };
            assert_eq!(
                [group(&[(SERVER, "")]), group(&[])],
                ["control plane", "not control plane"]
            );
        }
    }

    #[test]
    fn zones_come_one_after_the_other_and_nodes_without_one_last() {
        let nodes: [(&str, &[_]); 4] = [
            ("a", &[]),
            ("b", &[(ZONE, "z2")]),
            ("c", &[(ZONE, "z1")]),
            ("d", &[(ZONE, "z2")]),
        ];
        assert_eq!(sorted(&json!([{"topologyKey": ZONE}]), &nodes), "c | b d | a");
    }

    #[test]
    fn nodes_come_by_number_without_waiting_and_those_without_a_number_last() {
        let nodes: [(&str, &[_]); 5] = [
            ("a", &[]),
            ("b", &[(RANK, "10")]),
            ("c", &[(RANK, "9")]),
            ("d", &[(RANK, "first")]),
            ("e", &[(RANK, "007")]),
        ];
        assert_eq!(sorted(&json!([{"labelNumber": RANK}]), &nodes), "e c b a d");
    }

    #[test]
    fn the_most_significant_criterion_comes_first() {
        let nodes: [(&str, &[_]); 4] = [
            ("a", &[(ZONE, "z1"), (RANK, "2")]),
            ("b", &[(ZONE, "z1"), (RANK, "1")]),
            ("c", &[(ZONE, "z2"), (RANK, "1"), (SERVER, "")]),
            ("d", &[(ZONE, "z2"), (RANK, "2")]),
        ];
        let zones = json!([{"controlPlane": "First"}, {"topologyKey": ZONE}, {"labelNumber": RANK}]);
        assert_eq!(sorted(&zones, &nodes), "c | b a | d");
        // A criterion before a zone belongs to the group.
        let ranks = json!([{"labelNumber": RANK}, {"topologyKey": ZONE}]);
        assert_eq!(sorted(&ranks, &nodes), "b | c | a | d");
    }

    #[test]
    fn the_node_of_the_controller_is_the_last_of_those_that_are_equal() {
        let nodes: [(&str, &[_]); 4] = [
            ("own", &[(ZONE, "z1")]),
            ("x", &[(ZONE, "z1")]),
            ("y", &[(ZONE, "z1")]),
            ("z", &[(ZONE, "z2")]),
        ];
        assert_eq!(sorted(&json!([{"topologyKey": ZONE}]), &nodes), "x y own | z");
        assert_eq!(sorted(&json!([]), &nodes), "x y z own");
        assert_eq!(sorted(&json!(null), &nodes), "own x y z");
    }
}
