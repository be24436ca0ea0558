mod limits;

use std::fmt::Write as _;

use super::*;

fn one(text: &str) -> Node {
    let mut stream = read(text);
    assert_eq!(stream.errors, [], "{text}");
    assert_eq!(stream.documents.len(), 1, "{text}");
    stream.documents.remove(0)
}

/// The source text of the value at a path.
fn written<'t>(text: &'t str, path: &[&str]) -> &'t str {
    let steps: Vec<_> = path.iter().map(|key| Step::from(*key)).collect();
    let node = one(text).at(&steps).unwrap().clone();
    &text[node.span]
}

#[test]
fn a_scalar_has_its_bytes_whatever_its_style_and_its_neighbours() {
    for (text, expected) in [
        ("a: {b: v1.2+k3s1, c: 1}", "v1.2+k3s1"),
        ("a:\n  b: v1 # why\n", "v1"),
        ("\u{feff}ä: ü\r\na:\r\n  b: 'v1'\r\n", "'v1'"),
        ("a:\n  b: &x \"v\\u00e4\"\n", "\"v\\u00e4\""),
        ("a:\n  b: !!str 1.30\n", "1.30"),
        ("{\"a\":{\"b\":\"v1\"}}", "\"v1\""),
        ("a:\n  ? b\n  : v1\n", "v1"),
        ("a:\n  b:\n    v1\n", "v1"),
    ] {
        assert_eq!(written(text, &["a", "b"]), expected, "{text}");
    }
    // A block scalar is its content, without the indicator.
    assert_eq!(written("a: |-\n  v1\nb: 2\n", &["a"]).trim_end(), "v1");
}

#[test]
fn an_empty_value_is_null_and_has_no_bytes() {
    for text in [
        "a:\nb: 1\n",
        "a:",
        "a: # nothing\nb: 1\n",
        "{a: , b: 1}",
        "{a, b: 1}",
        "a: &x\nb: 1",
    ] {
        let node = one(text);
        let a = node.get("a").unwrap();
        assert!(a.is_null() && a.span.is_empty(), "{text}: {a:?}");
    }
    let node = one("a: ~\nb: null");
    assert!(node.get("a").unwrap().is_null() && !node.get("a").unwrap().span.is_empty());
}

#[test]
fn aliases_and_merge_keys_are_followed_and_keep_their_places() {
    let text = "base: &b {x: 1, z: 2}\nuse: {<<: *b, z: 3}\nlist: {<<: [{w: 4}, *b]}\nalias: *b\n";
    let node = one(text);
    let json = node.to_json();
    assert_eq!(json["use"], serde_json::json!({"x": 1, "z": 3}));
    assert_eq!(json["list"], serde_json::json!({"x": 1, "z": 2, "w": 4}));
    assert_eq!(json["alias"], serde_json::json!({"x": 1, "z": 2}));
    let alias = node.get("alias").unwrap();
    assert_eq!(&text[alias.alias.clone().unwrap()], "*b");
    assert_eq!(
        alias.get("x").unwrap().span,
        node.get("base").unwrap().get("x").unwrap().span
    );
    let merged = node.get("use").unwrap().object().unwrap().entry("x").unwrap();
    assert!(merged.merged.is_some());
}

#[test]
fn a_repeated_key_is_reported_and_the_last_one_counts() {
    let text = "a: {b: 1, c: 2, b: 3}\n";
    let node = one(text);
    assert_eq!(node.to_json()["a"]["b"], 3);
    let repeated = node.repeated();
    assert_eq!(repeated.len(), 1);
    assert_eq!(repeated[0].span.start, text.rfind('b').unwrap());
    assert_eq!(repeated[0].earlier, text.find('b'));
}

#[test]
fn a_document_that_cannot_be_read_does_not_hide_the_next() {
    let stream = read("a: 1\n---\nb: [1\n---\nc: 3\n...\n---\n");
    assert_eq!(stream.errors.len(), 1, "{stream:?}");
    let json: Vec<_> = stream.documents.iter().map(Node::to_json).collect();
    assert_eq!(json, [serde_json::json!({"a": 1}), serde_json::json!({"c": 3})]);
}

#[test]
fn an_endless_document_is_an_error_within_bounded_memory() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        let _ = writeln!(bomb, "a{level}: &a{level} [{}]", below.trim_end_matches(", "));
    }
    let error = &read(&bomb).errors[0];
    assert!(error.message.contains("more than"), "{error}");
    let error = &read("a: &a [*a]").errors[0];
    assert!(error.message.contains("within its own"), "{error}");
    let deep = "[".repeat(10_000);
    assert_eq!(read(&deep).errors.len(), 1);
    assert_eq!(read(&"- ".repeat(10_000)).errors.len(), 1);
}

#[test]
fn an_empty_text_has_no_document() {
    assert!(read("").documents.is_empty());
    assert!(read("# only words\n").documents.is_empty());
    assert!(read("---\n---\n").documents.is_empty());
    assert_eq!(read("null\n---\n~\n").documents.len(), 2);
}

#[test]
fn a_file_is_cut_where_kubectl_cuts_it() {
    let documents = |text: &str| read(text).documents.iter().map(Node::to_json).collect::<Vec<_>>();
    let (a, b) = (serde_json::json!({"a": 1}), serde_json::json!({"b": 2}));
    for text in [
        "{\"a\": 1}{\"b\": 2}",
        "{\"a\": 1}\n\n{\"b\": 2}\n",
        "{\"a\": 1}\n---\nb: 2\n",
        "a: 1\n--- # the next\n{\"b\": 2}",
        "---\n---\na: 1\n---\n# nothing\n---\nb: 2\n",
        "a: 1\n---\n\u{feff}b: 2\n",
    ] {
        let stream = read(text);
        assert_eq!(
            (stream.errors, documents(text)),
            (vec![], vec![a.clone(), b.clone()]),
            "{text}"
        );
    }
    for (text, line) in [
        ("%YAML 1.2\n---\na: 1\n", 2),
        ("a: 1\n--- b\n", 2),
        ("a: 1\n...\nb: 2\n", 3),
        ("{\"a\": 1}\nb: 2\n", 2),
        ("a:\n\tb: 1\n", 2),
        ("a: b\n  c\n\td: 1\n", 3),
        ("a: .inf\n", 1),
        ("a: !!int x\n", 1),
        ("a: \"\\/\"\n", 1),
    ] {
        let stream = read(text);
        let error = stream.errors.first().unwrap_or_else(|| panic!("{text}"));
        assert_eq!(
            text[..error.offset].matches('\n').count() + 1,
            line,
            "{text}: {error:?}"
        );
    }
}

#[test]
fn places_behind_other_line_breaks_and_documents_are_those_of_the_text() {
    let text = "a: 1\n---\n# one\u{2028}# two\nb: v\u{e4}\nc: {d: e}\n";
    let document = &read(text).documents[1];
    assert_eq!(&text[document.get("b").unwrap().span.clone()], "v\u{e4}");
    assert_eq!(
        &text[document.at(&["c".into(), "d".into()]).unwrap().span.clone()],
        "e"
    );
    let error = &read("a: 1\n---\nb: [1\n").errors[0];
    assert!(error.offset >= 9, "{error:?}");
}

#[test]
fn a_merge_key_overrides_what_stands_above_it() {
    let node = one("a: &a {x: 1, z: 1}\nb: {x: 2, <<: *a, z: 2}\n");
    assert_eq!(node.to_json()["b"], serde_json::json!({"x": 1, "z": 2}));
    assert!(node.repeated().is_empty());
}
