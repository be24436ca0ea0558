//! The decision. The pipeline is observe → validate → resolve → decide → act → report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::Timestamp;

use super::answered;
use super::blocker::Blocker;
use super::decision::Decision;
use super::grants;
use super::lifecycle::Lifecycle;
use super::maintenance;
use super::node::NodeReconciler;
use super::node::state::{NodeDecision, NodeStates, PlanNodes};
use super::permissions;
use super::picture::{Ask, PlanPicture};
use super::plan::DerivedPlan;
use super::poll::{self, Poll};
use super::start;
use super::start::gate::Gates;
use super::start::locks::DisruptionLocks;
use super::state::ClusterState;
use super::status::{event_once, report};
use super::step::{Key, Query, Step};
use super::world::definition::WriteBlock;
use super::{
    differs, digests, hooks, label_receipts, notified, pending_taints, pod_blockers, release, remediation,
    repeat, summary,
};
use refit_api::{NodeProgress, Reason};
use refit_facts::{BootId, JobFacts, JobName, NodeName, PodFacts, PodUid};

/// Decides for all Plans at once. Call [`ClusterState::refresh`] before.
pub fn decide(cluster: &ClusterState, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    add_queries(cluster, now, &mut decision);
    if let Some(block) = cluster.write_block(now) {
        // A status write now could store a spec that has lost refit's fields for good.
        if matches!(block, WriteBlock::Outdated { .. }) {
            remediation::add_steps(cluster, None, now, &mut decision);
        }
        decide_while_blocked(cluster, block, &mut decision);
        maintenance::add_turns(cluster, now, &mut decision);
        return decision;
    }

    // The state of every node that a Plan has started.
    let mut node_states = NodeStates::new();
    let mut gates = BTreeMap::new();
    // A Plan that is being deleted starts nothing. `release::cleanup` frees its nodes once its Jobs, which the
    // garbage collector deletes, have no pod left.
    for (name, plan) in cluster.plans.iter().filter(|(_, p)| !p.facts.is_deleting()) {
        let of_plan = Gates::of(cluster, plan, now, &mut decision.requeue_at);
        // Only if nothing else keeps nodes from starting: a registry is not asked for a Plan that is suspended.
        if of_plan.await_existence() {
            add_image_queries(plan, now, &mut decision);
        }
        let nodes = reconcile_nodes(cluster, plan, &of_plan, now, &mut decision);
        decision
            .steps
            .extend(answered::remove_labels(cluster, plan, &nodes));
        hooks::tend(cluster, plan, now, &mut decision);
        node_states.insert(name.clone(), nodes);
        gates.insert(name.clone(), of_plan);
    }
    // These depend on the states of all Plans: a pod or a holder is idle only if no Plan needs it.
    delete_orphaned_jobs(cluster, &mut decision);
    delete_idle_pods(cluster, &node_states, &mut decision);
    decision
        .steps
        .extend(release::cleanup(cluster, Some(&node_states)));

    decision.steps.extend(label_receipts::cleanup(cluster));

    pending_taints::add_taint_steps(cluster, &node_states, &gates, &mut decision);
    remediation::add_steps(cluster, Some((&node_states, &gates)), now, &mut decision);

    // Nodes that have a slot continue before others start.
    let mut locks = DisruptionLocks::new(cluster, &node_states);
    // A deleted control-plane node stops counting by time alone, and no watch causes a decision then.
    decision.requeue(cluster.memory.timers.next_departed_expiry());
    start::begin_held_slots(&mut locks, &mut node_states);
    // Before new nodes start: a Plan with many nodes would otherwise take each unit of a limit that becomes free, and
    // a maintenance would wait until the Plan is complete.
    decision.grants = grants::grants(cluster, &mut locks);
    maintenance::add_turns(cluster, now, &mut decision);
    take_steps(cluster, &mut node_states, &mut decision);

    add_mark_steps(cluster, now, &mut decision);
    notified::note(cluster, &mut decision);

    let mut lifecycle = Lifecycle::of(cluster);
    // Then other nodes start, Plan by Plan; each Plan sees the slots and locks that earlier Plans took.
    for (name, mut nodes) in node_states {
        let Some(plan) = cluster.plans.get(&name) else {
            continue;
        };
        let of_plan = gates.remove(&name).unwrap_or_default();
        let gate = of_plan.of_all.shut.as_ref();
        mark_at_version(cluster, plan, gate, &nodes, now, &mut decision);
        let (differs, differs_again) = differs::of(cluster, plan, &nodes, now);
        decision
            .steps
            .extend(differs::rerun(cluster, plan, gate, &differs));
        decision.requeue(differs_again);
        let may_repeat = gate.is_none_or(Blocker::permits_adoption);
        let mut waits = start::start(cluster, plan, of_plan, &mut nodes, &mut locks, now);
        waits.differs = differs;
        let retries = nodes.values_mut().flat_map(|state| state.steps.drain(..));
        decision.steps.extend(retries);
        waits.slots = nodes;
        waits.repeat = repeat::status(plan, &waits, may_repeat, now);
        decision.requeue(repeat::requeue_at(waits.repeat.as_ref(), now));
        decision.requeue(waits.wave.as_ref().and_then(|wave| wave.until));
        let hook = waits.starts_hook.take();
        decision
            .steps
            .extend(hook.and_then(|hook| hooks::start(cluster, plan, hook, now)));
        let prepulls = waits.prepulls.drain(..);
        decision
            .steps
            .extend(prepulls.filter_map(|node| prepull(cluster, plan, &node)));
        ask(cluster, plan, waits.asks.drain(..), &mut decision);
        decision.requeue(waits.requeue_at);
        if waits.asks_checks {
            plan.checks.ask(&name, now, &mut decision);
        }
        if let Some(lifecycle) = &mut lifecycle {
            lifecycle.add_plan(plan, &waits);
        }
        summary::describe(&mut waits, cluster, plan);
        report(cluster, plan, &waits, now, &mut decision);
        decision.pictures.insert(name, waits);
    }
    if let Some(lifecycle) = lifecycle {
        lifecycle.add_steps(now, &mut decision);
    }
    decision
}

