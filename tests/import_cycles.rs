//! Files that import each other in a circle can only be read together. A limit is lowered when a circle is cut, and never raised.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::layering::sources;

/// The most files of each crate that may import each other, directly or through others.
const LIMITS: [(&str, usize); 11] = [
    ("rollout", 1),
    ("api", 3),
    ("base", 3),
    ("channel", 1),
    ("view", 3),
    ("controller", 3),
    ("cluster", 1),
    ("job", 1),
    ("offline", 3),
    ("facts", 1),
    ("rehearse", 3),
];

type Module = Vec<String>;

fn module(path: &Path, part: &str) -> Module {
    let file = path.with_extension("");
    let mut names: Vec<_> = file
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let start = names.iter().rposition(|name| name == "src").unwrap() + 1;
    names.drain(..start);
    assert_eq!(names.remove(0), part);
    names.retain(|name| name != "lib");
    names
}

/// The paths of a `use` declaration, with the braces resolved.
fn paths(declaration: &str) -> Vec<String> {
    let Some((prefix, rest)) = declaration.split_once('{') else {
        let path = declaration.split(" as ").next().unwrap_or_default();
        return vec![path.trim().to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    let parts = parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty());
    parts
        .flat_map(|part| paths(&format!("{}{part}", prefix.trim())))
        .collect()
}

/// The module of this crate that a path leads to, if it is one.
fn target(from: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut base = from.clone();
    let mut parts = path.split("::").peekable();
    match *parts.peek()? {
        "crate" => {
            parts.next();
            base.clear();
        }
        "self" | "super" => {
            while let Some(step) = parts.next_if(|part| matches!(*part, "self" | "super")) {
                if step == "super" {
                    base.pop();
                }
            }
        }
        child => {
            base.push(child.to_owned());
            if !modules.contains(&base) {
                return None;
            }
            parts.next();
        }
    }
    for part in parts {
        base.push(part.to_owned());
        if !modules.contains(&base) {
            base.pop();
            break;
        }
    }
    Some(base)
}

/// The largest set of files that import each other.
fn largest_cycle(part: &str) -> BTreeSet<Module> {
    let sources: BTreeMap<Module, String> = sources(part)
        .into_iter()
        .map(|(path, text)| (module(&path, part), text))
        .collect();
    let modules: BTreeSet<Module> = sources.keys().cloned().collect();
    let imports = |module: &Module, text: &str| {
        let uses = text
            .split("\nuse ")
            .chain(text.split("\npub use "))
            .chain(text.split("\npub(super) use "));
        let declarations = uses.filter_map(|rest| rest.split(';').next());
        let found = declarations
            .flat_map(paths)
            .filter_map(|path| target(module, &path, &modules));
        found.filter(|target| target != module).collect::<BTreeSet<_>>()
    };
    let imports: BTreeMap<&Module, BTreeSet<Module>> = sources
        .iter()
        .map(|(module, text)| (module, imports(module, text)))
        .collect();
    let reached = |from: &Module| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(next) = open.pop() {
            let new = imports[&next]
                .iter()
                .filter(|target| reached.insert((*target).clone()));
            open.extend(new.cloned().collect::<Vec<_>>());
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|module| (module, reached(module))).collect();
    let cycle = |module: &Module| {
        let both = reached[module]
            .iter()
            .filter(|other| reached[other].contains(module));
        both.cloned().collect::<BTreeSet<_>>()
    };
    modules
        .iter()
        .map(cycle)
        .max_by_key(BTreeSet::len)
        .unwrap_or_default()
}

#[test]
fn few_files_of_a_crate_import_each_other_in_a_circle() {
    for (part, limit) in LIMITS {
        let cycle = largest_cycle(part);
        let names: Vec<_> = cycle.iter().map(|module| module.join("/")).collect();
        // A file that only its own children import is no circle.
        let size = cycle.len().max(1);
        assert!(
            size <= limit,
            "{part}: {size} files instead of {limit}: {names:?}"
        );
        assert!(size == limit, "{part}: lower the limit from {limit} to {size}");
    }
}

#[test]
fn a_circle_through_braces_and_parents_is_found() {
    let modules: BTreeSet<Module> =
        [vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]].into();
    let from = vec!["a".to_owned(), "b".to_owned()];
    let found: Vec<_> = paths("super::{self, b::{X, Y as Z}}")
        .iter()
        .filter_map(|path| target(&from, path, &modules))
        .collect();
    assert_eq!(found, [vec!["a".to_owned()], from.clone(), from.clone()]);
    assert_eq!(target(&from, "std::fmt", &modules), None);
}
