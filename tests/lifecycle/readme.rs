//! The Plan of system-upgrade-controller's README, from creation to the label.

use std::collections::BTreeMap;

use refit_api::Plan;

use crate::harness::{Harness, hash};
use crate::testenv::channel::ChannelServer;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::done;

/// The Plan for k3OS. The version, where it has one, is `VERSION`.
fn plan(channel: &str, version: Option<&str>) -> String {
    let version = version
        .map(|version| format!("version: {version}"))
        .unwrap_or_default();
    format!(
        "
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata:
  name: k3os-latest
spec:
  concurrency: 1
  channel: {channel}
  {version}
  nodeSelector:
    matchExpressions:
      - {{key: plan.upgrade.cattle.io/k3os-latest, operator: Exists}}
      - {{key: k3os.io/mode, operator: Exists}}
      - {{key: k3os.io/mode, operator: NotIn, values: [live]}}
  serviceAccountName: k3os-upgrade
  drain: {{force: true}}
  upgrade:
    image: rancher/k3os
    command: [k3os, --debug]
    args: [upgrade, --kernel, --rootfs, --remount, --sync, --reboot, --lock-file=/host/run/k3os/upgrade.lock]
"
    )
}

const ACCOUNT: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: k3os-upgrade}}";

/// Nodes by name, with their opt-in label and k3OS mode.
const NODES: [(&str, Option<&str>, Option<&str>); 7] = [
    ("opted-in", Some("enabled"), Some("local")),
    ("opted-in-too", Some("true"), Some("install")),
    ("of-old", Some("0123456789abcdef"), Some("local")),
    ("not-opted-in", None, Some("local")),
    ("disabled", Some("disabled"), Some("local")),
    ("live", Some("enabled"), Some("live")),
    ("another-system", Some("enabled"), None),
];
const TO_DO: [&str; 3] = ["opted-in", "opted-in-too", "of-old"];

async fn nodes() -> Harness {
    let names = NODES.map(|(name, ..)| name);
    Harness::on(TestContext::new().await, names, |set| {
        set.each(|index, node| {
            let (_, opt_in, mode) = NODES[index];
            let labels = [
                ("plan.upgrade.cattle.io/k3os-latest", opt_in),
                ("k3os.io/mode", mode),
            ];
            let labels = labels
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            node.labels.extend(labels);
        })
    })
    .await
}

/// Follows the roll-out to its end and looks at what is left.
async fn roll_out(harness: &Harness, plan: &str, version: &str) -> Plan {
    harness.ctx.apply(ACCOUNT).await;
    let before: BTreeMap<_, _> = NODES
        .iter()
        .map(|(name, opt_in, _)| (*name, opt_in.map(str::to_owned)))
        .collect();
    let _controller = harness.ctx.controller().start();
    harness.ctx.plan(plan).await;
    let args = [
        "wait",
        "--for=condition=Complete",
        "plan/k3os-latest",
        "--timeout=180s",
    ];
    let said = harness.ctx.kubectl(&args).await;
    assert_eq!(said.trim(), "plan.upgrade.cattle.io/k3os-latest condition met");

    let plan = harness
        .ctx
        .plan_complete("k3os-latest", crate::testenv::wait::SOON)
        .await;
    let plan_hash = hash(&plan);
    assert_eq!(
        plan.status.as_ref().unwrap().latest_version.as_deref(),
        Some(version)
    );
    harness
        .made_once_each(TO_DO.map(|node| (node, &*plan_hash)))
        .await;
    let requests = harness.ctx.requests().await;
    assert_eq!(requests.most_jobs_at_once("k3os-latest"), 1);
    let requests = requests.by(&harness.ctx.user());
    assert_eq!(requests.most_applying("k3os-latest"), 1);
    for (name, ..) in NODES {
        let node = harness.get(name).await;
        let to_do = TO_DO.contains(&name);
        let label = if to_do {
            Some(plan_hash.clone())
        } else {
            before[name].clone()
        };
        assert_eq!(done(&node, "k3os-latest"), label, "{name}");
        assert_eq!(harness.runs(name, "upgrade").await, u32::from(to_do), "{name}");
        assert_eq!(harness.runs(name, "drain").await, u32::from(to_do), "{name}");
        assert!(!crate::harness::is_cordoned(&node), "{name}");
        let touched = requests
            .writes()
            .filter(|it| it.resource == "nodes" && it.name == harness.node(name))
            .count();
        assert_eq!(touched, usize::from(to_do), "{name}: patches of the node");
    }
    harness
        .expect_events(
            "JobComplete",
            TO_DO.map(|node| format!("Job completed on Node {}", harness.node(node))),
        )
        .await;
    harness
        .expect_events(
            "Complete",
            [format!("Jobs complete for version {version}. Hash: {plan_hash}")],
        )
        .await;
    harness
        .expect_events(
            "SyncJob",
            TO_DO.map(|node| {
                format!(
                    "Jobs synced for version {version} on Nodes {}. Hash: {plan_hash}",
                    harness.node(node)
                )
            }),
        )
        .await;
    plan
}

#[tokio::test]
async fn the_k3os_plan_with_a_version_does_not_ask_its_channel() {
    let harness = nodes().await;
    let channel = ChannelServer::start().await;
    channel.redirects("/releases/latest", "https://example.com/releases/tag/v0.10.0");
    let plan = roll_out(
        &harness,
        &plan(&channel.url("/releases/latest"), Some("v0.9.0-dev")),
        "v0.9.0-dev",
    )
    .await;
    assert_eq!(channel.asked("/releases/latest").len(), 0);
    assert_eq!(plan.status.unwrap().channel, None);
    harness
        .expect_events(
            "Resolved",
            ["Resolved latest version from Spec.Version: v0.9.0-dev".to_owned()],
        )
        .await;
    for job in harness.ctx.jobs_of("k3os-latest").await {
        let pod = job.spec.unwrap().template.spec.unwrap();
        assert_eq!(
            pod.containers[0].image.as_deref(),
            Some("rancher/k3os:v0.9.0-dev")
        );
        assert_eq!(pod.service_account_name.as_deref(), Some("k3os-upgrade"));
    }
}

#[tokio::test]
async fn the_k3os_plan_without_a_version_follows_its_channel() {
    let harness = nodes().await;
    let channel = ChannelServer::start().await;
    channel.redirects(
        "/releases/latest",
        "https://example.com/releases/tag/v0.10.0+k3s1",
    );
    roll_out(
        &harness,
        &plan(&channel.url("/releases/latest"), None),
        "v0.10.0-k3s1",
    )
    .await;
    assert_eq!(channel.asked("/releases/latest").len(), 1);
    harness
        .expect_events(
            "Resolved",
            ["Resolved latest version from Spec.Channel: v0.10.0-k3s1".to_owned()],
        )
        .await;
}
