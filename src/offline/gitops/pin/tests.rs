use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::gitops::source::Source;
use refit_base::version::Offer;
use refit_base::version::policy::{Offered, Policy};
use refit_fixtures::processor_time;

/// A Plan with these lines of spec.
fn plan(spec: &str) -> String {
    format!("apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: a}}\nspec:\n{spec}")
}

fn file(text: &str) -> Source {
    Source::new("a.yaml", None, text.to_owned())
}

fn first(text: &str) -> PlanInFile {
    plans(&file(text)).remove(0)
}

fn request(plan: PlanInFile, images: bool) -> PinRequest {
    PinRequest {
        plan,
        version: NEW.to_owned(),
        images,
        digests: BTreeMap::new(),
    }
}

const OLD: &str = "v1.33.4+k3s1";
const NEW: &str = "v1.34.1+k3s1";

fn range_policy(range: &str) -> Policy {
    Policy {
        is_given: true,
        range: Some(range.parse().unwrap()),
        ..Policy::default()
    }
}

fn now() -> Timestamp {
    "2026-08-10T00:00:00Z".parse().unwrap()
}

/// The decision about the only version of a channel.
fn decide_version(current: Option<&str>, offered: &str, policy: &Policy) -> Verdict {
    let offered = Offered::from(&Offer::one(offered.to_owned()));
    super::decide_version(current, None, &offered, policy, now())
}

#[test]
fn a_version_that_is_there_in_either_spelling_stays() {
    for (current, offered) in [
        ("v1.33.4+k3s1", "v1.33.4+k3s1"),
        ("v1.33.4-k3s1", "v1.33.4+k3s1"),
        ("v1.33.4+k3s1", "v1.33.4-k3s1"),
        ("latest", "latest"),
    ] {
        let verdict = decide_version(Some(current), offered, &Policy::default());
        assert_eq!(verdict, Verdict::Same, "{current}");
    }
}

#[test]
fn a_version_is_spelled_as_the_one_before_it() {
    let take = |version: &str| Verdict::Take(version.to_owned());
    for (current, expected) in [
        (None, "v1.34.1+k3s1"),
        (Some("v1.33.4+k3s1"), "v1.34.1+k3s1"),
        (Some("v1.33.4"), "v1.34.1+k3s1"),
        (Some("v1.33.4-rc1"), "v1.34.1+k3s1"),
        (Some("v1.33.4-k3s1"), "v1.34.1-k3s1"),
        (Some("v1.33.4-rc1-k3s2"), "v1.34.1-k3s1"),
    ] {
        let verdict = decide_version(current, NEW, &Policy::default());
        assert_eq!(verdict, take(expected), "{current:?}");
    }
}

#[test]
fn a_plus_stays_a_plus_with_the_tags_of_a_registry() {
    for (current, tag, expected) in [
        ("v1.33.4+k3s1", "v1.33.4-k3s2", "v1.33.4+k3s2"),
        ("v1.33.4+rke2r1", "v1.34.1-rke2r1", "v1.34.1+rke2r1"),
        ("v1.33.4-k3s1", "v1.33.4-k3s2", "v1.33.4-k3s2"),
    ] {
        let verdict = decide_version(Some(current), tag, &Policy::default());
        assert_eq!(verdict, Verdict::Take(expected.to_owned()), "{current} {tag}");
    }
}

/// The regular expressions of the recipe for Renovate: which lines it finds, and how it reads a version.
fn renovate() -> [regex::Regex; 2] {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gitops.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let recipe = docs.split("```json\n").nth(1).unwrap();
    let recipe: serde_json::Value = serde_json::from_str(recipe.split("```").next().unwrap()).unwrap();
    let manager = &recipe["customManagers"][0];
    let versioning = manager["versioningTemplate"].as_str().unwrap();
    let (_, versioning) = versioning.split_once("{{else}}regex:").unwrap();
    let texts = [
        manager["matchStrings"][0].as_str().unwrap(),
        versioning.strip_suffix("{{/if}}").unwrap(),
    ];
    texts.map(|text| regex::Regex::new(text).unwrap())
}

