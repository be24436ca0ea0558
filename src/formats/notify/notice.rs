//! The notices that a Plan gives rise to, by its stored status. So a successor of a controller finds the same, with the
//! same ids.

use jiff::{SignedDuration, Timestamp};

use refit_api::digest::short_digest;
use refit_api::open_enum::closed_enum;
use refit_api::{ConditionType, NodePhase, OpenEnum, PlanStatus, Reason, Severity, WavePhase};
use refit_facts::PlanFacts;

/// Failed nodes of a Plan that have a notice of their own.
const MAX_FAILED: usize = 100;
/// What is over gives rise to a notice for this long. A receiver that is configured later does not get the history of
/// the cluster.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(1);
/// Length of an id, in hex digits.
const ID: usize = 32;

closed_enum! {
    /// What happened.
    NoticeKind {
        RolloutStarted "The first node of a roll-out starts."
        WaveFinished "All nodes of a wave are upgraded, and its soak is over."
        ApprovalWanted "A version, or the next wave, waits for approval."
        NodeFailed "A Plan failed on a node."
        RolloutStalled "Nodes are left, and none has changed its phase for `stalledAfter`, although some should."
        RolloutComplete "No node is left to upgrade."
    }
}

impl NoticeKind {
    /// The `type` of its `CloudEvents`.
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::RolloutStarted => "rs.refit.rollout.started",
            Self::WaveFinished => "rs.refit.wave.finished",
            Self::ApprovalWanted => "rs.refit.approval.wanted",
            Self::NodeFailed => "rs.refit.node.failed",
            Self::RolloutStalled => "rs.refit.rollout.stalled",
            Self::RolloutComplete => "rs.refit.rollout.complete",
        }
    }

    pub const fn severity(self) -> Severity {
        match self {
            Self::NodeFailed | Self::RolloutStalled => Severity::Warning,
            Self::RolloutStarted | Self::WaveFinished | Self::ApprovalWanted | Self::RolloutComplete => {
                Severity::Normal
            }
        }
    }
}

/// Something that happened, for receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub kind: NoticeKind,
    /// The same for the same occurrence, whichever process reports it and however often.
    pub id: String,
    pub plan: String,
    pub version: String,
    pub node: Option<String>,
    pub wave: Option<String>,
    pub reason: Option<OpenEnum<Reason>>,
    /// What to know about it, as a sentence without its full stop.
    pub message: String,
    pub time: Timestamp,
}

impl Notice {
    /// One with everything, to try a template out.
    pub(super) fn example() -> Self {
        Self {
            kind: NoticeKind::NodeFailed,
            id: "0123456789abcdef0123456789abcdef".to_owned(),
            plan: "k3s".to_owned(),
            version: "v1.33.4+k3s1".to_owned(),
            node: Some("node-1".to_owned()),
            wave: Some("canary".to_owned()),
            reason: Some(Reason::BackoffLimitExceeded.into()),
            message: "exit code 1: \"no space left\"\n\\ <on> {device} & 50 %".to_owned(),
            time: Timestamp::UNIX_EPOCH,
        }
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let Self {
            plan,
            version,
            message,
            ..
        } = self;
        let node = self.node.as_deref().unwrap_or_default();
        let wave = self.wave.as_deref().unwrap_or_default();
        match self.kind {
            NoticeKind::RolloutStarted => {
                format!("Plan {plan}: the roll-out of {version} has started: {message}")
            }
            NoticeKind::WaveFinished => {
                format!("Plan {plan}: wave {wave} of {version} is finished: {message}")
            }
            NoticeKind::ApprovalWanted => format!("Plan {plan}: approval wanted: {message}"),
            NoticeKind::NodeFailed => format!("Plan {plan}: {version} failed on node {node}: {message}"),
            NoticeKind::RolloutStalled => {
                format!("Plan {plan}: the roll-out of {version} makes no progress: {message}")
            }
            NoticeKind::RolloutComplete => {
                format!("Plan {plan}: the roll-out of {version} is complete: {message}")
            }
        }
    }
}

fn id(parts: &[&str]) -> String {
    short_digest(parts, ID)
}

/// The first roll-out in `status.history`, if it is that of the current hash.
struct Current<'a> {
    version: &'a str,
    hash: &'a str,
    from: &'a str,
    is_complete: bool,
}

fn current(status: &PlanStatus) -> Option<Current<'_>> {
    let roll_out = status.history.as_ref()?.first()?;
    (Some(&roll_out.hash) == status.latest_hash.as_ref()).then(|| Current {
        version: &roll_out.version,
        hash: &roll_out.hash,
        from: &roll_out.from,
        is_complete: roll_out.complete == Some(true),
    })
}

