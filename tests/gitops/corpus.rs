//! The corpora: broken Plans, and files of all styles to pin.
//!
//! In `broken/`, a comment `#! rule` names the finding on its line, and there must be no other. In `pin/`, a file in
//! `before/` becomes the file of the same name in `after/`, byte for byte, and one in `refused/` stays unchanged, for
//! the reason in its first line.

use std::collections::BTreeSet;

use jiff::Timestamp;
use refit_base::version::Offer;
use refit_base::version::policy::{Offered, Policy};
use refit_offline::gitops::check::{Options, check};
use refit_offline::gitops::pin::{PinRequest, PlanInFile, Verdict, decide_version, plans, rewrite};
use refit_offline::gitops::{Finding, Rule, Severity, Source};
use serde_json::Value;

use super::{files, source};

const TARGET: &str = "v1.34.1+k3s1";

/// Line and rule of all expected findings.
fn expected(text: &str) -> BTreeSet<(usize, String)> {
    let lines = text.lines().enumerate();
    let mut all = Vec::new();
    for (index, line) in lines {
        let rules = line.split_once("#! ").map_or("", |(_, rules)| rules);
        all.extend(rules.split_whitespace().map(|rule| (index + 1, rule.to_owned())));
    }
    numbered(all)
}

/// Numbers repeated findings of one rule on a line.
fn numbered(all: Vec<(usize, String)>) -> BTreeSet<(usize, String)> {
    let mut set = BTreeSet::new();
    for (line, rule) in all {
        let mut name = rule.clone();
        for again in 2.. {
            if set.insert((line, name)) {
                break;
            }
            name = format!("{rule} ({again})");
        }
    }
    set
}

