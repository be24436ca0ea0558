//! Validates Plans, with the messages of `Validated=False`.
//!
//! system-upgrade-controller's checks come first, in its order and with its messages (S53). Checks of what it accepts
//! although it can never work follow: there it causes Jobs that the API server refuses or that fail on every node.
//! Images are not checked here, because they must not block `LatestResolved`.
//!
//! Pure: the caller checks whether Secrets exist, and reports `Invalid::SecretsMissing`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::complete_label::expand;
use super::failure::{FailurePolicy, MAX_RETRIES};
use super::node_limit::NodeLimit;
use super::reboot::{HostAccess, REQUIRED_FILES, RebootWhen};
use super::schedule::{Blackout, BlackoutError, PlanWindow, ScheduleError};
use super::selector::{Selector, SelectorError, is_subdomain, label_key_problems, label_value_problems};
use super::text::{MAX_NAME, shorten};
use super::window::{Window, WindowError};
use super::{
    BadCheck, BadNodeInfo, BadOrder, BadPodBlocker, BadPolicy, BadRepeat, BadWave, DependencySpec, DrainSpec,
    DrainTimeout, OnDrift, PlanSpec, Trigger,
};
use refit_base::go::{DurationError, GoDuration};

/// Maximum length of a Plan's name, because it is the name part of the node label `plan.upgrade.cattle.io/<plan>`, and
/// a label value on Jobs.
pub const MAX_PLAN_NAME_LEN: usize = 63;

/// Maximum number of Plans in `dependsOn`, as in the schema. A Plan stored under another schema may name more.
const MAX_DEPENDENCIES: usize = 32;

/// Maximum length of an object's name (RFC 1123 subdomain).
const MAX_OBJECT_NAME_LEN: usize = 253;

/// Maximum number of windows, and of blackouts, of a Plan.
pub const MAX_SCHEDULE_ENTRIES: usize = 64;

/// Maximum number of Secrets of a Plan. The controller reads and watches each of them.
pub const MAX_SECRETS: usize = 100;

/// Maximum length of a path on Linux, in bytes, without its terminating zero.
const MAX_PATH_LEN: usize = 4095;

