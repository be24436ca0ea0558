//! Channels that a running controller queries with the credentials of Secrets.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{Api, ListParams};
use refit_api::Plan;
use serde_json::{Value, json};

use super::registry::{PASSWORD, Registry, RegistryAuth, State, USER, tags};
use super::{at_version, last_error, version};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::pki::Authority;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::SOON;

const TOKEN: &str = "token-of-the-channel-s3cret";

async fn secret(ctx: &TestContext, name: &str, kind: &str, data: Value) {
    let secret = json!({ "metadata": { "name": name }, "type": kind, "stringData": data });
    create::<Secret>(&ctx.secrets(), secret).await;
}

/// Checks that no credential is in Plans, events or the log.
async fn no_credential_is_shown(ctx: &TestContext, log: &str) {
    let everything = ListParams::default();
    let plans = ctx.plans().list(&everything).await.unwrap();
    let events = Api::<Event>::namespaced(ctx.client.clone(), ctx.namespace());
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
    let ctx = TestContext::new().await;
    let authority = Authority::new("registries").unwrap();
    let state = State {
        auth: RegistryAuth::Token,
        tags: tags(3000),
        page: 1000,
        ..State::default()
    };
    let registry = Registry::start_tls(state, &authority).await;
    let config = json!({ ".dockerconfigjson": registry.docker_config() });
    secret(&ctx, "pull", "kubernetes.io/dockerconfigjson", config).await;
    secret(&ctx, "ca", "Opaque", json!({ "ca.crt": authority.pem() })).await;
    let controller = ctx.start_and_warm_up().await;
    let spec = format!(
        "{{channel: {:?}, channelCASecretRef: {{name: ca}}, imagePullSecrets: [{{name: absent}}, {{name: pull}}], upgrade: {{image: \
         i}}}}",
        registry.channel()
    );
    ctx.plan(&plan("private", &spec)).await;
    at_version(&ctx, "private", "v1.29.99-k3s1").await;
    assert_eq!(registry.log.take().len(), 5, "one challenge and one pass");
    let poll_now = json!({ "metadata": { "annotations": { "refit.rs/poll-now": "again" } } });
    ctx.edit_plan("private", poll_now).await;
    let asked_again = |plan: &Plan| {
        let channel = status(plan).channel.unwrap_or_default();
        channel.polled_for.as_deref() == Some("again")
    };
    let plan = ctx
        .plan_until("private", "is asked again", SOON, asked_again)
        .await;
    assert_eq!(
        (version(&plan), last_error(&plan)),
        ("v1.29.99-k3s1".to_owned(), String::new())
    );
    assert_eq!(registry.log.take().len(), 5);
    no_credential_is_shown(&ctx, &controller.log()).await;
}

#[tokio::test]
async fn an_unusable_secret_is_named_and_read_again() {
    let ctx = TestContext::new().await;
    let registry = Registry::start(State {
        auth: RegistryAuth::Header("authorization", "Bearer token-of-the-channel-s3cret"),
        tags: tags(5),
        ..State::default()
    })
    .await;
    secret(&ctx, "keys", "Opaque", json!({ "tokn": TOKEN })).await;
    secret(&ctx, "wrong", "Opaque", json!({ "token": "another-s3cret" })).await;
    secret(&ctx, "right", "Opaque", json!({ "token": format!("{TOKEN}\n") })).await;
    let login = json!({ "username": USER, "password": PASSWORD });
    secret(&ctx, "login", "kubernetes.io/basic-auth", login).await;
    let controller = ctx.start_and_warm_up().await;
    let cases = [
        ("absent", "spec.channelSecretRef: secrets \"absent\" not found"),
        (
            "keys",
            "spec.channelSecretRef: secrets \"keys\" has no credentials: it needs token, or username and password, or header and \
             value, or .dockerconfigjson",
        ),
        (
            "wrong",
            "the server refused the credentials (HTTP/1.1 401 Unauthorized)",
        ),
        (
            "login",
            "the registry requires an authentication that refit does not support, or that would expose the credentials",
        ),
        ("right", ""),
    ];
    for (name, _) in cases {
        let spec = format!(
            "{{channel: {:?}, channelSecretRef: {{name: {name}}}, upgrade: {{image: i}}}}",
            registry.channel()
        );
        ctx.plan(&plan(name, &spec)).await;
    }
    at_version(&ctx, "right", "v1.0.4-k3s1").await;
    for (name, why) in cases {
        if why.is_empty() {
            continue;
        }
        let plan = ctx.plan_condition(name, "LatestResolved", "False", SOON).await;
        assert_eq!(
            says(&plan, "LatestResolved"),
            format!("False/Error/{why}"),
            "{name}"
        );
        assert_eq!(last_error(&plan), why, "{name}");
        assert_eq!(
            version(&plan),
            "",
            "{name} got a version that was read with another Secret"
        );
    }
    secret(&ctx, "absent", "Opaque", json!({ "token": TOKEN })).await;
    at_version(&ctx, "absent", "v1.0.4-k3s1").await;
    no_credential_is_shown(&ctx, &controller.log()).await;
}
