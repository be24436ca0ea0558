//! The simulated cluster does what a real one does: eight roll-outs, each written once and run on both, and what happened
//! to each object in which order.
//!
//! Two tests that run in two programs compare through a file. In process, a scenario must give the journal in
//! `journals/snapshots`, which is reviewed when it changes; on a real control plane it must come to the same one. So other
//! scenarios need no real control plane, unless their subject is the API server, the Job controller or the binary.

mod normal;

use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams};
use refit_api::Plan;
use refit_rehearse::Kind;
use serde_json::{Value, json};

use crate::harness::{Harness, active, apply_component, has_condition, hash, label};
use crate::jobs::adoption::{job_of_suc, plan_of_suc};
use crate::scenario::Backend;
use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::journal::Journal;
use crate::testenv::kubelet::{DrainProcesses, NodeSet};
use crate::testenv::plan::status;
use crate::testenv::simulated::Simulated;
use crate::testenv::wait::{self, SOON};

scenarios! {
    both {
        nodes_are_rebooted_one_after_the_other,
        a_failure_holds_its_slot_until_an_edit_and_an_upgrade_that_runs_survives_one,
        a_drain_waits_for_a_budget,
        a_job_of_system_upgrade_controller_is_adopted,
        a_window_opens,
        a_controller_is_killed_where_it_waits,
        a_wave_waits_for_its_approval_and_every_start_for_a_check,
        a_maintenance_and_a_plan_take_turns,
    }
}

/// Longer than anything is written later in virtual time.
const AT_REST: Duration = Duration::from_secs(120);

/// A label by which nodes have an order.
const TURN: &str = "turn";

/// A scenario whose journal is kept.
struct Scene {
    harness: Harness,
    journal: Journal,
    /// What the scenario has waited for.
    steps: Vec<String>,
}

impl Scene {
    /// Nodes that start in this order, with upgrades that run until [`Harness::release`].
    async fn held<const N: usize>(on: Backend, nodes: [&str; N]) -> Self {
        Self::with(on.context().await, nodes).await
    }

    async fn with<const N: usize>(ctx: TestContext, nodes: [&str; N]) -> Self {
        let kinds = [Kind::Node, Kind::Plan, Kind::Job, Kind::Pod];
        Self::with_kinds(ctx, nodes, &kinds).await
    }

    async fn with_kinds<const N: usize>(ctx: TestContext, nodes: [&str; N], kinds: &[Kind]) -> Self {
        // On a real control plane, the containers that cordon and drain are processes; the simulated kubelets run their code.
        let kubeconfig = match ctx.test_env.as_simulated() {
            Some(_) => None,
            None => Some(ctx.write_kubeconfig("containers", &ctx.token("system-upgrade").await)),
        };
        let ordered = |set: NodeSet| {
            let set = set.each(|index, node| {
                node.labels.insert(TURN.to_owned(), index.to_string());
            });
            let set = crate::harness::held(set);
            match kubeconfig {
                Some(kubeconfig) => set.task_runner(DrainProcesses { kubeconfig }),
                None => set,
            }
        };
        let harness = Harness::on(ctx, nodes, ordered).await;
        let journal = Journal::of(&harness.ctx, kinds);
        journal.caught_up().await;
        Self {
            harness,
            journal,
            steps: Vec::new(),
        }
    }

    /// Makes a Plan whose nodes start in their order.
    async fn plan(&mut self, name: &str, spec: Value) -> Plan {
        self.step(&format!("Plan {name}: {spec}"));
        let order = json!({ "spec": { "order": [{ "labelNumber": TURN }] } });
        let more = crate::harness::both(order, json!({ "spec": spec }));
        self.harness.plan(name, more).await
    }

    async fn edit(&mut self, plan: &str, spec: Value) {
        self.step(&format!("edit of {plan}: {spec}"));
        self.harness.edit(plan, spec).await;
    }

    fn step(&mut self, what: &str) {
        self.steps.push(what.to_owned());
    }

    /// Waits until status says that the node is in that phase.
    async fn phase(&mut self, plan: &str, node: &str, phase: &str) {
        let progress = self.harness.phase(plan, node, phase).await;
        self.step(&format!(
            "{node} is {phase}, attempt {}",
            progress.attempt.unwrap_or_default()
        ));
    }

