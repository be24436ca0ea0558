//! `examples/careful.yaml` on a real control plane with 40 nodes, with shorter times: each gate is seen closed and
//! open, and the controller is killed at each. The invariants of the simulation hold at every change.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams};
use refit_api::{NodePhase, Plan, names};
use refit_rehearse::Kind;
use refit_rehearse::journal::JournalEvent;
use serde_json::{Value, json};

use crate::rollout::{PLAN, RollOut, Shape};
use crate::testenv::binaries::kubernetes_version;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, find_condition};
use crate::testenv::controller::Controller;
use crate::testenv::plan::status;
use crate::testenv::wait::SOON;

const SHAPE: Shape = Shape {
    nodes: 40,
    concurrency: 5,
    run: Duration::from_millis(500),
};
const ZONES: [&str; 3] = ["north", "south", "west"];

/// A roll-out of the example, and the controller that runs it.
struct Careful {
    rollout: RollOut,
    controller: Controller,
}

impl Careful {
    /// Nothing may start yet: a freeze, and a window far away.
    async fn begin() -> Self {
        let mut rollout = RollOut::prepare(TestContext::new().await, SHAPE).await;
        let ctx = &rollout.ctx;
        for number in 0..SHAPE.nodes {
            let mut labels =
                json!({ "k3s-upgrade": "", "topology.kubernetes.io/zone": ZONES[number % ZONES.len()] });
            if number < 2 {
                labels["canary"] = "true".into();
            }
            // Those of the canaries end when the controller has been killed in them.
            let time = if number < 2 { "never" } else { "100ms" };
            let steering = json!({ "fake-kubelet/verify.run-delay": time });
            let metadata = json!({ "labels": labels, "annotations": steering });
            ctx.edit_node(&node(ctx, number), json!({ "metadata": metadata }))
                .await;
        }
        let map = json!({ "metadata": { "name": "refit", "namespace": ctx.namespace() }, "data": { "freeze": "audit" } });
        create::<ConfigMap>(&Self::maps(ctx), map).await;
        rollout.spec = example(ctx.now());
        let controller = rollout.controller().start();
        controller.leading().await;
        rollout.begin().await;
        Self { rollout, controller }
    }

    fn maps(ctx: &TestContext) -> Api<ConfigMap> {
        Api::namespaced(ctx.client.clone(), ctx.namespace())
    }

    async fn plan(&self, what: &str, good: impl Fn(&Plan) -> bool) -> Plan {
        self.rollout.ctx.plan_until(PLAN, what, SOON, good).await
    }

    /// Waits until the Plan waits for this reason.
    async fn waits(&self, reason: &str) {
        self.plan(&format!("waits: {reason}"), |plan| is_held(plan, reason))
            .await;
    }

    /// Kills the controller where the Plan waits: the next one waits for the same reason, and starts nothing.
    async fn killed_while_it_waits(&mut self, reason: &str) {
        self.waits(reason).await;
        let before = self.started().await;
        self.controller.kill();
        self.controller = self.controller.start_again();
        // It has decided once it has answered a later edit.
        let now = self.rollout.ctx.plans().get(PLAN).await.unwrap();
        let round = now.metadata.generation.unwrap_or_default();
        let edited = self
            .edit(json!({ "postCompleteLabels": { format!("round-{round}"): "x" } }))
            .await;
        let generation = edited.metadata.generation;
        let answered = |plan: &Plan| status(plan).observed_generation == generation && is_held(plan, reason);
        let plan = self.plan(&format!("waits again: {reason}"), answered).await;
        assert_eq!(status(&plan).applying, None, "{reason}");
        assert_eq!(self.started().await, before, "{reason}");
    }

    /// Names of the nodes that have had a Job.
    async fn started(&self) -> BTreeSet<String> {
        let jobs = self.rollout.ctx.jobs_of(PLAN).await;
        let node = |job: &k8s_openapi::api::batch::v1::Job| {
            let labels = job.metadata.labels.as_ref()?;
            labels.get("upgrade.cattle.io/node").cloned()
        };
        jobs.iter().filter_map(node).collect()
    }

    async fn started_numbers(&self) -> BTreeSet<usize> {
        let ctx = &self.rollout.ctx;
        let started = self.started().await;
        (0..SHAPE.nodes)
            .filter(|number| started.contains(&node(ctx, *number)))
            .collect()
    }

    async fn edit(&self, spec: Value) -> Plan {
        self.rollout.ctx.edit_plan(PLAN, json!({ "spec": spec })).await
    }

