//! The arguments of `refit cordon` and `refit drain`, with kubectl's names and meaning. The command line and the
//! simulated containers of a rehearsal both parse them here.

#![expect(clippy::doc_markdown, reason = "the comments are what --help prints")]

use clap::{Arg, Args, Parser, ValueEnum};

use super::options::{NodeSelection, Options};
use super::pods::Rules;
use refit_api::selector::Selector;
use refit_api::{AfterTimeout, WaitFor};
use refit_base::go::{GoDuration, parse_bool};

#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Names of nodes
    #[arg(
        value_name = "NODE",
        required_unless_present = "selector",
        conflicts_with = "selector"
    )]
    names: Vec<String>,

    /// Nodes with these labels, instead of names: a=b,c!=d,e in (f,g),!h
    #[arg(short = 'l', long, allow_hyphen_values = true, value_parser = selector)]
    selector: Option<String>,
}

impl NodeArgs {
    /// The names of the nodes. Like kubectl, this accepts `node/one` for the node `one`.
    pub fn which(&self) -> NodeSelection {
        let name = |name: &String| match name.split_once('/') {
            Some(("node" | "nodes" | "no", name)) => name.to_owned(),
            _ => name.clone(),
        };
        match &self.selector {
            Some(selector) => NodeSelection::Selector(selector.clone()),
            None => NodeSelection::Names(self.names.iter().map(name).collect()),
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct TimeoutArg {
    /// How long to try before giving up, such as 90s or 1h30m; 0 means no limit
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        allow_hyphen_values = true
    )]
    timeout: GoDuration,
}

impl TimeoutArg {
    /// As in kubectl, 0 means no limit, and a negative timeout is over at once.
    pub fn limit(&self) -> Option<GoDuration> {
        Some(self.timeout).filter(|timeout| *timeout != GoDuration::ZERO)
    }
}

/// Has a flag whose value is a `BOOL` be parsed as by pflag: `--force` alone means true, and a value needs `=`. Otherwise
/// `--force NODE` would take the name of the node as the value.
pub fn pflag_bool(arg: Arg) -> Arg {
    if arg.get_value_names().is_none_or(|names| names != ["BOOL"]) {
        return arg;
    }
    arg.num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .hide_default_value(true)
        .value_parser(parse_bool)
}

#[derive(Args, Clone, Debug)]
#[command(mut_args(pflag_bool))]
pub struct DrainArgs {
    /// Only pods with these labels: a=b,c!=d,e in (f,g),!h
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true, allow_hyphen_values = true,
          value_parser = selector)]
    pod_selector: String,

    /// Leave pods of DaemonSets, which their controller would recreate at once; without this flag they prevent the
    /// drain
    #[arg(long, value_name = "BOOL")]
    ignore_daemonsets: bool,

    /// Evict pods with emptyDir volumes, which deletes their data; without this flag they prevent the drain
    #[arg(long, value_name = "BOOL")]
    delete_emptydir_data: bool,

    /// Evict pods without a controller, which nothing recreates; without this flag they prevent the drain
    #[arg(long, value_name = "BOOL")]
    force: bool,

    /// Grace period in seconds for each pod; negative means the pod's own
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,

    #[command(flatten)]
    timeout: TimeoutArg,

    /// Delete pods instead of evicting them, whatever PodDisruptionBudgets allow
    #[arg(long, value_name = "BOOL")]
    disable_eviction: bool,

    /// Do not wait for pods that have been terminating for longer than this many seconds; 0 means wait
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    skip_wait_for_delete_timeout: i64,

    /// Wait until the volumes of the evicted pods are detached from the node (kubectl has no such flag)
    #[arg(long, value_name = "BOOL")]
    wait_for_detach: bool,

    /// Pods with these labels are evicted after all others; repeated, group after group (kubectl has no such flag)
    #[arg(long, value_name = "SELECTOR", allow_hyphen_values = true, value_parser = parsed_selector)]
    evict_last: Vec<Selector>,

    /// Once the node is cordoned, wait until such pods have succeeded, failed or are gone, and only then evict pods, in the
    /// form 'app=runner;timeout=30m', where timeout is more than 0s. What happens after that time: ';after=evict' (default)
    /// evicts them like others, ';after=skip' releases the node as it was and exits with 77, ';after=fail' fails with 75.
    /// ';namespace=NAME' limits it to a namespace. Repeated: all at the same time, before --timeout begins (kubectl has no
    /// such flag)
    #[arg(long, value_name = "PODS", allow_hyphen_values = true, value_parser = wait_for)]
    wait_for: Vec<WaitFor>,

    /// Time between the cordon and the first eviction, before --timeout begins (kubectl has no such flag)
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        hide_default_value = true
    )]
    load_balancer_delay: GoDuration,

    /// Time to wait once the node is drained (kubectl has no such flag)
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        hide_default_value = true
    )]
    settle_delay: GoDuration,

    /// What to do with pods that could not be evicted within --timeout: fail; delete them, whatever
    /// PodDisruptionBudgets allow, and wait for as long again; or continue without them (kubectl has no such flag)
    #[arg(long, value_name = "ACTION", value_enum, default_value = "fail")]
    after_timeout: After,

    /// Set the condition DrainInProgress of the node, and Drained at the end, which `refit uncordon` removes; needs `patch`
    /// on `nodes/status` (kubectl has no such flag)
    #[arg(long, value_name = "BOOL")]
    conditions: bool,

    /// How many objects to list at a time; 0 means all
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 500,
        allow_negative_numbers = true
    )]
    chunk_size: i64,
}

