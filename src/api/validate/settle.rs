//! Entries of `settle` that no node meets before it is done: refit itself sets the taint or the condition, and removes it
//! later.

use crate::invalid::{ErrorList, at};
use crate::names::{TAINT_NEW_NODE, TAINT_PENDING_PREFIX};
use crate::node_condition::NodeConditionType;
use crate::node_mark::NodeMark;
use crate::open_enum::ClosedEnum as _;
use crate::plan::PlanSpec;
use crate::settle::{ConditionStatus, TaintName};

pub(super) fn check(spec: &PlanSpec, errors: &mut ErrorList) {
    let settle = spec.settle_or_default();
    let list = at("settle.conditions");
    for (index, one) in settle.conditions.iter().flatten().enumerate() {
        let (entry, status) = (list.index(index), one.status_text());
        if NodeConditionType::named(&one.type_).is_some() {
            let problem = format!(
                "is {}, a condition of a node in maintenance, which settling is a part of: remove the entry",
                one.type_
            );
            errors.push(entry.field("type").invalid(problem));
        } else if one.type_ == "Ready" && one.status.is_some_and(|status| status != ConditionStatus::True) {
            let problem = format!("is {status}, and only a Ready node is ever done: it must be True");
            let error = entry.field("status").invalid(problem);
            errors.push(error.hint("write `\"True\"`"));
        }
    }
    let cordons = spec.cordon.unwrap_or_default() || spec.drain.is_some();
    let list = at("settle.taintsGone");
    for (index, text) in settle.taints_gone.iter().flatten().enumerate() {
        let Ok(taint) = text.parse::<TaintName>() else {
            continue; // reported where it is parsed
        };
        let when = if taint.key == TAINT_NEW_NODE || taint.key.starts_with(TAINT_PENDING_PREFIX) {
            "refit removes this taint when nodes are done"
        } else if cordons && taint.matches(NodeMark::Unschedulable.key(), NodeMark::EFFECT) {
            "the node is uncordoned once it has settled"
        } else {
            continue;
        };
        let problem = format!("is {text:?}, and {when}: remove the entry");
        errors.push(list.index(index).invalid(problem));
    }
}
