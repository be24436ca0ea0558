//! What a Plan says of itself: conditions, counts, nodes and the events that go with a change. Starts, results and
//! conditions are written at once; what is mere progress rides along or waits a second.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::conditions::{COMPLETE, LATEST_RESOLVED, Says, VALIDATED, find, seconds};
use super::decide::{Decision, Report};
use super::event::{Event, EventType};
use super::facts::Text;
use super::node::{Standing, failure_text};
use super::plan::PlanView;
use super::resolve::{self, Resolution, Source};
use super::step::{Key, Step};
use super::world::World;
use super::{fields, start};
use crate::api::{ChannelStatus, NodeCounts, NodeProgress, PlanCondition, PlanStatus};

/// Phase of a node that has not been started.
pub(super) const WAITING: &str = "Waiting";
/// How many nodes `status.active` shows at least, if there are as many: those that wait fill it up to here.
const ACTIVE_SHOWN: usize = 100;
/// How long mere progress may wait.
const PROGRESS_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// How long the list of nodes in an event may be; a message is at most 1,024 bytes long (core/v1 Event).
const NODES_IN_EVENT: usize = 800;

/// Works out the status of a Plan and asks for it to be written where it is news.
pub(super) fn report(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    now: Timestamp,
    decision: &mut Decision,
) {
    if let Err(note) = fields::note(&plan.facts) {
        decision.steps.push(Step::NoteFields { plan: plan.facts.name.clone(), note });
    }
    if matches!(plan.resolution, Resolution::Reading(_)) && unreadable(world, plan).is_none() {
        return;
    }
    let stored = plan.facts.status();
    let status = status(world, plan, nodes, report, now);
    if status == *stored {
        return;
    }
    if essence(&status) == essence(stored)
        && let Some(written) = plan.written
        && let Ok(due) = written.checked_add(PROGRESS_PAUSE)
        && due > now
    {
        decision.wake = Some(decision.wake.map_or(due, |known| known.min(due)));
        return;
    }
    let events = events(plan, stored, &status);
    let plan = plan.facts.name.clone();
    decision.steps.push(Step::WriteStatus { plan, status: Box::new(status), events });
}

fn status(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    now: Timestamp,
) -> PlanStatus {
    let stored = plan.facts.status();
    let resolved = match &plan.resolution {
        Resolution::Resolved(resolved) => Some(resolved),
        _ => None,
    };
    let applying: Vec<String> = nodes.values().map(|s| s.hostname.clone()).collect();
    let failed = nodes.values().filter(|s| s.failed).count();
    let waiting = plan.nodes.eligible().saturating_sub(start::begun(plan, nodes));
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let counts = NodeCounts {
        selected: plan.nodes.selected(),
        done: plan.nodes.done(),
        applying: count(nodes.len() - failed),
        waiting: count(waiting),
        failed: count(failed),
        disabled: plan.nodes.disabled(),
    };
    let next_window = match &report.blocker {
        Some(Blocker::WindowClosed { opens }) => opens.map(seconds),
        _ => None,
    };
    PlanStatus {
        conditions: conditions(world, plan, nodes, report, waiting, now),
        latest_version: resolved.map(|r| r.version.to_string()).or_else(|| stored.latest_version.clone()),
        latest_hash: resolved.map(|r| r.hash.to_string()).or_else(|| stored.latest_hash.clone()),
        applying: (!applying.is_empty()).then_some(applying),
        observed_generation: Some(plan.facts.generation()),
        nodes: Some(counts),
        progress: Some(format!("{}/{}", counts.done, counts.selected)),
        active: Some(active(plan, nodes, report)),
        channel: channel(world, plan),
        next_window,
    }
}

