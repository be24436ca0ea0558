//! What users and machines do in a scenario.

use std::time::Duration;

use serde::Deserialize as _;

use super::{NAMESPACE, Scenario, node};
use refit_api::{Ledger, Plan, PlanSpec, names};
use refit_base::version::{Offer, Release};
use refit_facts::PodStage;
use refit_rehearse::Kind;
use refit_rehearse::delete::DeleteOptions;
use refit_rehearse::json::{Value, json};
use refit_rehearse::store::Key;

impl Scenario {
    pub(in crate::tests::engine) fn add_nodes(&mut self, names: &[&str]) {
        for name in names {
            self.add_node(name, &json!({}));
        }
    }

    pub(in crate::tests::engine) fn add_node(&mut self, name: &str, change: &Value) {
        let mut node = node(name, change);
        if node["status"]["nodeInfo"]["bootID"] == format!("boot-{name}-1") {
            node["status"]["nodeInfo"]["bootID"] = self.cluster.with(|state| state.ids.uuid()).into();
        }
        self.cluster.put(node).unwrap();
    }

    /// Applies a Plan, and gives the node a taint that the controller sees only after it has started the node: the pod of
    /// the Job is not scheduled.
    pub(in crate::tests::engine) fn apply_and_taint(&mut self, node: &str, plan: Plan) {
        self.settle();
        self.fault_injector.hold_watch("nodes", true);
        let taint = json!({ "key": "example.com/full", "effect": "NoSchedule" });
        self.patch(Kind::Node, node, &json!({ "spec": { "taints": [taint] } }));
        self.apply(plan);
        self.comes_to(node, PodStage::Unbound);
        self.fault_injector.hold_watch("nodes", false);
        self.settle();
    }

    pub(in crate::tests::engine) fn patch(&mut self, kind: Kind, name: &str, patch: &Value) {
        let namespace = if kind == Kind::Node { "" } else { NAMESPACE };
        self.cluster.patch(kind, namespace, name, patch).unwrap();
    }

    pub(in crate::tests::engine) fn annotate(
        &mut self,
        kind: Kind,
        name: &str,
        key: &str,
        value: Option<&str>,
    ) {
        self.patch(
            kind,
            name,
            &json!({ "metadata": { "annotations": { key: value } } }),
        );
    }

    pub(in crate::tests::engine) fn label(&mut self, node: &str, key: &str, value: Option<&str>) {
        self.patch(
            Kind::Node,
            node,
            &json!({ "metadata": { "labels": { key: value } } }),
        );
    }

    pub(in crate::tests::engine) fn set_done_label(&mut self, node: &str, plan: &str, value: Option<&str>) {
        self.label(node, &names::plan_label(plan), value);
    }

    pub(in crate::tests::engine) fn cordon(&mut self, node: &str, cordons: bool) {
        let value = if cordons { Value::Bool(true) } else { Value::Null };
        self.patch(Kind::Node, node, &json!({ "spec": { "unschedulable": value } }));
    }

    /// Cordons a node as kubectl does, without a ledger.
    pub(in crate::tests::engine) fn kubectl_cordons(&mut self, node: &str) {
        let patch = json!({ "spec": { "unschedulable": true } });
        let kubectl = self.cluster.acting_as("kubectl");
        kubectl.patch(Kind::Node, "", node, &patch).unwrap();
        self.judge();
    }

    /// Rewrites the ledger of a node.
    pub(in crate::tests::engine) fn change_ledger(&mut self, node: &str, change: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.node(node).ledger.clone().unwrap();
        change(&mut ledger);
        self.annotate(
            Kind::Node,
            node,
            names::ANNOTATION_CORDON,
            Some(&ledger.to_text()),
        );
    }

    pub(in crate::tests::engine) fn ready(&mut self, node: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let condition = json!({ "type": "Ready", "status": status, "reason": "Test", "message": "test" });
        let patch = json!({ "status": { "conditions": [condition] } });
        self.cluster.patch_status(Kind::Node, "", node, &patch).unwrap();
    }

    pub(in crate::tests::engine) fn power(&mut self, node: &str, on: bool) {
        self.cluster.with(|state| state.set_power(node, on));
    }

    /// Reboots a machine independently of the upgrade.
    pub(in crate::tests::engine) fn reboot(&mut self, node: &str) {
        self.power(node, false);
        self.pass_secs(1);
        self.power(node, true);
    }

    pub(in crate::tests::engine) fn retry(&mut self, node: &str, plans: &str) {
        self.annotate(Kind::Node, node, names::ANNOTATION_RETRY, Some(plans));
    }

    pub(in crate::tests::engine) fn apply(&mut self, plan: Plan) {
        self.cluster.put(serde_json::to_value(plan).unwrap()).unwrap();
    }

    /// Applies a Plan, and waits for the immediate reactions.
    pub(in crate::tests::engine) fn apply_and_settle(&mut self, plan: Plan) {
        self.apply(plan);
        self.settle();
    }

    pub(in crate::tests::engine) fn edit(&mut self, plan: &str, change: impl FnOnce(&mut PlanSpec)) {
        let known = self.cluster.get(Kind::Plan, NAMESPACE, plan).unwrap();
        let mut spec = PlanSpec::deserialize(&known["spec"]).unwrap();
        change(&mut spec);
        let spec = Value::from(serde_json::to_value(spec).unwrap());
        self.cluster.with(|state| {
            let part = refit_rehearse::write::WriteTarget::Whole;
            let written = state.update(Kind::Plan, &Key::new(NAMESPACE, plan), part, false, |old| {
                let mut new = old.clone();
                new["spec"] = spec.clone();
                Ok(new)
            });
            written.map(drop).unwrap();
        });
    }

