//! Permissions for Secrets: only for those that Plans name.

use serde_json::json;

use super::roles::{rules, until_refused, write_rules};
use super::{BACKOFF_LIMIT, SHAPE, apply, whole_roll_out};
use crate::rollout::{PLAN, RollOut};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, find_condition};
use crate::testenv::wait::SOON;

/// The API server authorizes a list and a watch by name if their field selector is `metadata.name`.
#[tokio::test]
async fn a_role_may_name_the_secrets_and_a_plan_that_names_another_holds_up_only_itself() {
    let mut rollout = RollOut::prepare(TestContext::new().await, SHAPE).await;
    rollout.rough = true;
    let ctx = &rollout.ctx;
    let [cluster, mut role] = rules(ctx).await;
    let of_secrets = role
        .iter_mut()
        .filter(|rule| rule.resources.iter().flatten().any(|it| it == "secrets"));
    for rule in of_secrets {
        rule.resource_names = Some(vec![PLAN.to_owned()]);
    }
    write_rules(ctx, &[cluster, role]).await;
    for verb in ["get", "list", "watch"] {
        until_refused(ctx, verb, "", "secrets").await;
    }
    let other =
        json!({ "metadata": { "name": "other", "namespace": ctx.namespace() }, "stringData": { "a": "1" } });
    create(&ctx.secrets(), other).await;
    let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
    let nosy = json!({
        "concurrency": 1, "version": "v1", "nodeSelector": {}, "secrets": [{ "name": "other", "path": "/other" }],
        "upgrade": { "image": "example.com/other" },
    });
    apply(ctx, "nosy", nosy).await;
    let refused = ctx.plan_condition("nosy", "Validated", "False", SOON).await;
    let why = find_condition(&refused, "Validated").and_then(|it| it.message.clone());
    let why = why.unwrap_or_default();
    assert!(why.contains(r#"secrets "other" cannot be read"#), "{why}");

    whole_roll_out(&rollout).await;
    assert_eq!(ctx.jobs_of("nosy").await.len(), 0);
    assert_eq!(controller.terminate().await.code(), Some(0));
    let requests = ctx.controller_requests().await;
    let of_secrets: Vec<_> = requests.0.iter().filter(|it| it.resource == "secrets").collect();
    for (verb, name) in [("get", PLAN), ("list", PLAN), ("watch", PLAN), ("list", "other")] {
        let is_there = of_secrets.iter().any(|it| it.verb == verb && it.name == name);
        assert!(is_there, "{verb} {name}");
    }
    let is_named = |name: &str| name == PLAN || name == "other";
    assert!(of_secrets.iter().all(|it| is_named(&it.name)), "{of_secrets:?}");
}
