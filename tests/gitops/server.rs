//! Compares `refit validate` with a real API server, by dry runs of the broken Plans and of their Jobs.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use refit_api::validate::validate;
use refit_job::{JobInput, JobSettings, NodeInput, PlanInput};
use refit_offline::gitops::check::{Options, check, read_plan};
use refit_offline::gitops::objects::objects;
use refit_offline::gitops::{Rule, Severity};
use serde_json::Value;

use super::{files, source};
use crate::testenv::context::TestContext;

/// Rules about what the API server itself validates in a Plan.
const OF_SERVER: [Rule; 5] = [
    Rule::WrongType,
    Rule::MissingField,
    Rule::UnknownField,
    Rule::NotAllowed,
    Rule::BadName,
];

/// A dry run of an object with strict field validation.
async fn ask(ctx: &TestContext, path: &str, object: &Value) -> Result<(), String> {
    let namespace = ctx.namespace();
    let url = format!(
        "/apis/{}?dryRun=All&fieldValidation=Strict",
        path.replace("NAMESPACE", namespace)
    );
    let request = http::Request::post(url)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    let answer: Result<Value, _> = ctx.client.request(request).await;
    answer.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_api_server_refuses_exactly_the_plans_and_jobs_that_validate_reports() {
    let ctx = TestContext::new().await;
    let (mut wrong, mut refused, mut asked) = (Vec::new(), 0, 0);
    for (name, text) in files("broken") {
        // Placeholders and repeated keys cannot be sent, and a part of a Plan is merged into it before. What an alias repeats is
        // reported once.
        if [
            "part-of-plan.yaml",
            "placeholders.yaml",
            "duplicate-keys.yaml",
            "missing-separator.yaml",
            "in-an-anchor.yaml",
        ]
        .contains(&name.as_str())
        {
            continue;
        }
        let source = source(&name, &text);
        let report = check(std::slice::from_ref(&source), &Options::default());
        for object in objects(&source.stream.documents)
            .iter()
            .filter(|object| object.is_plan())
        {
            let title = object.title();
            let errors: Vec<_> = report
                .findings
                .iter()
                .filter(|found| found.plan.as_ref() == Some(&title) && found.severity == Severity::Error)
                .collect();
            let fields = |rules: &[Rule]| -> BTreeSet<String> {
                let of_rules = errors.iter().filter(|found| rules.contains(&found.rule));
                of_rules
                    .map(|found| format!("{}: {}", found.rule, found.message))
                    .collect()
            };
            // The Plan. The server does not validate names and labels within the spec; its Jobs show them.
            let mut sent = object.node.to_json();
            sent["metadata"]["namespace"] = ctx.namespace().into();
            let said = fields(&OF_SERVER);
            let of_metadata = |found: &&String| !found.contains("bad-") || found.contains("metadata.");
            let said: BTreeSet<_> = said
                .iter()
                .filter(of_metadata)
                .filter(|found| !found.contains("metadata.namespace"))
                .collect();
            let answer = ask(&ctx, "upgrade.cattle.io/v1/namespaces/NAMESPACE/plans", &sent).await;
            asked += 1;
            refused += usize::from(answer.is_err());
            if answer.is_err() == said.is_empty() {
                wrong.push(format!(
                    "{name}: Plan {title}: {said:?} is said, and the server says {answer:?}"
                ));
            }
            // Its Jobs, if there are any.
            let plan = read_plan(&source, object).plan;
            let Some(job) = job_of(&plan, ctx.namespace()) else {
                continue;
            };
            let said = fields(&[Rule::BadJob, Rule::BadImage, Rule::BadName]);
            let of_job =
                |found: &&String| !found.contains("metadata.") && !found.contains("postCompleteLabels");
            let said: BTreeSet<_> = said.iter().filter(of_job).collect();
            let job = serde_json::to_value(&job).unwrap();
            let answer = ask(&ctx, "batch/v1/namespaces/NAMESPACE/jobs", &job).await;
            asked += 1;
            refused += usize::from(answer.is_err());
            if answer.is_err() == said.is_empty() {
                wrong.push(format!(
                    "{name}: Jobs of {title}: {said:?} is said, and the server says {answer:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 80 && refused > 20, "{refused} of {asked}");
}

/// The Job of a Plan, unless refit refuses to create one.
fn job_of(plan: &refit_api::Plan, namespace: &str) -> Option<Job> {
    // No Job is created for an invalid Plan.
    validate(plan.metadata.name.as_deref()?, &plan.spec).ok()?;
    let settings = JobSettings::new("system-upgrade-controller", "refit");
    let hash = "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f";
    let input = JobInput {
        plan: PlanInput {
            name: plan.metadata.name.as_deref()?,
            namespace,
            uid: "00000000-0000-0000-0000-000000000000",
            labels: None,
            annotations: None,
            spec: &plan.spec,
            latest_version: "v1",
            latest_hash: hash,
            inputs: "0",
            digests: &refit_job::NO_DIGESTS,
        },
        node: NodeInput {
            name: "node",
            uid: "00000000-0000-0000-0000-000000000001",
            os: None,
            shares_hostname: false,
            may_be_new: false,
        },
        name: "job",
        attempt: 1,
        unschedulable_before: None,
    };
    // An invalid image shows only when the pod is created; the API server accepts it.
    let errors = refit_job::check(&input.plan, &settings).errors;
    let own = |error: &refit_job::JobError| !error.is_for_windows();
    if errors.iter().any(own) {
        return None;
    }
    refit_job::render(&input, &settings).ok()
}
