//! Checks the layers of `src` in the sources: which module may import which, and which are pure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};

/// The modules of the crate from the lowest layer up. A module imports from layers below its own, and from nowhere else.
/// `lib.rs` and `main.rs` belong to none.
const LAYERS: [&[&str]; 14] = [
    &["clock", "go", "nearest", "proxy", "telemetry"],
    &["version"],
    &["api"],
    &["channel"],
    &["job", "node"],
    &["rollout"],
    &["convert", "migrate", "notify", "page"],
    &["kube"],
    &["agent", "drain"],
    &["controller"],
    &["rehearse"],
    &["gitops"],
    &["view"],
    &["cli"],
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Every Rust file below `src/<part>` and `src/<part>.rs`, unit tests aside, with its text.
pub(crate) fn sources(part: &str) -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let single = src.join(format!("{part}.rs"));
    if single.is_file() {
        files.push(single);
    }
    let mut folders = vec![if part.is_empty() { src } else { src.join(part) }];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "tests") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ext| ext == "rs")
                && path.file_name().is_some_and(|name| name != "tests.rs")
            {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "there is no src/{part}");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        // The rest is not part of the program.
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
            .to_owned();
        (path, code)
    };
    files.into_iter().map(read).collect()
}

/// Lines of code with one of the words, without comments.
fn lines_with(part: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(part) {
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("//") && words.iter().any(|word| has(code, word)) {
                found.push(format!("{}:{}: {code}", path.display(), number + 1));
            }
        }
    }
    found
}

/// Whether a line has the word, not only as the end of a longer one.
fn has(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |at: usize| !code[..at].ends_with(is_part) || !word.starts_with(is_part);
    code.match_indices(word).any(|(at, _)| begins(at))
}

/// The code with its comments blanked. Lines keep their numbers.
fn without_comments(code: &str) -> String {
    let token = Regex::new(
        r#"(?sx)
        (//[^\n]* | /\*.*?\*/) | '(?:\\.[^']*|[^'\\])'
        | r\#+".*?"\#+ | r"[^"]*" | "(?:[^"\\]|\\.)*""#,
    );
    let blank = |token: &Captures<'_>| match token.get(1) {
        Some(comment) => "\n".repeat(comment.as_str().matches('\n').count()),
        None => token[0].to_owned(),
    };
    token.unwrap().replace_all(code, blank).into_owned()
}

