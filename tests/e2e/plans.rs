//! Plans as they are written for system-upgrade-controller, carried out on hosts: what the payload wrote there, and how
//! often it ran.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use refit::api::NodeProgress;
use serde_json::json;

use super::stage::{RUNS, Stage, container, notes_its_boot, stage, waits, workers};
use crate::scene::{is_cordoned, ledger};
use crate::support::binaries::kubernetes_version;
use crate::support::real::{self, PATIENCE};
use crate::support::wait;
use crate::support::world::{create, done};

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn hosts_are_cordoned_upgraded_and_given_back_one_after_the_other() {
    let stage = stage().await;
    stage.make("os", &waits(), &json!({ "cordon": true })).await;
    let (first, other) = stage.first_and_other().await;
    assert!(stage.is_cordoned(first).await);
    assert!(!stage.is_cordoned(other).await);
    Stage::go(first);
    wait::eventually("the other has begun", PATIENCE, async || {
        if other.lines(RUNS).is_empty() {
            Err("it has not".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    assert!(
        !stage.is_cordoned(first).await,
        "given back before the next begins"
    );
    Stage::go(other);
    let plan = stage.complete("os").await;
    let hash = plan.status.unwrap().latest_hash;
    for node in [first, other] {
        assert_eq!(node.lines(RUNS), ["v2"], "once, and on the host itself");
        assert_eq!(node.boots(), 1);
        assert_eq!(done(&stage.node(node).await, "os"), hash);
    }
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_drain_waits_for_a_budget_and_goes_on_when_that_allows() {
    let stage = stage().await;
    let pod = stage.guarded_pod().await;
    let drain = json!({ "drain": { "force": true }, "nodeSelector": workers() });
    stage.make("os", &waits(), &drain).await;
    let waiting = stage.drain_waits("os", &stage.two).await.message.unwrap();
    let why = format!(
        "{}/{} waits for PodDisruptionBudget guard since ",
        stage.world.namespace(),
        pod.name_any()
    );
    assert!(waiting.contains(&why), "{waiting}");
    assert_eq!(
        stage.web_is_ready().await.uid(),
        pod.uid(),
        "the budget is respected"
    );
    assert_eq!(stage.two.lines(RUNS), [""; 0]);
    stage.relent().await;
    Stage::go(&stage.two);
    stage.complete("os").await;
    assert_eq!(stage.two.lines(RUNS), ["v2"]);
    assert_eq!(stage.one.lines(RUNS), [""; 0]);
    assert_ne!(
        stage.web_is_ready().await.uid(),
        pod.uid(),
        "evicted, and made anew on the node"
    );
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn the_last_words_of_a_drain_outlive_its_deadline() {
    let stage = stage().await;
    let pod = stage.guarded_pod().await;
    let more = json!({ "drain": { "force": true }, "jobActiveDeadlineSecs": 15, "nodeSelector": workers() });
    stage.make("os", &waits(), &more).await;
    let failed = |node: &NodeProgress| node.phase == "Failed";
    let failed = stage.told("os", &stage.two, "has failed", failed).await;
    assert_eq!(failed.reason.as_deref(), Some("DeadlineExceeded"));
    let message = failed.message.unwrap();
    let why = format!(
        "{}/{} waits for PodDisruptionBudget guard since ",
        stage.world.namespace(),
        pod.name_any()
    );
    assert!(message.contains(&why), "{message}");
    assert_eq!(stage.web_is_ready().await.uid(), pod.uid());
    assert_eq!(stage.two.lines(RUNS), [""; 0]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn prepare_runs_before_the_cordon_and_its_failure_touches_nothing() {
    let stage = stage().await;
    let prepare = format!("echo prepare >>/host{RUNS}\n[ -e /host/var/lib/prepared ]");
    let more = json!({ "prepare": container(&prepare), "cordon": true, "nodeSelector": workers() });
    stage.make("os", &waits(), &more).await;
    wait::eventually("prepare has failed twice", PATIENCE, async || {
        let lines = stage.two.lines(RUNS);
        if lines.len() >= 2 {
            Ok(())
        } else {
            Err(format!("{lines:?}"))
        }
    })
    .await;
    assert!(!stage.is_cordoned(&stage.two).await);
    stage.two.write("/var/lib/prepared", "");
    Stage::go(&stage.two);
    stage.complete("os").await;
    let lines = stage.two.lines(RUNS);
    assert_eq!(lines.iter().filter(|line| *line == "v2").count(), 1, "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("v2"), "{lines:?}");
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_loses_power_between_cordon_and_upgrade_is_upgraded_in_its_second_boot() {
    let stage = stage().await;
    stage.guarded_pod().await;
    let more = json!({ "drain": { "force": true }, "nodeSelector": workers() });
    stage.make("os", &notes_its_boot(), &more).await;
    stage.drain_waits("os", &stage.two).await;
    stage.two.power_cycle().await;
    stage.two.wait_ready().await;
    assert!(stage.is_cordoned(&stage.two).await);
    stage.relent().await;
    stage.complete("os").await;
    assert_eq!(stage.two.boots(), 2);
    assert_eq!(stage.two.lines(RUNS), [stage.two.boot_ids()[1].as_str()]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_payload_that_reboots_its_node_by_itself_ends_with_its_second_run() {
    let stage = stage().await;
    // As k3OS does: the first run changes the host and reboots it, the second finds nothing to do.
    let script = format!(
        "{}\n[ ! -e /host/var/lib/upgraded ] || exit 0\ntouch /host/var/lib/upgraded\n\
         nsenter -t 1 -m -- systemctl reboot\nsleep 1000",
        notes_its_boot()
    );
    stage
        .make("k3os", &script, &json!({ "drain": { "force": true } }))
        .await;
    stage.complete("k3os").await;
    for node in [&stage.one, &stage.two] {
        assert_eq!(node.boots(), 2, "{}", node.name());
        assert_eq!(node.lines(RUNS), node.boot_ids(), "one run in each boot");
    }
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn an_upgrade_finds_its_secrets_its_variables_and_its_host() {
    let stage = stage().await;
    let secret = json!({ "metadata": { "name": "keys" }, "stringData": { "token": "hush" } });
    let _: Secret = create(&stage.world.secrets(), secret).await;
    let script = "cat >/host/var/lib/told <<END\n\
        $SYSTEM_UPGRADE_NODE_NAME $SYSTEM_UPGRADE_PLAN_NAME $SYSTEM_UPGRADE_PLAN_LATEST_VERSION\n\
        $(cat /run/keys/token) $(id -u) $(hostname)\n\
        $(grep -c . /run/system-upgrade/pod/labels) $(cat /host/etc/hostname) $(cat /proc/1/comm)\nEND";
    let more = json!({ "secrets": [{ "name": "keys", "path": "/run/keys" }], "nodeSelector": workers() });
    stage.make("os", script, &more).await;
    stage.complete("os").await;
    let two = stage.two.name();
    let told = stage.two.lines("/var/lib/told");
    assert_eq!(
        told[..2],
        [format!("{two} os v2"), format!("hush 0 {two}")],
        "{told:?}"
    );
    let [labels, host, first] = <[&str; 3]>::try_from(told[2].split(' ').collect::<Vec<_>>()).unwrap();
    assert!(labels.parse::<u32>().unwrap() > 3, "{told:?}");
    assert_eq!(host, two);
    // The host's first process, by its pid namespace.
    assert_eq!(first, "init.sh");
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn an_image_that_is_not_there_is_told_and_the_plan_goes_on_when_it_is() {
    let stage = stage().await;
    let mut upgrade = container(&format!("echo late >>/host{RUNS}"));
    upgrade["image"] = json!("refit.test/late:1");
    stage
        .make(
            "os",
            "",
            &json!({ "upgrade": upgrade, "nodeSelector": workers() }),
        )
        .await;
    let waits = |node: &NodeProgress| node.reason.as_deref() == Some("PodWaiting");
    let told = stage.told("os", &stage.two, "waits for its image", waits).await;
    let message = told.message.unwrap();
    assert!(
        message.contains("container upgrade") && message.contains("refit.test/late:1"),
        "{message}"
    );
    let archive = stage.world.dir().join("late.tar");
    real::shell(&["refit.test/late:1"]).await.write(&archive).unwrap();
    stage.two.load(&archive).await;
    stage.complete("os").await;
    assert_eq!(stage.two.lines(RUNS), ["late"]);
}

/// What k3s-upgrade and rke2-upgrade do as `prepare`: wait until the other Plan is at work on no node, and until the nodes of
/// the control plane say that they have its version (S68).
const PREPARE: &str = r#"
namespace=$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)
while [ -n "$(kubectl get plan servers -n "$namespace" -o 'jsonpath={.status.applying[*]}')" ]; do sleep 1; done
versions() { kubectl get nodes -l node-role.kubernetes.io/control-plane -o 'jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion}{"\n"}{end}'; }
while versions | tr + - | grep -qvx "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION"; do sleep 1; done
"#;

/// Something that runs on a host as k3s does.
const K3S: &str = "cp /usr/bin/sleep /usr/local/bin/k3s; k3s infinity >/dev/null 2>&1 &";

/// What they do as `upgrade`: find the process and from it the program, replace that, and end the process, which a service
/// manager would start again.
const UPGRADE: &str = r#"
pid=$(pidof k3s)
program=$(tr '\0' '\n' </host/proc/"$pid"/cmdline | head -n 1)
echo "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" >/host/usr/local/bin/"$program".new
mv /host/usr/local/bin/"$program".new /host/usr/local/bin/"$program"
kill "$pid"
"#;

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn agents_wait_in_prepare_for_the_plan_of_the_servers() {
    let stage = stage().await;
    let archive = stage.world.dir().join("k3s-upgrade.tar");
    let kubectl = stage.world.bed.kubectl().await;
    let image = real::shell(&["refit.test/k3s-upgrade:1"]).await;
    image
        .file(&kubectl, "/bin/kubectl")
        .unwrap()
        .write(&archive)
        .unwrap();
    stage.two.load(&archive).await;

    let version = kubernetes_version();
    let role = |operator: &str| {
        let is = json!({ "key": "node-role.kubernetes.io/control-plane", "operator": operator });
        json!({ "version": version, "cordon": true, "nodeSelector": { "matchExpressions": [is] } })
    };
    for node in [&stage.one, &stage.two] {
        node.run(&["sh", "-c", K3S]).await;
    }
    let mut servers = role("Exists");
    servers["reboot"] = json!({ "when": "Always" });
    servers["settle"] = json!({ "minReady": "0s" });
    let upgrade = format!("{}\n{UPGRADE}", waits());
    stage.make("servers", &upgrade, &servers).await;
    let upgrading = |node: &NodeProgress| node.phase == "Upgrading";
    stage.told("servers", &stage.one, "is upgrading", upgrading).await;
    let mut agents = role("DoesNotExist");
    agents["prepare"] = container(PREPARE);
    agents["prepare"]["image"] = json!("refit.test/k3s-upgrade:1");
    stage.make("agents", &upgrade, &agents).await;
    let preparing = |node: &NodeProgress| node.phase == "Preparing";
    stage.told("agents", &stage.two, "is preparing", preparing).await;

    // The server is upgraded, and its slot is not free before it has rebooted.
    Stage::go(&stage.two);
    Stage::go(&stage.one);
    let rebooted = async {
        stage.one.wait_boots(2).await;
        stage.one.wait_ready().await;
    };
    let held = async {
        loop {
            assert!(!stage.is_cordoned(&stage.two).await);
            assert_eq!(stage.two.lines(RUNS), [""; 0], "prepare waits");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = rebooted => (),
        () = held => (),
    }
    stage.world.plan_complete("agents", PATIENCE).await;
    stage.complete("servers").await;
    for node in [&stage.one, &stage.two] {
        assert_eq!(node.lines(RUNS), [version]);
        let left = node
            .run(&["sh", "-c", "busybox pidof k3s || cat /usr/local/bin/k3s"])
            .await;
        assert_eq!(left, format!("{version}\n"), "ended, and replaced");
    }
    assert_eq!((stage.one.boots(), stage.two.boots()), (2, 1));
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_plan_deleted_in_mid_upgrade_gives_its_node_back_when_nothing_of_it_runs_there() {
    let stage = stage().await;
    // A shell that is process 1 of its container takes no SIGTERM, so it lives as long as its pod may.
    let upgrade = format!("{}\n# {}", waits(), stage.world.id);
    stage
        .make(
            "os",
            &upgrade,
            &json!({ "cordon": true, "nodeSelector": workers() }),
        )
        .await;
    let upgrading = |node: &NodeProgress| node.phase == "Upgrading";
    stage.told("os", &stage.two, "is upgrading", upgrading).await;
    let plans = stage.world.plans();
    plans.delete("os", &DeleteParams::default()).await.unwrap();
    let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
    let node = stage.two.name();
    stage
        .world
        .node_until(node, "is given back", PATIENCE, back)
        .await;
    let processes = stage.two.run(&["busybox", "ps", "-o", "args"]).await;
    let left: Vec<_> = processes
        .lines()
        .filter(|line| line.contains(&stage.world.id))
        .collect();
    assert!(!left.iter().any(|line| line.contains("/var/lib/go")), "{left:#?}");
    assert_eq!(done(&stage.node(&stage.two).await, "os"), None);
}