/// All notices of a Plan now, apart from stalled roll-outs, in the order in which it happened.
pub fn notices(plan: &PlanFacts, now: Timestamp) -> Vec<Notice> {
    let status = plan.status();
    let mut notices = Vec::new();
    add_roll_outs(plan, status, now, &mut notices);
    add_waves(plan, status, now, &mut notices);
    add_approvals(plan, status, now, &mut notices);
    add_failures(plan, status, now, &mut notices);
    notices.sort_by_key(|notice| (notice.time, notice.kind));
    notices
}

fn new(plan: &PlanFacts, kind: NoticeKind, version: &str, time: Timestamp, occurrence: &[&str]) -> Notice {
    let mut parts = vec![&*plan.uid, kind.name()];
    parts.extend(occurrence);
    Notice {
        kind,
        id: id(&parts),
        plan: plan.name.to_string(),
        version: version.to_owned(),
        node: None,
        wave: None,
        reason: None,
        message: String::new(),
        time,
    }
}

/// Whether what happened then is recent enough for a notice.
fn is_news(time: Timestamp, now: Timestamp) -> bool {
    now.duration_since(time) <= MAX_AGE
}

fn nodes(number: i64) -> String {
    match number {
        1 => "1 node".to_owned(),
        number => format!("{number} nodes"),
    }
}

fn add_roll_outs(plan: &PlanFacts, status: &PlanStatus, now: Timestamp, notices: &mut Vec<Notice>) {
    let count = status.nodes.unwrap_or_default();
    for (index, roll_out) in status.history.iter().flatten().enumerate() {
        let occurrence = [&*roll_out.hash, &roll_out.from];
        let parse = |text: &str| text.parse::<Timestamp>().ok().filter(|time| is_news(*time, now));
        if let Some(from) = parse(&roll_out.from) {
            let mut notice = new(
                plan,
                NoticeKind::RolloutStarted,
                &roll_out.version,
                from,
                &occurrence,
            );
            notice.message = if index == 0 {
                format!(
                    "the Plan selects {}, and {} have the version",
                    nodes(count.selected),
                    count.done
                )
            } else {
                "it has been replaced since".to_owned()
            };
            notices.push(notice);
        }
        let to = roll_out.to.as_deref().filter(|_| roll_out.complete == Some(true));
        if let Some(to) = to.and_then(parse) {
            let mut notice = new(
                plan,
                NoticeKind::RolloutComplete,
                &roll_out.version,
                to,
                &occurrence,
            );
            let failures = match roll_out.failures {
                0 => String::new(),
                1 => ", and 1 attempt failed".to_owned(),
                number => format!(", and {number} attempts failed"),
            };
            notice.message = format!("it has upgraded {}{failures}", nodes(roll_out.nodes));
            notices.push(notice);
        }
    }
}

fn add_waves(plan: &PlanFacts, status: &PlanStatus, now: Timestamp, notices: &mut Vec<Notice>) {
    let (Some(wave), Some(current)) = (&status.wave, current(status)) else {
        return;
    };
    if wave.hash != current.hash {
        return;
    }
    let Ok(waves) = plan.object.spec.waves() else {
        return;
    };
    let present = usize::try_from(wave.index).unwrap_or_default();
    let since = wave
        .since
        .as_deref()
        .and_then(|since| since.parse().ok())
        .unwrap_or(now);
    let awaits = wave.phase == WavePhase::AwaitingApproval;
    let last = waves.len().saturating_sub(1);
    for (index, known) in waves.iter().enumerate() {
        let is_over = index < present || index == present && (awaits && index < last || current.is_complete);
        if !is_over || !is_news(since, now) {
            continue;
        }
        let occurrence = [current.hash, current.from, &index.to_string(), &known.name];
        let mut notice = new(
            plan,
            NoticeKind::WaveFinished,
            current.version,
            since,
            &occurrence,
        );
        notice.wave = Some(known.name.clone());
        let left = waves.len() - index - 1;
        notice.message = match left {
            0 => "it was the last one".to_owned(),
            1 => "1 wave is left".to_owned(),
            left => format!("{left} waves are left"),
        };
        notices.push(notice);
    }
    if awaits && present < last {
        let occurrence = [current.hash, current.from, &wave.name];
        let mut notice = new(
            plan,
            NoticeKind::ApprovalWanted,
            current.version,
            since,
            &occurrence,
        );
        notice.wave = Some(wave.name.clone());
        notice.reason = Some(Reason::WaveNotApproved.into());
        notice.message = wave
            .message
            .clone()
            .unwrap_or_else(|| format!("wave {} is over", wave.name));
        notices.push(notice);
    }
}

