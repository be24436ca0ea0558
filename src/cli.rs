//! The command line. Without a command refit is the controller, so that it can be started as
//! system-upgrade-controller is: without arguments, by its environment, under that name.

mod ask;
mod cluster;
mod completion;
mod controller;
mod cordon;
mod crd;
mod drain;
mod host;
pub mod output;
mod pin;
mod probe;
mod reboot;
mod rehearse;
mod render;
mod resolve;
mod sentinel;
#[cfg(test)]
mod tests;
mod validate;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};

use crate::controller::settings::Flags;
use crate::drain::{Options, Which};

/// The program was not called as it can be.
const USAGE: u8 = 2;
/// Commands that end as kubectl's of the same name do, with 1 for whatever is wrong.
const AS_KUBECTL: [&str; 3] = ["cordon", "uncordon", "drain"];

/// Upgrades the nodes of a Kubernetes cluster, a few at a time, as a Plan says.
///
/// Without a command, and under the name system-upgrade-controller, refit is the controller. Its options are those of
/// `refit controller`; each of them is an environment variable as well, and the flag counts where both are set.
#[derive(Parser, Debug)]
#[command(
    name = "refit",
    version,
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    flags: Flags,

    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, action = ArgAction::Version, help_heading = None)]
    version: (),

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the controller, which is what refit does without a command
    ///
    /// Ends with 0 on SIGTERM or SIGINT, with 1 when it cannot work (the leadership is lost, the cluster cannot be
    /// reached at the start), and with 2 when flags or environment are wrong.
    Controller(Box<Flags>),
    /// Make nodes unschedulable, as kubectl cordon does
    ///
    /// Ends with 0 when all nodes are cordoned, and with 1 when one is not or the arguments are wrong.
    Cordon(cordon::Flags),
    /// Make nodes schedulable again, as kubectl uncordon does
    ///
    /// A node that refit cordoned for a Plan is no longer held by it then. Ends with 0 when all nodes are schedulable, and
    /// with 1 when one is not or the arguments are wrong.
    Uncordon(cordon::Flags),
    /// Cordon nodes and evict their pods, as kubectl drain does
    ///
    /// Pods are found first, and what stops a drain is said before the node is cordoned: pods of DaemonSets, pods with local
    /// data and pods that nobody makes again each need their flag; static pods stay. Then all are evicted, and waited for.
    ///
    /// A pod that a PodDisruptionBudget does not let go is tried again every 5 seconds until --timeout; which pod waits for
    /// which budget since when is told on standard error.
    ///
    /// Ends with 0 when all pods are gone, with 1 when one is not or the arguments are wrong, and on SIGTERM with 143; the
    /// last line says what was evicted and what was not.
    #[command(args_override_self = true)]
    Drain(drain::Flags),
    /// Find every mistake in Plan files, offline
    ///
    /// Says what the API server and the controller would refuse, and what is suspicious: each with file, line, column, a rule
    /// and a hint. Files are YAML or JSON with any number of documents; a folder means the .yaml, .yml and .json files below
    /// it, and - standard input. What is no Plan is passed over.
    ///
    /// Ends with 0 when there is neither error nor warning, with 1 when there is one, and with 2 when a file cannot be read or
    /// the arguments are wrong. Notes do not count.
    #[command(after_help = validate::EXAMPLES)]
    Validate(validate::Flags),
    /// Write the version that a Plan's channel gives into its file
    ///
    /// Sets `spec.version` of each Plan that has a `channel`, and changes no other byte: comments, quotes, indentation and
    /// line ends stay. A file is replaced whole or not at all, and only by one that says the same otherwise.
    ///
    /// Ends with 0 when all is written or up to date, with 1 when --check finds a Plan that is behind, and with 2 when a file
    /// cannot be read or written, a channel gives no version, or the arguments are wrong.
    #[command(after_help = pin::EXAMPLES)]
    Pin(pin::Flags),
    /// Print the Job that the controller would make for a Plan on a node, and the Pod that would reboot it
    ///
    /// The controller's environment variables (`SYSTEM_UPGRADE_JOB_`…, `REFIT_IMAGE`) count here as there; --config takes them
    /// from its `ConfigMap`. What only a cluster knows (UIDs, secrets) is read with --live, and otherwise from the files, or assumed,
    /// which is said on standard error.
    ///
    /// Ends with 0 when a Job is printed for each Plan, with 1 when there is none for one of them, and with 2 when a file cannot
    /// be read or the arguments are wrong.
    #[command(after_help = render::EXAMPLES)]
    Render(render::Flags),
    /// Play a roll-out in this process, in seconds: which node when, what would wait for what, and whether it would end
    ///
    /// Runs the controller itself, unchanged, against a cluster that is made up, or that is as a snapshot says, in a time of its
    /// own. Nothing is written anywhere, and no cluster is needed. Files are read as `refit validate` reads them; Secrets,
    /// `PodDisruptionBudget`s and Deployments among them count.
    ///
    /// What a rehearsal takes for granted (how long things take, what a channel gives, which nodes there are) is said on
    /// standard error. The same arguments give the same result, byte for byte.
    ///
    /// Ends with 0 when all Plans would be complete, with 1 when one would stall or fail, and with 2 when a file cannot be read,
    /// a Plan would be refused, or the arguments are wrong. The last line says which, and why.
    #[command(after_help = rehearse::EXAMPLES)]
    Rehearse(Box<rehearse::Flags>),
    /// Look whether this node could be rebooted, and the reboot be proven; the first container of a Job that may reboot
    ///
    /// Looks on the host for the boot ID, for a place for the sentinel in /run, and for the program of the command. Nothing is
    /// left behind but the folder of the sentinels.
    ///
    /// Ends with 0 when all is there, with 1 when something is missing, all of which is said at once, and with 2 when the
    /// arguments are wrong.
    Probe(probe::Flags),
    /// Note on this node that its upgrade has succeeded; the last container of a Job that may reboot
    ///
    /// Writes /run/refit/NAME on the host, and says in its termination message and on standard output, as JSON, in which boot
    /// that was and whether the host has to reboot: {"bootId":"...","required":true}. The file is gone after a reboot, since
    /// /run is. Ends with 0 when all that is done, with 1 when it is not, and with 2 when the arguments are wrong.
    Sentinel(sentinel::Flags),
    /// Reboot this node, once, however often it is asked to; what the reboot pod runs
    ///
    /// In another boot than --boot-id there is nothing left to do, and it ends with 0. In the same one, the sentinel has to be
    /// there; then the command is run on the host, and what has been asked for is waited for: until the machine goes down,
    /// or somebody ends the process. It never ends with 0 in the boot that was to end.
    ///
    /// Ends with 3 when there is no sentinel of this boot, so that nothing shows that the upgrade succeeded in it; with 1 when
    /// the command is missing or fails, or the host cannot be entered; with 2 when the arguments are wrong. Why is said in the
    /// termination message, too.
    Reboot(reboot::Flags),
    /// Say which version a channel or a Plan gives, and why
    ///
    /// TARGET is the URL of a channel, or files with Plans, whose channel, policy and status count; flags come before what a Plan
    /// says. Nothing is written. All that the channel offers is looked at, and what each guard says of it.
    ///
    /// Ends with 0 when each target has a version that can be taken, with 1 when one has none (the channel cannot be asked, or
    /// every version is refused), and with 2 when a file cannot be read or the arguments are wrong.
    #[command(after_help = resolve::EXAMPLES)]
    Resolve(resolve::Flags),
    /// Print the CRD of the Plan as YAML
    Crd,
    /// Print the script with which a shell completes commands and flags
    #[command(after_help = completion::EXAMPLES)]
    Completion(completion::Flags),
}

