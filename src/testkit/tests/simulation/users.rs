//! Random actions of users and machines during a roll-out.

mod recovery;
mod setup;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::definition;
use super::super::faults::FaultInjector;
use super::super::rng::Rng;
use super::front_ends::{FrontEnds, is_edited_by_hand, is_of_operation};
use crate::invariants::{HOSTILE, SPARE, USER};
use refit_api::approval::WaveApproval;
use refit_api::exemption::{Exemption, StartLimit};
use refit_api::{limits, names};
use refit_rehearse::delete::DeleteOptions;
use refit_rehearse::json::{Value, json};
use refit_rehearse::store::Key;
use refit_rehearse::{Cluster, Kind};

pub(super) const NAMESPACE: &str = "system-upgrade";

/// A taint for which some Plans wait.
const AILING: &str = "example.com/ailing";

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
    /// Decides about `before` and `after`, in some of the seeds.
    hooks: Option<Rng>,
    /// Decides about marks, taints and images that are pulled early.
    node_marks: Rng,
    /// Decides about pods that end by themselves.
    waits_for: Rng,
    pauses: Rng,
    /// Decides about conditions and taints of nodes, and Plans that wait for them.
    health: Rng,
    pub(super) front_ends: FrontEnds,
    /// Conditions of nodes, in some of the seeds.
    pub(super) lifecycle: Option<Rng>,
    /// Whether the first nodes are the control plane.
    has_servers: bool,
    /// Decides about limits of unavailable nodes and the `ConfigMap` `refit`, in some of the seeds.
    limits: Option<Rng>,
    /// Starts in spite of limits, and the blackouts of Plans, in some of the seeds.
    despite: Option<Rng>,
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
            hooks: Some(Rng::new(seed ^ 0x400c)).filter(|rng| rng.clone().chance(25)),
            node_marks: Rng::new(seed ^ 0x41d),
            waits_for: Rng::new(seed ^ 0x52e),
            pauses: Rng::new(seed ^ 0x9a5),
            health: Rng::new(seed ^ 0x8ea1),
            front_ends: FrontEnds::new(seed),
            lifecycle: super::lifecycle::used(seed),
            limits: Some(Rng::new(seed ^ 0x11317)).filter(|rng| rng.clone().chance(35)),
            despite: Some(Rng::new(seed ^ 0xde59)).filter(|rng| rng.clone().chance(30)),
            edits: 0,
            off: Vec::new(),
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

    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let names = self
            .cluster
            .with(|state| state.all(kind).map(name).collect::<Vec<_>>());
        let is_ours = |name: &String| name != SPARE && !name.starts_with(HOSTILE);
        names.into_iter().filter(is_ours).collect()
    }

    pub(super) fn pick(&mut self, kind: Kind) -> Option<String> {
        let names = self.names(kind);
        self.rng.pick(&names).cloned()
    }

    fn steer(&mut self, node: &str, key: &str, value: Option<&str>) {
        let key = format!("fake-kubelet/{key}");
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    /// Sometimes sets or removes a condition and a taint for which some Plans wait.
    fn ail(&mut self, node: &str) {
        if !self.health.chance(12) {
            return;
        }
        let ails = self.health.chance(50);
        self.count("condition and taint", if ails { "they come" } else { "they go" });
        self.set_health(node, !ails);
    }

    /// Sets the condition and the taint of a node for which some Plans wait.
    fn set_health(&self, node: &str, well: bool) {
        let Some(mut known) = self.cluster.get(Kind::Node, "", node) else {
            return;
        };
        if let Some(conditions) = known["status"]["conditions"].as_array_mut() {
            conditions.retain(|one| one["type"] != "Ailing");
            let status = if well { "False" } else { "True" };
            conditions.push(json!({ "type": "Ailing", "status": status, "reason": "ByUser" }));
            let patch = json!({ "status": { "conditions": known["status"]["conditions"].clone() } });
            let _ = self.cluster.patch_status(Kind::Node, "", node, patch);
        }
        let mut taints = known["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != AILING);
        if !well {
            taints.push(json!({ "key": AILING, "effect": "PreferNoSchedule" }));
        }
        let patch = json!({ "spec": { "taints": taints } });
        let _ = self.cluster.patch(Kind::Node, "", node, patch);
    }

    /// Performs one action.
    pub(super) fn act(&mut self) {
        let Some(node) = self.pick(Kind::Node) else { return };
        self.attack(&node);
        self.limit();
        self.use_front_ends(&node);
        self.ail(&node);
        self.change_condition(&node);
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
                    self.start_despite(&plan, &node);
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
            self.add_node(node, Some(self.cluster.clock().now()));
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
        let mut of_hook = ["before.exit-code", "after.exit-code"].into_iter();
        let hook = of_hook.find(|_| self.hooks.as_mut().is_some_and(|hooks| hooks.chance(30)));
        let what = hook.unwrap_or(what);
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
        let label = names::plan_label(plan);
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
                // One whose objects are to stay is there until the garbage collector has freed them.
                let is_there = self.cluster.get(Kind::Plan, NAMESPACE, plan).is_some();
                if is_of_operation(plan) || is_there {
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

    /// Lifts some of the limits for a node or for all, sometimes in a roll-out that is no more, or takes that back.
    fn start_despite(&mut self, plan: &str, node: &str) {
        let Some(rng) = &mut self.despite else { return };
        if !rng.chance(25) {
            return;
        }
        let known = self.cluster.get(Kind::Plan, NAMESPACE, plan).unwrap();
        let hash = known["status"]["latestHash"].as_str().unwrap_or("unresolved");
        let limits = StartLimit::ALL.into_iter().filter(|_| rng.chance(60));
        let limits: BTreeSet<_> = limits.chain([StartLimit::Blackout]).collect();
        let nodes = rng.chance(50).then(|| node.to_owned()).into_iter().collect();
        let value = match rng.below(6) {
            0 => None,
            1 => Some(format!("quorum+window@{hash} by user")),
            _ => Some(format!("{} by user", Exemption::new(limits, nodes, hash))),
        };
        self.count("start in spite of limits", &format!("{plan} {value:?}"));
        let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_DESPITE: value } } });
        let _ = self.cluster.patch(Kind::Plan, NAMESPACE, plan, &patch);
    }

    fn delete_plan(&mut self, plan: &str) {
        let orphans = self.hooks.as_mut().is_some_and(|hooks| hooks.chance(30));
        let propagation = if orphans { "Orphan" } else { "Background" };
        self.count("Plan deleted", &format!("{plan} {propagation}"));
        self.cluster.with(|state| {
            let how = DeleteOptions {
                propagation: Some(propagation.to_owned()),
                ..DeleteOptions::default()
            };
            let _ = state.delete(Kind::Plan, &Key::new(NAMESPACE, plan), &how);
        });
    }

    pub(super) fn retry(&self, node: &str, plan: &str) {
        self.count("retry asked for", &format!("{node} {plan}"));
        let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_RETRY: plan } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
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
