//! The command line. Without a command refit runs the controller, because system-upgrade-controller is started without
//! arguments, and its image may be replaced by refit's.

mod agent;
mod channel_access;
mod chosen;
mod cluster;
mod completion;
mod controller;
mod convert;
mod cordon;
mod crd;
mod dashboard;
mod defaults;
mod drain;
mod example;
mod explain;
mod groups;
mod host;
mod html;
mod logs;
mod migrate;
pub mod output;
mod output_format;
mod pin;
mod prepull;
mod probe;
mod reboot;
mod rehearse;
mod render;
mod report;
mod resolve;
mod sentinel;
mod status;
mod steer;
mod target;
#[cfg(test)]
mod tests;
mod validate;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use refit_controller::settings::Flags;

/// Exit code for invalid arguments.
const USAGE: u8 = 2;
/// Commands that follow kubectl's exit codes, where every error is 1.
const AS_KUBECTL: [&str; 3] = ["cordon", "uncordon", "drain"];

/// Upgrades the nodes of a Kubernetes cluster, a few at a time, according to Plans.
///
/// Without a command, and under the name system-upgrade-controller, refit is the controller. Its options are those of
/// `refit controller`. Each of them can also be set by an environment variable; the flag takes precedence.
#[derive(Parser, Debug)]
#[command(
    name = "refit",
    version,
    disable_version_flag = true,
    args_conflicts_with_subcommands = true
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
    /// A Plan that cordoned a node no longer holds it. Ends with 0 when all nodes are schedulable, and
    /// with 1 when one is not or the arguments are wrong.
    Uncordon(cordon::Flags),
    /// Cordon nodes and evict their pods, as kubectl drain does
    ///
    /// Lists the pods first, and reports what prevents a drain before it cordons the node: pods of DaemonSets, pods with
    /// local data and pods without a controller each need a flag; static pods stay. Then evicts all other pods, and waits
    /// until they are gone.
    ///
    /// Retries an eviction that a PodDisruptionBudget refuses every 5 seconds until --timeout; standard error names the
    /// pod, the budget and how long the pod has waited.
    ///
    /// Ends with 0 when all pods are gone, with 1 when one is not or the arguments are wrong, with 77 when a node was
    /// released as it was (--wait-for with `after=skip`), with 75 when pods had not ended (`after=fail`), on SIGTERM with
    /// 143, and on SIGINT with 130; the last line says what was evicted and what was not.
    #[command(args_override_self = true)]
    Drain(drain::Flags),
    /// Show all roll-outs at a glance: version, progress, what holds each Plan, and what would release it
    ///
    /// A line for each Plan; below, why those are held that wait for someone, and the command to begin with. With a Plan, or
    /// -o wide, everything that is known of it: waves, checks, nodes. Below the Plans are the nodes in maintenance. Needs read access only. If it lacks permission to read an object,
    /// it names the object and shows the rest. If another controller wrote the status of a Plan, nodes are counted by
    /// their labels and Jobs.
    ///
    /// Ends with 0 when the status is printed, with 1 when Plans cannot be read or there is no Plan of that name, and with 2
    /// when the arguments are wrong.
    #[command(after_help = status::EXAMPLES)]
    Status(status::Flags),
    /// Explain why a Plan, a node or another object is blocked, down to the object that holds it, and how to unblock it
    ///
    /// Without arguments, explains all Plans that are held.
    ///
    /// Prints a chain of objects, the remedy with its commands, and for a node its history, as far as its record, its
    /// Jobs and Events still say. Needs read access only.
    ///
    /// A `NodeOp` or a `NodeOpUpgrade` is explained by its Plan, a `NodeMaintenance` by what it waits for and who holds
    /// its node.
    ///
    /// Ends with 0 when nothing holds the object, with 1 when something does or the cluster cannot be read, and with
    /// 2 when the arguments are wrong.
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Flags),
    /// Show the roll-outs of a cluster in a browser, live: Plans, the timeline of each node, and what holds them
    ///
    /// Serves a page on 127.0.0.1 until it is interrupted, and prints its address. The page shows what `refit status`
    /// shows, and draws the phases of nodes from then on. Needs read access only, which is that of the kubeconfig: list
    /// and watch Plans; if it lacks permission to read another kind, the page says so and shows the rest.
    ///
    /// With --html it writes the page as it is now, and ends.
    ///
    /// Ends with 0 when the page is written, with 1 when Plans cannot be read or the port is in use, and with 2 when the
    /// arguments are wrong.
    #[command(after_help = dashboard::EXAMPLES)]
    Dashboard(dashboard::Flags),
    /// Print an audit report of a Plan: which nodes it upgraded, when and how
    ///
    /// Its sources are status, records, Jobs and Events. The report says what the cluster no longer knows. Needs read
    /// access only.
    ///
    /// Ends with 0 when the report is printed, with 1 when the cluster cannot be read or there is no such Plan, and
    /// with 2 when the arguments are wrong.
    #[command(after_help = report::EXAMPLES)]
    Report(report::Flags),
    /// Start no further node of a Plan, or of several; nodes in progress finish
    ///
    /// Sets `spec.suspend`, and notes in the annotation `refit.rs/suspended` who did so, when and why. With --wait,
    /// waits until no node is in progress.
    ///
    /// Ends with 0 when the Plan is suspended, also if it was already, with 1 when the cluster refuses or --timeout
    /// passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::SUSPEND)]
    Suspend(steer::SuspendFlags),
    /// Resume suspended or aborted Plans
    ///
    /// Removes `spec.suspend` and the annotations `refit.rs/suspended` and `refit.rs/abort`. With --wait, waits until
    /// the Plan is complete.
    ///
    /// Ends with 0 when the Plan continues, also if it was neither suspended nor aborted, with 1 when the cluster refuses,
    /// a node fails or --timeout passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::RESUME)]
    Resume(steer::PlansFlags),
    /// Approve what waits in a Plan: a wave, or a version with `versionPolicy.propose`
    ///
    /// Adds the wave and the hash of the roll-out, or the version, to the annotation `refit.rs/approve`, with who and
    /// when. So an approval of a wave holds for this wave of this roll-out only. With --wait, waits until the Plan is
    /// complete, or until the next wave waits for approval.
    ///
    /// Ends with 0 when it is approved, also if it was already, with 1 when nothing waits for approval, a wave and a version do and neither is
    /// named, the cluster refuses, a node fails or --timeout passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::APPROVE)]
    Approve(steer::ApproveFlags),
    /// Try again on nodes where a Plan failed: those that are named, or all
    ///
    /// Adds the Plan to the annotation `refit.rs/retry` of each Node, with who and when; the controller removes it when the
    /// next attempt begins. A node that its drain has released (drain.waitFor, `afterTimeout: Skip`) has its turn again at once.
    /// Without nodes, also retries `before` or `after` of the Plan if it has failed: the same annotation of
    /// the Plan names its Job. With --wait, waits until these nodes are done.
    ///
    /// Ends with 0 when the nodes are to be retried, with 1 when a node has not failed, the cluster refuses, a node
    /// fails again or --timeout passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::RETRY)]
    Retry(steer::NodeFlags),
    /// Skip nodes of a Plan at its current version, or undo that
    ///
    /// Adds the Plan to the annotation `refit.rs/skip` of each Node, with its version, who and when. A skipped node
    /// takes no slot, and the Plan is complete without it. A failed node's failure is dropped, and its cordon released;
    /// an upgrade that runs finishes. With --wait, waits until these nodes have no slot, and with --undo until they are
    /// done.
    ///
    /// Ends with 0 when the nodes are skipped, also if they were already, with 1 when a node is done, the cluster refuses
    /// or --timeout passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::SKIP)]
    Skip(steer::SkipFlags),
    /// Stop a roll-out: no node starts, drains stop and their nodes are released; upgrades that run finish
    ///
    /// Sets the annotation `refit.rs/abort` of the Plan, with who, when and why. `refit resume` resumes it. With
    /// --wait, waits until no node is in progress.
    ///
    /// Ends with 0 when the Plan is aborted, also if it was already, with 1 when it is complete, the cluster refuses or
    /// --timeout passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::ABORT)]
    Abort(steer::ReasonFlags),
    /// Run a Plan again at the same version on nodes that are done: those that are named, or all
    ///
    /// Removes the label `plan.upgrade.cattle.io/PLAN` of each Node, and notes in the annotation `refit.rs/rerun` of
    /// the Plan who did so and when. Nodes in progress are left alone. With --wait, waits until these nodes are done
    /// again.
    ///
    /// Ends with 0 when the nodes are to run again, with 1 when a node is not done, the cluster refuses, a node fails or
    /// --timeout passes, and with 2 when the arguments are wrong.
    #[command(after_help = steer::examples::RERUN)]
    Rerun(steer::NodeFlags),
    /// Start nodes of a Plan in spite of its windows, soaks, checks or blackouts, in this roll-out only
    ///
    /// Adds the limits, the nodes and the hash of the roll-out to the annotation `refit.rs/despite` of the Plan, with who,
    /// when and why; history and an event have them, too. Of the limits, `window` is `notBefore`, `window` and `windows`,
    /// `soak` the pause after each wave, `checks` the answers to checks, and `blackout` the blackouts of the Plan and of
    /// the `ConfigMap` `refit`. Without nodes, it is for all nodes of the roll-out. A named node starts when there is room, and
    /// in its place in the order; with `soak` it may be of the next wave, and the soak of the others begins again once it is
    /// done. Everything else counts: approvals, the order, quorum, locks of nodes, numbers of nodes, `freeze`. With --wait,
    /// waits until the Plan is complete, or these nodes are done.
    ///
    /// Ends with 0 when the nodes may start, also if they already may, with 1 when a node is done, has started or is not
    /// selected, the Plan is complete, the cluster refuses, a node fails or --timeout passes, and with 2 when the
    /// arguments are wrong.
    #[command(after_help = steer::examples::START)]
    Start(steer::StartFlags),
    /// Start no further node of any Plan; nodes in progress finish
    ///
    /// Sets the key `freeze` of the `ConfigMap` `refit` in the controller's namespace, with why, who and when, and creates it if
    /// it is absent. Needs permission to read, patch and create that `ConfigMap`.
    ///
    /// Ends with 0 when all Plans are frozen, also if they were already, with 1 when the cluster refuses, and with 2 when the
    /// arguments are wrong.
    #[command(after_help = steer::examples::FREEZE)]
    Freeze(steer::FreezeFlags),
    /// Let nodes start again after `refit freeze`
    ///
    /// Removes the key `freeze` of the `ConfigMap` `refit` in the controller's namespace.
    ///
    /// Ends with 0 when no Plan is frozen, also if none was, with 1 when the cluster refuses, and with 2 when the arguments are
    /// wrong.
    #[command(after_help = steer::examples::UNFREEZE)]
    Unfreeze(steer::Place),
    /// Print what the containers of a Plan's pod on a node have printed
    ///
    /// Prints the containers of the newest pod in the order in which they run: prepare, drain, upgrade. Needs permission to
    /// read pods and their logs.
    ///
    /// Ends with 0 when the logs are printed, with 1 when there is no pod or the cluster cannot be read, and with 2 when the
    /// arguments are wrong.
    #[command(after_help = logs::EXAMPLES)]
    Logs(logs::Flags),
    /// Find every mistake in files with Plans, `NodeOp`s and `NodeMaintenance`s, offline
    ///
    /// Reports what the API server and the controller would refuse, and what is suspicious: each with file, line,
    /// column, a rule and a hint. Files are YAML or JSON with any number of documents; a folder means the .yaml, .yml
    /// and .json files below it, and - standard input. A `NodeOp` and a `NodeOpUpgrade` are also checked as the Plans
    /// that they become. Other objects are skipped.
    ///
    /// Ends with 0 when there is neither error nor warning, with 1 when there is one, and with 2 when a file cannot be read
    /// or the arguments are wrong. Notes do not count.
    #[command(after_help = validate::EXAMPLES)]
    Validate(validate::Flags),
    /// Write the version that a Plan's channel gives into its file
    ///
    /// Sets `spec.version` of each Plan that has a `channel`, and changes no other byte: comments, quotes, indentation and
    /// line ends stay. A file is replaced whole or not at all, and only if nothing else in it changes.
    ///
    /// A value that is not a version, such as a placeholder, stays as it is; so does a Plan that is newer than its channel,
    /// and one whose channel gives a version of another distribution.
    ///
    /// Ends with 0 when each Plan is written, up to date, or stays for a reason that is printed; with 1 when --check
    /// finds a Plan that would change; and with 2 when a file cannot be read or written, a channel gives no version or
    /// one of another distribution, `spec.version` is a number or a list that is not a version, or the arguments are
    /// wrong. After an error with one Plan, refit continues with the others.
    #[command(after_help = pin::EXAMPLES)]
    Pin(pin::Flags),
    /// Print the Job that the controller would create for a Plan on a node, and the Pod that would reboot the node
    ///
    /// The controller's environment variables (`SYSTEM_UPGRADE_JOB_`…, `REFIT_IMAGE`) count as in the controller; --config
    /// reads them from its `ConfigMap`. With --live, refit reads UIDs and Secrets from the cluster. Without it, refit takes
    /// them from the files or assumes them, and names the assumptions on standard error.
    ///
    /// Ends with 0 when a Job is printed for each Plan, with 1 when there is none for one of them, and with 2 when a file
    /// cannot be read or the arguments are wrong.
    #[command(after_help = render::EXAMPLES)]
    Render(render::Flags),
    /// Print Plans that do what kured, the Flatcar update operator or kairos-operator did
    ///
    /// Reads the DaemonSet of kured with its flags, the DaemonSet and the Deployment of the Flatcar update operator,
    /// and `NodeOp`s and `NodeOpUpgrade`s. Comments in the Plan and notes on standard error say what the Plan does
    /// differently or cannot do. Reads files only, and writes nothing.
    ///
    /// Ends with 0 when a Plan is printed for each of these objects, with 1 when one of them cannot be converted, and
    /// with 2 when there is none, a file cannot be read or the arguments are wrong.
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::Flags),
    /// Simulate a roll-out in this process, in seconds: when each node is upgraded, what waits for what, and whether it
    /// completes
    ///
    /// Runs the unchanged controller against a simulated cluster, generated or read from a snapshot, with a simulated
    /// clock. It needs no cluster and writes nothing. Files are read as `refit validate` reads them; Secrets,
    /// `PodDisruptionBudget`s and Deployments in them count. A `NodeOp` is rehearsed as the Plan that the controller
    /// makes of it, and a `NodeMaintenance` holds its node until the end.
    ///
    /// Standard error names all assumptions: how long each step takes, which version a channel gives, which nodes exist.
    /// The same arguments give the same result, byte for byte.
    ///
    /// Ends with 0 when all Plans would be complete, with 1 when one would stall or fail, and with 2 when a file cannot be
    /// read, a Plan would be refused, or the arguments are wrong. The last line names the Plan and the reason.
    #[command(after_help = rehearse::EXAMPLES)]
    Rehearse(Box<rehearse::Flags>),
    /// What containers that refit creates, or that run on each node, do there
    #[command(subcommand)]
    Node(OnNode),
    // Existing Jobs and manifests use these names without `node`.
    #[command(flatten)]
    OnNode(OnNode),
    /// Print the version that a channel or a Plan resolves to, and why
    ///
    /// TARGET is the URL of a channel, or files with Plans. A Plan's channel, policy and status are used, unless a flag
    /// overrides them. Prints every version that the channel offers, with the reason why it is refused. Writes nothing.
    ///
    /// Ends with 0 when each target has a version that may be taken, with 1 when one has none (the channel cannot be
    /// queried, or every version is refused), and with 2 when a file cannot be read or the arguments are wrong.
    #[command(after_help = resolve::EXAMPLES)]
    Resolve(resolve::Flags),
    /// Report what changes on a cluster when refit replaces system-upgrade-controller
    ///
    /// Reads the Deployment of the controller, its roles, Plans, Jobs and Nodes, and compares what system-upgrade-controller
    /// does with them and what refit does. Each difference has a severity: "action" (do something before the switch),
    /// "change" (refit will do something else), or "note". Writes nothing; the only requests besides reads are access
    /// reviews, which the API server does not store.
    ///
    /// Ends with 0 when there is at most a note, with 1 when there is an action or a change, and with 2 when something
    /// cannot be read or the arguments are wrong.
    #[command(after_help = migrate::EXAMPLES)]
    Migrate(migrate::Flags),
    /// Print a Plan to start from, or the names of all of them
    ///
    /// Ends with 0 when the example is printed, with 1 when there is none of that name, and with 2 when the arguments are wrong.
    #[command(after_help = example::EXAMPLES)]
    Example(example::Flags),
    /// Print the version of this program
    Version,
    /// Print the CRD of the Plan as YAML
    Crd,
    /// Print the completion script of a shell
    ///
    /// It also completes the Plans, nodes and namespaces of the cluster. The script belongs to this version of refit, so
    /// generate it in every session instead of storing it.
    #[command(after_help = completion::EXAMPLES)]
    Completion(completion::Flags),
}

