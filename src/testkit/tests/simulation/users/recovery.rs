//! The end of the faults, after which the roll-outs end.

use std::sync::atomic::Ordering;

use super::super::super::definition;
use super::{NAMESPACE, Users};
use refit_api::{limits, names};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_rehearse::pod_lifecycle::{Machine, Power};

impl Users {
    /// Ends all faults, and undoes the actions that block the roll-out.
    pub(in crate::tests::simulation) fn end_faults(&mut self) {
        self.is_healthy.store(true, Ordering::Relaxed);
        self.cluster.with(|state| state.trace_line("peace"));
        self.fault_injector.stop_faults();
        definition::put(&self.cluster, false);
        self.end_attacks();
        self.end_maintenances();
        self.remove_conditions();
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
                "fake-kubelet/before.exit-code": null, "fake-kubelet/after.exit-code": null,
            } } });
            let _ = self.cluster.patch(Kind::Node, "", &node, &patch);
            self.set_health(&node, true);
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
            // Pods of a workload do not end by themselves, and may fit on no other node.
            let drain = &known["spec"]["drain"];
            if drain["waitFor"].is_array() || drain["checkFirst"] == true {
                patch["spec"]["drain"] = json!({ "waitFor": null, "checkFirst": null });
            }
            let _ = self.cluster.patch(Kind::Plan, NAMESPACE, &plan, &patch);
        }
    }

    /// Asks for another attempt of each `before` and `after` that has failed.
    pub(in crate::tests::simulation) fn retry_hooks(&self) {
        for plan in self.names(Kind::Plan) {
            let known = self.cluster.get(Kind::Plan, NAMESPACE, &plan).unwrap();
            for hook in [&known["status"]["before"], &known["status"]["after"]] {
                if hook["phase"] == "Failed" {
                    let patch =
                        json!({ "metadata": { "annotations": { names::ANNOTATION_RETRY: hook["job"] } } });
                    let _ = self.cluster.patch(Kind::Plan, NAMESPACE, &plan, &patch);
                }
            }
        }
    }

    /// Restarts machines whose Nodes are not Ready: an earlier fault may show only now.
    pub(in crate::tests::simulation) fn start_machines(&self) {
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
}
