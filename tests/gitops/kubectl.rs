//! YAML is read like kubectl reads it: for a corpus of YAML and JSON, the real kubectl and refit must find the same
//! objects, or refuse the file. The table in kubectl.md lists all differences.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use refit_offline::gitops::yaml;
use serde_json::Value;

use super::folder;
use crate::testenv::binaries::Binaries;

const HEAD: &str = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p}\n";

/// The objects that kubectl finds, without a cluster.
fn by_kubectl(kubectl: &Path, text: &str) -> Result<Vec<Value>, String> {
    let mut child = Command::new(kubectl)
        .args(["label", "--local", "--filename=-", "seen=yes", "--output=json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let objects = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    Ok(objects.map(|object| plain(object.unwrap())).collect())
}

fn by_refit(text: &str) -> Result<Vec<Value>, String> {
    let stream = yaml::read(text);
    if let Some(error) = stream.errors.first() {
        return Err(error.to_string());
    }
    let documents = stream.documents.iter().filter(|document| !document.is_null());
    Ok(documents.map(|document| plain(document.to_json())).collect())
}

/// The object without the label, with all numbers as Go prints them.
fn plain(mut object: Value) -> Value {
    if let Some(labels) = object
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.remove("seen");
        if labels.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
    }
    numbers(&mut object);
    object
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a whole number of less than 2^53"
)]
fn numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().unwrap();
            *value = if float.trunc() == float && float.abs() < 9e15 {
                (float as i64).into()
            } else {
                // The parser of this test is not exact to the last digit.
                format!("{float:.14e}").into()
            };
        }
        Value::Array(items) => items.iter_mut().for_each(numbers),
        Value::Object(fields) => fields.values_mut().for_each(numbers),
        _ => {}
    }
}

/// Plain scalars that may be a number, a bool, a date or text, separated by two spaces.
const SCALARS: &str = include_str!("kubectl/scalars.txt");

/// Keys, separated by two spaces.
const KEYS: &str = include_str!("kubectl/keys.txt");

/// Files by name. `<json>`, `<flow>` and `<block>` are the same Plan, `<head>` is its beginning, `<json q>` and
/// `<other>` are another one, and `<json:VALUE>` is the Plan with that version.
const FILES: &str = include_str!("kubectl/files.txt");

fn scalars() -> BTreeSet<String> {
    let written = SCALARS.lines().flat_map(|line| line.split("  ")).map(unescaped);
    // Each sign and prefix with each suffix.
    let made = ["", "-", "+"].into_iter().flat_map(|sign| {
        ["", "0", "0x", "0b", "0o", ".", "1."]
            .into_iter()
            .flat_map(move |prefix| {
                ["7", "1_1", "12e2", "9", "e1", ""].map(move |ending| format!("{sign}{prefix}{ending}"))
            })
    });
    written.chain(made).collect()
}

/// Replaces the escapes of Rust's string literals.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap().to_owned();
    while let Some(part) = parts.next() {
        let (character, rest) = match part.chars().next() {
            None => ('\\', parts.next().unwrap()),
            Some('u') => {
                let (digits, rest) = part[2..].split_once('}').unwrap();
                let number = u32::from_str_radix(digits, 16).unwrap();
                (char::from_u32(number).unwrap(), rest)
            }
            Some('n') => ('\n', &part[1..]),
            Some('t') => ('\t', &part[1..]),
            Some(_) => panic!("{text}"),
        };
        whole.push(character);
        whole.push_str(rest);
    }
    whole
}

