//! Random actions of users and machines during a roll-out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::definition;
use super::super::faults::FaultInjector;
use super::super::rng::Rng;
use super::MIN_READY;
use super::front_ends::{FrontEnds, is_edited_by_hand, is_of_operation};
use crate::api::approval::WaveApproval;
use crate::api::{limits, names};
use crate::rehearse::delete::DeleteOptions;
use crate::rehearse::invariants::{HOSTILE, SPARE, USER};
use crate::rehearse::json::{Value, json};
use crate::rehearse::pod_lifecycle::{Machine, Power};
use crate::rehearse::store::Key;
use crate::rehearse::{Cluster, Kind};

pub(super) const NAMESPACE: &str = "system-upgrade";
const PLANS: [&str; 3] = ["agent", "patch", "server"];
const NODES: [&str; 5] = ["a.x", "a.y", "b", "c", "d"];
/// The control plane, where there is one.
const SERVERS: [&str; 3] = ["a.x", "a.y", "b"];
/// Additional nodes, so that many have slots.
const MORE: [&str; 8] = ["e", "f", "g", "h", "i", "j", "k", "l"];

pub(super) struct Users {
    pub(super) cluster: Cluster,
    fault_injector: FaultInjector,
    rng: Rng,
    /// Decides about later additions, so that older seeds keep their course.
    more: Rng,
    /// Aborts and skips, in some of the seeds.
    steering: Option<Rng>,
    /// Decides about orders, waves and dependencies.
    rollouts: Rng,
    /// Decides about checks.
    checks: Rng,
    /// What the servers of checks answer.
    is_healthy: Arc<AtomicBool>,
    /// Hostile objects, in some of the seeds.
    pub(super) hostile: Option<Rng>,
    /// Decides about failure policies and control planes, for the same reason.
    careful: Rng,
    /// Decides about verification.
    verifies: Rng,
    /// Decides about marks, taints and images that are pulled early.
    node_marks: Rng,
    pub(super) front_ends: FrontEnds,
    /// Whether the first nodes are the control plane.
    has_servers: bool,
    /// Decides about limits of unavailable nodes and the `ConfigMap` `refit`, in some of the seeds.
    limits: Option<Rng>,
    edits: u64,
    /// Maximum pause between two actions, in milliseconds; a short one leaves nothing time to finish.
    patience: u64,
    /// Machines that are off, and deleted Nodes.
    off: Vec<String>,
}