fn conditions(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    waiting: usize,
    now: Timestamp,
) -> Vec<PlanCondition> {
    let stored = &plan.facts.status().conditions;
    let unreadable = unreadable(world, plan);
    let invalid = match (&plan.invalid, &plan.resolution) {
        (Some(why), _) | (None, Resolution::MissingSecrets(why)) => Some(why.as_str()),
        _ => unreadable.as_deref(),
    };
    let validated = match invalid {
        None => Says::new(VALIDATED, true, "PlanIsValid", ""),
        Some(why) => Says::new(VALIDATED, false, "Error", why),
    };
    let mut out = vec![
        complete(world, plan, nodes, report, waiting).write(stored, now),
        validated.write(stored, now),
    ];
    match &plan.resolution {
        Resolution::Resolved(r) => {
            let reason = match r.source {
                Source::Version => "Version",
                Source::Channel => "Channel",
            };
            out.push(Says::new(LATEST_RESOLVED, true, reason, "").write(stored, now));
        }
        Resolution::Failed(why) => out.push(Says::new(LATEST_RESOLVED, false, "Error", why).write(stored, now)),
        // Not known yet: what was said before stands.
        Resolution::Pending | Resolution::Reading(_) | Resolution::MissingSecrets(_) => out.extend(find(stored, LATEST_RESOLVED).cloned()),
    }
    out
}

/// Why a secret that the Plan needs cannot be read.
fn unreadable(world: &World, plan: &PlanView) -> Option<String> {
    let Resolution::Reading(name) = &plan.resolution else { return None };
    let trouble = world.troubles.get(&Key::Secret(name.clone()))?;
    Some(format!("secrets {name:?} cannot be read: {}", trouble.message))
}

fn complete(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    waiting: usize,
) -> Says {
    if plan.invalid.is_some() || !matches!(plan.resolution, Resolution::Resolved(_)) {
        return Says::new(COMPLETE, false, "NotReady", "plan is not valid and resolved");
    }
    if let Some((node, failed)) = nodes.iter().filter(|(_, s)| s.failed).max_by_key(|(_, s)| s.since) {
        let text = failure_text(
            &world.defaults.namespace,
            failed.job.as_deref().unwrap_or_default(),
            node,
            failed.reason.as_deref().unwrap_or_default(),
            failed.message.as_deref().unwrap_or_default(),
        );
        return Says::new(COMPLETE, false, "JobFailed", text);
    }
    if !nodes.is_empty() {
        let refused = nodes.iter().find(|(_, s)| s.reason.as_deref().is_some_and(is_refusal));
        let text = refused.map_or_else(String::new, |(node, s)| {
            format!("Node {node}: {}", s.message.as_deref().unwrap_or_default())
        });
        return Says::new(COMPLETE, false, "SyncJob", text);
    }
    if waiting == 0 {
        let spec = plan.spec();
        let text = match (&spec.node_selector, plan.nodes.selected() + plan.nodes.disabled()) {
            (None, _) => "spec.nodeSelector is absent, which selects no node",
            (Some(_), 0) => "spec.nodeSelector matches no node",
            _ => "",
        };
        return Says::new(COMPLETE, true, "Complete", text);
    }
    match &report.blocker {
        Some(Blocker::WindowClosed { opens }) => {
            let text = "current time is not within configured window";
            let never = if opens.is_none() { ", and will never be" } else { "" };
            Says::new(COMPLETE, false, "Waiting", format!("{text}{never}"))
        }
        Some(blocker @ Blocker::NodeNotReady) => {
            let (node, blocker) = report
                .nodes
                .iter()
                .next()
                .or_else(|| Some((plan.nodes.not_ready().next()?, blocker)))
                .map_or((String::new(), blocker), |(node, b)| (format!("Node {node}: "), b));
            Says::new(COMPLETE, false, blocker.reason(), format!("{node}{blocker}"))
        }
        Some(blocker) => Says::new(COMPLETE, false, blocker.reason(), blocker.to_string()),
        None => Says::new(COMPLETE, false, "Resolved", ""),
    }
}

