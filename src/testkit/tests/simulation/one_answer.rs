//! Whoever asks what holds a Plan, or why a node waits, gets one answer: in the stored status, in `refit status` and in
//! `refit explain`.

use jiff::Timestamp;

use refit_facts::objects::RawPlan;
use refit_rehearse::Kind;
use refit_rehearse::journal::{Entry, JournalEvent};
use refit_view::plan::PlanOverview;
use refit_view::read::{PlanObject, Snapshot};
use refit_view::{explain_node, explain_plan};

use crate::invariants::is_hostile;

/// Compares what is said of a Plan after this change.
pub(super) fn check(entry: &Entry) -> Result<(), String> {
    match &entry.what {
        JournalEvent::Change(Kind::Plan, change) if !change.gone && !is_hostile(&change.new.value) => {
            let plan: RawPlan = serde_json::from_slice(change.new.json(false)).unwrap();
            compare(plan, entry.at)
        }
        _ => Ok(()),
    }
}

fn compare(plan: RawPlan, now: Timestamp) -> Result<(), String> {
    let plan = PlanObject {
        deleting: None,
        node_op: None,
        namespace: super::NAMESPACE.to_owned(),
        facts: plan.facts(),
    };
    let snapshot = Snapshot {
        now,
        plans: vec![plan],
        ..Snapshot::default()
    };
    let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
    // What is wrong with the object itself, and a status of another spec or another controller, is not refit's answer.
    let status = view.plan.facts.status();
    if view.plan.facts.malformed.is_some() || status.observed_generation.is_none() || !view.is_current() {
        return Ok(());
    }
    let name = &view.plan.facts.name;
    let (stored, shown) = (status.obstacle.as_ref(), view.obstacle.as_ref());
    let of_stored = stored.map(|it| (&it.reason, &it.message, &it.node, &it.about));
    let of_shown = shown.map(|it| (&it.reason, &it.message, &it.node, &it.about));
    if of_stored != of_shown {
        return Err(format!(
            "Plan {name}: status has {stored:?}, and `refit status` {shown:?}"
        ));
    }
    let said = explain_plan(&view).to_text();
    if let Some(it) = stored.filter(|it| !said.contains(it.reason.as_str()) || !said.contains(&it.message)) {
        return Err(format!(
            "Plan {name}: status has {it:?}, and `refit explain`:\n{said}"
        ));
    }
    for node in status.active.iter().flatten() {
        let said = explain_node(&view, &node.name).to_text();
        if node
            .reason
            .as_ref()
            .is_some_and(|reason| !said.contains(reason.as_str()))
        {
            return Err(format!(
                "Node {}: status has {node:?}, and `refit explain`:\n{said}",
                node.name
            ));
        }
        let of_node = stored.filter(|it| it.node.as_ref() == Some(&node.name));
        if of_node.is_some_and(|it| node.reason.as_ref() != Some(&it.reason)) {
            return Err(format!(
                "Node {}: status.active has {node:?}, and obstacle {stored:?}",
                node.name
            ));
        }
    }
    Ok(())
}