    /// Waits until status says that the node is held up for that reason, in words that contain the text.
    async fn held_up_as(&mut self, plan: &str, node: &str, reason: &str, text: &str) {
        let name = self.harness.node(node);
        let held_up = |plan: &Plan| {
            let progress = active(plan, &name)?;
            let message = progress.message.as_deref().unwrap_or_default();
            (progress.reason.as_deref() == Some(reason) && message.contains(text)).then(|| progress.clone())
        };
        let what = format!("says that {name} is held up by {reason}: {text}");
        let ctx = &self.harness.ctx;
        let found = ctx.plan_until(plan, &what, SOON, |plan| held_up(plan).is_some());
        let progress = held_up(&found.await).unwrap();
        let message = progress.message.unwrap_or_default();
        self.step(&format!("{node} is {}, {reason}: {message}", progress.phase));
    }

    /// As [`Self::held_up_as`], in any words.
    async fn held_up(&mut self, plan: &str, node: &str, reason: &str) {
        self.held_up_as(plan, node, reason, "").await;
    }

    async fn release(&mut self, node: &str) {
        self.step(&format!("the upgrade of {node} ends"));
        self.harness.release(node).await;
    }

    async fn job_is(&self, plan: &str, node: &str, condition: &str) -> String {
        let is = |job: &k8s_openapi::api::batch::v1::Job| has_condition(job, condition);
        let job = self.harness.job_until(plan, node, condition, is).await;
        job.name_any()
    }

    /// Compares the journal with that in the file of this name, when the Plan is complete.
    async fn compare(mut self, name: &str, plan: &str) {
        let done = status(&self.harness.ctx.plan_complete(plan, SOON).await);
        self.step(&format!(
            "{plan} is complete: {}",
            done.progress.unwrap_or_default()
        ));
        self.harness.all_recorded(plan).await;
        let now = async || normal::text(&self.harness.ctx, &self.journal, &self.steps).await;
        if self.harness.ctx.test_env.as_simulated().is_some() {
            tokio::time::sleep(AT_REST).await;
            let mut settings = insta::Settings::clone_current();
            settings.set_snapshot_path("journals/snapshots");
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            let text = now().await;
            settings.bind(|| insta::assert_snapshot!(name, text));
            return;
        }
        // Some writes come later than what they report.
        let expected = snapshot(name);
        wait::eventually("the journal is that of the simulated cluster", SOON, async || {
            let found = now().await;
            if found == expected {
                return Ok(());
            }
            let diff = similar::TextDiff::from_lines(expected.as_str(), &found);
            Err(format!("\n{}", diff.unified_diff().header("simulated", "real")))
        })
        .await;
    }
}

/// The journal in a file of insta, without its header.
fn snapshot(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/journals/snapshots/{name}.snap"));
    let text = std::fs::read_to_string(&file).unwrap();
    let (_, body) = text[3..].split_once("---\n").unwrap();
    body.to_owned()
}

async fn nodes_are_rebooted_one_after_the_other(on: Backend) {
    let mut scene = Scene::held(on, ["one", "two"]).await;
    let _controller = scene.harness.ctx.controller().start();
    let spec = json!({
        "cordon": true, "reboot": { "when": "Always", "timeout": "170s" }, "settle": { "minReady": "0s" },
    });
    scene.plan("os", spec).await;
    for node in ["one", "two"] {
        scene.phase("os", node, "Upgrading").await;
        // Long enough to be seen.
        let slow = [("upgrade.run-delay", "0"), ("boot-delay", "6s")];
        scene.harness.behave(node, &slow).await;
        scene.phase("os", node, "Rebooting").await;
    }
    scene.compare("reboot", "os").await;
}

