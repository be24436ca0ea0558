//! What a recorder tells: nodes and what they went through, waits, and what happened when.

use jiff::Timestamp;

/// How a Plan stands on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is at work.
    Working,
    /// The node is done.
    Done,
    /// It failed.
    Failed,
}

/// A time in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The phase, as `status.active[].phase`.
    pub phase: String,
    /// From when.
    pub since: Timestamp,
    /// Until when, if that was seen.
    pub until: Option<Timestamp>,
}

/// A Plan on a node.
#[derive(Clone, Debug)]
pub struct Turn {
    /// When the node got its slot.
    pub since: Timestamp,
    /// When it was done, or had failed.
    pub until: Option<Timestamp>,
    /// How it stands.
    pub standing: Standing,
    /// Why it failed, or is held up.
    pub reason: Option<String>,
    /// The same in a sentence.
    pub message: Option<String>,
    /// What it went through.
    pub stays: Vec<Stay>,
    /// Pods of its Job that failed.
    pub failures: i64,
    pub(super) has_job: bool,
}

impl Turn {
    /// A turn without a history.
    pub fn new(since: Timestamp, until: Option<Timestamp>, standing: Standing) -> Self {
        Self {
            since,
            until,
            standing,
            reason: None,
            message: None,
            stays: Vec::new(),
            failures: 0,
            has_job: false,
        }
    }
}

/// Something that was waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Name of the Plan.
    pub plan: String,
    /// Name of the node; nothing where the whole Plan waits.
    pub node: Option<String>,
    /// One word.
    pub reason: String,
    /// What was waited for.
    pub blocker: String,
    /// The same in a sentence.
    pub message: String,
    /// From when.
    pub since: Timestamp,
    /// Until when; nothing where it is still waited for.
    pub until: Option<Timestamp>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// Name of the Plan.
    pub plan: String,
    /// Name of the node; nothing where it is about the Plan.
    pub node: Option<String>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The Plan has a version.
    Resolved(String),
    /// The node has its slot.
    Begins,
    /// The node is in another phase.
    Phase(String),
    /// Something is waited for.
    Waits {
        /// One word.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// What was waited for is there.
    GoesOn,
    /// The node is done.
    Done,
    /// The Plan failed on the node.
    Failed {
        /// One word.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// The Plan is complete.
    Complete,
}

/// What somebody else has to do about what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An upgrade has succeeded: the node's kubelet is of this version from now on.
    Upgraded {
        /// Name of the node.
        node: String,
        /// `SYSTEM_UPGRADE_PLAN_LATEST_VERSION`.
        version: String,
    },
}
