//! The conditions that a Plan sets for a node to be done after its Job: the time limit of a reboot, and `spec.settle`.

use std::sync::Arc;

use jiff::SignedDuration;

use refit_api::{PlanSpec, PodBlocker, SettleConditionSpec, TaintName, VersionEvidence};
use refit_base::go::{DurationError, GoDuration};

/// The parsed `spec.reboot` and `spec.settle`.
#[derive(Clone, Debug, Default)]
pub(super) struct CompletionPolicy {
    /// Time from the request of a reboot until the node is Ready in another boot.
    pub(super) reboot_timeout: SignedDuration,
    /// Whether the Plan has `spec.settle`, so that settling has a time limit.
    pub(super) settles: bool,
    /// What must show the Plan's version.
    pub(super) version: VersionEvidence,
    /// Whether the controllers of evicted pods must be available again.
    pub(super) workloads: bool,
    /// Conditions that the Node must have.
    pub(super) conditions: Vec<SettleConditionSpec>,
    /// Taints that must be gone.
    pub(super) taints_gone: Vec<TaintName>,
    /// Pods of DaemonSets that must be Ready.
    pub(super) daemon_sets: Option<Arc<PodBlocker>>,
    /// Time limit of settling.
    pub(super) settle_timeout: SignedDuration,
    min_ready: SignedDuration,
    min_ready_after_reboot: SignedDuration,
}

impl CompletionPolicy {
    /// An invalid spec yields the defaults: no node starts, but running nodes still need them.
    pub(super) fn of(spec: &PlanSpec) -> Self {
        let (reboot, settle) = (spec.reboot_or_default(), spec.settle_or_default());
        let or = |read: Result<GoDuration, DurationError>, absent: GoDuration| {
            SignedDuration::from_nanos(read.unwrap_or(absent).as_nanos())
        };
        Self {
            reboot_timeout: or(reboot.timeout(), refit_api::reboot::REBOOT_TIMEOUT),
            settles: spec.settle.is_some(),
            version: VersionEvidence {
                kubelet: settle.waits_for_kubelet_version(),
                os_image: settle.waits_for_os_image(),
            },
            workloads: settle.waits_for_workloads(),
            conditions: settle.conditions().map(<[_]>::to_vec).unwrap_or_default(),
            taints_gone: settle.taints_gone().unwrap_or_default(),
            daemon_sets: settle.daemon_sets().ok().flatten().map(Arc::new),
            settle_timeout: or(settle.timeout(), refit_api::reboot::SETTLE_TIMEOUT),
            min_ready: or(settle.min_ready(false), GoDuration::ZERO),
            min_ready_after_reboot: or(settle.min_ready(true), refit_api::reboot::MIN_READY_AFTER_REBOOT),
        }
    }

    /// How long the node must have been Ready without interruption.
    pub(super) fn min_ready(&self, after_reboot: bool) -> SignedDuration {
        if after_reboot {
            self.min_ready_after_reboot
        } else {
            self.min_ready
        }
    }
}
