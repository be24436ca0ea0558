mod limits;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// A vector of `vectors.yaml`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    why: String,
    version: String,
    fields: Option<String>,
    plan: Plan,
    #[serde(default)]
    secrets: Vec<Secret>,
    text: Option<String>,
    #[serde(default)]
    secret_hashes: BTreeMap<String, String>,
    hash: String,
}

fn vectors() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = serde_saphyr::from_str(include_str!("vectors.yaml")).unwrap();
    for vector in &mut vectors {
        if let Some(fields) = &vector.fields {
            let annotations = vector.plan.metadata.annotations.get_or_insert_default();
            annotations.insert(ANNOTATION_DIGEST.to_owned(), fields.clone());
        }
    }
    vectors
}

fn plan(spec: &str) -> Plan {
    Plan {
        spec: serde_saphyr::from_str(spec).unwrap(),
        ..Plan::default()
    }
}

fn secret(yaml: &str) -> Secret {
    serde_saphyr::from_str(yaml).unwrap()
}

#[test]
fn refit_s_own_fields_are_in_the_hash_only_where_the_plan_asks_for_them() {
    let without = plan("{upgrade: {image: x}}");
    let mut with = plan(
        "{upgrade: {image: x}, reboot: {when: Always, command: [a, b]}, settle: {minReady: 1m}, hostAccess: Root}",
    );
    let hash = |plan: &Plan| plan_hash(plan, "v1", [""; 0]);
    assert_eq!(hash(&with), hash(&without), "a finished node does not reboot");
    let fields = "spec.reboot.when,spec.reboot.command,spec.settle,spec.hostAccess";
    let annotations = with.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION_DIGEST.to_owned(), fields.to_owned());
    assert_eq!(annotated(&with, "v1"), "Alwaysamap[minReady:1m]Root");
    assert_ne!(hash(&with), hash(&without));
}

#[test]
fn every_plan_has_the_hash_that_system_upgrade_controller_gives_it() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 20);
    for vector in vectors {
        let hashes: BTreeMap<_, _> = vector
            .secrets
            .iter()
            .map(|secret| (secret.metadata.name.clone().unwrap(), secret_hash(secret)))
            .collect();
        assert_eq!(hashes, vector.secret_hashes, "{}", vector.why);
        let hashes = hashed_secrets(&vector.plan.spec).map(|name| &hashes[name]);
        let (text, hash) = (
            annotated(&vector.plan, &vector.version),
            plan_hash(&vector.plan, &vector.version, hashes),
        );
        assert_eq!(
            (text, hash),
            (vector.text.unwrap_or_default(), vector.hash),
            "{}",
            vector.why
        );
    }
}

/// Hashes of Plans on real clusters under system-upgrade-controller.
#[test]
fn a_plan_has_the_hash_of_each_known_vector() {
    let account = "{serviceAccountName: system-upgrade, upgrade: {image: x}}";
    let drain = "{serviceAccountName: system-upgrade, concurrency: 2, drain: {skipWaitForDeleteTimeout: 60, force: true}}";
    // Spec, annotated fields, version, hash of the Secret, hash of the Plan.
    let vectors = [
        (
            "{}",
            "",
            "",
            None,
            "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f",
        ),
        (
            account,
            "",
            "v1.20.11-k3s1",
            None,
            "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c",
        ),
        (
            account,
            "",
            "bionic",
            Some("2tg9fbfm4c"),
            "95450d71b15c26e5794af5b4d6cd1daf20a090727be74570816c5eba",
        ),
        (
            drain,
            "spec.concurrency,spec.drain",
            "v1.20.11-k3s1",
            None,
            "2c52507dfc4878a9b578ccd0f42e674f31918ca850d1f9a9df606517",
        ),
    ];
    for (spec, fields, version, secret, hash) in vectors {
        let mut plan = plan(spec);
        let annotations = plan.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_DIGEST.to_owned(), fields.to_owned());
        assert_eq!(plan_hash(&plan, version, secret), hash, "{spec} {version}");
    }
}

