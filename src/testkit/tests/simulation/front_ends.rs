//! Other ways in than Plans, each in some of the seeds: nodes in maintenance, node operations, and reboots that nodes
//! ask for.

use super::super::rng::Rng;
use super::users::{NAMESPACE, Users};
use refit_api::{limits, names};
use refit_formats::convert::op_plan::LABEL_OWNER;
use refit_rehearse::json::{Value, json};
use refit_rehearse::write::merge;
use refit_rehearse::{Cluster, Kind, State};

const MAINTENANCES: [Kind; 2] = [Kind::Maintenance, Kind::OldMaintenance];
const OPERATIONS: [Kind; 2] = [Kind::NodeOp, Kind::NodeOpUpgrade];
/// The Plan that reboots nodes on request.
const REBOOTS: &str = "reboots";

/// Decides about each of them, where it is in use.
pub(super) struct FrontEnds {
    maintenance: Option<Rng>,
    operations: Option<Rng>,
    reboots: Option<Rng>,
}

impl FrontEnds {
    pub(super) fn new(seed: u64) -> Self {
        let used = |salt: u64| Some(Rng::new(seed ^ salt)).filter(|rng| rng.clone().chance(25));
        Self {
            maintenance: used(0x3a1),
            operations: used(0x0b5),
            reboots: used(0x4eb),
        }
    }

    /// The value of `--enable`.
    pub(super) fn enabled(&self) -> String {
        let names = [("maintenance", &self.maintenance), ("nodeops", &self.operations)];
        let used = names
            .iter()
            .filter(|(_, rng)| rng.is_some())
            .map(|(name, _)| *name);
        used.collect::<Vec<_>>().join(",")
    }
}

impl Users {
    /// Creates what front ends need.
    pub(super) fn prepare_front_ends(&mut self) {
        for name in ["medik8s-leases", "node-maintenance"] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            self.cluster.put(namespace).unwrap();
        }
        if let Some(rng) = &mut self.front_ends.maintenance {
            // It is what keeps maintenances apart.
            let limit = (1 + rng.below(2)).to_string();
            self.cluster
                .put(json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": { "name": limits::NAME, "namespace": NAMESPACE },
                    "data": { limits::MAX_UNAVAILABLE: limit },
                }))
                .unwrap();
        }
        if self.front_ends.reboots.is_some() {
            let mut spec = json!({
                "nodeSelector": { "matchLabels": { "simulated": "yes" } }, "concurrency": 1, "cordon": true,
                "serviceAccountName": "system-upgrade",
            });
            merge(&mut spec, &on_request());
            self.apply(REBOOTS, &spec);
        }
    }

    /// Sometimes somebody uses one of them.
    pub(super) fn use_front_ends(&mut self, node: &str) {
        self.maintain();
        self.operate();
        self.ask_for_reboot(node);
    }

    /// Puts nodes into maintenance, mostly several at once, or ends a maintenance.
    fn maintain(&mut self) {
        let Some(rng) = &mut self.front_ends.maintenance else {
            return;
        };
        if !rng.chance(35) {
            return;
        }
        let (kind, ends, first) = (*rng.pick(&MAINTENANCES).unwrap(), rng.chance(50), rng.below(3));
        if ends {
            let name = format!("disk-{first}");
            self.count("maintenance ends", &name);
            let _ = self.cluster.delete(kind, "", &name);
            return;
        }
        let together = 1 + rng.below(3);
        for number in first..first + together {
            let Some(node) = self.pick(Kind::Node) else { return };
            let name = format!("disk-{}", number % 3);
            if self.cluster.get(kind, "", &name).is_some() {
                continue;
            }
            self.count("maintenance begins", &format!("{name} of {node}"));
            let object = json!({
                "apiVersion": kind.resource_type().api_version(), "kind": "NodeMaintenance", "metadata": { "name": name },
                "spec": { "nodeName": node },
            });
            let _ = self.cluster.create(object);
        }
    }

    /// Begins a node operation, changes it or ends it.
    fn operate(&mut self) {
        let Some(rng) = &mut self.front_ends.operations else {
            return;
        };
        if !rng.chance(35) {
            return;
        }
        let kind = *rng.pick(&OPERATIONS).unwrap();
        let name = format!("op-{}", rng.below(2));
        if self.cluster.get(kind, NAMESPACE, &name).is_none() {
            let mut spec = json!({
                "nodeSelector": { "matchLabels": { "simulated": "yes" } }, "concurrency": rng.below(4),
                "image": "example.com/operate:v1", "stopOnFailure": rng.chance(50),
            });
            if kind == Kind::NodeOp {
                spec["command"] = json!(["operate"]);
                spec["cordon"] = rng.chance(60).into();
                spec["drainOptions"] = json!({ "enabled": rng.chance(40), "force": true });
                spec["rebootOnSuccess"] = rng.chance(30).into();
            }
            self.count("operation begins", &format!("{name} {spec}"));
            let object = json!({
                "apiVersion": kind.resource_type().api_version(), "kind": kind.resource_type().kind,
                "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
            });
            self.cluster.create(object).unwrap();
        } else if rng.chance(50) {
            let image = format!("example.com/operate:v{}", rng.below(3));
            self.count("operation edited", &format!("{name} {image}"));
            let patch = json!({ "spec": { "image": image } });
            let _ = self.cluster.patch(kind, NAMESPACE, &name, &patch);
        } else {
            self.count("operation ends", &name);
            let _ = self.cluster.delete(kind, NAMESPACE, &name);
        }
    }

    /// A node asks for a reboot, as `refit agent` does.
    fn ask_for_reboot(&mut self, node: &str) {
        let Some(rng) = &mut self.front_ends.reboots else {
            return;
        };
        if !rng.chance(25) {
            return;
        }
        let Some(known) = self.cluster.get(Kind::Node, "", node) else {
            return;
        };
        let boot = known["status"]["nodeInfo"]["bootID"].as_str().unwrap_or_default();
        let request = json!({ "bootID": boot, "reasons": ["a kernel"] }).to_string();
        self.count("node asks for a reboot", node);
        let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_REBOOT_NEEDED: request } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    /// Applies the Plan again, without whose fields it would do something else: another definition has pruned them.
    pub(super) fn restore_reboots(&self) {
        let _ = self
            .cluster
            .patch(Kind::Plan, NAMESPACE, REBOOTS, json!({ "spec": on_request() }));
    }

    pub(super) fn end_maintenances(&mut self) {
        for kind in MAINTENANCES {
            for name in self.names(kind) {
                let _ = self.cluster.delete(kind, "", &name);
            }
        }
    }
}

