//! Values shared through an anchor: an edit changes them for all their users.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::rewrite::{Change, PinError};
use crate::gitops::Source;
use crate::gitops::objects::objects;
use crate::gitops::yaml::{Kind, Node, Step};

/// Keys with a meaning in an object. Others, such as `x-version`, only hold values for aliases.
const MEANT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// One use of a value, and the location of its alias or its own text.
struct User {
    path: Vec<Step>,
    offset: usize,
}

/// Refuses changes of values that something else uses, too. Returns the places that only define a value for aliases:
/// document, path, and the new value.
pub(super) fn refuse_shared(
    source: &Source,
    changes: &[Change<'_>],
) -> Result<Vec<(usize, Vec<Step>, String)>, PinError> {
    let mut definitions = Vec::new();
    let mut starts: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut wanted: BTreeMap<(usize, &[Step]), &str> = BTreeMap::new();
    for change in changes {
        let document = change.request.plan.document;
        wanted.insert((document, &change.path), &change.value);
        starts.entry(document).or_default().extend(start(source, change));
    }
    let mut users = BTreeMap::new();
    for (document, starts) in &starts {
        let Some(root) = source.stream.documents.get(*document) else {
            continue;
        };
        let mut found = BTreeMap::new();
        collect(root, &mut Vec::new(), starts, &mut found);
        // A value with one user is not shared.
        found.retain(|_, users: &mut Vec<User>| users.len() > 1);
        users.insert(*document, found);
    }
    if users.values().all(BTreeMap::is_empty) {
        return Ok(definitions);
    }
    let objects: Vec<_> = objects(&source.stream.documents)
        .into_iter()
        .map(|object| (object.document, object.path.clone(), object.is_plan()))
        .collect();
    let mut done = BTreeSet::new();
    for change in changes {
        let document = change.request.plan.document;
        let Some(start) = start(source, change) else {
            continue;
        };
        let of_value = users.get(&document).and_then(|users| users.get(&start));
        if !done.insert((document, start, &change.value)) {
            continue;
        }
        for user in of_value.into_iter().flatten() {
            if wanted.get(&(document, &*user.path)) == Some(&&*change.value) {
                continue;
            }
            let object = objects
                .iter()
                .find(|(of, path, _)| *of == document && user.path.starts_with(path));
            let is_definition = match object {
                None => true,
                Some((_, path, is_plan)) => {
                    let key = user.path.get(path.len());
                    *is_plan && !matches!(key, Some(Step::Key(key)) if MEANT.contains(&key.as_str()))
                }
            };
            if is_definition {
                definitions.push((document, user.path.clone(), change.value.clone()));
            } else {
                let line = source.position(user.offset).line;
                let path = display(&user.path);
                let why = format!(" (the anchor shares it with {path} in line {line})");
                return Err(change.refused(source, why));
            }
        }
    }
    Ok(definitions)
}

/// Offset of the value to change.
fn start(source: &Source, change: &Change<'_>) -> Option<usize> {
    let document = source.stream.documents.get(change.request.plan.document)?;
    let node = document.at(&change.path)?;
    (!node.span.is_empty()).then_some(node.span.start)
}

fn collect(
    node: &Node,
    path: &mut Vec<Step>,
    starts: &BTreeSet<usize>,
    found: &mut BTreeMap<usize, Vec<User>>,
) {
    match &node.kind {
        Kind::Map(object) => {
            for entry in &object.entries {
                path.push(Step::from(entry.key.name.as_str()));
                collect(&entry.value, path, starts, found);
                path.pop();
            }
        }
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::from(index));
                collect(item, path, starts, found);
                path.pop();
            }
        }
        _ if starts.contains(&node.span.start) => found.entry(node.span.start).or_default().push(User {
            path: path.clone(),
            offset: node.offset(),
        }),
        _ => {}
    }
}

pub(super) fn display(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            // Writing to a String cannot fail.
            Step::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
            Step::Key(key) => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(key);
            }
        }
    }
    text
}
