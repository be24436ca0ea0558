//! Faults of machines on the real control plane: each stops a roll-out for a while, and is printed with the time until
//! the next node is done. The table of `docs/reliability.md` has the figures of `just soak`.
//!
//! `cargo cluster` runs those that take seconds. Others there are in `tests/faults.rs` (API server, 429) and
//! `tests/leader.rs` (killed and frozen leaders), without figures.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::harness::is_recorded;
use crate::rollout::{PLAN, RollOut, Shape};
use crate::supervised::SupervisedController;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::binary;
use crate::testenv::faults::Rule;
use crate::testenv::pki::Authority;
use crate::testenv::plan::status;
use crate::testenv::serve::Server;
use crate::testenv::terminal;
use crate::testenv::wait::{self, SOON};

/// A roll-out that is busy for longer than a fault.
const SHAPE: Shape = Shape {
    nodes: 40,
    concurrency: 2,
    run: Duration::from_millis(1500),
};

/// As long as the tests that are no soak wait for a fault.
const SHORT: Duration = Duration::from_secs(3);
/// Longer than the Lease of system-upgrade-controller, and than the timeout of a request.
const LONG: Duration = Duration::from_secs(20);

/// A roll-out on a control plane of its own, with a controller that is restarted when it ends.
struct Scene {
    rollout: RollOut,
    supervised: SupervisedController,
}

impl Scene {
    async fn open(shape: Shape) -> Self {
        let mut rollout = RollOut::prepare(TestContext::alone().await, shape).await;
        rollout.rough = true;
        rollout.outage = true;
        let supervised = SupervisedController::start(rollout.ctx.controller().usual_lease_times());
        let scene = Self { rollout, supervised };
        scene.begin().await;
        scene
    }

    async fn begin(&self) {
        self.rollout.begin().await;
        self.rollout.under_way(2).await;
    }

    async fn done(&self) -> i64 {
        let plan = self.rollout.ctx.plans().get(PLAN).await.expect("the Plan");
        status(&plan).nodes.unwrap_or_default().done
    }

    /// Waits until another node is done, prints how long that took, and lets the roll-out end.
    async fn recovers(&self, fault: &str) {
        let (before, began) = (self.done().await, Instant::now());
        let all = i64::try_from(self.rollout.shape.nodes).expect("a number of nodes");
        wait::eventually("another node is done", SOON, async || match self.done().await {
            done if done > before || done == all => Ok(()),
            done => Err(format!("{done} are")),
        })
        .await;
        let restarts = self.supervised.ends().len();
        let took = began.elapsed().as_secs_f64();
        terminal::say(&format!(
            "machines: {fault}: next node done after {took:.1} s; {restarts} restarts"
        ));
        let plan = self.rollout.ends().await;
        self.rollout.check_but_events(&plan).await;
    }
}

async fn etcd_frozen(shape: Shape, during: Duration) {
    let scene = Scene::open(shape).await;
    let plane = scene.rollout.ctx.test_env.control_plane();
    plane.pause_etcd();
    tokio::time::sleep(during).await;
    plane.resume_etcd();
    scene
        .recovers(&format!("etcd frozen for {} s", during.as_secs()))
        .await;
}

async fn api_server_away(shape: Shape, during: Duration) {
    let scene = Scene::open(shape).await;
    let plane = scene.rollout.ctx.test_env.control_plane();
    plane.stop_apiserver();
    tokio::time::sleep(during).await;
    plane.start_apiserver().await.expect("the API server is back");
    scene
        .recovers(&format!("API server away for {} s", during.as_secs()))
        .await;
}

async fn too_many_requests(shape: Shape, during: Duration) {
    let mut rollout = RollOut::prepare(TestContext::alone().await, shape).await;
    rollout.rough = true;
    let faults = rollout.ctx.faults(0).await;
    let setup = rollout.ctx.controller().usual_lease_times().through(&faults);
    let scene = Scene {
        supervised: SupervisedController::start(setup),
        rollout,
    };
    scene.begin().await;
    faults.add(Rule::on("*", "*").answer(429));
    tokio::time::sleep(during).await;
    faults.clear_rules();
    let refused = faults.faults();
    let most = 20 + 20 * usize::try_from(during.as_secs()).expect("seconds");
    assert!(refused < most, "{refused} requests during {during:?}");
    scene
        .recovers(&format!(
            "429 for every request for {} s ({refused} requests)",
            during.as_secs()
        ))
        .await;
}

