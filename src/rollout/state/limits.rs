//! The limits for all Plans together.

use super::ClusterState;
use crate::observation::GlobalLimits;
use refit_api::limits::{Limits, LimitsError};
use refit_api::schedule::Blackout;

/// What is known of the `ConfigMap` `refit`.
#[derive(Debug, Default)]
pub(crate) enum KnownLimits {
    /// It has not been read yet, so that no node starts.
    #[default]
    Unread,
    Known(Limits),
    /// It cannot be read, so that no node starts.
    Invalid(String),
}

impl ClusterState {
    pub(super) fn apply_limits(&mut self, limits: GlobalLimits) -> bool {
        let local = &self.defaults.local_zone;
        let parsed = match limits {
            GlobalLimits::Absent => Ok(Limits::default()),
            GlobalLimits::Present(data) => {
                Limits::parse(&data, local).map_err(|error: LimitsError| error.to_string())
            }
            GlobalLimits::Unreadable(why) => Err(why),
        };
        self.limits = match parsed {
            Ok(limits) => KnownLimits::Known(limits),
            Err(why) => KnownLimits::Invalid(why),
        };
        true
    }

    /// The limits, if they could be read.
    pub(crate) fn known_limits(&self) -> Option<&Limits> {
        match &self.limits {
            KnownLimits::Known(limits) => Some(limits),
            KnownLimits::Unread | KnownLimits::Invalid(_) => None,
        }
    }

    /// Whether no node of any Plan may start.
    pub(crate) fn is_frozen(&self) -> bool {
        self.known_limits().is_none_or(|limits| limits.freeze.is_some())
    }

    /// The blackouts that hold for all Plans.
    pub(crate) fn global_blackouts(&self) -> &[Blackout] {
        self.known_limits().map_or(&[], |limits| &limits.blackouts)
    }
}
