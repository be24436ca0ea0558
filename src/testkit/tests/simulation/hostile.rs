//! Objects that a hostile kubelet, payload or author of a Plan writes. Everything else continues: the invariants hold, and
//! the roll-outs of the other Plans end while these objects exist. At the end refit has named each that it refused.

use super::super::rng::Rng;
use super::users::{NAMESPACE, Users};
use crate::invariants::{HOSTILE, Invariants};
use refit_api::{Holder, Ledger, names};
use refit_rehearse::json::{Value, json};
use refit_rehearse::{Cluster, Kind};

/// Go accepts it, and no time of refit can hold it.
const LATE: &str = "9999-12-31T23:59:59Z";
/// A Node of which a field has another type, one with a foreign ledger, and a Plan that is refused.
const UNREADABLE: &str = "hostile-unreadable";
const CORDONED: &str = "hostile-cordoned";
const PLAN: &str = "hostile-plan";
/// Maximum number of mirror pods.
const PODS: u64 = 3;

/// Decides about hostile objects, in some of the seeds. Those of `REGRESSIONS` have none.
pub(super) fn rng(seed: u64) -> Option<Rng> {
    Some(Rng::new(seed ^ 0x0bad)).filter(|rng| rng.clone().chance(30))
}

impl Users {
    /// Writes a hostile object now and then.
    pub(super) fn attack(&mut self, node: &str) {
        let Some(mut rng) = self.hostile.take() else {
            return;
        };
        if rng.chance(35) {
            let what = rng.below(7);
            self.count("hostile object", &format!("{what} {node}"));
            match what {
                0 => self.write_late_time(node),
                1 => self.write_mirror_pod(node, &mut rng),
                2 => self.write_garbage(node, &mut rng),
                3 => self.write_records(node),
                4 => self.write_plan(&mut rng),
                5 => self.write_unreadable_node(&mut rng),
                _ => self.write_ledger(),
            }
        }
        self.hostile = Some(rng);
    }

    /// A kubelet can keep the Jobs of its own node away with its pods, so it removes them. All other objects stay.
    pub(super) fn end_attacks(&mut self) {
        self.hostile = None;
        for number in 0..PODS {
            let _ = self
                .cluster
                .delete(Kind::Pod, NAMESPACE, &format!("{HOSTILE}-{number}"));
        }
    }

    fn put(&self, object: Value) {
        // The API server may refuse it.
        let _ = self.cluster.put(object);
    }

