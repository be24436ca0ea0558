//! Attacks on a real control plane, one at a time, while a healthy Plan rolls out: the Plan is as fast as without them, the
//! Lease is renewed, the memory stays below its limit, the object of the attacker is named, and a restart works at once.
//!
//! `cargo cluster` runs some of them on few nodes, and compares no times. `just attacks`, and `just soak`, run all on 50
//! nodes and print a table, whose extremes are in `docs/security.md`; `REFIT_ATTACK=Secrets,windows just attacks` runs those with one
//! of these words.

mod list;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use refit_api::Plan;
use serde_json::{Value, json};

use crate::testenv::channel::ChannelServer;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::Controller;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::plan::{plan, status};
use crate::testenv::terminal;
use crate::testenv::wait::{self, SOON};
use list::{Attack, ReportedIn, attacks};

const HEALTHY: &str = "healthy";
/// A Plan for one node, which shows that a controller works.
const ONE: &str = "one";
/// Limit of the controller's memory beside its program, whose pages are many without optimization.
const MEMORY: u64 = 128 << 20;
/// The most that an attack may slow down the healthy Plan.
const SLOWDOWN: f64 = 1.1;
/// Maximum time of a roll-out.
const LIMIT: Duration = Duration::from_secs(300);

struct Shape {
    nodes: usize,
    concurrency: usize,
    run: &'static str,
}

/// A control plane with a healthy Plan, a controller, and a channel server of the attacker.
struct Scene {
    ctx: TestContext,
    channel: ChannelServer,
    controller: Controller,
    shape: Shape,
    /// The number of the version that the healthy Plan has.
    version: usize,
    /// Most resident memory of the controller that was ended last.
    peak: u64,
    _kubelet: FakeKubelet,
}

impl Scene {
    async fn open(shape: Shape) -> Self {
        let ctx = TestContext::alone().await;
        let nodes = NodeSet::numbered(&ctx.node_name("n"), shape.nodes)
            .labels(ctx.node_labels())
            .steer("run-delay", shape.run);
        let kubelet = ctx.run(nodes).await;
        let controller = ctx.start_and_warm_up().await;
        let spec = format!(
            "{{concurrency: {}, nodeSelector: {{}}, version: v0, cordon: true, serviceAccountName: system-upgrade, upgrade: {{image: i}}}}",
            shape.concurrency
        );
        ctx.plan(&plan(HEALTHY, &spec)).await;
        let one = format!(
            "{{concurrency: 1, nodeSelector: {{matchLabels: {{kubernetes.io/hostname: {}}}}}, version: v0, upgrade: {{image: i}}}}",
            ctx.node_name("n0000")
        );
        ctx.plan(&plan(ONE, &one)).await;
        let mut scene = Self {
            channel: ChannelServer::start().await,
            controller,
            ctx,
            shape,
            version: 0,
            peak: 0,
            _kubelet: kubelet,
        };
        scene.roll_out().await;
        scene
    }

    /// Upgrades all nodes to the next version, and returns how long that took.
    async fn roll_out(&mut self) -> Duration {
        self.version += 1;
        let version = format!("v{}", self.version);
        let began = Instant::now();
        self.ctx
            .edit_plan(HEALTHY, json!({ "spec": { "version": version } }))
            .await;
        self.upgraded(HEALTHY, &version, self.shape.nodes).await;
        began.elapsed()
    }

    /// Waits until a Plan is complete at a version on so many nodes.
    async fn upgraded(&self, plan: &str, version: &str, nodes: usize) {
        let all = i64::try_from(nodes).unwrap();
        let is_over = |plan: &Plan| {
            let status = status(plan);
            let counts = status.nodes.unwrap_or_default();
            let mut conditions = status.conditions.iter();
            let is_complete = conditions.any(|it| it.type_ == "Complete" && it.status == "True");
            status.latest_version.as_deref() == Some(version) && is_complete && counts.done == all
        };
        let what = format!("is complete at {version}");
        self.ctx.plan_until(plan, &what, LIMIT, is_over).await;
    }

