//! The limits for all Plans together.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use refit_api::limits::{Limits, LimitsError};
use refit_api::schedule::Blackout;

/// The `ConfigMap` `refit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GlobalLimits {
    /// It does not exist, or the controller may not read it.
    Absent,
    /// What it says, by key.
    Present(BTreeMap<String, String>),
    /// Why it cannot be read.
    Unreadable(String),
}

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

impl KnownLimits {
    pub(crate) fn parse(limits: GlobalLimits, local: &TimeZone) -> Self {
        let parsed = match limits {
            GlobalLimits::Absent => Ok(Limits::default()),
            GlobalLimits::Present(data) => {
                Limits::parse(&data, local).map_err(|error: LimitsError| error.to_string())
            }
            GlobalLimits::Unreadable(why) => Err(why),
        };
        match parsed {
            Ok(limits) => Self::Known(limits),
            Err(why) => Self::Invalid(why),
        }
    }

    /// The limits, if they could be read.
    pub(crate) fn known(&self) -> Option<&Limits> {
        match self {
            Self::Known(limits) => Some(limits),
            Self::Unread | Self::Invalid(_) => None,
        }
    }

    /// Whether no node of any Plan may start.
    pub(crate) fn are_frozen(&self) -> bool {
        self.known().is_none_or(|limits| limits.freeze.is_some())
    }

    /// The blackouts that hold for all Plans.
    pub(crate) fn blackouts(&self) -> &[Blackout] {
        self.known().map_or(&[], |limits| &limits.blackouts)
    }
}
