//! The rings of the house, held by reading the sources: what may know of what.

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file below `src/<part>` and `src/<part>.rs`, unit tests aside, with its text.
fn sources(part: &str) -> Vec<(PathBuf, String)> {
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
        // What follows is not part of the program.
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
            .to_owned();
        (path, code)
    };
    files.into_iter().map(read).collect()
}

/// Lines of code that hold one of the words, comments aside.
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

/// Whether a line has the word, and not only a longer one that ends in it.
fn has(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |at: usize| !code[..at].ends_with(is_part) || !word.starts_with(is_part);
    code.match_indices(word).any(|(at, _)| begins(at))
}

#[test]
fn rollout_job_and_version_have_no_client_no_runtime_no_clock_no_environment_and_no_files() {
    let forbidden = [
        "kube::",
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
        "crate::controller",
        "crate::cli",
        "rand::",
    ];
    for part in ["rollout", "job", "version"] {
        let found = lines_with(part, &forbidden);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn the_api_does_not_know_who_uses_it() {
    let found = lines_with(
        "api",
        &[
            "crate::controller",
            "crate::rollout",
            "crate::job",
            "crate::cli",
            "tokio::",
        ],
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn time_is_read_in_one_place() {
    let found: Vec<_> = lines_with("", &["Timestamp::now", "SystemTime::now", "std::time::Instant"])
        .into_iter()
        .filter(|line| !line.contains("/src/clock.rs:"))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn printing_is_done_in_one_place() {
    let found: Vec<_> = lines_with(
        "",
        &["println!(", "eprintln!(", "print!(", "io::stdout", "io::stderr"],
    )
    .into_iter()
    .filter(|line| !line.contains("/src/cli/output.rs:") && !line.contains("/src/telemetry.rs:"))
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