    async fn lease(&self) -> LeaseSpec {
        // An attacker may have given it a time that this test cannot read either.
        wait::eventually("a Lease with times that can be read", SOON, async || {
            let lease = self.leases().get("system-upgrade-controller").await;
            lease
                .map_err(|error| error.to_string())?
                .spec
                .ok_or_else(String::new)
        })
        .await
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.ctx.client.clone(), self.ctx.namespace())
    }

    /// Ends the controller and starts another, and returns how long it takes until that has upgraded a node.
    async fn restart(&mut self) -> Duration {
        assert!(
            self.controller.terminate().await.success(),
            "{}",
            self.controller.log()
        );
        let began = Instant::now();
        self.controller = self.controller.start_again();
        self.ctx.wait_until_working(&self.controller).await;
        let version = format!("v{}", self.controller.pid());
        self.ctx
            .edit_plan(ONE, json!({ "spec": { "version": version } }))
            .await;
        self.upgraded(ONE, &version, 1).await;
        began.elapsed()
    }

    async fn put(&self, object: &Value) {
        let Some("Node") = object["kind"].as_str() else {
            self.ctx.try_apply(object.clone()).await.unwrap();
            return;
        };
        let nodes = self.nodes();
        create(&nodes, object.clone()).await;
        let status = json!({ "status": object["status"] });
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(&status);
        nodes
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Nodes without a type, which no client could write.
    fn nodes(&self) -> Api<DynamicObject> {
        Api::all_with(self.ctx.client.clone(), &ApiResource::erase::<Node>(&()))
    }

    async fn remove(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let now = DeleteParams::default().grace_period(0);
        match object["kind"].as_str().unwrap() {
            "Node" => drop(self.nodes().delete(name, &now).await.unwrap()),
            "Pod" => drop(self.ctx.pods().delete(name, &now).await.unwrap()),
            "Secret" => drop(self.ctx.secrets().delete(name, &now).await.unwrap()),
            // The leader writes it again.
            "Lease" => {}
            "Plan" => self.ctx.delete_plan(name).await,
            kind => {
                let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
                let namespace = self.ctx.namespace();
                let objects =
                    Api::<DynamicObject>::namespaced_with(self.ctx.client.clone(), namespace, &kind);
                drop(objects.delete(name, &now).await.unwrap());
            }
        }
    }

    /// Waits until the object of the attacker is named.
    async fn is_named(&self, attack: &Attack) {
        let what = format!("{}: {:?}", attack.what, attack.reported_in);
        wait::eventually(&what, SOON, async || match &attack.reported_in {
            ReportedIn::Status(name, text) => {
                let plan = self.ctx.plans().get(name).await.unwrap();
                let status = serde_json::to_string(&status(&plan)).unwrap();
                status.contains(text).then_some(()).ok_or(status)
            }
            ReportedIn::Event(name, reason) => {
                let of_it = format!("involvedObject.name={name},reason={reason}");
                let events = Api::<Event>::all(self.ctx.client.clone());
                let found = events.list(&ListParams::default().fields(&of_it)).await.unwrap();
                (!found.items.is_empty()).then_some(()).ok_or(of_it)
            }
            ReportedIn::Nowhere => Ok(()),
        })
        .await;
    }

    /// Attacks during roll-outs, and returns how long these and a restart took. If the median is slower than `usual` by more
    /// than an attack may cost, there are two more: a controller that waits for an attack is slow each time, and a busy
    /// machine is not.
    async fn run_attack(&mut self, attack: &Attack, usual: Option<Duration>) -> (Vec<Duration>, Duration) {
        for object in &attack.objects {
            self.put(object).await;
        }
        let before = self.lease().await;
        let mut times = vec![self.attacked(attack).await];
        while let Some(usual) = usual
            && (times.len() < 3 || times.len() < 5 && is_slow(median(&times), usual))
        {
            times.push(self.attacked(attack).await);
        }
        let after = self.lease().await;
        assert!(after.renew_time > before.renew_time, "{}", attack.what);
        assert_eq!(after.holder_identity, before.holder_identity, "{}", attack.what);
        self.is_named(attack).await;
        let taken = self.controller.peak_data();
        assert!(taken < MEMORY, "{}: {taken} bytes", attack.what);
        self.peak = self.controller.peak_memory().expect("it is measured");
        let restarted = self.restart().await;
        let taken = self.controller.peak_data();
        assert!(taken < MEMORY, "{}: {taken} bytes after a restart", attack.what);
        (times, restarted)
    }

    /// A roll-out during which the attacker repeats the attack.
    async fn attacked(&mut self, attack: &Attack) -> Duration {
        let attacker = repeat(self.nodes(), self.leases(), attack);
        tokio::select! {
            took = self.roll_out() => took,
            () = attacker => unreachable!("it repeats the attack without end"),
        }
    }
}

