//! The man pages, one for each command, made of the text of `--help`. They are not committed: `just man` and the release write them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::*;

/// Commands that refer to each other under SEE ALSO.
const RELATED: [&[&str]; 12] = [
    &["status", "explain", "report", "logs", "dashboard"],
    &["dashboard", "rehearse"],
    &[
        "status", "suspend", "resume", "approve", "retry", "skip", "abort", "rerun", "start",
    ],
    &["pin", "validate", "resolve", "render", "rehearse"],
    &["cordon", "uncordon", "drain"],
    &[
        "node",
        "node-agent",
        "node-probe",
        "node-sentinel",
        "node-reboot",
        "node-prepull",
    ],
    &["node-agent", "rehearse"],
    &["controller", "crd", "rehearse", "version"],
    &["migrate", "controller", "validate", "rehearse"],
    &["convert", "validate", "rehearse"],
    &["freeze", "unfreeze", "suspend", "resume"],
    &["example", "validate", "rehearse"],
];

fn pages() -> BTreeMap<String, Vec<u8>> {
    let mut root = command().disable_help_subcommand(true);
    root.build();
    let node = root.find_subcommand("node").unwrap().get_subcommands();
    let commands: Vec<clap::Command> = root
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .chain(node.filter(|command| command.get_name() != "help"))
        .cloned()
        .chain([root.clone()])
        .collect();
    let names: Vec<String> = commands.iter().map(page_name).collect();
    commands
        .into_iter()
        .map(|command| (format!("{}.1", page_name(&command)), page(command, &names)))
        .collect()
}

fn page_name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or("refit").to_owned()
}

fn page(command: clap::Command, names: &[String]) -> Vec<u8> {
    let name = page_name(&command);
    let examples = command.get_after_help().map(ToString::to_string);
    let about = command.get_long_about().or(command.get_about());
    let (about, status) = split_status(&about.map(ToString::to_string).unwrap_or_default());
    let has_commands = command.has_subcommands();
    let status = if has_commands {
        format!("{status} See the command's own page for details.")
    } else {
        status
    };
    let man =
        clap_mangen::Man::new(command.long_about(about)).source(concat!("refit ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    man.render_synopsis_section(&mut text).unwrap();
    man.render_description_section(&mut text).unwrap();
    man.render_options_section(&mut text).unwrap();
    if has_commands {
        man.render_subcommands_section(&mut text).unwrap();
    }
    let mut text = String::from_utf8(text).unwrap();
    text.extend([format!(".SH \"EXIT STATUS\"\n{}\n", roff(&status))]);
    if let Some(examples) = examples {
        let lines = examples.trim().strip_prefix("Examples:").unwrap_or(&examples);
        // Unfilled, because a script must keep its line breaks and hyphens.
        let lines = roff(lines.trim_matches('\n'));
        text.extend([format!(".SH EXAMPLES\n.nf\n{lines}\n.fi\n")]);
    }
    let related = names
        .iter()
        .filter(|other| **other != name && is_related(&name, other));
    let related: Vec<String> = related
        .map(|other| format!("\\fB{}\\fR(1)", roff(other)))
        .collect();
    text.extend([format!(".SH \"SEE ALSO\"\n{}\n", related.join(", "))]);
    text.into_bytes()
}

/// The root and every command refer to each other.
fn is_related(one: &str, other: &str) -> bool {
    let of = |page: &str| page.strip_prefix("refit-").map(str::to_owned);
    let (Some(one), Some(other)) = (of(one), of(other)) else {
        return true;
    };
    RELATED
        .iter()
        .any(|group| group.contains(&one.as_str()) && group.contains(&other.as_str()))
}

/// Splits the description from the exit status.
fn split_status(about: &str) -> (String, String) {
    let mut rest = Vec::new();
    let mut status = Vec::new();
    for paragraph in about.split("\n\n") {
        match paragraph.find("Ends with ") {
            None => rest.push(paragraph.trim()),
            Some(0) => status.push(paragraph.trim()),
            Some(at) => {
                rest.push(paragraph[..at].trim());
                status.push(paragraph[at..].trim());
            }
        }
    }
    let status = match status.as_slice() {
        [] => "0 when all is done, 1 when it is not, and 2 when the arguments are wrong.".to_owned(),
        status => status.join("\n\n"),
    };
    (rest.join("\n\n"), status)
}

/// Escapes text for roff.
fn roff(text: &str) -> String {
    let line = |line: &str| {
        let line = line
            .replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('\'', "\\(aq");
        let is_request = line.starts_with('.') || line.starts_with("\\(aq");
        if is_request { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_page_has_its_exit_status_its_examples_as_they_are_and_what_to_read_next() {
    let pages = pages();
    for (name, page) in &pages {
        let page = String::from_utf8(page.clone()).unwrap();
        assert!(page.contains("\n.SH \"EXIT STATUS\"\n"), "{name}");
        assert!(page.contains("\n.SH \"SEE ALSO\"\n\\fBrefit"), "{name}");
        assert!(!page.contains(".SH EXTRA"), "{name}");
        let (head, _) = page.split_once(".SH \"EXIT STATUS\"").unwrap();
        assert!(
            !head.contains("Ends with "),
            "{name} says twice what it ends with"
        );
    }
    let pin = String::from_utf8(pages["refit-pin.1"].clone()).unwrap();
    assert!(
        pin.contains("\n.SH EXAMPLES\n.nf\n  refit pin clusters/"),
        "{pin}"
    );
    assert!(pin.contains("\\fBrefit\\-validate\\fR(1)"), "{pin}");
}

#[test]
fn each_command_has_related_commands_which_exist() {
    let pages = pages();
    let commands = pages
        .keys()
        .filter_map(|page| page.strip_prefix("refit-")?.strip_suffix(".1"));
    let commands: BTreeSet<_> = commands.collect();
    // What completes all commands is related to none.
    let related: BTreeSet<_> = RELATED.concat().into_iter().chain(["completion"]).collect();
    assert_eq!(related, commands);
}

#[test]
#[ignore = "writes the man pages to the folder REFIT_MAN: just man"]
fn the_man_pages_are_written() {
    let folder = std::env::var_os("REFIT_MAN").expect("REFIT_MAN: just man sets it");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in pages() {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn help_takes_the_name_of_a_command() {
    for line in ["refit help pin", "refit help", "refit help rehearse"] {
        let error = parse(line.split(' ').map(OsString::from)).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{line}");
    }
}