/// The modules of the crate that code imports, each with its line: what follows `crate::`, also in braces and in
/// macros, and what follows as many `super::` as lead out of a module that is `depth` levels below the root. `*` and
/// `as` would hide what is imported.
fn imports(code: &str, depth: usize) -> Vec<(usize, String)> {
    let code = without_comments(code);
    let root = Regex::new(&format!(
        r"(?x)(?:^|[^\w:])
        (?:crate | (?:self\s*::\s*)?super(?:\s*::\s*super){{{}}})
        (?:\s*::\s*(?:r\#)?(\{{|\*|\w+) | \s+(as)\s)",
        depth - 1
    ));
    let mut found = Vec::new();
    for import in root.unwrap().captures_iter(&code) {
        let first = import.get(1).or_else(|| import.get(2)).unwrap();
        let mut names = vec![(first.start(), first.as_str())];
        if first.as_str() == "{" {
            names = group(&code, first.end());
        } else if code[first.end()..].starts_with('!') {
            continue; // A macro of the crate's root.
        }
        for (at, name) in names {
            found.push((code[..at].matches('\n').count() + 1, name.to_owned()));
        }
    }
    found
}

/// The first names of the paths in a group of imports that begins at `start`, behind its brace, each with its place.
fn group(code: &str, start: usize) -> Vec<(usize, &str)> {
    let (mut names, mut depth, mut begins) = (Vec::new(), 1, start);
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            let path = &code[begins..start + at];
            let name = path.trim_start().trim_start_matches("r#");
            let end = name
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*')
                .unwrap_or(name.len());
            // What is no name, as a group within the group, belongs to no layer.
            let end = end.max(name.len().min(1));
            if end > 0 {
                names.push((begins + path.len() - name.len(), &name[..end]));
            }
            begins = start + at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[test]
fn each_module_imports_only_from_the_layers_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for module in LAYERS.concat() {
        for (path, code) in sources(module) {
            let place = path.strip_prefix(&src).unwrap();
            for (line, imported) in imports(&code, place.components().count()) {
                let is_below = layer(&imported).is_some() && layer(&imported) < layer(module);
                if imported != module && !is_below {
                    let place = place.display();
                    found.push(format!(
                        "src/{place}:{line}: {module} imports {imported}, which is not below it"
                    ));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_module_of_the_crate_has_a_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let library = fs::read_to_string(src.join("lib.rs")).unwrap();
    let library = library.replace("#[cfg(test)]\nmod ", "");
    let declared: BTreeSet<_> = library
        .lines()
        .filter_map(|line| {
            line.trim_start_matches("pub ")
                .strip_prefix("mod ")?
                .strip_suffix(';')
        })
        .collect();
    assert_eq!(declared, LAYERS.concat().into_iter().collect());
}

/// The modules in the first column of the document's table of modules, from the top.
fn documented(document: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| module |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
    names
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect()
}

#[test]
fn the_documents_have_the_modules_in_the_order_of_their_layers() {
    for document in ["CONTRIBUTING.md", "docs/design.md"] {
        assert_eq!(documented(document), LAYERS.concat(), "{document}");
    }
}

#[test]
fn imports_are_found_in_every_form() {
    let code = "use crate::api::{Plan, names};
use crate::{
    clock::{Clock, system},
    // crate::comment
    job, /* the Job */ go,
    nearest, // the nearest name
    r#proxy, {telemetry},
};
/// [`crate::doc`]
pub(crate) fn f(plan: &crate::version::Version) -> super::super::node::Host {
    super::sibling::g(plan, $crate::macros!(), $crate::cli::output())
}
use crate::*;
use crate as root;
use super::super::*;
use super::*;
use self::super::super::drain;
crate :: view::f(\"// no comment\"); crate::r#rehearse::g(); /*
crate::comment */ crate::gitops::h();
";
    let expected = [
        (1, "api"),
        (3, "clock"),
        (5, "job"),
        (5, "go"),
        (6, "nearest"),
        (7, "proxy"),
        (7, "{"),
        (10, "version"),
        (10, "node"),
        (11, "cli"),
        (13, "*"),
        (14, "as"),
        (15, "*"),
        (17, "drain"),
        (18, "view"),
        (18, "rehearse"),
        (19, "gitops"),
    ];
    assert_eq!(
        imports(code, 2),
        expected.map(|(line, name)| (line, name.to_owned()))
    );
}

#[test]
fn pure_modules_have_no_client_no_runtime_no_clock_no_environment_and_no_files() {
    let forbidden = [
        "kube::",
        "tokio::",
        "reqwest::",
        "std::env",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "SystemTime",
        "Instant",
        "Timestamp::now",
        "Zoned::now",
        "std::{",
        "rand::",
        "rustix::",
        // Lower layers that have these.
        "crate::clock",
        "crate::node",
        "crate::proxy",
        "crate::telemetry",
        "ChannelClient",
    ];
    for part in [
        "version", "api", "job", "rollout", "convert", "migrate", "notify", "page",
    ] {
        let mut found = lines_with(part, &forbidden);
        // Derives the definition of a kind from its type.
        found.retain(|line| !line.contains("use kube::CustomResource"));
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn no_macro_is_called_across_modules_without_an_import() {
    let found = lines_with("", &["macro_export"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn time_is_read_in_one_place() {
    let found: Vec<_> = lines_with("", &["Timestamp::now", "SystemTime::now", "std::time::Instant"])
        .into_iter()
        .filter(|line| !line.contains("/src/clock.rs:"))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn printing_is_done_in_one_place() {
    let found: Vec<_> = lines_with(
        "",
        &["println!(", "eprintln!(", "print!(", "io::stdout", "io::stderr"],
    )
    .into_iter()
    .filter(|line| !line.contains("/src/cli/output.rs:") && !line.contains("/src/telemetry.rs:"))
    .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_core_and_its_shell_have_no_forks_for_tests() {
    for part in ["controller", "rollout"] {
        let found: Vec<_> = lines_with(part, &["cfg!(", "#[cfg(", "cfg_attr("])
            .into_iter()
            .filter(|line| !line.contains("#[cfg(test)]"))
            .collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn modules_have_a_file_of_their_own_name() {
    let found: Vec<_> = sources("")
        .into_iter()
        .filter(|(path, _)| path.ends_with("mod.rs"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}
