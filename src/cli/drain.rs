//! `refit drain`: kubectl's flags, with kubectl's meaning.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

use std::process::ExitCode;

use clap::Args;

use super::cluster::{self, Connection, Nodes};
use crate::api::duration::GoDuration;
use crate::controller::settings::go_bool;
use crate::drain::Options;
use crate::drain::pods::Rules;

/// Arguments of `refit drain`.
#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    #[command(flatten)]
    nodes: Nodes,

    /// Only pods with these labels: a=b,c!=d,e in (f,g),!h
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true, allow_hyphen_values = true,
          value_parser = cluster::selector)]
    pod_selector: String,

    /// Leave pods of DaemonSets, which would be made again at once; without it they stop the drain
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, value_parser = go_bool)]
    ignore_daemonsets: bool,

    /// Evict pods with emptyDir volumes, whose data is lost; without it they stop the drain
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, value_parser = go_bool)]
    delete_emptydir_data: bool,

    /// Evict pods that nobody makes again; without it they stop the drain
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, value_parser = go_bool)]
    force: bool,

    /// Seconds that each pod is given to end; negative means what the pod itself says
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,

    /// How long to try before giving up, such as 90s or 1h30m; 0 means for ever
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        allow_hyphen_values = true
    )]
    timeout: GoDuration,

    /// Delete pods instead of evicting them. PodDisruptionBudgets are not asked then
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, value_parser = go_bool)]
    disable_eviction: bool,

    /// Do not wait for pods that should have been gone for so many seconds; 0 means wait
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    skip_wait_for_delete_timeout: i64,

    /// How many objects to list at a time; 0 means all
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 500,
        allow_negative_numbers = true
    )]
    chunk_size: i64,

    #[command(flatten)]
    connection: Connection,
}

impl Flags {
    fn options(&self) -> Options {
        Options {
            pod_selector: self.pod_selector.clone(),
            rules: Rules {
                ignore_daemon_sets: self.ignore_daemonsets,
                delete_empty_dir_data: self.delete_emptydir_data,
                force: self.force,
                skip_wait_for_delete: self.skip_wait_for_delete_timeout,
            },
            grace_period: match self.grace_period {
                ..0 => None,
                seconds => Some(u32::try_from(seconds).unwrap_or(u32::MAX)),
            },
            timeout: Some(self.timeout).filter(|timeout| *timeout != GoDuration::ZERO),
            disable_eviction: self.disable_eviction,
            chunk_size: u32::try_from(self.chunk_size.max(0)).unwrap_or(u32::MAX),
        }
    }
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (which, options) = (flags.nodes.which(), flags.options());
    cluster::run(flags.connection, &flags.nodes, async move |session| {
        session.drain(&which, &options).await
    })
}
