//! The controller's flags, and how their values are read. A flag's variable is read by the same rules.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::api::duration::GoDuration;

/// Flags of the controller: those of system-upgrade-controller (S2), and refit's own.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Options that system-upgrade-controller has too")]
pub struct Flags {
    /// Name of this controller: its Lease, the label of its Jobs, the source of its Events. Required.
    /// [env: SYSTEM_UPGRADE_CONTROLLER_NAME]
    #[arg(long)]
    pub name: Option<String>,

    /// The only namespace whose Plans are carried out. Required. [env: SYSTEM_UPGRADE_CONTROLLER_NAMESPACE]
    #[arg(long)]
    pub namespace: Option<String>,

    /// Node that this controller runs on [env: SYSTEM_UPGRADE_CONTROLLER_NODE_NAME] [default: the host name]
    #[arg(long)]
    pub node_name: Option<String>,

    /// Lead only while holding the Lease, so that several replicas can run
    /// [env: SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT] [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub leader_elect: Option<bool>,

    /// How many workers carry out work side by side [env: SYSTEM_UPGRADE_CONTROLLER_THREADS] [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = threads)]
    pub threads: Option<usize>,

    /// Kubeconfig file [env: SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG] [default: the pod's service account, or outside
    /// of a pod $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the API server, in place of the kubeconfig's; alone, without credentials
    /// [env: SYSTEM_UPGRADE_CONTROLLER_MASTER_URL]
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// Log in more detail [env: SYSTEM_UPGRADE_CONTROLLER_DEBUG] [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub debug: Option<bool>,

    /// Ignored, as it is by system-upgrade-controller.
    #[arg(long, hide = true)]
    pub service_account: Option<String>,

    /// Create the CRD of the Plan, and update it when it differs; false leaves that to whoever installs it
    /// [env: REFIT_MANAGE_CRD] [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool, help_heading = OWN)]
    pub manage_crd: Option<bool>,

    /// PEM file of certificate authorities to trust for channels beside the public ones. May be repeated
    /// [env: REFIT_CA_FILE, several with ':' between them]
    #[arg(long, value_name = "FILE", help_heading = OWN)]
    pub ca_file: Vec<PathBuf>,

    /// What the log looks like [env: REFIT_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = OWN)]
    pub log_format: Option<LogFormat>,

    /// Who this process is in the leader election. No two processes may have the same
    /// [env: REFIT_IDENTITY] [default: the host name, with $POD_UID where that is set]
    #[arg(long, help_heading = OWN)]
    pub identity: Option<String>,

    /// How long a replica waits on a leader that does not renew its Lease before it takes over
    /// [env: CATTLE_ELECTION_LEASE_DURATION] [default: 45s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration, help_heading = OWN)]
    pub lease_duration: Option<Duration>,

    /// How long a leader leads after its last renewal; less than --lease-duration
    /// [env: CATTLE_ELECTION_RENEW_DEADLINE] [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration, help_heading = OWN)]
    pub renew_deadline: Option<Duration>,

    /// Wait between two tries to get or renew the Lease; 1.2 times it is less than --renew-deadline
    /// [env: CATTLE_ELECTION_RETRY_PERIOD] [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration, help_heading = OWN)]
    pub retry_period: Option<Duration>,
}

const OWN: &str = "Options of refit";

/// What the log looks like.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// A bool as Go's `strconv.ParseBool` reads it.
pub(crate) fn go_bool(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("must be true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)".to_owned()),
    }
}

/// A duration as Go's `time.ParseDuration` reads it, not negative.
pub(super) fn go_duration(value: &str) -> Result<Duration, String> {
    let duration =
        GoDuration::from_str(value).map_err(|_| "must be a duration such as 45s or 1m30s".to_owned())?;
    duration.to_std().ok_or_else(|| "must not be negative".to_owned())
}

pub(super) fn threads(value: &str) -> Result<usize, String> {
    value
        .parse()
        .ok()
        .filter(|threads| (1..=1000).contains(threads))
        .ok_or_else(|| "must be a whole number from 1 to 1000".to_owned())
}

pub(super) fn log_format(value: &str) -> Result<LogFormat, String> {
    LogFormat::from_str(value, false).map_err(|_| "must be text or json".to_owned())
}
