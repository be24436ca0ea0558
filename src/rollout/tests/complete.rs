//! What is said of a complete Plan.

use super::build::{cluster, status_of};
use refit_api::names;
use refit_fixtures::{labels, node, plan, plan_with};

#[test]
fn a_complete_plan_says_that_it_selects_no_node_or_which_nodes_are_skipped() {
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
    for (nodes, has_selector, says) in [
        (vec![], true, "spec.nodeSelector matches no node"),
        (vec![done()], true, ""),
        (vec![disabled()], true, ""),
        (vec![done(), disabled()], true, ""),
        (vec![skipped()], true, "skipped (refit.rs/skip): s"),
        (
            vec![done()],
            false,
            "spec.nodeSelector is absent, which selects no node",
        ),
    ] {
        let names: Vec<_> = nodes.iter().map(|node| node.name.to_string()).collect();
        let plan = plan_with("p", |spec| {
            spec.node_selector = spec.node_selector.take().filter(|_| has_selector);
        });
        let status = status_of(&mut cluster(nodes, [plan]), "p");
        let complete = status
            .conditions
            .iter()
            .find(|one| one.type_ == "Complete")
            .unwrap();
        assert_eq!(complete.message.as_deref().unwrap_or_default(), says, "{names:?}");
    }
}
