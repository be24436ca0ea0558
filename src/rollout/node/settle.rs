//! What a node must show after its upgrade and its reboot before it is done: by default that it is Ready; with
//! `spec.settle` for how long, and with which version.

use std::fmt;

use jiff::Timestamp;

use super::NodeReconciler;
use super::daemon_sets::DaemonSetsWait;
use super::state::{NodeDecision, NodeState};
use crate::blocker::Blocker;
use crate::later::later;
use refit_api::text::seconds;
use refit_api::{ObjectRef, Reason, SettleConditionSpec};
use refit_facts::record::Record;
use refit_facts::{NodeCondition, NodeFacts, Taint};

/// What an upgraded node lacks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unsettled {
    /// It is not Ready, or has a taint of nodes that are not.
    Ready,
    /// A field of its `nodeInfo` has another version.
    Version {
        field: &'static str,
        is: String,
        wanted: String,
    },
    /// A condition has another status, or is missing.
    Condition {
        wanted: SettleConditionSpec,
        is: Option<NodeCondition>,
    },
    /// It has this taint.
    Taint { taint: String },
    /// It has not been Ready for long enough.
    MinReady { until: Timestamp },
    /// A pod of a DaemonSet is not Ready, or the pods are not known.
    DaemonSets(DaemonSetsWait),
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "{}", Blocker::NodeNotReady),
            Self::Version {
                field: "osImage",
                is,
                wanted,
            } => {
                write!(f, "its osImage is {is:?}, and the Plan's version is {wanted:?}")
            }
            Self::Version { is, wanted, .. } => {
                write!(
                    f,
                    "the kubelet is of version {is:?}, and the Plan's is {wanted:?}"
                )
            }
            Self::Condition { wanted, is } => {
                let (type_, status) = (&wanted.type_, wanted.status_text());
                match is {
                    None => write!(f, "the node has no condition {type_}, which must be {status}"),
                    Some(is) => {
                        write!(f, "condition {type_} is {}, and must be {status}", is.status)?;
                        let why = is.reason.trim();
                        if why.is_empty() {
                            Ok(())
                        } else {
                            write!(f, " ({why})")
                        }
                    }
                }
            }
            Self::Taint { taint } => write!(f, "the node still has the taint {taint}"),
            Self::MinReady { until } => write!(f, "settle.minReady ends at {}", seconds(*until)),
            Self::DaemonSets(wait) => wait.fmt(f),
        }
    }
}

impl Unsettled {
    fn reason(&self) -> Reason {
        match self {
            Self::Ready => Blocker::NodeNotReady.reason(),
            Self::Version { field: "osImage", .. } => Reason::OsImage,
            Self::Version { .. } => Reason::KubeletVersion,
            Self::Condition { .. } => Reason::NodeCondition,
            Self::Taint { .. } => Reason::TaintStays,
            Self::MinReady { .. } => Reason::MinReady,
            Self::DaemonSets(_) => Reason::DaemonSetPods,
        }
    }

    fn about(&self, node: &NodeFacts) -> Vec<ObjectRef> {
        match self {
            Self::Condition { .. } | Self::Taint { .. } => vec![ObjectRef::node(&*node.name)],
            Self::DaemonSets(wait) => wait.about(),
            Self::Ready | Self::Version { .. } | Self::MinReady { .. } => Vec::new(),
        }
    }

    /// Adds what the node lacks to its state.
    pub(super) fn annotate(&self, node: &NodeFacts, mut state: NodeState) -> NodeState {
        match self {
            Self::MinReady { until } => state.requeue_at = Some(*until),
            Self::DaemonSets(wait) => wait.ask(&mut state),
            Self::Ready | Self::Version { .. } | Self::Condition { .. } | Self::Taint { .. } => {}
        }
        let mut state = state.with_reason(self.reason(), self.to_string());
        state.about = self.about(node);
        state
    }
}

