//! The CRD of the Plan: registered by the controller, and replaced or deleted while it runs.

mod lost;
mod registered;
mod unreadable;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use refit_api::{Plan, crd};
use serde_json::json;

use crate::testenv::audit::Requests;
use crate::testenv::context::TestContext;
use crate::testenv::wait::{self, SOON};

fn definitions(ctx: &TestContext) -> Api<CustomResourceDefinition> {
    Api::all(ctx.client.clone())
}

/// system-upgrade-controller's CRD, reduced: without refit's own fields.
fn foreign() -> CustomResourceDefinition {
    let mut definition = crd::plans();
    for &[part, field] in crd::OWN_FIELDS.iter() {
        let part = part.split('.').fold(schema(&mut definition), |schema, name| {
            let properties = schema.properties.as_mut();
            let found = properties.and_then(|properties| properties.get_mut(name));
            found.unwrap_or_else(|| panic!("there is no {part}"))
        });
        remove(part, field);
    }
    definition
}

fn schema(definition: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
    let version = &mut definition.spec.versions[0];
    version
        .schema
        .as_mut()
        .and_then(|schema| schema.open_api_v3_schema.as_mut())
        .expect("a schema")
}

fn remove(part: &mut JSONSchemaProps, path: &str) {
    let removed = part
        .properties
        .as_mut()
        .and_then(|properties| properties.remove(path));
    assert!(removed.is_some(), "there is no {path}");
}

/// Replaces the served CRD, as `kubectl replace` and system-upgrade-controller do, and waits until it is served.
async fn serve(ctx: &TestContext, definition: &CustomResourceDefinition) {
    put(ctx, definition).await;
    established(ctx).await;
    // `Established` stays true while the API server still serves the definition from before.
    let keeps = crd::missing_fields(definition).is_empty();
    let probe = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": "probe" },
        "spec": { "suspend": true, "upgrade": { "image": "i" } },
    });
    let probe: DynamicObject = serde_json::from_value(probe).expect("an object");
    let plans = Api::<DynamicObject>::namespaced_with(
        ctx.client.clone(),
        ctx.namespace(),
        &ApiResource::erase::<Plan>(&()),
    );
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait::eventually("the definition is served", SOON, async || {
        let kept = plans
            .create(&dry_run, &probe)
            .await
            .map_err(|error| error.to_string())?;
        let kept = kept.data["spec"]["suspend"] == true;
        if kept == keeps {
            Ok(())
        } else {
            Err(format!("spec.suspend is kept: {kept}"))
        }
    })
    .await;
}

/// As [`serve`], without waiting for the API server: it takes a moment until it serves what it has accepted.
#[expect(
    clippy::disallowed_methods,
    reason = "it is to be replaced as others replace it"
)]
async fn put(ctx: &TestContext, definition: &CustomResourceDefinition) {
    let definitions = definitions(ctx);
    let mut definition = definition.clone();
    match definitions.get_opt(crd::NAME).await.unwrap() {
        None => drop(
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .unwrap(),
        ),
        Some(live) => {
            definition.metadata.resource_version = live.metadata.resource_version;
            definitions
                .replace(crd::NAME, &PostParams::default(), &definition)
                .await
                .unwrap();
        }
    }
}

async fn established(ctx: &TestContext) -> CustomResourceDefinition {
    let is_established = |definition: &CustomResourceDefinition| {
        let conditions = definition
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|it| it.type_ == "Established" && it.status == "True")
    };
    wait::object(
        definitions(ctx),
        crd::NAME,
        "is established",
        SOON,
        is_established,
    )
    .await
}

/// Deletes the CRD, and with it all Plans.
async fn take_away(ctx: &TestContext) {
    definitions(ctx)
        .delete(crd::NAME, &DeleteParams::default())
        .await
        .unwrap();
    wait::gone(definitions(ctx), crd::NAME, SOON).await;
}

/// The controller's writes of CRDs, each as `verb code`.
fn writes_to_definitions(requests: &Requests) -> Vec<String> {
    let about = requests
        .writes()
        .filter(|it| it.resource == "customresourcedefinitions");
    about.map(|it| format!("{} {}", it.verb, it.code)).collect()
}