/// A webhook for Jobs that does not answer, with the policy `Fail`, so that no Job can be created.
async fn webhook_hangs(shape: Shape, during: Duration) {
    let scene = Scene::open(shape).await;
    let ctx = &scene.rollout.ctx;
    let authority = Authority::new("hanging-webhook").expect("an authority");
    let identity = authority
        .server("webhook", &["127.0.0.1"])
        .expect("a certificate");
    let server = Server::start(Some(&identity), |_| std::future::pending())
        .await
        .expect("a server");
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(ctx.client.clone());
    let webhook = json!({
        "metadata": { "name": "hangs" },
        "webhooks": [{
            "name": "hangs.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "timeoutSeconds": 5,
            "clientConfig": { "url": format!("https://127.0.0.1:{}/", server.port()), "caBundle": bundle(authority.pem()) },
            "rules": [{ "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"] }],
        }],
    });
    create(&webhooks, webhook).await;
    tokio::time::sleep(during).await;
    webhooks
        .delete("hangs", &DeleteParams::default())
        .await
        .expect("the webhook is deleted");
    scene
        .recovers(&format!("webhook for Jobs hangs for {} s", during.as_secs()))
        .await;
}

fn bundle(pem: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(pem)
}

/// Events that nobody will read again, as a cluster has them whose controller has failed for a day.
async fn stale_events(shape: Shape, count: usize) {
    let scene = Scene::open(shape).await;
    let ctx = &scene.rollout.ctx;
    let memory = || scene.supervised.now().memory_now().expect("it is measured");
    let before = memory();
    let events = ctx.events();
    let made = (0..count).map(|number| {
        let object = json!({
            "metadata": { "name": format!("stale-{number}"), "namespace": ctx.namespace() },
            "involvedObject": { "kind": "Plan", "name": PLAN, "namespace": ctx.namespace() },
            "reason": "Stale", "message": "m".repeat(500), "type": "Warning",
        });
        let events = events.clone();
        async move {
            let event = serde_json::from_value(object).expect("an Event");
            events.create(&PostParams::default(), &event).await.map(drop)
        }
    });
    let made = futures::stream::iter(made)
        .buffer_unordered(50)
        .try_collect::<()>()
        .await;
    made.expect("the Events are created");
    let requests = ctx.controller_requests().await;
    assert_eq!(
        requests.count("list", "events") + requests.count("watch", "events"),
        0
    );
    let more = memory().saturating_sub(before) >> 20;
    assert!(more < 64, "{more} MiB more");
    scene.recovers(&format!("{count} stale Events")).await;
}

/// A file with a token that is valid for as long as this Secret exists.
async fn file_with_token(ctx: &TestContext, secret: &str) -> PathBuf {
    let object = json!({ "metadata": { "name": secret, "namespace": ctx.namespace() } });
    let secret: Secret = create(&ctx.secrets(), object).await;
    let file = ctx.dir().join("token");
    let token = ctx.token_of(ctx.service_account(), &secret).await;
    std::fs::write(&file, token).expect("the token is written");
    file
}

