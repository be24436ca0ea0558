//! Compares statements of the documents with the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use refit_api::reason::Reason;
use refit_api::{ConditionType, NodePhase};

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

/// Documents outside of `docs`.
const OTHERS: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "deploy/chart/README.md",
    "docs/simulation.md",
    "tests/README.md",
    "docs/contract.md",
];

/// The names of all tests: of functions with the attribute, and of those in a list of `scenarios!`.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in sources("src").into_iter().chain(sources("tests")) {
        let (mut is_test, mut in_list) = (false, false);
        for line in std::fs::read_to_string(path).unwrap().lines() {
            in_list = line == "scenarios! {" || (in_list && line != "}");
            if in_list {
                names.extend(identifiers(line));
            }
            let line = line.trim_start();
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

fn identifiers(line: &str) -> impl Iterator<Item = String> {
    let words = line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Text between backticks.
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

/// The lines of `tests/evidence.txt`: a claim, and the tests that show it.
fn evidence() -> Vec<(String, Vec<String>)> {
    let text = read("tests/evidence.txt");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (claim, tests) = line
            .split_once(" | ")
            .unwrap_or_else(|| panic!("no ` | `: {line}"));
        let tests = tests.split_whitespace().map(str::to_owned);
        (claim.to_owned(), tests.collect())
    };
    lines.map(split).collect()
}

/// `src/cli/tests/manifests.rs` makes `tests/README.md` of them.
#[test]
fn every_claim_has_a_test_and_every_test_that_is_named_exists() {
    let tests = tests();
    let mut named = 0;
    for (claim, cited) in evidence() {
        assert!(!cited.is_empty(), "no test: {claim}");
        for name in cited {
            assert!(tests.contains(&name), "{name} is no test: {claim}");
            named += 1;
        }
    }
    assert!(named > 300, "{named}");
    let text = read("tests/evidence.txt");
    let (_, attacks) = text.split_once("\n## Attacks\n").unwrap();
    let attacks = attacks.lines().take_while(|line| !line.starts_with('#'));
    assert!(attacks.filter(|line| !line.is_empty()).count() >= 40);
}

/// The number that a claim begins with.
fn numbers(claims: impl IntoIterator<Item = String>, letter: char) -> Vec<String> {
    let first = |claim: String| claim.split(' ').next().unwrap_or_default().to_owned();
    let is_number = |word: &String| {
        word.strip_prefix(letter)
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    claims.into_iter().map(first).filter(is_number).collect()
}

#[test]
fn every_feature_of_system_upgrade_controller_and_every_deviation_from_it_is_tested() {
    let claims = || evidence().into_iter().map(|(claim, _)| claim);
    let features: Vec<_> = (1..=67).map(|number| format!("F{number}")).collect();
    assert_eq!(numbers(claims(), 'F'), features);
    let text = read("docs/compatibility.md");
    let documented = rows(&text, "Deviations").into_iter().map(|row| row[0].to_owned());
    let documented = numbers(documented, 'D');
    assert!(documented.len() > 40, "{documented:?}");
    assert_eq!(numbers(claims(), 'D'), documented);
}

/// `src/api/reason/tests.rs` compares the tables with the list; here no reason may be in none of them.
#[test]
fn every_reason_phase_and_condition_is_in_a_table() {
    let text = read("docs/operations.md");
    let tables: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let names = Reason::ALL.iter().map(|reason| reason.name());
    let names = names
        .chain(NodePhase::ALL.iter().map(|phase| phase.name()))
        .chain(ConditionType::ALL.iter().map(|condition| condition.name()));
    for name in names {
        let name = format!("`{name}`");
        let is_documented = |line: &&str| {
            line.split('|').any(|cell| {
                cell.split(' ')
                    .any(|word| word == name || word.starts_with(&format!("[{name}](")))
            })
        };
        assert!(
            tables.iter().any(is_documented),
            "{name} is not in docs/operations.md"
        );
    }
}

#[test]
fn every_flag_and_variable_is_in_the_settings() {
    let text = read("docs/operations.md");
    let documented: BTreeSet<_> = quoted(text.split_once("\n## Settings\n").unwrap().1).collect();
    let mut missing = Vec::new();
    let flags = read("src/controller/settings/flags.rs");
    let fields = flags
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub ")?.split_once(": "));
    for (name, _) in fields {
        let flag = format!("--{}", name.replace('_', "-"));
        if !documented.contains(flag.as_str()) {
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
            if !documented.contains(word) {
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
    for path in docs.chain(OTHERS.map(|file| root().join(file))) {
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

/// The documents with commands for users and contributors.
fn documents() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain(OTHERS.map(|file| root().join(file))).collect()
}

/// A block of commands has a mark above it, with the test that runs them or the reason why none does.
#[test]
fn every_command_of_the_documents_is_run_by_a_test_or_says_why_not() {
    const PROGRAMS: [&str; 10] = [
        "kubectl",
        "helm",
        "refit",
        "just",
        "cargo",
        "docker",
        "kustomize",
        "sed",
        "git",
        "grep",
    ];
    let tests = tests();
    let (mut wrong, mut run) = (Vec::new(), 0);
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut is_inside = false;
        for (number, line) in lines.iter().enumerate() {
            if !line.starts_with("```") {
                continue;
            }
            is_inside = !is_inside;
            if !is_inside || !matches!(*line, "```" | "```sh") {
                continue;
            }
            let block = lines[number + 1..]
                .iter()
                .take_while(|line| !line.starts_with("```"));
            let mut words = block.filter_map(|line| line.split_whitespace().next());
            if !words.any(|word| PROGRAMS.contains(&word)) {
                continue;
            }
            let mut above = lines[..number].iter().rev();
            let above = above.find(|line| !line.trim().is_empty()).unwrap_or(&"").trim();
            let mark = above
                .strip_prefix("<!-- ")
                .and_then(|mark| mark.strip_suffix(" -->"))
                .unwrap_or_default();
            let is_marked = if let Some(test) = mark.strip_prefix("run by ") {
                run += 1;
                tests.contains(test.split(':').next().unwrap())
            } else if let Some(why) = mark.strip_prefix("not run: ") {
                why.split(' ').count() > 2
            } else {
                // An output, which a test compares with that of its command.
                mark.starts_with("recorded: refit ")
            };
            if !is_marked {
                wrong.push(format!("{}:{}: {above}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "commands without a mark: {wrong:#?}");
    assert!(run > 12, "{run}");
}

/// Comments cite the contract by its numbers (`S50`, `W13`).
#[test]
fn each_number_of_the_contract_that_a_comment_cites_has_its_row() {
    let contract = read("docs/contract.md");
    let rows: BTreeSet<&str> = contract
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next())
        .collect();
    let is_number = |word: &str| {
        word.strip_prefix(['S', 'W'])
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut cited = 0;
    for path in sources("src").into_iter().chain(sources("tests")) {
        let text = std::fs::read_to_string(&path).unwrap();
        for comment in text.lines().filter_map(|line| line.split_once("//")) {
            let words = comment.1.split(|c: char| !c.is_ascii_alphanumeric());
            for number in words.filter(|word| is_number(word)) {
                cited += 1;
                assert!(rows.contains(number), "{}: {number}", path.display());
            }
        }
    }
    assert!(cited > 100, "only {cited} citations found");
}
