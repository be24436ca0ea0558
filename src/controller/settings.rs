//! What the controller is told when it starts: flags, then environment variables, then defaults (S2, S3). All of it is
//! read here, once; nothing else looks at the environment.
//!
//! A flag's variable that cannot be read ends the program, as in system-upgrade-controller. A variable about Jobs and
//! Plans that cannot be read is told, and its default is used.

mod environment;
mod flags;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

pub use flags::{Flags, LogFormat};

use super::client::ApiSource;
use super::lease::{LeaseTiming, TimingError};
use crate::api::duration::GoDuration;
use crate::job::JobSettings;
use crate::proxy::{ProxyEnv, ProxyError};
use environment::{Environment, integer};
pub(crate) use flags::go_bool;
use flags::{go_duration, log_format, threads};

/// How often a channel is asked when nothing else is said (S3).
const DEFAULT_POLLING_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// A polling interval must be longer than this to count (S3).
const MIN_POLLING_INTERVAL: GoDuration = GoDuration::MINUTE;
/// Longest label value, and so the longest name of a controller.
const MAX_NAME: usize = 63;

/// All that the controller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of this controller: Lease, label of its Jobs, source of its Events.
    pub name: String,
    /// The only namespace whose Plans are carried out.
    pub namespace: String,
    /// Node that this controller runs on: host of its Events, and what its own Events are about.
    pub node_name: String,
    /// Host name, which in a pod is the pod's name.
    pub hostname: String,
    /// Who this process is in the leader election.
    pub identity: String,
    /// Whether there is an election.
    pub leader_elect: bool,
    /// The times of the election.
    pub lease: LeaseTiming,
    /// `--threads`: in system-upgrade-controller the workers per kind of object.
    pub threads: usize,
    /// Where the API server is told from.
    pub api: ApiSource,
    /// Proxies of the environment, for the API server and for channels.
    pub proxies: ProxyEnv,
    /// Whether the CRD of the Plan is ours to write.
    pub manage_crd: bool,
    /// PEM files of certificate authorities to trust for channels beside the public ones.
    pub ca_files: Vec<PathBuf>,
    /// How often a channel is asked.
    pub polling_interval: Duration,
    /// `REFIT_IMAGE`: image of refit itself, where it is said.
    pub image: Option<String>,
    /// What is said about Jobs. Its `own_image` is empty unless `image` is set.
    pub jobs: JobSettings,
    /// Whether to log in more detail.
    pub debug: bool,
    /// What the log looks like.
    pub log_format: LogFormat,
}

/// Something to be logged once there is a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A variable that cannot be read, and whose default is used.
    Error(String),
    /// A flag or variable that has no effect.
    Info(String),
}

/// Why the controller cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("--{flag} is required; set it, or the environment variable {variable}")]
    Required {
        flag: &'static str,
        variable: &'static str,
    },
    #[error("the environment variable {name} is {value:?}; it {allowed}")]
    Variable {
        name: &'static str,
        value: String,
        allowed: String,
    },
    #[error(
        "--name is {value:?}; it must be at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    )]
    Name { value: String },
    #[error(
        "--namespace is {value:?}; it must be at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
    )]
    Namespace { value: String },
    #[error("the times of the leader election cannot work: {0}")]
    Timing(#[from] TimingError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
}

