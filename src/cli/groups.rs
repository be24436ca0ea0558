//! The commands in groups, for `refit --help`. clap has headings for flags only.

use std::fmt::Write as _;

use clap::Command;

const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Roll-outs",
        &[
            "status",
            "explain",
            "dashboard",
            "report",
            "logs",
            "suspend",
            "resume",
            "approve",
            "retry",
            "skip",
            "abort",
            "rerun",
            "start",
            "freeze",
            "unfreeze",
        ],
    ),
    (
        "Plan files",
        &[
            "validate", "pin", "render", "rehearse", "resolve", "convert", "example",
        ],
    ),
    ("Nodes", &["cordon", "uncordon", "drain", "node"]),
    (
        "Set-up",
        &["controller", "migrate", "crd", "completion", "version"],
    ),
];

/// Bytes of a description that are shown.
const MAX_ABOUT: usize = 90;

/// The same commands, shown in groups: they are in the text, so that clap need not list them.
pub(super) fn grouped(command: Command) -> Command {
    let mut groups = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(groups, "{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {name:10}  {}", short(&about));
        }
        groups.push('\n');
    }
    command.mut_subcommands(|command| command.hide(true)).help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{bin}} COMMAND\n       {{usage}}\n\n{groups}{{all-args}}{{after-help}}"
    ))
}

/// The first part of a description, at most so long that it fits a line.
fn short(about: &str) -> &str {
    let end = [": ", "; "].iter().filter_map(|end| about.find(end)).min();
    let about = &about[..end.unwrap_or(about.len())];
    match about.get(..MAX_ABOUT) {
        Some(first) => first.rsplit_once(", ").map_or(about, |(first, _)| first),
        None => about,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_its_line_is_short() {
        let command = crate::cli::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let visible: BTreeSet<_> = visible.map(Command::get_name).collect();
        let names = GROUPS.iter().flat_map(|(_, names)| *names);
        let grouped: BTreeSet<_> = names.clone().copied().collect();
        assert_eq!(grouped, visible);
        assert_eq!(grouped.len(), names.count());
        let help = grouped_help();
        for (title, names) in GROUPS {
            assert!(
                help.contains(&format!("\n{title}:\n  {:10}  ", names[0])),
                "{help}"
            );
        }
        assert!(
            !help.contains("Commands:") && !help.contains("sentinel"),
            "{help}"
        );
        let lines = help.lines().skip_while(|line| *line != "Roll-outs:");
        for line in lines.take_while(|line| !line.starts_with("Options")) {
            assert!(line.chars().count() <= 14 + MAX_ABOUT, "{line}");
        }
    }

    fn grouped_help() -> String {
        super::grouped(crate::cli::command())
            .render_long_help()
            .to_string()
    }
}
