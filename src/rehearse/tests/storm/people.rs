//! What people and machines do while a roll-out goes on, by the dice.

use std::time::Duration;

use super::dice::Dice;
use super::laws::{MIN_READY, PERSON};
use super::weather::Weather;
use crate::api::{crd, names};
use crate::rehearse::deletion::Deletion;
use crate::rehearse::json::{Value, json};
use crate::rehearse::podlife::{Machine, Power};
use crate::rehearse::store::Key;
use crate::rehearse::{Cluster, Kind, State};

pub(super) const NAMESPACE: &str = "system-upgrade";
const PLANS: [&str; 3] = ["agent", "patch", "server"];
/// A node that no Plan is for: pods that are drained find a place there.
pub(super) const SPARE: &str = "spare";
const NODES: [&str; 5] = ["a.x", "a.y", "b", "c", "d"];
/// With those many have slots, and some are next.
const MORE: [&str; 8] = ["e", "f", "g", "h", "i", "j", "k", "l"];
/// What of a Plan system-upgrade-controller's definition knows.
const KNOWN_SPEC: [&str; 17] = [
    "channel",
    "concurrency",
    "cordon",
    "drain",
    "exclusive",
    "imagePullSecrets",
    "jobActiveDeadlineSecs",
    "nodeSelector",
    "postCompleteDelay",
    "prepare",
    "priorityClassName",
    "secrets",
    "serviceAccountName",
    "tolerations",
    "upgrade",
    "version",
    "window",
];
const KNOWN_STATUS: [&str; 4] = ["applying", "conditions", "latestHash", "latestVersion"];

/// Those who meddle.
pub(super) struct People {
    cluster: Cluster,
    weather: Weather,
    dice: Dice,
    /// Decides on what came later, so that older stories stay what they are.
    more: Dice,
    edits: u64,
    /// How long they wait at most between two deeds, in milliseconds: some leave nothing time to end.
    patience: u64,
    /// Machines that are off, and Nodes that are away.
    off: Vec<String>,
}

impl People {
    pub(super) fn new(cluster: &Cluster, weather: &Weather, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        Self {
            cluster: cluster.acting_as(PERSON),
            weather: weather.clone(),
            patience: *dice.pick(&[8_000, 16_000, 35_000]).unwrap(),
            dice,
            more: Dice::new(seed ^ 0x5107),
            edits: 0,
            off: Vec::new(),
        }
    }

    /// Nodes, Plans, and pods that are to be drained.
    pub(super) fn settle_in(&mut self) {
        let nodes = usize::try_from(2 + self.dice.roll(4)).unwrap();
        for name in &NODES[..nodes] {
            self.add_node(name);
        }
        self.add_node(SPARE);
        if self.dice.chance(40) {
            self.open_a_shop();
        }
        let many = self.more.chance(20);
        for name in MORE.iter().filter(|_| many) {
            self.add_node(name);
        }
        let plans = usize::try_from(1 + self.dice.roll(3)).unwrap();
        for name in &PLANS[..plans] {
            let mut spec = self.spec();
            if many {
                spec["concurrency"] = (6 + self.more.roll(4)).into();
                if self.more.chance(60) {
                    spec.as_object_mut().unwrap().remove("reboot");
                }
            }
            self.apply(name, &spec);
        }
    }

    fn count(&self, what: &'static str, about: &str) {
        self.weather.count(what);
        self.cluster.with(|state| state.tell(&format!("{what}: {about}")));
    }