#[test]
fn the_recipe_for_renovate_finds_versions_and_compares_builds() {
    let [line, version] = renovate();
    for (text, expected) in [
        (
            "  # renovate: datasource=github-releases depName=k3s-io/k3s\n  version: v1.33.4+k3s1\n",
            "v1.33.4+k3s1",
        ),
        (
            "  # renovate: datasource=docker depName=a/b\n  version: \"v1.33.4-k3s1\"\n",
            "v1.33.4-k3s1",
        ),
        (
            "  # renovate: datasource=github-releases depName=k3s-io/k3s\n  channel: https://a/stable\n  version: v1.33.4+k3s1\n",
            "v1.33.4+k3s1",
        ),
        (
            "path: /spec/version\n# renovate: datasource=docker depName=a versioning=loose\nvalue: '1.2'\n",
            "1.2",
        ),
    ] {
        let found = line.captures(text).unwrap();
        assert_eq!(&found["currentValue"], expected, "{text}");
    }
    for (text, numbers, prerelease, build) in [
        ("v1.33.4+k3s2", ["1", "33", "4"], None, Some("2")),
        ("v1.33.4-k3s2", ["1", "33", "4"], None, Some("2")),
        ("v1.33.4-rc1+rke2r10", ["1", "33", "4"], Some("rc1"), Some("10")),
        ("v1.11.0-rc.0", ["1", "11", "0"], Some("rc.0"), None),
        ("1.2.3", ["1", "2", "3"], None, None),
    ] {
        let found = version.captures(text).unwrap();
        let part = |name: &str| found.name(name).map(|part| part.as_str());
        let expected = numbers.map(Some);
        assert_eq!(["major", "minor", "patch"].map(part), expected, "{text}");
        assert_eq!((part("prerelease"), part("build")), (prerelease, build), "{text}");
    }
    assert!(!version.is_match("v1.33.4+k3s1-amd64"));
}

#[test]
fn a_range_knows_v_builds_and_two_parts() {
    for (range, offered, expected) in [
        (">=1.33, <1.34", "v1.33.4+k3s1", true),
        (">=1.33, <1.34", "v1.33.4-k3s1", true),
        (">=1.33, <1.34", "v1.34.0+rke2r1", false),
        ("~1.33", "1.33.9", true),
        (">=1.33", "v1.34.0-rc1+k3s1", false),
        (">=1.33", "v1.34.0-rc1-k3s1", false),
        (">=22", "24.04", true),
        (">=2026.8", "2026.08.1", true),
    ] {
        let verdict = decide_version(None, offered, &range_policy(range));
        let taken = verdict == Verdict::Take(offered.to_owned());
        assert_eq!(taken, expected, "{offered} in {range}: {verdict:?}");
        assert!(taken || matches!(verdict, Verdict::Kept(_)), "{verdict:?}");
    }
    let verdict = decide_version(None, "stable", &range_policy(">=1"));
    assert!(
        matches!(verdict, Verdict::Refused(Refusal::Incomparable { .. })),
        "{verdict:?}"
    );
}

#[test]
fn the_newest_version_of_a_feed_that_the_policy_admits_is_taken() {
    let release = |(version, published): &(&str, Option<&str>)| refit_base::version::Release {
        version: (*version).to_owned(),
        published: published.map(|at| at.parse().unwrap()),
    };
    let offer = |releases: &[(&str, Option<&str>)]| Offer {
        releases: releases.iter().map(release).collect(),
        partial: None,
    };
    let (old, young) = (Some("2026-08-01T00:00:00Z"), Some("2026-08-09T00:00:00Z"));
    let feed = offer(&[
        ("v1.33.3+k3s1", old),
        ("v1.34.1+k3s1", young),
        ("v1.33.4+k3s2", young),
        ("v1.33.4+k3s10", old),
    ]);
    let judged = |policy: &Policy| {
        super::decide_version(Some("v1.33.3-k3s1"), None, &Offered::from(&feed), policy, now())
    };
    let take = |version: &str| Verdict::Take(version.to_owned());
    assert_eq!(judged(&Policy::default()), take("v1.34.1-k3s1"));
    assert_eq!(judged(&range_policy("~1.33")), take("v1.33.4-k3s10"));
    assert_eq!(
        judged(&range_policy("~1.35")),
        Verdict::Kept("v1.34.1+k3s1 is not in the range ~1.35".to_owned())
    );
    let aged = Policy {
        is_given: true,
        minimum_age: jiff::SignedDuration::from_hours(72),
        // The review of the file is the approval.
        propose: true,
        ..Policy::default()
    };
    assert_eq!(judged(&aged), take("v1.33.4-k3s10"));
    let undated = offer(&[("v1.34.1+k3s1", None)]);
    let Verdict::Kept(why) =
        super::decide_version(Some("v1.33.3-k3s1"), None, &Offered::from(&undated), &aged, now())
    else {
        panic!()
    };
    assert!(
        why.contains("its channel does not say when it was released; --to takes it"),
        "{why}"
    );
}

