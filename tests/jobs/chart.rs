//! Under Rancher's chart, where only the image is another: its environment, system-upgrade-controller's roles, and a Plan as
//! Rancher makes them (S67, S69).

use serde_json::json;

use crate::harness::{Harness, held};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::find_condition;
use crate::testenv::manifest::Manifests;

const KUBECTL: &str = "rancher/kuberlr-kubectl:v8.1.2";

#[tokio::test]
async fn ranchers_chart_needs_another_image_and_no_other_change() {
    let ctx = TestContext::with(Manifests::Suc).await;
    let harness = Harness::on(ctx, ["master", "worker"], |set| {
        held(set).each(|index, node| {
            if index == 0 {
                node.labels
                    .insert("node-role.kubernetes.io/master".to_owned(), "true".to_owned());
            }
        })
    })
    .await;
    let controller = [
        ("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "false"),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "2"),
        ("SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS", "900"),
        ("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "99"),
        ("SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY", "IfNotPresent"),
        ("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE", KUBECTL),
        ("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS", KUBECTL),
        ("SYSTEM_UPGRADE_JOB_PRIVILEGED", "true"),
        ("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "900"),
        ("SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", "15m"),
        ("REFIT_IMAGE", "example.com/refit:v9"),
    ];
    let controller = controller
        .iter()
        .fold(harness.ctx.controller(), |setup, (name, value)| {
            setup.env(name, value)
        });
    let controller = controller.start();

    let spec = json!({
        "concurrency": 1,
        "version": "v1.37.0+k3s1",
        "tolerations": [{ "operator": "Exists" }],
        "nodeSelector": { "matchExpressions": [
            { "key": "node-role.kubernetes.io/master", "operator": "In", "values": ["true"] },
            { "key": "upgrade.cattle.io/kubernetes-upgrade", "operator": "DoesNotExist" },
        ] },
        "upgrade": { "image": "rancher/k3s-upgrade" },
        "drain": { "force": true, "skipWaitForDeleteTimeout": 60 },
    });
    harness.plan_with("k3s-master-plan", spec).await;

    // What Rancher reads while nodes are under way, and when they are done.
    harness.upgrading("k3s-master-plan", "master").await;
    let plan = harness.ctx.plans().get("k3s-master-plan").await.unwrap();
    assert_eq!(crate::harness::applying(&plan), [harness.node("master")]);
    assert_eq!(
        plan.status.as_ref().unwrap().latest_version.as_deref(),
        Some("v1.37.0-k3s1")
    );
    let complete = find_condition(&plan, "Complete").unwrap();
    assert_eq!(
        (&*complete.status, complete.reason.as_deref()),
        ("False", Some("SyncJob"))
    );
    harness.release("master").await;
    let plan_hash = harness.complete("k3s-master-plan").await;
    harness.made_once_each([("master", &plan_hash)]).await;

    let pod = harness
        .job("k3s-master-plan", "master")
        .await
        .spec
        .unwrap()
        .template
        .spec
        .unwrap();
    let drain = &pod.init_containers.unwrap()[0];
    assert_eq!(
        drain.image.as_deref(),
        Some("example.com/refit:v9"),
        "no kubectl image is needed"
    );
    assert_eq!(
        pod.containers[0].image.as_deref(),
        Some("rancher/k3s-upgrade:v1.37.0-k3s1")
    );
    assert_eq!(
        pod.containers[0].image_pull_policy.as_deref(),
        Some("IfNotPresent")
    );
    let lines = controller
        .log()
        .lines()
        .filter(|line| line.contains("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE"))
        .count();
    assert_eq!(
        lines,
        1,
        "that the variable is not used is logged once:\n{}",
        controller.log()
    );
}
