//! `refit status`: all roll-outs at a glance.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use serde_json::json;
use tokio::time::sleep;

use super::output;
use super::output_format::{OutputFormat, any_of};
use super::target::{self, ClusterFlags, find, with_client};
use refit_api::PlanState;
use refit_facts::objects::maintenance::Maintenance;
use refit_view::table::{self, Look};
use refit_view::{PlanOverview, Scope, Snapshot, maintenance};

/// How often the cluster is read with `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

pub(super) const EXAMPLES: &str = "Examples:
  refit status
      a line for every Plan; below, what holds those that wait for you, and the command that releases them
  refit status server
      everything about one Plan: waves, checks, nodes in progress
  refit status --watch
      the same, redrawn in place
  refit status -o json | jq '.plans[] | {name, state, heldBy}'
      for programs";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Only this Plan
    #[arg(value_name = "[NAMESPACE/]PLAN")]
    plan: Option<String>,

    /// Redraw when something changes; if the output is not a terminal, print what has changed
    #[arg(short = 'w', long)]
    watch: bool,

    /// Print times as they are, instead of how long ago they were
    #[arg(long)]
    times: bool,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Wide, OutputFormat::Json, OutputFormat::Yaml, OutputFormat::Name]))]
    output: OutputFormat,

    #[command(flatten)]
    place: ClusterFlags,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    with_client(&flags.place.connection, async |client: Client| {
        let scope = flags.place.scope(&client, flags.plan.as_deref()).await;
        let (mut shown, mut trouble) = (String::new(), String::new());
        loop {
            match read(&client, &scope, flags).await {
                Ok(text) => {
                    trouble.clear();
                    if text != shown {
                        show(&text, &shown, flags)?;
                        shown = text;
                    }
                }
                // A watch outlives an API server that restarts; a mistake in the command shows at once.
                Err(error) if !shown.is_empty() => {
                    let error = output::error_chain(&error);
                    if error != trouble {
                        output::note(format!("what is shown may be old: {error}; trying again"));
                        trouble = error;
                    }
                }
                Err(error) => return Err(error),
            }
            if !flags.watch {
                return Ok(ExitCode::SUCCESS);
            }
            sleep(INTERVAL).await;
        }
    })
}

/// What to print of the cluster as it is now.
async fn read(client: &Client, scope: &Scope, flags: &Flags) -> anyhow::Result<String> {
    let snapshot = target::read(client, scope).await?;
    let views = views(&snapshot, flags)?;
    if flags.output.is_data() {
        let plans: Vec<_> = views.iter().map(PlanOverview::to_json).collect();
        let maintenances: Vec<_> = maintenances(&snapshot, flags)
            .iter()
            .map(maintenance::to_json)
            .collect();
        let value = json!({ "plans": plans, "nodeMaintenances": maintenances, "gaps": snapshot.gaps });
        return flags.output.render(&value);
    }
    Ok(text(&views, &snapshot, flags))
}

fn views<'a>(snapshot: &'a Snapshot, flags: &Flags) -> anyhow::Result<Vec<PlanOverview<'a>>> {
    match &flags.plan {
        Some(plan) => Ok(vec![find(snapshot, plan)?]),
        None => Ok(snapshot
            .plans
            .iter()
            .map(|plan| PlanOverview::new(snapshot, plan))
            .collect()),
    }
}

/// The nodes in maintenance, unless one Plan is asked for.
fn maintenances<'a>(snapshot: &'a Snapshot, flags: &Flags) -> &'a [Maintenance] {
    match flags.plan {
        Some(_) => &[],
        None => &snapshot.maintenances,
    }
}