/// Takes the steps of the nodes that a Plan has started.
fn take_steps(cluster: &ClusterState, node_states: &mut NodeStates, decision: &mut Decision) {
    for (node, state) in node_states.values_mut().flatten() {
        // A refused patch is retried with back-off, and until then the node does not move. Without this reason status
        // would show it as working.
        let patches = state
            .steps
            .iter()
            .any(|step| matches!(step, Step::PatchNode { .. }));
        if let Some(failure) = cluster
            .memory
            .failures
            .get(&Key::Node(node.clone()))
            .filter(|t| patches && t.refused)
        {
            state.set_reason(
                Reason::NodeRefused,
                format!("the node cannot be patched: {}", failure.message),
            );
        }
        decision.steps.append(&mut state.steps);
        decision.requeue(state.requeue_at);
    }
}

/// The step that pulls the image on a node that starts next, unless that was done.
fn prepull(cluster: &ClusterState, plan: &DerivedPlan, node: &NodeName) -> Option<Step> {
    let (hash, node) = (&plan.resolved.as_ref()?.hash, cluster.world.nodes.get(node)?);
    if node.is_windows() {
        return None; // There is no such Job (`job::prepull_job`).
    }
    let facts = &plan.facts;
    let job = facts.run_id(node, hash).prepull_job_name();
    let job = JobName::from(job);
    // It has no label of a controller, so it counts as one that is not refit's.
    let is_there = cluster.memory.name_conflicts.contains_key(job.text());
    (!is_there).then(|| Step::CreatePrepullJob {
        plan: facts.name.clone(),
        node: node.name.clone(),
        job,
    })
}

