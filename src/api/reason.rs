//! The reasons of Plans, nodes, events and conditions: a closed list. Each has a name, a severity, the places where it
//! appears, a meaning and a remedy. `docs/operations.md` prints the list.

use super::phase::ConditionType;
use refit_base::version::policy::Refusal;
use refit_base::version::tag::Refused;

/// The `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// As expected.
    Normal,
    /// Needs attention.
    Warning,
}

impl Severity {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// How much a reason needs a person.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Not at all.
    Normal,
    /// As a warning says.
    Warning,
    /// A node that has a slot cannot continue without one.
    Refusal,
}

/// Where to look for the cause of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The nodes that hold the slots.
    Slots,
    /// Another Plan on the node.
    Busy,
    /// The unavailable nodes among the selected ones.
    Unavailable,
    /// The wave, and the node that it waits for.
    Wave,
    /// The nodes that the reason names.
    NamedNodes,
    /// The nodes on which the Plan failed.
    FailedNodes,
    /// The `ConfigMap` `refit`, and the nodes that the reason names.
    Limits,
    /// The Plans that the reason names.
    Plans,
    /// The kubelet of the node.
    Kubelet,
    /// The Job of the node, its pod, and what that waits for.
    Job,
    /// The channel, if it fails.
    Channel,
    /// The version that is held back.
    Candidate,
    /// The checks that do not pass.
    Checks,
    /// The windows and blackouts.
    Window,
    /// The Plan itself, or the node itself: there is nothing behind it.
    Itself,
}

/// The subject of a reason. `docs/operations.md` has a table per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Why a node, or a whole Plan, does not continue.
    Wait,
    /// Why the Plan failed on a node.
    Failure,
    /// Why a condition is `True`.
    True,
    /// Why a condition is not, apart from waits.
    Condition,
    /// Why an offered version is held back.
    Hold,
    /// Only in events.
    Event,
    /// Only in the termination message of the reboot Pod.
    RebootPod,
    /// Only in `refit status`, `refit explain` and `refit rehearse`.
    Explain,
}

/// Where a reason appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedIn {
    /// `status.active[].reason` of a node that has not failed.
    Node,
    /// `status.active[].reason` of a node that has.
    FailedNode,
    /// `status.versionDiffers[].reason`.
    DoneNode,
    /// The condition `Validated`.
    Validated,
    /// The condition `LatestResolved`.
    LatestResolved,
    /// The condition `Complete`.
    Complete,
    /// The condition `UpToDate`, and `status.channel.reason`.
    UpToDate,
    /// The condition `Degraded`.
    Degraded,
    PlanEvent,
    /// An event on a Node: that of the controller, or one that refit cannot read.
    NodeEvent,
    /// An event on the `ConfigMap` `refit`.
    ConfigMapEvent,
    /// A message: of a pod, or in the log.
    Message,
    /// `refit status`, `refit explain` and `refit rehearse`, which look further than the Plan's status.
    Explain,
}

impl From<ConditionType> for ReportedIn {
    fn from(condition: ConditionType) -> Self {
        match condition {
            ConditionType::Validated => Self::Validated,
            ConditionType::LatestResolved => Self::LatestResolved,
            ConditionType::Complete => Self::Complete,
            ConditionType::UpToDate => Self::UpToDate,
            ConditionType::Degraded => Self::Degraded,
        }
    }
}

/// Declares [`Reason`]: kind, name, level, cause, places, meaning and remedy. The texts are Markdown for
/// `docs/operations.md`.
macro_rules! reasons {
    ($($kind:ident { $($reason:ident $level:ident $cause:ident [$($reported_in:ident)*] $about:literal $(=> $remedy:literal)?)* })*) => {
        $crate::open_enum::closed_enum! {
            /// A reason of a condition, an event, `status.active[]` or a command's output.
            Reason { $($($reason $about)*)* }
        }

        impl Reason {
            pub const fn kind(self) -> Kind {
                match self { $($(Self::$reason => Kind::$kind,)*)* }
            }

            pub(super) const fn level(self) -> Level {
                match self { $($(Self::$reason => Level::$level,)*)* }
            }

            pub const fn cause(self) -> Cause {
                match self { $($(Self::$reason => Cause::$cause,)*)* }
            }

            pub const fn reported_in(self) -> &'static [ReportedIn] {
                match self { $($(Self::$reason => &[$(ReportedIn::$reported_in),*],)*)* }
            }

            /// The remedy; empty if none is needed.
            pub const fn remedy(self) -> &'static str {
                match self { $($(Self::$reason => concat!($($remedy)?),)*)* }
            }
        }
    };
}

mod foreign;
mod list;
mod plain;
#[cfg(test)]
mod tests;

pub use foreign::ForeignReason;
pub use list::Reason;

impl Reason {
    /// Whether a condition with this reason is `True`.
    pub fn is_true(self) -> bool {
        self.kind() == Kind::True
    }

    pub const fn severity(self) -> Severity {
        match self.level() {
            Level::Normal => Severity::Normal,
            Level::Warning | Level::Refusal => Severity::Warning,
        }
    }

    /// Whether a node with this reason, which has a slot, needs a person before it can continue.
    pub fn is_refusal(self) -> bool {
        self.level() == Level::Refusal
    }

    pub fn appears_in(self, reported_in: ReportedIn) -> bool {
        self.reported_in().contains(&reported_in)
    }
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Incomparable(_) | Refusal::Accident(Refused::OtherDistribution { .. }) => {
                Self::NotComparable
            }
            Refusal::Accident(_) => Self::NoVersion,
            Refusal::Prerelease => Self::Prerelease,
            Refusal::Variant => Self::Variant,
            Refusal::OutOfRange => Self::OutOfRange,
            Refusal::Older => Self::Older,
            Refusal::MinorSkip { .. } => Self::MinorSkip,
            Refusal::TooYoung { .. } => Self::TooYoung,
            Refusal::NotApproved => Self::NotApproved,
        }
    }
}
