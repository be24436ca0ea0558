//! Channels that a running controller asks with what Secrets say.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::oci::tags;
use super::registry::{Door, PASSWORD, Registry, State, USER};
use super::{at_version, last_error, version};
use crate::support::pki::Authority;
use crate::support::plan::{plan, says};
use crate::support::wait::SOON;
use crate::support::world::World;
use crate::support::world::cluster::create;

const TOKEN: &str = "token-of-the-channel-s3cret";

async fn secret(world: &World, name: &str, kind: &str, data: Value) {
    let secret = json!({ "metadata": { "name": name }, "type": kind, "stringData": data });
    create::<Secret>(&world.secrets(), secret).await;
}

/// Nothing that is secret is anywhere where people look.
async fn nothing_is_told(world: &World, log: &str) {
    let everything = ListParams::default();
    let plans = world.plans().list(&everything).await.unwrap();
    let events = Api::<Event>::namespaced(world.client.clone(), world.namespace());
    let events = events.list(&everything).await.unwrap();
    let texts = [
        serde_json::to_string(&plans.items).unwrap(),
        serde_json::to_string(&events.items).unwrap(),
        log.to_owned(),
    ];
    for text in texts {
        assert!(!text.contains("s3cret"), "{text}");
        assert!(!text.contains("Bearer") && !text.contains("Basic "), "{text}");
    }
}

#[tokio::test]
async fn a_private_registry_is_asked_with_the_plans_pull_secrets_and_authorities() {
    let world = World::new().await;
    let authority = Authority::new("registries").unwrap();
    let state = State {
        door: Door::Token,
        tags: tags(3000),
        page: 1000,
        etags: true,
        ..State::default()
    };
    let registry = Registry::start_tls(state, &authority).await;
    let config = json!({ ".dockerconfigjson": registry.docker_config() });
    secret(&world, "pull", "kubernetes.io/dockerconfigjson", config).await;
    secret(&world, "ca", "Opaque", json!({ "ca.crt": authority.pem() })).await;
    let controller = world.at_work().await;
    let spec = format!(
        "{{channel: {:?}, channelCASecretRef: {{name: ca}}, imagePullSecrets: [{{name: absent}}, {{name: pull}}], upgrade: {{image: \
         i}}}}",
        registry.channel()
    );
    world.plan(&plan("private", &spec)).await;
    at_version(&world, "private", "v1.29.99-k3s1").await;
    assert_eq!(registry.log.take().len(), 5, "one challenge and one pass");
    nothing_is_told(&world, &controller.log()).await;
}

#[tokio::test]
async fn a_secret_that_does_not_do_is_told_by_its_name_and_looked_at_again() {
    let world = World::new().await;
    let registry = Registry::start(State {
        door: Door::Header("authorization", "Bearer token-of-the-channel-s3cret"),
        tags: tags(5),
        ..State::default()
    })
    .await;
    secret(&world, "keys", "Opaque", json!({ "tokn": TOKEN })).await;
    secret(&world, "wrong", "Opaque", json!({ "token": "another-s3cret" })).await;
    secret(
        &world,
        "right",
        "Opaque",
        json!({ "token": format!("{TOKEN}\n") }),
    )
    .await;
    let login = json!({ "username": USER, "password": PASSWORD });
    secret(&world, "login", "kubernetes.io/basic-auth", login).await;
    let controller = world.at_work().await;
    let cases = [
        ("absent", "spec.channelSecretRef: secrets \"absent\" not found"),
        (
            "keys",
            "spec.channelSecretRef: secrets \"keys\" has no credentials: it takes token, or username and password, or header and \
             value, or .dockerconfigjson",
        ),
        (
            "wrong",
            "the credentials are not accepted (HTTP/1.1 401 Unauthorized)",
        ),
        (
            "login",
            "the registry asks for credentials in a way that is not known, or that would show them",
        ),
        ("right", ""),
    ];
    for (name, _) in cases {
        let spec = format!(
            "{{channel: {:?}, channelSecretRef: {{name: {name}}}, upgrade: {{image: i}}}}",
            registry.channel()
        );
        world.plan(&plan(name, &spec)).await;
    }
    at_version(&world, "right", "v1.0.4-k3s1").await;
    for (name, why) in cases {
        if why.is_empty() {
            continue;
        }
        let plan = world.plan_condition(name, "LatestResolved", "False", SOON).await;
        assert_eq!(
            says(&plan, "LatestResolved"),
            format!("False/Error/{why}"),
            "{name}"
        );
        assert_eq!(last_error(&plan), why, "{name}");
        assert_eq!(
            version(&plan),
            "",
            "what another Plan was told with its secret is not for {name}"
        );
    }
    secret(&world, "absent", "Opaque", json!({ "token": TOKEN })).await;
    at_version(&world, "absent", "v1.0.4-k3s1").await;
    nothing_is_told(&world, &controller.log()).await;
}