async fn a_failure_holds_its_slot_until_an_edit_and_an_upgrade_that_runs_survives_one(on: Backend) {
    let mut scene = Scene::held(on, ["one", "two"]).await;
    let controller = scene.harness.ctx.controller();
    let _controller = controller.env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0").start();
    let fails = [
        ("upgrade.run-delay", "0"),
        ("upgrade.exit-code", "7"),
        ("upgrade.message", "no space left on device"),
    ];
    scene.harness.behave("one", &fails).await;
    scene.plan("os", json!({ "cordon": true })).await;
    scene.phase("os", "one", "Failed").await;
    scene.held_up("os", "two", "NoSlot").await;
    scene.harness.all_recorded("os").await;
    scene.harness.hold("one").await;
    scene.edit("os", json!({ "version": "v2" })).await;
    scene.phase("os", "one", "Upgrading").await;
    scene.edit("os", json!({ "version": "v3" })).await;
    let edited = |plan: &Plan| status(plan).latest_version.as_deref() == Some("v3");
    let ctx = &scene.harness.ctx;
    ctx.plan_until("os", "is resolved again", SOON, edited).await;
    for node in ["one", "two"] {
        scene.release(node).await;
    }
    scene.compare("failure-and-edit", "os").await;
}

async fn a_drain_waits_for_a_budget(on: Backend) {
    let ctx = on.context().await;
    let mut scene = Scene::with(ctx, ["one", "two"]).await;
    let ctx = &scene.harness.ctx;
    let maps = Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace());
    let owner = create(
        &maps,
        json!({ "metadata": { "name": "owner", "namespace": ctx.namespace() } }),
    )
    .await;
    for (name, app) in [("web", "web"), ("batch", "batch")] {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": ctx.namespace(), "labels": { "app": app },
                "annotations": { "fake-kubelet/run-delay": "never" },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "controller": true,
                }],
            },
            "spec": {
                "nodeName": scene.harness.node("one"), "terminationGracePeriodSeconds": 2,
                "containers": [{ "name": "main", "image": "example.com/main" }],
            },
        });
        create::<Pod>(&ctx.pods(), pod).await;
    }
    let budgets = Api::<PodDisruptionBudget>::namespaced(ctx.client.clone(), ctx.namespace());
    let budget = json!({
        "metadata": { "name": "guard", "namespace": ctx.namespace() },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    create(&budgets, budget).await;
    let counted = |budget: &PodDisruptionBudget| {
        let status = budget.status.as_ref();
        status.is_some_and(|status| status.current_healthy == Some(1))
    };
    wait::object(budgets.clone(), "guard", "counts the pod", SOON, counted).await;
    let _controller = ctx.controller().start();
    scene.plan("os", json!({ "drain": {} })).await;
    scene
        .held_up_as("os", "one", "DrainWaiting", "1 of 2 pods are gone")
        .await;
    scene.held_up("os", "two", "NoSlot").await;
    budgets.delete("guard", &DeleteParams::default()).await.unwrap();
    scene.step("the budget is deleted");
    for node in ["one", "two"] {
        scene.phase("os", node, "Upgrading").await;
        scene.release(node).await;
    }
    scene.compare("budget", "os").await;
}

async fn a_job_of_system_upgrade_controller_is_adopted(on: Backend) {
    let mut scene = Scene::held(on, ["one", "two", "three"]).await;
    let (plan, harness) = ("k3os-latest", &scene.harness);
    let left = plan_of_suc(harness, &["one"]).await;
    let three = harness.node("three");
    let ctx = &harness.ctx;
    ctx.label_node(&three, &label(plan), Some(&hash(&left))).await;
    job_of_suc(harness, &left, "one", 1).await;
    wait::until(
        "the upgrade runs",
        async || harness.runs("one", "upgrade").await,
        |runs| *runs > 0,
    )
    .await;
    let _controller = ctx.controller().start();
    scene.phase(plan, "one", "Upgrading").await;
    scene.release("one").await;
    scene.phase(plan, "two", "Upgrading").await;
    scene.release("two").await;
    scene.compare("adoption", plan).await;
}

async fn a_window_opens(on: Backend) {
    let mut scene = Scene::held(on, ["one"]).await;
    let controller = scene.harness.ctx.start_and_warm_up().await;
    let now = scene.harness.ctx.now();
    // A daily window of an hour.
    let window = |after: SignedDuration| {
        let clock = |after: SignedDuration| (now + after).strftime("%H:%M:%S").to_string();
        let days = ["su", "mo", "tu", "we", "th", "fr", "sa"];
        json!({
            "days": days, "startTime": clock(after), "timeZone": "UTC",
            "endTime": clock(after + SignedDuration::from_hours(1)),
        })
    };
    let spec = json!({ "window": window(SignedDuration::from_hours(3)) });
    scene.harness.plan_with("os", spec).await;
    scene.held_up("os", "one", "WindowClosed").await;
    controller.kill();
    let _controller = controller.start_again();
    // On a busy machine it is open by then, which makes no difference. No event on the cluster wakes the controller.
    let spec = json!({ "window": window(SignedDuration::from_secs(10)) });
    scene.harness.edit("os", spec).await;
    scene.phase("os", "one", "Upgrading").await;
    scene.release("one").await;
    scene.compare("window", "os").await;
}

async fn a_controller_is_killed_where_it_waits(on: Backend) {
    let mut scene = Scene::held(on, ["one", "two"]).await;
    let controller = scene.harness.ctx.controller().start();
    scene.plan("os", json!({ "cordon": true })).await;
    scene.phase("os", "one", "Upgrading").await;
    scene.step("the controller is killed");
    controller.kill();
    scene.release("one").await;
    scene.job_is("os", "one", "Complete").await;
    scene.step("another one starts");
    let controller = controller.start_again();
    scene.phase("os", "two", "Upgrading").await;
    scene.harness.expect_complete_events(["one"]).await;
    scene.step("two is not Ready");
    let two = scene.harness.node("two");
    scene.harness.kubelet.set_not_ready(&two).await;
    scene.release("two").await;
    let job = scene.job_is("os", "two", "Complete").await;
    scene.held_up("os", "two", "NodeNotReady").await;
    scene.harness.all_recorded("os").await;
    scene.step("the controller is killed, and the Job deleted");
    controller.kill();
    let job = scene.harness.ctx.jobs().get(&job).await.unwrap();
    scene.harness.delete_job(&job).await;
    scene.step("another one starts");
    let controller = controller.start_again();
    scene.harness.ctx.wait_until_working(&controller).await;
    scene.held_up("os", "two", "NodeNotReady").await;
    scene.step("two is Ready");
    scene.harness.kubelet.set_ready(&two).await;
    scene.compare("kills", "os").await;
}

/// What answers to a check: a server, or the simulated cluster.
enum CheckServer {
    Simulated(Simulated),
    Real(ChannelServer),
}

impl CheckServer {
    async fn start(ctx: &TestContext) -> Self {
        match ctx.test_env.as_simulated() {
            Some(simulated) => Self::Simulated(simulated.clone()),
            None => Self::Real(ChannelServer::start().await),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Simulated(_) => "http://shop.example.com/healthz".to_owned(),
            Self::Real(server) => server.url("/healthz"),
        }
    }

    fn set(&self, passes: bool) {
        match self {
            Self::Simulated(simulated) => {
                simulated.set_check("shop", (!passes).then_some("HTTP/1.1 503 Service Unavailable"));
            }
            Self::Real(server) => {
                let code = if passes { 200 } else { 503 };
                server.answers("/healthz", Answer::Plain(code, "text/plain", String::new()));
            }
        }
    }
}

async fn a_wave_waits_for_its_approval_and_every_start_for_a_check(on: Backend) {
    let mut scene = Scene::held(on, ["one", "two", "three"]).await;
    let server = CheckServer::start(&scene.harness.ctx).await;
    server.set(false);
    let _controller = scene.harness.ctx.controller().start();
    let spec = json!({
        "order": [{ "labelNumber": TURN }],
        "waves": [{ "name": "canary", "nodes": 1, "approval": true }, { "name": "rest" }],
        "checks": [{ "name": "shop", "interval": "5s", "http": { "url": server.url() } }],
    });
    scene.harness.plan_with("os", spec).await;
    scene.held_up("os", "one", "CheckFailing").await;
    server.set(true);
    scene.step("the check passes");
    scene.phase("os", "one", "Upgrading").await;
    scene.release("one").await;
    scene.held_up("os", "two", "WaveNotApproved").await;
    server.set(false);
    scene.step("the check fails");
    let ctx = &scene.harness.ctx;
    let plan = ctx.plans().get("os").await.unwrap();
    let approval = json!({ "refit.rs/approve": format!("canary@{}", hash(&plan)) });
    ctx.edit_plan("os", json!({ "metadata": { "annotations": approval } }))
        .await;
    scene.step("canary is approved");
    scene.held_up("os", "two", "CheckFailing").await;
    server.set(true);
    scene.step("the check passes");
    for node in ["two", "three"] {
        scene.phase("os", node, "Upgrading").await;
        scene.release(node).await;
    }
    scene.compare("wave-and-check", "os").await;
}

/// Maintenances of medik8s.
fn maintenances(ctx: &TestContext) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "nodemaintenance.medik8s.io".to_owned(),
        version: "v1beta1".to_owned(),
        api_version: "nodemaintenance.medik8s.io/v1beta1".to_owned(),
        kind: "NodeMaintenance".to_owned(),
        plural: "nodemaintenances".to_owned(),
    };
    Api::all_with(ctx.client.clone(), &resource)
}