fn is_refusal(reason: &str) -> bool {
    matches!(reason, "JobRefused" | "NameTaken" | "ImageInvalid" | "SettingMissing" | "JobLeaving")
}

fn active(plan: &PlanView, nodes: &BTreeMap<Text, Standing>, report: &Report) -> Vec<NodeProgress> {
    let entry = |(name, s): (&Text, &Standing)| NodeProgress {
        name: name.to_string(),
        uid: Some(s.uid.to_string()),
        phase: s.phase.to_owned(),
        since: s.since.map(seconds),
        job: s.job.as_deref().map(str::to_owned),
        attempt: s.attempt,
        reason: s.reason.clone(),
        message: s.message.clone(),
    };
    let mut out: Vec<_> = nodes.iter().map(entry).collect();
    let room = ACTIVE_SHOWN.saturating_sub(out.len());
    let not_ready = Blocker::NodeNotReady;
    let shut = report.blocker.as_ref().filter(|b| !matches!(b, Blocker::NoSlot { .. }));
    let waiting = plan.nodes.ready().map(|name| (name, None));
    let waiting = waiting.chain(plan.nodes.not_ready().map(|name| (name, Some(&not_ready))));
    let waiting = waiting.filter(|(name, _)| !nodes.contains_key(*name)).take(room);
    out.extend(waiting.map(|(name, own)| {
        let blocker = report.nodes.get(name).or(shut).or(own).or(report.blocker.as_ref());
        NodeProgress {
            name: name.to_string(),
            phase: WAITING.to_owned(),
            reason: blocker.map(|b| b.reason().to_owned()),
            message: blocker.map(ToString::to_string),
            ..NodeProgress::default()
        }
    }));
    out
}

fn channel(world: &World, plan: &PlanView) -> Option<ChannelStatus> {
    let url = resolve::channel_url(&plan.facts)?;
    let known = resolve::channel(&plan.facts, url, &world.channels)?;
    Some(ChannelStatus {
        url: Some(url.to_owned()),
        last_polled: Some(known.polled.to_string()),
        last_error: known.error,
    })
}

/// What of a status is news, and what is mere progress.
#[derive(PartialEq)]
struct Essence<'a> {
    conditions: Vec<(&'a str, &'a str, Option<&'a str>, Option<&'a str>)>,
    version: Option<&'a str>,
    hash: Option<&'a str>,
    applying: Option<&'a [String]>,
    generation: Option<i64>,
    failed: Vec<&'a str>,
    channel_error: Option<&'a str>,
    next_window: Option<&'a str>,
}

fn essence(status: &PlanStatus) -> Essence<'_> {
    Essence {
        conditions: status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref(), c.message.as_deref()))
            .collect(),
        version: status.latest_version.as_deref(),
        hash: status.latest_hash.as_deref(),
        applying: status.applying.as_deref(),
        generation: status.observed_generation,
        failed: status.active.iter().flatten().filter(|n| n.phase == "Failed").map(|n| n.name.as_str()).collect(),
        channel_error: status.channel.as_ref().and_then(|c| c.last_error.as_deref()),
        next_window: status.next_window.as_deref(),
    }
}

