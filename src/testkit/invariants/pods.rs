//! Pods: started upgrades, sentinels and reboots.

use jiff::Timestamp;

use super::{Checked, Invariants, PlanOnNode, Pod, Run, read};
use refit_api::{SentinelReport, names};
use refit_facts::objects::SlimPod;
use refit_facts::{Hash, PlanFacts, PodFacts};
use refit_rehearse::json::Value;
use refit_rehearse::store::{Change, Object};

impl Invariants {
    pub(super) fn pod(&mut self, at: Timestamp, change: &Change) -> Checked {
        let value = &change.new.value;
        let ours = value.pointer("/metadata/labels/upgrade.cattle.io~1plan");
        if ours.is_none() {
            return Ok(());
        }
        let facts = read::<SlimPod>(value)?.facts(&self.intern);
        let uid = facts.uid.to_string();
        if change.gone {
            self.log_line(at, &format!("pod {} is gone", facts.name));
            self.pods.remove(&uid);
            return Ok(());
        }
        let known = self.pods.remove(&uid);
        if known
            .as_ref()
            .is_none_or(|pod| pod.facts.stage != facts.stage || pod.facts.deleting != facts.deleting)
        {
            let deleting = if facts.deleting { ", deleting" } else { "" };
            self.log_line(at, &format!("pod {}: {:?}{deleting}", facts.name, facts.stage));
        }
        let upgrade = container(&change.new, "upgrade");
        let id = upgrade
            .and_then(|one| one["containerID"].as_str())
            .map(str::to_owned);
        let runs = upgrade.is_some_and(|one| one["state"]["running"].is_object());
        let (container_before, since) = known.map_or((None, None), |pod| (pod.container, pod.upgrading));
        let started = id.is_some() && id != container_before;
        if started {
            self.check_upgrade_started(at, &change.new, &facts)?;
        }
        let sentinel = container(&change.new, "sentinel");
        let report = sentinel
            .filter(|one| one["state"]["terminated"]["exitCode"] == 0)
            .and_then(|one| one["state"]["terminated"]["message"].as_str())
            .and_then(|text| SentinelReport::parse(text).ok());
        if let Some(report) = report {
            self.record_sentinel(&change.new, &facts, &report);
        }
        let upgrading = match (runs, started) {
            (false, _) => None,
            (true, true) => Some(at),
            (true, false) => since,
        };
        let pod = Pod {
            facts,
            container: id,
            upgrading,
        };
        self.pods.insert(uid, pod);
        Ok(())
    }

    /// Plan, machine and hash of a pod, whose Job may be gone.
    fn slot_of(&self, object: &Object, pod: &PodFacts) -> (PlanOnNode, Hash) {
        if let Some(job) = self.jobs.values().find(|job| job.uid == pod.job_uid) {
            let node_uid = job.node_uid.clone().unwrap_or_default();
            return ((job.plan_uid.clone(), node_uid), job.hash.clone());
        }
        let annotations = &object.value["metadata"]["annotations"];
        let annotation = |key: &str| annotations[key].as_str().unwrap_or_default();
        let hash = object.label(&names::plan_label(&pod.plan));
        let place = (
            annotation(names::ANNOTATION_PLAN_UID).into(),
            annotation(names::ANNOTATION_NODE_UID).into(),
        );
        (place, hash.unwrap_or_default().into())
    }

    /// Checks the start of an upgrade container.
    fn check_upgrade_started(&mut self, at: Timestamp, object: &Object, pod: &PodFacts) -> Checked {
        self.upgrades += 1;
        self.log_line(at, &format!("pod {} upgrades {:?}", pod.name, pod.node));
        let (place, hash) = self.slot_of(object, pod);
        self.requested.remove(&(place.clone(), hash.to_string()));
        self.to_leave
            .remove(&((pod.plan.clone(), place.1.clone()), hash.clone()));
        let job = self.jobs.values().find(|job| job.uid == pod.job_uid);
        let Some(job) = job else { return Ok(()) };
        if let Some(run) = self.runs.get(&place) {
            let again = run.again || run.proven_by_sentinel && !job.sentinel;
            invariant!(
                run.job_uid == job.uid || run.hash != hash || again,
                "the upgrade of {place:?} to {hash} is started twice: {job:?}"
            );
        }
        let job_uid = job.uid.clone();
        self.runs.insert(
            place,
            Run {
                hash,
                job_uid,
                again: false,
                edited: false,
                proven_by_sentinel: false,
            },
        );
        Ok(())
    }

    /// Records a sentinel: the upgrade has succeeded, whatever happens to its Job.
    fn record_sentinel(&mut self, object: &Object, pod: &PodFacts, report: &SentinelReport) {
        let (place, hash) = self.slot_of(object, pod);
        self.record_success(&pod.plan, &place, &hash);
        if report.required {
            self.to_leave.insert(
                ((pod.plan.clone(), place.1), hash),
                report.boot_id.as_str().into(),
            );
        }
    }

    pub(super) fn reboot(&mut self, node: &str, pod: &str) -> Checked {
        let Some(pod) = self.pods.values().find(|known| *known.facts.name == *pod) else {
            return Ok(());
        };
        let Some(it) = &pod.facts.reboot else {
            return Ok(());
        };
        let machine = self.nodes.get(node).map(|node| node.facts.uid.clone());
        invariant!(
            machine.as_ref() == Some(&it.node_uid),
            "{} reboots another machine",
            pod.facts.name
        );
        // A Plan on request reboots a node again and again, but only once for each boot.
        let is_on_request = |plan: &PlanFacts| plan.uid == it.plan_uid && plan.object.spec.is_on_request();
        let boot = it
            .boot_id
            .as_deref()
            .filter(|_| self.plans.values().any(is_on_request));
        let key = (
            (it.plan_uid.clone(), it.node_uid.clone()),
            format!("{}{}", it.hash, boot.unwrap_or_default()),
        );
        let requests = self.requested.entry(key).or_default();
        *requests += 1;
        self.reboots += 1;
        invariant!(*requests == 1, "{} reboots {node} a second time", pod.facts.name);
        Ok(())
    }
}

fn container<'a>(pod: &'a Object, name: &str) -> Option<&'a Value> {
    let status = &pod.value["status"];
    let all = ["initContainerStatuses", "containerStatuses"].map(|field| status[field].as_array());
    let mut all = all.into_iter().flatten().flatten();
    all.find(|one| one["name"] == name)
}