impl NodeReconciler<'_> {
    /// What the node lacks before it is done. Without `spec.settle` and without a reboot, the conditions to start it
    /// are enough to finish it, because some Plans repair nodes.
    pub(super) fn unsettled(
        &self,
        node: &NodeFacts,
        success: &Record,
        record: Option<&Record>,
    ) -> Option<Unsettled> {
        let policy = &self.plan.completion;
        let rebooted = record.is_some_and(|r| r.reboot.is_some());
        // A Plan that tolerates not-ready nodes and neither reboots nor settles is one that repairs nodes: to wait
        // until they are Ready would leave them in progress for ever.
        let fit = if rebooted || policy.settles {
            node.is_ready_and_untainted()
        } else {
            self.can_start(node)
        };
        if !fit {
            return Some(Unsettled::Ready);
        }
        if let Some((field, is)) = policy.version.missing(node.info(), &success.version) {
            return Some(Unsettled::Version {
                field,
                is: is.to_owned(),
                wanted: success.version.clone(),
            });
        }
        if let Some(unsettled) = self.unmet(node) {
            return Some(unsettled);
        }
        let long = policy.min_ready(rebooted);
        if !long.is_positive() && policy.daemon_sets.is_none() {
            return None;
        }
        // Without a record the node has not begun to settle; the record is written first.
        let since = record.and_then(|record| self.cluster.memory.timers.ready_since(node, record));
        let until = later(since.unwrap_or(self.now), long);
        if until > self.now {
            return Some(Unsettled::MinReady { until });
        }
        // After that time, because a node that has just rebooted shows for a moment what its pods were before.
        let wait = self.daemon_sets_wait(node, since.map(|_| until))?;
        Some(Unsettled::DaemonSets(wait))
    }

    /// The first condition or taint that is not as the Plan demands.
    fn unmet(&self, node: &NodeFacts) -> Option<Unsettled> {
        let policy = &self.plan.completion;
        for wanted in &policy.conditions {
            let is = node.conditions.iter().find(|it| *it.type_ == *wanted.type_);
            if is.is_none_or(|is| *is.status != *wanted.status_text()) {
                return Some(Unsettled::Condition {
                    wanted: wanted.clone(),
                    is: is.cloned(),
                });
            }
        }
        if policy.taints_gone.is_empty() {
            return None;
        }
        let Some(taints) = &node.taints else {
            let taint = "that refit looks for, perhaps: its taints cannot be read".to_owned();
            return Some(Unsettled::Taint { taint });
        };
        let is_left = |taint: &&Taint| {
            let mut gone = policy.taints_gone.iter();
            gone.any(|it| it.matches(&taint.key, &taint.effect))
        };
        let taint = taints.iter().find(is_left)?.to_string();
        Some(Unsettled::Taint { taint })
    }

    /// When settling began, for the record: with `spec.settle` when the Job succeeded; after a reboot when something
    /// besides Ready is missing.
    pub(super) fn settling_since(
        &self,
        record: Option<&Record>,
        unsettled: Option<&Unsettled>,
    ) -> Option<Timestamp> {
        let known = record.and_then(|r| r.settling);
        let rebooted = record.is_some_and(|r| r.reboot.is_some());
        let begins = match unsettled? {
            Unsettled::Version { .. }
            | Unsettled::Condition { .. }
            | Unsettled::Taint { .. }
            | Unsettled::DaemonSets(_) => true,
            Unsettled::Ready | Unsettled::MinReady { .. } => self.plan.completion.settles && !rebooted,
        };
        known.or(begins.then_some(self.now))
    }

    /// Time limit for settling. A new controller has not seen the time before it started; and a node that only has to
    /// stay Ready gets the time to show it.
    pub(super) fn settled_until(
        &self,
        node: &NodeFacts,
        record: &Record,
        unsettled: &Unsettled,
    ) -> Option<Timestamp> {
        // Such a node is as it should be, and needs only time. The limit is for a node that lacks something.
        if matches!(unsettled, Unsettled::MinReady { .. }) {
            return None;
        }
        let policy = &self.plan.completion;
        let known = self.known_since(node, record);
        let since = |at: Timestamp| at.max(known);
        let rebooted = || {
            let reboot = record.reboot.as_ref()?;
            Some(later(since(reboot.since), policy.reboot_timeout))
        };
        let until = later(
            record.settling.map(since).or_else(rebooted)?,
            policy.settle_timeout,
        );
        // The pods are looked at last, and at least for as long as that takes.
        Some(match unsettled {
            Unsettled::DaemonSets(wait) => until.max(wait.least()),
            _ => until,
        })
    }

    /// Fails a node that has not settled in time.
    pub(super) fn fail_settle(
        &self,
        node: &NodeFacts,
        record: &Record,
        unsettled: &Unsettled,
    ) -> NodeDecision {
        let message =
            format!("the upgrade succeeded, but the node has not settled within settle.timeout: {unsettled}");
        self.fail_permanently(
            node,
            record,
            Reason::SettleFailed,
            Reason::SettleTimedOut,
            message,
        )
    }
}