#[test]
fn a_version_further_away_than_the_policy_allows_is_not_written_also_if_it_is_the_only_one() {
    let limited = Policy {
        is_given: true,
        max_minor_skip: Some(1),
        ..Policy::default()
    };
    let take = |version: &str| Verdict::Take(version.to_owned());
    let of = |current, offered| decide_version(current, offered, &limited);
    assert_eq!(
        of(Some("v1.34.1+k3s1"), "v1.36.3+k3s1"),
        Verdict::Kept(
            "v1.36.3+k3s1 is not taken yet: it is 2 minor versions from v1.34.1+k3s1, the oldest, and \
             spec.versionPolicy.maxMinorSkip is 1; it can be taken when all nodes, also those of Plans that wait for this one, have a version in between"
                .to_owned()
        )
    );
    assert_eq!(of(Some("v1.34.1+k3s1"), "v1.35.3+k3s1"), take("v1.35.3+k3s1"));
    assert_eq!(of(None, "v1.36.3+k3s1"), take("v1.36.3+k3s1"));
    assert_eq!(of(Some("latest"), "v1.36.3+k3s1"), take("v1.36.3+k3s1"));
    let back = Policy {
        allow_downgrade: true,
        ..limited
    };
    let verdict = decide_version(Some("v1.36.3+k3s1"), NEW, &back);
    assert_eq!(verdict, take(NEW));
}

#[test]
fn a_plans_own_policy_is_read_with_it() {
    let policy = |field: &str| first(&plan(&format!("  {field}\n"))).policy;
    assert_eq!(policy("version: v1"), Ok(Policy::default()));
    assert_eq!(policy("versionPolicy: null"), Ok(Policy::default()));
    assert_eq!(policy("versionPolicy: {range: ~1.33}"), Ok(range_policy("~1.33")));
    for (policy_text, why) in [
        ("{range: newest}", "spec.versionPolicy.range is invalid"),
        ("{minimumAge: 3}", "spec.versionPolicy cannot be read"),
    ] {
        let error = policy(&format!("versionPolicy: {policy_text}")).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }
}