#[test]
fn every_mistake_of_the_broken_plans_is_found_at_its_line_and_nothing_else() {
    let files = files("broken");
    assert!(files.len() >= 30, "{}", files.len());
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, text) in &files {
        let report = check(&[source(name, text)], &Options::default());
        seen.extend(report.findings.iter().map(|found| found.rule));
        let found = report
            .findings
            .iter()
            .map(|found| (found.position.line, found.rule.name().to_owned()))
            .collect();
        let (found, expected) = (numbered(found), expected(text));
        for (line, rule) in expected.difference(&found) {
            wrong.push(format!("{name}:{line}: {rule} is not found"));
        }
        for (line, rule) in found.difference(&expected) {
            let what = report
                .findings
                .iter()
                .find(|f| f.position.line == *line && rule.starts_with(f.rule.name()));
            wrong.push(format!(
                "{name}:{line}: {rule} is found: {}",
                what.map_or("", |f| &f.message)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The others need a channel, a flag or another file.
    let unseen: Vec<_> = Rule::ALL.iter().filter(|rule| !seen.contains(rule)).collect();
    assert_eq!(
        unseen,
        [
            &Rule::ImageMissing,
            &Rule::ChannelUnreachable,
            &Rule::OtherNamespace
        ]
    );
}

#[test]
fn every_finding_has_a_column_within_its_line_and_says_something() {
    for (name, text) in files("broken") {
        for found in check(&[source(&name, &text)], &Options::default()).findings {
            let line = text.lines().nth(found.position.line - 1).unwrap();
            assert!(
                found.position.column <= line.chars().count() + 1,
                "{name}: {found:?}"
            );
            assert!(
                found.message.len() > 10 && !found.message.ends_with('.'),
                "{name}: {found:?}"
            );
            assert!(
                found.hint.as_ref().is_none_or(|hint| hint.len() > 3),
                "{name}: {found:?}"
            );
            if found.severity == Severity::Error {
                let here: String = line.chars().skip(found.position.column - 1).take(1).collect();
                assert_ne!(here, " ", "{name}: {found:?}");
            }
        }
    }
}

#[test]
fn nothing_is_wrong_with_the_examples_and_no_example_of_system_upgrade_controller_is_refused() {
    let examples = std::fs::read_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"))
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let of_suc = files("suc");
    assert!(of_suc.len() >= 6, "{}", of_suc.len());
    for text in examples.chain(of_suc.into_iter().map(|(_, text)| text)) {
        let report = check(&[source("example.yaml", &text)], &Options::default());
        assert_eq!(report.plans > 0, text.contains("kind: Plan"));
        // Their servers have no taint, which a Plan does not show.
        let unexpected = |found: &&Finding| found.rule != Rule::NoControlPlaneToleration;
        assert_eq!(
            report.findings.iter().filter(unexpected).collect::<Vec<_>>(),
            [] as [&Finding; 0]
        );
    }
}

fn want(plan: PlanInFile, version: String) -> PinRequest {
    PinRequest {
        plan,
        version,
        images: false,
        digests: std::collections::BTreeMap::new(),
    }
}

/// The requests of `refit pin --to` for all Plans of a file.
fn wants(source: &Source) -> Vec<PinRequest> {
    plans(source)
        .into_iter()
        .filter_map(|plan| {
            if plan.other.is_some() {
                // An explicit request gets an error with the reason.
                let version = TARGET.to_owned();
                return Some(want(plan, version));
            }
            let policy = Policy {
                allow_downgrade: true,
                ..Policy::default()
            };
            let offer = Offered::from(&Offer::one(TARGET.to_owned()));
            match decide_version(
                plan.version.as_deref(),
                plan.installed,
                &offer,
                &policy,
                Timestamp::UNIX_EPOCH,
            ) {
                Verdict::Take(version) => Some(want(plan, version)),
                Verdict::Same => None,
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

#[test]
fn files_of_all_shapes_are_pinned_and_keep_every_other_byte() {
    let before = files("pin/before");
    let after = files("pin/after");
    assert!(before.len() >= 40, "{}", before.len());
    assert_eq!(before.len(), after.len());
    let mut wrong = Vec::new();
    for ((name, text), (_, expected)) in before.iter().zip(&after) {
        let source = source(name, text);
        assert!(!plans(&source).is_empty(), "{name}");
        match rewrite(&source, &wants(&source)) {
            Ok(found) if found == *expected => {
                let source = source.with_text(found);
                assert_eq!(wants(&source), [], "{name}: again, nothing changes");
            }
            Ok(found) => wrong.push(format!("{name}:\n{found:?}\ninstead of\n{expected:?}")),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_version_that_cannot_be_changed_alone_is_refused_with_the_reason() {
    let files = files("pin/refused");
    assert!(files.len() >= 5);
    for (name, text) in files {
        let (first, _) = text.split_once('\n').unwrap();
        let expected = first.strip_prefix("#! ").unwrap();
        let source = source(&name, &text);
        let error = rewrite(&source, &wants(&source)).expect_err(&name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(error.starts_with(&format!("{name}:")), "{name}: {error}");
    }
}

#[test]
fn plans_that_an_api_server_rejected_have_errors_and_those_it_admitted_have_none() {
    // Recorded from a real API server; `tests/schema.rs` compares them with a current one.
    let cases: Vec<Value> = serde_saphyr::from_str(include_str!("../fixtures/schema-cases.yaml")).unwrap();
    let of_schema = [Rule::WrongType, Rule::MissingField, Rule::NotAllowed];
    let mut wrong = Vec::new();
    let mut asked = 0;
    for case in cases.iter().filter(|case| case["plan"].is_object()) {
        asked += 1;
        let mut plan = case["plan"].clone();
        plan["apiVersion"] = "upgrade.cattle.io/v1".into();
        plan["kind"] = "Plan".into();
        plan["metadata"] = serde_json::json!({ "name": "case", "namespace": "system-upgrade" });
        let report = check(&[source("case.json", &plan.to_string())], &Options::default());
        let found: Vec<_> = report
            .findings
            .iter()
            .filter(|found| of_schema.contains(&found.rule))
            .collect();
        let unknown = report
            .findings
            .iter()
            .any(|found| found.rule == Rule::UnknownField);
        let about = &case["case"];
        if case["refused"].is_string() == found.is_empty() {
            wrong.push(format!("{about}: {found:?}"));
        }
        // A silently dropped field must be reported.
        if case["stored"].is_object() && loses(&case["plan"], &case["stored"]) && !unknown && found.is_empty()
        {
            wrong.push(format!("{about}: nothing is said of what is dropped"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 50, "{asked}");
}

/// Whether something that was sent is not stored. Nulls are ignored.
fn loses(sent: &Value, stored: &Value) -> bool {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => sent
            .iter()
            .any(|(key, sent)| !sent.is_null() && stored.get(key).is_none_or(|stored| loses(sent, stored))),
        (Value::Array(sent), Value::Array(stored)) => {
            sent.iter().zip(stored).any(|(sent, stored)| loses(sent, stored))
        }
        _ => false,
    }
}
