use super::super::tests::{plan_input, settings, spec};
use super::*;

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
fn each_image_that_is_none_is_named_with_its_container() {
    assert_eq!(
        messages("{upgrade: {image: 'x y'}, prepare: {image: Y}}"),
        [
            "the image \"Y\" of prepare: invalid reference format: repository name (library/Y) must be lowercase",
            "the image \"x y\" of upgrade: invalid reference format",
        ]
    );
}

#[test]
fn a_version_that_is_no_tag_is_wrong_only_where_it_has_to_be_one() {
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
fn all_that_render_fails_on_is_found() {
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
    let messages: Vec<_> = check(&plan, &settings)
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_yaml_snapshot!(messages);
}

#[test]
fn a_drain_longer_than_the_job_is_remarked() {
    let remarks = |yaml: &str| found(yaml).remarks;
    let too_long = [Remark::DrainTimeoutExceedsDeadline];
    assert_eq!(remarks("{upgrade: {image: x}, drain: {timeout: 601s}}"), too_long);
    assert_eq!(
        remarks("{upgrade: {image: x}, drain: {timeout: 601000000000}}"),
        too_long
    );
    assert_eq!(remarks("{upgrade: {image: x}, drain: {timeout: 10m}}"), []);
    assert_eq!(
        remarks("{upgrade: {image: x}, drain: {timeout: 24h}, jobActiveDeadlineSecs: 0}"),
        []
    );
}

#[test]
fn a_security_context_that_is_ignored_is_remarked() {
    let spec = spec("{upgrade: {image: x, securityContext: {}}, prepare: {image: x, securityContext: {}}}");
    let settings = JobSettings {
        allow_user_defined_security_context: false,
        ..settings()
    };
    let remarks: Vec<_> = check(&plan_input(&spec), &settings)
        .remarks
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        remarks,
        [
            "the security context of prepare is ignored: ALLOW_USER_DEFINED_SECURITY_CONTEXT is false",
            "the security context of upgrade is ignored: ALLOW_USER_DEFINED_SECURITY_CONTEXT is false",
        ]
    );
    assert_eq!(
        check(&plan_input(&spec), &super::super::tests::settings()).remarks,
        []
    );
}