    async fn approve(&self) -> String {
        let ctx = &self.rollout.ctx;
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_refit"))
            .args(["approve", PLAN, "-n", ctx.namespace()])
            .env("KUBECONFIG", ctx.test_env.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn node(ctx: &TestContext, number: usize) -> String {
    ctx.node_name(&format!("n{number:04}"))
}

/// The spec of the example, with another soak of the canaries, a short one of the next wave, and a window that is closed.
fn example(now: Timestamp) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/careful.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let mut plans: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    plans.retain(|object| object["kind"] == "Plan");
    let mut spec = plans.remove(0)["spec"].take();
    spec.as_object_mut().unwrap().remove("channel");
    // Not older than the kubelets, and not newer than the control plane.
    spec["version"] = kubernetes_version().into();
    spec["verify"] = json!({ "image": "example.com/verify" });
    spec["windows"] = json!([closed_window(now)]);
    // Until the test ends it.
    spec["waves"][0]["soak"] = "10m".into();
    spec["waves"][1]["soak"] = "4s".into();
    spec
}

/// Some hours at the other end of the day: long enough for a node.
fn closed_window(now: Timestamp) -> Value {
    let later = (now + SignedDuration::from_hours(12)).to_zoned(jiff::tz::TimeZone::UTC);
    json!({ "cron": format!("{} {} * * *", later.minute(), later.hour()), "duration": "6h", "timeZone": "UTC" })
}

/// Whether the Plan is not Complete, or a node of it does not start, for this reason.
fn is_held(plan: &Plan, reason: &str) -> bool {
    let complete = find_condition(plan, "Complete").and_then(|it| it.reason.clone());
    let active = status(plan).active.unwrap_or_default();
    let waits = active
        .into_iter()
        .filter(|node| node.phase == NodePhase::Waiting)
        .filter_map(|node| node.reason);
    complete.into_iter().chain(waits).any(|it| it == reason)
}

fn is_in_wave(plan: &Plan, wave: &str) -> bool {
    status(plan).wave.is_some_and(|it| it.name == wave)
}

#[tokio::test]
async fn a_careful_roll_out_passes_each_gate_once_although_its_controller_is_killed_there() {
    let mut careful = Careful::begin().await;

    // The ConfigMap freezes, and then the window is closed.
    careful.killed_while_it_waits("Frozen").await;
    let maps = Careful::maps(&careful.rollout.ctx);
    maps.delete("refit", &DeleteParams::default()).await.unwrap();
    careful.killed_while_it_waits("WindowClosed").await;
    assert_eq!(careful.started().await.len(), 0);
    careful.edit(json!({ "windows": null })).await;

    // The canaries, which are verified, and their soak.
    careful
        .plan("verifies a node", |plan| {
            let mut active = status(plan).active.unwrap_or_default().into_iter();
            active.any(|node| node.phase == NodePhase::Verifying)
        })
        .await;
    careful.controller.kill();
    careful.controller = careful.controller.start_again();
    for number in 0..2 {
        let name = node(&careful.rollout.ctx, number);
        let ends = [("verify.run-delay", "100ms")];
        careful.rollout.kubelet.behaviour(&name, &ends).await;
    }
    careful.killed_while_it_waits("WaveSoaking").await;
    assert_eq!(careful.started_numbers().await, [0, 1].into());
    let mut waves = careful.rollout.spec["waves"].clone();
    waves[0]["soak"] = "1s".into();
    careful.edit(json!({ "waves": waves })).await;
    careful
        .plan("is in the second wave", |plan| is_in_wave(plan, "tenth"))
        .await;

    // A tenth of the nodes, canaries included, and somebody's look.
    careful.killed_while_it_waits("WaveNotApproved").await;
    assert_eq!(careful.started().await.len(), 4);
    // A tenth of the nodes is down for other reasons before the others may start. They are in the last zone: a node that is
    // unavailable already may start when it is its turn.
    let ctx = &careful.rollout.ctx;
    let cordoned = (0..SHAPE.nodes).filter(|number| ZONES[number % ZONES.len()] == "west");
    let cordoned: Vec<usize> = cordoned.take(4).collect();
    for number in &cordoned {
        ctx.cordon(&node(ctx, *number)).await;
    }
    let said = careful.approve().await;
    assert!(said.contains("tenth"), "{said}");
    careful.killed_while_it_waits("MaxUnavailable").await;
    let ctx = &careful.rollout.ctx;
    for number in &cordoned {
        ctx.uncordon(&node(ctx, *number)).await;
    }
    careful.rollout.under_way(9).await;
    careful.controller.kill();
    careful.controller = careful.controller.start_again();

    // The rest, one zone after the other, as the invariants check.
    let plan = careful.rollout.ends().await;
    careful.rollout.check_but_events(&plan).await;
    let mut waves = Vec::new();
    for entry in careful.rollout.journal().await {
        if let JournalEvent::Change(Kind::Plan, change) = &entry.what {
            let wave = change.new.value["status"]["wave"]["name"].as_str();
            waves.extend(wave.map(str::to_owned));
        }
    }
    waves.dedup();
    assert_eq!(waves, ["canary", "tenth", "rest"], "each wave once, and in order");
    let jobs = careful.rollout.ctx.jobs_of(PLAN).await;
    let verifies = |job: &&k8s_openapi::api::batch::v1::Job| {
        let annotations = job.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(names::ANNOTATION_VERIFIES))
    };
    assert_eq!(
        jobs.iter().filter(verifies).count(),
        SHAPE.nodes,
        "each node is verified once"
    );
}
