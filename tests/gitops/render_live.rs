//! `refit render` of a Plan on a cluster: the same Job that the controller creates.

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::folder;
use crate::harness::Harness;
use crate::testenv::context::cluster::create;
use crate::testenv::environment::TestEnv;
use crate::workdir::Workdir;

/// Whether `found` contains `expected`; the API server may have added fields.
fn holds(found: &Value, expected: &Value, at: &str, wrong: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, expected) in expected {
                let found = found.get(key).unwrap_or(&Value::Null);
                holds(found, expected, &format!("{at}.{key}"), wrong);
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                holds(found, expected, &format!("{at}[{index}]"), wrong);
            }
        }
        _ if found == expected => {}
        _ => wrong.push(format!("{at}: {found} instead of {expected}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_rendered_live_is_the_job_that_the_controller_makes() {
    let harness = Harness::new(["one"]).await;
    let secret = json!({ "metadata": { "name": "watched" }, "stringData": { "config": "first" } });
    create(&harness.ctx.secrets(), secret).await;
    let settings = [
        ("REFIT_IMAGE", "example.com/refit:v9"),
        ("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7"),
    ];
    let setup = harness.ctx.controller();
    let setup = settings
        .iter()
        .fold(setup, |setup, (name, value)| setup.env(name, value));
    let _controller = setup.start();
    let spec = json!({
        "secrets": [{ "name": "watched", "path": "/run/watched" }], "cordon": true, "jobActiveDeadlineSecs": 300,
    });
    harness
        .plan(
            "rendered",
            json!({ "spec": spec, "metadata": { "labels": { "team": "a" } } }),
        )
        .await;
    let made = harness.job_until("rendered", "one", "is there", |_| true).await;

    // The Plan as in a repository.
    let mut plan = serde_json::to_value(harness.ctx.plans().get("rendered").await.unwrap()).unwrap();
    plan.as_object_mut().unwrap().remove("status");
    plan["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| ["name", "namespace", "labels"].contains(&key.as_str()));
    let dir = Workdir::new([("plan.yaml", &plan.to_string())]);
    // The settings of the tests' controllers.
    let line = format!(
        "render -o=json --live plan.yaml --node {} --name {} --config {} --kubeconfig {}",
        harness.node("one"),
        made.labels()["upgrade.cattle.io/controller"],
        folder("").join("../../deploy/config.yaml").display(),
        TestEnv::shared().await.kubeconfig().display(),
    );
    let ran = dir.run_with(&line, &settings, "").ends(0);
    let mut wrong = Vec::new();
    holds(
        &serde_json::to_value(&made).unwrap(),
        &ran.json(),
        "job",
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Nothing had to be assumed.
    ran.reports("");
}
