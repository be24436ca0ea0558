//! What a Plan asks of its nodes after their Jobs: how long a reboot may take, and what a node must show before it counts as
//! done.

use jiff::SignedDuration;

use crate::api::PlanSpec;
use crate::api::duration::{DurationError, GoDuration};

/// `spec.reboot` and `spec.settle`, read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terms {
    /// From the request of a reboot to Ready in another boot.
    pub(super) reboot_timeout: SignedDuration,
    /// `spec.settle` is there, so that settling has an end.
    pub(super) settles: bool,
    /// The kubelet must be of the Plan's version.
    pub(super) kubelet_version: bool,
    /// The controllers of evicted pods must be whole again.
    pub(super) workloads: bool,
    /// How long settling may take.
    pub(super) settle_timeout: SignedDuration,
    min_ready: SignedDuration,
    min_ready_after_reboot: SignedDuration,
}

impl Terms {
    /// Of a spec that is not valid the defaults: nobody starts with it, but somebody may be under way.
    pub(super) fn of(spec: &PlanSpec) -> Self {
        let (reboot, settle) = (spec.reboot_or_default(), spec.settle_or_default());
        let or = |read: Result<GoDuration, DurationError>, absent: GoDuration| {
            SignedDuration::from_nanos(read.unwrap_or(absent).as_nanos())
        };
        Self {
            reboot_timeout: or(reboot.timeout(), crate::api::reboot::REBOOT_TIMEOUT),
            settles: spec.settle.is_some(),
            kubelet_version: settle.kubelet_version(),
            workloads: settle.workloads(),
            settle_timeout: or(settle.timeout(), crate::api::reboot::SETTLE_TIMEOUT),
            min_ready: or(settle.min_ready(false), GoDuration::ZERO),
            min_ready_after_reboot: or(settle.min_ready(true), crate::api::reboot::MIN_READY_AFTER_REBOOT),
        }
    }

    /// How long the node must have been Ready without a break.
    pub(super) fn min_ready(&self, after_reboot: bool) -> SignedDuration {
        if after_reboot {
            self.min_ready_after_reboot
        } else {
            self.min_ready
        }
    }
}