impl Settings {
    /// Puts flags, environment and defaults together. `lookup` reads an environment variable, `hostname` is the host's
    /// name. Beside the settings come the notices to log.
    pub fn resolve(
        flags: Flags,
        lookup: &dyn Fn(&str) -> Option<String>,
        hostname: &str,
    ) -> Result<(Self, Vec<Notice>), SettingsError> {
        let env = Environment::new(lookup);
        let name = required(&env, flags.name, "name", "SYSTEM_UPGRADE_CONTROLLER_NAME")?;
        if !is_label_value(&name) {
            return Err(SettingsError::Name { value: name });
        }
        let namespace = required(
            &env,
            flags.namespace,
            "namespace",
            "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE",
        )?;
        if !is_label_value(&namespace) || namespace.chars().any(|c| matches!(c, '_' | '.' | 'A'..='Z')) {
            return Err(SettingsError::Namespace { value: namespace });
        }
        let node_name = text(flags.node_name).or_else(|| env.text("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME"));
        let timing = timing(
            &env,
            flags.lease_duration,
            flags.renew_deadline,
            flags.retry_period,
        )?;
        if flags.service_account.is_some() {
            env.tell(Notice::Info(
                "--service-account is deprecated and has no effect".to_owned(),
            ));
        }
        if env.text("CATTLE_DEV_MODE").is_some() {
            env.tell(Notice::Info(
                "CATTLE_DEV_MODE has no effect; --lease-duration and --renew-deadline set the leader election".to_owned(),
            ));
        }
        let image = env.text("REFIT_IMAGE");
        let settings = Self {
            identity: identity(&env, flags.identity, hostname),
            node_name: node_name.unwrap_or_else(|| hostname.to_owned()),
            hostname: hostname.to_owned(),
            leader_elect: boolean(
                &env,
                flags.leader_elect,
                "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT",
                false,
            )?,
            lease: timing,
            threads: env
                .flag(flags.threads, "SYSTEM_UPGRADE_CONTROLLER_THREADS", threads)?
                .unwrap_or(2),
            api: ApiSource {
                kubeconfig: flags
                    .kubeconfig
                    .filter(|path| !path.as_os_str().is_empty())
                    .or_else(|| {
                        env.text("SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG")
                            .map(PathBuf::from)
                    }),
                master: text(flags.master).or_else(|| env.text("SYSTEM_UPGRADE_CONTROLLER_MASTER_URL")),
                context: None,
                in_cluster: env.text("KUBERNETES_SERVICE_HOST").is_some(),
            },
            proxies: ProxyEnv::read(lookup)?,
            manage_crd: boolean(&env, flags.manage_crd, "REFIT_MANAGE_CRD", true)?,
            ca_files: ca_files(&env, flags.ca_file),
            polling_interval: polling_interval(&env),
            jobs: jobs(&env, &name, image.as_deref()),
            image,
            debug: boolean(&env, flags.debug, "SYSTEM_UPGRADE_CONTROLLER_DEBUG", false)?,
            log_format: match flags.log_format {
                Some(format) => format,
                None => env
                    .text("REFIT_LOG_FORMAT")
                    .map_or(Ok(LogFormat::Text), |value| {
                        log_format(&value).map_err(|allowed| SettingsError::Variable {
                            name: "REFIT_LOG_FORMAT",
                            value,
                            allowed,
                        })
                    })?,
            },
            name,
            namespace,
        };
        Ok((settings, env.notices.into_inner()))
    }
}

fn required(
    env: &Environment<'_>,
    flag: Option<String>,
    name: &'static str,
    variable: &'static str,
) -> Result<String, SettingsError> {
    text(flag)
        .or_else(|| env.text(variable))
        .ok_or(SettingsError::Required { flag: name, variable })
}

/// A flag's text, unless it is empty: `--master ""` is as good as none.
fn text(flag: Option<String>) -> Option<String> {
    flag.filter(|value| !value.is_empty())
}

/// A variable of a flag that is set to nothing says false (urfave/cli).
fn boolean(
    env: &Environment<'_>,
    flag: Option<bool>,
    name: &'static str,
    default: bool,
) -> Result<bool, SettingsError> {
    let parse = |value: &str| {
        if value.is_empty() {
            Ok(false)
        } else {
            go_bool(value)
        }
    };
    Ok(env.flag(flag, name, parse)?.unwrap_or(default))
}

/// In a pod the host name is the pod's name, which is used once. The pod's UID tells it from one of the same name on
/// the host's network, or of a `StatefulSet`. It stays the same when the container is started anew, which then leads on
/// at once.
fn identity(env: &Environment<'_>, flag: Option<String>, hostname: &str) -> String {
    text(flag)
        .or_else(|| env.text("REFIT_IDENTITY"))
        .unwrap_or_else(|| match env.text("POD_UID") {
            Some(uid) => format!("{hostname}_{uid}"),
            None => hostname.to_owned(),
        })
}

