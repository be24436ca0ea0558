//! What decides the length of a roll-out: the nodes and waits of which each let the next one begin, up to what ended last.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::{NodeRun, Recorder, Wait};
use crate::words::{duration, pluralized};
use refit_api::Reason;
use refit_formats::page::Link;

/// How much later than its cause something may begin.
const SLACK: SignedDuration = SignedDuration::from_secs(10);
/// Waits within the run of a node that are worth a word.
const MIN_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// Reasons that end when a node is done: that node is the cause.
const OF_OTHERS: [Reason; 10] = [
    Reason::DependencyNotComplete,
    Reason::WaveInProgress,
    Reason::EarlierNodes,
    Reason::NodeBusy,
    Reason::ClusterLimit,
    Reason::MaxUnavailable,
    Reason::ControlPlaneQuorum,
    Reason::Prepare,
    Reason::DrainWaiting,
    Reason::PodWaiting,
];

struct Run<'r> {
    plan: &'r str,
    node: &'r str,
    seen: &'r NodeRun,
    until: Timestamp,
}

enum Step<'r> {
    /// A node, from when it did not wait for another Plan any more.
    Run(&'r Run<'r>, Timestamp),
    Wait(&'r Wait, Timestamp),
}

impl Recorder {
    /// The chain of these Plans, the first link first. `end` is when observation ended.
    pub fn chain(&self, plans: &[&str], end: Timestamp) -> Vec<Link> {
        let mut runs: Vec<Run<'_>> = Vec::new();
        for plan in plans {
            runs.extend(self.node_runs(plan).map(|(node, run)| Run {
                plan,
                node,
                seen: run,
                until: run.until.unwrap_or(end),
            }));
        }
        runs.sort_by_key(|run| run.until);
        let mut waits = self.waits();
        // The Jobs of `before` and `after` are more precise.
        waits.retain(|wait| plans.contains(&wait.plan.as_str()) && !is_of_hook(wait));
        for plan in plans {
            waits.extend(self.hook_runs(plan).iter().map(|run| run.to_wait(plan)));
        }
        self.links(&steps(&runs, &waits, end))
    }

    /// Nodes of a wave that follow each other are one link.
    fn links(&self, steps: &[Step<'_>]) -> Vec<Link> {
        let mut links: Vec<(Option<&str>, Vec<&Wait>, Link)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(wait, to) => {
                    let link = Link {
                        plan: wait.plan.clone(),
                        nodes: Vec::new(),
                        from: wait.since.as_second(),
                        to: to.as_second(),
                        label: format!("{} {}", short(wait), duration(to.duration_since(wait.since))),
                        text: self.wait_text(wait, *to),
                    };
                    links.push((None, Vec::new(), link));
                }
                Step::Run(run, from) => {
                    let wave = self.wave_at(run.plan, run.seen.since);
                    let held = self.longest_wait(run, *from);
                    match links.last_mut() {
                        Some((of, waits, link))
                            if *of == wave && link.plan == run.plan && !link.nodes.is_empty() =>
                        {
                            link.nodes.push(run.node.to_owned());
                            link.to = run.until.as_second();
                            waits.extend(held);
                        }
                        _ => links.push((
                            wave,
                            held.into_iter().collect(),
                            Link {
                                plan: run.plan.to_owned(),
                                nodes: vec![run.node.to_owned()],
                                from: from.as_second(),
                                to: run.until.as_second(),
                                label: String::new(),
                                text: String::new(),
                            },
                        )),
                    }
                }
            }
        }
        let told = |(wave, waits, mut link): (Option<&str>, Vec<&Wait>, Link)| {
            if !link.nodes.is_empty() {
                let long = duration(SignedDuration::from_secs(link.to - link.from));
                link.label = format!("{} {long}", wave.unwrap_or(&link.plan));
                link.text = nodes_text(&link, wave, &waits);
            }
            link
        };
        links.into_iter().map(told).collect()
    }

    fn wait_text(&self, wait: &Wait, to: Timestamp) -> String {
        let long = duration(to.duration_since(wait.since));
        let wave = self.wave_at(&wait.plan, wait.since).unwrap_or_default();
        match wait.reason.known() {
            Some(Reason::WaveSoaking) => format!("the soak of wave {wave} takes {long}"),
            Some(Reason::WaveNotApproved) => format!("wave {wave} waits {long} for approval"),
            _ if is_of_hook(wait) => format!("`{}` of Plan {} takes {long}", wait.blocker, wait.plan),
            _ => format!("Plan {} waits {long}: {}", wait.plan, wait.awaited()),
        }
    }

    /// The longest wait of a node within its run.
    fn longest_wait(&self, run: &Run<'_>, from: Timestamp) -> Option<&Wait> {
        let waits = self.closed.iter().chain(self.open.values()).filter(|wait| {
            wait.plan == run.plan
                && wait.node.as_deref() == Some(run.node)
                && wait.since >= from
                && wait.since <= run.until
        });
        let long = |wait: &&Wait| wait.until.unwrap_or(run.until).duration_since(wait.since);
        waits.filter(|wait| long(wait) >= MIN_WAIT).max_by_key(long)
    }
}

