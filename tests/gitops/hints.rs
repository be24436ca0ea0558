//! Applies the hints of `refit validate` literally: YAML in backticks after `write`, `add` or `did you mean` is put at
//! the location of the finding, which must be gone afterwards. For common mistakes that say what is meant, the result must
//! be that value; of the others the place is found.

mod follow;

use refit_offline::gitops::{Finding, Rule, Severity};
use serde_json::Value;

use super::{files, source};
use follow::{errors, findings, follow, follow_all, read};

#[test]
fn every_hint_with_yaml_for_a_broken_plan_can_be_followed_to_the_letter() {
    let mut followed = 0;
    let mut wrong = Vec::new();
    for (name, text) in files("broken") {
        // One location serves several Plans.
        if name != "in-an-anchor.yaml" {
            wrong.extend(follow_all(&name, &text, &mut followed));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(followed > 60, "{followed}");
}

/// A Plan with more lines of spec.
fn plan(lines: &str) -> String {
    let mut text = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p, namespace: system-upgrade}\nspec:\n".to_owned();
    for (name, line) in [
        ("concurrency", "concurrency: 1"),
        ("version", "version: v1.33.4+k3s1"),
        (
            "nodeSelector",
            "nodeSelector: {matchLabels: {k3s-upgrade: enabled}}",
        ),
        ("serviceAccountName", "serviceAccountName: system-upgrade"),
        ("upgrade", "upgrade: {image: rancher/k3s-upgrade}"),
    ] {
        if !lines.lines().any(|own| own.starts_with(&format!("{name}:"))) {
            text.extend(["  ", line, "\n"]);
        }
    }
    for line in lines.lines() {
        text.extend(["  ", line, "\n"]);
    }
    text
}

/// Lines of spec with one mistake (`\n` between them), and the field to compare after the hint was applied with its intended
/// value, or the field of the finding.
const MISTAKES: &str = include_str!("hints/mistakes.txt");

/// Lines of spec in each line of a file, with `\n` between them.
fn listed(file: &str) -> impl Iterator<Item = String> {
    file.lines().map(|lines| lines.replace("\\n", "\n"))
}

/// The lines of each, and what is behind the arrow.
fn mistakes() -> impl Iterator<Item = (String, &'static str)> {
    let cases = MISTAKES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# "));
    cases.map(|case| {
        let (lines, rest) = case.split_once(" => ").expect(case);
        (lines.replace("\\n", "\n"), rest)
    })
}

#[test]
fn a_mistake_is_found_at_its_field_with_what_is_allowed() {
    let mut asked = 0;
    let mut wrong = Vec::new();
    for (lines, field) in mistakes().filter(|(_, rest)| !rest.contains(" = ")) {
        asked += 1;
        let found = findings(&plan(&lines));
        let is_it = |one: &Finding| one.severity > Severity::Note && one.field.as_deref() == Some(field);
        if !found.iter().any(is_it) {
            wrong.push(format!("{lines}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 100, "{asked}");
}

#[test]
fn a_followed_hint_gives_the_value_that_the_author_meant() {
    let mut wrong = Vec::new();
    for (lines, rest) in mistakes() {
        let Some((pointer, expected)) = rest.split_once(" = ") else {
            continue;
        };
        let expected: Value = serde_json::from_str(expected).expect(rest);
        let text = plan(&lines);
        let mut after = text.clone();
        // Some lines have several mistakes, each with its hint.
        for _ in 0..3 {
            let Some(next) = findings(&after).iter().find_map(|found| {
                let next = follow(&after, found)?;
                (found.rule != Rule::NullField).then_some(next)
            }) else {
                break;
            };
            after = next;
        }
        let source = source("plan.yaml", &after);
        let plan = source.stream.documents[0].to_json();
        let value = plan["spec"].pointer(pointer).cloned().unwrap_or(Value::Null);
        if value != expected {
            wrong.push(format!(
                "{lines}\n  gives {value}, and {expected} was meant: {:?}\n{after}",
                findings(&text)
            ));
        }
        let left: Vec<_> = findings(&after)
            .into_iter()
            .filter(|found| found.severity == Severity::Error)
            .collect();
        if !left.is_empty() {
            wrong.push(format!("{lines}\n  is still wrong: {left:?}\n{after}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_hint_for_such_a_mistake_is_right_by_itself() {
    let mut followed = 0;
    let mut wrong = Vec::new();
    for (lines, ..) in mistakes() {
        wrong.extend(follow_all(&lines, &plan(&lines), &mut followed));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(followed > 100, "{followed}");
}

#[test]
fn an_ambiguous_value_has_no_hint_with_yaml() {
    for lines in listed(include_str!("hints/ambiguous.txt")) {
        let text = plan(&lines);
        let found = findings(&text);
        assert!(!found.is_empty(), "{lines}");
        for found in found {
            let hint = found.hint.clone().unwrap_or_default();
            // An example must say that it is one.
            assert!(
                read(&hint).is_empty() || hint.contains("such as"),
                "{lines}: {found:?}"
            );
        }
    }
}

#[test]
fn a_field_of_the_wrong_type_has_no_findings_that_follow_from_it() {
    for (lines, rule) in [
        (
            "prepare: {image: rancher/k3s-upgrade, args: prepare server}",
            Rule::PreparePlan,
        ),
        (
            "prepare: {image: rancher/k3s-upgrade, args: [prepare, 5]}",
            Rule::PreparePlan,
        ),
        (
            "nodeSelector: {matchExpressions: [{key: a, operator: In, values: b}]}",
            Rule::BadSelector,
        ),
        ("version: ''\nchannel: ['https://a.example/b']", Rule::ImageTag),
        ("upgrade: {image: i, volumes: [{source: /a}]}", Rule::BadJob),
    ] {
        let found = findings(&plan(lines));
        assert!(errors(&found) > 0, "{lines}: {found:?}");
        assert!(found.iter().all(|one| one.rule != rule), "{lines}: {found:?}");
    }
    let found = findings(&plan("upgrade: {name: i}"));
    let hints = found.iter().filter_map(|one| one.hint.as_deref());
    assert!(
        hints.clone().count() > 0 && hints.clone().all(|hint| !hint.contains("Ref")),
        "{found:?}"
    );
}

#[test]
fn one_mistake_has_one_finding() {
    let mut wrong = Vec::new();
    for lines in listed(include_str!("hints/single.txt")) {
        let found = findings(&plan(&lines));
        if found.len() != 1 {
            wrong.push(format!("{lines}: {found:#?}"));
        }
    }
    let good = plan("version: v1.33.4+k3s1");
    let (head, _) = good.split_once("spec:").unwrap();
    for (from, to) in [
        ("  concurrency:", "  Concurrency:"),
        ("  concurrency: 1", "  concurrent: \"2\""),
        ("  version: v1.33.4+k3s1", "  verison: v1.33.4+k3s1"),
        (
            "  version: v1.33.4+k3s1",
            "  channels: https://update.k3s.io/v1-release/channels/stable",
        ),
        ("  nodeSelector:", "  nodeselector:"),
        (
            "  upgrade: {image: rancher/k3s-upgrade}",
            "upgrade: {image: rancher/k3s-upgrade}",
        ),
        ("{name: p,", "{Name: p,"),
        ("{name: p,", "{name: ,"),
        ("namespace: system-upgrade", "namespace: "),
        ("{name: p,", "{generateName: p,"),
        ("metadata: {name: p, namespace: system-upgrade}", "metadata: x"),
        (&good[head.len()..], "spec:\n"),
        (&good[head.len()..], "spec: []\n"),
        (&good[head.len()..], "spec: x\n"),
        ("kind: Plan", "kind: [Plan]"),
        ("apiVersion:", "apiversion:"),
        ("apiVersion: upgrade.cattle.io/v1\n", ""),
        (
            "apiVersion: upgrade.cattle.io/v1",
            "apiVersion: [upgrade.cattle.io/v1]",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let found = findings(&good.replacen(from, to, 1));
        if found.len() != 1 {
            wrong.push(format!("{to}: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_control_plane_node_at_a_time_is_kept_by_max_unavailable_too() {
    let of = |lines: &str| {
        let lines = format!(
            "{lines}\nnodeSelector: {{matchLabels: {{node-role.kubernetes.io/control-plane: 'true'}}}}"
        );
        let found = findings(&plan(&lines));
        found.iter().any(|one| one.rule == Rule::ControlPlaneConcurrency)
    };
    assert!(of("concurrency: 3") && of("concurrency: 3\nmaxUnavailable: 2"));
    assert!(!of("concurrency: 3\nmaxUnavailable: 1"));
}

/// Without its label, a selector may select every node.
#[test]
fn a_label_without_a_value_gets_the_empty_one() {
    for (lines, pointer) in [
        (
            "nodeSelector:\n  matchLabels:\n    k3s-upgrade:",
            "/nodeSelector/matchLabels/k3s-upgrade",
        ),
        ("postCompleteLabels: {a: null}", "/postCompleteLabels/a"),
    ] {
        let text = plan(lines);
        let found = findings(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        let after = follow(&text, &found[0]).unwrap();
        let spec = source("plan.yaml", &after).stream.documents[0].to_json()["spec"].clone();
        assert_eq!(spec.pointer(pointer), Some(&Value::from("")), "{after}");
        assert!(findings(&after).is_empty(), "{after}");
    }
}