/// Writes the Nodes of the attacker again and again, so that the watch shows them again, and the Lease, so that each
/// renewal meets a conflict.
async fn repeat(nodes: Api<DynamicObject>, leases: Api<Lease>, attack: &Attack) {
    for round in 0_usize.. {
        for lease in attack.objects.iter().filter(|it| it["kind"] == "Lease") {
            let name = lease["metadata"]["name"].as_str().unwrap();
            let patch = Patch::Merge(lease);
            let _ = leases.patch(name, &PatchParams::default(), &patch).await;
        }
        for node in attack.objects.iter().filter(|it| it["kind"] == "Node") {
            let name = node["metadata"]["name"].as_str().unwrap();
            let note = json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } });
            let patch = Patch::Merge(&note);
            let _ = nodes.patch(name, &PatchParams::default(), &patch).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}

fn is_slow(took: Duration, usual: Duration) -> bool {
    took.as_secs_f64() > usual.as_secs_f64() * SLOWDOWN
}

/// One attack for each kind of source.
#[tokio::test]
async fn whatever_a_node_a_plan_and_a_channel_hold_a_healthy_plan_ends_and_the_lease_is_kept() {
    let mut scene = Scene::open(Shape {
        nodes: 6,
        concurrency: 3,
        run: "300ms",
    })
    .await;
    for attack in attacks(&scene.ctx, &scene.channel) {
        if attack.is_short {
            scene.run_attack(&attack, None).await;
            for object in &attack.objects {
                scene.remove(object).await;
            }
        }
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes three quarters of an hour and wants the machine for itself: just attacks"]
    async fn under_each_attack_a_plan_for_fifty_nodes_is_as_fast_as_without() {
        let mut scene = Scene::open(Shape {
            nodes: 50,
            concurrency: 10,
            run: "2s",
        })
        .await;
        let mut usual = vec![scene.roll_out().await, scene.roll_out().await];
        let mut slow = Vec::new();
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let megabytes = |bytes: u64| format!("{} MiB", bytes >> 20);
        terminal::say("| attack | by | without | with | | memory | restart | named by |");
        terminal::say("|---|---|---|---|---|---|---|---|");
        let only = std::env::var("REFIT_ATTACK").unwrap_or_default();
        let mut chosen = attacks(&scene.ctx, &scene.channel);
        chosen.retain(|attack| only.split(',').any(|word| attack.what.contains(word)));
        assert!(!chosen.is_empty(), "no attack has a word of {only:?} in its name");
        for attack in chosen {
            // The machine may become faster or slower meanwhile: compare with the roll-outs around this one.
            usual.push(scene.roll_out().await);
            let around = median(&usual[usual.len() - 3..]);
            let (times, restarted) = scene.run_attack(&attack, Some(around)).await;
            let took = median(&times);
            let ratio = took.as_secs_f64() / around.as_secs_f64() * 100.0 - 100.0;
            let peak = scene
                .peak
                .max(scene.controller.peak_memory().expect("it is measured"));
            terminal::say(&format!(
                "| {} | {} | {} | {} | {ratio:+.0} % | {} | {} | {} |",
                attack.what,
                attack.by,
                seconds(around),
                seconds(took),
                megabytes(peak),
                seconds(restarted),
                attack.reported_in.text(),
            ));
            if is_slow(took, around) {
                slow.push(attack.what);
            }
            for object in &attack.objects {
                scene.remove(object).await;
            }
        }
        assert!(slow.is_empty(), "too slow: {slow:?}");
    }
}
