//! Reasons, phases, conditions and kinds of notices are named only in their lists; all other code uses their variants.

use std::collections::BTreeSet;
use std::path::Path;

use refit_api::{CheckPhase, ConditionType, ForeignReason, NodePhase, Reason, WavePhase};
use refit_formats::notify::NoticeKind;
use regex::Regex;

use crate::layering::sources;

/// Words that others also use, each with the files where it is theirs: pod phases, conditions and reasons of Jobs and
/// pods, a Job's `podReplacementPolicy`, and columns of kubectl are Kubernetes'; a message is
/// system-upgrade-controller's.
const OF_OTHERS: [(&str, &[&str]); 9] = [
    ("BackoffLimitExceeded", &["rehearse/controller_manager/job.rs"]),
    ("Channel", &["api/crd.rs"]),
    (
        "Complete",
        &[
            "api/crd.rs",
            "facts/objects/job.rs",
            "rehearse/controller_manager/job.rs",
        ],
    ),
    (
        "DeadlineExceeded",
        &[
            "rehearse/controller_manager/job.rs",
            "rehearse/pod_lifecycle/stop.rs",
        ],
    ),
    ("Error", &["rehearse/pod_lifecycle/state.rs"]),
    (
        "Failed",
        &[
            "cluster/drain/virtual_machine.rs",
            "cluster/drain/fit.rs",
            "controller/own_image.rs",
            "cluster/drain/pods.rs",
            "job/render/template.rs",
            "facts/objects/job.rs",
            "facts/objects/pod.rs",
            "rehearse/controller_manager/job.rs",
            "rehearse/controller_manager/node.rs",
            "rehearse/pod_lifecycle/state.rs",
            "rehearse/snapshot/builder.rs",
            "rehearse/pods.rs",
        ],
    ),
    (
        "Pending",
        &[
            "cluster/drain/pods.rs",
            "rehearse/controller_manager/job.rs",
            "rehearse/controller_manager/job_pods.rs",
            "rehearse/pod_lifecycle/state.rs",
            "rehearse/server/evict.rs",
            "rehearse/snapshot/builder.rs",
            "rehearse/strategy.rs",
        ],
    ),
    ("PostCompleteDelay", &["rollout/node/finish.rs"]),
    ("Version", &["api/crd.rs"]),
];

/// Files whose longer literals name reasons where no variant can stand: descriptions in the list of reasons, and in that of
/// metrics.
const DESCRIPTIONS: [&str; 2] = ["api/reason/list.rs", "controller/metrics/list.rs"];

/// The contents of string literals, each with its line. Comments have none.
fn literals(code: &str) -> Vec<(usize, &str)> {
    let token = Regex::new(
        r#"(?sx)
        //[^\n]* | /\*.*?\*/ | '(?:\\.[^']*|[^'\\])'
        | r\#+"(.*?)"\#+ | r"([^"]*)" | "((?:[^"\\]|\\.)*)""#,
    );
    let mut found = Vec::new();
    for token in token.unwrap().captures_iter(code) {
        if let Some(text) = (1..=3).find_map(|group| token.get(group)) {
            let line = code[..text.start()].matches('\n').count() + 1;
            found.push((line, text.as_str()));
        }
    }
    found
}

/// The name that a literal is, or that it begins with before a colon.
fn whole<'t>(literal: &'t str, names: &BTreeSet<&str>) -> Option<&'t str> {
    let word = literal.split_once(": ").map_or(literal, |(word, _)| word);
    names.contains(word).then_some(word)
}

/// The names within a longer literal. One of a single word may be meant as a word, so only others count.
fn within<'t>(literal: &'t str, names: &BTreeSet<&str>) -> Vec<&'t str> {
    let is_name = |word: &&str| names.contains(word) && word[1..].contains(char::is_uppercase);
    literal
        .split(|c: char| !c.is_alphanumeric())
        .filter(is_name)
        .collect()
}

fn all_names() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    names.extend(Reason::ALL.iter().map(|it| it.name()));
    names.extend(ForeignReason::ALL.iter().map(|it| it.name()));
    names.extend(NodePhase::ALL.iter().map(|it| it.name()));
    names.extend(WavePhase::ALL.iter().map(|it| it.name()));
    names.extend(CheckPhase::ALL.iter().map(|it| it.name()));
    names.extend(ConditionType::ALL.iter().map(|it| it.name()));
    names.extend(NoticeKind::ALL.iter().map(|it| it.name()));
    names
}

#[test]
fn no_reason_phase_or_condition_is_in_a_string_literal() {
    let names = all_names();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut of_others, mut wrong) = (BTreeSet::new(), Vec::new());
    for (path, code) in sources("") {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        for (line, literal) in literals(&code) {
            let words = match whole(literal, &names) {
                Some(word) => vec![word],
                None if DESCRIPTIONS.contains(&file.as_str()) => Vec::new(),
                None => within(literal, &names),
            };
            for word in words {
                let known = OF_OTHERS.iter().find(|(known, _)| *known == word);
                if known.is_some_and(|(_, files)| files.contains(&file.as_str())) {
                    of_others.insert((word.to_owned(), file.clone()));
                } else {
                    wrong.push(format!("src/{file}:{line}: {word:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "use the variant:\n{}", wrong.join("\n"));
    let listed = OF_OTHERS
        .iter()
        .flat_map(|(word, files)| files.iter().map(|file| ((*word).to_owned(), (*file).to_owned())));
    assert_eq!(of_others, listed.collect());
}

#[test]
fn names_in_string_literals_are_found_in_every_form() {
    let names = BTreeSet::from(["NoSlot", "Held"]);
    let code = "// \"NoSlot\"\nreason == \"NoSlot\"; // of \"NoSlot\"\nlet quote = '\"';\nformat!(\"Held: {why}\")\n\
                fn a<'a>(b: &'a str) { c(\"of \\\"NoSlots\\\"\", r#\"a \"NoSlot\n\"#, Reason::NoSlot) }\n\"two lines, \\\nHeld NoSlot\"";
    let found: Vec<_> = literals(code);
    let lines: Vec<_> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 4, 5, 5, 7]);
    let whole: Vec<_> = found.iter().map(|(_, text)| whole(text, &names)).collect();
    assert_eq!(whole, [Some("NoSlot"), Some("Held"), None, None, None]);
    let within: Vec<_> = found.iter().map(|(_, text)| within(text, &names)).collect();
    assert_eq!(within[2..], [vec![], vec!["NoSlot"], vec!["NoSlot"]]);
}