async fn begin_maintenance(scene: &mut Scene, name: &str, node: &str) {
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance", "metadata": { "name": name },
        "spec": { "nodeName": scene.harness.node(node), "reason": "a new disk" },
    });
    scene.step(&format!("maintenance {name} of {node} begins"));
    create(&maintenances(&scene.harness.ctx), object).await;
}

async fn end_maintenance(scene: &mut Scene, name: &str) {
    let api = maintenances(&scene.harness.ctx);
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let is_gone = async || api.get_opt(name).await.unwrap().is_none();
    wait::holds("the object is gone", is_gone).await;
    scene.step(&format!("maintenance {name} has ended"));
}

async fn maintenance_until(scene: &mut Scene, name: &str, field: &str, text: &str) {
    let api = maintenances(&scene.harness.ctx);
    wait::eventually(&format!("{name} has {field} {text}"), SOON, async || {
        let object = api.get(name).await.unwrap();
        let found = object.data["status"][field].as_str().unwrap_or_default();
        found.contains(text).then_some(()).ok_or_else(|| found.to_owned())
    })
    .await;
    scene.step(&format!("maintenance {name}: {field} has {text:?}"));
}

async fn a_maintenance_and_a_plan_take_turns(on: Backend) {
    // These objects belong to no namespace.
    let ctx = match on {
        Backend::InProcess => on.context().await,
        Backend::Real => TestContext::alone().await,
    };
    if let Some(simulated) = ctx.test_env.as_simulated() {
        simulated.make_namespace("medik8s-leases");
    } else {
        let files = ["crds.yaml", "namespaces.yaml", "rbac.yaml", "admission.yaml"];
        apply_component(&ctx, "maintenance", &files).await;
        wait::eventually("the kind is served", SOON, async || {
            let listed = maintenances(&ctx).list(&ListParams::default()).await;
            listed.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
    let kinds = [Kind::Node, Kind::Plan, Kind::Job, Kind::Pod, Kind::Maintenance];
    let mut scene = Scene::with_kinds(ctx, ["one", "two"], &kinds).await;
    let setup = scene.harness.ctx.controller().env("REFIT_ENABLE", "maintenance");
    let controller = setup.start();
    begin_maintenance(&mut scene, "disk", "one").await;
    maintenance_until(&mut scene, "disk", "phase", "Succeeded").await;
    let spec = json!({ "concurrency": 2, "maxUnavailable": 2, "cordon": true });
    scene.plan("os", spec).await;
    scene.held_up("os", "one", "NodeBusy").await;
    scene.phase("os", "two", "Upgrading").await;
    begin_maintenance(&mut scene, "later", "two").await;
    maintenance_until(&mut scene, "later", "lastError", "Plan os works on the node").await;
    scene.step("the controller is killed, and another one starts");
    controller.kill();
    let _controller = controller.start_again();
    end_maintenance(&mut scene, "disk").await;
    scene.phase("os", "one", "Upgrading").await;
    scene.release("two").await;
    maintenance_until(&mut scene, "later", "phase", "Succeeded").await;
    end_maintenance(&mut scene, "later").await;
    scene.release("one").await;
    scene.compare("maintenance", "os").await;
}
