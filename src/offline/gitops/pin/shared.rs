//! Values shared through an anchor: an edit changes them for all their users.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::change::{Change, display};
use super::error::PinError;
use crate::gitops::objects::objects;
use crate::gitops::source::Source;
use crate::gitops::yaml::{Kind, Node, Step};

/// Keys with a meaning in an object. Others, such as `x-version`, only hold values for aliases.
const MEANT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Users that a message names.
const NAMED: usize = 5;

/// One use of a value, and the location of its alias, its merge key or its own text.
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
    for change in changes {
        let of_document = starts.entry(change.request.plan.document).or_default();
        of_document.extend(target(source, change).map(|(_, start)| start));
    }
    let mut users: BTreeMap<(usize, usize), Vec<User>> = BTreeMap::new();
    for (document, starts) in &starts {
        if let Some(root) = source.stream.documents.get(*document) {
            let mut found = |start, user| users.entry((*document, start)).or_default().push(user);
            collect(root, &mut Vec::new(), None, starts, &mut found);
        }
    }
    // A value with one user is not shared.
    users.retain(|_, users| users.len() > 1);
    if users.is_empty() {
        return Ok(definitions);
    }
    let objects = objects(&source.stream.documents);
    let is_plan: BTreeMap<(usize, &[Step]), bool> = objects
        .iter()
        .map(|object| ((object.document, object.path.as_slice()), object.is_plan()))
        .collect();
    for change in changes {
        let document = change.request.plan.document;
        let Some((own, start)) = target(source, change) else {
            continue;
        };
        let is_definition = |user: &User| {
            let object = (0..=user.path.len())
                .find_map(|length| Some((length, is_plan.get(&(document, &user.path[..length]))?)));
            object.is_none_or(|(length, is_plan)| {
                let key = user.path.get(length);
                *is_plan && !matches!(key, Some(Step::Key(key)) if MEANT.contains(&key.as_str()))
            })
        };
        let of_value = users.get(&(document, start)).into_iter().flatten();
        let (mut others, mut named) = (0, String::new());
        for user in of_value.filter(|user| user.path != own) {
            if own == change.path && is_definition(user) {
                definitions.push((document, user.path.clone(), change.value.clone()));
                continue;
            }
            others += 1;
            if others <= NAMED {
                let separator = if others > 1 { ", " } else { "" };
                let line = source.position(user.offset).line;
                // Writing to a String cannot fail.
                let _ = write!(named, "{separator}{} in line {line}", display(&user.path));
            }
        }
        if others > 0 {
            let more = match others.saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let line = source.position(start).line;
            let why = format!(" (the anchor shares it with {named}{more}; its value is in line {line})");
            return Err(change.refused(source, why));
        }
    }
    Ok(definitions)
}

/// The path and offset of the value to change, or of the object that gets it.
fn target<'c>(source: &Source, change: &'c Change<'_>) -> Option<(&'c [Step], usize)> {
    let document = source.stream.documents.get(change.request.plan.document)?;
    let (_, parent) = change.path.split_last()?;
    let written = |path: &'c [Step]| {
        let node = document.at(path).filter(|node| !node.span.is_empty())?;
        Some((path, node.span.start))
    };
    written(&change.path).or_else(|| written(parent))
}

/// Reports each value that begins at one of these offsets. `via` is the alias or merge key on the way to it.
fn collect(
    node: &Node,
    path: &mut Vec<Step>,
    via: Option<usize>,
    starts: &BTreeSet<usize>,
    found: &mut impl FnMut(usize, User),
) {
    let via = via.or(node.alias.as_ref().map(|alias| alias.start));
    if starts.contains(&node.span.start) {
        let user = User {
            path: path.clone(),
            offset: via.unwrap_or(node.span.start),
        };
        found(node.span.start, user);
    }
    match &node.kind {
        Kind::Map(object) => {
            for entry in &object.entries {
                path.push(Step::from(entry.key.name.as_str()));
                collect(&entry.value, path, via.or(entry.merged), starts, found);
                path.pop();
            }
        }
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::from(index));
                collect(item, path, via, starts, found);
                path.pop();
            }
        }
        _ => {}
    }
}