/// Marks nodes as done that need no Job, a few at a time.
fn mark_at_version(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    gate: Option<&Blocker>,
    nodes: &PlanNodes,
    now: Timestamp,
    decision: &mut Decision,
) {
    let Some(resolved) = plan.resolved.as_ref() else {
        return;
    };
    if gate.is_some_and(|gate| !gate.permits_adoption()) {
        return;
    }
    let reconciler = NodeReconciler {
        cluster,
        plan,
        now,
        gate: None,
    };
    // An upgrade restarts the kubelet before its Job ends, so the version does not prove that the Job has
    // succeeded.
    let has_job = |name: &NodeName| {
        cluster
            .world
            .jobs
            .on(name)
            .any(|job| job.plan == plan.facts.name && !job.recorded)
    };
    let due = plan.targets.at_version.iter();
    let due = due.filter(|name| {
        !nodes.contains_key(*name) && !cluster.world.nodes.is_unreadable(name) && !has_job(name)
    });
    let due = cluster
        .memory
        .refused_last(due)
        .filter_map(|name| cluster.world.nodes.get(name))
        .take(MARKS);
    let marks = due.map(|node| reconciler.mark_at_version(node, resolved));
    decision.steps.extend(marks);
}

/// Maximum number of background updates of recorded Jobs per decision: more than can be in flight at once.
const MARKS: usize = 32;

/// Records the Jobs for which only the annotation `refit.rs/recorded` is missing.
fn add_mark_steps(cluster: &ClusterState, now: Timestamp, decision: &mut Decision) {
    let readable = |job: &&JobFacts| !cluster.world.nodes.is_unreadable(&job.node);
    for job in cluster
        .world
        .jobs
        .lacking_annotation()
        .filter(readable)
        .take(MARKS)
    {
        let plan = cluster
            .plans
            .get(&job.plan)
            .filter(|plan| plan.facts.uid == job.plan_uid);
        let (Some(plan), Some(node)) = (plan, cluster.world.nodes.get(&job.node)) else {
            // A Job gets its TTL together with `refit.rs/recorded`, so Kubernetes would keep this one for ever.
            decision.steps.push(delete_leftover(job));
            continue;
        };
        let reconciler = NodeReconciler {
            cluster,
            plan,
            now,
            gate: None,
        };
        // Nothing waits for this annotation: status and label are stored already.
        let mark = reconciler.mark_done(node, job).in_background();
        decision.steps.push(mark);
    }
}

/// Decides while a kind cannot be listed that a decision needs: only checks which permissions are missing, and reports
/// them on each Plan. Nothing is known about objects of that kind, so nothing is written and no node starts.
pub fn decide_degraded(cluster: &ClusterState, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    decision
        .steps
        .extend(permissions::are_asked(cluster).then_some(Step::AskPermissions));
    for plan in cluster.plans.values() {
        if let Some(blocker) = permissions::missing(cluster, plan) {
            decision
                .steps
                .extend(event_once(cluster, plan, blocker.reason(), blocker.to_string()));
        }
    }
    maintenance::add_turns(cluster, now, &mut decision);
    decision
}

/// Writes no Plan and starts no node. Nodes held by deleted Plans are still released, and events explain the pause.
fn decide_while_blocked(cluster: &ClusterState, block: WriteBlock<'_>, decision: &mut Decision) {
    let blocker = match block {
        WriteBlock::Unread { ask } => {
            decision.steps.extend(ask.then_some(Step::ReadPlans));
            let missing = cluster
                .plans
                .values()
                .find_map(|plan| permissions::missing(cluster, plan));
            missing.unwrap_or(Blocker::NotReady)
        }
        WriteBlock::Outdated { missing, until } => {
            decision.requeue(until);
            decision.steps.extend(release::cleanup(cluster, None));
            Blocker::SchemaOutdated {
                missing: missing.to_owned(),
            }
        }
    };
    for (name, plan) in &cluster.plans {
        // A controller that starts is in this state for a moment, which is not worth an event for each Plan.
        if !matches!(blocker, Blocker::NotReady) {
            decision
                .steps
                .extend(event_once(cluster, plan, blocker.reason(), blocker.to_string()));
        }
        let waiting = plan.targets.eligible();
        let mut picture = PlanPicture {
            blocker: (waiting > 0).then(|| blocker.clone()),
            waiting,
            ..PlanPicture::default()
        };
        summary::describe(&mut picture, cluster, plan);
        decision.pictures.insert(name.clone(), picture);
    }
}