/// What makes a Plan one that nodes request.
fn on_request() -> Value {
    json!({ "trigger": "RebootNeeded", "reboot": { "timeout": "3m" } })
}

/// Whether somebody may edit what the Plan runs.
pub(super) fn is_edited_by_hand(plan: &str) -> bool {
    plan != REBOOTS
}

/// Whether the Plan was made for an operation.
pub(super) fn is_of_operation(plan: &str) -> bool {
    plan.starts_with("nodeop")
}

/// What must hold once the roll-outs are over.
pub(super) fn check(cluster: &Cluster) -> Result<(), String> {
    cluster.with(|state| {
        let plans: Vec<&Value> = state.all(Kind::Plan).collect();
        for plan in &plans {
            if let Some(owner) = plan["metadata"]["labels"][LABEL_OWNER].as_str() {
                let object = operations(state).find(|object| object["metadata"]["uid"] == *owner);
                let object = object.ok_or_else(|| format!("a Plan is left of {owner}"))?;
                // One that selects no node runs until one joins.
                if plan["status"]["nodes"]["selected"] == 0 {
                    continue;
                }
                let phase = object["status"]["phase"].as_str().unwrap_or_default();
                let nodes = object["status"]["nodeStatuses"].as_object();
                let mut open = nodes.into_iter().flat_map(|nodes| nodes.iter());
                let open = open.find(|(_, node)| node["phase"] != "Completed");
                if phase != "Completed" || open.is_some() {
                    return Err(format!(
                        "the Plan is over, and its object is not: {}",
                        object["status"]
                    ));
                }
            }
        }
        let exists = |name: &str| plans.iter().any(|plan| plan["metadata"]["name"] == *name);
        for node in state.all(Kind::Node) {
            let labels = node["metadata"]["labels"].as_object();
            let mut labels = labels.into_iter().flat_map(|labels| labels.iter());
            let left = labels.find(|(key, _)| {
                let plan = key.strip_prefix(names::LABEL_PLAN_PREFIX).unwrap_or_default();
                is_of_operation(plan) && !exists(plan)
            });
            if let Some((label, _)) = left {
                return Err(format!("label {label} is left on {}", node["metadata"]["name"]));
            }
        }
        Ok(())
    })
}

fn operations(state: &State) -> impl Iterator<Item = &Value> {
    OPERATIONS.into_iter().flat_map(|kind| state.all(kind))
}