/// The commands below `refit node`.
#[derive(Subcommand, Debug)]
enum OnNode {
    /// Check that this node can be rebooted, and that a reboot can be proven; the first container of a Job that may reboot
    ///
    /// Checks that the host has a boot ID, room for the sentinel in /run, and the program of the command. Leaves nothing
    /// behind but the folder of the sentinels.
    ///
    /// Ends with 0 when everything is there, with 1 when something is missing (it reports all that is), and with 2 when
    /// the arguments are wrong.
    Probe(probe::Flags),
    /// Do nothing, so that a kubelet pulls the image of the container
    Prepull(prepull::Flags),
    /// Record on this node that its upgrade has succeeded; the last container of a Job that may reboot
    ///
    /// Writes /run/refit/NAME on the host. Its termination message and standard output are JSON with the boot ID and
    /// whether a reboot is required: {"bootId":"...","required":true}. A reboot usually deletes the file, because /run is in
    /// memory. Ends with 0 when the file is written, with 1 when it is not, and with 2 when the arguments are wrong.
    Sentinel(sentinel::Flags),
    /// Reboot this node once, however often the command runs; the container of the reboot pod
    ///
    /// If the node is in another boot than --boot-id, it has rebooted, and the command ends with 0. In that boot, it
    /// requires the sentinel, runs the command on the host, and waits until the machine goes down or the process is
    /// killed. It never ends with 0 in that boot.
    ///
    /// Ends with 3 when there is no sentinel of this boot, which means that the upgrade is not known to have succeeded;
    /// with 1 when the command is missing or fails, or the host's namespaces cannot be entered; with 2 when the
    /// arguments are wrong. The termination message has the reason too.
    Reboot(reboot::Flags),
    /// Annotate this Node when it needs a reboot, for Plans with a trigger
    ///
    /// Checks files and commands on the host periodically, and writes the annotation refit.rs/reboot-needed of its own
    /// Node when something has changed: the boot, since when, which file or command says so, and which packages. It
    /// reboots nothing. With --kairos-labels it also writes the labels and annotations kairos.io/* of a Kairos host.
    ///
    /// Without permissions or without an API server it reports that and tries again. Ends with 0 on SIGTERM or SIGINT,
    /// with 1 when it cannot start, and with 2 when the arguments are wrong.
    #[command(after_help = agent::EXAMPLES)]
    Agent(agent::Flags),
}

