//! Test contexts share a cluster and nothing else.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::kubeconfig;
use crate::testenv::manifest::Manifests;
use crate::testenv::wait::{self, SOON};

const PLAN: &str = include_str!("plan.yaml");

async fn add_node(ctx: &TestContext, name: &str) -> Node {
    let node = json!({ "metadata": { "name": ctx.node_name(name), "labels": ctx.node_labels() } });
    create(&ctx.nodes(), node).await
}

#[tokio::test]
async fn two_test_contexts_at_once_do_not_see_each_other() {
    let (one, other) = tokio::join!(
        TestContext::with(Manifests::Suc),
        TestContext::with(Manifests::Suc)
    );
    assert_eq!(
        one.test_env.kubeconfig(),
        other.test_env.kubeconfig(),
        "they share a cluster"
    );
    for ctx in [&one, &other] {
        add_node(ctx, "same").await;
        ctx.plan(PLAN).await;
    }

    let names = |nodes: Vec<Node>| {
        nodes
            .into_iter()
            .map(|node| node.metadata.name.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(one.my_nodes().await), [one.node_name("same")]);
    assert_eq!(names(other.my_nodes().await), [other.node_name("same")]);

    // What a Plan selects, by the API server's own judgement.
    let plan = one.plans().get("a-plan").await.unwrap();
    let selector = plan.spec.node_selector.unwrap();
    assert_eq!(selector.match_labels.unwrap()["test"], one.id);
    assert_eq!(
        selector.match_expressions.unwrap().len(),
        1,
        "what the Plan asked for itself is still there"
    );

    let client = kubeconfig::client(one.kubeconfig(), "one").await.unwrap();
    Api::<Node>::all(client)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(one.controller_requests().await.count("list", "nodes"), 1);
    assert_eq!(other.controller_requests().await.0.len(), 0);

    // The end of one is not the end of the other.
    let gone = one.id.clone();
    drop(one);
    let role = |ctx: &TestContext| Api::<ClusterRole>::all(ctx.client.clone());
    role(&other)
        .get(&other.local_name("system-upgrade-controller"))
        .await
        .unwrap();
    assert_eq!(other.my_nodes().await.len(), 1);
    wait::gone(role(&other), &format!("{gone}-system-upgrade-controller"), SOON).await;
    wait::gone(other.nodes(), &format!("{gone}-same"), SOON).await;
    wait::gone(Api::<Namespace>::all(other.client.clone()), &gone, SOON).await;
}

#[tokio::test]
async fn the_report_of_a_failed_test_names_everything_that_matters() {
    let ctx = TestContext::new().await;
    add_node(&ctx, "one").await;
    ctx.cordon(&ctx.node_name("one")).await;
    ctx.label_node(
        &ctx.node_name("one"),
        "plan.upgrade.cattle.io/a-plan",
        Some("f00d"),
    )
    .await;
    ctx.plan(PLAN).await;
    let controller = ctx.controller().program("/bin/echo").arg("last words").start();
    controller.ended(SOON).await;

    let report = ctx.report(&ctx.client).await;
    for expected in [
        "name: a-plan",
        "Nodes: 1",
        &format!("{} Ready=- unschedulable=true", ctx.node_name("one")),
        "plan.upgrade.cattle.io/a-plan=f00d",
        "Jobs: 0",
        "controller.log",
        "last words",
    ] {
        assert!(report.contains(expected), "{expected:?} is not in\n{report}");
    }
}

#[tokio::test]
async fn the_shipped_manifests_give_one_test_its_own_rights() {
    let (one, other) = tokio::join!(TestContext::new(), TestContext::new());
    let can = async |ctx: &TestContext, verb: &str, resource: &str, namespace: &str| {
        let client = kubeconfig::client(ctx.kubeconfig(), "can-i").await.unwrap();
        let (group, resource) = resource.split_once('/').unwrap();
        let review = json!({
            "spec": { "resourceAttributes": { "verb": verb, "group": group, "resource": resource, "namespace": namespace } },
        });
        let review: SelfSubjectAccessReview = create(&Api::all(client), review).await;
        review.status.unwrap().allowed
    };
    assert!(can(&one, "patch", "/nodes", "").await);
    assert!(can(&one, "create", "batch/jobs", one.namespace()).await);
    assert!(can(&one, "create", "/events", "default").await);
    assert!(!can(&one, "create", "batch/jobs", other.namespace()).await);
    assert!(!can(&one, "create", "batch/jobs", "default").await);
    assert!(!can(&one, "update", "/nodes", "").await);

    // The end of one leaves the other its rights.
    let gone = one.local_name("system-upgrade-controller");
    drop(one);
    wait::gone(
        Api::<Role>::namespaced(other.client.clone(), "default"),
        &gone,
        SOON,
    )
    .await;
    assert!(can(&other, "create", "/events", "default").await);
}
