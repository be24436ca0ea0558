//! Plans on a real API server: the cases of `tests/fixtures/schema-cases.yaml`, which were recorded under
//! system-upgrade-controller's definition.
//!
//! `REFIT_SCHEMA_CRD=FILE` runs the same cases, except those about refit's own fields, with the definition in that
//! file: with system-upgrade-controller's, this checks the recording.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Error};
use refit_api::crd;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::testenv::binaries::is_newest;
use crate::testenv::environment::TestEnv;
use crate::testenv::wait::{SOON, eventually};

/// A group of its own, to separate these Plans from those of other tests.
const GROUP: &str = "schema.refit.test";
const NAME: &str = "plans.schema.refit.test";
const OTHER_DEFINITION: &str = "REFIT_SCHEMA_CRD";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    about: String,
    #[serde(default)]
    own: bool,
    /// Kubernetes 1.32 has another text for it, or does not check it.
    #[serde(default)]
    newer: bool,
    plan: Option<BTreeMap<String, Value>>,
    status: Option<Value>,
    stored: Option<Value>,
    refused: Option<String>,
}

#[tokio::test]
async fn an_api_server_admits_refuses_and_prunes_as_under_system_upgrade_controller_s_definition() {
    let client = TestEnv::shared().await.client("schema").await;
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let other = std::env::var_os(OTHER_DEFINITION);
    let definition = other.as_ref().map_or_else(crd::plans, |path| {
        serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    });
    serve(&crds, definition).await;

    if other.is_none() {
        let live = crds.get(NAME).await.unwrap();
        assert_eq!(
            live.spec.versions,
            crd::plans().spec.versions,
            "the API server stores it as it is"
        );
        assert_eq!(crd::missing_fields(&live), Vec::<String>::new());
    }
    // The condition Established precedes the first successful request.
    let base = json!({"spec": {"upgrade": {"image": "i"}}})
        .as_object()
        .unwrap()
        .clone();
    eventually("the Plan is served", SOON, async || {
        create(&client, "base", base.clone(), "")
            .await
            .map_err(|error| error.to_string())
    })
    .await;

    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("fixtures/schema-cases.yaml")).unwrap();
    let mut wrong = Vec::new();
    let mut asked = 0;
    let is_meant = |case: &Case| (other.is_none() || !case.own) && (is_newest() || !case.newer);
    for case in cases.into_iter().filter(is_meant) {
        let (sent, answer) = ask(&client, &case).await;
        asked += 1;
        if let Err(difference) = compare(&case, &sent, answer) {
            wrong.push(format!("{}: {difference}", case.about));
        }
    }
    crds.delete(NAME, &DeleteParams::default()).await.unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 80, "{asked}");
}

/// Serves a CRD under a group of its own.
async fn serve(crds: &Api<CustomResourceDefinition>, mut definition: CustomResourceDefinition) {
    GROUP.clone_into(&mut definition.spec.group);
    definition.metadata = kube::core::ObjectMeta {
        name: Some(NAME.to_owned()),
        ..Default::default()
    };
    let params = PatchParams::apply("refit-test").force();
    crds.patch(NAME, &params, &Patch::Apply(&definition))
        .await
        .unwrap();
    let established = await_condition(crds.clone(), NAME, conditions::is_crd_established());
    tokio::time::timeout(SOON, established).await.unwrap().unwrap();
}

/// Sends a case as a dry run. Returns what was sent, and what would be stored.
async fn ask(client: &Client, case: &Case) -> (Value, Result<Value, Error>) {
    let dry = "dryRun=All&fieldValidation=Ignore";
    if let Some(status) = &case.status {
        let uri = format!("{}/base/status?{dry}", path());
        let request = http::Request::patch(uri).header("content-type", "application/merge-patch+json");
        let request = request
            .body(serde_json::to_vec(&json!({"status": status})).unwrap())
            .unwrap();
        let stored = client
            .request::<Value>(request)
            .await
            .map(|plan| plan["status"].clone());
        (status.clone(), stored)
    } else {
        let plan: serde_json::Map<_, _> = case.plan.clone().unwrap().into_iter().collect();
        let stored = create(client, "case", plan.clone(), dry).await.map(|mut stored| {
            for name in ["apiVersion", "kind", "metadata"] {
                stored.as_object_mut().unwrap().remove(name);
            }
            stored
        });
        (plan.into(), stored)
    }
}

async fn create(
    client: &Client,
    name: &str,
    mut plan: serde_json::Map<String, Value>,
    query: &str,
) -> Result<Value, Error> {
    plan.insert("apiVersion".to_owned(), json!(format!("{GROUP}/v1")));
    plan.insert("kind".to_owned(), json!("Plan"));
    plan.insert("metadata".to_owned(), json!({"name": name}));
    let request =
        http::Request::post(format!("{}?{query}", path())).header("content-type", "application/json");
    client
        .request(request.body(serde_json::to_vec(&plan).unwrap()).unwrap())
        .await
}

fn path() -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/plans")
}

fn compare(case: &Case, sent: &Value, answer: Result<Value, Error>) -> Result<(), String> {
    match (answer, &case.refused) {
        (Ok(stored), None) => {
            let wanted = case.stored.as_ref().unwrap_or(sent);
            if &stored == wanted {
                Ok(())
            } else {
                Err(format!("stored as {stored}, not as {wanted}"))
            }
        }
        (Ok(stored), Some(message)) => Err(format!("admitted as {stored}, not refused with {message:?}")),
        (Err(Error::Api(status)), Some(message)) if status.message.contains(message.as_str()) => Ok(()),
        (Err(error), wanted) => Err(format!("refused: {error}; wanted: {wanted:?}")),
    }
}