impl OnNode {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Probe(flags) => probe::run(flags),
            Self::Prepull(flags) => prepull::run(&flags),
            Self::Sentinel(flags) => sentinel::run(flags),
            Self::Reboot(flags) => reboot::run(flags),
            Self::Agent(flags) => agent::run(flags),
        }
    }
}

/// The command line. The names of what runs on nodes are accepted without `node`, too, and are not shown.
fn command() -> clap::Command {
    let root = Cli::command();
    let node = root.find_subcommand("node");
    let names = node.into_iter().flat_map(clap::Command::get_subcommands);
    let names: Vec<_> = names.map(|command| command.get_name().to_owned()).collect();
    names
        .into_iter()
        .fold(root, |root, name| root.mut_subcommand(name, |old| old.hide(true)))
}

/// Runs the command in `args`, which begin with the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args: Vec<_> = args.into_iter().collect();
    if let Some(code) = completion::answer(&args) {
        return code;
    }
    if let Some(program) = args.first_mut().filter(|program| is_plugin(program)) {
        *program = "kubectl refit".into(); // for the usage
    }
    let cli = match parse(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(error) => {
            // If standard error is closed, the error cannot be reported.
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
        Some(Command::Status(flags)) => status::run(&flags),
        Some(Command::Explain(flags)) => explain::run(&flags),
        Some(Command::Dashboard(flags)) => dashboard::run(&flags),
        Some(Command::Report(flags)) => report::run(&flags),
        Some(Command::Suspend(flags)) => steer::suspend(&flags),
        Some(Command::Resume(flags)) => steer::resume(&flags),
        Some(Command::Approve(flags)) => steer::approve(&flags),
        Some(Command::Retry(flags)) => steer::retry(&flags),
        Some(Command::Skip(flags)) => steer::skip(&flags),
        Some(Command::Abort(flags)) => steer::abort(&flags),
        Some(Command::Rerun(flags)) => steer::rerun(&flags),
        Some(Command::Start(flags)) => steer::start(&flags),
        Some(Command::Freeze(flags)) => steer::freeze(&flags),
        Some(Command::Unfreeze(place)) => steer::unfreeze(&place),
        Some(Command::Logs(flags)) => logs::run(&flags),
        Some(Command::Example(flags)) => example::run(&flags),
        Some(Command::Version) => version(),
        Some(Command::Validate(flags)) => validate::run(&flags),
        Some(Command::Pin(flags)) => pin::run(&flags),
        Some(Command::Render(flags)) => render::run(&flags),
        Some(Command::Convert(flags)) => convert::run(&flags),
        Some(Command::Rehearse(flags)) => rehearse::run(&flags),
        Some(Command::Node(it) | Command::OnNode(it)) => it.run(),
        Some(Command::Resolve(flags)) => resolve::run(&flags),
        Some(Command::Migrate(flags)) => migrate::run(&flags),
        Some(Command::Crd) => crd::run(),
        Some(Command::Completion(flags)) => completion::run(&flags),
    };
    result.unwrap_or_else(|error| {
        output::error(output::error_chain(&error));
        ExitCode::FAILURE
    })
}

fn version() -> anyhow::Result<ExitCode> {
    output::text(concat!("refit ", env!("CARGO_PKG_VERSION"), "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether kubectl runs refit as its plugin.
fn is_plugin(program: &OsStr) -> bool {
    std::path::Path::new(program).file_name() == Some(OsStr::new("kubectl-refit"))
}

/// The exit code after clap's `error`, which may also be the requested help or version.
fn exit_code(args: &[OsString], error: &clap::Error) -> u8 {
    let command = args.get(1).and_then(|command| command.to_str());
    if error.use_stderr() && command.is_some_and(|command| AS_KUBECTL.contains(&command)) {
        return 1;
    }
    u8::try_from(error.exit_code()).unwrap_or(USAGE)
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let parsed = groups::grouped(command()).try_get_matches_from(with_two_dashes(args))?;
    Cli::from_arg_matches(&parsed)
}

/// Accepts one dash for long flags, as Go and therefore system-upgrade-controller do. Only refit's own long flags are
/// recognised, so that `-h` keeps its meaning.
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
