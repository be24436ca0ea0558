//! The data of a recording: runs of nodes, waits and events.

use jiff::Timestamp;
use serde::Serialize;

use crate::upgrade_script::PrepareWait;
use refit_api::{Hook, HookPhase, NodePhase, OpenEnum, Reason, WavePhase};
use refit_formats::page::RowState;

/// A time in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The value of `status.active[].phase`.
    pub phase: OpenEnum<NodePhase>,
    pub since: Timestamp,
    /// When it ended, if that was observed.
    pub until: Option<Timestamp>,
}

/// A Plan on a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRun {
    #[serde(rename = "start")]
    pub since: Timestamp,
    /// When it was done or failed.
    #[serde(rename = "end")]
    pub until: Option<Timestamp>,
    /// The version of the Plan for the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip)]
    pub state: RowState,
    /// Why it failed, or cannot continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip)]
    pub phases: Vec<PhaseSpan>,
    /// Number of failed pods of its Job.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: i64,
    /// Number of pods that its drain has evicted so far, and of all that it has to evict.
    #[serde(skip)]
    pub(super) evicted: (usize, usize),
    /// Number of times that the node has booted.
    #[serde(skip)]
    pub boots: usize,
    #[serde(skip)]
    pub(super) has_job: bool,
    /// Whether the label of a done node was removed since.
    #[serde(skip)]
    pub(super) lost_label: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl NodeRun {
    /// A run without phases.
    pub fn new(since: Timestamp, until: Option<Timestamp>, state: RowState) -> Self {
        Self {
            since,
            until,
            version: None,
            state,
            reason: None,
            message: None,
            phases: Vec::new(),
            failures: 0,
            evicted: (0, 0),
            boots: 0,
            has_job: false,
            lost_label: false,
        }
    }

    /// Number of pods that its drain has evicted. The last note of a drain is some seconds old when it is over.
    pub fn evicted(&self) -> usize {
        let (evicted, all) = self.evicted;
        let is_over = self.phases.iter().any(|span| span.phase == NodePhase::Upgrading);
        if is_over { all } else { evicted }
    }
}

/// A wave in one of its phases.
#[derive(Clone, Debug)]
pub(super) struct WaveSpan {
    pub(super) name: String,
    pub(super) phase: OpenEnum<WavePhase>,
    pub(super) since: Timestamp,
    pub(super) until: Option<Timestamp>,
    /// When a soak should end.
    pub(super) due: Option<Timestamp>,
    /// How many nodes had been started when it began.
    pub(super) started: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    pub plan: String,
    /// `None` if the whole Plan waits, or nodes that share the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub reason: OpenEnum<Reason>,
    pub blocker: String,
    pub message: String,
    /// The details of a wait in `prepare`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<PrepareWait>,
    #[serde(rename = "start")]
    pub since: Timestamp,
    /// `None` if the wait continues.
    #[serde(rename = "end")]
    pub until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutEvent {
    pub at: Timestamp,
    pub plan: String,
    /// `None` for an event about the whole Plan.
    pub node: Option<String>,
    pub what: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The Plan resolved to a version.
    Resolved(String),
    /// The node got its slot.
    NodeStarted,
    /// The node entered another phase.
    Phase(OpenEnum<NodePhase>),
    Waits {
        reason: OpenEnum<Reason>,
        message: String,
    },
    Resumed,
    /// The node is done.
    Done,
    /// The Plan failed on the node.
    Failed {
        reason: OpenEnum<Reason>,
        message: String,
    },
    /// A Job of `before` or `after` runs, or has ended.
    Hook(Hook, HookPhase),
    /// The Plan is complete.
    Complete,
    /// A repetition has begun (`spec.repeat`), which was due at this time.
    Repeats(String),
}

/// A node whose upgrade changed the kubelet's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionStep {
    pub plan: String,
    pub node: String,
    pub from: String,
    pub to: String,
}

/// A change that the caller must make to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An upgrade has succeeded, so the node's kubelet has this version now.
    Upgraded {
        plan: String,
        node: String,
        /// `SYSTEM_UPGRADE_PLAN_LATEST_VERSION`.
        version: String,
    },
}
