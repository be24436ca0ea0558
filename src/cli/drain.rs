//! `refit drain`: kubectl's flags, with kubectl's meaning.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

use std::process::ExitCode;

use clap::Args;

use super::cluster::{self, Connection, Nodes};
use crate::api::duration::GoDuration;
use crate::controller::settings::go_bool;
use crate::drain::pods::Rules;
use crate::drain::{Options, Which};

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
    /// The nodes that are meant.
    pub(super) fn which(&self) -> Which {
        self.nodes.which()
    }

    /// How they are drained.
    pub(super) fn options(&self) -> Options {
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

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (which, options) = (flags.nodes.which(), flags.options());
    cluster::run(&flags.connection, &flags.nodes, async move |session| {
        session.drain(&which, &options).await
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::drain::DryRun;

    #[derive(clap::Parser, Debug)]
    #[command(args_override_self = true)]
    struct Alone {
        #[command(flatten)]
        flags: Flags,
    }

    fn parse(args: &[&str]) -> Result<Flags, clap::Error> {
        Alone::try_parse_from(["drain"].iter().chain(args)).map(|alone| alone.flags)
    }

    fn options(args: &[&str]) -> Options {
        parse(&[&["one"], args].concat()).unwrap().options()
    }

    #[test]
    fn what_a_job_passes_is_understood() {
        let options = options(&[
            "--pod-selector",
            "!upgrade.cattle.io/controller,component notin (sonobuoy)",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
            "--timeout",
            "60ns",
            "--grace-period",
            "-1",
            "--disable-eviction=true",
            "--skip-wait-for-delete-timeout",
            "30",
        ]);
        assert_eq!(
            options.pod_selector,
            "!upgrade.cattle.io/controller,component notin (sonobuoy)"
        );
        let rules = options.rules;
        assert!(rules.ignore_daemon_sets && rules.delete_empty_dir_data && rules.force);
        assert_eq!(rules.skip_wait_for_delete, 30);
        assert_eq!(options.timeout, Some(GoDuration::from_nanos(60)));
        assert_eq!(options.grace_period, None, "each pod's own");
        assert!(options.disable_eviction);
    }

    #[test]
    fn defaults_are_kubectls() {
        let options = options(&[]);
        assert_eq!(options.pod_selector, "");
        let rules = options.rules;
        assert!(!rules.ignore_daemon_sets && !rules.delete_empty_dir_data && !rules.force);
        assert_eq!((options.grace_period, options.timeout), (None, None));
        assert_eq!((rules.skip_wait_for_delete, options.chunk_size), (0, 500));
        assert!(!options.disable_eviction);
    }

    #[test]
    fn values_are_read_as_go_reads_them_and_the_last_one_counts() {
        assert_eq!(options(&["--grace-period=0"]).grace_period, Some(0));
        assert_eq!(
            options(&["--grace-period", "1", "--grace-period=2"]).grace_period,
            Some(2)
        );
        assert!(!options(&["--force", "--force=F"]).rules.force);
        let hour = GoDuration::from_nanos(5_400_000_000_000);
        assert_eq!(options(&["--timeout=1h30m"]).timeout, Some(hour));
        assert_eq!(options(&["--timeout", "0"]).timeout, None);
        assert!(
            options(&["--timeout", "-1s"])
                .timeout
                .is_some_and(GoDuration::is_negative),
            "over at once"
        );
        assert_eq!(options(&["--chunk-size=0"]).chunk_size, 0);
        for wrong in [
            "--timeout=60",
            "--grace-period=x",
            "--pod-selector=a b",
            "--force=maybe",
            "--dry-run=yes",
        ] {
            let error = parse(&["one", wrong]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn nodes_are_named_or_selected() {
        let which = |args: &[&str]| parse(args).map(|flags| flags.nodes.which());
        assert!(matches!(which(&["one", "node/two"]), Ok(Which::Names(names)) if names == ["one", "two"]));
        assert!(matches!(which(&["-l", "a=b,!c"]), Ok(Which::Selector(text)) if text == "a=b,!c"));
        assert!(which(&[]).is_err());
        assert!(which(&["one", "--selector=a"]).is_err());
    }

    #[test]
    fn a_dry_run_is_of_three_kinds() {
        let dry_run = |arg: &str| parse(&["one", arg]).unwrap().nodes.dry_run;
        assert_eq!(parse(&["one"]).unwrap().nodes.dry_run, DryRun::None);
        for (arg, expected) in [
            ("--dry-run", DryRun::Client),
            ("--dry-run=client", DryRun::Client),
            ("--dry-run=true", DryRun::Client),
            ("--dry-run=server", DryRun::Server),
            ("--dry-run=none", DryRun::None),
            ("--dry-run=false", DryRun::None),
        ] {
            assert_eq!(dry_run(arg), expected, "{arg}");
        }
    }
}
