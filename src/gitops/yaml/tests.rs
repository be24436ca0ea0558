use std::fmt::Write as _;

use super::*;

fn one(text: &str) -> Node {
    let mut stream = read(text);
    assert_eq!(stream.errors, [], "{text}");
    assert_eq!(stream.documents.len(), 1, "{text}");
    stream.documents.remove(0)
}

/// What stands in the text for the value at the end of the path.
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
    // Of a block scalar the content, without its indicator.
    assert_eq!(written("a: |-\n  v1\nb: 2\n", &["a"]).trim_end(), "v1");
}

#[test]
fn what_is_not_there_is_null_and_has_no_bytes() {
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
    assert!(merged.merged);
}

#[test]
fn a_key_that_is_there_twice_is_told_and_the_last_one_counts() {
    let text = "a: {b: 1, c: 2, b: 3}\n";
    let node = one(text);
    assert_eq!(node.to_json()["a"]["b"], 3);
    let repeated = node.repeated();
    assert_eq!(repeated.len(), 1);
    assert_eq!(repeated[0].span.start, text.rfind('b').unwrap());
}

#[test]
fn a_document_that_cannot_be_read_does_not_hide_the_next() {
    let stream = read("a: 1\n---\nb: [1\n---\nc: 3\n...\n---\n");
    assert_eq!(stream.errors.len(), 1, "{stream:?}");
    let json: Vec<_> = stream.documents.iter().map(Node::to_json).collect();
    assert_eq!(
        json,
        [
            serde_json::json!({"a": 1}),
            serde_json::json!({"c": 3}),
            Value::Null
        ]
    );
}

#[test]
fn what_has_no_end_is_an_error_and_no_memory_is_lost_to_it() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        let _ = writeln!(bomb, "a{level}: &a{level} [{}]", below.trim_end_matches(", "));
    }
    let error = &read(&bomb).errors[0];
    assert!(error.message.contains("more than"), "{error}");
    let error = &read("a: &a [*a]").errors[0];
    assert!(error.message.contains("within"), "{error}");
    let deep = "[".repeat(10_000);
    assert_eq!(read(&deep).errors.len(), 1);
    assert_eq!(read(&"- ".repeat(10_000)).errors.len(), 1);
}

#[test]
fn nothing_at_all_is_no_document() {
    assert!(read("").documents.is_empty());
    assert!(read("# only words\n").documents.is_empty());
    assert_eq!(read("---\n---\n").documents.len(), 2);
}