/// Runs the command that `args` ask for, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.into_iter().collect();
    let cli = match parse(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(error) => {
            // With nobody to tell, there is nothing left to do.
            let _ = error.print();
            return ExitCode::from(exit_code(&args, &error));
        }
    };
    let result = match cli.command {
        None => controller::run(cli.flags),
        Some(Command::Controller(flags)) => controller::run(*flags),
        Some(Command::Cordon(flags)) => cordon::cordon(&flags),
        Some(Command::Uncordon(flags)) => cordon::uncordon(&flags),
        Some(Command::Drain(flags)) => drain::run(&flags),
        Some(Command::Validate(flags)) => validate::run(&flags),
        Some(Command::Pin(flags)) => pin::run(&flags),
        Some(Command::Render(flags)) => render::run(&flags),
        Some(Command::Rehearse(flags)) => rehearse::run(&flags),
        Some(Command::Probe(flags)) => probe::run(flags),
        Some(Command::Sentinel(flags)) => sentinel::run(flags),
        Some(Command::Reboot(flags)) => reboot::run(flags),
        Some(Command::Resolve(flags)) => resolve::run(&flags),
        Some(Command::Crd) => crd::run(),
        Some(Command::Completion(flags)) => completion::run(&flags, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        output::error(output::with_causes(&error));
        ExitCode::FAILURE
    })
}

/// What refit is asked to do in a container of a Job.
pub(crate) enum OnNode {
    /// `refit cordon`.
    Cordon(Which),
    /// `refit drain`.
    Drain(Which, Options),
}

/// Reads the arguments of such a container.
pub(crate) fn on_node(args: &[String]) -> Result<OnNode, clap::Error> {
    let args = std::iter::once("refit").chain(args.iter().map(String::as_str));
    Ok(match InContainer::try_parse_from(args)? {
        InContainer::Cordon(flags) => OnNode::Cordon(flags.which()),
        InContainer::Drain(flags) => OnNode::Drain(flags.which(), flags.options()),
    })
}

/// The commands of such containers alone: to set all of them up takes longer than all that a rehearsed `cordon` does.
#[derive(Parser)]
#[command(name = "refit")]
enum InContainer {
    Cordon(cordon::Flags),
    Drain(drain::Flags),
}

/// What the program ends with that was called with `args` and made nothing of them but `error`, or what was asked for.
fn exit_code(args: &[OsString], error: &clap::Error) -> u8 {
    let command = args.get(1).and_then(|command| command.to_str());
    if error.use_stderr() && command.is_some_and(|command| AS_KUBECTL.contains(&command)) {
        return 1;
    }
    u8::try_from(error.exit_code()).unwrap_or(USAGE)
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(with_two_dashes(args))
}

/// Go's flags, and so system-upgrade-controller's, may be written with one dash. Only long names of our own are taken
/// for such, so that `-h` stays what it is.
fn with_two_dashes(args: impl IntoIterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let command = Cli::command();
    let names: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .map(str::to_owned)
        .collect();
    args.into_iter().map(move |arg| {
        let name = arg
            .to_str()
            .and_then(|arg| arg.strip_prefix('-'))
            .and_then(|rest| rest.split('=').next());
        match name {
            Some(name) if name.len() > 1 && names.iter().any(|long| long == name) => {
                [OsStr::new("-"), &arg].into_iter().collect()
            }
            _ => arg,
        }
    })
}
