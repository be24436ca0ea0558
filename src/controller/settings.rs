//! The settings of the controller: flags, then environment variables, then defaults (S2, S3). They are read once, here;
//! nothing else reads the environment.
//!
//! An invalid flag, or its variable, ends the program, as in system-upgrade-controller. An invalid variable about Jobs
//! and Plans is logged, and its default is used.

mod environment;
mod flags;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

pub use flags::{Flags, FrontEndName, MetricsAddress};

use super::lease::{LeaseTiming, TimingError};
use super::own_image::PodIdentity;
use super::server::{BindAddress, Serving};
use crate::telemetry::LogFormat;
use environment::{Environment, integer};
use flags::{go_duration, log_format, metrics_address, threads};
use refit_api::ApiAccess;
use refit_api::selector::is_dns_label;
use refit_base::go::{GoDuration, parse_bool};
use refit_base::proxy::{ProxyEnv, ProxyError};
use refit_channel::hosts::{CHANNEL_HOST, HostPattern, Hosts, hosts};
use refit_cluster::kube::client::ApiSource;
use refit_job::JobSettings;
use refit_job::name::is_label_value;

/// Default interval between polls of a channel (S3).
const DEFAULT_POLLING_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Some seconds are enough for a kubelet, a cloud and a distribution to set labels and taints of a node that joins.
const DEFAULT_MIN_NODE_AGE: Duration = Duration::from_secs(60);
/// A polling interval must be longer than this (S3).
const MIN_POLLING_INTERVAL: GoDuration = GoDuration::MINUTE;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of this controller: of its Lease, in the label of its Jobs, and as the source of its Events.
    pub name: String,
    /// The only namespace whose Plans the controller handles.
    pub namespace: String,
    /// Node of this controller: the host in its Events, and the subject of its own Events.
    pub node_name: String,
    /// Host name; in a pod the name of the pod.
    pub hostname: String,
    /// The pod that it runs in.
    pub pod: PodIdentity,
    /// Identity of this process in the leader election.
    pub identity: String,
    pub leader_elect: bool,
    /// Durations of the election.
    pub lease: LeaseTiming,
    /// How to find the API server.
    pub api: ApiSource,
    /// Proxies for the API server and for channels, from the environment.
    pub proxies: ProxyEnv,
    /// Whether refit writes the CRD of the Plan.
    pub manage_crd: bool,
    /// PEM files of certificate authorities to trust for channels in addition to the public ones.
    pub ca_files: Vec<PathBuf>,
    /// The hosts that channels may point to.
    pub channel_hosts: Hosts,
    /// Interval between polls of a channel.
    pub polling_interval: Duration,
    /// `REFIT_MIN_NODE_AGE`: how long a node must have been registered before a Plan starts on it.
    pub min_node_age: Duration,
    /// `REFIT_CHECK_IMAGES`: whether registries are asked for images before nodes start.
    pub check_images: bool,
    /// `REFIT_CHECK_DRAINS`: whether nodes start only if their drains would end, unless a Plan says otherwise.
    pub check_drains: bool,
    /// Settings of Jobs. `own_image` is that of `REFIT_IMAGE`, or empty.
    pub jobs: JobSettings,
    /// The server of metrics and probes, if there is one.
    pub serving: Option<Serving>,
    /// Whether nodes get lifecycle conditions.
    pub node_conditions: bool,
    /// Other objects than Plans to handle.
    pub enable: Vec<FrontEndName>,
    pub debug: bool,
    pub log_format: LogFormat,
}

/// A message to log once logging is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An invalid variable, whose default is used.
    Error(String),
    /// A variable without effect that had one in an earlier version.
    Warning(String),
    /// A flag or a variable without effect.
    Info(String),
}

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
    #[error("--metrics-cert-file and --metrics-key-file belong together; set both or neither")]
    HalfCertificate,
    #[error(
        "--metrics-secure needs --metrics-cert-file and --metrics-key-file, because tokens must not be sent in the clear"
    )]
    SecureWithoutTls,
}

