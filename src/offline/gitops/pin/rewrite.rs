//! Edits the versions of all Plans of a file in one pass, and parses the result once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::change::Change;
use super::error::{PinError, PinErrorKind};
use super::images::tags;
use super::plan::{CHANNEL, PinRequest, PlanInFile, VERSION};
use super::shared::refuse_shared;
use crate::gitops::edit::candidates;
use crate::gitops::source::Source;
use crate::gitops::yaml::{Node, Step};
use refit_api::Plan;

/// The text with the requested versions; the same text if it has them.
///
/// # Errors
/// Fails if one Plan cannot be edited; no Plan of the file is changed then.
pub fn rewrite(source: &Source, requests: &[PinRequest]) -> Result<String, PinError> {
    check_readable(source, requests)?;
    let mut changes: Vec<_> = requests
        .iter()
        .flat_map(|request| changes_of(source, request))
        .collect();
    let definitions = refuse_shared(source, &changes)?;
    // Each round takes a candidate from at least one change, so the loop ends.
    while !changes.is_empty() {
        if let Some(change) = changes.iter().find(|change| change.candidates.is_empty()) {
            let why = change.why.clone();
            return Err(change.refused(source, why.map_or(String::new(), |why| format!(" ({why})"))));
        }
        let edited = apply(source, &changes)?;
        let failures = failures(source, &edited, &changes, &definitions)?;
        if failures.is_empty() {
            return Ok(edited.text);
        }
        for (index, why) in failures {
            let change = &mut changes[index];
            change.candidates.pop();
            change.why.get_or_insert(why);
        }
    }
    Ok(source.text.clone())
}

fn check_readable(source: &Source, requests: &[PinRequest]) -> Result<(), PinError> {
    let failed = |offset: usize, kind: PinErrorKind| {
        Err(PinError {
            file: source.name.clone(),
            line: source.position(offset).line,
            plan: None,
            kind: Box::new(kind),
        })
    };
    if let Some(error) = source.stream.errors.first().filter(|_| !requests.is_empty()) {
        return failed(error.offset, PinErrorKind::Syntax(error.message.clone()));
    }
    for request in requests {
        if let Some(other) = &request.plan.other {
            return Err(PinError {
                file: source.name.clone(),
                line: request.plan.line,
                plan: Some(request.plan.title.clone()),
                kind: Box::new(PinErrorKind::NoVersion {
                    what: other.what.clone(),
                    remedy: other.remedy,
                }),
            });
        }
    }
    let documents: BTreeSet<_> = requests.iter().map(|request| request.plan.document).collect();
    for document in documents {
        let document = source.stream.documents.get(document);
        if let Some(key) = document.map(Node::repeated).unwrap_or_default().first() {
            return failed(key.span.start, PinErrorKind::Repeated(key.name.clone()));
        }
    }
    Ok(())
}

/// A key that appears twice in the document of a Plan, whose version is then that of one of the two.
pub fn repeated(source: &Source, plan: &PlanInFile) -> Option<PinErrorKind> {
    let document = source.stream.documents.get(plan.document)?;
    let repeated = document.repeated();
    Some(PinErrorKind::Repeated(repeated.first()?.name.clone()))
}

fn changes_of<'w>(source: &Source, request: &'w PinRequest) -> Vec<Change<'w>> {
    let version = [request.plan.path.as_slice(), &["spec".into(), VERSION.into()]].concat();
    let mut values = tags(request);
    values.push((version, request.version.clone()));
    let document = source.stream.documents.get(request.plan.document);
    let change = |(path, value): (Vec<Step>, String)| {
        let (Step::Key(key), parent) = path.split_last()? else {
            return None;
        };
        if document?.at(&path).and_then(Node::text) == Some(&value) {
            return None;
        }
        let parent = document?.at(parent);
        let mut candidates = parent.map_or(Vec::new(), |parent| {
            candidates(source, parent, key, &value, CHANNEL)
        });
        candidates.reverse();
        Some(Change {
            request,
            path,
            value,
            candidates,
            why: None,
        })
    };
    values.into_iter().filter_map(change).collect()
}

