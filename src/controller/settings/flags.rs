//! The controller's flags and the parsers of their values, which environment variables share.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::server::BindAddress;
use crate::telemetry::LogFormat;
use refit_base::go::GoDuration;
use refit_channel::HostPattern;
use refit_cluster::drain::flags::pflag_bool;

/// Flags of system-upgrade-controller (S2), and refit's own.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(
    next_help_heading = "Options that system-upgrade-controller has too",
    mut_args(pflag_bool)
)]
pub struct Flags {
    /// Name of this controller: its Lease, the label of its Jobs, the source of its Events. Required.
    /// [env: SYSTEM_UPGRADE_CONTROLLER_NAME]
    #[arg(long)]
    pub name: Option<String>,

    /// Namespace of the Plans that the controller handles. Required. [env: SYSTEM_UPGRADE_CONTROLLER_NAMESPACE]
    #[arg(long)]
    pub namespace: Option<String>,

    /// Node that this controller runs on [env: SYSTEM_UPGRADE_CONTROLLER_NODE_NAME] [default: the host name]
    #[arg(long)]
    pub node_name: Option<String>,

    /// Lead only while holding the Lease, so that several replicas can run
    /// [env: SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT] [default: false]
    #[arg(long, value_name = "BOOL")]
    pub leader_elect: Option<bool>,

    /// Accepted and ignored. In system-upgrade-controller it is the number of workers per kind of object; refit has one
    /// loop [env: SYSTEM_UPGRADE_CONTROLLER_THREADS]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = threads)]
    pub threads: Option<i64>,

    /// Kubeconfig file [env: SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG] [default: the pod's service account, or outside
    /// of a pod $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the API server, instead of the one in the kubeconfig; without a kubeconfig, no credentials are sent
    /// [env: SYSTEM_UPGRADE_CONTROLLER_MASTER_URL]
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// Log in more detail [env: SYSTEM_UPGRADE_CONTROLLER_DEBUG] [default: false]
    #[arg(long, value_name = "BOOL")]
    pub debug: Option<bool>,

    /// Accepted and ignored, as in system-upgrade-controller.
    #[arg(long, hide = true)]
    pub service_account: Option<String>,

    /// Create the CRD of the Plan, and update it when it differs; with false, install the CRD yourself [env:
    /// REFIT_MANAGE_CRD] [default: true]
    #[arg(long, value_name = "BOOL", help_heading = OWN)]
    pub manage_crd: Option<bool>,

    /// PEM file of certificate authorities to trust for channels in addition to the public ones. May be repeated [env:
    /// REFIT_CA_FILE, separated by ':']
    #[arg(long, value_name = "FILE", help_heading = OWN)]
    pub ca_file: Vec<PathBuf>,

    /// Host that channels and their redirects may point to, such as update.k3s.io or *.example.com, and no other. May
    /// be repeated [env: REFIT_CHANNEL_HOST, separated by ','] [default: all except for link-local addresses and
    /// metadata services of clouds]
    #[arg(long, value_name = "HOST", help_heading = OWN)]
    pub channel_host: Vec<HostPattern>,

    /// Format of the log [env: REFIT_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = OWN)]
    pub log_format: Option<LogFormat>,

    /// Identity in the leader election, unique for each process [env: REFIT_IDENTITY] [default: the host name, and
    /// $POD_UID if it is set]
    #[arg(long, help_heading = OWN)]
    pub identity: Option<String>,

    /// Duration without a renewal of the Lease after which another replica takes over [env:
    /// CATTLE_ELECTION_LEASE_DURATION] [default: 45s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration, help_heading = OWN)]
    pub lease_duration: Option<Duration>,

    /// Duration without a renewal after which the leader stops leading; less than --lease-duration [env:
    /// CATTLE_ELECTION_RENEW_DEADLINE] [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration, help_heading = OWN)]
    pub renew_deadline: Option<Duration>,

    /// Interval of attempts to acquire or renew the Lease; 1.2 times it is less than --renew-deadline [env:
    /// CATTLE_ELECTION_RETRY_PERIOD] [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration, help_heading = OWN)]
    pub retry_period: Option<Duration>,

