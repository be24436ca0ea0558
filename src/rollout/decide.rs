//! The decision: observe → validate → resolve → decide → act → report is the pipeline, and this is its middle.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::blocker::Blocker;
use super::conditions::NODE_REFUSED;
use super::event::{Event, EventType};
use super::facts::{SecretFacts, Text};
use super::node::{Question, Stand, Standing};
use super::plan::PlanView;
use super::start::{self, Busy, Standings};
use super::status::{WAITING, report};
use super::step::{Key, Step};
use super::world::{Hold, World};
use super::{digests, give_back, next, resolve};
use crate::api::NodeProgress;
use crate::api::names::ANNOTATION_POLL_NOW;
use crate::channel::Named;
use crate::job::digest;

/// What is to be done now, why the rest waits, and when to look again.
#[must_use = "a decision does nothing by itself"]
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// What is to be done, in no order.
    pub steps: Vec<Step>,
    /// When to look again, if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Why nodes wait, by Plan.
    pub reports: BTreeMap<Text, Report>,
}

/// Why the nodes of a Plan wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Why those wait of which nothing else is said; absent when none waits.
    pub blocker: Option<Blocker>,
    /// Why single nodes wait.
    pub nodes: BTreeMap<Text, Blocker>,
    /// How many wait.
    pub waiting: usize,
}

impl Decision {
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }
}

/// Decides for all Plans at once. [`World::settle`] comes first.
pub fn decide(world: &World, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    ask(world, now, &mut decision);
    if let Some(hold) = world.hold(now) {
        // Writing a status now could store a spec that has lost our fields for good.
        hold_still(world, hold, &mut decision);
        return decision;
    }

    // Where every node stands that a Plan has begun with.
    let mut standings = Standings::new();
    let mut gates = BTreeMap::new();
    for (name, plan) in world.plans.iter().filter(|(_, p)| !p.facts.deleting()) {
        let gate = start::gate(world, plan, now, &mut decision.wake);
        let mut nodes = stand(world, plan, gate.as_ref(), now, &mut decision);
        next::step_back(plan, &mut nodes, &mut decision.steps);
        standings.insert(name.clone(), nodes);
        gates.insert(name.clone(), gate);
    }
    leftovers(world, &mut decision);
    idle_pods(world, &standings, &mut decision);
    decision.steps.extend(give_back::tidy(world, Some(&standings)));

    // Who goes on: those that have a slot, before anybody starts.
    let mut busy = Busy::new(world, &standings);
    busy.begin(&mut standings);
    for (node, standing) in standings.values_mut().flatten() {
        let patches = standing
            .steps
            .iter()
            .any(|step| matches!(step, Step::PatchNode { .. }));
        if let Some(trouble) = world
            .troubles
            .get(&Key::Node(node.clone()))
            .filter(|t| patches && t.refused)
        {
            standing.is_held_up(
                NODE_REFUSED,
                format!("the node cannot be patched: {}", trouble.message),
            );
        }
        decision.steps.append(&mut standing.steps);
        if let Some(at) = standing.wake {
            decision.wake_at(at);
        }
    }

    // Who starts next: Plan by Plan, each seeing what the ones before it took.
    for (name, mut nodes) in standings {
        let Some(plan) = world.plans.get(&name) else {
            continue;
        };
        let gate = gates.remove(&name).flatten();
        let is_shut = gate.is_some();
        let steps = &mut decision.steps;
        let waits = start::start(world, plan, gate, &mut nodes, &mut busy, now, steps);
        next::leave_out_unsure(world, plan, is_shut, &mut nodes);
        report(world, plan, &nodes, &waits, now, &mut decision);
        decision.reports.insert(name, waits);
    }
    decision
}

/// All that can be done while something may not be listed that a decision has to see: to ask what the controller may not do,
/// and to tell each Plan of it. Of what was not listed nothing is known, so nothing is written and nothing begins.
pub fn decide_blind(world: &World) -> Decision {
    let mut decision = Decision::default();
    decision
        .steps
        .extend(world.asks_permissions().then_some(Step::AskPermissions));
    for plan in world.plans.values() {
        if let Some(what) = world.missing_permission(plan) {
            let blocker = Blocker::MissingPermission { what };
            decision.steps.extend(tell(world, plan, &blocker));
        }
    }
    decision
}

