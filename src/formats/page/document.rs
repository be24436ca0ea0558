//! What the page shows.

use jiff::Timestamp;
use serde::Serialize;

use super::{FailureGroup, Row};
use refit_api::{ExpectedEnd, OpenEnum, PlanState, Reason, RollOut};

/// Where the data of the page is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A rehearsal, in virtual time.
    Rehearsal,
    /// A real cluster.
    #[default]
    Cluster,
}

/// Everything that the page shows.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub source: Source,
    pub title: String,
    /// The time up to which spans without an end are drawn.
    pub now: Timestamp,
    pub start: Timestamp,
    /// Name of the time zone of all times; absent means that of the browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why a live page may be old, if it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
    /// What a reader should know beside the figures, such as a skipped minor version; a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What was assumed, or what is not known; a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub figures: Figures,
    pub plans: Vec<PlanCard>,
    pub rows: Vec<Row>,
    /// Waves, waits of whole Plans, and times in which no node may start.
    pub bands: Vec<Band>,
    /// What decides the length: from the start to what ended last.
    pub chain: Vec<Link>,
    pub failures: Vec<FailureGroup>,
    /// Number of nodes by the version of their kubelet.
    pub versions: Vec<VersionCount>,
    /// What a change of the Plans does, where two rehearsals are compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The older one of two rehearsals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Self>>,
}

impl Document {
    /// One without Plans.
    pub fn new(source: Source, title: impl Into<String>, start: Timestamp, now: Timestamp) -> Self {
        Self {
            source,
            title: title.into(),
            now,
            start,
            ..Self::default()
        }
    }
}

/// Does it work out?
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub mood: Mood,
    /// The verdict in a few words.
    pub headline: String,
    /// The verdict in full.
    pub line: String,
}

/// Colour and icon of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mood {
    /// It is complete, or would be.
    Good,
    /// It goes on by itself.
    Running,
    /// It is held, or would stall.
    Held,
    /// It has failed, or would.
    Bad,
}

impl From<PlanState> for Mood {
    fn from(state: PlanState) -> Self {
        match state {
            PlanState::Failed => Self::Bad,
            PlanState::Held => Self::Held,
            PlanState::Waiting | PlanState::Running => Self::Running,
            PlanState::Complete => Self::Good,
        }
    }
}

/// How long, and what is down meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Nodes out of service at the same time, at most.
    pub most_down: usize,
    /// How many the Plans that were at work then allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<i64>,
    /// Nodes of the control plane that were down at the same time, at most, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<(usize, usize)>,
    /// From the first node to the last change, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// When it ends, or is expected to: the earliest and the latest time, in seconds of the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<(i64, i64)>,
    pub evicted: usize,
}

/// A time that concerns a whole Plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Band {
    pub plan: String,
    pub kind: BandKind,
    /// A few words, such as `canary · soak 30m`.
    pub label: String,
    pub from: i64,
    /// Absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BandKind {
    /// Nodes of a wave, or of a Plan without waves, are upgraded.
    Work,
    /// The Plan waits: for a soak, an approval, another Plan.
    Wait,
    /// No window is open, or a blackout is in force.
    Closed,
}

/// A part of the chain that decides the length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    pub plan: String,
    /// The nodes that were upgraded one after the other; none if it is a wait.
    pub nodes: Vec<String>,
    pub from: i64,
    pub to: i64,
    /// A few words, such as `soak 30m`.
    pub label: String,
    /// What it is, as a part of a sentence.
    pub text: String,
}

/// A Plan, apart from its nodes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanCard {
    pub name: String,
    pub version: Option<String>,
    pub state: PlanState,
    pub selected: i64,
    /// How many of them may be out of service at the same time.
    pub allowed: i64,
    pub done: i64,
    pub applying: i64,
    pub waiting: i64,
    pub failed: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_end: Option<ExpectedEnd>,
    /// Earlier roll-outs, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RollOut>,
    /// Waits, grouped by what was waited for, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitCard>,
}

/// What holds a Plan, and what releases it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    pub reason: OpenEnum<Reason>,
    pub message: String,
    pub remedy: String,
    /// Commands for that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

impl Held {
    pub fn new(reason: OpenEnum<Reason>, message: String) -> Self {
        let remedy = reason.known().map_or_else(String::new, Reason::plain_remedy);
        Self {
            reason,
            message,
            remedy,
            commands: Vec::new(),
        }
    }
}

/// Nodes of a Plan that waited for the same thing.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitCard {
    pub reason: OpenEnum<Reason>,
    pub message: String,
    /// Maximum total time of a node.
    pub seconds: i64,
    /// Absent if the whole Plan waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    pub is_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionCount {
    pub version: String,
    pub nodes: usize,
}

/// One difference between two rehearsals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What is compared, such as `duration` or `Plan server: failed nodes`.
    pub what: String,
    pub old: String,
    pub new: String,
}

/// Counts versions, the most frequent first.
pub fn count_versions<'a>(versions: impl Iterator<Item = &'a str>) -> Vec<VersionCount> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for version in versions {
        *counts.entry(version).or_default() += 1;
    }
    let count = |(version, nodes): (&str, usize)| VersionCount {
        version: version.to_owned(),
        nodes,
    };
    let mut counts: Vec<_> = counts.into_iter().map(count).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.nodes));
    counts
}
