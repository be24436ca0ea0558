//! The last roll-outs of a Plan, and when the current one is expected to end. Everything follows from the stored status
//! and the cluster, so that a status that is computed again, by this process or its successor, counts nothing twice.

use jiff::{SignedDuration, Timestamp};

use crate::blocker::Blocker;
use crate::despite::Despite;
use crate::hooks;
use crate::node::state::PlanNodes;
use crate::picture::PlanPicture;
use crate::plan::DerivedPlan;
use crate::start::schedule::StartTimes;
use crate::state::ClusterState;
use crate::targets::TargetState;
use refit_api::annotation::Entry;
use refit_api::approval::WaveApproval;
use refit_api::exemption::MAX_EXEMPTIONS;
use refit_api::text::seconds;
use refit_api::{
    DespiteStatus, ExpectedEnd, NodePhase, NodeProgress, PlanStatus, RollOut, annotation, names,
};
use refit_base::version::tag::munge;

/// Number of roll-outs that are kept: some 3 KiB.
const MAX_ROLL_OUTS: usize = 10;

/// The roll-outs after this decision. `status` has everything else.
pub(super) fn history(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    nodes: &PlanNodes,
    status: &PlanStatus,
    complete: bool,
    now: Timestamp,
) -> Option<Vec<RollOut>> {
    let stored = plan.facts.status();
    let mut history = stored.history.clone().unwrap_or_default();
    let rerun = plan.author(names::ANNOTATION_RERUN);
    let target = status
        .latest_hash
        .as_deref()
        .zip(status.latest_version.as_deref());
    // Nodes that are in progress at the hash before do not begin it.
    let begins = !nodes.is_empty() && !hooks::is_before_open(plan);
    if let Some((hash, version)) = target.filter(|_| begins) {
        let is_current = |known: &RollOut| known.hash == hash && known.rerun == rerun;
        match history.first_mut() {
            // A node that has joined since belongs to the same roll-out.
            Some(known) if is_current(known) => (known.to, known.complete) = (None, None),
            known => {
                if let Some(replaced) = known.filter(|known| known.to.is_none()) {
                    (replaced.to, replaced.complete) = (Some(seconds(now)), Some(false));
                }
                let since = status.repeat.as_ref().and_then(|repeat| repeat.since.clone());
                // The hash keeps it when a new version comes, whose roll-out is no repetition.
                let is_known = |since: &String| history.iter().any(|it| it.repeat.as_ref() == Some(since));
                let roll_out = RollOut {
                    version: version.to_owned(),
                    hash: hash.to_owned(),
                    from: seconds(now),
                    approved: approved(plan, version),
                    rerun,
                    repeat: since.filter(|since| !is_known(since)),
                    commit: status.origin.as_ref().and_then(|origin| origin.commit.clone()),
                    ..RollOut::default()
                };
                history.insert(0, roll_out);
                history.truncate(MAX_ROLL_OUTS);
            }
        }
    }
    if let Some(current) = history
        .first_mut()
        .filter(|known| Some(&known.hash) == status.latest_hash.as_ref())
    {
        count(cluster, plan, nodes, current, now);
        note_approved_waves(plan, current);
        note_despite(status, current);
        if complete && nodes.is_empty() && current.to.is_none() {
            (current.to, current.complete) = (Some(seconds(now)), Some(true));
        }
    }
    (!history.is_empty()).then_some(history)
}

fn approved(plan: &DerivedPlan, version: &str) -> Option<String> {
    let text = plan.facts.annotation(names::ANNOTATION_APPROVE)?;
    let is_this = |entry: &Entry<'_>| entry.version.is_none() && munge(entry.plan) == munge(version);
    let entry = annotation::entries(text).find(is_this)?;
    Some(entry.author()?.into_owned())
}