#[test]
fn a_version_does_not_go_back_and_does_not_become_a_word() {
    let refused = |current, offered, policy: &Policy| match decide_version(Some(current), offered, policy) {
        Verdict::Refused(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let none = Policy::default();
    assert!(refused("v1.34.1+k3s1", "v1.33.9+k3s1", &none).contains("--allow-downgrade"));
    assert!(refused("v1.34.1-k3s2", "v1.34.1+k3s1", &none).contains("older"));
    assert!(refused("v1.34.1+k3s1", "login", &none).contains("not a semantic version"));
    assert!(refused("v1.34.1+k3s1", "v1 beta", &none).contains("cannot be an image tag"));
    let allowed = Policy {
        allow_downgrade: true,
        ..Policy::default()
    };
    let verdict = decide_version(Some("v1.34.1+k3s1"), "v1.33.9+k3s1", &allowed);
    assert_eq!(verdict, Verdict::Take("v1.33.9+k3s1".to_owned()));
    assert!(refused("v1.34.1+k3s1", "login", &allowed).contains("not a semantic version"));
    for policy in [&none, &allowed] {
        let why = refused("v1.33.4+rke2r1", "v1.34.1+k3s1", policy);
        assert!(
            why.contains("is a version of k3s") && !why.contains("--allow-downgrade"),
            "{why}"
        );
    }
}

#[test]
fn an_image_whose_tag_is_the_version_moves_along_when_it_is_to() {
    let text = plan(
        "  version: v1.33.4+k3s1\n  prepare: {image: 'a.example:5000/k:v1.33.4-k3s1'}\n  upgrade:\n    image: other:v1.33.4 # \
         v1.33.4-k3s1\n",
    );
    let pinned = |images| rewrite(&file(&text), &[request(first(&text), images)]).unwrap();
    let version = text.replace("version: v1.33.4", "version: v1.34.1");
    assert_eq!(pinned(false), version);
    assert_eq!(
        pinned(true),
        version.replace("k:v1.33.4-k3s1'", "k:v1.34.1-k3s1'")
    );
}

#[test]
fn a_number_that_is_spelled_as_a_version_is_one_and_others_are_left_alone() {
    for (written, expected) in [
        ("1.50", Some("1.50")),
        ("1.0", Some("1.0")),
        ("22.04", Some("22.04")),
        ("20260801", Some("20260801")),
        ("0", Some("0")),
        ("1e3", None),
        ("1.5e3", None),
        ("0x10", None),
        ("0o17", None),
        ("0755", None),
        (".5", None),
        ("5.", None),
        ("-1.5", None),
        ("1_000", None),
    ] {
        let plan = first(&plan(&format!("  version: {written} # so\n")));
        assert_eq!(plan.version.as_deref(), expected, "{written}");
        assert_eq!(plan.is_number, expected.is_some(), "{written}");
        assert_eq!(
            plan.other.is_some_and(|other| other.is_mistake),
            expected.is_none(),
            "{written}"
        );
    }
    for (written, expected) in [
        ("2026-08-01", Some("2026-08-01")),
        ("'1.50'", Some("1.50")),
        ("!!str 1.50", Some("1.50")),
        ("null", None),
        ("~", None),
        ("\"\"", None),
        ("", None),
    ] {
        let plan = first(&plan(&format!("  version: {written}\n")));
        assert_eq!(plan.version.as_deref(), expected, "{written}");
        assert_eq!((plan.is_number, plan.other), (false, None), "{written}");
    }
}

#[test]
fn another_string_in_place_of_a_version_is_named_by_its_kind() {
    for (written, what) in [
        ("\"{{ .Values.version }}\"", "a template expression"),
        (
            "#@ data.values.version",
            "\"#@ data.values.version\", an expression of ytt",
        ),
        ("v1.33.4+k3s1 #@ data.values.version", "an expression of ytt"),
        ("#@K3S_VERSION@", "an expression of ytt"),
        ("v1.33.4+k3s1 # kpt-set: ${version}", "a setter of kpt"),
        (
            "v1.33.4+k3s1 # {\"$openapi\":\"version\"}",
            "\"v1.33.4+k3s1\" with the comment \"# {\\\"$openapi",
        ),
        (
            "\"\" # {\"$imagepolicy\": \"flux-system:k3s:tag\"}",
            "a marker of Flux",
        ),
        ("<path:secret/k3s#version>", "a placeholder in angle brackets"),
        ("latest", "\"latest\", which is not a version"),
        ("v1.33 beta", "which is not a version"),
        ("~1.33", "a range and not a version"),
        ("v1.33.x", "a range and not a version"),
        ("yes", "the bool yes"),
        ("[v1.33.4]", "a list"),
        ("{name: v1.33.4}", "an object"),
        ("!Ref Version", "which is not a version"),
    ] {
        let plan = first(&plan(&format!("  version: {written}\n  upgrade: {{image: i}}\n")));
        let other = plan.other.unwrap_or_else(|| panic!("{written}"));
        assert!(other.what.contains(what), "{written}: {}", other.what);
        assert_eq!(plan.version, None, "{written}");
    }
    for written in [
        "v1.33.4+k3s1 # renovate",
        "v1.33.4 #",
        "'v1.33.4' # @me",
        "v1.33.4 #@overlay/match missing_ok=True",
    ] {
        let plan = first(&plan(&format!("  version: {written}\n")));
        assert_eq!(plan.other, None, "{written}");
    }
}

#[test]
fn a_checksum_of_sops_guards_a_plan_unless_it_leaves_plain_values_out() {
    for (sops, expected) in [
        ("sops: {mac: 'ENC[x]', lastmodified: now}", true),
        ("sops: {mac: 'ENC[x]', mac_only_encrypted: false}", true),
        ("sops: {mac: 'ENC[x]', mac_only_encrypted: true}", false),
        ("sops: {}", false),
        ("other: {}", false),
    ] {
        let plan = first(&plan(&format!("  version: v1.33.4\n{sops}\n")));
        assert_eq!(plan.is_guarded_by_sops, expected, "{sops}");
    }
}

#[test]
fn a_move_that_skips_minor_versions_or_goes_back_is_remarkable() {
    for (current, wanted, expected) in [
        ("v1.31.4+k3s1", "v1.32.0+k3s1", None),
        ("v1.31.4+k3s1", "v1.33.0+k3s1", Some("skips minor version 1.32")),
        (
            "v1.30.4-rke2r1",
            "v1.34.0+rke2r1",
            Some("skips minor versions 1.31 to 1.33"),
        ),
        ("1.31", "1.33", Some("skips minor version 1.32")),
        ("v1.33.4+k3s1", "v1.33.3+k3s1", Some("a downgrade")),
        ("v1.33.4+k3s2", "v1.33.4+k3s1", Some("a downgrade")),
        ("v1.33.4+k3s1", "v1.33.4-rc1+k3s1", Some("a downgrade")),
        ("v1.33.4+k3s1", "v1.30.0+k3s1", Some("a downgrade")),
        ("22.04", "22.10", None),
        ("22.04", "24.04", None),
        ("2026.08.1", "2026.12.1", None),
        ("latest", "v1.33.4", None),
    ] {
        let found = remark(current, wanted, None);
        assert_eq!(found.as_deref(), expected, "{current} -> {wanted}");
    }
}

/// A Plan whose version is an anchor that is an item of a list.
fn plan_of_list(version: &str) -> String {
    format!(
        "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nx-vs:\n- &v1 {version}\nmetadata: {{name: a}}\nspec: {{version: *v1}}\n"
    )
}

/// A file with all its Plans pinned.
fn rewritten(text: &str, images: bool, digests: &[(&str, &str)]) -> Result<String, String> {
    let source = file(text);
    let digests = digests
        .iter()
        .map(|(image, digest)| ((*image).to_owned(), (*digest).to_owned()));
    let digests: BTreeMap<_, _> = digests.collect();
    let requests = plans(&source).into_iter().map(|plan| PinRequest {
        digests: digests.clone(),
        ..request(plan, images)
    });
    rewrite(&source, &requests.collect::<Vec<_>>()).map_err(|error| error.to_string())
}

#[test]
fn an_image_gets_no_quotes_where_it_had_none() {
    let text = |image: &str| {
        plan(&format!(
            "  version: {NEW}\n  upgrade:\n    image: {image} # here\n"
        ))
    };
    let digest = format!("sha256:{}", "a".repeat(64));
    let pinned = format!("r.example:5000/k3s-upgrade:v1.34.1-k3s1@{digest}");
    let digests = [("r.example:5000/k3s-upgrade:v1.34.1-k3s1", digest.as_str())];
    for quote in ["", "'", "\""] {
        let before = text(&format!("{quote}r.example:5000/k3s-upgrade{quote}"));
        let after = text(&format!("{quote}{pinned}{quote}"));
        assert_eq!(rewritten(&before, false, &digests), Ok(after), "{quote}");
    }
    let old = text("rancher/k3s-upgrade:v1.33.4-k3s1").replace("version: v1.34.1", "version: v1.33.4");
    assert_eq!(
        rewritten(&old, true, &[]),
        Ok(text("rancher/k3s-upgrade:v1.34.1-k3s1"))
    );
}

#[test]
fn an_anchor_moves_with_the_only_plan_that_uses_it_and_is_refused_where_something_else_does() {
    let list = |version: &str, second: &str| {
        format!(
            "kind: List\napiVersion: v1\nx-k3s: &k3s {version} # all\nitems:\n- apiVersion: upgrade.cattle.io/v1\n  kind: Plan\n  \
             metadata: {{name: a}}\n  spec: {{version: *k3s}}\n{second}"
        )
    };
    let (old, new) = (OLD, NEW);
    let plan = "- apiVersion: upgrade.cattle.io/v1\n  kind: Plan\n  metadata: {name: b}\n  spec:\n    version: *k3s\n";
    let other = "- apiVersion: v1\n  kind: ConfigMap\n  data: {version: *k3s}\n";
    assert_eq!(rewritten(&list(old, ""), false, &[]), Ok(list(new, "")));
    let error = rewritten(&list(old, plan), false, &[]).unwrap_err();
    assert!(
        error.contains("the anchor shares it with items[1].spec.version in line 13; its value is in line 3"),
        "{error}"
    );
    let error = rewritten(&list(old, other), false, &[]).unwrap_err();
    assert!(
        error.contains("the anchor shares it with items[1].data.version in line 11"),
        "{error}"
    );
    // A key without a meaning in a Plan only holds a value for aliases.
    let own = |version: &str| {
        format!(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nx-k3s: &k3s {version}\nmetadata: {{name: a}}\nspec: {{version: *k3s}}\n"
        )
    };
    assert_eq!(rewritten(&own(old), false, &[]), Ok(own(new)));
    let item = |version: &str| plan_of_list(version);
    assert_eq!(rewritten(&item(old), false, &[]), Ok(item(new)));
    // A merge key with several users, one of which is not a Plan.
    let merged = |version: &str, second: &str| {
        format!(
            "kind: List\napiVersion: v1\nx-common: &common\n  version: {version}\nitems:\n- apiVersion: upgrade.cattle.io/v1\n  \
             kind: Plan\n  metadata: {{name: a}}\n  spec:\n    <<: *common\n{second}"
        )
    };
    let second = "- apiVersion: upgrade.cattle.io/v1\n  kind: Plan\n  metadata: {name: b}\n  spec:\n    <<: [*common]\n";
    assert_eq!(rewritten(&merged(old, ""), false, &[]), Ok(merged(new, "")));
    let third = "- kind: ConfigMap\n  apiVersion: v1\n  data:\n    <<: *common\n";
    for (others, named) in [
        (
            second.to_owned(),
            "items[1].spec.version in line 15; its value is in line 4",
        ),
        (
            third.to_owned(),
            "items[1].data.version in line 14; its value is in line 4",
        ),
        (
            second.repeat(7),
            "items[5].spec.version in line 35 and 2 more; its value is in line 4",
        ),
    ] {
        let error = rewritten(&merged(old, &others), false, &[]).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    // An object that gets a version, and that two Plans share.
    let shared = "kind: List\napiVersion: v1\nitems:\n- {apiVersion: upgrade.cattle.io/v1, kind: Plan, spec: &s {channel: c}}\n- \
                  {apiVersion: upgrade.cattle.io/v1, kind: Plan, spec: *s}\n";
    let error = rewritten(shared, false, &[]).unwrap_err();
    assert!(
        error.contains("the anchor shares it with items[1].spec in line 5; its value is in line 4"),
        "{error}"
    );
}

#[test]
fn the_time_for_a_file_grows_as_the_number_of_its_plans() {
    let plan = |number: usize, version: &str| {
        let spec = format!("  version: {version}\n  upgrade: {{image: rancher/k3s-upgrade}}\n");
        plan(&spec).replace("name: a", &format!("name: p{number}"))
    };
    let file = |count, version: &str, join: &dyn Fn(Vec<String>) -> String| {
        join((0..count).map(|number| plan(number, version)).collect())
    };
    let documents = |plans: Vec<String>| plans.join("---\n");
    let list = |plans: Vec<String>| {
        let items: Vec<_> = plans
            .iter()
            .map(|plan| format!("- {}", plan.trim_end().replace('\n', "\n  ")))
            .collect();
        format!("apiVersion: v1\nkind: List\nitems:\n{}\n", items.join("\n"))
    };
    let joins: [&dyn Fn(Vec<String>) -> String; 2] = [&documents, &list];
    for join in joins {
        let once = |count| {
            let text = file(count, OLD, join);
            let begun = processor_time();
            let found = rewritten(&text, false, &[]);
            let taken = processor_time().saturating_sub(begun);
            assert_eq!(found, Ok(file(count, NEW, join)));
            taken
        };
        // Eight times as much work; quadratic time would be sixty-four times, each time that it is measured.
        let mut measured = Vec::new();
        let is_linear = (0..10).any(|_| {
            let (few, many) = (once(250), once(2000));
            measured.push((few, many));
            many < few * 24
        });
        assert!(is_linear, "{measured:?}");
    }
}