fn add_approvals(plan: &PlanFacts, status: &PlanStatus, now: Timestamp, notices: &mut Vec<Notice>) {
    let Some(channel) = &status.channel else { return };
    let wants = channel
        .reason
        .as_ref()
        .is_some_and(|reason| *reason == Reason::NotApproved);
    let Some(candidate) = channel.candidate.as_deref().filter(|_| wants) else {
        return;
    };
    // Only the candidate identifies the occurrence. The message changes while the candidate waits, and people are asked
    // once.
    let mut notice = new(plan, NoticeKind::ApprovalWanted, candidate, now, &[candidate]);
    notice.reason = Some(Reason::NotApproved.into());
    notice.message = channel
        .message
        .clone()
        .unwrap_or_else(|| format!("the channel offers {candidate}"));
    notices.push(notice);
}

fn add_failures(plan: &PlanFacts, status: &PlanStatus, now: Timestamp, notices: &mut Vec<Notice>) {
    let hash = status.latest_hash.as_deref().unwrap_or_default();
    let from = current(status).map_or("", |current| current.from);
    let failed = status
        .active
        .iter()
        .flatten()
        .filter(|node| node.phase == NodePhase::Failed);
    for node in failed.take(MAX_FAILED) {
        let since = node
            .since
            .as_deref()
            .and_then(|since| since.parse().ok())
            .unwrap_or(now);
        let attempt = node.attempt.unwrap_or(1).to_string();
        // By UID: if the machine is replaced under the same name, its failure is another occurrence.
        let uid = node.uid.as_deref().unwrap_or(&node.name);
        let version = status.latest_version.as_deref().unwrap_or_default();
        let mut notice = new(
            plan,
            NoticeKind::NodeFailed,
            version,
            since,
            &[hash, from, uid, &attempt],
        );
        notice.node = Some(node.name.clone());
        notice.reason.clone_from(&node.reason);
        notice.message = node
            .message
            .clone()
            .or_else(|| notice.reason.as_ref().map(ToString::to_string))
            .unwrap_or_else(|| "no reason is known".to_owned());
        notices.push(notice);
    }
}

/// A roll-out that is under way, and whether it makes progress. It knows what this process has seen, so a successor may find out
/// later that it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Changes with each step forward.
    progress: (String, String, i64, Vec<(String, OpenEnum<NodePhase>)>),
    /// Whether the next step is due: nodes are in progress, or something is wrong.
    is_due: bool,
    /// With the time of the last step forward, or since when the next one is due.
    notice: Notice,
}

/// The roll-out of a Plan, if nodes are left and the Plan is not suspended.
pub fn running(plan: &PlanFacts, now: Timestamp) -> Option<Running> {
    let status = plan.status();
    let current = current(status).filter(|current| !current.is_complete)?;
    let complete = status.condition(ConditionType::Complete);
    let reason = complete.and_then(|complete| complete.reason.as_ref());
    let is = |wanted: Reason| reason.is_some_and(|reason| *reason == wanted);
    // A person has stopped the roll-out, so it does not count as stalled.
    if is(Reason::Suspended) || is(Reason::Aborted) {
        return None;
    }
    let is_warned = reason.is_some_and(|reason| {
        reason
            .known()
            .is_some_and(|it| it.severity() == Severity::Warning)
    });
    let is_at_work = status.slots().any(|node| !node.is_failed());
    let done = status.nodes.unwrap_or_default().done;
    // With the number of done nodes, a roll-out that makes progress and stalls again is another occurrence.
    let occurrence = [current.hash, current.from, &done.to_string()];
    let mut notice = new(
        plan,
        NoticeKind::RolloutStalled,
        current.version,
        now,
        &occurrence,
    );
    notice.reason = reason.cloned();
    notice.message = complete
        .and_then(|complete| complete.message.clone())
        .unwrap_or_else(|| "status does not say why".to_owned());
    let phases = status.slots().map(|node| (node.name.clone(), node.phase.clone()));
    Some(Running {
        progress: (
            current.hash.to_owned(),
            current.from.to_owned(),
            done,
            phases.collect(),
        ),
        is_due: is_at_work || is_warned,
        notice,
    })
}

impl Running {
    /// Continues what was seen before.
    #[must_use]
    pub fn after(mut self, known: Option<&Self>) -> Self {
        // A later time means that the clock was set back.
        let goes_on =
            |known: &&Self| known.progress == self.progress && known.notice.time <= self.notice.time;
        if let Some(known) = known.filter(goes_on).filter(|_| self.is_due) {
            self.notice.time = known.notice.time;
        }
        self
    }

    /// The notice if no progress was made for this long.
    pub fn stalled(&self, after: SignedDuration, now: Timestamp) -> Option<Notice> {
        let stalled = self.is_due && now.duration_since(self.notice.time) >= after;
        stalled.then(|| self.notice.clone())
    }
}

#[cfg(test)]
mod tests;
