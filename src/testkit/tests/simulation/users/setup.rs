//! The cluster at the beginning: nodes, Plans, and pods to be evicted.

use jiff::{SignedDuration, Timestamp};

use super::super::MIN_READY;
use super::{AILING, NAMESPACE, Users};
use crate::invariants::SPARE;
use refit_rehearse::json::{Value, json};

const PLANS: [&str; 3] = ["agent", "patch", "server"];
const NODES: [&str; 5] = ["a.x", "a.y", "b", "c", "d"];
/// The control plane, where there is one.
const SERVERS: [&str; 3] = ["a.x", "a.y", "b"];
/// Additional nodes, so that many have slots.
const MORE: [&str; 8] = ["e", "f", "g", "h", "i", "j", "k", "l"];

impl Users {
    /// Creates nodes, Plans, and pods to be evicted.
    pub(in crate::tests::simulation) fn create_cluster(&mut self) {
        self.prepare_front_ends();
        let nodes = usize::try_from(2 + self.rng.below(4)).unwrap();
        for name in &NODES[..nodes] {
            self.add_node(name, None);
        }
        self.add_node(SPARE, None);
        if self.rng.chance(40) {
            self.create_workload();
        }
        let many = self.more.chance(20);
        for name in MORE.iter().filter(|_| many) {
            self.add_node(name, None);
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
    pub(super) fn order(&mut self, name: &str, spec: &mut Value) {
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
        self.blackout(spec);
    }

    /// Adds a blackout that begins soon to the spec of some Plans.
    fn blackout(&mut self, spec: &mut Value) {
        let now = self.cluster.clock().now();
        let Some(rng) = &mut self.despite else { return };
        if rng.chance(50) {
            let start = now + SignedDuration::from_secs(10 * i64::try_from(rng.below(6)).unwrap());
            let end = start + SignedDuration::from_mins(6);
            spec["blackouts"] = json!([{ "start": format!("{start:.0}"), "end": format!("{end:.0}") }]);
        }
    }

    /// Registers a node, at this time or long ago.
    pub(super) fn add_node(&mut self, name: &str, registered: Option<Timestamp>) {
        let boot = self.cluster.with(|state| state.ids.uuid());
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "simulated": if name == SPARE { "no" } else { "yes" },
                "zone": if matches!(name, "a.x" | "c" | "e" | "g" | "i" | "k") { "west" } else { "east" },
            } },
            "status": {
                "conditions": [
                    { "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" },
                    { "type": "Ailing", "status": "False", "reason": "ByUser" },
                ],
                "nodeInfo": { "bootID": boot, "kubeletVersion": "v1.36.0" },
            },
        });
        if let Some(registered) = registered {
            node["metadata"]["creationTimestamp"] = registered.to_string().into();
        }
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

    pub(in crate::tests::simulation) fn apply(&mut self, name: &str, spec: &Value) {
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        });
        self.cluster.put(plan).unwrap();
    }

    pub(super) fn spec(&mut self) -> Value {
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
        if self.health.chance(20) {
            let settle = &mut spec["settle"];
            if !settle.is_object() {
                *settle = json!({ "timeout": "2m" });
            }
            settle["conditions"] = json!([{ "type": "Ailing", "status": "False" }]);
            settle["taintsGone"] = json!([AILING]);
            settle["daemonSets"] = json!({});
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
        if let Some(hooks) = &mut self.hooks {
            for field in ["before", "after"] {
                if hooks.chance(60) {
                    spec[field] = json!({ "image": format!("example.com/{field}") });
                }
            }
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
        if self.node_marks.chance(20) && spec["drain"].is_object() {
            spec["drain"]["settleDelay"] = "3s".into();
            spec["drain"]["order"] = json!([{ "matchLabels": { "app": "shop" } }]);
        }
        if self.waits_for.chance(20) && spec["drain"].is_object() {
            let after = *self.waits_for.pick(&["Evict", "Skip", "Fail"]).unwrap();
            spec["drain"]["waitFor"] = json!([
                { "podSelector": { "matchLabels": { "app": "shop" } }, "timeout": "10s", "afterTimeout": after }
            ]);
        }
        if self.waits_for.chance(20) && spec["drain"].is_object() {
            spec["drain"]["checkFirst"] = true.into();
        }
        if self.pauses.chance(25) {
            spec["pauseRemediation"] = true.into();
        }
        if self.pauses.chance(25) {
            spec["taintNewNodes"] = true.into();
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
}