    /// Address of /livez, /readyz and /metrics, such as :8080 or 127.0.0.1:8080, or 0 for none [env:
    /// REFIT_METRICS_BIND_ADDRESS] [default: :8080, if that is free]
    #[arg(long, value_name = "ADDRESS", value_parser = metrics_address, help_heading = OWN)]
    pub metrics_bind_address: Option<MetricsAddress>,

    /// PEM file of the certificate that this address is served with; read again when it changes [env:
    /// REFIT_METRICS_CERT_FILE] [default: none, plain HTTP]
    #[arg(long, value_name = "FILE", help_heading = OWN)]
    pub metrics_cert_file: Option<PathBuf>,

    /// PEM file of the certificate's key [env: REFIT_METRICS_KEY_FILE]
    #[arg(long, value_name = "FILE", help_heading = OWN)]
    pub metrics_key_file: Option<PathBuf>,

    /// Serve /metrics only to accounts of the cluster that may get it, by TokenReview and SubjectAccessReview; needs
    /// the certificate, and the ClusterRole system:auth-delegator [env: REFIT_METRICS_SECURE] [default: false]
    #[arg(long, value_name = "BOOL", help_heading = OWN)]
    pub metrics_secure: Option<bool>,

    /// Before a node is cordoned, look whether its drain would end, and else leave it and start the next one; Plans may
    /// differ (spec.drain.checkFirst). Needs the overlay deploy/overlays/check-drains [env: REFIT_CHECK_DRAINS]
    /// [default: false]
    #[arg(long, value_name = "BOOL", help_heading = OWN)]
    pub check_drains: Option<bool>,

    /// Write lifecycle conditions (KEP-5683) on nodes that a Plan works on or takes next: MaintenancePlanned,
    /// DrainInProgress, Drained, MaintenanceInProgress; needs the overlay deploy/overlays/node-conditions [env:
    /// REFIT_NODE_CONDITIONS] [default: false]
    #[arg(long, value_name = "BOOL", help_heading = OWN)]
    pub node_conditions: Option<bool>,

    /// Other objects than Plans to handle, separated by commas: `maintenance` (NodeMaintenance of
    /// node-maintenance-operator; needs the overlay deploy/overlays/maintenance), `nodeops` (NodeOp and NodeOpUpgrade
    /// of kairos-operator; deploy/overlays/nodeops). `reboots` is accepted: Plans with a trigger need no switch [env:
    /// REFIT_ENABLE] [default: none]
    #[arg(long, value_name = "OBJECTS", value_delimiter = ',', help_heading = OWN)]
    pub enable: Vec<FrontEndName>,
}

/// Other objects than Plans that the controller handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FrontEndName {
    /// Plans that nodes request, which need no switch.
    Reboots,
    /// `NodeMaintenance`.
    Maintenance,
    /// `NodeOp` and `NodeOpUpgrade`.
    Nodeops,
}

pub(super) fn front_ends(value: &str) -> Result<Vec<FrontEndName>, String> {
    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
    let parsed = names.map(|name| FrontEndName::from_str(name, false));
    parsed
        .collect::<Result<_, _>>()
        .map_err(|_| "must be `maintenance`, `nodeops`, both, separated by a comma, or empty".to_owned())
}

/// The value of `--metrics-bind-address`: none means that nothing is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub Option<BindAddress>);

pub(super) fn metrics_address(value: &str) -> Result<MetricsAddress, String> {
    if value == "0" {
        return Ok(MetricsAddress(None));
    }
    value.parse().map(|address| MetricsAddress(Some(address)))
}

const OWN: &str = "Options of refit";

/// A non-negative duration in the syntax of Go's `time.ParseDuration`.
pub(super) fn go_duration(value: &str) -> Result<Duration, String> {
    let duration =
        GoDuration::from_str(value).map_err(|_| "must be a duration such as 45s or 1m30s".to_owned())?;
    duration.to_std().ok_or_else(|| "must not be negative".to_owned())
}

/// Any number that system-upgrade-controller accepts. It is ignored.
pub(super) fn threads(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| "must be a whole number".to_owned())
}

pub(super) fn log_format(value: &str) -> Result<LogFormat, String> {
    LogFormat::from_str(value, false).map_err(|_| "must be text or json".to_owned())
}
