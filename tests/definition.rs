//! The definition of the Plan: put there by the controller, and taken away under it.

mod lost;
mod registered;
mod unreadable;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::api::{Api, DeleteParams, PostParams};
use refit::api::crd;

use crate::support::audit::Requests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

fn definitions(world: &World) -> Api<CustomResourceDefinition> {
    Api::all(world.client.clone())
}

/// system-upgrade-controller's definition, as far as it matters here: without refit's own fields.
fn foreign() -> CustomResourceDefinition {
    let mut definition = crd::plans();
    for [part, field] in crd::OWN_FIELDS {
        let part = schema(&mut definition)
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut(part))
            .unwrap_or_else(|| panic!("there is no {part}"));
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

/// Puts a definition in the place of the one that is served, as `kubectl replace` and system-upgrade-controller do, and
/// waits until the API server serves it.
#[expect(
    clippy::disallowed_methods,
    reason = "it is to be replaced as others replace it"
)]
async fn serve(world: &World, definition: &CustomResourceDefinition) {
    let definitions = definitions(world);
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
    established(world).await;
}

async fn established(world: &World) -> CustomResourceDefinition {
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
        definitions(world),
        crd::NAME,
        "is established",
        SOON,
        is_established,
    )
    .await
}

/// Takes the definition away, and all Plans with it.
async fn take_away(world: &World) {
    definitions(world)
        .delete(crd::NAME, &DeleteParams::default())
        .await
        .unwrap();
    wait::gone(definitions(world), crd::NAME, SOON).await;
}

/// Writes to definitions by the controller, each as `verb code`.
fn writes_to_definitions(requests: &Requests) -> Vec<String> {
    let about = requests
        .writes()
        .filter(|it| it.resource == "customresourcedefinitions");
    about.map(|it| format!("{} {}", it.verb, it.code)).collect()
}
