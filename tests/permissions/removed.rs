//! The controller under the shipped roles without one verb: no node starts before the permission is back.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use refit_api::Plan;
use refit_api::names::ANNOTATION_NODE_NAME;
use serde_json::json;

use super::{BROAD, MISSING, SHAPE};
use crate::rollout::{PLAN, RollOut, Shape};
use crate::supervised::SupervisedController;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, done, find_condition};
use crate::testenv::controller::Controller;
use crate::testenv::plan::status;
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

/// A roll-out during which a permission is removed. Two of its nodes are disabled until then, so that it cannot end before.
async fn without(verbs: &[&str], group: &str, resource: &str) -> (RollOut, Controller, Removed) {
    let mut rollout = RollOut::prepare(TestContext::new().await, BROAD).await;
    rollout.rough = true;
    let ctx = &rollout.ctx;
    let last = ctx.my_nodes().await.into_iter().skip(BROAD.nodes - 2);
    let last: Vec<_> = last.filter_map(|node| node.metadata.name).collect();
    let label = crate::harness::label(PLAN);
    for node in &last {
        ctx.label_node(node, &label, Some("disabled")).await;
    }
    let faults = ctx.faults(0).await;
    let controller = rollout.controller().through(&faults).start();
    rollout.begin().await;
    rollout.under_way(1).await;
    let removed = Removed::from(ctx, verbs, group, resource).await;
    for node in &last {
        ctx.label_node(node, &label, None).await;
    }
    rollout.ctx.keep(faults);
    (rollout, controller, removed)
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

/// The number of Jobs so far; some nodes must be left.
async fn started_some(rollout: &RollOut, nodes: usize) -> usize {
    let started = rollout.ctx.jobs_of(PLAN).await.len();
    assert!(started < nodes, "no node is left to start");
    started
}

/// Removes a permission during a roll-out, waits until the Plan names it, restores it, and lets the roll-out end.
async fn removed_and_restored(verb: &str, group: &str, resource: &str) {
    let (rollout, controller, removed) = without(&[verb], group, resource).await;
    complete_says(&rollout, &[verb, resource]).await;
    controller.logs(&refusal(verb, resource), SOON).await;
    removed.restore(&rollout.ctx).await;
    rollout.check_success().await;
    expect_event_once(&rollout).await;
}

/// Repeated refusals give one event at most.
async fn expect_event_once(rollout: &RollOut) {
    let events = rollout.ctx.events_with(MISSING).await;
    assert!(events.len() <= 1, "{events:?}");
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

#[tokio::test]
async fn without_the_permission_to_create_jobs_the_plan_says_so_until_it_is_granted() {
    removed_and_restored("create", "batch", "jobs").await;
}

#[tokio::test]
async fn without_the_permission_to_patch_plans_no_node_starts_until_it_is_granted() {
    let (rollout, controller, removed) = without(&["patch"], "upgrade.cattle.io", "plans/status").await;
    controller.logs(&refusal("patch", "plans/status"), SOON).await;
    // Nodes in status are upgraded to the end, and no other node starts.
    wait::eventually("all nodes that were started are done", SOON, async || {
        let nodes = rollout.ctx.my_nodes().await;
        let done = nodes.iter().filter(|node| done(node, PLAN).is_some()).count();
        let jobs = rollout.ctx.jobs_of(PLAN).await.len();
        if done == jobs {
            Ok(())
        } else {
            Err(format!("{done} of {jobs}"))
        }
    })
    .await;
    let begun = started_some(&rollout, BROAD.nodes).await;
    // Two more attempts, with five seconds between them.
    let tries = || {
        controller
            .log()
            .matches(&refusal("patch", "plans/status"))
            .count()
    };
    let before = tries();
    wait::holds("it has tried again", async || tries() > before).await;
    assert_eq!(
        rollout.ctx.jobs_of(PLAN).await.len(),
        begun,
        "a node was started that status does not name"
    );
    removed.restore(&rollout.ctx).await;
    rollout.check_success().await;
}

/// Without the objects the controller cannot compute a status, so only an event explains why no node starts.
#[tokio::test]
async fn without_the_permission_to_list_from_the_start_each_plan_gets_an_event_and_nothing_else() {
    for (group, resource) in [("", "nodes"), ("batch", "jobs")] {
        let mut rollout = RollOut::prepare(TestContext::new().await, SHAPE).await;
        rollout.rough = true;
        let removed = Removed::from(&rollout.ctx, &["list", "watch"], group, resource).await;
        let controller = rollout.controller().start();
        rollout.begin().await;
        controller.logs(&refusal("list", resource), SOON).await;
        let events = async || rollout.ctx.events_with(MISSING).await;
        let found = wait::until("an event says what is missing", &events, |found| {
            !found.is_empty()
        })
        .await;
        let text = found[0].message.clone().unwrap_or_default();
        assert!(text.contains(&format!("list {resource}")), "{text}");
        let plan = rollout.ctx.plans().get(PLAN).await.unwrap();
        assert!(plan.status.is_none(), "{:?}", plan.status);
        assert_eq!(rollout.ctx.jobs_of(PLAN).await.len(), 0);
        removed.restore(&rollout.ctx).await;
        rollout.check_success().await;
        assert_eq!(events().await.len(), 1);
    }
}

#[tokio::test]
async fn without_the_permission_to_create_events_no_node_starts_until_it_is_granted() {
    let (rollout, controller, removed) = without(&["create"], "", "events").await;
    let what = "says that it may not create events, and no node is applying";
    let is_stopped = |plan: &Plan| {
        let text = complete(plan);
        text.contains(MISSING) && text.contains("create events") && status(plan).applying.is_none()
    };
    rollout.ctx.plan_until(PLAN, what, SOON, is_stopped).await;
    controller.logs(&refusal("create", "events"), SOON).await;
    let begun = rollout.ctx.jobs_of(PLAN).await;
    started_some(&rollout, BROAD.nodes).await;
    removed.restore(&rollout.ctx).await;
    let plan = rollout.ends().await;
    // Nodes that were done meanwhile may have no event, and none is left half done for lack of one.
    rollout.check_but_events(&plan).await;
    let of_job = |job: &Job| {
        format!(
            "Job completed on Node {}",
            job.annotations()[ANNOTATION_NODE_NAME]
        )
    };
    let all: Vec<_> = rollout.ctx.jobs_of(PLAN).await.iter().map(of_job).collect();
    let begun: Vec<_> = begun.iter().map(of_job).collect();
    let events = async || {
        let events = rollout.ctx.events_with("JobComplete").await.into_iter();
        events.filter_map(|event| event.message).collect::<Vec<_>>()
    };
    let later = |events: &Vec<String>| {
        all.iter()
            .all(|text| begun.contains(text) || events.contains(text))
    };
    let events = wait::until("each later node has its event", events, later).await;
    let once: BTreeSet<_> = events.iter().collect();
    assert_eq!(once.len(), events.len(), "an event is written once: {events:#?}");
    assert!(events.iter().all(|text| all.contains(text)), "{events:#?}");
}

#[tokio::test]
async fn without_the_permission_to_renew_its_lease_a_controller_ends_until_it_is_granted() {
    // Longer than its Lease.
    let shape = Shape {
        nodes: 12,
        concurrency: 1,
        run: Duration::from_secs(2),
    };
    let mut rollout = RollOut::prepare(TestContext::new().await, shape).await;
    rollout.rough = true;
    let setup = rollout.controller().lease_times(["20s", "15s", "500ms"]);
    let supervised = SupervisedController::start(setup);
    rollout.begin().await;
    rollout.under_way(1).await;
    let removed = Removed::from(&rollout.ctx, &["update"], "coordination.k8s.io", "leases").await;
    let lost = "leaderelection lost for";
    supervised.now().logs(lost, SOON).await;
    // The next one does not lead, and says why.
    let of_next = || {
        let log = supervised.now().log();
        log.rsplit(lost).next().unwrap_or_default().to_owned()
    };
    let cannot = r#"cannot update resource "leases""#;
    let next_log = async || of_next();
    wait::until("the next one is refused as well", next_log, |log| {
        log.contains(cannot)
    })
    .await;
    assert_eq!(supervised.ends()[0].code(), Some(1));
    let writes = || async { rollout.ctx.controller_requests().await.count("create", "jobs") };
    assert!(writes().await < shape.nodes, "no node is left to start");
    assert!(!of_next().contains("leading"), "{}", of_next());
    removed.restore(&rollout.ctx).await;
    rollout.check_success().await;
}
