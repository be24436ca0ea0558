//! `refit agent`: says on its own Node whether that needs a reboot, and which Kairos it runs.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

use super::cluster::{Connection, signals};
use super::output;
use super::target::with_client;
use refit_api::reboot::REQUIRED_FILES;
use refit_base::go::GoDuration;
use refit_cluster::agent;
use refit_cluster::agent::{Files, KairosFiles, Options, SentinelCommand, Sources, UpdateEngine};
use refit_cluster::node::{Host, enter_host};

pub(super) const EXAMPLES: &str = "Examples:
  refit agent --node worker-1
      looks for /run/reboot-required, as unattended-upgrades of Debian and Ubuntu writes it
  refit agent --node worker-1 --command 'needs-restarting -r'
      also runs the tool of Fedora and its derivatives on the host; the pod must be privileged and have hostPID
  refit agent --node worker-1 --command '3:/opt/bin/reboot-needed'
      a program of your own, whose exit code 3 means yes, and 0 means no
  refit agent --node worker-1 --no-files --update-engine
      asks the update engine of Flatcar on the system bus, whose socket is /host/run/dbus/system_bus_socket
  refit agent --node worker-1 --kairos-labels
      also keeps the labels kairos.io/* of the Node up to date, from /host/etc/kairos-release";

/// The shortest interval between two checks. Each command costs a process.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

/// Socket of the system bus, below the host's root (D-Bus Specification, "System message bus").
const SYSTEM_BUS: &str = "run/dbus/system_bus_socket";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Name of the Node
    #[arg(
        long,
        value_name = "NAME",
        env = "NODE_NAME",
        required_unless_present = "on_host"
    )]
    node: Option<String>,

    /// File on the host whose presence means that a reboot is needed. The file of the same name with .pkgs names the
    /// packages. May be repeated [default: /run/reboot-required]
    #[arg(long = "file", value_name = "PATH", value_parser = absolute)]
    files: Vec<String>,

    /// Do not check files
    #[arg(long, conflicts_with = "files")]
    no_files: bool,

    /// Command on the host whose exit code says whether a reboot is needed. The code for yes is 1 for needs-restarting
    /// (Fedora), 102 for zypper needs-rebooting (SUSE), otherwise 0; CODE:COMMAND sets another one. The code for no is
    /// 0, or 1 if 0 means yes; any other code changes nothing. Words are separated by blanks, without a shell. May be
    /// repeated
    #[arg(long = "command", value_name = "COMMAND")]
    commands: Vec<SentinelCommand>,

    /// Ask the update engine of Flatcar (com.coreos.update1) on the host's system bus
    #[arg(long)]
    update_engine: bool,

    /// Label and annotate the Node with what the host's /etc/kairos-release and /proc/cmdline say (kairos.io/*), as
    /// kairos-operator's node labeler does
    #[arg(long)]
    kairos_labels: bool,

    /// Interval between two checks of the host
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    period: GoDuration,

    /// Where the host's root directory, or as much of it as the files need, is mounted
    #[arg(long, value_name = "DIR", default_value = "/host")]
    host: PathBuf,

    #[command(flatten)]
    connection: Connection,

    /// Run a command on the host, and end with its exit code. The agent uses this for --command
    #[arg(long, hide = true, requires = "words")]
    on_host: bool,

    #[arg(last = true, hide = true)]
    words: Vec<String>,
}

fn absolute(value: &str) -> Result<String, String> {
    if value.starts_with('/') {
        Ok(value.to_owned())
    } else {
        Err("must be an absolute path on the host".to_owned())
    }
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    if flags.on_host {
        return run_on_host(&flags.words);
    }
    let node = flags.node.context("--node is required")?;
    let period = Duration::try_from(jiff::SignedDuration::from_nanos(flags.period.as_nanos()))
        .ok()
        .filter(|period| *period >= SHORTEST_PERIOD);
    let Some(period) = period else {
        bail!("--period is {}: it must be at least 1s", flags.period);
    };
    let paths = match (flags.no_files, flags.files) {
        (true, _) => Vec::new(),
        // The other one is the same file: `/var/run` is a link to `/run` on Debian and Ubuntu.
        (false, files) if files.is_empty() => vec![REQUIRED_FILES[0].to_owned()],
        (false, files) => files,
    };
    if paths.is_empty() && flags.commands.is_empty() && !flags.update_engine && !flags.kairos_labels {
        bail!(
            "there is nothing to look at: leave out --no-files, or give a --command, --update-engine or --kairos-labels"
        );
    }
    let update_engine = flags.update_engine.then(|| UpdateEngine {
        socket: flags.host.join(SYSTEM_BUS),
    });
    let host = || Host::open(&flags.host);
    let kairos = flags.kairos_labels.then(host).transpose()?;
    let own = std::env::current_exe().context("refit does not find its own program")?;
    let runner = [own.to_string_lossy().into_owned()].into_iter();
    let sources = Sources {
        own: Host::open(std::path::Path::new("/"))?,
        files: Files {
            // Commands alone need no mount.
            host: if paths.is_empty() {
                Host::open(std::path::Path::new("/"))?
            } else {
                host()?
            },
            paths,
        },
        commands: flags.commands,
        update_engine,
        kairos: kairos.map(|host| KairosFiles { host }),
        runner: runner
            .chain(["agent", "--on-host", "--"].map(str::to_owned))
            .collect(),
    };
    let options = Options { node, period };
    with_client(&flags.connection, async |client| {
        let mut signals = signals().context("signals cannot be handled")?;
        let stop = async move { drop(signals.wait_for(Option::is_some).await) };
        agent::run(client, &sources, &options, &|text| output::note(text), stop).await;
        anyhow::Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes the command, so that its exit code is that of this process.
fn run_on_host(words: &[String]) -> anyhow::Result<ExitCode> {
    enter_host()?;
    let (program, arguments) = words.split_first().context("there is no command")?;
    let error = Command::new(program)
        .args(arguments)
        // Variables of the container, such as the address of the API server, mean nothing on the host.
        .env_clear()
        .env(
            "PATH",
            // The usual PATH of root, and that of NixOS.
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin",
        )
        .env("HOME", "/root")
        .env("LC_ALL", "C")
        .current_dir("/")
        .exec();
    Err(error).with_context(|| format!("{program} cannot be run on the host"))
}
