//! `refit __complete`: the Plans, nodes and namespaces of a cluster, for the scripts of `refit completion`. Prints a
//! name per line, and nothing at all if the cluster does not answer in time: a shell must not hang.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use tokio::time::timeout;

use super::cluster::Connection;
use super::output;
use super::target::{self, ClusterFlags, find, with_client};
use refit_view::read::Snapshot;

/// How long a shell waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// Commands whose first argument is a Plan; those with `true` name nodes after it.
const COMMANDS: [(&str, bool); 10] = [
    ("status", false),
    ("explain", true),
    ("report", false),
    ("suspend", false),
    ("resume", false),
    ("approve", false),
    ("retry", true),
    ("skip", true),
    ("abort", false),
    ("rerun", true),
];
/// Options that take a value.
const WITH_VALUE: [&str; 10] = [
    "-n",
    "--namespace",
    "-o",
    "--output",
    "--kubeconfig",
    "--context",
    "--timeout",
    "--reason",
    "--version",
    "--as",
];

#[derive(Args, Debug)]
pub(super) struct Flags {
    /// The words of the line after `refit`, up to the one that is completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What the last word of a line can be.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Plans,
    /// Nodes of this Plan.
    Nodes(String),
    Namespaces,
    /// Something that only the script knows.
    Other,
}

/// What a line asks for, and where to look.
fn wanted(words: &[String]) -> (Wanted, ClusterFlags) {
    let mut place = ClusterFlags::default();
    let Some((_, before)) = words.split_last() else {
        return (Wanted::Other, place);
    };
    let Some((command, rest)) = before.split_first() else {
        return (Wanted::Other, place);
    };
    let Some((_, takes_nodes)) = COMMANDS.iter().find(|(name, _)| name == command) else {
        return (Wanted::Other, place);
    };
    let (mut arguments, mut option) = (Vec::new(), None::<&str>);
    for word in rest {
        if let Some(name) = option.take() {
            let value = Some(word.clone());
            match name {
                "-n" | "--namespace" => place.namespace = value,
                "--context" => place.connection.context = value,
                "--kubeconfig" => place.connection.kubeconfig = value.map(Into::into),
                _ => {}
            }
        } else if WITH_VALUE.contains(&word.as_str()) {
            option = Some(word);
        } else if let Some((name, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
            match name {
                "--namespace" => place.namespace = Some(value.to_owned()),
                "--context" => place.connection.context = Some(value.to_owned()),
                "--kubeconfig" => place.connection.kubeconfig = Some(value.into()),
                _ => {}
            }
        } else if !word.starts_with('-') {
            arguments.push(word.clone());
        }
    }
    let wanted = match (option, arguments.into_iter().next()) {
        (Some("-n" | "--namespace"), _) => Wanted::Namespaces,
        (None, None) => Wanted::Plans,
        (None, Some(plan)) if *takes_nodes => Wanted::Nodes(plan),
        _ => Wanted::Other,
    };
    (wanted, place)
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (wanted, place) = wanted(&flags.words);
    if wanted == Wanted::Other {
        return Ok(ExitCode::SUCCESS);
    }
    let connection: Connection = place.connection.clone();
    let found = with_client(&connection, async |client: Client| {
        let read = timeout(PATIENCE, async {
            let (scope, _) = place.choose(&client, None).await;
            target::read(&client, &scope).await
        });
        read.await.context("the cluster does not answer")?
    });
    // An error message would end up in the line that is typed.
    let names = found.map_or_else(|_| Vec::new(), |snapshot| names(&snapshot, &wanted));
    let lines: String = names.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
    output::text(&lines).context("the names cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}

fn names(snapshot: &Snapshot, wanted: &Wanted) -> Vec<String> {
    let mut names: Vec<String> = match wanted {
        Wanted::Plans => snapshot
            .plans
            .iter()
            .map(|plan| plan.facts.name.to_string())
            .collect(),
        Wanted::Namespaces => snapshot.plans.iter().map(|plan| plan.namespace.clone()).collect(),
        Wanted::Nodes(plan) => {
            let view = find(snapshot, plan);
            let active = view
                .iter()
                .flat_map(|view| &view.nodes)
                .map(|node| node.name.clone());
            active
                .chain(snapshot.nodes.iter().flatten().map(|(name, _)| name.clone()))
                .collect()
        }
        Wanted::Other => Vec::new(),
    };
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (Wanted, ClusterFlags) {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        wanted(&words)
    }

    #[test]
    fn the_place_of_a_word_says_what_it_can_be() {
        let nodes = || Wanted::Nodes("p".to_owned());
        for (line, expected) in [
            ("retry ", Wanted::Plans),
            ("retry p", Wanted::Plans),
            ("retry p ", nodes()),
            ("skip --undo p a b", nodes()),
            ("suspend p ", Wanted::Other),
            ("status -n ", Wanted::Namespaces),
            ("status -n kube ", Wanted::Plans),
            ("explain -o json --context=c p ", nodes()),
            ("explain -o ", Wanted::Other),
            ("validate ", Wanted::Other),
            ("ret", Wanted::Other),
            ("", Wanted::Other),
        ] {
            assert_eq!(of(line).0, expected, "{line:?}");
        }
    }

    #[test]
    fn the_options_of_the_line_say_where_to_look() {
        let (_, place) = of("retry -n a --context=b --kubeconfig /c p ");
        assert_eq!(place.namespace.as_deref(), Some("a"));
        assert_eq!(place.connection.context.as_deref(), Some("b"));
        assert_eq!(place.connection.kubeconfig.unwrap().to_str(), Some("/c"));
    }

    #[test]
    fn every_command_that_takes_a_plan_is_known() {
        let root = crate::cli::command();
        let takes_plan = |command: &&clap::Command| {
            let mut arguments = command.get_positionals();
            arguments.any(|it| it.get_id() == "plan")
        };
        for command in root.get_subcommands().filter(takes_plan) {
            let takes_nodes = command
                .get_positionals()
                .any(|it| it.get_id().as_str().starts_with("node"));
            let known = COMMANDS.iter().find(|(name, _)| *name == command.get_name());
            assert_eq!(
                known.map(|(_, nodes)| *nodes),
                Some(takes_nodes),
                "{}",
                command.get_name()
            );
        }
    }
}