    /// A condition that only informs.
    fn write_late_time(&self, node: &str) {
        let Some(known) = self.cluster.get(Kind::Node, "", node) else {
            return;
        };
        let mut conditions = known["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions.retain(|one| one["type"] != "Odd");
        conditions.push(
            json!({ "type": "Odd", "status": "True", "reason": "Odd", "message": "m".repeat(5_000),
            "lastTransitionTime": LATE }),
        );
        let patch = json!({ "status": { "conditions": conditions } });
        let _ = self.cluster.patch_status(Kind::Node, "", node, &patch);
    }

    /// A pod with the labels of a Job on another node, which claims to have succeeded.
    fn write_mirror_pod(&self, node: &str, rng: &mut Rng) {
        let Some(known) = self.cluster.get(Kind::Node, "", node) else {
            return;
        };
        let (plans, jobs) = (self.names(Kind::Plan), self.names(Kind::Job));
        let (Some(plan), job) = (rng.pick(&plans), rng.pick(&jobs)) else {
            return;
        };
        let name = format!("{HOSTILE}-{}", rng.below(PODS));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "labels": {
                    names::LABEL_CONTROLLER: "system-upgrade-controller", names::LABEL_PLAN: plan,
                    "batch.kubernetes.io/job-name": job, "job-name": job,
                },
                "annotations": { names::ANNOTATION_MIRROR: "x", names::ANNOTATION_DRAIN: "d".repeat(20_000) },
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": node, "uid": known["metadata"]["uid"], "controller": true },
                ],
            },
            "spec": { "nodeName": node, "containers": [{ "name": "upgrade", "image": "example.com/static" }] },
        });
        let _ = self.cluster.create(pod);
        let ended = json!({ "exitCode": 0, "reason": "Completed", "message": "m".repeat(4_096), "finishedAt": LATE, "startedAt": LATE });
        let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [
            { "name": "upgrade", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": { "terminated": ended } },
        ] } });
        let _ = self.cluster.patch_status(Kind::Pod, NAMESPACE, &name, &status);
    }

    /// Annotations that are too long to be read.
    fn write_garbage(&self, node: &str, rng: &mut Rng) {
        let [drain, long] = [names::ANNOTATION_DRAIN, names::ANNOTATION_RETRY];
        let (key, size) = *rng.pick(&[(drain, 17 << 10), (long, 5 << 10)]).unwrap();
        let text = ["*,", "{\"a\":", "\u{1b}[2J"][usize::try_from(rng.below(3)).unwrap()].repeat(size / 2);
        let patch = json!({ "metadata": { "annotations": { key: text } } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    /// Records of Plans that never existed.
    fn write_records(&self, node: &str) {
        let mut annotations = json!({});
        for number in 0..20 {
            let key = format!("{}{HOSTILE}-{number}", names::ANNOTATION_RECORD_PREFIX);
            let record = json!({
                "namespace": NAMESPACE, "planUid": "never-was", "nodeUid": "other", "hash": "h", "version": "v", "phase": "Upgraded",
                "attempt": 1, "jobUid": "j", "job": "j", "at": "2026-01-01T00:00:00Z", "uncordon": true,
                "message": "m".repeat(3_000),
            });
            annotations[&*key] = record.to_string().into();
        }
        let patch = json!({ "metadata": { "annotations": annotations } });
        let _ = self.cluster.patch(Kind::Node, "", node, &patch);
    }

    fn write_plan(&self, rng: &mut Rng) {
        let mut plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": PLAN, "namespace": NAMESPACE, "annotations": {} },
            "spec": { "version": "v1", "concurrency": 5, "nodeSelector": {}, "drain": {}, "upgrade": { "image": "example.com/upgrade" } },
        });
        match rng.below(3) {
            0 => plan["metadata"]["annotations"]["upgrade.cattle.io/digest"] = ",".repeat(50_000).into(),
            1 => {
                let secrets = (0..1_000).map(|number| json!({ "name": format!("s{number}"), "path": "/s" }));
                plan["spec"]["secrets"] = secrets.collect::<Vec<_>>().into();
            }
            _ => plan["spec"]["postCompleteDelay"] = "9".repeat(10_000).into(),
        }
        let _ = self.cluster.delete(Kind::Plan, NAMESPACE, PLAN);
        self.put(plan);
    }

    fn write_unreadable_node(&self, rng: &mut Rng) {
        self.put(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": UNREADABLE, "annotations": { "round": rng.below(100).to_string() } },
            "spec": { "unschedulable": "perhaps" },
            "status": { "nodeInfo": { "bootID": "b".repeat(10_000), "kubeletVersion": "v1.36.0" } },
        }));
    }

    /// A Node that an administrator has cordoned, and a ledger by which refit has.
    fn write_ledger(&self) {
        // Before its first note, refit does not know which Plans have existed, and believes every holder.
        let has_note =
            |lease: &Value| !lease["metadata"]["annotations"][names::ANNOTATION_KNOWN_PLANS].is_null();
        if !self.cluster.with(|state| state.all(Kind::Lease).any(has_note)) {
            return;
        }
        let holder = Holder {
            namespace: NAMESPACE.to_owned(),
            controller: "system-upgrade-controller".to_owned(),
            plan: "agent".to_owned(),
            // Not that of the records, which may be there before the first note.
            plan_uid: "never-existed".into(),
            cancelled: false,
            completed: false,
            evicted: Vec::new(),
        };
        let ledger = Ledger::with_holder(None, false, holder).unwrap().to_text();
        self.put(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": CORDONED, "annotations": { names::ANNOTATION_CORDON: ledger } },
            "spec": { "unschedulable": true },
            "status": { "nodeInfo": { "bootID": "b", "kubeletVersion": "v1.36.0" } },
        }));
    }
}

/// Checks that each hostile object that exists was named, and changed nothing.
pub(super) fn check(cluster: &Cluster, invariants: &Invariants) -> Result<(), String> {
    cluster.with(|state| {
        for (node, reason) in [(UNREADABLE, "ObjectUnreadable"), (CORDONED, "HolderUnknown")] {
            let is_there = state.get(Kind::Node, "", node).is_some();
            if is_there && !invariants.is_named(node, reason) {
                return Err(format!("{node} has no event {reason}"));
            }
        }
        if let Some(node) = state.get(Kind::Node, "", CORDONED)
            && node["spec"]["unschedulable"] != true
        {
            return Err(format!("{CORDONED} was uncordoned"));
        }
        if let Some(plan) = state.get(Kind::Plan, NAMESPACE, PLAN) {
            let conditions = plan["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            if !conditions.any(|one| one["type"] == "Validated" && one["status"] == "False") {
                return Err(format!("{PLAN} is not refused: {}", plan["status"]));
            }
        }
        Ok(())
    })
}
