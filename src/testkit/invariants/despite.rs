//! Limits in spite of which nodes may start. All other invariants hold whatever an exemption says.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Checked, LAST_ANSWER};
use refit_api::exemption::{Exemption, StartLimit};
use refit_api::schedule::blackout_at;
use refit_api::validate::ParsedSpec;
use refit_api::{PlanStatus, names};
use refit_facts::PlanFacts;

/// Whether a limit does not count for a node, or, without one, for all nodes.
pub(super) fn is_exempt(
    plan: &PlanFacts,
    before: &PlanStatus,
    limit: StartLimit,
    node: Option<&str>,
) -> bool {
    let text = plan.annotation(names::ANNOTATION_DESPITE).unwrap_or_default();
    let hash = plan.status().latest_hash.as_deref().unwrap_or_default();
    Exemption::all(text, hash).any(|(entry, read)| {
        let status = Exemption::status(&entry, &read, hash);
        let mut stored = before.despite.iter().flatten();
        let has_ended = stored.any(|stored| stored.is_same(&status) && stored.ended.is_some());
        let is_for = |exemption: Exemption| {
            let has_node = || node.is_some_and(|node| exemption.nodes.contains(node));
            exemption.limits.contains(&limit) && (exemption.nodes.is_empty() || has_node())
        };
        !has_ended && read.is_ok_and(is_for)
    })
}

/// Checks that no node of a Plan starts in its blackouts unless it is exempt.
pub(super) fn check_blackouts(
    at: Timestamp,
    plan: &PlanFacts,
    before: &PlanStatus,
    started: &[&str],
) -> Checked {
    let spec = &plan.object.spec;
    let has_blackouts = spec.blackouts.as_ref().is_some_and(|all| !all.is_empty());
    if started.is_empty() || !has_blackouts {
        return Ok(());
    }
    let blackouts = ParsedSpec::parse(&plan.name, spec, &TimeZone::UTC).0.blackouts;
    // The write may have been under way.
    let is_dark = |at| blackout_at(&blackouts, at).is_some();
    let is_dark = is_dark(at) && is_dark(at - LAST_ANSWER);
    let mut started = started.iter();
    let wrong = started.find(|node| !is_exempt(plan, before, StartLimit::Blackout, Some(node)));
    invariant!(
        !is_dark || wrong.is_none(),
        "{wrong:?} gets a slot at {at} in {}, in a blackout",
        plan.name
    );
    Ok(())
}
