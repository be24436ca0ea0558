//! What a node must show after its upgrade, and its reboot if there was one, before it is done: by default that it is Ready,
//! and as `spec.settle` says for how long, and of which version its kubelet is.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::success::Success;
use super::{Question, Stand, Standing};
use crate::rollout::blocker::Blocker;
use crate::rollout::conditions::seconds;
use crate::rollout::facts::NodeFacts;
use crate::rollout::record::Record;

/// What a node lacks that has been upgraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// It is not Ready, or has the taint of a node that is not.
    Ready,
    /// Its kubelet is of another version.
    KubeletVersion { is: String, wanted: String },
    /// It has not been Ready for long enough.
    MinReady { until: Timestamp },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "{}", Blocker::NodeNotReady),
            Self::KubeletVersion { is, wanted } => {
                write!(
                    f,
                    "the kubelet is of version {is:?}, and the Plan's is {wanted:?}"
                )
            }
            Self::MinReady { until } => write!(f, "settle.minReady is over at {}", seconds(*until)),
        }
    }
}

impl Lack {
    fn reason(&self) -> &'static str {
        match self {
            Self::Ready => Blocker::NodeNotReady.reason(),
            Self::KubeletVersion { .. } => "KubeletVersion",
            Self::MinReady { .. } => "MinReady",
        }
    }

    /// Where a node stands that lacks it.
    pub(super) fn tell(&self, mut standing: Standing) -> Standing {
        if let Self::MinReady { until } = self {
            standing.wake = Some(*until);
        }
        standing.held_up(self.reason(), self.to_string())
    }
}

impl Question<'_> {
    /// What the node lacks before it is done. Without `spec.settle` and without a reboot, what is needed to start it is
    /// enough to finish it: some Plans repair nodes.
    pub(super) fn lack(
        &self,
        node: &NodeFacts,
        success: &Success<'_>,
        record: Option<&Record>,
    ) -> Option<Lack> {
        let terms = &self.plan.terms;
        let rebooted = record.is_some_and(|r| r.reboot.is_some());
        let fit = if rebooted || terms.settles {
            node.is_fit()
        } else {
            self.can_start(node)
        };
        if !fit {
            return Some(Lack::Ready);
        }
        if terms.kubelet_version && bare(&node.kubelet) != bare(success.version) {
            return Some(Lack::KubeletVersion {
                is: node.kubelet.to_string(),
                wanted: success.version.to_owned(),
            });
        }
        let long = terms.min_ready(rebooted);
        if !long.is_positive() {
            return None;
        }
        // Without a record it has not begun: who waits for it writes one first.
        let since = record.and_then(|record| self.world.fit_since(node, record));
        let until = later(since.unwrap_or(self.now), long);
        (until > self.now).then_some(Lack::MinReady { until })
    }

    /// Since when the node could have settled, as the record is to say: with `spec.settle` since the Job has succeeded,
    /// and after a reboot since there is something to wait for that Ready does not bring.
    pub(super) fn settling_since(&self, record: Option<&Record>, lack: Option<&Lack>) -> Option<Timestamp> {
        let known = record.and_then(|r| r.settling);
        let rebooted = record.is_some_and(|r| r.reboot.is_some());
        let begins = match lack? {
            Lack::KubeletVersion { .. } => true,
            Lack::Ready | Lack::MinReady { .. } => self.plan.terms.settles && !rebooted,
        };
        known.or(begins.then_some(self.now))
    }

    /// Until when the node must have settled. A controller that was away has seen nothing of that meanwhile; and a node that
    /// has only to stay Ready is let show that it does.
    pub(super) fn settled_until(&self, node: &NodeFacts, record: &Record, lack: &Lack) -> Option<Timestamp> {
        if matches!(lack, Lack::MinReady { .. }) {
            return None;
        }
        let terms = &self.plan.terms;
        let known = self.world.known_since(node, record).unwrap_or(self.now);
        let since = |at: Timestamp| at.max(known);
        let rebooted = || {
            let reboot = record.reboot.as_ref()?;
            Some(later(since(reboot.since), terms.reboot_timeout))
        };
        Some(later(
            record.settling.map(since).or_else(rebooted)?,
            terms.settle_timeout,
        ))
    }

    /// The node has not settled in time.
    pub(super) fn has_not_settled(&self, node: &NodeFacts, record: &Record, lack: &Lack) -> Stand {
        let message =
            format!("the upgrade succeeded, but the node has not settled within settle.timeout: {lack}");
        self.gives_up(node, record, "SettleFailed", "SettleTimedOut", message)
    }
}

/// A version without the marks that not everybody writes: `v1.33.4+k3s1` is the Plan's `v1.33.4-k3s1`.
fn bare(version: &str) -> String {
    version.strip_prefix('v').unwrap_or(version).replace('+', "-")
}

/// That much later, or at the end of time.
pub(super) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