/// Adds the approvals of waves that the annotation has. One that is removed later stays in the history.
fn note_approved_waves(plan: &DerivedPlan, current: &mut RollOut) {
    let text = plan
        .facts
        .annotation(names::ANNOTATION_APPROVE)
        .unwrap_or_default();
    let waves = &plan.selection.waves;
    for entry in WaveApproval::all(text, &current.hash) {
        let is_wave = waves.iter().any(|wave| wave.name == entry.plan);
        let known = current.approved_waves.iter().flatten();
        let is_known = known
            .filter_map(|known| annotation::first_word(known))
            .any(|known| known == entry.plan);
        if is_wave && !is_known {
            let by = entry
                .author()
                .map_or_else(String::new, |author| format!(" {author}"));
            let note = format!("{}{by}", entry.plan);
            current.approved_waves.get_or_insert_default().push(note);
        }
    }
}

/// Adds the exemptions that status has. One that is removed later stays in the history.
fn note_despite(status: &PlanStatus, current: &mut RollOut) {
    let all = status.despite.iter().flatten();
    for note in all.filter(|it| it.is_in_effect()).map(DespiteStatus::describe) {
        let known = current.despite.get_or_insert_default();
        if !known.contains(&note) && known.len() < MAX_EXEMPTIONS {
            known.push(note);
        }
    }
}

/// Adds the nodes that have been done, and the attempts that have failed, since the stored status.
fn count(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    nodes: &PlanNodes,
    current: &mut RollOut,
    now: Timestamp,
) {
    for entry in plan.facts.status().slots() {
        match nodes.get(entry.name.as_str()) {
            Some(state) => {
                let is_known = entry.phase == NodePhase::Failed && entry.attempt == state.attempt;
                current.failures += i64::from(state.failed && !is_known);
            }
            None if is_done(plan, entry) => {
                current.nodes += 1;
                let job = entry.job.as_deref().and_then(|job| cluster.world.jobs.get(job));
                if let Some(job) = job.filter(|job| *job.hash == *current.hash) {
                    let took = now.duration_since(job.created).as_secs().max(0);
                    let [shortest, longest] = [&mut current.shortest_seconds, &mut current.longest_seconds];
                    *shortest = Some(shortest.map_or(took, |known| known.min(took)));
                    *longest = Some(longest.map_or(took, |known| known.max(took)));
                }
            }
            None => {}
        }
    }
}

fn is_done(plan: &DerivedPlan, entry: &NodeProgress) -> bool {
    plan.targets.state(&entry.name) == Some(&TargetState::Done)
}

/// The expected end, if nothing but slots limits the roll-out until then.
pub(super) fn expected_end(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    picture: &PlanPicture,
    current: Option<&RollOut>,
    now: Timestamp,
) -> Option<ExpectedEnd> {
    let current = current.filter(|known| known.to.is_none())?;
    let is_passing =
        |blocker: &Blocker| blocker.is_capacity() || matches!(blocker, Blocker::CheckPending { .. });
    let only_slots = picture.blocker.as_ref().is_none_or(is_passing);
    if !only_slots || !picture.nodes.is_empty() {
        return None;
    }
    let slots = &picture.slots;
    let failed = i64::try_from(slots.values().filter(|state| state.failed).count()).ok()?;
    let free = plan.limit() - failed;
    let waiting = i64::try_from(picture.waiting).ok()?;
    let running = i64::from(slots.values().any(|state| !state.failed));
    if free <= 0 || waiting + running == 0 {
        return None;
    }
    let rounds = waiting / free + i64::from(waiting % free > 0);
    let at = |seconds_each: i64, rounds: i64| {
        let total = SignedDuration::from_secs(seconds_each.saturating_mul(rounds));
        now.checked_add(total).ok()
    };
    // The running nodes may end at once, or have just begun.
    let earliest = at(current.shortest_seconds?, rounds)?;
    let latest = at(current.longest_seconds?, rounds + running)?;
    let closes = StartTimes::of(cluster, plan, &Despite::of(plan).of_all).closes(now);
    closes.is_none_or(|closes| latest <= closes).then(|| ExpectedEnd {
        earliest: seconds(earliest),
        latest: seconds(latest),
    })
}
