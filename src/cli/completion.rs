//! `refit completion`: completes commands and flags, and the Plans, nodes and namespaces of the cluster.
//!
//! The script of a shell sets a variable and runs refit, and clap's engine prints the candidates.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Command, ValueHint};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::time::timeout;

use super::cluster::Connection;
use super::output;
use super::target::{ClusterFlags, with_client};
use refit_api::Plan;

pub(super) const EXAMPLES: &str = "\
Examples:
  # for this session of bash, or for every one from ~/.bashrc
  source <(refit completion bash)

  # from ~/.zshrc, behind compinit
  source <(refit completion zsh)

  # for every session of fish
  echo 'refit completion fish | source' > ~/.config/fish/completions/refit.fish";

/// The engine's own default is `COMPLETE`. Another program's variable must not keep the controller from starting.
const VARIABLE: &str = "REFIT_COMPLETE";
/// How long a shell waits for the cluster.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Args, Debug)]
pub(super) struct Flags {
    /// Shell to complete for
    shell: Shell,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let shells = Shells::builtins();
    let shell = shells
        .completer(&flags.shell.to_string())
        .context("clap cannot complete for this shell")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "refit", "refit", "refit", &mut script)?;
    let script = String::from_utf8(script).context("the completion script is not text")?;
    output::data(&script).context("the completion script cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what completes a line, if it is the script of a shell that runs refit.
pub(super) fn answer(args: &[OsString]) -> Option<ExitCode> {
    let completer = CompleteEnv::with_factory(|| with_names(super::command())).var(VARIABLE);
    let folder = std::env::current_dir().ok();
    match completer.try_complete(args.to_vec(), folder.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(error) => {
            // If standard error is closed, the error cannot be reported.
            let _ = error.print();
            Some(ExitCode::FAILURE)
        }
    }
}

/// Names that only the cluster knows.
#[derive(Clone, Copy, Debug)]
enum Names {
    Plans,
    Nodes,
    /// Those with Plans.
    Namespaces,
}

fn with_names(command: Command) -> Command {
    command.mut_subcommands(|command| {
        // Other commands read Plans from files.
        let of_cluster = command
            .get_arguments()
            .any(|arg| arg.get_id() == "all_namespaces");
        command.mut_args(|arg| {
            let names = match (arg.get_id().as_str(), of_cluster) {
                ("plan", true) => Names::Plans,
                ("node" | "nodes", true) | ("names", _) => Names::Nodes,
                ("namespace", true) => Names::Namespaces,
                ("files", _) => return arg.value_hint(ValueHint::AnyPath),
                _ => return arg,
            };
            arg.add(ArgValueCandidates::new(move || candidates(names)))
        })
    })
}

/// The names, or none if the cluster does not answer in time: a shell must not hang, and an error message would end up
/// in the line that is typed.
fn candidates(names: Names) -> Vec<CompletionCandidate> {
    // The engine tells only the word that is completed.
    let words = std::env::args_os().skip_while(|arg| arg != "--").skip(1);
    let place = place(words);
    let found = with_client(&place.connection, async |client: Client| {
        let read = timeout(PATIENCE, read(&client, names, &place)).await;
        read.context("the cluster does not answer")?
    });
    let mut found = found.unwrap_or_default();
    found.sort();
    found.dedup();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Where to look, by the flags of an unfinished line.
fn place(words: impl IntoIterator<Item = OsString>) -> ClusterFlags {
    let parsed = super::command().ignore_errors(true).try_get_matches_from(words);
    let Some((_, matches)) = parsed.ok().and_then(|mut matches| matches.remove_subcommand()) else {
        return ClusterFlags::default();
    };
    let text = |id| matches.try_get_one::<String>(id).ok().flatten().cloned();
    let path = |id| matches.try_get_one(id).ok().flatten().cloned();
    let is = |id| matches.try_get_one(id).ok().flatten() == Some(&true);
    ClusterFlags {
        namespace: text("namespace"),
        all_namespaces: is("all_namespaces"),
        connection: Connection {
            kubeconfig: path("kubeconfig"),
            context: text("context"),
            ..Connection::default()
        },
    }
}

async fn read(client: &Client, names: Names, place: &ClusterFlags) -> anyhow::Result<Vec<String>> {
    let (everything, client) = (ListParams::default(), client.clone());
    Ok(match names {
        Names::Nodes => {
            let nodes = Api::<Node>::all(client).list_metadata(&everything).await?;
            nodes.iter().map(ResourceExt::name_any).collect()
        }
        Names::Plans => {
            let (scope, _) = place.choose(&client, None).await;
            let plans = match &scope.namespace {
                Some(namespace) => Api::<Plan>::namespaced(client, namespace),
                None => Api::all(client),
            };
            let plans = plans.list_metadata(&everything).await?;
            plans.iter().map(ResourceExt::name_any).collect()
        }
        Names::Namespaces => {
            let plans = Api::<Plan>::all(client).list_metadata(&everything).await?;
            plans.iter().filter_map(ResourceExt::namespace).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the engine proposes for the last word of a line.
    fn complete(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut crate::cli::command(), words, last, None).unwrap();
        let value = |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().into_owned();
        found.iter().map(value).collect()
    }

    #[test]
    fn commands_flags_formats_and_rules_are_completed() {
        assert_eq!(complete("refit resum"), ["resume"]);
        assert_eq!(
            complete("refit sent"),
            ["sentinel"],
            "hidden, but there is nothing else"
        );
        assert!(!complete("refit ").contains(&"sentinel".to_owned()));
        assert_eq!(complete("refit node sent"), ["sentinel"]);
        assert_eq!(complete("refit retry server --wa"), ["--wait"]);
        assert_eq!(complete("refit validate -o g"), ["github"]);
        let rules = complete("refit validate --allow ");
        for rule in refit_offline::gitops::Rule::ALL {
            assert!(rules.contains(&rule.name().to_owned()), "{}", rule.name());
        }
    }

    #[test]
    fn what_the_cluster_knows_completes_the_arguments_for_it() {
        let command = with_names(crate::cli::command());
        let completed = |line: &str| {
            let (name, id) = line.split_once(' ').unwrap();
            let mut args = command.find_subcommand(name).unwrap().get_arguments();
            let arg = args.find(|arg| arg.get_id() == id).unwrap();
            arg.get::<ArgValueCandidates>().is_some()
        };
        for line in [
            "status plan",
            "explain node",
            "retry nodes",
            "abort plan",
            "report namespace",
            "drain names",
        ] {
            assert!(completed(line), "{line}");
        }
        for line in ["render plan", "rehearse nodes", "validate namespace"] {
            assert!(!completed(line), "{line}");
        }
    }

    #[test]
    fn the_flags_of_an_unfinished_line_say_where_to_look() {
        let of = |line: &str| place(line.split(' ').map(OsString::from));
        let place = of("refit retry -n a --context=b --kubeconfig /c p ");
        assert_eq!(place.namespace.as_deref(), Some("a"));
        assert_eq!(place.connection.context.as_deref(), Some("b"));
        assert_eq!(place.connection.kubeconfig.unwrap().to_str(), Some("/c"));
        let drain = of("refit drain --ignore-daemonsets --context b ");
        assert_eq!(drain.connection.context.as_deref(), Some("b"));
        assert!(of("refit status -A ").all_namespaces);
        assert!(of("refit status --unknown").namespace.is_none());
    }
}