/// No Plan is written and nothing begins. Nodes that Plans held which are gone are given back all the same, and everybody
/// can be told why the rest waits.
fn hold_still(world: &World, hold: Hold<'_>, decision: &mut Decision) {
    let blocker = match hold {
        Hold::Unread { ask } => {
            decision.steps.extend(ask.then_some(Step::ReadPlans));
            Blocker::NotReady
        }
        Hold::Outdated { missing, until } => {
            if let Some(until) = until {
                decision.wake_at(until);
            }
            decision.steps.extend(give_back::tidy(world, None));
            Blocker::SchemaOutdated {
                missing: missing.to_owned(),
            }
        }
    };
    for (name, plan) in &world.plans {
        if matches!(hold, Hold::Outdated { .. }) {
            decision.steps.extend(tell(world, plan, &blocker));
        }
        let waiting = plan.nodes.eligible();
        decision.reports.insert(
            name.clone(),
            Report {
                blocker: (waiting > 0).then(|| blocker.clone()),
                waiting,
                ..Report::default()
            },
        );
    }
}

/// Tells a Plan why nothing is written to it, once in each edition of the definition.
fn tell(world: &World, plan: &PlanView, blocker: &Blocker) -> Option<Step> {
    let (name, uid) = (&plan.facts.name, &plan.facts.uid);
    let (reason, text) = (blocker.reason(), blocker.to_string());
    let event = Event::plan(name, uid, EventType::Warning, reason, text, world.edition());
    (world.told.get(name) != Some(&event.key)).then(|| Step::Tell {
        plan: name.clone(),
        events: vec![event],
    })
}

/// Questions that have to be answered before Plans can be resolved or started.
fn ask(world: &World, now: Timestamp, decision: &mut Decision) {
    let mut channels = BTreeSet::new();
    for plan in world
        .plans
        .values()
        .filter(|p| !p.facts.deleting() && p.facts.malformed.is_none())
    {
        for secret in digest::hashed_secrets(plan.spec()) {
            if matches!(world.secrets.get(secret), None | Some(SecretFacts::Unread)) {
                decision.steps.push(Step::ReadSecret { name: secret.into() });
            }
        }
        ask_for_digests(plan, decision);
        if let Some(due) = plan
            .choice
            .as_ref()
            .and_then(|choice| choice.due)
            .filter(|due| *due > now)
        {
            decision.wake_at(due);
        }
        let Some(channel) = plan.channel.as_ref().filter(|channel| channels.insert(*channel)) else {
            continue;
        };
        let asked_by = asked_by(world, channel);
        // An answer from the future is one from before the clock was set.
        let known = newest_answer(world, channel).filter(|known| known.polled <= now);
        match resolve::next_poll(&channel.url, known.as_ref(), world.defaults.polling_interval) {
            Some(due) if due > now && asked_by.is_empty() && !is_forgotten(world, channel) => {
                decision.wake_at(due);
            }
            _ => decision.steps.push(Step::Poll {
                channel: channel.clone(),
                latest_version: plan.facts.status().latest_version.clone(),
                asked_by,
            }),
        }
    }
    if world.asks_permissions() {
        decision.steps.push(Step::AskPermissions);
    }
}

fn followers<'a>(world: &'a World, channel: &'a Named) -> impl Iterator<Item = &'a PlanView> {
    world
        .plans
        .values()
        .filter(move |plan| plan.channel.as_ref() == Some(channel))
}

/// Plans of a channel that a person wants asked now, and the values that say so: each has it asked once.
fn asked_by(world: &World, channel: &Named) -> BTreeMap<Text, String> {
    let wish = |plan: &PlanView| {
        let value = plan.facts.annotation(ANNOTATION_POLL_NOW)?;
        let heeded = plan.polled_for.as_deref().or_else(|| {
            let told = resolve::told(&plan.facts, channel)?;
            told.polled_for.as_deref()
        });
        (heeded != Some(value)).then(|| (plan.facts.name.clone(), value.to_owned()))
    };
    followers(world, channel)
        .filter(|plan| !plan.facts.deleting())
        .filter_map(wish)
        .collect()
}

/// A Plan waits for a version of the channel, and this process does not know what it offers: when it is to be taken cannot be
/// said before.
fn is_forgotten(world: &World, channel: &Named) -> bool {
    let waits = |plan: &PlanView| {
        let told = resolve::told(&plan.facts, channel);
        told.is_some_and(|told| told.candidate.is_some() || told.withdrawn.is_some())
    };
    !world.channels.contains_key(channel) && followers(world, channel).any(waits)
}

/// What the tags of a Plan's images stand for is asked once there is a node to start.
fn ask_for_digests(plan: &PlanView, decision: &mut Decision) {
    let Some(resolved) = plan.resolution.resolved().filter(|_| plan.nodes.eligible() > 0) else {
        return;
    };
    for image in plan.digests.unknown() {
        decision.steps.push(Step::ReadDigest {
            plan: plan.facts.name.clone(),
            hash: resolved.hash.clone(),
            image: image.clone(),
            access: digests::access(plan.spec(), image),
        });
    }
}

