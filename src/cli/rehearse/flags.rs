//! The arguments of `refit rehearse`.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

use std::path::PathBuf;

use clap::Args;
use jiff::{SignedDuration, Timestamp};

use crate::cli::channel_access::ChannelFlags;
use crate::cli::cluster::Connection;
use crate::cli::output_format::{OutputFormat, any_of};
use refit_rehearse::assumptions::{Fail, Span};
use refit_rehearse::fault::Fault;
use refit_rehearse::nodes::is_kubelet_version;

/// Well above the 5,000 nodes that Kubernetes supports.
const MAX_NODES: usize = 20_000;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct Flags {
    /// Files, folders, patterns, or - for standard input. Not needed with --snapshot, which contains Plans
    #[arg(value_name = "PLAN", required_unless_present_any = ["snapshot", "compare"])]
    pub(super) files: Vec<String>,

    /// Generate this many nodes, with labels that the Plans select, and workloads [default: 12]
    #[arg(long, value_name = "NUMBER", conflicts_with = "snapshot", value_parser = node_count)]
    pub(super) nodes: Option<usize>,

    /// Cluster to start from: a file with what `kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml` prints (or -o
    /// json), - for standard input, or the word "context" to read it from the current context
    #[arg(long, value_name = "FILE|-|context")]
    pub(super) snapshot: Option<String>,

    /// Only the Plan of this name, such as k3s-server or system-upgrade/k3s-server. May be repeated
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(super) plan: Vec<String>,

    /// Namespace of the controller, which ignores Plans in others [default: that of the Plans]
    #[arg(long, short = 'n', value_name = "NAME")]
    pub(super) namespace: Option<String>,

    /// ConfigMap with the controller's environment variables [default: that of the manifests]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Rehearse two states of the Plans on the same assumptions, and print what differs: duration, order, waits, failures
    #[arg(long, value_names = ["OLD", "NEW"], num_args = 2, conflicts_with = "files")]
    pub(super) compare: Vec<String>,

    /// Also write the timeline to this file, as a page that any browser shows without a network
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,

    /// Print clock times in the time zone of the Plans' windows (UTC where there is none), and not times since the start
    #[arg(long)]
    pub(super) times: bool,

    /// Print only the result
    #[arg(long, short = 'q')]
    pub(super) quiet: bool,

    /// Format of the result
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json]))]
    pub(super) output: OutputFormat,

    #[command(flatten)]
    pub(super) assumed: Assumed,

    #[command(flatten)]
    pub(super) connection: Connection,

    #[command(flatten)]
    pub(super) channels: ChannelFlags,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Assumptions")]
pub(in crate::cli) struct Assumed {
    /// How long `prepare` runs after the Plan that it waits for is complete
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(super) prepare: Span,

    /// How long an evicted pod takes to terminate; its grace period is the limit
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub(super) drain: Span,

    /// How long `upgrade` takes; for a given seed always the same on a node
    #[arg(long, value_name = "TIME", default_value = "2m..5m")]
    pub(super) upgrade: Span,

    /// How long a node takes to reboot
    #[arg(long, value_name = "TIME", default_value = "2m..4m")]
    pub(super) reboot: Span,

    /// How long a pod takes to start
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(super) pod_start: Span,

    /// How long the containers of `before` and `after` take
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(super) hook: Span,

    /// Nodes whose upgrade fails: names, or a share such as 5%. Or the word before or after: that container fails. May be
    /// repeated or comma-separated
    #[arg(long, value_name = "NODE|SHARE|before|after", value_delimiter = ',')]
    pub(super) fail: Vec<Fail>,

    /// What goes wrong on one node: away (it does not come back from its reboot), reboot (it stays in its boot), prepare or drain
    /// (it fails), late or late=TIME (the node joins the cluster so long after the start; 10m without a time). May be repeated
    /// or comma-separated
    #[arg(long, value_name = "NODE:FAULT", value_delimiter = ',')]
    pub(super) fault: Vec<Fault>,

    /// Check that fails, and for how long from the start; without a time, always. May be repeated or comma-separated
    #[arg(long, value_name = "CHECK[=TIME]", value_delimiter = ',', value_parser = failing_check)]
    pub(super) fail_check: Vec<(String, Option<SignedDuration>)>,

    /// Seed of the random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,

    /// When the controller starts: 2026-03-06T22:00:00Z, 2026-03-06T22:00 (UTC), 2026-03-06, or "now"
    /// [default: the newest time in the snapshot; without one, 2026-01-05T09:00:00Z, a Monday]
    #[arg(long, value_name = "TIME", value_parser = start)]
    pub(super) start: Option<Start>,

    /// Maximum simulated time
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub(super) limit: u16,

    /// Kubernetes version of generated nodes before their upgrade, such as v1.32.4 or v1.32.4+k3s1 [default: one from
    /// which the Plans skip no minor version]
    #[arg(long, value_name = "VERSION", conflicts_with = "snapshot", value_parser = kubelet)]
    pub(super) kubelet: Option<String>,

    /// Version that channels give [default: the Plan's version in the snapshot; otherwise v1.34.1, unless the name of
    /// the channel, the range of the Plan or a newer kubelet needs another one]
    #[arg(long, value_name = "VERSION", conflicts_with = "online")]
    pub(super) version: Option<String>,

    /// Query the channels for their versions
    #[arg(long)]
    pub(super) online: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    At(Timestamp),
}

fn start(text: &str) -> Result<Start, String> {
    if text == "now" {
        return Ok(Start::Now);
    }
    let wrong =
        || "write a time such as 2026-03-06T22:00:00Z, 2026-03-06T22:00 (UTC), 2026-03-06, or now".to_owned();
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Start::At(at));
    }
    let civil: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
    Ok(Start::At(zoned.timestamp()))
}

fn kubelet(text: &str) -> Result<String, String> {
    if is_kubelet_version(text) {
        Ok(text.to_owned())
    } else {
        Err("write a version of Kubernetes such as v1.32.4 or v1.32.4+k3s1".to_owned())
    }
}

fn failing_check(text: &str) -> Result<(String, Option<SignedDuration>), String> {
    let Some((name, time)) = text.split_once('=') else {
        return Ok((text.to_owned(), None));
    };
    let time = time.parse::<Span>().map_err(|error| error.to_string())?;
    Ok((name.to_owned(), Some(time.most())))
}

fn node_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_NODES).contains(count));
    count.ok_or_else(|| format!("must be a number from 1 to {MAX_NODES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_time_of_any_usual_form() {
        let at = |text: &str| text.parse::<Timestamp>().map(Start::At).unwrap();
        for (text, same) in [
            ("2026-03-06T22:00:00Z", "2026-03-06T22:00:00Z"),
            ("2026-03-06T22:00:00+01:00", "2026-03-06T21:00:00Z"),
            ("2026-03-06T22:00", "2026-03-06T22:00:00Z"),
            ("2026-03-06", "2026-03-06T00:00:00Z"),
        ] {
            assert_eq!(start(text), Ok(at(same)), "{text}");
        }
        assert_eq!(start("now"), Ok(Start::Now));
        for wrong in ["tomorrow", "22:00", "2026-13-01", ""] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_of_nodes_is_one_that_a_cluster_has() {
        assert_eq!(node_count("12"), Ok(12));
        for wrong in ["0", "-1", "many", "100000"] {
            assert_eq!(
                node_count(wrong),
                Err("must be a number from 1 to 20000".to_owned()),
                "{wrong}"
            );
        }
    }
}