/// Applies the best edit of each change.
fn apply(source: &Source, changes: &[Change<'_>]) -> Result<Source, PinError> {
    let mut edits: Vec<_> = changes
        .iter()
        .filter_map(|change| Some((change.candidates.last()?, change)))
        .collect();
    edits.sort_by_key(|(edit, _)| (edit.range.start, edit.range.end));
    let mut text = String::with_capacity(source.text.len() + edits.len());
    let mut at = 0;
    for (edit, change) in edits {
        let Some(before) = source.text.get(at..edit.range.start) else {
            let why = " (another change is at the same place)";
            return Err(change.refused(source, why.to_owned()));
        };
        text.push_str(before);
        text.push_str(&edit.text);
        at = edit.range.end;
    }
    text.push_str(source.text.get(at..).unwrap_or_default());
    Ok(source.with_text(text))
}

/// The changes whose edits do not set their values, or change something else, and what they change.
fn failures(
    source: &Source,
    edited: &Source,
    changes: &[Change<'_>],
    definitions: &[(usize, Vec<Step>, String)],
) -> Result<BTreeMap<usize, String>, PinError> {
    let mut failures = BTreeMap::new();
    let is_broken =
        !edited.stream.errors.is_empty() || edited.stream.documents.len() != source.stream.documents.len();
    if is_broken {
        failures.insert(
            nearest(edited, changes),
            "the file could not be read any more".to_owned(),
        );
        return Ok(failures);
    }
    let mut of_document: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, change) in changes.iter().enumerate() {
        of_document
            .entry(change.request.plan.document)
            .or_default()
            .push(index);
    }
    let documents = source.stream.documents.iter().zip(&edited.stream.documents);
    for (document, (old, new)) in documents.enumerate() {
        let (before, found) = (old.to_json(), new.to_json());
        let mut expected = before.clone();
        let here = of_document.get(&document).map(Vec::as_slice).unwrap_or_default();
        for index in here {
            let change = &changes[*index];
            put(&mut expected, &change.path, &change.value);
        }
        for (_, path, value) in definitions.iter().filter(|(at, ..)| *at == document) {
            put(&mut expected, path, value);
        }
        if expected == found {
            for index in here {
                let change = &changes[*index];
                // A Plan that was unreadable before, as with a placeholder for a number, cannot be checked like this.
                if check_plan(change, &before).is_ok() {
                    check_plan(change, &found).map_err(|why| change.refused(source, why))?;
                }
            }
            continue;
        }
        let missed = here
            .iter()
            .filter(|index| {
                let change = &changes[**index];
                new.at(&change.path).and_then(Node::text) != Some(&change.value)
            })
            .copied();
        let at = difference(&expected, &found, String::new()).unwrap_or_default();
        let known = failures.len();
        failures.extend(missed.map(|index| (index, at.clone())));
        if failures.len() == known {
            failures.insert(here.first().copied().unwrap_or_default(), at);
        }
    }
    Ok(failures)
}

/// The change with the last edit before the syntax error.
fn nearest(edited: &Source, changes: &[Change<'_>]) -> usize {
    let end = edited
        .stream
        .errors
        .first()
        .map_or(edited.text.len(), |error| error.offset);
    let start = |change: &Change<'_>| change.candidates.last().map_or(0, |edit| edit.range.start);
    let before = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| start(change) <= end);
    before
        .max_by_key(|(_, change)| start(change))
        .map_or(0, |(index, _)| index)
}

/// Fails if the controller could not read the Plan.
fn check_plan(change: &Change<'_>, document: &Value) -> Result<(), String> {
    let plan = change
        .request
        .plan
        .path
        .iter()
        .try_fold(document, |json, step| match step {
            Step::Key(key) => json.get(key),
            Step::Index(index) => json.get(index),
        });
    let plan = plan.cloned().unwrap_or_default();
    serde_json::from_value::<Plan>(plan)
        .map(|_| ())
        .map_err(|error| format!(" ({error})"))
}

fn put(json: &mut Value, path: &[Step], value: &str) {
    let Some((last, way)) = path.split_last() else {
        return;
    };
    let parent = way.iter().try_fold(json, |json, step| match step {
        Step::Key(key) => json.get_mut(key),
        Step::Index(index) => json.get_mut(index),
    });
    match (parent, last) {
        (Some(Value::Object(fields)), Step::Key(key)) => {
            fields.insert(key.clone(), value.into());
        }
        (Some(Value::Array(items)), Step::Index(index)) => {
            if let Some(item) = items.get_mut(*index) {
                *item = value.into();
            }
        }
        _ => {}
    }
}

/// The first difference between two values.
fn difference(one: &Value, other: &Value, at: String) -> Option<String> {
    let below = |key: &str| {
        if at.is_empty() {
            key.to_owned()
        } else {
            format!("{at}.{key}")
        }
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.keys()
                .chain(other.keys())
                .find_map(|key| match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => difference(one, other, below(key)),
                    _ => Some(below(key)),
                })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(index, (one, other))| difference(one, other, format!("{at}[{index}]"))),
        _ => (one != other).then_some(at),
    }
}