/// The Secrets of a Plan that are requested at the same time.
const SECRET_READS: usize = 4;

/// Queries that must be answered before Plans can be resolved or started.
fn add_queries(cluster: &ClusterState, now: Timestamp, decision: &mut Decision) {
    let mut channels = BTreeSet::new();
    for plan in cluster
        .plans
        .values()
        .filter(|p| !p.facts.is_deleting() && p.facts.malformed.is_none())
    {
        // The hash needs the content of these Secrets, and watches have only their metadata. It needs all of them, so
        // a Plan with many waits for the first ones.
        for name in plan.secrets.unread().iter().take(SECRET_READS) {
            let name = name.clone();
            decision.steps.push(Step::Query(Query::ReadSecret { name }));
        }
        if plan.digests.pins() {
            add_image_queries(plan, now, decision);
        }
        let choice_due = plan.choice().and_then(|choice| choice.due);
        decision.requeue(choice_due.filter(|due| *due > now));
        // Plans with the same channel and Secrets share one poll.
        let Some(channel) = plan.channel.as_ref().filter(|channel| channels.insert(*channel)) else {
            continue;
        };
        match poll::poll(cluster, channel, now) {
            Poll::Never | Poll::Announce => {}
            Poll::At(due) => decision.requeue(due),
            Poll::Now => decision.steps.push(Step::Query(Query::Poll {
                channel: channel.clone(),
                latest_version: plan.facts.status().latest_version.clone(),
                asked_by: poll::asked_by(cluster, channel),
            })),
        }
    }
    if permissions::are_asked(cluster) {
        decision.steps.push(Step::AskPermissions);
    }
}

/// Asks what must be known about nodes before they start. Nothing is asked while it is not known whether that is allowed.
fn ask(cluster: &ClusterState, plan: &DerivedPlan, asks: impl Iterator<Item = Ask>, decision: &mut Decision) {
    if permissions::are_granted(cluster, plan) {
        decision.steps.extend(asks.filter_map(|ask| match ask {
            Ask::Pods(node) => Some(pod_blockers::query(plan, cluster.world.nodes.get(&node)?)),
            Ask::Lease(node) => remediation::query(cluster, &node),
        }));
    }
}

/// Asks the registries of a Plan's images once a node can start.
fn add_image_queries(plan: &DerivedPlan, now: Timestamp, decision: &mut Decision) {
    // A finished Plan needs no answer, and a registry that counts pulls should not count these.
    let Some(resolved) = plan.resolution.resolved().filter(|_| plan.targets.eligible() > 0) else {
        return;
    };
    for image in plan.digests.open() {
        let due = plan.digests.due(image, now);
        if due > now {
            decision.requeue(due);
            continue;
        }
        decision.steps.push(Step::Query(Query::ReadDigest {
            plan: plan.facts.name.clone(),
            hash: resolved.hash.clone(),
            image: image.clone(),
            access: digests::access(plan.spec(), image),
            pins: plan.digests.pins(),
        }));
    }
}

fn reconcile_nodes(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    gates: &Gates,
    now: Timestamp,
    decision: &mut Decision,
) -> PlanNodes {
    let mut names = stored_slots(cluster, plan);
    // The stored status is not enough: a user or another controller can overwrite it, and then only the Jobs and
    // the records show which nodes are in progress.
    let jobs = cluster.world.jobs.open_of(&plan.facts.name).map(|job| &job.node);
    let recorded = cluster.world.nodes.recorded.of(&plan.facts.name);
    let pending_create = cluster
        .memory
        .pending_creates
        .keys()
        .filter(|(of, _)| *of == plan.facts.name);
    let others = jobs.chain(recorded).chain(pending_create.map(|(_, node)| node));
    names.extend(others.map(|name| (name, None)));
    // Stable, so entries from the stored status stay first.
    names.sort_by_key(|(name, _)| *name);
    names.dedup_by_key(|(name, _)| *name);
    let reconciler = |name: &NodeName| NodeReconciler {
        cluster,
        plan,
        now,
        gate: gates.of_node(name),
    };
    let reconcile = |(name, stored_entry): (&NodeName, Option<&NodeProgress>)| match reconciler(name)
        .reconcile(name, stored_entry)
    {
        NodeDecision::Slot(mut state) => {
            // Kept until the slot is free: if the Job is lost, this boot shows whether the node has rebooted since
            // its start.
            let boot = stored_entry.and_then(|entry| entry.boot_id.as_deref());
            state.boot = state.boot.or_else(|| boot.map(BootId::from));
            Some((name.clone(), *state))
        }
        NodeDecision::Cleanup(steps) => {
            decision.steps.extend(steps);
            None
        }
    };
    names.into_iter().filter_map(reconcile).collect()
}

