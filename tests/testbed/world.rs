//! Worlds share a cluster and nothing else.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::api::{Api, ListParams, PostParams};
use refit::api::Plan;
use serde_json::json;

use crate::support::kubeconfig;
use crate::support::manifest::Manifests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::create;

const PLAN: &str = include_str!("plan.yaml");

async fn add_node(world: &World, name: &str) -> Node {
    let node = json!({ "metadata": { "name": world.node_name(name), "labels": world.node_labels() } });
    create(&world.nodes(), node).await
}

#[tokio::test]
async fn two_worlds_at_once_do_not_see_each_other() {
    let (one, other) = tokio::join!(World::with(Manifests::Suc), World::with(Manifests::Suc));
    assert_eq!(
        one.bed.kubeconfig(),
        other.bed.kubeconfig(),
        "they share a cluster"
    );
    for world in [&one, &other] {
        add_node(world, "same").await;
        world.plan(PLAN).await;
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
    let role = |world: &World| Api::<ClusterRole>::all(world.client.clone());
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
async fn a_world_beside_another_selects_its_nodes() {
    let one = World::new().await;
    let beside = one.beside().await;
    add_node(&one, "shared").await;
    assert_ne!(one.namespace(), beside.namespace());
    assert_eq!(beside.my_nodes().await.len(), 1);
    let plan = beside.plan(PLAN).await;
    assert_eq!(
        plan.spec.node_selector.unwrap().match_labels.unwrap()["test"],
        one.id
    );
}

#[tokio::test]
async fn the_service_account_has_the_rights_of_the_manifests_and_no_more() {
    let world = World::with(Manifests::Suc).await;
    let client = kubeconfig::client(world.kubeconfig(), "rights").await.unwrap();
    Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap();
    let refused = Api::<ClusterRole>::all(client)
        .list(&ListParams::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 403),
        "{refused}"
    );
    assert_eq!(world.controller_requests().await.forbidden().len(), 1);
}

#[tokio::test]
async fn a_plan_without_a_selector_stays_without_one() {
    let world = World::new().await;
    let plan = world
        .plan("{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: none}, spec: {upgrade: {image: i}}}")
        .await;
    assert_eq!(plan.spec.node_selector, None);
}

#[tokio::test]
async fn what_a_failed_test_is_told_names_everything_that_matters() {
    let world = World::new().await;
    add_node(&world, "one").await;
    world.cordon(&world.node_name("one")).await;
    world
        .label_node(
            &world.node_name("one"),
            "plan.upgrade.cattle.io/a-plan",
            Some("f00d"),
        )
        .await;
    world.plan(PLAN).await;
    let controller = world.controller().program("/bin/echo").arg("last words").start();
    controller.ended(SOON).await;

    let report = world.report(&world.client).await;
    for expected in [
        "name: a-plan",
        "Nodes: 1",
        &format!("{} Ready=- unschedulable=true", world.node_name("one")),
        "plan.upgrade.cattle.io/a-plan=f00d",
        "Jobs: 0",
        "controller.log",
        "last words",
    ] {
        assert!(report.contains(expected), "{expected:?} is not in\n{report}");
    }
}

#[tokio::test]
#[should_panic(expected = "last seen: too early")]
async fn what_does_not_happen_in_time_fails_the_test_with_what_was_seen() {
    wait::eventually("it is late", std::time::Duration::from_millis(50), async || {
        Err::<(), _>("too early".to_owned())
    })
    .await;
}

#[tokio::test]
async fn the_shipped_manifests_give_one_test_its_own_rights() {
    let (one, other) = tokio::join!(World::new(), World::new());
    let can = async |world: &World, verb: &str, resource: &str, namespace: &str| {
        let client = kubeconfig::client(world.kubeconfig(), "can-i").await.unwrap();
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

#[tokio::test]
async fn the_controller_gets_the_environment_of_the_manifests() {
    let world = World::with(Manifests::Suc).await;
    let program = world
        .controller()
        .program("/usr/bin/env")
        .env("OF_THE_TEST", "1")
        .without_env("SYSTEM_UPGRADE_JOB_PRIVILEGED");
    let controller = program.start();
    controller.ended(SOON).await;
    let log = controller.log();
    for expected in [
        "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT=99",
        "OF_THE_TEST=1",
        "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT=true",
    ] {
        assert!(
            log.lines().any(|line| line == expected),
            "{expected} is not in\n{log}"
        );
    }
    assert!(!log.contains("SYSTEM_UPGRADE_JOB_PRIVILEGED"));
    assert!(
        !log.contains("CARGO"),
        "the environment of the test is not the controller's"
    );
}

#[tokio::test]
async fn the_rights_of_a_new_world_are_in_force_at_once() {
    for _ in 0..10 {
        let world = World::new().await;
        let client = kubeconfig::client(world.kubeconfig(), "at-once").await.unwrap();
        let namespace = world.namespace();
        let (nodes, plans, event) = tokio::join!(
            async {
                Api::<Node>::all(client.clone())
                    .list(&ListParams::default())
                    .await
                    .map(drop)
            },
            async {
                Api::<Plan>::namespaced(client.clone(), namespace)
                    .list(&ListParams::default())
                    .await
                    .map(drop)
            },
            async {
                let event = json!({
                    "metadata": { "generateName": "a-" }, "involvedObject": { "kind": "Node", "name": "a" },
                });
                let event: Event = serde_json::from_value(event).unwrap();
                Api::namespaced(client.clone(), "default")
                    .create(&PostParams::default(), &event)
                    .await
                    .map(drop)
            },
        );
        nodes.and(plans).and(event).unwrap();
        assert!(world.controller_requests().await.forbidden().is_empty());
    }
}