/// What the change means, in system-upgrade-controller's words (S63).
fn events(plan: &PlanView, stored: &PlanStatus, status: &PlanStatus) -> Vec<Event> {
    let mut told: Vec<(EventType, &'static str, String)> = Vec::new();
    let was = |type_| find(&stored.conditions, type_);
    let changed = |type_| {
        let now = find(&status.conditions, type_)?;
        let known = was(type_);
        let same = known.is_some_and(|k| k.status == now.status && k.message == now.message && k.reason == now.reason);
        (!same).then_some(now)
    };
    let version = status.latest_version.as_deref().unwrap_or_default();
    let hash = status.latest_hash.as_deref().unwrap_or_default();
    if let Some(now) = changed(VALIDATED) {
        match now.message.as_deref() {
            Some(why) if now.status == "False" => {
                told.push((EventType::Warning, "ValidateFailed", format!("Failed to validate plan: {why}")));
            }
            _ => told.push((EventType::Normal, "Validated", "Plan is valid".to_owned())),
        }
    }
    let resolved = changed(LATEST_RESOLVED);
    match &plan.resolution {
        Resolution::Failed(why) if resolved.is_some() => {
            let text = if why == resolve::UNRESOLVABLE {
                why.clone()
            } else {
                format!("Failed to resolve latest version from Spec.Channel: {why}")
            };
            told.push((EventType::Warning, "ResolveFailed", text));
        }
        Resolution::Resolved(r) => {
            let error = |s: &PlanStatus| s.channel.as_ref().and_then(|c| c.last_error.clone());
            if let Some(why) = error(status).filter(|why| error(stored).as_ref() != Some(why)) {
                let text = format!("Failed to resolve latest version from Spec.Channel: {why}");
                told.push((EventType::Warning, "ResolveFailed", text));
            }
            if resolved.is_some() || stored.latest_version != status.latest_version {
                let field = match r.source {
                    Source::Version => "Version",
                    Source::Channel => "Channel",
                };
                let text = format!("Resolved latest version from Spec.{field}: {version}");
                told.push((EventType::Normal, "Resolved", text));
            }
        }
        _ => {}
    }
    if let Some(nodes) = status.applying.as_ref().filter(|_| status.applying != stored.applying) {
        let text = format!("Jobs synced for version {version} on Nodes {}. Hash: {hash}", join(nodes));
        told.push((EventType::Normal, "SyncJob", text));
    }
    if let Some(now) = changed(COMPLETE) {
        match now.reason.as_deref().unwrap_or_default() {
            "Complete" if was(COMPLETE).is_none_or(|c| c.status != "True") => {
                told.push((EventType::Normal, "Complete", format!("Jobs complete for version {version}. Hash: {hash}")));
            }
            "Waiting" => {
                let text = format!("Waiting for start of Spec.Window to sync Jobs for version {version}. Hash: {hash}");
                told.push((EventType::Normal, "Waiting", text));
            }
            // Told otherwise: with the Job, with validation, with SyncJob.
            "Complete" | "JobFailed" | "NotReady" | "Resolved" => {}
            "SyncJob" => {
                if let Some(why) = &now.message {
                    told.push((EventType::Warning, "JobRefused", why.clone()));
                }
            }
            reason => told.push((EventType::Warning, blocked(reason), now.message.clone().unwrap_or_default())),
        }
    }
    if told.is_empty() {
        return Vec::new();
    }
    let occurrence = serde_json::to_string(&(&stored.conditions, &stored.applying, &stored.channel)).unwrap_or_default();
    let (name, uid) = (&plan.facts.name, &plan.facts.uid);
    told.into_iter().map(|(type_, reason, text)| Event::plan(name, uid, type_, reason, text, &occurrence)).collect()
}

/// The reason of a condition, as the reason of an event.
fn blocked(reason: &str) -> &'static str {
    match reason {
        "Suspended" => "Suspended",
        "ConcurrencyZero" => "ConcurrencyZero",
        "NodeNotReady" => "NodeNotReady",
        "NodeBusy" => "NodeBusy",
        "MissingPermission" => "MissingPermission",
        "ImageInvalid" => "ImageInvalid",
        "SpecPruned" => "SpecPruned",
        "JobRefused" => "JobRefused",
        "JobLeaving" => "JobLeaving",
        _ => "Blocked",
    }
}

fn join(nodes: &[String]) -> String {
    let mut out = String::new();
    for (at, node) in nodes.iter().enumerate() {
        if out.len() + node.len() > NODES_IN_EVENT {
            return format!("{out} and {} more", nodes.len() - at);
        }
        if at > 0 {
            out.push(',');
        }
        out.push_str(node);
    }
    out
}
