//! What makes a Plan invalid, in the words of `Validated=False`.
//!
//! System-upgrade-controller's checks come first, in its order and its words (S53). Then come those for what it lets pass
//! and what can never work: it shows there as Jobs that the API server refuses or that fail on every node.
//! What is wrong with an image is not asked here: it must not hold up `LatestResolved`.
//!
//! Pure: whether a secret exists is the caller's to find out, who says so with `Invalid::SecretsMissing`.

use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::duration::{DurationError, GoDuration};
use super::selector::{Selector, SelectorError, label_value_problems};
use super::window::{Window, WindowError};
use super::{DrainSpec, DrainTimeout, PlanSpec};

/// Longest name of a Plan: the name part of the node label `plan.upgrade.cattle.io/<plan>`, and a label value on its Jobs.
pub const MAX_PLAN_NAME_LEN: usize = 63;

/// The first thing that is wrong with a Plan. Its text is the message of the condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Two names for one flag, whatever their values.
    #[error("spec.drain cannot specify both deleteEmptydirData and deleteLocalData")]
    DeleteFlags,
    /// A selector that Kubernetes does not take. There is no prefix, as there is none in system-upgrade-controller.
    #[error(transparent)]
    PodSelector(#[from] SelectorError),
    /// A window that cannot be read.
    #[error("spec.window is invalid, {0}")]
    Window(WindowError),
    /// A delay that cannot be read. System-upgrade-controller stops reading all Plans at such a one.
    #[error("spec.postCompleteDelay is invalid, {0}")]
    Delay(DurationError),
    /// A delay into the past.
    #[error("spec.postCompleteDelay is negative")]
    NegativeDelay,
    /// A timeout at which every drain would fail.
    #[error("spec.drain.timeout is invalid, {0}")]
    DrainTimeout(DurationError),
    /// A name that no node label can hold.
    #[error(
        "metadata.name has {0} characters, and the label that marks a finished node holds {MAX_PLAN_NAME_LEN}"
    )]
    PlanName(usize),
    /// A version that no label can hold; nor, then, an image tag.
    #[error(
        "spec.version cannot be an image tag and a label value: {0:?} must be at most 63 letters, digits, '-', '_', '.' \
         or '+', with a letter or digit at each end"
    )]
    Version(String),
    /// A number of nodes that is none.
    #[error(
        "spec.maxConcurrent is {0}: it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\""
    )]
    MaxConcurrent(String),
    /// Secrets that the Plan needs and that are not there, in the Plan's order.
    #[error("{}", not_found(.0))]
    SecretsMissing(Vec<String>),
}

/// Looks for what is wrong with a Plan of this name.
///
/// # Errors
/// The first mistake, in system-upgrade-controller's order.
pub fn validate(name: &str, spec: &PlanSpec) -> Result<(), Invalid> {
    if let Some(drain) = &spec.drain {
        if drain.delete_emptydir_data.is_some() && drain.delete_local_data.is_some() {
            return Err(Invalid::DeleteFlags);
        }
        // One that is there selects something, if it is a selector at all: `{}` means all pods.
        Selector::new(drain.pod_selector.as_ref())?;
    }
    if let Some(window) = &spec.window {
        // Any zone will do for `Local`: only whether the window can be read is asked.
        Window::parse(window, &TimeZone::UTC).map_err(Invalid::Window)?;
    }
    if let Some(delay) = &spec.post_complete_delay {
        let delay: GoDuration = delay.parse().map_err(Invalid::Delay)?;
        if delay.is_negative() {
            return Err(Invalid::NegativeDelay);
        }
    }
    if let Some(DrainSpec {
        timeout: Some(DrainTimeout::Text(timeout)),
        ..
    }) = &spec.drain
    {
        timeout.parse::<GoDuration>().map_err(Invalid::DrainTimeout)?;
    }
    if name.len() > MAX_PLAN_NAME_LEN {
        return Err(Invalid::PlanName(name.len()));
    }
    if let Some(version) = &spec.version
        && !label_value_problems(&version.replace('+', "-")).is_empty()
    {
        return Err(Invalid::Version(version.clone()));
    }
    if let Some(limit) = &spec.max_concurrent {
        MaxConcurrent::parse(limit)?;
    }
    Ok(())
}

/// `spec.maxConcurrent`, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxConcurrent {
    /// This many nodes, at least one.
    Nodes(u32),
    /// This share of the selected nodes, in percent from 1 to 100.
    Percent(u8),
}

impl MaxConcurrent {
    /// Reads a number from 1 on, or a text from `1%` to `100%`.
    ///
    /// # Errors
    /// `Invalid::MaxConcurrent` for anything else, a number in quotes among it.
    pub fn parse(limit: &IntOrString) -> Result<Self, Invalid> {
        let read = match limit {
            IntOrString::Int(nodes) => u32::try_from(*nodes)
                .ok()
                .filter(|nodes| *nodes > 0)
                .map(Self::Nodes),
            IntOrString::String(share) => percent(share).map(Self::Percent),
        };
        read.ok_or_else(|| {
            Invalid::MaxConcurrent(match limit {
                IntOrString::Int(nodes) => nodes.to_string(),
                IntOrString::String(share) => format!("{share:?}"),
            })
        })
    }

    /// How many of `selected` nodes: a share is rounded down, but not to none.
    pub fn of(self, selected: usize) -> usize {
        match self {
            Self::Nodes(nodes) => usize::try_from(nodes).unwrap_or(usize::MAX),
            // Divided first where it could overflow; nobody has that many nodes.
            Self::Percent(percent) => {
                let percent = usize::from(percent);
                selected
                    .checked_mul(percent)
                    .map_or(selected / 100 * percent, |product| product / 100)
                    .max(1)
            }
        }
    }
}

fn percent(share: &str) -> Option<u8> {
    let digits = share.strip_suffix('%')?;
    let canonical = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    canonical
        .then(|| digits.parse().ok())
        .flatten()
        .filter(|percent| *percent <= 100)
}

fn not_found(secrets: &[String]) -> String {
    let each: Vec<_> = secrets
        .iter()
        .map(|name| format!("secrets \"{name}\" not found"))
        .collect();
    each.join(", ")
}

#[cfg(test)]
mod tests;
