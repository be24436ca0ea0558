//! What is said of a complete Plan.

use super::build::{cluster, status_of};
use refit_api::{ConditionType, names};
use refit_fixtures::{labels, node, plan};

#[test]
fn a_complete_plan_says_which_nodes_are_skipped_and_nothing_of_disabled_ones() {
    let hash = status_of(&mut cluster([], [plan("p")]), "p").latest_hash.unwrap();
    let label = format!("{}p", names::LABEL_PLAN_PREFIX);
    let node = |name: &str, value: &str| {
        let mut node = node(name, name);
        node.labels = labels([(names::LABEL_HOSTNAME, name), (&label, value)]);
        node
    };
    let skipped = || {
        let mut skipped = node("s", "");
        (skipped.labels, skipped.skip) = (labels([(names::LABEL_HOSTNAME, "s")]), Some("p".into()));
        skipped
    };
    let done = || node("a", &hash);
    let disabled = || node("b", names::LABEL_VALUE_DISABLED);
    for (nodes, says) in [
        (vec![done()], ""),
        (vec![disabled()], ""),
        (vec![done(), disabled()], ""),
        (vec![skipped()], "skipped (refit.rs/skip): s"),
    ] {
        let names: Vec<_> = nodes.iter().map(|node| node.name.to_string()).collect();
        let status = status_of(&mut cluster(nodes, [plan("p")]), "p");
        let complete = status.condition(ConditionType::Complete).unwrap();
        assert_eq!(complete.message.as_deref().unwrap_or_default(), says, "{names:?}");
    }
}