fn enabled(env: &Environment<'_>, flag: Vec<FrontEndName>) -> Result<Vec<FrontEndName>, SettingsError> {
    let flag = Some(flag).filter(|names| !names.is_empty());
    Ok(env
        .flag(flag, "REFIT_ENABLE", flags::front_ends)?
        .unwrap_or_default())
}

impl Settings {
    /// Combines flags, environment and defaults. `lookup` reads an environment variable, `hostname` is the host name.
    /// Also returns the messages to log.
    ///
    /// # Errors
    /// Fails if a flag is missing or invalid.
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
        if !is_dns_label(&namespace) {
            return Err(SettingsError::Namespace { value: namespace });
        }
        let node_name = text(flags.node_name).or_else(|| env.text("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME"));
        let timing = timing(
            &env,
            flags.lease_duration,
            flags.renew_deadline,
            flags.retry_period,
        )?;
        // system-upgrade-controller exits on an invalid number, although refit uses none.
        env.flag(flags.threads, "SYSTEM_UPGRADE_CONTROLLER_THREADS", threads)?;
        if flags.service_account.is_some() {
            env.add_notice(Notice::Info(
                "--service-account is deprecated and has no effect".to_owned(),
            ));
        }
        notice_variables_without_effect(&env);
        let certificate = [flags.metrics_cert_file, flags.metrics_key_file];
        let secure = boolean(&env, flags.metrics_secure, "REFIT_METRICS_SECURE", false)?;
        let serving = serving(&env, flags.metrics_bind_address, certificate, secure)?;
        let settings = Self {
            identity: identity(&env, flags.identity, hostname),
            node_name: node_name.unwrap_or_else(|| hostname.to_owned()),
            hostname: hostname.to_owned(),
            pod: PodIdentity {
                name: env.text("POD_NAME"),
                namespace: env.text("POD_NAMESPACE"),
                uid: env.text("POD_UID"),
            },
            leader_elect: boolean(
                &env,
                flags.leader_elect,
                "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT",
                false,
            )?,
            lease: timing,
            api: ApiSource {
                kubeconfig: flags
                    .kubeconfig
                    .filter(|path| !path.as_os_str().is_empty())
                    .or_else(|| {
                        env.text("SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG")
                            .map(PathBuf::from)
                    }),
                master: text(flags.master).or_else(|| env.text("SYSTEM_UPGRADE_CONTROLLER_MASTER_URL")),
                in_cluster: env.text("KUBERNETES_SERVICE_HOST").is_some(),
                ..ApiSource::default()
            },
            proxies: ProxyEnv::read(lookup)?,
            manage_crd: boolean(&env, flags.manage_crd, "REFIT_MANAGE_CRD", true)?,
            ca_files: ca_files(&env, flags.ca_file),
            channel_hosts: channel_hosts(&env, &flags.channel_host)?,
            polling_interval: polling_interval(&env),
            min_node_age: env
                .flag(None, "REFIT_MIN_NODE_AGE", go_duration)?
                .unwrap_or(DEFAULT_MIN_NODE_AGE),
            check_images: boolean(&env, None, "REFIT_CHECK_IMAGES", true)?,
            check_drains: boolean(&env, flags.check_drains, "REFIT_CHECK_DRAINS", false)?,
            jobs: JobSettings {
                own_account_api_access: env
                    .flag(None, "REFIT_JOB_API_ACCESS", api_access)?
                    .unwrap_or(ApiAccess::All),
                ..jobs(&env, &name)
            },
            serving,
            node_conditions: boolean(&env, flags.node_conditions, "REFIT_NODE_CONDITIONS", false)?,
            enable: enabled(&env, flags.enable)?,
            debug: boolean(&env, flags.debug, "SYSTEM_UPGRADE_CONTROLLER_DEBUG", false)?,
            log_format: env
                .flag_or_text(flags.log_format, "REFIT_LOG_FORMAT", log_format)?
                .unwrap_or_default(),
            name,
            namespace,
        };
        Ok((settings, env.notices.into_inner()))
    }
}