/// Whether `before` or `after` runs.
fn is_of_hook(wait: &Wait) -> bool {
    let reason = wait.reason.known();
    reason.is_some_and(|reason| matches!(reason, Reason::BeforeRunning | Reason::AfterRunning))
}

fn short(wait: &Wait) -> &str {
    match wait.reason.known() {
        Some(Reason::WaveSoaking) => "soak",
        Some(Reason::WaveNotApproved) => "approval",
        _ => &wait.blocker,
    }
}

/// From the last one back to the first, each with what let it begin.
fn steps<'r>(runs: &'r [Run<'r>], waits: &'r [Wait], end: Timestamp) -> Vec<Step<'r>> {
    let mut steps = Vec::new();
    let open = waits
        .iter()
        .filter(|wait| wait.until.is_none() && wait.node.is_none());
    let is_working = runs.iter().any(|run| run.seen.until.is_none());
    let (mut plan, mut node, mut at);
    match open.min_by_key(|wait| wait.since).filter(|_| !is_working) {
        // A Plan that waits for another one waits for what that one waits for.
        Some(wait) if wait.since < end => {
            steps.push(Step::Wait(wait, end));
            (plan, node, at) = (wait.plan.as_str(), None, wait.since);
        }
        _ => {
            let Some(last) = runs.last() else { return steps };
            let ended =
                |wait: &&Wait| is_of_hook(wait) && wait.until.is_some_and(|until| until >= last.until);
            let after = waits.iter().filter(ended).max_by_key(|wait| wait.until);
            if let Some((after, until)) = after.and_then(|after| Some((after, after.until?))) {
                steps.push(Step::Wait(after, until));
                (plan, node, at) = (after.plan.as_str(), None, after.since);
            } else {
                let from = began(last, waits);
                steps.push(Step::Run(last, from));
                (plan, node, at) = (last.plan, Some(last.node), from);
            }
        }
    }
    // Each step ends before the one after it begins, so this ends.
    loop {
        let latest = at.saturating_add(SLACK).unwrap_or(Timestamp::MAX);
        let wait = waits.iter().filter(|wait| {
            let ends = wait
                .until
                .is_some_and(|until| until <= latest && at.duration_since(until) <= SLACK);
            let is_own = wait.plan == plan && (wait.node.is_none() || wait.node.as_deref() == node);
            let is_cause = wait
                .reason
                .known()
                .is_none_or(|reason| !OF_OTHERS.contains(&reason));
            is_own && is_cause && ends && at.duration_since(wait.since) > SLACK
        });
        if let Some(wait) = wait.min_by_key(|wait| wait.since) {
            steps.push(Step::Wait(wait, at));
            (node, at) = (None, wait.since);
            continue;
        }
        let ended = runs.partition_point(|run| run.until <= latest);
        let earlier = runs.iter().take(ended).rev();
        let Some(run) = earlier.into_iter().find(|run| began(run, waits) < at) else {
            break;
        };
        let from = began(run, waits);
        steps.push(Step::Run(run, from));
        (plan, node, at) = (run.plan, Some(run.node), from);
    }
    steps.reverse();
    steps
}

/// When a run began, or no longer waited for another Plan.
fn began(run: &Run<'_>, waits: &[Wait]) -> Timestamp {
    let prepared = waits.iter().filter(|wait| {
        wait.reason == Reason::Prepare && wait.plan == run.plan && wait.node.as_deref() == Some(run.node)
    });
    let prepared = prepared
        .filter_map(|wait| wait.until)
        .filter(|until| *until <= run.until)
        .max();
    prepared.map_or(run.seen.since, |until| until.max(run.seen.since))
}

/// `the 9 nodes of Plan agents take 31m, one after the other`.
fn nodes_text(link: &Link, wave: Option<&str>, waits: &[&Wait]) -> String {
    let long = duration(SignedDuration::from_secs(link.to - link.from));
    let of = wave.map_or_else(|| format!("Plan {}", link.plan), |wave| format!("wave {wave}"));
    let mut text = match link.nodes.as_slice() {
        [only] => format!("node {only} of {of} takes {long}"),
        nodes => format!(
            "{} of {of} take {long}, one after the other",
            pluralized(nodes.len(), "node")
        ),
    };
    let took = |wait: &Wait| {
        let until = wait.until.map_or(link.to, Timestamp::as_second);
        SignedDuration::from_secs(until - wait.since.as_second())
    };
    if let Some(wait) = waits.iter().max_by_key(|wait| took(wait)) {
        let node = wait.node.as_deref().unwrap_or_default();
        let _ = write!(
            text,
            "; {node} waits {} of it: {}",
            duration(took(wait)),
            wait.awaited()
        );
    }
    text
}
