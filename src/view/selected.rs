//! Whether a Plan selects a node.

use super::plan::PlanOverview;
use super::read::NodeObject;
use refit_api::selector::Selector;
use refit_api::selector::explain::requirements;
use refit_api::{NodeProgress, names};

/// Why a Plan does not select a node.
pub(super) fn not_selected(view: &PlanOverview<'_>, node: &NodeObject) -> Option<String> {
    let spec = &view.plan.object.spec;
    let Some(selector) = &spec.node_selector else {
        return Some("spec.nodeSelector is absent, which selects no node".to_owned());
    };
    if let Err(error) = Selector::new(Some(selector)) {
        return Some(format!("spec.nodeSelector is invalid: {error}"));
    }
    // As under system-upgrade-controller, a Plan selects only nodes with this label.
    if node.facts.labels.get(names::LABEL_HOSTNAME).is_none() {
        return Some(format!("lacks the label {}", names::LABEL_HOSTNAME));
    }
    let mut requirements = requirements(selector).into_iter();
    if let Some(unmet) = requirements.find(|one| !one.matches(|key| node.facts.labels.get(key))) {
        return Some(format!("spec.nodeSelector requires {}", unmet.text()));
    }
    // Like a node that is done, one that has begun stays selected whatever it says of itself.
    let plan = &view.plan.name;
    let has_begun = view.has_done_label(&node.facts.name)
        || node.facts.records.contains_key(plan)
        || view.node(&node.facts.name).is_some_and(NodeProgress::has_slot);
    let info = spec.node_info().ok().filter(|_| !has_begun)?;
    let (field, is) = info.mismatch(node.facts.info())?;
    Some(format!(
        "spec.nodeInfo.{field} does not match {is:?}, which the node has"
    ))
}
