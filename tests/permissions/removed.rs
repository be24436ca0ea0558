//! The controller under the shipped roles without one verb: no node starts before the permission is back.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{Api, Patch, PatchParams};
use refit_api::Plan;
use serde_json::json;

use crate::rollout::{PLAN, RollOut};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, find_condition};
use crate::testenv::wait::{self, SOON};

/// A permission that was removed from the controller: the rules from before.
pub(super) struct Removed([Vec<PolicyRule>; 2]);

impl Removed {
    /// Removes verbs on one resource from all rules of the shipped roles.
    pub(super) async fn from(ctx: &TestContext, verbs: &[&str], group: &str, resource: &str) -> Self {
        let before = rules(ctx).await;
        let without = |rules: &[PolicyRule]| -> Vec<PolicyRule> {
            let has = |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|it| it == item);
            let mut rules = rules.to_vec();
            for rule in &mut rules {
                if has(&rule.api_groups, group) && has(&rule.resources, resource) {
                    assert_eq!(
                        rule.resources.as_ref().map(Vec::len),
                        Some(1),
                        "a rule of its own"
                    );
                    rule.verbs.retain(|verb| !verbs.contains(&verb.as_str()));
                }
            }
            rules.retain(|rule| !rule.verbs.is_empty());
            rules
        };
        let after = [without(&before[0]), without(&before[1])];
        assert_ne!(after, before, "there is no such rule");
        write_rules(ctx, &after).await;
        for verb in verbs {
            until_refused(ctx, verb, group, resource).await;
        }
        Self(before)
    }

    pub(super) async fn restore(self, ctx: &TestContext) {
        write_rules(ctx, &self.0).await;
    }
}

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

/// Waits until the condition Complete contains all of these words.
pub(super) async fn complete_says(rollout: &RollOut, words: &[&str]) -> Plan {
    let what = format!("says {words:?}");
    let has_all = |plan: &Plan| {
        let text = complete(plan);
        words.iter().all(|word| text.contains(word))
    };
    rollout.ctx.plan_until(PLAN, &what, SOON, has_all).await
}

/// The API server's words as the log has them: in quotes.
pub(super) fn refusal(verb: &str, resource: &str) -> String {
    format!(r#"cannot {verb} resource \"{resource}\""#)
}

/// Reason and message of the condition Complete.
fn complete(plan: &Plan) -> String {
    find_condition(plan, "Complete")
        .map(|it| format!("{:?} {:?}", it.reason, it.message))
        .unwrap_or_default()
}