    /// Edits a Plan, and waits for the immediate reactions.
    pub(in crate::tests::engine) fn edit_and_settle(
        &mut self,
        plan: &str,
        change: impl FnOnce(&mut PlanSpec),
    ) {
        self.edit(plan, change);
        self.settle();
    }

    pub(in crate::tests::engine) fn delete(&mut self, kind: Kind, name: &str) {
        self.delete_with(kind, name, "Background");
    }

    /// Deletes a Plan, and leaves its Jobs behind: `kubectl delete --cascade=orphan`.
    pub(in crate::tests::engine) fn delete_only_plan(&mut self, name: &str) {
        self.delete_with(Kind::Plan, name, "Orphan");
    }

    fn delete_with(&mut self, kind: Kind, name: &str, propagation: &str) {
        let namespace = if kind == Kind::Node { "" } else { NAMESPACE };
        let _ = self.cluster.with(|state| {
            let how = DeleteOptions {
                propagation: Some(propagation.to_owned()),
                ..DeleteOptions::default()
            };
            state.delete(kind, &Key::new(namespace, name), &how).map(drop)
        });
    }

    /// Removes a pod at once, as if its kubelet had stopped it.
    pub(in crate::tests::engine) fn delete_pod_now(&mut self, name: &str) {
        let _ = self.cluster.with(|state| {
            let how = DeleteOptions {
                grace: Some(0),
                ..DeleteOptions::default()
            };
            state
                .delete(Kind::Pod, &Key::new(NAMESPACE, name), &how)
                .map(drop)
        });
    }

    /// Makes the eviction of a pod on this node fail until [`open_budget`](Self::open_budget), so that drains wait.
    pub(in crate::tests::engine) fn guard(&mut self, node: &str) {
        let labels = json!({ "app": "guarded" });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "guarded", "namespace": "shop" },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "nodeName": node, "containers": [{ "name": "web", "image": "example.com/web" }] } } },
        });
        self.cluster.put(set).unwrap();
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "guarded", "namespace": "shop" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": labels } },
        });
        self.cluster.put(budget).unwrap();
        self.settle();
    }

    /// Allows the eviction; no pod replaces it.
    pub(in crate::tests::engine) fn open_budget(&mut self) {
        self.cluster.delete(Kind::ReplicaSet, "shop", "guarded").unwrap();
        self.cluster.delete(Kind::Budget, "shop", "guarded").unwrap();
    }

    /// Runs the upgrade of a node to this end.
    fn end_upgrade(&mut self, node: &str, code: Option<&str>) {
        self.comes_to(node, PodStage::Upgrade);
        let job = self.live_job(node);
        self.steer(node, "upgrade.exit-code", code);
        self.steer(node, "upgrade.run-delay", Some("0s"));
        self.until("the Job ends", |state| {
            let job = state.get(Kind::Job, NAMESPACE, &job.name);
            job.is_none_or(|job| {
                let conditions = job["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|one| one["type"] == "Complete" || one["type"] == "Failed")
            })
        });
        self.steer(node, "upgrade.exit-code", None);
        self.steer(node, "upgrade.run-delay", None);
    }

    /// Lets the Job of a node succeed, before the controller can observe it.
    pub(in crate::tests::engine) fn succeed_unseen(&mut self, node: &str) {
        self.end_upgrade(node, None);
    }

    pub(in crate::tests::engine) fn succeed(&mut self, node: &str) {
        self.end_upgrade(node, None);
        self.settle();
    }

    pub(in crate::tests::engine) fn fail(&mut self, node: &str) {
        self.end_upgrade(node, Some("1"));
        self.settle();
    }

    /// Waits until the pod of a node's Job reaches a stage.
    #[track_caller]
    pub(in crate::tests::engine) fn comes_to(&mut self, node: &str, stage: PodStage) {
        for _ in 0..200 {
            if self.stage(node).is_some_and(|known| known >= stage) {
                return;
            }
            self.pass(Duration::from_millis(100));
        }
        self.panic(&format!(
            "no pod on {node} comes to {stage:?}: {:?}",
            self.stage(node)
        ));
    }

    fn stage(&self, node: &str) -> Option<PodStage> {
        let mut jobs = self.invariants.jobs.values();
        let job = jobs.find(|job| *job.node == *node && job.is_live())?;
        let mut pods = self.invariants.pods.values().map(|pod| &pod.facts);
        pods.find(|pod| pod.job_uid == job.uid && pod.stage != PodStage::Ended && !pod.deleting)
            .map(|pod| pod.stage)
    }

    /// Sets the offer of a channel.
    pub(in crate::tests::engine) fn offer(&self, url: &str, version: &str) {
        let offer = Ok(Offer::one(version.to_owned()));
        self.channels.lock().unwrap().offers.insert(url.to_owned(), offer);
    }

    pub(in crate::tests::engine) fn break_channel(&self, url: &str, why: &str) {
        let mut channels = self.channels.lock().unwrap();
        channels.offers.insert(url.to_owned(), Err(why.to_owned()));
    }

    /// The channel gives these releases, some with the time of their publication.
    pub(in crate::tests::engine) fn offer_list(&self, url: &str, releases: &[(&str, Option<&str>)]) {
        let releases = releases.iter().map(|(version, published)| Release {
            version: (*version).to_owned(),
            published: published.map(|at| at.parse().unwrap()),
        });
        let offer = Offer {
            releases: releases.collect(),
            partial: None,
        };
        self.channels
            .lock()
            .unwrap()
            .offers
            .insert(url.to_owned(), Ok(offer));
    }
}
