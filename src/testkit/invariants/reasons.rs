//! Reasons: each appears only where the list says.

use super::Checked;
use refit_api::open_enum::ClosedEnum as _;
use refit_api::reason::ReportedIn;
use refit_api::{ForeignReason, NodePhase, OpenEnum, PlanStatus, Reason};
use refit_rehearse::json::Value;

pub(super) fn check_status(plan: &str, status: &PlanStatus) -> Checked {
    for condition in &status.conditions {
        let reported_in = condition.type_.known().map(ReportedIn::from);
        let reason = condition.reason.as_ref().and_then(OpenEnum::known);
        let holds = reason
            .zip(reported_in)
            .is_some_and(|(reason, reported_in)| reason.appears_in(reported_in));
        invariant!(
            holds,
            "a condition of {plan} has a reason of its own: {condition:?}"
        );
    }
    for node in status.active.iter().flatten() {
        invariant!(
            node.phase.known().is_some(),
            "{plan} has a phase of its own: {node:?}"
        );
        let failed = node.phase == NodePhase::Failed;
        let reported_in = if failed {
            ReportedIn::FailedNode
        } else {
            ReportedIn::Node
        };
        // The reasons of failed Jobs come from Kubernetes, so not all are listed.
        let holds = |reason: &OpenEnum<Reason>| {
            reason
                .known()
                .map_or(failed, |known| known.appears_in(reported_in))
        };
        invariant!(
            node.reason.as_ref().is_none_or(holds),
            "a node of {plan} has a reason of its own: {node:?}"
        );
    }
    Ok(())
}

pub(super) fn check_event(event: &Value) -> Checked {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reported_in = match text(&event["involvedObject"]["kind"]).as_str() {
        "Plan" => ReportedIn::PlanEvent,
        "Pod" if text(&event["reason"]) == ForeignReason::DrainTimeout.name() => return Ok(()),
        _ => ReportedIn::NodeEvent,
    };
    let reason = Reason::named(&text(&event["reason"]));
    invariant!(
        reason.is_some_and(|reason| reason.appears_in(reported_in)),
        "an event has a reason of its own: {event}"
    );
    Ok(())
}
