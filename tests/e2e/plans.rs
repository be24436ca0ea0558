//! Plans as users write them for system-upgrade-controller, on real hosts. The tests check what the payload wrote on
//! the host, and how often it ran.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use refit_api::NodeProgress;
use serde_json::json;

use super::harness::{E2eHarness, RUNS, container, harness, notes_its_boot, waits, workers};
use crate::harness::{is_cordoned, ledger};
use crate::testenv::binaries::kubernetes_version;
use crate::testenv::context::{create, done};
use crate::testenv::controller;
use crate::testenv::real::{self, PATIENCE};
use crate::testenv::wait;

/// The start of the message of a drain that waits for the budget `guard`.
fn waits_for_guard(harness: &E2eHarness, pod: &Pod) -> String {
    let (namespace, name) = (harness.ctx.namespace(), pod.name_any());
    format!("{namespace}/{name} waits for PodDisruptionBudget guard since ")
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_drain_waits_for_a_budget_and_continues_when_that_allows() {
    let harness = harness().await;
    let pod = harness.guarded_pod().await;
    let drain = json!({ "drain": { "force": true }, "nodeSelector": workers() });
    harness.make("os", &waits(), &drain).await;
    let waiting = harness.drain_waits("os", &harness.two).await.message.unwrap();
    let why = waits_for_guard(&harness, &pod);
    assert!(waiting.contains(&why), "{waiting}");
    assert_eq!(
        harness.web_is_ready().await.uid(),
        pod.uid(),
        "the budget is respected"
    );
    assert_eq!(harness.two.lines(RUNS), [""; 0]);
    harness.allow_evictions().await;
    E2eHarness::go(&harness.two);
    harness.complete("os").await;
    assert_eq!(harness.two.lines(RUNS), ["v2"]);
    assert_eq!(harness.one.lines(RUNS), [""; 0]);
    assert_ne!(
        harness.web_is_ready().await.uid(),
        pod.uid(),
        "evicted, and made anew on the node"
    );
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn the_termination_message_of_a_drain_survives_its_deadline() {
    let harness = harness().await;
    let pod = harness.guarded_pod().await;
    let more = json!({ "drain": { "force": true }, "jobActiveDeadlineSecs": 15, "nodeSelector": workers() });
    harness.make("os", &waits(), &more).await;
    let failed = |node: &NodeProgress| node.phase == "Failed";
    let failed = harness
        .wait_for_progress("os", &harness.two, "has failed", failed)
        .await;
    assert_eq!(failed.reason.as_deref(), Some("DeadlineExceeded"));
    let message = failed.message.unwrap();
    let why = waits_for_guard(&harness, &pod);
    assert!(message.contains(&why), "{message}");
    assert_eq!(harness.web_is_ready().await.uid(), pod.uid());
    assert_eq!(harness.two.lines(RUNS), [""; 0]);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_payload_that_reboots_its_node_by_itself_ends_with_its_second_run() {
    let harness = harness().await;
    // As k3OS does: the first run changes the host and reboots it, the second finds nothing to do.
    let script = format!(
        "{}\n[ ! -e /host/var/lib/upgraded ] || exit 0\ntouch /host/var/lib/upgraded\n\
         nsenter -t 1 -m -- systemctl reboot\nsleep 1000",
        notes_its_boot()
    );
    harness
        .make("k3os", &script, &json!({ "drain": { "force": true } }))
        .await;
    harness.complete("k3os").await;
    for node in [&harness.one, &harness.two] {
        assert_eq!(node.boots(), 2, "{}", node.name());
        assert_eq!(node.lines(RUNS), node.boot_ids(), "one run in each boot");
    }
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn an_upgrade_finds_its_secrets_its_variables_and_its_host() {
    let harness = harness().await;
    let secret = json!({ "metadata": { "name": "keys" }, "stringData": { "token": "hush" } });
    let _: Secret = create(&harness.ctx.secrets(), secret).await;
    let script = "cat >/host/var/lib/environment <<END\n\
        $SYSTEM_UPGRADE_NODE_NAME $SYSTEM_UPGRADE_PLAN_NAME $SYSTEM_UPGRADE_PLAN_LATEST_VERSION\n\
        $(cat /run/keys/token) $(id -u) $(hostname)\n\
        $(grep -c . /run/system-upgrade/pod/labels) $(cat /host/etc/hostname) $(cat /proc/1/comm)\nEND";
    let more = json!({ "secrets": [{ "name": "keys", "path": "/run/keys" }], "nodeSelector": workers() });
    harness.make("os", script, &more).await;
    harness.complete("os").await;
    let two = harness.two.name();
    let seen = harness.two.lines("/var/lib/environment");
    assert_eq!(
        seen[..2],
        [format!("{two} os v2"), format!("hush 0 {two}")],
        "{seen:?}"
    );
    let [labels, host, first] = <[&str; 3]>::try_from(seen[2].split(' ').collect::<Vec<_>>()).unwrap();
    assert!(labels.parse::<u32>().unwrap() > 3, "{seen:?}");
    assert_eq!(host, two);
    // The host's first process, by its pid namespace.
    assert_eq!(first, "init.sh");
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn with_prepull_a_missing_image_leaves_its_node_as_it_was_and_a_node_in_progress_has_a_successor_with_the_image()
 {
    let harness = harness().await;
    let mut upgrade = container(&waits());
    upgrade["image"] = json!("refit.test/late:1");
    let more = json!({ "upgrade": upgrade, "drain": { "force": true }, "prepull": true });
    harness.make("os", "", &more).await;
    let is_missing = |node: &NodeProgress| {
        let message = node.message.as_deref().unwrap_or_default();
        node.reason.as_deref() == Some("PodWaiting") && message.contains("container prepull")
    };
    let plan = harness
        .ctx
        .plan_until("os", "waits for its image", PATIENCE, |plan| {
            plan.status
                .iter()
                .flat_map(|status| status.active.iter().flatten())
                .any(is_missing)
        });
    plan.await;
    for node in [&harness.one, &harness.two] {
        assert!(!harness.is_cordoned(node).await, "nothing is disturbed");
    }
    let archive = harness.ctx.dir().join("late.tar");
    // A release of refit is static; that of the tests needs its libraries where it is lent.
    let image = real::shell(&["refit.test/late:1"]).await;
    let image = image.program(&controller::binary(), "/opt/refit").unwrap();
    image.write(&archive).unwrap();
    for node in [&harness.one, &harness.two] {
        node.load(&archive).await;
    }
    let (first, other) = harness.first_and_other().await;
    assert!(harness.is_cordoned(first).await && !harness.is_cordoned(other).await);
    let labelled = ListParams::default().labels("refit.rs/prepull=true");
    let jobs = Api::<Job>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let pulled = async || {
        let jobs = jobs.list(&labelled).await.unwrap().items;
        let succeeded = jobs.iter().filter_map(|job| job.status.as_ref()?.succeeded);
        succeeded.sum::<i32>()
    };
    wait::until("the other node has the image", pulled, |pulled| *pulled == 1).await;
    for node in [first, other] {
        E2eHarness::go(node);
    }
    harness.complete("os").await;
    for node in [&harness.one, &harness.two] {
        assert_eq!(node.lines(RUNS), ["v2"]);
    }
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_missing_image_is_reported_and_the_plan_continues_when_it_is_there() {
    let harness = harness().await;
    let mut upgrade = container(&format!("echo late >>/host{RUNS}"));
    upgrade["image"] = json!("refit.test/late:1");
    harness
        .make(
            "os",
            "",
            &json!({ "upgrade": upgrade, "nodeSelector": workers() }),
        )
        .await;
    let waits = |node: &NodeProgress| node.reason.as_deref() == Some("PodWaiting");
    let waiting = harness
        .wait_for_progress("os", &harness.two, "waits for its image", waits)
        .await;
    let message = waiting.message.unwrap();
    assert!(
        message.contains("container upgrade") && message.contains("refit.test/late:1"),
        "{message}"
    );
    let archive = harness.ctx.dir().join("late.tar");
    real::shell(&["refit.test/late:1"]).await.write(&archive).unwrap();
    harness.two.load(&archive).await;
    harness.complete("os").await;
    assert_eq!(harness.two.lines(RUNS), ["late"]);
}

/// A re-implementation of what k3s-upgrade and rke2-upgrade do as `prepare`: wait until the other Plan is applying no
/// node, and until all control-plane nodes report the version (`tests/contract.md`, S68).
const PREPARE: &str = r#"
namespace=$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)
while [ -n "$(kubectl get plan servers -n "$namespace" -o 'jsonpath={.status.applying[*]}')" ]; do sleep 1; done
versions() { kubectl get nodes -l node-role.kubernetes.io/control-plane -o 'jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion}{"\n"}{end}'; }
while versions | tr + - | grep -qvx "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION"; do sleep 1; done
"#;

/// A process on a host in place of k3s.
const K3S: &str = "cp /usr/bin/sleep /usr/local/bin/k3s; k3s infinity >/dev/null 2>&1 &";

/// What they do as `upgrade`: find the process and its program, replace the program, and end the process, which a service
/// manager would restart.
const UPGRADE: &str = r#"
pid=$(pidof k3s)
program=$(tr '\0' '\n' </host/proc/"$pid"/cmdline | head -n 1)
echo "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" >/host/usr/local/bin/"$program".new
mv /host/usr/local/bin/"$program".new /host/usr/local/bin/"$program"
kill "$pid"
"#;

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn agents_wait_in_prepare_for_the_plan_of_the_servers() {
    let harness = harness().await;
    let archive = harness.ctx.dir().join("k3s-upgrade.tar");
    let kubectl = harness.ctx.test_env.kubectl().await;
    let image = real::shell(&["refit.test/k3s-upgrade:1"]).await;
    image
        .file(&kubectl, "/bin/kubectl")
        .unwrap()
        .write(&archive)
        .unwrap();
    harness.two.load(&archive).await;

    let version = kubernetes_version();
    let role = |operator: &str| {
        let is = json!({ "key": "node-role.kubernetes.io/control-plane", "operator": operator });
        json!({ "version": version, "cordon": true, "nodeSelector": { "matchExpressions": [is] } })
    };
    for node in [&harness.one, &harness.two] {
        node.run(&["sh", "-c", K3S]).await;
    }
    let mut servers = role("Exists");
    servers["reboot"] = json!({ "when": "Always" });
    servers["settle"] = json!({ "minReady": "0s" });
    let upgrade = format!("{}\n{UPGRADE}", waits());
    harness.make("servers", &upgrade, &servers).await;
    let upgrading = |node: &NodeProgress| node.phase == "Upgrading";
    harness
        .wait_for_progress("servers", &harness.one, "is upgrading", upgrading)
        .await;
    let mut agents = role("DoesNotExist");
    agents["prepare"] = container(PREPARE);
    agents["prepare"]["image"] = json!("refit.test/k3s-upgrade:1");
    harness.make("agents", &upgrade, &agents).await;
    let preparing = |node: &NodeProgress| node.phase == "Preparing";
    harness
        .wait_for_progress("agents", &harness.two, "is preparing", preparing)
        .await;

    // The server is upgraded, and its slot is not free before it has rebooted.
    E2eHarness::go(&harness.two);
    E2eHarness::go(&harness.one);
    let rebooted = async {
        harness.one.wait_boots(2).await;
        harness.one.wait_ready().await;
    };
    let held = async {
        loop {
            assert!(!harness.is_cordoned(&harness.two).await);
            assert_eq!(harness.two.lines(RUNS), [""; 0], "prepare waits");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = rebooted => (),
        () = held => (),
    }
    harness.ctx.plan_complete("agents", PATIENCE).await;
    harness.complete("servers").await;
    for node in [&harness.one, &harness.two] {
        assert_eq!(node.lines(RUNS), [version]);
        let left = node
            .run(&["sh", "-c", "busybox pidof k3s || cat /usr/local/bin/k3s"])
            .await;
        assert_eq!(left, format!("{version}\n"), "ended, and replaced");
    }
    assert_eq!((harness.one.boots(), harness.two.boots()), (2, 1));
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_plan_deleted_during_an_upgrade_releases_its_node_when_nothing_of_it_runs_there() {
    let harness = harness().await;
    // A shell that is process 1 of its container takes no SIGTERM, so it lives as long as its pod may.
    let upgrade = format!("{}\n# {}", waits(), harness.ctx.id);
    harness
        .make(
            "os",
            &upgrade,
            &json!({ "cordon": true, "nodeSelector": workers() }),
        )
        .await;
    let upgrading = |node: &NodeProgress| node.phase == "Upgrading";
    harness
        .wait_for_progress("os", &harness.two, "is upgrading", upgrading)
        .await;
    let plans = harness.ctx.plans();
    plans.delete("os", &DeleteParams::default()).await.unwrap();
    let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
    let node = harness.two.name();
    harness.ctx.node_until(node, "is released", PATIENCE, back).await;
    let processes = harness.two.run(&["busybox", "ps", "-o", "args"]).await;
    let left: Vec<_> = processes
        .lines()
        .filter(|line| line.contains(&harness.ctx.id))
        .collect();
    assert!(!left.iter().any(|line| line.contains("/var/lib/go")), "{left:#?}");
    assert_eq!(done(&harness.node(&harness.two).await, "os"), None);
}
