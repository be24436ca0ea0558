//! What holds a whole Plan: its checks, windows, waves, and the Plans and nodes that it waits for.

use super::node::{chain_of_node, chain_of_unavailable, no_slot};
use crate::cause::chain_of_objects;
use crate::explanation::{Explanation, MAX_DEPTH};
use crate::plan::{PlanOverview, check_says};
use crate::prepare::find;
use crate::remedy::edit;
use crate::time;
use crate::unavailable::{not_ready, unavailability};

use refit_api::reason::Cause;
use refit_api::{CheckPhase, ConditionType, NodeProgress, ObjectRef, Obstacle, Reason, WavePhase, limits};

/// The chain below a Plan that is held as a whole.
pub(super) fn chain_of_obstacle(view: &PlanOverview<'_>, obstacle: &Obstacle, explanation: &mut Explanation) {
    explanation.link(format!("Plan {}", view.title()), &*obstacle.message);
    let status = view.plan.status();
    let Some(reason) = obstacle.reason.known() else {
        return;
    };
    match reason.cause() {
        Cause::Unavailable => chain_of_unavailable(view, explanation),
        Cause::Channel => {
            let channel = status.channel.as_ref();
            let failed = view
                .plan
                .status()
                .condition(ConditionType::Validated)
                .is_some_and(|it| it.status == "False");
            let error = channel.and_then(|channel| Some((channel.url.clone()?, channel.last_error.clone()?)));
            if let Some((url, error)) = error.filter(|_| !failed) {
                explanation.link(format!("channel {url}"), error);
                explanation.set_remedy(
                    "make the channel reachable, or set spec.version",
                    &[format!("refit resolve {url}")],
                );
            }
        }
        Cause::Window => chain_of_window(view, reason, &obstacle.about, explanation),
        Cause::Wave => chain_of_wave(view, explanation, 0),
        Cause::Slots => no_slot(view, explanation, 0),
        cause @ (Cause::NamedNodes | Cause::FailedNodes | Cause::Limits | Cause::Plans) => {
            chain_of_objects(view, cause, None, &obstacle.about, explanation, 0);
        }
        Cause::Checks => chain_of_checks(view, explanation),
        Cause::Candidate => {
            let candidate = status
                .channel
                .as_ref()
                .and_then(|channel| channel.candidate.as_deref());
            if let Some(candidate) = candidate {
                explanation.link(format!("version {candidate}"), "is held back");
            }
        }
        Cause::Busy | Cause::Kubelet | Cause::Job | Cause::Itself => {}
    }
}

/// The checks that do not pass.
pub(super) fn chain_of_checks(view: &PlanOverview<'_>, explanation: &mut Explanation) {
    let status = view.plan.status();
    let checks = status.checks.iter().flatten();
    for check in checks.filter(|check| check.phase != CheckPhase::Passing) {
        explanation.link(
            format!("check {}", check.name),
            check_says(check, view.snapshot.now),
        );
    }
}

/// What keeps nodes from starting now, and until when.
pub(super) fn chain_of_window(
    view: &PlanOverview<'_>,
    reason: Reason,
    about: &[ObjectRef],
    explanation: &mut Explanation,
) {
    let spec = &view.plan.object.spec;
    let is_of_all = ObjectRef::named(about, "ConfigMap").next().is_some();
    let object = match reason {
        Reason::Blackout if is_of_all => format!("ConfigMap {}/{}", view.plan.namespace(), limits::NAME),
        Reason::Blackout => "spec.blackouts".to_owned(),
        _ if spec.window.is_none() => "spec.windows".to_owned(),
        _ => "spec.window".to_owned(),
    };
    let opens = view.plan.status().next_window.as_deref();
    let says = match opens.and_then(|opens| opens.parse().ok()) {
        Some(opens) if reason == Reason::Blackout => {
            format!("nodes may start again {}", time::until(opens, view.snapshot.now))
        }
        Some(opens) => format!("opens {}", time::until(opens, view.snapshot.now)),
        None => "status does not say when nodes may start again".to_owned(),
    };
    explanation.link(object, says);
}

