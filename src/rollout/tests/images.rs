//! Whether the images of a Plan exist before its nodes start.

use jiff::{SignedDuration, Timestamp};

use super::build::{cluster, decided, defaults, written};
use crate::{ClusterState, Decision, Query, Step, StepEffect};
use refit_api::image::ImageAnswer;
use refit_api::{ConditionType, ContainerSpec, Plan, PlanSpec, VersionPolicySpec};
use refit_fixtures::{morning, node, plan, plan_with};

const IMAGE: &str = "example.com/upgrade:v1";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found";

fn asking(plan: Plan) -> ClusterState {
    let mut cluster = cluster([node("a", "n1")], [plan]);
    cluster.defaults.checks_images = true;
    for plan in cluster.plans.values_mut() {
        plan.settings_changed();
    }
    cluster
}

/// The images of which registries are asked.
fn asked(decision: &Decision) -> Vec<&str> {
    let steps = decision.steps.iter();
    steps
        .filter_map(|step| match step {
            Step::Query(Query::ReadDigest { image, .. }) => Some(image.as_str()),
            _ => None,
        })
        .collect()
}

/// The nodes that start, and why the Plan waits.
fn outcome(decision: &Decision) -> (Vec<String>, String) {
    let status = written(decision).unwrap();
    let complete = status.condition(ConditionType::Complete).unwrap();
    let reason = complete.reason.as_deref().unwrap_or_default();
    let message = complete.message.as_deref().unwrap_or_default();
    (
        status.applying.clone().unwrap_or_default(),
        format!("{reason}: {message}"),
    )
}

fn answer(cluster: &mut ClusterState, image: &str, answer: ImageAnswer, now: Timestamp) {
    cluster.refresh(now);
    let hash = cluster.plans["p"].resolved.as_ref().unwrap().hash.clone();
    let effect = StepEffect::Digest("p".into(), hash, image.to_owned(), answer);
    let lists = cluster.lists();
    cluster.apply_effect(effect, lists, now);
}

fn pin(spec: &mut PlanSpec) {
    spec.version_policy = Some(VersionPolicySpec {
        pin_digest: Some(true),
        ..VersionPolicySpec::default()
    });
}

fn missing() -> ImageAnswer {
    ImageAnswer::Missing(NOT_FOUND.to_owned())
}

#[test]
fn no_node_starts_before_the_registry_has_answered_and_each_answer_but_no_lets_nodes_start() {
    let found = ImageAnswer::Found(format!("sha256:{:064x}", 7));
    let unknown = ImageAnswer::Unknown("no answer within 10s".to_owned());
    for (given, starts) in [(found, true), (unknown, true), (missing(), false)] {
        let mut cluster = asking(plan("p"));
        let decision = decided(&mut cluster, morning());
        assert_eq!(asked(&decision), [IMAGE]);
        let pending = format!("DigestPending: the registry has not answered about {IMAGE} yet");
        assert_eq!(outcome(&decision), (vec![], pending));
        answer(&mut cluster, IMAGE, given.clone(), morning());
        let decision = decided(&mut cluster, morning());
        assert!(asked(&decision).is_empty(), "once: {given:?}");
        let (started, why) = outcome(&decision);
        assert_eq!(started == ["a"], starts, "{given:?}: {why}");
        assert!(
            written(&decision).unwrap().pinned.is_none(),
            "nothing runs the digest"
        );
        if !starts {
            let message = format!(
                "ImageMissing: the registry has no image {IMAGE} ({NOT_FOUND}): wait until it is published, or correct the image or \
                 the version"
            );
            assert_eq!(why, message);
        }
    }
}

