//! What `refit start --despite` writes: an exemption, in the annotation of the Plan. Pure.

use std::collections::BTreeSet;

use super::change::{annotation, place, skip_entry};
use super::edit::{PlanChange, Request, Wanted};
use refit_api::exemption::{Exemption, MAX_EXEMPT_NODES, MAX_EXEMPTIONS, MAX_WHY, StartLimit, one_entry};
use refit_api::{DespiteStatus, NodeProgress, Reason, names};
use refit_view::PlanOverview;

/// Reads the argument of `--reason`.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let text = one_entry(text);
    if text.is_empty() {
        return Err("it must say why".to_owned());
    }
    if text.len() > MAX_WHY {
        return Err(format!("it has {} bytes, and may have {MAX_WHY}", text.len()));
    }
    Ok(text)
}

pub(super) fn start(
    request: &Request<'_>,
    limits: &BTreeSet<StartLimit>,
    reason: &str,
) -> Result<Wanted, String> {
    let view = request.view;
    let (title, status) = (view.title(), view.plan.status());
    let Some(hash) = &status.latest_hash else {
        return Err(format!("Plan {title} has no version yet: no node can start"));
    };
    if view.complete {
        return Err(format!("Plan {title} is complete: no node is left to start"));
    }
    if request.nodes.len() > MAX_EXEMPT_NODES {
        return Err(format!(
            "{} nodes are named, and one exemption may name {MAX_EXEMPT_NODES}; without a name it is for all nodes",
            request.nodes.len()
        ));
    }
    if let Some(why) = request.nodes.iter().find_map(|node| cannot_start(view, node)) {
        return Err(why);
    }
    let wanted = Exemption::new(limits.clone(), request.nodes.iter().cloned().collect(), hash);
    let known = annotation(view, names::ANNOTATION_DESPITE).unwrap_or_default();
    let has_ended = |it: &DespiteStatus| {
        let mut stored = status.despite.iter().flatten();
        stored.any(|stored| stored.is_same(it) && stored.ended.is_some())
    };
    let mut all = Vec::new();
    for (entry, read) in Exemption::all(known, hash) {
        let said = Exemption::status(&entry, &read, hash);
        let Some(exemption) = read.ok().filter(|_| !has_ended(&said)) else {
            continue;
        };
        let has_nodes = exemption.nodes.is_empty()
            || !wanted.nodes.is_empty() && wanted.nodes.is_subset(&exemption.nodes);
        if has_nodes && wanted.limits.is_subset(&exemption.limits) {
            return Ok(Wanted::Nothing(format!(
                "nodes of Plan {title} start in spite of that already: {}",
                said.describe()
            )));
        }
        all.push(entry.text.to_owned());
    }
    if all.len() >= MAX_EXEMPTIONS {
        return Err(format!(
            "Plan {title} has {} exemptions for this version, and can have no more: remove some from the annotation {}",
            all.len(),
            names::ANNOTATION_DESPITE
        ));
    }
    all.push(format!("{wanted} {}: {reason}", request.signature));
    let words: Vec<_> = limits.iter().map(|limit| limit.as_str()).collect();
    let nodes = match request.nodes {
        [] => String::new(),
        nodes => format!(" on {}", nodes.join(", ")),
    };
    let says = format!(
        "starts{nodes} in spite of {} at version {}",
        words.join(", "),
        view.version().unwrap_or_default()
    );
    let change = PlanChange::annotation(names::ANNOTATION_DESPITE, &all.join(", "), says);
    Ok(Wanted::Write(change))
}

/// Why a node cannot start, whatever limits are lifted.
fn cannot_start(view: &PlanOverview<'_>, node: &str) -> Option<String> {
    if view.node(node).is_some_and(NodeProgress::has_slot) {
        return Some(format!("{}: it has started", place(view, node)));
    }
    if view.has_done_label(node) {
        return Some(format!(
            "Node {node} is done: refit rerun runs the Plan there again"
        ));
    }
    if skip_entry(view, node).is_some() {
        return Some(format!("Node {node} is skipped: refit skip --undo starts it"));
    }
    let why = view.not_selected(node)?;
    Some(format!(
        "Plan {} does not select Node {node}: {why}",
        view.title()
    ))
}

/// What holds the Plan and is not lifted.
pub(super) fn still_counts(view: &PlanOverview<'_>, limits: &BTreeSet<StartLimit>) -> Option<String> {
    let obstacle = view.obstacle.as_ref()?;
    let lifts = |wanted: &[StartLimit]| wanted.iter().any(|limit| limits.contains(limit));
    let is_lifted = match obstacle.reason.known()? {
        // The condition of a closed window has the reason of system-upgrade-controller.
        Reason::Waiting | Reason::WindowClosed | Reason::NotBefore => lifts(&[StartLimit::Window]),
        Reason::WindowTooShort => lifts(&[StartLimit::Window, StartLimit::Blackout]),
        Reason::Blackout => lifts(&[StartLimit::Blackout]),
        Reason::WaveSoaking => lifts(&[StartLimit::Soak]),
        Reason::CheckFailing | Reason::CheckPending => lifts(&[StartLimit::Checks]),
        // `waits` says it.
        Reason::Suspended | Reason::Aborted => true,
        _ => false,
    };
    let (reason, message) = (&obstacle.reason, &obstacle.message);
    (!is_lifted).then(|| {
        format!(
            "Plan {} is held by {reason}, which still counts: {message}",
            view.title()
        )
    })
}