/// Files by name.
fn files() -> Vec<(String, String)> {
    let json = r#"{"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "p"}, "spec": {"version": "v1"}}"#;
    let flow = "{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: p}, spec: {version: v1}}";
    let block = format!("{HEAD}spec: {{version: v1}}\n");
    let other = block.replace("name: p", "name: q");
    let two = format!("{block}---\n{other}");
    let json_q = json.replace("\"p\"", "\"q\"");
    let expanded = |text: &str| match text.strip_prefix("<json:") {
        Some(version) => json.replace("\"v1\"", &unescaped(version.strip_suffix('>').unwrap())),
        None => [
            ("<head>", HEAD),
            ("<block>", &block),
            ("<other>", &other),
            ("<json>", json),
            ("<json q>", &json_q),
            ("<flow>", flow),
        ]
        .iter()
        .fold(unescaped(text), |text, (name, whole)| text.replace(name, whole)),
    };
    let scalars = scalars().into_iter();
    let scalars = scalars.map(|scalar| {
        (
            format!("scalar {scalar:?}"),
            format!("{HEAD}spec:\n  a: {scalar}\n"),
        )
    });
    let keys = KEYS.trim_end().split("  ");
    let keys = keys.map(|key| (format!("key {key}"), format!("{HEAD}spec:\n  {key}: v\n")));
    let files = FILES.lines().filter_map(|line| line.split_once(" => "));
    let files = files.map(|(name, text)| (name.to_owned(), expanded(text)));
    let edited = [
        (
            "json with a comment in it",
            json.replace("\"kind\"", "# a comment\n\"kind\""),
        ),
        ("json with tabs", json.replace(", ", ",\n\t")),
        ("json with a key without quotes", json.replace("\"kind\"", "kind")),
        ("json with single quotes", json.replace('"', "'")),
        ("json that is not whole", json[..json.len() - 1].to_owned()),
        ("flow in lines", flow.replace(", ", ",\n  ")),
        ("flow in lines at the margin", flow.replace(", ", ",\n")),
        ("flow with a trailing comma", flow.replace("v1}}", "v1},}")),
        ("CR LF", block.replace('\n', "\r\n")),
        ("CR LF with a separator", two.replace('\n', "\r\n")),
        ("CR", block.replace('\n', "\r")),
        ("CR with a separator", two.replace('\n', "\r")),
        ("a long key", format!("{HEAD}spec:\n  {}: 1\n", "k".repeat(1100))),
    ];
    let edited = edited.map(|(name, text)| (name.to_owned(), text));
    scalars.chain(keys).chain(files).chain(edited).collect()
}

/// The rows of the table, by the names of their files.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(folder("").join("kubectl.md")).unwrap();
    let (_, table) = page
        .split_once("| differs from kubectl |")
        .expect("the table in kubectl.md");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1))
        .map(|name| name.trim().replace("\\|", "|"))
        .collect()
}

#[test]
fn refit_reads_files_as_kubectl_does_with_the_differences_in_a_table() {
    let kubectl = Binaries::ready().unwrap().path("kubectl");
    let files = files();
    let known = documented();
    let found = std::sync::Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    // A process per file, two at a time.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, text)) =
                    files.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let (theirs, ours) = (by_kubectl(&kubectl, text), by_refit(text));
                    let is_same = match (&theirs, &ours) {
                        (Ok(theirs), Ok(ours)) => {
                            // kubectl skips an object without a kind with an error, and refuses a file without objects.
                            theirs == ours
                        }
                        (Err(_), Err(_)) => true,
                        // kubectl refuses the kind, not the text: the file is empty, or not an object.
                        (Err(error), Ok(ours)) => {
                            let of_kind = [
                                "no objects passed",
                                "Object 'Kind' is missing",
                                "cannot unmarshal",
                                "into Go value",
                            ];
                            of_kind.iter().any(|what| error.contains(what))
                                && !ours.iter().any(|one| one["kind"].is_string())
                        }
                        _ => false,
                    };
                    if !is_same {
                        found
                            .lock()
                            .unwrap()
                            .push((name.clone(), format!("{theirs:?}\n    and refit {ours:?}")));
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let unknown: Vec<_> = found.iter().filter(|(name, _)| !known.contains(name)).collect();
    let report: Vec<_> = unknown
        .iter()
        .map(|(name, what)| format!("{name}: kubectl {what}"))
        .collect();
    assert!(unknown.is_empty(), "{}", report.join("\n"));
    let names: BTreeSet<_> = found.into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, names, "the table has what is no difference any more");
    assert!(files.len() > 400, "{}", files.len());
}
