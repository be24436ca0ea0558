//! Does what a hint says: puts its YAML at the location of the finding.

use refit_offline::gitops::check::{Options, check};
use refit_offline::gitops::objects::objects;
use refit_offline::gitops::yaml::{Kind, Node, Step, Style};
use refit_offline::gitops::{Finding, Rule, Severity};

use super::super::source;

/// The steps to a field such as `spec.secrets[0].path`.
fn steps(field: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in field.split('.') {
        let mut pieces = part.split('[');
        steps.extend(pieces.next().filter(|key| !key.is_empty()).map(Step::from));
        steps.extend(
            pieces
                .filter_map(|piece| piece.strip_suffix(']')?.parse::<usize>().ok())
                .map(Step::from),
        );
    }
    steps
}

/// Where a value ends in the text.
fn end(text: &str, node: &Node) -> usize {
    let last = match (&node.kind, node.style) {
        (Kind::List(items), Style::Indented) => items.iter().map(|item| end(text, item)).max(),
        (Kind::Map(object), Style::Indented) => {
            object.entries.iter().map(|entry| end(text, &entry.value)).max()
        }
        _ => None,
    };
    last.unwrap_or_else(|| node.span.start + text[node.span.clone()].trim_end().len())
}

/// The YAML of a hint, and whether to write, add or rename.
pub(super) fn read(hint: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for verb in ["write", "add", "did you mean"] {
        // A verb within backticks is part of the YAML, such as the `add` of capabilities.
        let mut places = hint.match_indices(verb).map(|(at, _)| at);
        let is_word = |at: &usize| hint[at + verb.len()..].starts_with(' ');
        let outside = places.find(|at| is_word(at) && hint[..*at].matches('`').count().is_multiple_of(2));
        let Some(after) = outside.map(|at| &hint[at + verb.len()..]) else {
            continue;
        };
        let Some((_, quoted)) = after.split_once('`') else {
            continue;
        };
        let (yaml, rest) = quoted.split_once('`').unwrap();
        found.push((verb, yaml));
        if let Some((second, _)) = rest.strip_prefix(" and `").and_then(|rest| rest.split_once('`')) {
            found.push((verb, second));
        }
    }
    if found.is_empty() && hint.starts_with("remove it") {
        found.push(("remove", ""));
    }
    found
}

/// Inserts an entry into an object, before the others.
fn insert(text: &mut String, parent: &Node, yaml: &str) {
    let object = parent.object().unwrap();
    match object.entries.iter().map(|entry| entry.key.span.start).min() {
        Some(first) if parent.style == Style::Indented => {
            let line = text[..first].rfind('\n').map_or(0, |at| at + 1);
            let indent = " ".repeat(text[line..first].chars().count());
            text.insert_str(first, &format!("{yaml}\n{indent}"));
        }
        Some(first) => text.insert_str(first, &format!("{yaml}, ")),
        None => text.insert_str(parent.span.start + 1, yaml),
    }
}

/// Removes an entry from an object.
fn remove(text: &mut String, parent: &Node, start: usize, end: usize) {
    if parent.style == Style::Indented {
        // Its line may begin with the dash of a list, which stays.
        text.replace_range(start..end, "");
        return;
    }
    let rest = text[end..].find([',', '}']).map_or(end, |at| end + at);
    let end = if text[rest..].starts_with(',') {
        rest + 1
    } else {
        end
    };
    text.replace_range(start..end, "");
}