/// A node that others wait for.
pub(crate) fn chain_of_named_node(
    view: &PlanOverview<'_>,
    name: &str,
    explanation: &mut Explanation,
    depth: usize,
) {
    let known = view
        .node(name)
        .filter(|node| node.has_slot() || node.reason.is_some());
    if let Some(known) = known.filter(|_| depth < MAX_DEPTH) {
        chain_of_node(view, known, explanation, depth + 1);
        return;
    }
    let why = view.snapshot.node(name).and_then(unavailability);
    let (says, command) = why.unwrap_or_else(|| {
        let waits = format!("is not done under Plan {}", view.title());
        (waits, format!("kubectl describe node {name}"))
    });
    explanation.link(format!("Node {name}"), says);
    explanation.set_remedy("repair the node, or wait for it", &[command]);
}

/// A Plan that this one waits for.
pub(crate) fn chain_of_dependency(
    view: &PlanOverview<'_>,
    name: &str,
    explanation: &mut Explanation,
    depth: usize,
) {
    let namespace = view.plan.namespace();
    let Some(plan) = find(view.snapshot, view.plan, name) else {
        explanation.link(format!("Plan {namespace}/{name}"), "does not exist");
        explanation.set_remedy(
            "create the Plan, or correct spec.dependsOn",
            &[
                format!("kubectl get plans -n {namespace}"),
                edit(namespace, &view.plan.name),
            ],
        );
        return;
    };
    let other = PlanOverview::new(view.snapshot, plan);
    let waits_for_this = plan.object.spec.depends_on.iter().flatten();
    let is_cycle = waits_for_this.clone().any(|it| *it.name == *view.plan.name);
    let counts = other.counts;
    let says = match &other.obstacle {
        Some(obstacle) => format!("{}: {}", obstacle.reason, obstacle.message),
        None if other.complete => {
            format!(
                "is complete at {}",
                other.version().unwrap_or("an unknown version")
            )
        }
        None => format!("continues: {} of {} nodes are done", counts.done, counts.selected),
    };
    explanation.link(format!("Plan {}", other.title()), says);
    if is_cycle {
        explanation.set_remedy(
            "remove one of the entries of spec.dependsOn",
            &[edit(namespace, &view.plan.name)],
        );
        return;
    }
    let holder = other.obstacle.as_ref().and_then(|it| it.node.as_deref());
    if let Some(known) = holder.and_then(|node| other.node(node))
        && depth < MAX_DEPTH
    {
        chain_of_node(&other, known, explanation, depth + 1);
    }
    explanation.set_remedy(
        "wait for that Plan; if it does not progress, see why",
        &[format!("refit explain -n {namespace} {name}")],
    );
}

/// The wave that later nodes wait for, and a node that holds it.
pub(super) fn chain_of_wave(view: &PlanOverview<'_>, explanation: &mut Explanation, depth: usize) {
    let Some(wave) = view.wave() else {
        return;
    };
    let now = view.snapshot.now;
    let since = time::lasting(wave.since.as_deref(), now);
    let until = wave.until.as_deref().and_then(|until| until.parse().ok());
    let until = until.map_or_else(String::new, |until| {
        format!("; its soak ends {}", time::until(until, now))
    });
    explanation.link(
        format!("wave {}", wave.name),
        format!("{}{since}{until}", wave.phase),
    );
    if wave.phase != WavePhase::Progressing {
        return;
    }
    let waits_for_wave = |node: &&NodeProgress| {
        node.reason
            .as_ref()
            .is_some_and(|reason| *reason == Reason::WaveInProgress)
    };
    let failed = view.nodes.iter().find(|node| node.is_failed());
    let held = || {
        let mut held = view
            .nodes
            .iter()
            .filter(|node| node.reason.is_some() && !waits_for_wave(node));
        held.next()
    };
    let in_progress = || view.nodes.iter().find(|node| node.has_slot());
    let holder = failed.or_else(held).or_else(in_progress);
    if let Some(holder) = holder.filter(|_| depth < MAX_DEPTH) {
        chain_of_node(view, holder, explanation, depth + 1);
        return;
    }
    // Nodes that are done are not in status.
    let is_unready = |name: &&String| {
        let node = view.snapshot.node(name);
        view.has_done_label(name) && node.is_some_and(|node| !node.facts.ready)
    };
    let unready = view
        .snapshot
        .nodes
        .iter()
        .flatten()
        .map(|(name, _)| name)
        .find(is_unready);
    if let Some(node) = unready.and_then(|name| view.snapshot.node(name)) {
        let name = &node.facts.name;
        explanation.link(format!("Node {name}"), not_ready(node));
        explanation.set_remedy(
            "repair the node: its wave is over when all upgraded nodes are Ready",
            &[format!("kubectl describe node {name}")],
        );
    }
}