impl DrainArgs {
    pub fn options(&self) -> Options {
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
            timeout: self.timeout.limit(),
            disable_eviction: self.disable_eviction,
            wait_for_detach: self.wait_for_detach,
            evict_last: self.evict_last.clone(),
            wait_for: self.wait_for.clone(),
            load_balancer_delay: self.load_balancer_delay,
            settle_delay: self.settle_delay,
            after_timeout: match self.after_timeout {
                After::Fail => AfterTimeout::Fail,
                After::Delete => AfterTimeout::Delete,
                After::Continue => AfterTimeout::Continue,
            },
            conditions: self.conditions,
            chunk_size: u32::try_from(self.chunk_size.max(0)).unwrap_or(u32::MAX),
        }
    }
}

/// Values of `--after-timeout`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum After {
    Fail,
    Delete,
    Continue,
}

fn selector(value: &str) -> Result<String, String> {
    parsed_selector(value).map(|_| value.to_owned())
}

fn wait_for(value: &str) -> Result<WaitFor, String> {
    value.parse()
}

fn parsed_selector(value: &str) -> Result<Selector, String> {
    let parsed: Result<Selector, _> = value.parse();
    parsed.map_err(|error| format!("must be a valid label selector: {error}"))
}

#[derive(Debug)]
pub enum OnNode {
    Cordon(NodeSelection),
    Drain(NodeSelection, Options),
}

/// Parses the arguments of such a container.
///
/// # Errors
/// Fails if they are not arguments of `refit cordon` or `refit drain`.
pub fn on_node(args: &[String]) -> Result<OnNode, clap::Error> {
    let args = std::iter::once("refit").chain(args.iter().map(String::as_str));
    Ok(match InContainer::try_parse_from(args)? {
        InContainer::Cordon { nodes } => OnNode::Cordon(nodes.which()),
        InContainer::Drain { nodes, drain } => OnNode::Drain(nodes.which(), drain.options()),
    })
}

/// Only the commands of such containers, because building the whole command line takes longer than a rehearsed
/// `cordon`.
#[derive(Parser)]
#[command(name = "refit")]
enum InContainer {
    Cordon {
        #[command(flatten)]
        nodes: NodeArgs,
    },
    Drain {
        #[command(flatten)]
        nodes: NodeArgs,
        #[command(flatten)]
        drain: DrainArgs,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug)]
    #[command(args_override_self = true)]
    struct Alone {
        #[command(flatten)]
        nodes: NodeArgs,
        #[command(flatten)]
        drain: DrainArgs,
    }

    fn parse(args: &[&str]) -> Result<Alone, clap::Error> {
        Alone::try_parse_from(["drain"].iter().chain(args))
    }

    fn options(args: &[&str]) -> Options {
        parse(&[&["one"], args].concat()).unwrap().drain.options()
    }

    #[test]
    fn the_arguments_that_a_job_passes_are_understood() {
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
            "--load-balancer-delay=1m",
            "--settle-delay=5s",
            "--after-timeout=continue",
            "--evict-last=app=rook-ceph-mon",
            "--evict-last=app in (rook-ceph-osd)",
            "--wait-for=app in (a,b);timeout=30m;after=skip;namespace=ci",
        ]);
        let waits: Vec<_> = options.wait_for.iter().map(ToString::to_string).collect();
        assert_eq!(waits, ["app in (a,b);timeout=30m0s;after=skip;namespace=ci"]);
        let seconds = |seconds: i64| GoDuration::from_nanos(seconds * 1_000_000_000);
        assert_eq!(
            (options.load_balancer_delay, options.settle_delay),
            (seconds(60), seconds(5))
        );
        assert_eq!(options.after_timeout, AfterTimeout::Continue);
        let last: Vec<_> = options.evict_last.iter().map(ToString::to_string).collect();
        assert_eq!(last, ["app=rook-ceph-mon", "app in (rook-ceph-osd)"]);
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
        ] {
            let error = parse(&["one", wrong]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn nodes_are_named_or_selected() {
        let which = |args: &[&str]| parse(args).map(|alone| alone.nodes.which());
        assert!(
            matches!(which(&["one", "node/two"]), Ok(NodeSelection::Names(names)) if names == ["one", "two"])
        );
        assert!(matches!(which(&["-l", "a=b,!c"]), Ok(NodeSelection::Selector(text)) if text == "a=b,!c"));
        assert!(which(&[]).is_err());
        assert!(which(&["one", "--selector=a"]).is_err());
    }
}
