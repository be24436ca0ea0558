//! The annotation `upgrade.cattle.io/digest` is written by whoever may write Plans, and read in every decision.

use super::*;

fn with_fields(fields: &str, text: &str) -> Plan {
    let mut plan = Plan::default();
    plan.spec.upgrade.get_or_insert_default().args = Some(vec![text.to_owned()]);
    plan.metadata.annotations = Some([(ANNOTATION_DIGEST.to_owned(), fields.to_owned())].into());
    plan
}

#[test]
fn an_annotation_of_240_000_commas_is_refused_and_not_read() {
    let plan = with_fields(&",".repeat(240_000), "a");
    assert_eq!(annotated(&plan, "v1"), "");
    let error = check_fields(&plan).unwrap_err().to_string();
    assert!(
        error.contains("has 240000 bytes, and at most 4096 are read"),
        "{error}"
    );
}

#[test]
fn an_annotation_up_to_the_limit_is_read_and_each_level_of_the_plan_is_parsed_once() {
    let fields = vec!["spec.upgrade.args"; 4096 / 18].join(",");
    let plan = with_fields(&fields, "a");
    assert_eq!(check_fields(&plan), Ok(()));
    assert_eq!(annotated(&plan, "v1"), "a".repeat(4096 / 18));
    let longer = ",".repeat(MAX_FIELDS_LEN + 1);
    assert!(check_fields(&with_fields(&longer, "a")).is_err());
}

#[test]
fn a_field_that_is_named_repeatedly_does_not_fill_the_memory() {
    let megabyte = "a".repeat(1 << 20);
    let once = with_fields("spec.upgrade.args", &megabyte);
    assert_eq!(check_fields(&once), Ok(()));
    assert_eq!(annotated(&once, "v1").len(), 1 << 20);
    let often = with_fields(&vec!["spec"; 800].join(","), &megabyte);
    let error = check_fields(&often).unwrap_err().to_string();
    assert!(error.contains("names fields of more than 4 MiB"), "{error}");
    assert_eq!(annotated(&often, "v1"), "");
}

#[test]
fn paths_through_the_same_map_and_through_none_find_what_each_alone_finds() {
    let json = r#"{"a":{"b":{"c":1},"d":"x"},"":{"b":2},"e":[{"f":3}]}"#;
    let mut document = text::Document::new(json);
    for (path, value) in [
        ("a.b.c", "1"),
        ("a.d", "x"),
        ("a.b", "map[c:1]"),
        ("a.d.c", ""),
        ("a..b", ""),
        ("e.f", ""),
        ("e", "map[f:3]"),
        ("a.b.c", "1"),
        ("", "map[b:2]"),
        ("none", ""),
    ] {
        assert_eq!(document.lookup(path), value, "{path}");
        assert_eq!(text::Document::new(json).lookup(path), value, "{path}, alone");
    }
}

#[test]
fn a_hash_of_the_spec_does_not_change_with_the_status() {
    for (fields, of_spec) in [
        ("spec", true),
        ("spec.drain,spec.upgrade.args", true),
        ("spec.drain,status.latestVersion", false),
        ("specs", false),
        ("", true),
    ] {
        assert_eq!(is_of_spec(&with_fields(fields, "a")), of_spec, "{fields}");
    }
}
