//! What happened to a node so far, by its record, its Jobs and Events.

use super::job::outcome;
use crate::explanation::MAX_EVENTS;
use crate::plan::PlanOverview;
use refit_api::{DespiteStatus, annotation};

/// What happened to a node under a Plan, as far as its record, Jobs and Events still say.
pub(super) fn history(view: &PlanOverview<'_>, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let node = view.snapshot.node(name);
    if let Some(record) = node.and_then(|node| node.facts.records.get(&view.plan.name)) {
        let why = record
            .message
            .as_deref()
            .map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!(
            "{:.0} record: {:?}, attempt {} at {}{why}",
            record.at, record.phase, record.attempt, record.version
        ));
    }
    for job in view.snapshot.jobs_on(view.plan, name) {
        let boots = match job.facts.boots.len() {
            0 | 1 => String::new(),
            boots => format!(", {boots} boots"),
        };
        let pod = view.snapshot.pod_of(job);
        let drain = pod.and_then(|pod| view.snapshot.drain_of(pod));
        let evicted = drain.map_or_else(String::new, |drain| {
            format!(", {} of {} pods evicted", drain.evicted, drain.total)
        });
        let last = pod.and_then(|pod| pod.facts.failed.as_ref());
        let last = last.map_or_else(String::new, |last| format!("; last words: {last}"));
        lines.push(format!(
            "{:.0} Job {}: {}, attempt {}, {}{boots}{evicted}{last}",
            job.facts.created,
            job.facts.name,
            job.facts.version,
            job.facts.attempt,
            outcome(job)
        ));
    }
    let names_node = |text: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || "-.".contains(c)))
            .any(|word| word.trim_end_matches('.') == name)
    };
    let events: Vec<_> = view.events().filter(|event| names_node(&event.message)).collect();
    let skipped = events.len().saturating_sub(MAX_EVENTS);
    lines.extend(
        events
            .into_iter()
            .skip(skipped)
            .map(|event| format!("{:.0} {}: {}", event.at, event.reason, event.message)),
    );
    let is_for = |it: &&DespiteStatus| it.nodes.is_empty() || it.nodes.iter().any(|node| node == name);
    let despite = view.despite().filter(is_for);
    lines.extend(despite.map(|it| format!("refit.rs/despite: {}", it.describe())));
    if let Some(skip) = node.and_then(|node| node.facts.skip.as_deref()) {
        let own = annotation::entries(skip).find(|entry| entry.plan == &*view.plan.name);
        lines.extend(own.map(|entry| format!("refit.rs/skip: {}", entry.text)));
    }
    lines
}