/// A token becomes invalid when the object to which it is bound is gone; the kubelet writes the next one into the same file.
async fn token_expires(shape: Shape, during: Duration) {
    let mut rollout = RollOut::prepare(TestContext::alone().await, shape).await;
    rollout.rough = true;
    rollout.outage = true;
    let ctx = &rollout.ctx;
    let file = file_with_token(ctx, "first").await;
    let kubeconfig = ctx.write_kubeconfig_of("token-file", &json!({ "tokenFile": file }));
    let setup = ctx.controller().usual_lease_times().kubeconfig(kubeconfig);
    let scene = Scene {
        supervised: SupervisedController::start(setup),
        rollout,
    };
    scene.begin().await;
    let ctx = &scene.rollout.ctx;
    let deleted = ctx.secrets().delete("first", &DeleteParams::default()).await;
    deleted.expect("the Secret is deleted");
    let is_refused = async || ctx.controller_requests().await.0.iter().any(|it| it.code == 401);
    wait::eventually("the token is refused", SOON, async || {
        let log = scene.supervised.now().log();
        if log.contains("Unauthorized") || is_refused().await {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    tokio::time::sleep(during).await;
    file_with_token(ctx, "second").await;
    scene
        .recovers(&format!("token refused for {} s", during.as_secs()))
        .await;
}

/// The snapshot is as old as some nodes, and the API server, its clients and refit are restarted, as etcd's
/// documentation asks of those who restore one without raising its revision.
async fn etcd_restored() {
    let mut scene = Scene::open(SHAPE).await;
    let plane = scene.rollout.ctx.test_env.control_plane();
    let snapshot = scene.rollout.ctx.dir().join("snapshot");
    plane.snapshot(&snapshot).expect("a snapshot");
    let at_snapshot = scene.done().await;
    wait::eventually("more nodes are done", SOON, async || match scene.done().await {
        done if done >= at_snapshot + 4 => Ok(()),
        done => Err(format!("{done} are")),
    })
    .await;
    let began = Instant::now();
    plane.restore(&snapshot).await.expect("the snapshot is restored");
    scene.rollout.restart_kubelets().await;
    scene.supervised.now().kill();
    let before = scene.done().await;
    assert!(
        before < at_snapshot + 4,
        "the cluster is not the one of the snapshot"
    );
    wait::eventually("another node is done", SOON, async || match scene.done().await {
        done if done > before => Ok(()),
        done => Err(format!("{done} are")),
    })
    .await;
    let took = began.elapsed().as_secs_f64();
    terminal::say(&format!(
        "machines: etcd restored from a snapshot: next node done after {took:.1} s"
    ));
    let plan = scene.rollout.ends().await;
    assert_eq!(status(&plan).nodes.unwrap_or_default().failed, 0);
    for node in scene.rollout.ctx.my_nodes().await {
        assert!(crate::harness::is_free(&node), "{node:?}");
    }
    let jobs = scene.rollout.ctx.jobs_of(PLAN).await;
    assert!(
        jobs.iter().all(is_recorded) && jobs.len() == SHAPE.nodes,
        "{} Jobs",
        jobs.len()
    );
}

/// The leader loses its network, and nothing tells it so. Needs root, because it runs in a network namespace.
async fn leader_partitioned() {
    let mut rollout = RollOut::prepare(TestContext::alone().await, SHAPE).await;
    rollout.rough = true;
    rollout.outage = true;
    let ctx = &rollout.ctx;
    let plane = ctx.test_env.control_plane();
    let lan = plane.lan().await.expect("a network namespace");
    let network = format!("--net={}", lan.namespace());
    let path = ctx.dir().join("partitioned.kubeconfig");
    let token = crate::testenv::kubeconfig::token(&ctx.token(ctx.service_account()).await);
    plane
        .write_lan_kubeconfig_of(&path, &token, ctx.namespace())
        .expect("a kubeconfig");
    let one = ctx
        .controller()
        .usual_lease_times()
        .replica("one")
        .program("/usr/bin/nsenter")
        .arg(&network)
        .arg(&binary().display().to_string())
        .kubeconfig(path)
        .start();
    one.leading().await;
    let supervised = SupervisedController::start(ctx.controller().usual_lease_times().replica("other"));
    let scene = Scene { rollout, supervised };
    scene.begin().await;
    let link = |state: &str| {
        let mut command = std::process::Command::new("/usr/bin/nsenter");
        let done = command
            .args([&network, "ip", "link", "set", "lo", state])
            .status();
        assert!(done.expect("nsenter").success(), "ip link set lo {state}");
    };
    let began = Instant::now();
    link("down");
    // It must not write when the other one leads, so it ends before.
    let status = one.ended(SOON).await;
    let ended = began.elapsed();
    assert_eq!(status.code(), Some(1), "{}", one.log());
    let ctx = &scene.rollout.ctx;
    let leases =
        Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(ctx.client.clone(), ctx.namespace());
    let name = crate::testenv::controller::NAME;
    wait::object(leases, name, "is held by the other", SOON, |lease| {
        lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref())
            == Some("other")
    })
    .await;
    let led = began.elapsed();
    assert!(
        ended < led,
        "it ended after {ended:?}, and the other led after {led:?}"
    );
    link("up");
    let what = format!(
        "leader cut off from the network: it ended after {:.1} s, the other led after {:.1} s",
        ended.as_secs_f64(),
        led.as_secs_f64()
    );
    scene.recovers(&what).await;
}

const SMALL: Shape = Shape { nodes: 8, ..SHAPE };

#[tokio::test]
async fn an_etcd_that_is_frozen_stops_nothing_for_good() {
    etcd_frozen(SMALL, SHORT).await;
}

#[tokio::test]
async fn a_webhook_for_jobs_that_hangs_stops_nothing_for_good() {
    webhook_hangs(SMALL, SHORT).await;
}

#[tokio::test]
async fn a_token_that_is_refused_is_read_again_from_its_file() {
    token_expires(SHAPE, SHORT).await;
}

#[tokio::test]
async fn stale_events_are_not_read() {
    stale_events(SMALL, 200).await;
}

#[tokio::test]
#[ignore = "long: just soak"]
async fn faults_of_machines_are_survived_and_printed() {
    api_server_away(SHAPE, LONG).await;
    etcd_frozen(SHAPE, LONG).await;
    too_many_requests(SHAPE, LONG).await;
    webhook_hangs(SHAPE, LONG).await;
    token_expires(SHAPE, LONG).await;
    stale_events(SHAPE, 10_000).await;
}

#[tokio::test]
#[ignore = "long: just soak"]
async fn an_etcd_that_is_restored_from_a_snapshot_lets_the_roll_out_end() {
    etcd_restored().await;
}

#[tokio::test]
#[ignore = "needs root, for a network namespace: just soak"]
async fn a_leader_that_is_cut_off_ends_before_the_other_leads() {
    leader_partitioned().await;
}