#[test]
fn a_secret_has_the_hash_that_kubectl_appends_to_its_name() {
    let vectors = [
        (
            "{metadata: {name: test}, type: Opaque, data: {config: dGVzdA==}}",
            "2tg9fbfm4c",
        ),
        (
            "{metadata: {name: test, namespace: x, uid: y, labels: {a: b}}, type: Opaque, data: {config: dGVzdA==}}",
            "2tg9fbfm4c",
        ),
        (
            "{metadata: {name: test}, type: Opaque, immutable: true, data: {config: dGVzdA==, a: '', B: PCY+}}",
            "b6hh84k47k",
        ),
        ("{metadata: {name: empty}, type: Opaque}", "d4htm5cbfk"),
        ("{metadata: {}, type: my-type, data: {}}", "t75bgf6ctb"),
        ("{metadata: {}, type: my-type, data: {one: ''}}", "74bd68bm66"),
        (
            "{metadata: {}, type: my-type, data: {two: Mg==, one: '', three: Mw==}}",
            "dgcb6h9tmk",
        ),
        ("{metadata: {name: n}, type: 'kubernetes.io/<x>&y'}", "ddk5bkmchm"),
    ];
    for (yaml, hash) in vectors {
        assert_eq!(secret_hash(&secret(yaml)), hash, "{yaml}");
    }
}

#[test]
fn a_javascript_line_separator_is_escaped_as_go_escapes_it() {
    assert_eq!(
        go_escaped("\"<&>\u{2028}\u{2029}ü\""),
        "\"\\u003c\\u0026\\u003e\\u2028\\u2029ü\""
    );
}

#[test]
fn a_value_is_printed_as_go_prints_it() {
    let vectors = [
        (
            r#"{"v":{"force":true,"skipWaitForDeleteTimeout":60,"podSelector":{"matchLabels":{"b":"x","a":"y"}}}}"#,
            "map[force:true podSelector:map[matchLabels:map[a:y b:x]] skipWaitForDeleteTimeout:60]",
        ),
        (r#"{"v":["one","two"]}"#, "one"),
        (r#"{"v":[]}"#, ""),
        (r#"{"v":{}}"#, "map[]"),
        (r#"{"v":1.50}"#, "1.50"),
        (r#"{"v":1e3}"#, "1e3"),
        (r#"{"v":"  pad "}"#, "pad"),
        (r#"{"v":null}"#, ""),
        (r#"{"v":[null]}"#, ""),
        (r#"{"v":[["a","b"],"c"]}"#, "[a b]"),
        (
            r#"{"v":{"n":null,"l":[1,null,true]}}"#,
            "map[l:[1 <nil> true] n:<nil>]",
        ),
        (r#"{"v":"\"\u00fc\""}"#, "\"ü\""),
        (r#"{"v":false}"#, "false"),
        (r#"{"w":1}"#, ""),
    ];
    for (document, printed) in vectors {
        assert_eq!(text::Document::new(document).lookup("v"), printed, "{document}");
    }
}

#[test]
fn only_what_the_hash_is_made_of_changes_it() {
    let none: [&str; 0] = [];
    let a = plan("{serviceAccountName: a, concurrency: 1, cordon: true, upgrade: {image: x, args: [a]}}");
    let b = plan("{serviceAccountName: a, concurrency: 9, drain: {}, upgrade: {image: y, command: [b]}}");
    assert_eq!(plan_hash(&a, "v1", none), plan_hash(&b, "v1", none));
    assert_ne!(plan_hash(&a, "v1", none), plan_hash(&a, "v2", none));
}

proptest! {
    #[test]
    fn a_secret_hash_is_ten_consonants_and_digits(name in ".*", data in prop::collection::btree_map("[a-z]{1,3}", any::<Vec<u8>>(), 0..4)) {
        let data = data.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
        let mut secret = Secret { data: Some(data), ..Secret::default() };
        secret.metadata.name = Some(name);
        let hash = secret_hash(&secret);
        prop_assert_eq!(hash.len(), 10);
        prop_assert!(hash.chars().all(|c| "2456789bcdfghkmt".contains(c)), "{}", hash);
    }
}