fn notice_variables_without_effect(env: &Environment<'_>) {
    if env.text("CATTLE_DEV_MODE").is_some() {
        env.add_notice(Notice::Info(
            "CATTLE_DEV_MODE has no effect; --lease-duration and --renew-deadline set the leader election"
                .to_owned(),
        ));
    }
    // A Deployment that still sets it starts all the same.
    if env.text("REFIT_DASHBOARD").is_some() {
        env.add_notice(Notice::Warning(
            "REFIT_DASHBOARD has no effect: the controller no longer serves the page; use `refit dashboard`"
                .to_owned(),
        ));
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

/// The text of a flag, unless it is empty: `--master ""` counts as absent.
fn text(flag: Option<String>) -> Option<String> {
    flag.filter(|value| !value.is_empty())
}

/// A flag's variable that is set to the empty text means false (urfave/cli).
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
            parse_bool(value)
        }
    };
    Ok(env.flag(flag, name, parse)?.unwrap_or(default))
}

/// In a pod the host name is the name of the pod. The pod's UID distinguishes it from a pod of the same name on the
/// host's network, or of a `StatefulSet`. It stays the same when the container restarts, which then leads at once.
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
    // As in wrangler, a variable set to the empty text counts as absent.
    let duration = |flag: Option<Duration>, name: &'static str, default: Duration| {
        let set = env.flag_or_text(flag, name, go_duration)?;
        Ok::<_, SettingsError>(set.unwrap_or(default))
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

/// As other flags, the address counts as absent if it is empty.
fn serving(
    env: &Environment<'_>,
    address: Option<MetricsAddress>,
    certificate: [Option<PathBuf>; 2],
    secure: bool,
) -> Result<Option<Serving>, SettingsError> {
    let address = env.flag_or_text(address, "REFIT_METRICS_BIND_ADDRESS", metrics_address)?;
    let variables = ["REFIT_METRICS_CERT_FILE", "REFIT_METRICS_KEY_FILE"];
    let [cert, key] = certificate;
    let file = |flag: Option<PathBuf>, variable| {
        flag.filter(|path| !path.as_os_str().is_empty())
            .or_else(|| env.text(variable).map(PathBuf::from))
    };
    let tls = match (file(cert, variables[0]), file(key, variables[1])) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) if secure => return Err(SettingsError::SecureWithoutTls),
        (None, None) => None,
        _ => return Err(SettingsError::HalfCertificate),
    };
    let is_required = address.is_some();
    let MetricsAddress(address) = address.unwrap_or(MetricsAddress(Some(BindAddress::DEFAULT)));
    Ok(address.map(|address| Serving {
        address,
        is_required,
        tls,
        secure,
    }))
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

/// An invalid pattern ends the program, because it is meant to limit what Plans may do.
fn channel_hosts(env: &Environment<'_>, flags: &[HostPattern]) -> Result<Hosts, SettingsError> {
    let value = env.text(CHANNEL_HOST);
    hosts(flags, value.as_deref()).map_err(|allowed| SettingsError::Variable {
        name: CHANNEL_HOST,
        value: value.unwrap_or_default(),
        allowed: format!("is a list of hosts, each of which {allowed}"),
    })
}

/// Up to a minute counts as absent, without a message (S3).
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

fn jobs(env: &Environment<'_>, name: &str) -> JobSettings {
    if env.text("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE").is_some() {
        env.add_notice(Notice::Info(
            "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE has no effect: nodes are cordoned and drained with refit's own image"
                .to_owned(),
        ));
    }
    let defaults = JobSettings::new(name, env.text("REFIT_IMAGE").unwrap_or_default());
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

/// Parses a value of `spec.apiAccess`.
fn api_access(value: &str) -> Result<ApiAccess, String> {
    let mut all = ApiAccess::ALL.iter().copied();
    all.find(|access| access.as_str() == value).ok_or_else(|| {
        let words: Vec<_> = ApiAccess::ALL.iter().map(|access| access.as_str()).collect();
        format!("must be one of {}", words.join(", "))
    })
}

/// Parses a bool; the error quotes the value.
fn boolean_said(value: &str) -> Result<bool, String> {
    parse_bool(value).map_err(|allowed| format!("{value:?} {allowed}"))
}
