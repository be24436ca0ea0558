use super::*;

type Guard = Policy;

fn guard(range: &str) -> Guard {
    Guard {
        is_given: true,
        range: Some(range.parse().unwrap()),
        ..Guard::default()
    }
}

fn now() -> Timestamp {
    "2026-08-10T00:00:00Z".parse().unwrap()
}

/// What becomes of a channel's one version.
fn judge(current: Option<&str>, offered: &str, guard: &Guard) -> Verdict {
    super::judge(current, &Offer::one(offered.to_owned()), guard, now())
}

#[test]
fn a_version_that_is_there_in_either_spelling_stays() {
    for (current, offered) in [
        ("v1.33.4+k3s1", "v1.33.4+k3s1"),
        ("v1.33.4-k3s1", "v1.33.4+k3s1"),
        ("v1.33.4+k3s1", "v1.33.4-k3s1"),
        ("latest", "latest"),
    ] {
        assert_eq!(
            judge(Some(current), offered, &Guard::default()),
            Verdict::Same,
            "{current}"
        );
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
        (Some("v1.33.4-rc1-rke2r2"), "v1.34.1-k3s1"),
        // What is no version at all is no reason to stay with it.
        (Some("v1.33 beta"), "v1.34.1+k3s1"),
        (Some("stable"), "v1.34.1+k3s1"),
    ] {
        assert_eq!(
            judge(current, "v1.34.1+k3s1", &Guard::default()),
            take(expected),
            "{current:?}"
        );
    }
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
        let verdict = judge(None, offered, &guard(range));
        let taken = verdict == Verdict::Take(offered.to_owned());
        assert_eq!(taken, expected, "{offered} in {range}: {verdict:?}");
        assert!(taken || matches!(verdict, Verdict::Kept(_)), "{verdict:?}");
    }
    let verdict = judge(None, "stable", &guard(">=1"));
    assert!(
        matches!(verdict, Verdict::Refused(Refusal::Incomparable { .. })),
        "{verdict:?}"
    );
}

#[test]
fn of_a_feed_the_newest_is_taken_that_the_policy_lets_through() {
    let release = |(version, published): &(&str, Option<&str>)| crate::channel::Release {
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
    let judged = |policy: &Guard| super::judge(Some("v1.33.3-k3s1"), &feed, policy, now());
    let take = |version: &str| Verdict::Take(version.to_owned());
    assert_eq!(judged(&Guard::default()), take("v1.34.1-k3s1"));
    assert_eq!(judged(&guard("~1.33")), take("v1.33.4-k3s10"));
    assert_eq!(
        judged(&guard("~1.35")),
        Verdict::Kept("v1.34.1+k3s1 is not in the range ~1.35".to_owned())
    );
    let aged = Guard {
        is_given: true,
        minimum_age: jiff::SignedDuration::from_hours(72),
        // Whoever takes the file approves.
        propose: true,
        ..Guard::default()
    };
    assert_eq!(judged(&aged), take("v1.33.4-k3s10"));
    let undated = offer(&[("v1.34.1+k3s1", None)]);
    let Verdict::Kept(why) = super::judge(Some("v1.33.3-k3s1"), &undated, &aged, now()) else {
        panic!()
    };
    assert!(
        why.contains("its channel does not say when it was released; --to takes it"),
        "{why}"
    );
}

#[test]
fn a_plans_own_policy_is_read_with_it() {
    let policy = |text: &str| {
        let text = format!(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: a}}\nspec: {{{text}}}\n"
        );
        plans(&Source::new("a.yaml", None, text)).remove(0).policy
    };
    assert_eq!(policy("version: v1"), Ok(Policy::default()));
    assert_eq!(policy("versionPolicy: null"), Ok(Policy::default()));
    assert_eq!(policy("versionPolicy: {range: ~1.33}"), Ok(guard("~1.33")));
    for (text, why) in [
        (
            "versionPolicy: {range: newest}",
            "spec.versionPolicy.range is invalid",
        ),
        (
            "versionPolicy: {minimumAge: 3}",
            "spec.versionPolicy cannot be read",
        ),
    ] {
        let error = policy(text).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }
}

#[test]
fn a_version_does_not_go_back_and_does_not_become_a_word() {
    let refused = |current, offered, guard: &Guard| match judge(Some(current), offered, guard) {
        Verdict::Refused(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let none = Guard::default();
    assert!(refused("v1.34.1+k3s1", "v1.33.9+k3s1", &none).contains("--allow-downgrade"));
    assert!(refused("v1.34.1-k3s2", "v1.34.1+k3s1", &none).contains("older"));
    assert!(refused("v1.34.1+k3s1", "login", &none).contains("no semantic version"));
    assert!(refused("v1.34.1+k3s1", "v1 beta", &none).contains("cannot be an image tag"));
    let allowed = Guard {
        allow_downgrade: true,
        ..Guard::default()
    };
    let verdict = judge(Some("v1.34.1+k3s1"), "v1.33.9+k3s1", &allowed);
    assert_eq!(verdict, Verdict::Take("v1.33.9+k3s1".to_owned()));
    assert!(refused("v1.34.1+k3s1", "login", &allowed).contains("no semantic version"));
}

#[test]
fn an_image_whose_tag_is_the_version_moves_along_when_it_is_to() {
    let text = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: a}\nspec:\n  version: v1.33.4+k3s1\n  prepare: \
                {image: 'a.example:5000/k:v1.33.4-k3s1'}\n  upgrade:\n    image: other:v1.33.4 # v1.33.4-k3s1\n";
    let source = Source::new("a.yaml", None, text.to_owned());
    let want = |images| Want {
        plan: plans(&source).remove(0),
        version: "v1.34.1+k3s1".to_owned(),
        images,
        digests: BTreeMap::new(),
    };
    let with = rewrite(&source, &[want(true)]).unwrap();
    assert_eq!(
        with,
        text.replace("version: v1.33.4", "version: v1.34.1")
            .replace("k:v1.33.4-k3s1'", "k:v1.34.1-k3s1'")
    );
    let without = rewrite(&source, &[want(false)]).unwrap();
    assert_eq!(without, text.replace("version: v1.33.4", "version: v1.34.1"));
}