fn text(views: &[PlanOverview<'_>], snapshot: &Snapshot, flags: &Flags) -> String {
    match flags.output {
        OutputFormat::Name => {
            let plans = views
                .iter()
                .map(|view| format!("plan.upgrade.cattle.io/{}\n", view.plan.name));
            let others = maintenances(snapshot, flags).iter();
            plans
                .chain(others.map(|object| format!("{}\n", maintenance::full_name(object))))
                .collect()
        }
        format => {
            let with_others = flags.plan.is_none().then_some(snapshot);
            let (wide, terminal) = (format == OutputFormat::Wide, output::is_terminal());
            let look = Look {
                detailed: wide || flags.plan.is_some(),
                wide,
                // Otherwise each line would change with every reading, and be printed again.
                times: flags.times || flags.watch && !terminal,
                bars: flags.watch && terminal,
                columns: terminal.then(|| output::size().1),
            };
            table::status(views, with_others, &snapshot.gaps, &look)
        }
    }
}

/// On a terminal the new text replaces the one before; otherwise only its new lines are printed.
fn show(text: &str, before: &str, flags: &Flags) -> anyhow::Result<()> {
    let printed = if flags.output.is_data() {
        // Programs get whole documents.
        let is_next = flags.output == OutputFormat::Yaml && !before.is_empty();
        let text = if is_next {
            format!("---\n{text}")
        } else {
            text.to_owned()
        };
        flags.output.write(&text)
    } else if flags.watch && output::is_terminal() {
        let (lines, columns) = output::size();
        output::raw(&painted(&screen(text, lines, columns, before.is_empty())))
    } else {
        output::raw(&painted(&output::plain(&news(text, before))))
    };
    printed.context("the status cannot be printed")
}

/// The lines that the text before did not have.
fn news(text: &str, before: &str) -> String {
    let known: std::collections::BTreeSet<&str> = before.lines().collect();
    let lines = text
        .lines()
        .filter(|line| before.is_empty() || !known.contains(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Writes as much of the text as fits over the one before: a screen that is cleared first flickers.
fn screen(text: &str, lines: usize, columns: usize, first: bool) -> String {
    let room = lines.saturating_sub(1).max(1);
    let text = output::plain(text).into_owned();
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    let count = text.lines().count();
    let mut shown: Vec<_> = text.lines().take(room).map(cut).collect();
    if let Some(last) = shown.last_mut().filter(|_| count > room) {
        *last = format!("… {} more lines", count - room + 1);
    }
    let start = if first { "\x1b[2J\x1b[H" } else { "\x1b[H" };
    format!("{start}{}\x1b[K\n\x1b[J", shown.join("\x1b[K\n"))
}

/// The states in color, on a terminal that shows colors.
fn painted(text: &str) -> String {
    if !output::is_colored() {
        return text.to_owned();
    }
    let colors = [
        (PlanState::Failed, 31),
        (PlanState::Held, 33),
        (PlanState::Complete, 32),
        (PlanState::Running, 36),
    ];
    colors.iter().fold(text.to_owned(), |text, (state, color)| {
        // A cell of a table, or the end of a title.
        let in_color = |after: &str| format!("  \x1b[{color}m{state}\x1b[0m{after}");
        let text = text.replace(&format!("  {state}  "), &in_color("  "));
        text.replace(&format!("  {state}\n"), &in_color("\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_shows_what_fits_and_says_what_does_not() {
        assert_eq!(
            screen("a\nbcd\n", 24, 2, true),
            "\x1b[2J\x1b[Ha\x1b[K\nbc\x1b[K\n\x1b[J"
        );
        assert_eq!(
            screen("a\nb\nc\nd\n", 3, 80, false),
            "\x1b[Ha\x1b[K\n… 3 more lines\x1b[K\n\x1b[J"
        );
        assert_eq!(
            screen("\x1b[31mred", 24, 80, false),
            "\x1b[H\\x1b[31mred\x1b[K\n\x1b[J"
        );
    }

    #[test]
    fn without_a_terminal_only_new_lines_are_printed() {
        assert_eq!(news("a\nb\n", ""), "a\nb\n");
        assert_eq!(news("a\nc\n", "a\nb\n"), "c\n");
    }
}