fn timing(
    env: &Environment<'_>,
    lease_duration: Option<Duration>,
    renew_deadline: Option<Duration>,
    retry_period: Option<Duration>,
) -> Result<LeaseTiming, SettingsError> {
    // As wrangler reads them: one that is set to nothing is not set.
    let duration =
        |flag: Option<Duration>, name: &'static str, default: Duration| match (flag, env.text(name)) {
            (Some(duration), _) => Ok(duration),
            (None, None) => Ok(default),
            (None, Some(value)) => {
                go_duration(&value).map_err(|allowed| SettingsError::Variable { name, value, allowed })
            }
        };
    let defaults = LeaseTiming::default();
    let timing = LeaseTiming {
        lease_duration: duration(
            lease_duration,
            "CATTLE_ELECTION_LEASE_DURATION",
            defaults.lease_duration,
        )?,
        renew_deadline: duration(
            renew_deadline,
            "CATTLE_ELECTION_RENEW_DEADLINE",
            defaults.renew_deadline,
        )?,
        retry_period: duration(
            retry_period,
            "CATTLE_ELECTION_RETRY_PERIOD",
            defaults.retry_period,
        )?,
    };
    timing.validate()?;
    Ok(timing)
}

fn ca_files(env: &Environment<'_>, flags: Vec<PathBuf>) -> Vec<PathBuf> {
    if !flags.is_empty() {
        return flags;
    }
    let list = env.text("REFIT_CA_FILE").unwrap_or_default();
    list.split(':')
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// Up to a minute counts as nothing said, and nobody is told (S3).
fn polling_interval(env: &Environment<'_>) -> Duration {
    let parse = |value: &str| {
        GoDuration::from_str(value)
            .map(Some)
            .map_err(|error| error.to_string())
    };
    let interval = env.or_default("SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", None, parse);
    interval
        .filter(|interval| *interval > MIN_POLLING_INTERVAL)
        .and_then(GoDuration::to_std)
        .unwrap_or(DEFAULT_POLLING_INTERVAL)
}

fn jobs(env: &Environment<'_>, name: &str, image: Option<&str>) -> JobSettings {
    if env.text("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE").is_some() {
        env.tell(Notice::Info(
            "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE has no effect: nodes are cordoned and drained with refit's own image"
                .to_owned(),
        ));
    }
    let defaults = JobSettings::new(name, image.unwrap_or_default());
    JobSettings {
        active_deadline_seconds: env.or_default(
            "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS",
            defaults.active_deadline_seconds,
            integer,
        ),
        active_deadline_seconds_max: env.or_default(
            "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX",
            defaults.active_deadline_seconds_max,
            integer,
        ),
        backoff_limit: env.or_default(
            "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT",
            defaults.backoff_limit,
            integer,
        ),
        ttl_seconds_after_finish: env.or_default(
            "SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH",
            defaults.ttl_seconds_after_finish,
            integer,
        ),
        privileged: env.or_default("SYSTEM_UPGRADE_JOB_PRIVILEGED", defaults.privileged, boolean_said),
        allow_user_defined_security_context: env.or_default(
            "ALLOW_USER_DEFINED_SECURITY_CONTEXT",
            defaults.allow_user_defined_security_context,
            boolean_said,
        ),
        kubectl_image_windows: env
            .text("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS")
            .unwrap_or_default(),
        image_pull_policy: env
            .text("SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY")
            .unwrap_or_else(|| defaults.image_pull_policy.clone()),
        pod_replacement_policy: env
            .text("SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY")
            .unwrap_or_else(|| defaults.pod_replacement_policy.clone()),
        ..defaults
    }
}

/// A bool, with an error that says what was found.
fn boolean_said(value: &str) -> Result<bool, String> {
    go_bool(value).map_err(|allowed| format!("{value:?} {allowed}"))
}

/// Whether the text can be the value of a label.
fn is_label_value(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_NAME
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && alphanumeric(text.chars().next())
        && alphanumeric(text.chars().next_back())
}
