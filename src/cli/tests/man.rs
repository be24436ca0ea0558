//! The man pages, one for each command, are written from the same words as `--help`.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::*;

/// The pages by their file names.
fn pages() -> BTreeMap<String, Vec<u8>> {
    let mut root = Cli::command();
    root.build();
    let commands = root.get_subcommands().cloned().chain([root.clone()]);
    commands
        .map(|command| {
            let name = command.get_display_name().unwrap_or("refit").to_owned();
            let page = clap_mangen::Man::new(command);
            let mut text = Vec::new();
            page.render(&mut text).unwrap();
            (format!("{name}.1"), text)
        })
        .collect()
}

#[test]
fn the_committed_man_pages_say_what_help_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/man");
    let pages = pages();
    let committed = || -> BTreeMap<String, Vec<u8>> {
        std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read(entry.path()).unwrap())
            })
            .collect()
    };
    if std::env::var_os("REFIT_UPDATE").is_some() {
        for name in committed().keys() {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        for (name, text) in &pages {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let committed = committed();
    for (name, text) in &pages {
        assert!(
            committed.get(name) == Some(text),
            "docs/man/{name} is stale: just generate"
        );
    }
    let left: Vec<_> = committed
        .keys()
        .filter(|name| !pages.contains_key(*name))
        .collect();
    assert_eq!(
        left,
        Vec::<&String>::new(),
        "pages of commands that there are not"
    );
}

#[test]
fn each_shell_gets_a_script_that_knows_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let shell: clap_complete::Shell = shell.parse().unwrap();
        let mut script = Vec::new();
        let mut command = Cli::command();
        clap_complete::generate(shell, &mut command, "refit", &mut script);
        let script = String::from_utf8(script).unwrap();
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(
                script.contains(command.get_name()),
                "{shell}: {}",
                command.get_name()
            );
        }
    }
}
