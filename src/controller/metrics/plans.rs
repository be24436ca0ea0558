//! The series of each Plan. Their number is bounded, whatever the Plans and nodes are like.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::list;
use super::sample::{OTHER, Sample, Samples};
use super::tracker::{DONE, Tracker, reason_label};
use refit_api::text::shorten;
use refit_api::{ConditionType, NodePhase, PlanCondition, Reason};
use refit_facts::PlanName;
use refit_rollout::{ClusterState, PlanPicture, summary};

/// Plans that have metrics of their own: anyone who may create Plans may create thousands.
pub(super) const MAX_PLANS: usize = 200;
/// Series of a Plan. What is left of the others goes to the most frequent reasons.
pub(super) const MAX_SERIES: usize = 34;
/// Series for reasons that a Plan has at least: the most frequent one, and the rest.
const MIN_REASONS: usize = 2;
/// Length of the label `version`: that of a tag.
const MAX_VERSION: usize = 128;

/// A node that the Plan leaves alone. Like one that is done, it has no phase in status.
const DISABLED: &str = "Disabled";

pub(super) fn samples(
    cluster: &ClusterState,
    pictures: &BTreeMap<PlanName, PlanPicture>,
    tracker: &Tracker,
    now: Timestamp,
) -> Samples {
    let mut refused: BTreeMap<&PlanName, usize> = BTreeMap::new();
    for (plan, _, note) in cluster.drains() {
        *refused.entry(plan).or_default() += note.waiting.len() + note.more;
    }
    let of_plan = |(name, picture): (&PlanName, &PlanPicture)| {
        let refused = refused.get(name).copied().unwrap_or_default();
        plan_samples(cluster, name, picture, tracker, refused, now)
    };
    pictures
        .iter()
        .take(MAX_PLANS)
        .filter_map(of_plan)
        .flatten()
        .collect()
}

fn plan_samples(
    cluster: &ClusterState,
    name: &PlanName,
    picture: &PlanPicture,
    tracker: &Tracker,
    refused: usize,
    now: Timestamp,
) -> Option<Samples> {
    let status = cluster.plan(name)?.status();
    let plan = name.to_string();
    let mut samples = Vec::new();
    let number = |metric, value: f64| Sample::of(metric, value).with(&plan);
    if let Some(version) = &picture.version {
        let version = shorten(version, MAX_VERSION);
        samples.push(number(&list::PLAN_INFO, 1.0).with(version));
    }
    let mut phases: BTreeMap<NodePhase, usize> = BTreeMap::from([(NodePhase::Waiting, picture.waiting)]);
    for slot in picture.slots.values() {
        *phases.entry(slot.phase).or_default() += 1;
    }
    let count = |number: i64| usize::try_from(number).unwrap_or_default();
    let nodes = NodePhase::ALL
        .iter()
        .map(|phase| (phase.name(), phases.get(phase).copied().unwrap_or_default()))
        .chain([
            (DONE, count(picture.counts.done)),
            (DISABLED, count(picture.counts.disabled)),
        ]);
    samples
        .extend(nodes.map(|(phase, count)| Sample::count(&list::PLAN_NODES, count).with(&plan).with(phase)));
    if picture.claims_kubelets {
        for reason in [Reason::VersionDiffers, Reason::Drifted] {
            let certain = picture
                .differs
                .values()
                .filter(|it| it.is_certain && it.reason == reason);
            samples.push(
                Sample::count(&list::PLAN_DIFFERING_NODES, certain.count())
                    .with(&plan)
                    .with(reason.name()),
            );
        }
    }
    samples.extend(of_conditions(&plan, &status.conditions));
    samples.push(Sample::count(&list::PLAN_SLOTS, count(picture.limit)).with(&plan));
    samples.push(Sample::count(&list::PLAN_REFUSED_PODS, refused).with(&plan));
    if let Some(window) = summary::opening(cluster, name, now) {
        samples.push(Sample::flag(&list::PLAN_WINDOW_OPEN, window.is_open).with(&plan));
        samples.extend(
            window
                .length
                .map(|it| number(&list::PLAN_WINDOW_LENGTH, it.as_secs_f64())),
        );
    }
    if let Some((channel, known)) = summary::channel(cluster, name) {
        samples.push(number(&list::PLAN_CHANNEL_FAILURES, known.failures.into()));
        let success = tracker
            .last_success(channel)
            .or((known.failures == 0).then_some(known.polled));
        samples.extend(success.map(|at| number(&list::PLAN_CHANNEL_POLL, seconds(at))));
    }
    let cordon = tracker.oldest_cordon(name);
    samples.extend(cordon.map(|since| number(&list::PLAN_CORDON, seconds(since))));
    if let Some(track) = tracker.plan(name) {
        let expected_end = status
            .expected_end
            .as_ref()
            .and_then(|end| end.latest.parse().ok());
        samples.push(number(&list::PLAN_PROGRESS, seconds(track.progress)));
        samples.push(number(&list::PLAN_CORDONED, track.cordoned.as_secs_f64()));
        samples.push(number(&list::PLAN_DRAINING, track.draining.as_secs_f64()));
        samples.push(Sample::total(&list::PLAN_EVICTIONS, track.evictions).with(&plan));
        let gauges = [
            (&list::PLAN_ROLLOUT_START, track.rollout.map(seconds)),
            (
                &list::PLAN_ROLLOUT_DURATION,
                track.last_rollout.map(|took| took.as_secs_f64()),
            ),
            (
                &list::PLAN_NODE_DURATION,
                track.node_duration().map(|took| took.as_secs_f64()),
            ),
            (&list::PLAN_EXPECTED_END, expected_end.map(seconds)),
        ];
        samples.extend(
            gauges
                .into_iter()
                .filter_map(|(metric, value)| Some(number(metric, value?))),
        );
    }
    let room = MAX_SERIES.saturating_sub(samples.len()).max(MIN_REASONS);
    samples.extend(
        stalled(summary::waiting_by_reason(cluster, name, picture), picture, room)
            .into_iter()
            .map(|(reason, count)| {
                Sample::count(&list::PLAN_STALLED_NODES, count)
                    .with(&plan)
                    .with(reason)
            }),
    );
    Some(samples)
}

fn of_conditions(plan: &str, conditions: &[PlanCondition]) -> impl Iterator<Item = Sample> {
    conditions.iter().filter_map(move |condition| {
        // Whether it is complete shows in the numbers of nodes.
        let known = condition.type_.known();
        let known = known.filter(|known| *known != ConditionType::Complete)?;
        let sample = Sample::flag(&list::PLAN_CONDITION, condition.status == "True");
        Some(sample.with(plan).with(known.name()))
    })
}

/// The number of nodes that do not progress by reason, at most `room` of them.
fn stalled(
    waiting: BTreeMap<Reason, usize>,
    picture: &PlanPicture,
    room: usize,
) -> Vec<(&'static str, usize)> {
    let waiting = waiting.into_iter().map(|(reason, count)| (reason.name(), count));
    let mut counts: BTreeMap<&'static str, usize> = waiting.collect();
    for slot in picture.slots.values() {
        if slot.reason.is_some() || slot.phase == NodePhase::Failed {
            *counts.entry(reason_label(slot.reason.as_ref())).or_default() += 1;
        }
    }
    if counts.len() <= room {
        return counts.into_iter().collect();
    }
    let mut other = counts.remove(OTHER).unwrap_or_default();
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    other += counts.drain(room - 1..).map(|(_, count)| count).sum::<usize>();
    counts.push((OTHER, other));
    counts
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}