/// The first error of a Plan. Its text is the message of the condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Both names of one flag are set.
    #[error("spec.drain cannot specify both deleteEmptydirData and deleteLocalData")]
    DeleteFlags,
    /// An invalid selector. As in system-upgrade-controller, the message has no prefix.
    #[error(transparent)]
    PodSelector(#[from] SelectorError),
    #[error("spec.window is invalid, {0}")]
    Window(WindowError),
    #[error(
        "spec.window and spec.windows are both set: move the window into spec.windows, or remove one of them"
    )]
    WindowAndWindows,
    /// An empty list of windows.
    #[error("spec.windows is empty, so that no node would ever start: remove it, or add a window")]
    NoWindows,
    #[error("{field} has {entries} entries, and may have {MAX_SCHEDULE_ENTRIES}")]
    ScheduleTooLong { field: &'static str, entries: usize },
    #[error("spec.windows[{index}] is invalid, {error}")]
    Windows {
        index: usize,
        /// The field of the window.
        field: &'static str,
        error: ScheduleError,
    },
    #[error("spec.blackouts[{index}] is invalid, {error}")]
    Blackouts { index: usize, error: BlackoutError },
    #[error("spec.notBefore is {0:?}, which is not a time in RFC 3339 such as 2026-12-05T02:00:00Z")]
    NotBefore(String),
    /// An invalid delay. It stops system-upgrade-controller from reading any Plan.
    #[error("spec.postCompleteDelay is invalid, {0}")]
    Delay(DurationError),
    #[error("spec.postCompleteDelay is negative")]
    NegativeDelay,
    /// A timeout with which every drain would fail.
    #[error("spec.drain.timeout is invalid, {0}")]
    DrainTimeout(DurationError),
    /// A name that does not fit into a node label.
    #[error(
        "metadata.name has {0} characters, and the label that marks a finished node holds {MAX_PLAN_NAME_LEN}"
    )]
    PlanName(usize),
    /// A version that is not a label value, and so no image tag either.
    #[error(
        "spec.version cannot be an image tag and a label value: {0:?} must be at most 63 letters, digits, '-', '_', '.' \
         or '+', with a letter or digit at each end"
    )]
    Version(String),
    /// An invalid number of nodes.
    #[error(
        "{field} is {value}: it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\""
    )]
    NodeLimit {
        /// Path of the field.
        field: &'static str,
        /// What it is.
        value: String,
    },
    /// An invalid number of failures.
    #[error(
        "spec.failure.budget is {0}: it must be a number from 0 on, or a share of the nodes from \"1%\" to \"100%\""
    )]
    FailureBudget(String),
    /// A budget that nothing looks at.
    #[error(
        "spec.failure.budget is set, and spec.failure.policy is {}, which has no budget: write `policy: Stop`, or remove the budget",
        .0.as_str()
    )]
    BudgetWithoutStop(FailurePolicy),
    #[error("spec.failure.retries is {0}: it must be a number from 0 to {MAX_RETRIES}")]
    Retries(i64),
    /// A delay before nothing.
    #[error(
        "spec.failure.backoff is set, and spec.failure.retries is 0 or absent: set it, or remove the backoff"
    )]
    BackoffWithoutRetries,
    /// An empty list of files.
    #[error(
        "spec.reboot.requiredFiles is empty, so nothing could require a reboot: leave it out for {}, or name files",
        REQUIRED_FILES.join(" and ")
    )]
    NoRequiredFiles,
    /// A relative or unclear path.
    #[error(
        "spec.reboot.requiredFiles[{index}] is {path:?}: it must be an absolute path on the host, such as {:?}, without \".\", \"..\", \
         \"//\" or a \"/\" at its end, and of at most {MAX_PATH_LEN} characters",
        REQUIRED_FILES[0]
    )]
    RequiredFile { index: usize, path: String },
    /// A command without a program.
    #[error(
        "spec.reboot.command is empty: leave it out for `systemctl reboot` or `reboot`, or name a program"
    )]
    NoCommand,
    /// A program that cannot be found on any host.
    #[error(
        "spec.reboot.command[0] is {0:?}: it must be the name of a program on the host, such as \"reboot\", or its absolute path"
    )]
    CommandProgram(String),
    /// An argument that no program can receive.
    #[error("spec.reboot.command[{0}] has a NUL character, which no argument can have")]
    CommandArgument(usize),
    /// A duration that cannot be parsed.
    #[error("{field} is invalid, {error}")]
    Duration {
        field: &'static str,
        error: DurationError,
    },
    /// A timeout of zero or less.
    #[error("{field} is {value}: it must be more than 0s")]
    NoTime { field: &'static str, value: GoDuration },
    #[error("spec.settle.minReady is negative")]
    NegativeMinReady,
    /// `minReady` exceeds a timeout.
    #[error(
        "spec.settle.minReady is {min_ready}, and {field} ends the wait for it after {timeout}: it must be longer"
    )]
    MinReady {
        min_ready: GoDuration,
        /// The field that ends the wait.
        field: &'static str,
        /// Value of that field.
        timeout: GoDuration,
    },
    #[error(
        "spec.reboot.by is Payload, so that refit does not reboot the node, and spec.{0} is about how refit does: remove one of them"
    )]
    PayloadReboots(&'static str),
    /// `hostAccess: None` with a reboot, which needs the host's files.
    #[error("spec.reboot.when is {}, and spec.hostAccess None keeps refit from the host: use Root or Full", .0.as_str())]
    RebootWithoutHost(RebootWhen),
    /// A trigger that cannot do what it is for.
    #[error(
        "spec.trigger is {}, and spec.reboot is absent: write `reboot: {{}}`, or remove the trigger", .0.as_str()
    )]
    TriggerWithoutReboot(Trigger),
    #[error(
        "spec.trigger is {}, and spec.reboot.when is {}: leave it out, or write Always", .0.as_str(), .1.as_str()
    )]
    TriggerWithWhen(Trigger, RebootWhen),
    /// Waves end, and requests of nodes do not.
    #[error(
        "spec.trigger is {}, and spec.waves is set: a Plan that nodes request again and again has no first and no last wave, so remove \
         one of them",
        .0.as_str()
    )]
    TriggerWithWaves(Trigger),
    #[error(
        "spec.trigger is {}, and spec.settle.{field} is true: a reboot installs no version, so remove one of them", .trigger.as_str()
    )]
    TriggerWithVersion { trigger: Trigger, field: &'static str },
    #[error(
        "spec.onDrift is Rerun, and the Plan does not install Kubernetes, so that nothing shows that a node has drifted: set \
         `installs: Kubernetes` if it does, or remove onDrift"
    )]
    DriftOfOther,
    #[error(transparent)]
    Repeat(#[from] BadRepeat),
    #[error(
        "spec.repeat is set, and so is spec.trigger: the Plan runs again whenever a node requests it, so remove one of them"
    )]
    RepeatWithTrigger,
    #[error(
        "spec.repeat is set, and spec.skipWhen marks nodes that have the version as done without a Job, so that no node would run \
         the Plan again: remove one of them"
    )]
    RepeatWithSkipWhen,
    #[error(
        "spec.upgrade is set, and neither spec.version nor spec.channel gives it a version: write one, such as `version: \"1\"`"
    )]
    TriggerWithoutVersion,
    #[error(transparent)]
    VersionPolicy(#[from] BadPolicy),
    #[error(transparent)]
    Order(#[from] BadOrder),
    #[error(transparent)]
    Waves(#[from] BadWave),
    #[error(transparent)]
    Checks(#[from] BadCheck),
    #[error(transparent)]
    PodBlockers(#[from] BadPodBlocker),
    #[error(transparent)]
    NodeInfo(#[from] BadNodeInfo),
    /// A name that no Plan can have.
    #[error("spec.dependsOn[{index}].name is {name:?}: it must be the name of a Plan in the same namespace")]
    DependencyName { index: usize, name: String },
    #[error("spec.dependsOn[{0}].name is this Plan, so that no node could ever start")]
    DependsOnItself(usize),
    #[error("spec.dependsOn[{index}].name is {name:?}, as in spec.dependsOn[{first}]")]
    DependencyTwice {
        index: usize,
        first: usize,
        name: String,
    },
    #[error("spec.dependsOn names {0} Plans: it must name at most {MAX_DEPENDENCIES}")]
    TooManyDependencies(usize),
    /// A reference to a Secret with an invalid name.
    #[error("{field}.name is {name:?}: it must be the name of a secret in the Plan's namespace")]
    SecretName { field: &'static str, name: String },
    #[error(
        "{field} names {secrets} secrets: it must name at most {MAX_SECRETS}, so merge some, or mount them with spec.upgrade.volumes"
    )]
    TooManySecrets { field: &'static str, secrets: usize },
    #[error("spec.channel has {0} bytes, and may have {MAX_CHANNEL}")]
    ChannelTooLong(usize),
    /// A label that the API server would refuse on each node that has been upgraded.
    #[error("spec.postCompleteLabels has the key {key:?}, which is not one of a label: {problem}")]
    CompleteLabelKey { key: String, problem: String },
    /// As above, whatever the version and the hash are.
    #[error(
        "spec.postCompleteLabels has the value {value:?} for {key}, which is not one of a label: {problem}"
    )]
    CompleteLabelValue {
        key: String,
        value: String,
        problem: String,
    },
    /// Required Secrets that do not exist, in the order of the spec.
    #[error("{}", not_found(.0))]
    SecretsMissing(Vec<String>),
}

/// Maximum length of a channel in bytes. Status has a copy of it, and each decision compares it.
pub const MAX_CHANNEL: usize = 4 << 10;

/// Validates a Plan of this name.
///
/// # Errors
/// Fails with the first error, in system-upgrade-controller's order.
pub fn validate(name: &str, spec: &PlanSpec) -> Result<(), Invalid> {
    if let Some(drain) = &spec.drain {
        if drain.delete_emptydir_data.is_some() && drain.delete_local_data.is_some() {
            return Err(Invalid::DeleteFlags);
        }
        // A selector that is present selects something if it is valid: `{}` means all pods.
        Selector::new(drain.pod_selector.as_ref())?;
    }
    if let Some(window) = &spec.window {
        // Only the syntax is checked, so any zone can stand for `Local`.
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
    let limits = [
        ("spec.maxConcurrent", &spec.max_concurrent),
        ("spec.maxUnavailable", &spec.max_unavailable),
    ];
    for (field, limit) in limits {
        let Some(limit) = limit.as_ref().filter(|limit| NodeLimit::parse(limit).is_none()) else {
            continue;
        };
        let value = limit_text(limit);
        return Err(Invalid::NodeLimit { field, value });
    }
    validate_failure(spec)?;
    validate_schedule(spec)?;
    spec.version_policy()?;
    spec.order()?;
    spec.pod_blockers()?;
    spec.waves()?;
    spec.checks()?;
    spec.node_info()?;
    validate_dependencies(name, spec)?;
    validate_reboot(spec)?;
    validate_settle(spec)?;
    if let Some(channel) = spec
        .channel
        .as_ref()
        .filter(|channel| channel.len() > MAX_CHANNEL)
    {
        return Err(Invalid::ChannelTooLong(channel.len()));
    }
    validate_trigger(spec)?;
    validate_drift(spec)?;
    validate_repeat(spec)?;
    validate_complete_labels(spec)?;
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
    validate_secrets(spec)
}

/// Whether a Plan names no more Secrets than the controller reads.
///
/// # Errors
/// Fails if it names more.
pub fn validate_secrets(spec: &PlanSpec) -> Result<(), Invalid> {
    let counts = [
        ("spec.secrets", spec.secrets.as_ref().map(Vec::len)),
        (
            "spec.imagePullSecrets",
            spec.image_pull_secrets.as_ref().map(Vec::len),
        ),
    ];
    for (field, secrets) in counts {
        if let Some(secrets) = secrets.filter(|secrets| *secrets > MAX_SECRETS) {
            return Err(Invalid::TooManySecrets { field, secrets });
        }
    }
    Ok(())
}

fn validate_dependencies(own: &str, spec: &PlanSpec) -> Result<(), Invalid> {
    let all = spec.depends_on.as_deref().unwrap_or_default();
    if all.len() > MAX_DEPENDENCIES {
        return Err(Invalid::TooManyDependencies(all.len()));
    }
    for (index, DependencySpec { name }) in all.iter().enumerate() {
        if name.len() > MAX_PLAN_NAME_LEN || !is_subdomain(name) {
            let name = name.clone();
            return Err(Invalid::DependencyName { index, name });
        }
        if name == own {
            return Err(Invalid::DependsOnItself(index));
        }
        if let Some(first) = all[..index].iter().position(|other| other.name == *name) {
            let name = name.clone();
            return Err(Invalid::DependencyTwice { index, first, name });
        }
    }
    Ok(())
}

fn validate_complete_labels(spec: &PlanSpec) -> Result<(), Invalid> {
    for (key, value) in spec.post_complete_labels.iter().flatten() {
        if let Some(problem) = label_key_problems(key).into_iter().next() {
            let key = shorten(key, MAX_NAME).into();
            return Err(Invalid::CompleteLabelKey { key, problem });
        }
        // One character each: the text may be too long with one version, and not with another one.
        if let Some(problem) = label_value_problems(&expand(value, "v", "a")).into_iter().next() {
            return Err(Invalid::CompleteLabelValue {
                key: key.clone(),
                value: shorten(value, MAX_NAME).into(),
                problem,
            });
        }
    }
    Ok(())
}

/// Whether the text is a valid name of a Secret.
pub fn is_secret_name(name: &str) -> bool {
    name.len() <= MAX_OBJECT_NAME_LEN && is_subdomain(name)
}

fn limit_text(limit: &IntOrString) -> String {
    match limit {
        IntOrString::Int(nodes) => nodes.to_string(),
        IntOrString::String(share) => format!("{share:?}"),
    }
}

fn validate_failure(spec: &PlanSpec) -> Result<(), Invalid> {
    let Some(failure) = &spec.failure else {
        return Ok(());
    };
    if let Some(budget) = &failure.budget {
        if failure.budget().is_none() {
            return Err(Invalid::FailureBudget(limit_text(budget)));
        }
        if failure.policy() != FailurePolicy::Stop {
            return Err(Invalid::BudgetWithoutStop(failure.policy()));
        }
    }
    if let Some(retries) = failure
        .retries
        .filter(|retries| !(0..=MAX_RETRIES).contains(retries))
    {
        return Err(Invalid::Retries(retries));
    }
    if failure.backoff.is_some() {
        positive("spec.failure.backoff", failure.backoff())?;
        if failure.retries() == 0 {
            return Err(Invalid::BackoffWithoutRetries);
        }
    }
    Ok(())
}

fn validate_schedule(spec: &PlanSpec) -> Result<(), Invalid> {
    let lengths = [
        ("spec.windows", spec.windows.as_ref().map(Vec::len)),
        ("spec.blackouts", spec.blackouts.as_ref().map(Vec::len)),
    ];
    for (field, entries) in lengths {
        if let Some(entries) = entries.filter(|entries| *entries > MAX_SCHEDULE_ENTRIES) {
            return Err(Invalid::ScheduleTooLong { field, entries });
        }
    }
    if let Some(windows) = &spec.windows {
        if spec.window.is_some() {
            return Err(Invalid::WindowAndWindows);
        }
        if windows.is_empty() {
            return Err(Invalid::NoWindows);
        }
        for (index, window) in windows.iter().enumerate() {
            PlanWindow::parse(window, &TimeZone::UTC).map_err(|error| Invalid::Windows {
                index,
                field: error.field(window),
                error,
            })?;
        }
    }
    for (index, blackout) in spec.blackouts.iter().flatten().enumerate() {
        Blackout::parse(blackout, &TimeZone::UTC).map_err(|error| Invalid::Blackouts { index, error })?;
    }
    match &spec.not_before {
        Some(text) if text.parse::<Timestamp>().is_err() => {
            Err(Invalid::NotBefore(shorten(text, MAX_NAME).into_owned()))
        }
        _ => Ok(()),
    }
}

/// Checked for every value of `when`, so that an error is found before it matters.
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
    if spec.payload_reboots() {
        let set = [
            ("reboot.when", reboot.when.is_some()),
            ("reboot.requiredFiles", reboot.required_files.is_some()),
            ("reboot.command", reboot.command.is_some()),
            ("trigger", spec.trigger.is_some()),
        ];
        if let Some((field, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Invalid::PayloadReboots(field));
        }
    }
    if spec.has_sentinel() && spec.host_access() == HostAccess::None {
        return Err(Invalid::RebootWithoutHost(spec.reboot_when()));
    }
    Ok(())
}

fn validate_trigger(spec: &PlanSpec) -> Result<(), Invalid> {
    let Some(trigger) = spec.trigger else {
        return Ok(());
    };
    if spec.reboot.is_none() {
        return Err(Invalid::TriggerWithoutReboot(trigger));
    }
    if spec.reboot_when() != RebootWhen::Always {
        return Err(Invalid::TriggerWithWhen(trigger, spec.reboot_when()));
    }
    if spec.waves.is_some() {
        return Err(Invalid::TriggerWithWaves(trigger));
    }
    let settle = spec.settle_or_default();
    for (field, is_set) in [
        ("kubeletVersion", settle.waits_for_kubelet_version()),
        ("osImage", settle.waits_for_os_image()),
    ] {
        if is_set {
            return Err(Invalid::TriggerWithVersion { trigger, field });
        }
    }
    let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if spec.upgrade_container().is_some() && !is_given(&spec.version) && !is_given(&spec.channel) {
        return Err(Invalid::TriggerWithoutVersion);
    }
    Ok(())
}

fn validate_drift(spec: &PlanSpec) -> Result<(), Invalid> {
    let reruns = spec.on_drift == Some(OnDrift::Rerun);
    if reruns && !spec.installs_kubernetes() {
        return Err(Invalid::DriftOfOther);
    }
    Ok(())
}

fn validate_repeat(spec: &PlanSpec) -> Result<(), Invalid> {
    // Only the syntax is checked, so any zone can stand for `Local`.
    if spec.repeat(&TimeZone::UTC)?.is_none() {
        return Ok(());
    }
    if spec.trigger.is_some() {
        return Err(Invalid::RepeatWithTrigger);
    }
    if spec.skips_at_version().is_some() {
        return Err(Invalid::RepeatWithSkipWhen);
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

/// Whether a path is absolute, without `.` or `..`.
fn is_clean_path(path: &str) -> bool {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.len() <= MAX_PATH_LEN
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(is_plain))
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
