//! The limits of a document, which may come from anywhere: a pull request, a chart.

use std::fmt::Write as _;

use super::*;

fn error(text: &str) -> String {
    let stream = read(text);
    assert!(stream.documents.is_empty(), "it is read");
    stream.errors[0].message.clone()
}

#[test]
fn a_hundred_anchors_over_a_hundred_thousand_leaves_are_refused_and_not_copied() {
    let mut text = String::new();
    for depth in 0..100 {
        write!(text, "&a{depth} [").unwrap();
    }
    text.push_str(&"1,".repeat(100_000));
    text.push_str(&"]".repeat(100));
    let why = error(&text);
    assert_eq!(
        why,
        "the document has more than 500000 values when its anchors and aliases are expanded"
    );
    let stream = read(&format!("a: 1\n---\nb: 2\n{text}"));
    assert!(stream.errors[0].offset > 0, "the error has a place");
}

#[test]
fn aliases_of_a_long_text_are_refused_before_they_fill_the_memory() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(1000));
    assert_eq!(
        error(&text),
        "the anchors and aliases of the document repeat more than 16 MiB of text"
    );
    let few = format!("a: &a {}\nb: [*a, *a]\n", "x".repeat(1 << 20));
    assert_eq!(read(&few).documents.len(), 1);
}

#[test]
fn a_document_that_is_nested_too_deeply_is_refused_and_does_not_end_the_process() {
    for text in [
        "[".repeat(1_000_000),
        "{a: ".repeat(1_000_000),
        "- ".repeat(1_000_000),
    ] {
        let stream = read(&text);
        assert_eq!((stream.documents.len(), stream.errors.len()), (0, 1));
    }
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(read(&deep(100)).documents.len(), 1);
    assert_eq!(
        error(&deep(MAX_DEPTH + 1)),
        "the document has more than 128 levels"
    );
}

#[test]
fn an_object_of_many_keys_is_read_key_by_key() {
    // With a look at all keys before each this takes hours.
    let mut text = String::new();
    for number in 0..200_000 {
        writeln!(text, "k{number}: {number}").unwrap();
    }
    text.push_str("k7: again\n");
    let stream = read(&text);
    let object = stream.documents[0].object().unwrap();
    assert_eq!(object.entries.len(), 200_000);
    assert_eq!(object.entry("k7").unwrap().value.text(), Some("again"));
    assert_eq!(object.entry("k199999").unwrap().value.to_json(), 199_999);
    assert_eq!(object.repeated.len(), 1);
    assert!(object.entry("k200000").is_none());
}

#[test]
fn a_merge_key_finds_the_keys_above_it_among_many() {
    let mut text = String::from("a: &a {k5: merged, new: 1}\nb:\n");
    for number in 0..40 {
        writeln!(text, "  k{number}: {number}").unwrap();
    }
    text.push_str("  <<: *a\n  k6: later\n");
    let stream = read(&text);
    let b = stream.documents[0].get("b").unwrap();
    assert_eq!(b.object().unwrap().entries.len(), 41);
    assert_eq!(b.get("k5").unwrap().text(), Some("merged"));
    assert_eq!(b.get("k6").unwrap().text(), Some("later"));
    assert_eq!(b.get("new").unwrap().to_json(), 1);
}

#[test]
fn lines_with_tabs_and_line_breaks_of_yaml_1_1_are_read_once() {
    // With a look at all values for each line, or at the whole line for each break, this takes hours.
    let values = "- a\n".repeat(100_000);
    let text = format!("a: |\n  b\n{}c:\n{values}", "  \tx\n".repeat(100_000));
    assert!(read(&text).errors.is_empty());
    let breaks = format!("a: {}", "b\u{2028} ".repeat(100_000));
    let _ = read(&breaks);
}