    fn add_node(&mut self, name: &str) {
        let boot = self.cluster.with(|state| state.ids.uuid());
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "storm": if name == SPARE { "no" } else { "yes" },
            } },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
                "nodeInfo": { "bootID": boot, "kubeletVersion": "v1.36.0" },
            },
        });
        self.cluster.put(node).unwrap();
    }

    /// Pods that somebody makes again, of which one at a time may be away.
    fn open_a_shop(&mut self) {
        let labels = json!({ "app": "shop" });
        let selector = json!({ "matchLabels": labels });
        let template = json!({
            "metadata": { "labels": labels },
            "spec": { "terminationGracePeriodSeconds": 5, "containers": [{ "name": "web", "image": "example.com/web" }] },
        });
        let (kind, replicas) = (
            ["ReplicaSet", "StatefulSet"][usize::from(self.dice.chance(30))],
            3,
        );
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

    fn apply(&mut self, name: &str, spec: &Value) {
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        });
        self.cluster.put(plan).unwrap();
    }

    fn spec(&mut self) -> Value {
        let dice = &mut self.dice;
        let mut spec = json!({
            "version": "v1", "nodeSelector": { "matchLabels": { "storm": "yes" } }, "concurrency": 1 + dice.roll(3),
            "serviceAccountName": "system-upgrade", "upgrade": { "image": "example.com/upgrade" },
        });
        match dice.roll(5) {
            1 => spec["cordon"] = true.into(),
            2 | 3 => spec["drain"] = json!({}),
            4 => spec["exclusive"] = true.into(),
            _ => {}
        }
        if dice.chance(40) {
            let when = if dice.chance(60) { "Always" } else { "IfRequired" };
            spec["reboot"] = json!({ "when": when, "timeout": "3m" });
        }
        if dice.chance(25) {
            spec["settle"] = json!({ "minReady": format!("{}s", MIN_READY.as_secs()), "workloads": true, "timeout": "2m" });
        }
        if dice.chance(20) {
            spec["maxConcurrent"] = (1 + dice.roll(3)).into();
        }
        if dice.chance(20) {
            spec["postCompleteDelay"] = "20s".into();
        }
        if dice.chance(20) {
            spec["prepare"] = json!({ "image": "example.com/prepare" });
        }
        spec
    }

    // -- meddling

    fn names(&self, kind: Kind) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let names = self
            .cluster
            .with(|state| state.all(kind).map(name).collect::<Vec<_>>());
        names.into_iter().filter(|name| name != SPARE).collect()
    }

    fn pick(&mut self, kind: Kind) -> Option<String> {
        let names = self.names(kind);
        self.dice.pick(&names).cloned()
    }

    fn steer(&mut self, node: &str, key: &str, value: Option<&str>) {
        let key = format!("fake-kubelet/{key}");
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    /// One thing is done.
    pub(super) fn meddle(&mut self) {
        let Some(node) = self.pick(Kind::Node) else { return };
        match self.dice.roll(23) {
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
                let state = *self.dice.pick(&states).unwrap();
                self.count("reboot goes wrong", &format!("{node} {state}"));
                self.steer(&node, "comes-back", Some(state));
            }
            11 => {
                let required = ["true", "false"][usize::from(self.dice.chance(50))];
                self.count("reboot required", &format!("{node} {required}"));
                self.steer(&node, "reboot-required", Some(required));
            }
            12 => self.power_returns(),
            _ => {
                if let Some(plan) = self.pick(Kind::Plan) {
                    self.meddle_with(&plan, &node);
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
        self.cluster.with(|state| state.power(node, false));
        self.off.push(node.to_owned());
    }

    fn power_returns(&mut self) {
        if let Some(node) = self.off.pop() {
            self.count("node comes back", &node);
            self.cluster.with(|state| state.power(&node, true));
        }
    }

    /// The Node is deleted; mostly another machine of its name comes.
    fn replace(&mut self, node: &str) {
        self.count("node deleted", node);
        self.off.retain(|one| one != node);
        let _ = self.cluster.delete(Kind::Node, "", node);
        if self.dice.chance(80) {
            self.count("node made again", node);
            self.add_node(node);
        }
    }

    fn delete_job(&mut self) {
        let Some(job) = self.pick(Kind::Job) else { return };
        let propagation = *self.dice.pick(&["Background", "Foreground", "Orphan"]).unwrap();
        self.count("Job deleted", &format!("{job} {propagation}"));
        self.cluster.with(|state| {
            let how = Deletion {
                propagation: Some(propagation.to_owned()),
                ..Deletion::default()
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
        if let Some((namespace, name)) = self.dice.pick(&keys).cloned() {
            self.count("pod deleted", &name);
            let _ = self.cluster.delete(Kind::Pod, &namespace, &name);
        }
    }

    fn fail(&mut self, node: &str) {
        let fails = self.dice.chance(60);
        self.count(
            if fails {
                "payload fails"
            } else {
                "payload is mended"
            },
            node,
        );
        self.steer(node, "upgrade.exit-code", fails.then_some("1"));
    }

    /// The budget lets nobody go, or somebody again.
    fn guard(&mut self) {
        let most = self.dice.roll(2);
        self.count("budget changed", &most.to_string());
        let patch = json!({ "spec": { "maxUnavailable": most } });
        let _ = self.cluster.patch(Kind::Budget, "shop", "web", &patch);
    }

    /// Another definition is put in place: system-upgrade-controller's, or ours again.
    fn definition(&mut self) {
        let theirs = self.dice.chance(60);
        self.count(
            if theirs {
                "another SUC's CRD"
            } else {
                "our CRD again"
            },
            "",
        );
        self.define(theirs);
    }

    fn define(&self, theirs: bool) {
        let mut definition = serde_json::to_value(crd::plans()).unwrap();
        if theirs {
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            for (part, known) in [("spec", &KNOWN_SPEC[..]), ("status", &KNOWN_STATUS[..])] {
                let fields = schema[part]["properties"].as_object_mut().unwrap();
                fields.retain(|name, _| known.contains(&name.as_str()));
            }
        }
        self.cluster.with(|state: &mut State| {
            let key = Key::new("", crd::NAME);
            let part = crate::rehearse::write::Part::Whole;
            let _ = state.update(Kind::Definition, &key, part, false, |old| {
                let mut new = old.clone();
                new["spec"] = Value::from(&definition["spec"]);
                Ok(new)
            });
        });
    }

    fn edit(&self, plan: &str, what: &'static str, spec: &Value) {
        self.count(what, &format!("{plan} {spec}"));
        let patch = json!({ "spec": spec });
        let _ = self.cluster.patch(Kind::Plan, NAMESPACE, plan, &patch);
    }

    fn meddle_with(&mut self, plan: &str, node: &str) {
        self.edits += 1;
        let label = format!("{}{plan}", names::LABEL_PLAN_PREFIX);
        let set_label = |people: &Self, value: Option<&str>| {
            people.count(
                "label of what is done changed",
                &format!("{node} {plan} {value:?}"),
            );
            let patch = json!({ "metadata": { "labels": { label.clone(): value } } });
            let _ = people.cluster.patch(Kind::Node, "", node, &patch);
        };
        match self.dice.roll(12) {
            0 => set_label(self, Some(names::LABEL_VALUE_DISABLED)),
            1 => set_label(self, None),
            2 => self.retry(node, plan),
            3 => self.delete_plan(plan),
            4 => {
                self.delete_plan(plan);
                self.count("Plan made again", plan);
                let spec = self.spec();
                self.apply(plan, &spec);
            }
            5 | 6 => {
                let version = *self.dice.pick(&["v1", "v2"]).unwrap();
                self.edit(plan, "version edited", &json!({ "version": version }));
            }
            7 => {
                let args = json!([self.edits.to_string()]);
                self.edit(plan, "container edited", &json!({ "upgrade": { "args": args } }));
            }
            8 => {
                let concurrency = self.dice.roll(4);
                self.edit(plan, "concurrency edited", &json!({ "concurrency": concurrency }));
            }
            9 => {
                let suspends = self.dice.chance(50);
                self.edit(plan, "suspended or resumed", &json!({ "suspend": suspends }));
            }
            10 => {
                let cordons = self.dice.chance(50);
                self.edit(plan, "cordon edited", &json!({ "cordon": cordons }));
            }
            _ => {
                let deadline = self.dice.roll(2) * 90;
                self.edit(
                    plan,
                    "deadline edited",
                    &json!({ "jobActiveDeadlineSecs": deadline }),
                );
            }
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

    /// All is well from now on, and people take back what kept the roll-out from going on.
    pub(super) fn make_peace(&mut self) {
        self.cluster.with(|state| state.tell("peace"));
        self.weather.clears_up();
        self.define(false);
        for node in std::mem::take(&mut self.off) {
            self.cluster.with(|state| state.power(&node, true));
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
            } } });
            let _ = self.cluster.patch(Kind::Node, "", &node, &patch);
            // One that came back half, or not at all, is started once more.
            if !self.is_ready(&node) || self.is_off(&node) {
                self.cluster.with(|state| state.power(&node, true));
            }
        }
        for plan in self.names(Kind::Plan) {
            let known = self.cluster.get(Kind::Plan, NAMESPACE, &plan).unwrap();
            let concurrency = known["spec"]["concurrency"].as_i64().unwrap_or_default().max(1);
            // Applied again, so that what was lost is not missed.
            let patch = json!({
                "metadata": { "annotations": { names::ANNOTATION_FIELDS: null } },
                "spec": { "suspend": false, "concurrency": concurrency, "jobActiveDeadlineSecs": 0 },
            });
            let _ = self.cluster.patch(Kind::Plan, NAMESPACE, &plan, &patch);
        }
    }

    /// Machines whose Nodes are not Ready are started once more: what went wrong before the peace may show after it.
    pub(super) fn start_machines(&self) {
        for node in self.names(Kind::Node) {
            if !self.is_ready(&node) {
                self.cluster.with(|state| state.power(&node, true));
            }
        }
    }

    /// Whether a machine is off of which its Node may not know yet.
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

    /// How long until the next thing is done.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(500 + self.dice.roll(self.patience))
    }

    /// What of two happens.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.dice.chance(percent)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.dice.roll(sides)
    }
}