/// The nodes that have a slot in the stored status. The status of system-upgrade-controller has only their hostnames.
fn stored_slots<'a>(
    cluster: &'a ClusterState,
    plan: &'a DerivedPlan,
) -> Vec<(&'a NodeName, Option<&'a NodeProgress>)> {
    static FOREIGN: LazyLock<NodeProgress> = LazyLock::new(NodeProgress::default);
    let status = plan.facts.status();
    // A status written by refit names nodes with their UIDs, so a new machine of the same name has no slot.
    if let Some(active) = &status.active {
        return active
            .iter()
            // `active` also has nodes without a slot, for users.
            .filter(|entry| entry.has_slot())
            .filter_map(|entry| {
                let known = cluster.world.nodes.get_key_value(entry.name.as_str());
                let known = known.map(|(name, node)| (name, &node.uid)).or_else(|| {
                    let unreadable = cluster.world.nodes.unreadable(&entry.name);
                    unreadable.map(|(name, node)| (name, &node.uid))
                });
                let (name, uid) = known?;
                (entry.uid.as_deref() == Some(&**uid)).then_some((name, Some(entry)))
            })
            .collect();
    }
    let hostnames: BTreeSet<&str> = status.applying.iter().flatten().map(String::as_str).collect();
    if hostnames.is_empty() {
        return Vec::new();
    }
    // Several Nodes may have the same hostname label, and only those that the Plan selects can have its slot.
    let named = |(name, node): &(&NodeName, &refit_facts::NodeFacts)| {
        hostnames.contains(node.hostname()) && plan.targets.state(name).is_some()
    };
    cluster
        .world
        .nodes
        .iter()
        .filter(named)
        .map(|(name, _)| (name, Some(&*FOREIGN)))
        .collect()
}

/// Deletes reboot Pods that are no longer needed.
fn delete_idle_pods(cluster: &ClusterState, node_states: &NodeStates, decision: &mut Decision) {
    let kept: BTreeSet<&PodUid> = node_states
        .values()
        .flat_map(|nodes| nodes.values())
        .filter_map(|state| state.pod.as_ref())
        .collect();
    let pods = cluster.world.pods.reboots();
    // Whether the pod is still needed depends on the Node, which cannot be read.
    let is_left_alone = |pod: &PodFacts| {
        pod.node
            .as_deref()
            .is_some_and(|node| cluster.world.nodes.is_unreadable(node))
    };
    for pod in pods.filter(|pod| !pod.deleting && !kept.contains(&pod.uid) && !is_left_alone(pod)) {
        decision.steps.push(Step::DeletePod {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            why: "its node needs no reboot any more",
        });
    }
}

/// Deletes Jobs of deleted Plans. The garbage collector deletes them too, unless someone removed their ownerReference.
fn delete_orphaned_jobs(cluster: &ClusterState, decision: &mut Decision) {
    // If another Plan has the name now, `NodeReconciler::reconcile` finds the Job by its UID and deletes it.
    let is_orphan = |job: &&JobFacts| !cluster.plans.contains_key(&job.plan) && !job.deleting;
    let orphans = cluster.world.jobs.all_open().filter(is_orphan);
    let orphans = orphans.chain(hooks::orphans(cluster));
    decision.steps.extend(orphans.map(delete_leftover));
}

fn delete_leftover(job: &JobFacts) -> Step {
    // As under system-upgrade-controller, Jobs are deleted with their Plan, even while their pods run.
    Step::delete(job, "its Plan is gone")
}
