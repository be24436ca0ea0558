//! The roles of the controller in a test, and when a change of them is in force.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::wait::{self, SOON};

/// The authorizer sees a change of roles a moment after it was written.
pub(super) async fn until_refused(ctx: &TestContext, verb: &str, group: &str, resource: &str) {
    until_refused_for(ctx, ctx.namespace(), "", verb, group, resource).await;
}

/// The same for an object by its name, or for all without one.
pub(super) async fn until_refused_for(
    ctx: &TestContext,
    namespace: &str,
    name: &str,
    verb: &str,
    group: &str,
    resource: &str,
) {
    let reviews = Api::<SubjectAccessReview>::all(ctx.client.clone());
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "spec": {
            "user": ctx.user(),
            "resourceAttributes": {
                "namespace": namespace, "name": name, "verb": verb,
                "group": group, "resource": resource, "subresource": subresource,
            },
        },
    });
    wait::eventually("the permission is gone", SOON, async || {
        let answer: SubjectAccessReview = create(&reviews, review.clone()).await;
        if answer.status.is_some_and(|status| status.allowed) {
            Err(review.to_string())
        } else {
            Ok(())
        }
    })
    .await;
}

/// Rules of the controller, on the cluster and in its namespace.
pub(super) async fn rules(ctx: &TestContext) -> [Vec<PolicyRule>; 2] {
    let name = "system-upgrade-controller";
    let clusters = Api::<ClusterRole>::all(ctx.client.clone());
    let cluster = clusters
        .get(&ctx.local_name(name))
        .await
        .expect("the ClusterRole");
    let roles = Api::<Role>::namespaced(ctx.client.clone(), ctx.namespace());
    let role = roles.get(name).await.expect("the Role");
    [cluster.rules.unwrap_or_default(), role.rules.unwrap_or_default()]
}

pub(super) async fn write_rules(ctx: &TestContext, [cluster, role]: &[Vec<PolicyRule>; 2]) {
    let name = "system-upgrade-controller";
    let as_merge = PatchParams::default();
    let rules = |rules: &[PolicyRule]| Patch::Merge(json!({ "rules": rules }));
    let clusters = Api::<ClusterRole>::all(ctx.client.clone());
    let written = clusters
        .patch(&ctx.local_name(name), &as_merge, &rules(cluster))
        .await;
    written.expect("the ClusterRole is written");
    let roles = Api::<Role>::namespaced(ctx.client.clone(), ctx.namespace());
    let written = roles.patch(name, &as_merge, &rules(role)).await;
    written.expect("the Role is written");
}
