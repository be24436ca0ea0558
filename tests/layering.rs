//! Checks in the sources what Cargo does not: where time is read and where the program prints, that pure crates do neither and read
//! no files, that the code has no forks for tests, and that the documents have the table of crates. Which crate may use which is in
//! the `Cargo.toml` of each, so the compiler checks that.

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file below `src/<part>` and `src/<part>.rs`, unit tests aside, with its text.
pub(crate) fn sources(part: &str) -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let single = src.join(format!("{part}.rs"));
    if single.is_file() {
        files.push(single);
    }
    let mut folders = vec![if part.is_empty() { src } else { src.join(part) }];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "tests") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ext| ext == "rs")
                && path.file_name().is_some_and(|name| name != "tests.rs")
            {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "there is no src/{part}");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        // The rest is not part of the program.
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
            .to_owned();
        (path, code)
    };
    files.into_iter().map(read).collect()
}

/// Lines of code with one of the words, without comments.
fn lines_with(part: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(part) {
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("//") && words.iter().any(|word| has(code, word)) {
                found.push(format!("{}:{}: {code}", path.display(), number + 1));
            }
        }
    }
    found
}

/// Whether a line has the word, not only as the end of a longer one.
fn has(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |at: usize| !code[..at].ends_with(is_part) || !word.starts_with(is_part);
    code.match_indices(word).any(|(at, _)| begins(at))
}

/// The lines of a table or list of a manifest: those between the line `begin` and the one that `ends` it.
fn section(manifest: &str, begin: &str, ends: char) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().skip_while(|line| *line != begin).skip(1);
    let lines = lines.take_while(|line| !line.starts_with(ends));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// The crates below `src`, in the order of the workspace, which is that of their layers.
fn members() -> Vec<String> {
    let lines = section("Cargo.toml", "members = [", ']');
    let name = |line: String| {
        line.strip_prefix("\"src/")?
            .strip_suffix("\",")
            .map(str::to_owned)
    };
    lines.into_iter().filter_map(name).collect()
}

/// The crates of the workspace that one depends on, those of its tests aside.
fn dependencies(member: &str) -> Vec<String> {
    let lines = section(&format!("src/{member}/Cargo.toml"), "[dependencies]", '[');
    let name = |line: String| Some(line.strip_prefix("refit-")?.split(['.', ' ']).next()?.to_owned());
    lines.into_iter().filter_map(name).collect()
}

/// The rows of the table of crates of a document, as cells.
fn documented(document: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

#[test]
fn the_map_lists_the_crates_in_the_order_of_their_layers() {
    let mut crates = members();
    crates.push("refit".to_owned());
    let rows = documented("CONTRIBUTING.md");
    let names: Vec<_> = rows.iter().map(|row| row[1].trim_matches('`')).collect();
    assert_eq!(names, crates);
}

#[test]
fn the_map_names_the_crates_that_each_crate_depends_on() {
    for row in documented("CONTRIBUTING.md") {
        let name = row[1].trim_matches('`');
        let documented: Vec<_> = row[3].split('`').skip(1).step_by(2).collect();
        if name != "refit" {
            assert_eq!(documented, dependencies(name), "{name}");
        }
    }
}

#[test]
fn a_crate_depends_only_on_those_above_it() {
    let members = members();
    for (at, member) in members.iter().enumerate() {
        for dependency in dependencies(member) {
            assert!(members[..at].contains(&dependency), "{member} on {dependency}");
        }
    }
}

#[test]
fn pure_crates_have_no_runtime_no_clock_no_environment_and_no_files() {
    let forbidden = [
        "tokio::",
        "reqwest::",
        "std::env",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "SystemTime",
        "Instant",
        "Timestamp::now",
        "Zoned::now",
        "std::{",
        "rand::",
        "rustix::",
    ];
    // Of `offline`, what compares two controllers; the rest of it reads Plan files.
    for part in [
        "base",
        "api",
        "job",
        "facts",
        "rollout",
        "formats",
        "offline/migrate",
    ] {
        let mut found = lines_with(part, &forbidden);
        // An address is a value.
        found.retain(|line| !line.ends_with("use std::net::IpAddr;"));
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn time_is_read_in_one_place() {
    let found: Vec<_> = lines_with("", &["Timestamp::now", "SystemTime::now", "std::time::Instant"])
        .into_iter()
        .filter(|line| !line.contains("/src/cluster/clock.rs:"))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn watches_pages_answers_and_pauses_have_one_place_each() {
    // What is found, and the files where it may be. The dashboard follows the cluster of its user, not the controller's.
    let places: [(&[&str], &[&str]); 4] = [
        (
            &["WatchEvent::", "Watch::<"],
            &[
                "cluster/kube/watch.rs",
                "controller/watches.rs",
                "cli/dashboard/follow.rs",
            ],
        ),
        (&["continue_token"], &["cluster/kube/pages.rs"]),
        (&["status.code ", "status.code,"], &["cluster/kube/error.rs"]),
        (&["* 2).min(", "saturating_pow"], &["base/backoff.rs"]),
    ];
    for (words, files) in places {
        let parts = [
            "base",
            "channel",
            "cluster",
            "controller",
            "rollout",
            "view",
            "cli",
        ];
        let mut found: Vec<_> = parts
            .into_iter()
            .flat_map(|part| lines_with(part, words))
            .collect();
        found.retain(|line| files.iter().all(|file| !line.contains(&format!("/src/{file}:"))));
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn printing_is_done_in_one_place() {
    let found: Vec<_> = lines_with(
        "",
        &["println!(", "eprintln!(", "print!(", "io::stdout", "io::stderr"],
    )
    .into_iter()
    .filter(|line| !line.contains("/src/cli/output.rs:") && !line.contains("/src/controller/telemetry.rs:"))
    .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_core_and_its_shell_have_no_forks_for_tests() {
    for part in ["controller", "rollout"] {
        let found: Vec<_> = lines_with(part, &["cfg!(", "#[cfg(", "cfg_attr("])
            .into_iter()
            .filter(|line| !line.contains("#[cfg(test)]"))
            .collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn modules_have_a_file_of_their_own_name() {
    let found: Vec<_> = sources("")
        .into_iter()
        .filter(|(path, _)| path.ends_with("mod.rs"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}
