//! `refit drain`: kubectl's flags, with kubectl's meaning.

use std::process::ExitCode;

use clap::Args;

use super::cluster::{self, Connection, Mode};
use refit_cluster::drain::flags::{DrainArgs, NodeArgs};

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    drain: DrainArgs,
    #[command(flatten)]
    connection: Connection,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (which, options) = (flags.nodes.which(), flags.drain.options());
    cluster::run(&flags.connection, &flags.mode, async move |session| {
        session.drain(&which, &options).await
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use refit_cluster::drain::DryRun;

    #[derive(clap::Parser, Debug)]
    struct Alone {
        #[command(flatten)]
        flags: Flags,
    }

    fn parse(args: &[&str]) -> Result<Flags, clap::Error> {
        Alone::try_parse_from(["drain"].iter().chain(args)).map(|alone| alone.flags)
    }

    #[test]
    fn a_dry_run_is_of_three_kinds() {
        let dry_run = |arg: &str| parse(&["one", arg]).unwrap().mode.dry_run.dry_run;
        assert_eq!(parse(&["one"]).unwrap().mode.dry_run.dry_run, DryRun::None);
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
        assert_eq!(parse(&["one", "--dry-run=yes"]).unwrap_err().exit_code(), 2);
    }
}