impl Users {
    pub(super) fn new(cluster: &Cluster, fault_injector: &FaultInjector, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            cluster: cluster.acting_as(USER),
            fault_injector: fault_injector.clone(),
            patience: *rng.pick(&[8_000, 16_000, 35_000]).unwrap(),
            rng,
            more: Rng::new(seed ^ 0x5107),
            steering: Some(Rng::new(seed ^ 0x57ee)).filter(|rng| rng.clone().chance(30)),
            rollouts: Rng::new(seed ^ 0x3a7e),
            checks: Rng::new(seed ^ 0xc4ec),
            is_healthy: Arc::new(AtomicBool::new(true)),
            hostile: super::hostile::rng(seed ^ 0xff),
            has_servers: Rng::new(seed ^ 0xc9).chance(30),
            careful: Rng::new(seed ^ 0xca4e),
            verifies: Rng::new(seed ^ 0x7e21),
            node_marks: Rng::new(seed ^ 0x41d),
            front_ends: FrontEnds::new(seed),
            limits: Some(Rng::new(seed ^ 0x11317)).filter(|rng| rng.clone().chance(35)),
            edits: 0,
            off: Vec::new(),
        }
    }

    /// Creates nodes, Plans, and pods to be evicted.
    pub(super) fn create_cluster(&mut self) {
        self.prepare_front_ends();
        let nodes = usize::try_from(2 + self.rng.below(4)).unwrap();
        for name in &NODES[..nodes] {
            self.add_node(name);
        }
        self.add_node(SPARE);
        if self.rng.chance(40) {
            self.create_workload();
        }
        let many = self.more.chance(20);
        for name in MORE.iter().filter(|_| many) {
            self.add_node(name);
        }
        let plans = usize::try_from(1 + self.rng.below(3)).unwrap();
        for name in &PLANS[..plans] {
            let mut spec = self.spec();
            if many {
                spec["concurrency"] = (6 + self.more.below(4)).into();
                if self.more.chance(60) {
                    spec.as_object_mut().unwrap().remove("reboot");
                }
            }
            self.order(name, &mut spec);
            self.apply(name, &spec);
        }
    }

    /// Adds an order, waves and dependencies to the spec of some Plans.
    fn order(&mut self, name: &str, spec: &mut Value) {
        let rng = &mut self.rollouts;
        if rng.chance(20) {
            spec["order"] = json!([{ "topologyKey": "zone" }]);
        }
        if rng.chance(20) {
            let soak = ["0s", "20s", "45s"];
            let mut soak = || *rng.pick(&soak).unwrap();
            spec["waves"] = json!([
                { "name": "west", "selector": { "matchLabels": { "zone": "west" } }, "soak": soak() },
                { "name": "half", "nodes": "60%", "soak": soak(), "approval": true },
            ]);
        }
        if name == "agent" && rng.chance(20) {
            spec["dependsOn"] = json!([{ "name": "server" }]);
        }
        if self.checks.chance(25) {
            let http = json!({ "url": format!("https://{name}.example.com") });
            let passes = 1 + self.checks.below(3);
            spec["checks"] = json!([{ "name": "shop", "http": http, "interval": "5s", "timeout": "5s", "passes": passes }]);
        }
    }

    /// What the servers of checks answer.
    pub(super) fn health(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_healthy)
    }

    /// Sometimes all checks begin to fail, or to pass again. Returns whether they pass, if that changes.
    pub(super) fn change_health(&mut self) -> Option<bool> {
        let was = self.is_healthy.load(Ordering::Relaxed);
        if !self.checks.chance(if was { 6 } else { 12 }) {
            return None;
        }
        self.is_healthy.store(!was, Ordering::Relaxed);
        self.count("checks fail or pass", if was { "they fail" } else { "they pass" });
        Some(!was)
    }

    /// Approves the waves that wait for it.
    pub(super) fn approve(&mut self, percent: u64) {
        for plan in self.names(Kind::Plan) {
            let known = self.cluster.get(Kind::Plan, NAMESPACE, &plan).unwrap();
            let wave = &known["status"]["wave"];
            let (Some(name), Some(hash)) = (wave["name"].as_str(), wave["hash"].as_str()) else {
                continue;
            };
            if wave["phase"] != "AwaitingApproval" || !self.rollouts.chance(percent) {
                continue;
            }
            let approval = WaveApproval::new(name, hash).to_string();
            self.count("wave approved", &approval);
            let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_APPROVE: approval } } });
            let _ = self.cluster.patch(Kind::Plan, NAMESPACE, &plan, &patch);
        }
    }

    pub(super) fn count(&self, what: &'static str, about: &str) {
        self.fault_injector.count(what);
        self.cluster
            .with(|state| state.trace_line(&format!("{what}: {about}")));
    }

    fn add_node(&mut self, name: &str) {
        let boot = self.cluster.with(|state| state.ids.uuid());
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "simulated": if name == SPARE { "no" } else { "yes" },
                "zone": if matches!(name, "a.x" | "c" | "e" | "g" | "i" | "k") { "west" } else { "east" },
            } },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
                "nodeInfo": { "bootID": boot, "kubeletVersion": "v1.36.0" },
            },
        });
        if self.has_servers && SERVERS.contains(&name) {
            node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
        }
        self.cluster.put(node).unwrap();
    }

    /// Creates a workload of which one pod at a time may be unavailable.
    fn create_workload(&mut self) {
        let labels = json!({ "app": "shop" });
        let selector = json!({ "matchLabels": labels });
        let template = json!({
            "metadata": { "labels": labels },
            "spec": { "terminationGracePeriodSeconds": 5, "containers": [{ "name": "web", "image": "example.com/web" }] },
        });
        let (kind, replicas) = (["ReplicaSet", "StatefulSet"][usize::from(self.rng.chance(30))], 3);
        let set = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "replicas": replicas, "selector": selector, "template": template },
        });
        self.cluster.put(set).unwrap();
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "maxUnavailable": 1, "selector": selector },
        });
        self.cluster.put(budget).unwrap();
    }

    pub(super) fn apply(&mut self, name: &str, spec: &Value) {
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        });
        self.cluster.put(plan).unwrap();
    }

    fn spec(&mut self) -> Value {
        let rng = &mut self.rng;
        let mut spec = json!({
            "version": "v1", "nodeSelector": { "matchLabels": { "simulated": "yes" } }, "concurrency": 1 + rng.below(3),
            "serviceAccountName": "system-upgrade", "upgrade": { "image": "example.com/upgrade" },
        });
        match rng.below(5) {
            1 => spec["cordon"] = true.into(),
            2 | 3 => spec["drain"] = json!({}),
            4 => spec["exclusive"] = true.into(),
            _ => {}
        }
        if rng.chance(40) {
            let when = if rng.chance(60) { "Always" } else { "IfRequired" };
            spec["reboot"] = json!({ "when": when, "timeout": "3m" });
        }
        if rng.chance(25) {
            spec["settle"] = json!({ "minReady": format!("{}s", MIN_READY.as_secs()), "workloads": true, "timeout": "2m" });
        }
        if rng.chance(20) {
            spec["maxConcurrent"] = (1 + rng.below(3)).into();
        }
        if rng.chance(20) {
            spec["postCompleteDelay"] = "20s".into();
        }
        if rng.chance(20) {
            spec["prepare"] = json!({ "image": "example.com/prepare" });
        }
        if let Some(limits) = &mut self.limits
            && limits.chance(50)
        {
            spec["maxUnavailable"] = (1 + limits.below(3)).into();
        }
        if self.verifies.chance(25) {
            spec["verify"] = json!({ "image": "example.com/verify" });
        }
        for field in [
            "excludeFromLoadBalancers",
            "preventScaleDown",
            "waitForDetach",
            "avoidPendingNodes",
        ] {
            if self.node_marks.chance(30) && spec["drain"].is_object() {
                spec["drain"][field] = true.into();
            }
        }
        if self.node_marks.chance(20) {
            spec["prepull"] = true.into();
        }
        let careful = &mut self.careful;
        if careful.chance(40) {
            let policy = *careful.pick(&["Hold", "Stop", "Continue"]).unwrap();
            spec["failure"] = json!({ "policy": policy, "uncordon": careful.chance(40) });
            if careful.chance(50) {
                spec["failure"]["retries"] = (1 + careful.below(2)).into();
                spec["failure"]["backoff"] = "15s".into();
            }
            if policy == "Stop" && careful.chance(50) {
                spec["failure"]["budget"] = careful.below(3).into();
            }
        }
        spec
    }

    // -- meddling

    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let names = self
            .cluster
            .with(|state| state.all(kind).map(name).collect::<Vec<_>>());
        let is_ours = |name: &String| name != SPARE && !name.starts_with(HOSTILE);
        names.into_iter().filter(is_ours).collect()
    }

    fn pick(&mut self, kind: Kind) -> Option<String> {
        let names = self.names(kind);
        self.rng.pick(&names).cloned()
    }

    fn steer(&mut self, node: &str, key: &str, value: Option<&str>) {
        let key = format!("fake-kubelet/{key}");
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    /// Performs one action.
    pub(super) fn act(&mut self) {
        let Some(node) = self.pick(Kind::Node) else { return };
        self.attack(&node);
        self.limit();
        self.use_front_ends(&node);
        match self.rng.below(23) {
            0 => self.cordon(&node, true),
            1 => self.cordon(&node, false),
            2 | 3 => self.lose_power(&node),
            4 => self.replace(&node),
            5 => self.delete_job(),
            6 => self.delete_pod(),
            7 => self.fail(&node),
            8 => self.guard(),
            9 => self.definition(),
            10 => {
                let states = ["ready", "not-ready", "never", "as-if-nothing"];
                let state = *self.rng.pick(&states).unwrap();
                self.count("reboot goes wrong", &format!("{node} {state}"));
                self.steer(&node, "comes-back", Some(state));
            }
            11 => {
                let required = ["true", "false"][usize::from(self.rng.chance(50))];
                self.count("reboot required", &format!("{node} {required}"));
                self.steer(&node, "reboot-required", Some(required));
            }
            12 => self.power_on(),
            _ => {
                if let Some(plan) = self.pick(Kind::Plan) {
                    self.steer_roll_out(&plan, &node);
                    self.act_on(&plan, &node);
                }
            }
        }
    }

    fn cordon(&self, node: &str, cordons: bool) {
        self.count(
            if cordons {
                "person cordons"
            } else {
                "person uncordons"
            },
            node,
        );
        let patch =
            json!({ "spec": { "unschedulable": if cordons { Value::Bool(true) } else { Value::Null } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    fn lose_power(&mut self, node: &str) {
        if self.off.iter().any(|one| one == node) {
            return;
        }
        self.count("node dies", node);
        self.cluster.with(|state| state.set_power(node, false));
        self.off.push(node.to_owned());
    }

    fn power_on(&mut self) {
        if let Some(node) = self.off.pop() {
            self.count("node comes back", &node);
            self.cluster.with(|state| state.set_power(&node, true));
        }
    }

    /// Deletes the Node; usually another machine with its name follows.
    fn replace(&mut self, node: &str) {
        self.count("node deleted", node);
        self.off.retain(|one| one != node);
        let _ = self.cluster.delete(Kind::Node, "", node);
        if self.rng.chance(80) {
            self.count("node made again", node);
            self.add_node(node);
        }
    }

    fn delete_job(&mut self) {
        let Some(job) = self.pick(Kind::Job) else { return };
        let propagation = *self.rng.pick(&["Background", "Foreground", "Orphan"]).unwrap();
        self.count("Job deleted", &format!("{job} {propagation}"));
        self.cluster.with(|state| {
            let how = DeleteOptions {
                propagation: Some(propagation.to_owned()),
                ..DeleteOptions::default()
            };
            let _ = state.delete(Kind::Job, &Key::new(NAMESPACE, &job), &how);
        });
    }

    fn delete_pod(&mut self) {
        let keys: Vec<(String, String)> = self.cluster.with(|state| {
            let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
            let pods = state.all(Kind::Pod);
            pods.map(|pod| (text(pod, "namespace"), text(pod, "name")))
                .collect()
        });
        if let Some((namespace, name)) = self.rng.pick(&keys).cloned() {
            self.count("pod deleted", &name);
            let _ = self.cluster.delete(Kind::Pod, &namespace, &name);
        }
    }

    fn fail(&mut self, node: &str) {
        let fails = self.rng.chance(60);
        self.count(
            if fails {
                "payload fails"
            } else {
                "payload is mended"
            },
            node,
        );
        let what = if self.verifies.chance(25) {
            "verify.exit-code"
        } else {
            "upgrade.exit-code"
        };
        self.steer(node, what, fails.then_some("1"));
    }

    /// Makes the budget refuse evictions, or allow them again.
    fn guard(&mut self) {
        let most = self.rng.below(2);
        self.count("budget changed", &most.to_string());
        let patch = json!({ "spec": { "maxUnavailable": most } });
        let _ = self.cluster.patch(Kind::Budget, "shop", "web", &patch);
    }

    /// Replaces the CRD by system-upgrade-controller's, or by refit's.
    fn definition(&mut self) {
        let theirs = self.rng.chance(60);
        self.count(
            if theirs {
                "another SUC's CRD"
            } else {
                "our CRD again"
            },
            "",
        );
        definition::put(&self.cluster, theirs);
    }

    fn edit(&self, plan: &str, what: &'static str, spec: &Value) {
        self.count(what, &format!("{plan} {spec}"));
        let patch = json!({ "spec": spec });
        let _ = self.cluster.patch(Kind::Plan, NAMESPACE, plan, &patch);
    }

    fn act_on(&mut self, plan: &str, node: &str) {
        self.edits += 1;
        let label = format!("{}{plan}", names::LABEL_PLAN_PREFIX);
        let set_label = |users: &Self, value: Option<&str>| {
            users.count(
                "label of what is done changed",
                &format!("{node} {plan} {value:?}"),
            );
            let patch = json!({ "metadata": { "labels": { label.clone(): value } } });
            let _ = users.cluster.patch(Kind::Node, "", node, &patch);
        };
        let action = self.rng.below(12);
        if matches!(action, 4..=7 | 10) && !is_edited_by_hand(plan) {
            return;
        }
        match action {
            0 => set_label(self, Some(names::LABEL_VALUE_DISABLED)),
            1 => set_label(self, None),
            2 => self.retry(node, plan),
            3 => self.delete_plan(plan),
            4 => {
                self.delete_plan(plan);
                if is_of_operation(plan) {
                    return;
                }
                self.count("Plan made again", plan);
                let mut spec = self.spec();
                self.order(plan, &mut spec);
                self.apply(plan, &spec);
            }
            5 | 6 => {
                let version = *self.rng.pick(&["v1", "v2"]).unwrap();
                self.edit(plan, "version edited", &json!({ "version": version }));
            }
            7 => {
                let args = json!([self.edits.to_string()]);
                self.edit(plan, "container edited", &json!({ "upgrade": { "args": args } }));
            }
            8 => {
                let concurrency = self.rng.below(4);
                self.edit(plan, "concurrency edited", &json!({ "concurrency": concurrency }));
            }
            9 => {
                let suspends = self.rng.chance(50);
                self.edit(plan, "suspended or resumed", &json!({ "suspend": suspends }));
            }
            10 => {
                let cordons = self.rng.chance(50);
                self.edit(plan, "cordon edited", &json!({ "cordon": cordons }));
            }
            _ => {
                let deadline = self.rng.below(2) * 90;
                self.edit(
                    plan,
                    "deadline edited",
                    &json!({ "jobActiveDeadlineSecs": deadline }),
                );
            }
        }
    }

    /// Changes what holds for all Plans.
    fn limit(&mut self) {
        let Some(rng) = &mut self.limits else { return };
        if !rng.chance(25) {
            return;
        }
        let number = |rng: &mut Rng| Value::from((1 + rng.below(3)).to_string());
        let mut data =
            json!({ limits::FREEZE: null, limits::MAX_UNAVAILABLE: null, limits::MAX_CONCURRENT: null });
        match rng.below(6) {
            0 => data[limits::FREEZE] = "audit".into(),
            1 => data[limits::MAX_UNAVAILABLE] = "many".into(),
            2 => data[limits::MAX_CONCURRENT] = number(rng),
            3 => data[limits::MAX_UNAVAILABLE] = number(rng),
            4 => {
                data[limits::MAX_CONCURRENT] = number(rng);
                data[limits::MAX_UNAVAILABLE] = number(rng);
            }
            _ => {}
        }
        self.count("limits changed", &data.to_string());
        let patch = json!({ "data": data });
        if self
            .cluster
            .patch(Kind::ConfigMap, NAMESPACE, limits::NAME, &patch)
            .is_err()
        {
            let mut map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": limits::NAME, "namespace": NAMESPACE }, "data": {},
            });
            let set = data
                .as_object()
                .unwrap()
                .iter()
                .filter(|(_, value)| !value.is_null());
            for (key, value) in set {
                map["data"][key] = value.clone();
            }
            self.cluster.put(map).unwrap();
        }
    }

    /// Aborts the roll-out of a Plan or skips a node, or takes that back.
    fn steer_roll_out(&mut self, plan: &str, node: &str) {
        let Some(rng) = &mut self.steering else { return };
        if !rng.chance(15) {
            return;
        }
        let (is_set, aborts, always) = (rng.chance(50), rng.chance(50), rng.chance(50));
        if aborts {
            self.count("aborted or resumed", &format!("{plan} {is_set}"));
            let value = is_set.then_some("by user");
            let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_ABORT: value } } });
            let _ = self.cluster.patch(Kind::Plan, NAMESPACE, plan, &patch);
        } else {
            self.count("skipped or not", &format!("{node} {plan} {is_set}"));
            let entry = if always {
                plan.to_owned()
            } else {
                format!("{plan}@v1 by user")
            };
            let value = is_set.then_some(entry);
            let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_SKIP: value } } });
            let _ = self.cluster.patch(Kind::Node, "", node, &patch);
        }
    }

    fn delete_plan(&self, plan: &str) {
        self.count("Plan deleted", plan);
        let _ = self.cluster.delete(Kind::Plan, NAMESPACE, plan);
    }

    pub(super) fn retry(&self, node: &str, plan: &str) {
        self.count("retry asked for", &format!("{node} {plan}"));
        let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_RETRY: plan } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    // -- peace

    /// Ends all faults, and undoes the actions that block the roll-out.
    pub(super) fn end_faults(&mut self) {
        self.is_healthy.store(true, Ordering::Relaxed);
        self.cluster.with(|state| state.trace_line("peace"));
        self.fault_injector.stop_faults();
        definition::put(&self.cluster, false);
        self.end_attacks();
        self.end_maintenances();
        self.restore_reboots();
        let _ = self.cluster.delete(Kind::ConfigMap, NAMESPACE, limits::NAME);
        for node in std::mem::take(&mut self.off) {
            self.cluster.with(|state| state.set_power(&node, true));
        }
        let _ = self.cluster.patch(
            Kind::Budget,
            "shop",
            "web",
            json!({ "spec": { "maxUnavailable": 1 } }),
        );
        for node in self.names(Kind::Node) {
            let patch = json!({ "metadata": { "annotations": {
                "fake-kubelet/comes-back": null, "fake-kubelet/upgrade.exit-code": null,
                "fake-kubelet/verify.exit-code": null, names::ANNOTATION_SKIP: null,
            } } });
            let _ = self.cluster.patch(Kind::Node, "", &node, &patch);
            // A machine that came back incompletely, or not at all, is started again.
            if !self.is_ready(&node) || self.is_off(&node) {
                self.cluster.with(|state| state.set_power(&node, true));
            }
        }
        for plan in self.names(Kind::Plan) {
            let known = self.cluster.get(Kind::Plan, NAMESPACE, &plan).unwrap();
            let concurrency = known["spec"]["concurrency"].as_i64().unwrap_or_default().max(1);
            // Applied again, to restore pruned fields.
            let mut patch = json!({
                "metadata": { "annotations": { names::ANNOTATION_FIELDS: null, names::ANNOTATION_ABORT: null } },
                "spec": { "suspend": false, "concurrency": concurrency, "jobActiveDeadlineSecs": 0, "maxUnavailable": null },
            });
            if !self.names(Kind::Plan).contains(&"server".to_owned()) {
                patch["spec"]["dependsOn"] = Value::Null;
            }
            let _ = self.cluster.patch(Kind::Plan, NAMESPACE, &plan, &patch);
        }
    }

    /// Restarts machines whose Nodes are not Ready: an earlier fault may show only now.
    pub(super) fn start_machines(&self) {
        for node in self.names(Kind::Node) {
            if !self.is_ready(&node) {
                self.cluster.with(|state| state.set_power(&node, true));
            }
        }
    }

    /// Whether a machine is off, perhaps not yet seen at its Node.
    fn is_off(&self, node: &str) -> bool {
        let is_on = |machine: &Machine| machine.power == Power::On;
        self.cluster
            .with(|state| !state.kubelets.machine(node).is_some_and(is_on))
    }

    fn is_ready(&self, node: &str) -> bool {
        let node = self.cluster.get(Kind::Node, "", node).unwrap();
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    }

    /// The pause before the next action.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(500 + self.rng.below(self.patience))
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.rng.chance(percent)
    }

    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.rng.below(sides)
    }
}
