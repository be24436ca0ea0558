use super::super::tests::{plan_input, settings, spec};
use super::*;
use refit_api::image::ImageError;

fn found(yaml: &str) -> Findings {
    check(&plan_input(&spec(yaml)), &settings())
}

fn messages(yaml: &str) -> Vec<String> {
    found(yaml).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_plan_has_no_findings() {
    assert_eq!(
        found("{upgrade: {image: x}, prepare: {image: 'y:1'}, drain: {timeout: 10m}}"),
        Findings::default()
    );
}

#[test]
fn each_invalid_image_is_named_with_its_container() {
    assert_eq!(
        messages("{upgrade: {image: 'x y'}, prepare: {image: Y}}"),
        [
            "the image \"Y\" of prepare: invalid reference format: repository name (library/Y) must be lowercase",
            "the image \"x y\" of upgrade: invalid reference format",
        ]
    );
}

#[test]
fn a_version_that_is_no_image_tag_is_an_error_only_if_an_image_needs_it() {
    let spec = spec("{upgrade: {image: x}, prepare: {image: 'y:1'}}");
    let plan = PlanInput {
        latest_version: "",
        ..plan_input(&spec)
    };
    let errors = check(&plan, &settings()).errors;
    assert_eq!(
        errors,
        [JobError::Image {
            container: "upgrade",
            image: "x".to_owned(),
            error: ImageError::Tag
        }]
    );
}

#[test]
fn check_finds_every_error_that_render_fails_on() {
    let spec = spec(
        "{upgrade: {image: x, volumes: [{name: host-root, source: /a, destination: /b}]}, postCompleteDelay: soon,
          drain: {podSelector: {matchExpressions: [{key: a, operator: In}]}}}",
    );
    let name = "p".repeat(64);
    let plan = PlanInput {
        name: &name,
        latest_version: "v 1",
        latest_hash: "",
        ..plan_input(&spec)
    };
    let settings = JobSettings::new("_", "own");
    let errors = check(&plan, &settings).errors;
    insta::assert_yaml_snapshot!(errors.iter().map(ToString::to_string).collect::<Vec<_>>());
}

#[test]
fn a_drain_longer_than_the_job_is_remarked() {
    for (drain, remarked) in [
        ("{timeout: 601s}", true),
        ("{timeout: 601000000000}", true),
        ("{timeout: 10m}", false),
        ("{timeout: 24h}, jobActiveDeadlineSecs: 0", false),
    ] {
        let remarks = found(&format!("{{upgrade: {{image: x}}, drain: {drain}}}")).remarks;
        let expected = remarked.then_some(Remark::DrainTimeoutExceedsDeadline);
        assert_eq!(remarks, Vec::from_iter(expected), "{drain}");
    }
}

#[test]
fn delays_of_a_drain_count_towards_the_deadline_of_the_job() {
    for (drain, sum) in [
        ("{settleDelay: 601s}", Some("10m1s")),
        (
            "{timeout: 9m, loadBalancerDelay: 1m, settleDelay: 1s}",
            Some("10m1s"),
        ),
        ("{timeout: 9m, loadBalancerDelay: 1m}", None),
        ("{timeout: 6m, afterTimeout: Delete}", Some("12m0s")),
        (
            "{timeout: 4m, afterTimeout: Delete, order: [{}, {}]}",
            Some("16m0s"),
        ),
        ("{timeout: 6m, afterTimeout: Continue, order: [{}]}", None),
        ("{settleDelay: 1h}, jobActiveDeadlineSecs: 0", None),
    ] {
        let remarks = found(&format!("{{upgrade: {{image: x}}, drain: {drain}}}")).remarks;
        let says = |sum| {
            format!("the drain's timeout and delays add up to {sum}, which exceeds the deadline of the Job")
        };
        let found: Vec<_> = remarks.iter().map(ToString::to_string).collect();
        assert_eq!(found, Vec::from_iter(sum.map(says)), "{drain}");
    }
}

#[test]
fn a_security_context_that_is_ignored_is_remarked() {
    let spec = spec("{upgrade: {image: x, securityContext: {}}, prepare: {image: x, securityContext: {}}}");
    let settings = JobSettings {
        allow_user_defined_security_context: false,
        ..settings()
    };
    let remarks = check(&plan_input(&spec), &settings).remarks;
    let expected = ["prepare", "upgrade"].map(|container| {
        format!(
            "the security context of {container} is ignored: ALLOW_USER_DEFINED_SECURITY_CONTEXT is false"
        )
    });
    assert_eq!(
        remarks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        expected
    );
    let default = super::super::tests::settings();
    assert_eq!(check(&plan_input(&spec), &default).remarks, []);
}
