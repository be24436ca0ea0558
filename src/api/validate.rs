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
use super::reboot::{HostAccess, REQUIRED_FILES, RebootWhen};
use super::selector::{Selector, SelectorError, is_subdomain, label_value_problems};
use super::window::{Window, WindowError};
use super::{BadPolicy, DrainSpec, DrainTimeout, PlanSpec};

/// Longest name of a Plan: the name part of the node label `plan.upgrade.cattle.io/<plan>`, and a label value on its Jobs.
pub const MAX_PLAN_NAME_LEN: usize = 63;

/// Longest name of an object (RFC 1123 subdomain).
const MAX_OBJECT_NAME_LEN: usize = 253;

/// Longest path on Linux, in bytes, its terminating zero aside.
const MAX_PATH_LEN: usize = 4095;

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
    /// A list of files of which none could ask for a reboot.
    #[error(
        "spec.reboot.requiredFiles is empty, so that nothing could require a reboot: leave it out for {}, or name files",
        REQUIRED_FILES.join(" and ")
    )]
    NoRequiredFiles,
    /// A path that may mean another file than it says, or none.
    #[error(
        "spec.reboot.requiredFiles[{index}] is {path:?}: it must be an absolute path on the host, such as {:?}, without \".\", \"..\", \
         \"//\" or a \"/\" at its end, and of at most {MAX_PATH_LEN} characters",
        REQUIRED_FILES[0]
    )]
    RequiredFile {
        /// Its place in the list, from 0.
        index: usize,
        /// The path.
        path: String,
    },
    /// A command without a program.
    #[error(
        "spec.reboot.command is empty: leave it out for `systemctl reboot` or `reboot`, or name a program"
    )]
    NoCommand,
    /// A program that is searched for nowhere.
    #[error(
        "spec.reboot.command[0] is {0:?}: it must be the name of a program on the host, such as \"reboot\", or its absolute path"
    )]
    CommandProgram(String),
    /// An argument that no program can be given.
    #[error("spec.reboot.command[{0}] has a NUL character, which no argument can have")]
    CommandArgument(usize),
    /// A timeout that cannot be read.
    #[error("{field} is invalid, {error}")]
    Duration {
        /// Path of the field.
        field: &'static str,
        /// Why not.
        error: DurationError,
    },
    /// A timeout that is over before it begins.
    #[error("{field} is {value}: it must be more than 0s")]
    NoTime {
        /// Path of the field.
        field: &'static str,
        /// What it is.
        value: GoDuration,
    },
    /// A time that has passed before it begins.
    #[error("spec.settle.minReady is negative")]
    NegativeMinReady,
    /// No node could be Ready for so long in time.
    #[error(
        "spec.settle.minReady is {min_ready}, and {field} ends the wait for it after {timeout}: it must be longer"
    )]
    MinReady {
        /// How long a node has to be Ready.
        min_ready: GoDuration,
        /// What ends the wait.
        field: &'static str,
        /// When.
        timeout: GoDuration,
    },
    /// Nothing on the host can be looked at, which the proof of a reboot needs.
    #[error("spec.reboot.when is {}, and spec.hostAccess None keeps refit from the host: use Root or Full", .0.as_str())]
    RebootWithoutHost(RebootWhen),
    /// A policy that cannot be read.
    #[error(transparent)]
    VersionPolicy(#[from] BadPolicy),
    /// A reference to a Secret that can be none.
    #[error("{field}.name is {name:?}: it must be the name of a secret in the Plan's namespace")]
    SecretName {
        /// Path of the reference.
        field: &'static str,
        /// What it is.
        name: String,
    },
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
    spec.version_policy()?;
    validate_reboot(spec)?;
    validate_settle(spec)?;
    let secrets = [
        ("spec.channelSecretRef", &spec.channel_secret_ref),
        ("spec.channelCASecretRef", &spec.channel_ca_secret_ref),
    ];
    for (field, secret) in secrets {
        if let Some(secret) = secret.as_ref().filter(|secret| !is_secret_name(&secret.name)) {
            let name = secret.name.clone();
            return Err(Invalid::SecretName { field, name });
        }
    }
    Ok(())
}

/// Whether the API server would find something by this name.
fn is_secret_name(name: &str) -> bool {
    name.len() <= MAX_OBJECT_NAME_LEN && is_subdomain(name)
}

/// Asked whatever `when` is: a mistake is better told before it counts.
fn validate_reboot(spec: &PlanSpec) -> Result<(), Invalid> {
    let reboot = spec.reboot_or_default();
    if let Some(files) = &reboot.required_files {
        if files.is_empty() {
            return Err(Invalid::NoRequiredFiles);
        }
        if let Some(index) = files.iter().position(|path| !is_clean_path(path)) {
            let path = files[index].clone();
            return Err(Invalid::RequiredFile { index, path });
        }
    }
    if let Some(command) = &reboot.command {
        let program = command.first().ok_or(Invalid::NoCommand)?;
        let is_name = !program.is_empty() && !program.contains('/') && program != "." && program != "..";
        if let Some(index) = command.iter().position(|argument| argument.contains('\0')) {
            return Err(Invalid::CommandArgument(index));
        }
        if !is_name && !is_clean_path(program) {
            return Err(Invalid::CommandProgram(program.clone()));
        }
    }
    positive("spec.reboot.timeout", reboot.timeout())?;
    if spec.may_reboot() && spec.host_access() == HostAccess::None {
        return Err(Invalid::RebootWithoutHost(reboot.when()));
    }
    Ok(())
}

fn validate_settle(spec: &PlanSpec) -> Result<(), Invalid> {
    let settle = spec.settle_or_default();
    let min_ready = settle.min_ready(spec.may_reboot());
    let min_ready = min_ready.map_err(|error| Invalid::Duration {
        field: "spec.settle.minReady",
        error,
    })?;
    if min_ready.is_negative() {
        return Err(Invalid::NegativeMinReady);
    }
    let settled = ("spec.settle.timeout", settle.timeout());
    let rebooted = ("spec.reboot.timeout", spec.reboot_or_default().timeout());
    for (field, timeout) in std::iter::once(settled).chain(spec.may_reboot().then_some(rebooted)) {
        let timeout = positive(field, timeout)?;
        if timeout <= min_ready {
            return Err(Invalid::MinReady {
                min_ready,
                field,
                timeout,
            });
        }
    }
    Ok(())
}

fn positive(field: &'static str, value: Result<GoDuration, DurationError>) -> Result<GoDuration, Invalid> {
    match value {
        Err(error) => Err(Invalid::Duration { field, error }),
        Ok(value) if value <= GoDuration::ZERO => Err(Invalid::NoTime { field, value }),
        Ok(value) => Ok(value),
    }
}

/// Whether a path is absolute and says plainly where it leads.
fn is_clean_path(path: &str) -> bool {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.len() <= MAX_PATH_LEN
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_plain))
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