#[test]
fn an_image_that_is_missing_is_asked_for_again_every_minute_until_it_exists() {
    let mut cluster = asking(plan("p"));
    let mut now = morning();
    for _ in 0..3 {
        assert_eq!(asked(&decided(&mut cluster, now)), [IMAGE]);
        answer(&mut cluster, IMAGE, missing(), now);
        let decision = decided(&mut cluster, now);
        assert_eq!(
            decision.requeue_at,
            now.checked_add(SignedDuration::from_mins(1)).ok()
        );
        // While it is asked for again, status stays the same.
        now += SignedDuration::from_mins(1);
        assert!(outcome(&decided(&mut cluster, now)).1.starts_with("ImageMissing"));
    }
    // A registry that is silent now has not taken its no back.
    answer(
        &mut cluster,
        IMAGE,
        ImageAnswer::Unknown("timeout".to_owned()),
        now,
    );
    let decision = decided(&mut cluster, now);
    assert!(outcome(&decision).1.starts_with("ImageMissing"));
    assert!(asked(&decision).is_empty());
    // The clock is set back.
    let yesterday = now - SignedDuration::from_hours(24);
    assert_eq!(asked(&decided(&mut cluster, yesterday)), [IMAGE]);
    answer(
        &mut cluster,
        IMAGE,
        ImageAnswer::Found("sha256:1".to_owned()),
        now,
    );
    assert_eq!(outcome(&decided(&mut cluster, now)).0, ["a"]);
}

#[test]
fn registries_are_asked_only_if_a_node_could_start_otherwise_and_only_for_images_that_follow_the_version() {
    let container = |image: &str| ContainerSpec {
        image: image.to_owned(),
        ..ContainerSpec::default()
    };
    let with = |change: &dyn Fn(&mut PlanSpec)| asking(plan_with("p", change));
    let mut suspended = with(&|spec| spec.suspend = Some(true));
    assert!(asked(&decided(&mut suspended, morning())).is_empty());
    let mut later = with(&|spec| spec.not_before = Some("2100-01-01T00:00:00Z".to_owned()));
    assert!(asked(&decided(&mut later, morning())).is_empty());
    let mut tagged =
        with(&|spec| spec.upgrade.as_mut().unwrap().image = "example.com/upgrade:own".to_owned());
    assert!(asked(&decided(&mut tagged, morning())).is_empty());
    let mut several = with(&|spec| {
        spec.prepare = Some(Box::new(container("example.com/prepare")));
        spec.verify = Some(Box::new(container("example.com/upgrade")));
        spec.version = Some("v1.2.3+k3s1".to_owned());
    });
    let decision = decided(&mut several, morning());
    assert_eq!(
        asked(&decision),
        [
            "example.com/prepare:v1.2.3-k3s1",
            "example.com/upgrade:v1.2.3-k3s1"
        ]
    );
    let mut off = with(&|_| {});
    off.defaults = defaults();
    off.plans.get_mut("p").unwrap().settings_changed();
    assert!(asked(&decided(&mut off, morning())).is_empty());
    let mut local = with(&|_| {});
    local.defaults.job.image_pull_policy = "Never".to_owned();
    local.plans.get_mut("p").unwrap().settings_changed();
    let decision = decided(&mut local, morning());
    assert!(asked(&decision).is_empty(), "kubelets do not ask either");
    assert_eq!(outcome(&decision).0, ["a"]);
    let pinned = |image: &str| {
        plan_with("p", |spec| {
            spec.upgrade.get_or_insert_default().image = image.to_owned();
            pin(spec);
        })
    };
    let of_digest = pinned(&format!("example.com/upgrade@sha256:{:064x}", 7));
    assert!(asked(&decided(&mut cluster([node("a", "n1")], [of_digest]), morning())).is_empty());
    let without_nodes = pinned("example.com/upgrade");
    assert!(asked(&decided(&mut cluster([], [without_nodes]), morning())).is_empty());
}

#[test]
fn a_plan_that_pins_digests_reports_a_missing_image_too_even_if_existence_is_not_checked() {
    let mut cluster = cluster([node("a", "n1")], [plan_with("p", pin)]);
    assert_eq!(asked(&decided(&mut cluster, morning())), [IMAGE]);
    answer(&mut cluster, IMAGE, missing(), morning());
    let decision = decided(&mut cluster, morning());
    let (started, why) = outcome(&decision);
    assert!(started.is_empty() && why.starts_with("ImageMissing"), "{why}");
    let later = morning() + SignedDuration::from_mins(1);
    assert_eq!(asked(&decided(&mut cluster, later)), [IMAGE]);
    answer(
        &mut cluster,
        IMAGE,
        ImageAnswer::Found("sha256:1".to_owned()),
        later,
    );
    let decision = decided(&mut cluster, later);
    assert_eq!(outcome(&decision).0, ["a"]);
    assert_eq!(
        written(&decision).unwrap().pinned.as_ref().unwrap().images[0].digest,
        "sha256:1"
    );
}
