//! What the documents say about the code, held against the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Every Rust source below a folder.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The names of all tests, found by the attribute before them.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in sources("src").into_iter().chain(sources("tests")) {
        let mut is_test = false;
        for line in std::fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::trim_start)
        {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
                names.insert(rest.split(['(', '<']).next().unwrap().to_owned());
                is_test = false;
            }
        }
    }
    names
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The rows of all tables below a heading, as cells.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let below = text.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let section = below.split("\n## ").next().unwrap();
    let cells = |line: &'a str| {
        line.trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
    };
    section
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .map(cells)
        .collect()
}

#[test]
fn every_test_that_the_compatibility_tables_name_exists() {
    let text = read("docs/compatibility.md");
    let tests = tests();
    let mut named = 0;
    for heading in ["What holds", "Deviations"] {
        for row in rows(&text, heading).into_iter().skip(1) {
            assert_eq!(row.len(), 4, "{row:?}");
            let cited: Vec<_> = quoted(row[3]).collect();
            assert!(row[3] == "—" || !cited.is_empty(), "no test and no dash: {row:?}");
            for name in cited {
                assert!(tests.contains(name), "{name} is no test: {row:?}");
                named += 1;
            }
        }
    }
    assert!(named > 30, "{named}");
}

#[test]
fn every_feature_of_the_contract_has_its_line() {
    let text = read("docs/compatibility.md");
    let ids: Vec<_> = rows(&text, "What holds")
        .into_iter()
        .skip(1)
        .map(|row| row[0].to_owned())
        .collect();
    let all: Vec<_> = (1..=67).map(|number| format!("F{number}")).collect();
    assert_eq!(ids, all);
}

#[test]
fn every_reason_is_told_with_its_way_out() {
    let text = read("docs/operations.md");
    let told: BTreeSet<_> = rows(&text, "Why does nothing happen?")
        .into_iter()
        .skip(1)
        .map(|row| {
            assert!(
                row.len() == 3 && row.iter().all(|cell| !cell.is_empty()),
                "{row:?}"
            );
            row[0].trim_matches('`').to_owned()
        })
        .collect();
    let code = read("src/rollout/blocker.rs");
    let reasons = code
        .split_once("fn reason")
        .unwrap()
        .1
        .split_once("\n    }\n")
        .unwrap()
        .0;
    let reasons: BTreeSet<_> = reasons.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(reasons.len() >= 15, "{reasons:?}");
    let untold: Vec<_> = reasons.difference(&told).collect();
    assert!(untold.is_empty(), "{untold:?} are not in docs/operations.md");
    // The others are said of a node that has its slot.
    let others: Vec<_> = told.difference(&reasons).map(String::as_str).collect();
    assert_eq!(
        others,
        ["Cancelled", "DrainWaiting", "PodWaiting", "PostCompleteDelay"]
    );
    let files = ["", "/begin", "/fail", "/finish", "/standing"];
    let node: String = files
        .map(|file| read(&format!("src/rollout/node{file}.rs")))
        .concat();
    for reason in others {
        assert!(
            node.contains(&format!("{reason:?}")),
            "{reason} is said by nobody"
        );
    }
}

#[test]
fn every_flag_and_variable_is_in_the_settings() {
    let text = read("docs/operations.md");
    let told: BTreeSet<_> = quoted(text.split_once("\n## Settings\n").unwrap().1).collect();
    let mut missing = Vec::new();
    let flags = read("src/controller/settings/flags.rs");
    for line in flags
        .lines()
        .filter(|line| line.trim_start().starts_with("pub ") && line.contains(": "))
    {
        let name = line
            .trim_start()
            .trim_start_matches("pub ")
            .split(':')
            .next()
            .unwrap();
        let flag = format!("--{}", name.replace('_', "-"));
        if !told.contains(flag.as_str()) {
            missing.push(flag);
        }
    }
    for path in sources("src/controller/settings")
        .iter()
        .chain([&root().join("src/controller/settings.rs")])
    {
        let code = std::fs::read_to_string(path).unwrap();
        if path.ends_with("tests.rs") {
            continue;
        }
        let words = code
            .split(|c: char| !c.is_ascii_uppercase() && c != '_')
            .map(|word| word.trim_matches('_'));
        let prefixes = ["SYSTEM_UPGRADE_", "REFIT_", "CATTLE_", "ALLOW_USER_"];
        for word in words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))) {
            if !told.contains(word) {
                missing.push(word.to_owned());
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut checked = 0;
    let docs = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    for path in docs.chain([root().join("README.md")]) {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.parent().unwrap().join(file)
            };
            assert!(target.exists(), "{}: {link}", path.display());
            if !anchor.is_empty() {
                let headings = std::fs::read_to_string(&target).unwrap();
                assert!(
                    headings.lines().any(|line| slug(line) == anchor),
                    "{}: {link}",
                    path.display()
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked}");
}

/// The anchor that a heading gets.
fn slug(line: &str) -> String {
    let heading = line.trim_start_matches('#').trim();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}