/// A channel is asked for all its Plans at once, so the newest answer that any of them was told counts.
fn newest_answer(world: &World, channel: &Named) -> Option<super::ChannelFacts> {
    followers(world, channel)
        .map(|plan| resolve::channel(&plan.facts, channel, &world.channels))
        .try_fold(None, |newest: Option<super::ChannelFacts>, answer| {
            // A Plan that was told nothing yet has a right to be told now.
            let answer = answer?;
            Some(Some(match newest {
                Some(known) if known.polled >= answer.polled => known,
                _ => answer,
            }))
        })
        .flatten()
}

fn stand(
    world: &World,
    plan: &PlanView,
    gate: Option<&Blocker>,
    now: Timestamp,
    decision: &mut Decision,
) -> BTreeMap<Text, Standing> {
    let mut names = told(world, plan);
    let jobs = world.open_jobs.of(&plan.facts.name);
    let jobs = jobs.filter_map(|job| Some(&world.jobs.get(job)?.node));
    let recorded = world.recorded_on.of(&plan.facts.name);
    let making = world.making.keys().filter(|(of, _)| *of == plan.facts.name);
    let others = jobs.chain(recorded).chain(making.map(|(_, node)| node));
    names.extend(others.map(|name| (name, None)));
    // Stable: what status tells of a node comes first.
    names.sort_by_key(|(name, _)| *name);
    names.dedup_by_key(|(name, _)| *name);
    let question = Question {
        world,
        plan,
        now,
        gate,
    };
    let stand = |(name, told): (&Text, Option<&NodeProgress>)| match question.stand(name, told) {
        Stand::Slot(mut standing) => {
            let boot = told.and_then(|told| told.boot_id.as_deref());
            standing.boot = standing.boot.or_else(|| boot.map(Text::from));
            standing.told = told.is_some();
            Some((name.clone(), *standing))
        }
        Stand::Tidy(steps) => {
            decision.steps.extend(steps);
            None
        }
    };
    names.into_iter().filter_map(stand).collect()
}

/// The nodes that stored status gives a slot to. system-upgrade-controller's status names them by hostname only.
fn told<'a>(world: &'a World, plan: &'a PlanView) -> Vec<(&'a Text, Option<&'a NodeProgress>)> {
    static FOREIGN: NodeProgress = NodeProgress {
        name: String::new(),
        uid: None,
        phase: String::new(),
        since: None,
        job: None,
        attempt: None,
        boot_id: None,
        reason: None,
        message: None,
    };
    let status = plan.facts.status();
    if let Some(active) = &status.active {
        return active
            .iter()
            .filter(|entry| entry.phase != WAITING)
            .filter_map(|entry| {
                let (name, node) = world.nodes.get_key_value(entry.name.as_str())?;
                (entry.uid.as_deref() == Some(&*node.uid)).then_some((name, Some(entry)))
            })
            .collect();
    }
    let hostnames: BTreeSet<&str> = status.applying.iter().flatten().map(String::as_str).collect();
    if hostnames.is_empty() {
        return Vec::new();
    }
    let named = |(name, node): &(&Text, &super::NodeFacts)| {
        hostnames.contains(node.hostname()) && plan.nodes.class(name).is_some()
    };
    world
        .nodes
        .iter()
        .filter(named)
        .map(|(name, _)| (name, Some(&FOREIGN)))
        .collect()
}

/// Pods that were to reboot a node and are of no use any more.
fn idle_pods(world: &World, standings: &Standings, decision: &mut Decision) {
    let kept: BTreeSet<&Text> = standings
        .values()
        .flat_map(|nodes| nodes.values())
        .filter_map(|standing| standing.pod.as_ref())
        .collect();
    let pods = world.reboot_pods.iter().filter_map(|name| world.pods.get(name));
    for pod in pods.filter(|pod| !pod.deleting && !kept.contains(&pod.uid)) {
        decision.steps.push(Step::DeletePod {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            why: "its node need not reboot any more",
        });
    }
}

/// Jobs of Plans that are no more. Kubernetes collects them too, by their ownerReference, unless somebody took that away.
fn leftovers(world: &World, decision: &mut Decision) {
    for (plan, jobs) in world.open_jobs.iter() {
        if world.plans.contains_key(plan) {
            continue;
        }
        for job in jobs
            .iter()
            .filter_map(|job| world.jobs.get(job))
            .filter(|job| !job.deleting)
        {
            decision.steps.push(Step::DeleteJob {
                job: job.name.clone(),
                uid: job.uid.clone(),
                only_unbound: false,
                why: "its Plan is gone",
            });
        }
    }
}