/// The file after the hint was applied; `None` if the hint has no YAML.
pub(super) fn follow(text: &str, found: &Finding) -> Option<String> {
    let hint = found.hint.as_deref()?;
    let all = read(hint);
    let field = found.field.clone()?;
    let mut text = text.to_owned();
    for (verb, yaml) in &all {
        let source = source("plan.yaml", &text);
        let all = objects(&source.stream.documents);
        let object = all
            .iter()
            .find(|object| found.plan.as_deref() == Some(&object.title()))?;
        let mut way = steps(&field);
        let last = way.pop()?;
        let parent = object.node.at(&way);
        let entry = parent.and_then(Node::object).and_then(|object| match &last {
            Step::Key(key) => object.entry(key),
            Step::Index(_) => None,
        });
        let value = parent.and_then(|parent| parent.at(std::slice::from_ref(&last)));
        let is_entry = yaml
            .split_once(": ")
            .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_alphabetic()));
        match *verb {
            "add" if found.rule == Rule::NotAPlan => insert(&mut text, object.node, yaml),
            "add" => {
                // An entry without a value is replaced.
                if let Some(entry) = entry {
                    text.replace_range(entry.key.span.start..end(&source.text, &entry.value), yaml);
                } else {
                    insert(&mut text, parent?, yaml);
                }
            }
            "did you mean" if found.rule == Rule::UnknownField => {
                let entry = entry?;
                let key = entry.key.span.clone();
                if let Some((path, name)) = yaml.rsplit_once('.') {
                    let value_end = end(&source.text, &entry.value);
                    let written = source.text[entry.value.span.start..value_end].to_owned();
                    let Some(target) = object.node.at(&steps(path)) else {
                        // The object that is to have the field is absent.
                        let (above, new) = path.rsplit_once('.')?;
                        remove(&mut text, parent?, key.start, value_end);
                        let yaml = format!("{new}: {{{name}: {written}}}");
                        insert(&mut text, object.node.at(&steps(above))?, &yaml);
                        continue;
                    };
                    if target.span.start < key.start {
                        remove(&mut text, parent?, key.start, value_end);
                        insert(&mut text, target, &format!("{name}: {written}"));
                    } else {
                        insert(&mut text, target, &format!("{name}: {written}"));
                        remove(&mut text, parent?, key.start, value_end);
                    }
                } else {
                    text.replace_range(key, yaml);
                }
            }
            "remove" => {
                let entry = entry?;
                remove(
                    &mut text,
                    parent?,
                    entry.key.span.start,
                    end(&source.text, &entry.value),
                );
            }
            _ if is_entry => {
                let entry = entry?;
                // The colon of an empty entry is behind its value.
                let value_end = end(&source.text, &entry.value).max(entry.key.span.end + 1);
                text.replace_range(entry.key.span.start..value_end, yaml);
            }
            _ => {
                let value = value?;
                let start = value.span.start;
                let value_end = end(&source.text, value);
                // A block begins in the line below its key.
                let is_below =
                    value.style == Style::Indented || value.style == Style::Block || value.is_null();
                let start = entry
                    .filter(|_| is_below)
                    .map_or(start, |entry| entry.key.span.end + 1);
                let value_end = value_end.max(start);
                let space = if text[..start].ends_with(':') { " " } else { "" };
                text.replace_range(start..value_end, &format!("{space}{yaml}"));
            }
        }
    }
    (!all.is_empty()).then_some(text)
}

pub(super) fn findings(text: &str) -> Vec<Finding> {
    check(&[source("plan.yaml", text)], &Options::default()).findings
}

pub(super) fn errors(findings: &[Finding]) -> usize {
    findings
        .iter()
        .filter(|found| found.severity == Severity::Error)
        .count()
}

/// Applies each hint of a file to the original file. Returns what is wrong with the results.
pub(super) fn follow_all(name: &str, text: &str, followed: &mut usize) -> Vec<String> {
    let before = findings(text);
    let mut wrong = Vec::new();
    for found in before.iter().filter(|found| found.rule != Rule::YamlSyntax) {
        let has_yaml = found.hint.as_deref().is_some_and(|hint| !read(hint).is_empty());
        if !has_yaml {
            continue;
        }
        let Some(after) = follow(text, found) else {
            wrong.push(format!("{name}: the hint cannot be followed: {found:?}"));
            continue;
        };
        *followed += 1;
        let report = findings(&after);
        let same = |other: &&Finding| {
            (other.rule, &other.field, &other.plan) == (found.rule, &found.field, &found.plan)
                && other.message == found.message
        };
        let count = |all: &[Finding]| all.iter().filter(same).count();
        if count(&report) >= count(&before) {
            wrong.push(format!(
                "{name}: still found after {:?}: {found:?}\n{after}",
                found.hint
            ));
        }
        // An object that becomes a Plan shows its own mistakes, and so does the value of a field that gets its name.
        let is_revealed = matches!(found.rule, Rule::NotAPlan | Rule::UnknownField);
        if !is_revealed && errors(&report) > errors(&before) - usize::from(found.severity == Severity::Error)
        {
            let new: Vec<_> = report.iter().filter(|other| !before.contains(other)).collect();
            wrong.push(format!(
                "{name}: {:?} makes new mistakes: {new:?}\n{after}",
                found.hint
            ));
        }
    }
    wrong
}
