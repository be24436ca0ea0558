//! Changes of stored objects, each of which its watch tells of.

use super::objects::{Cordon, ToyPod};
use super::wire::News;
use super::{Stored, Toy, ToyJob, ToyNode};
use crate::api::PlanStatus;
use crate::rollout::facts::JobFacts;
use crate::rollout::{Kind, PlanFacts};

impl ToyJob {
    pub(in super::super) fn new(facts: JobFacts, cordon: Cordon) -> Self {
        Self {
            facts,
            ours: true,
            cordon,
            drains: false,
            ttl: None,
            upgraded: false,
            image: String::new(),
        }
    }
}

/// Takes off what a CRD without our fields drops.
pub(super) fn prune(schema: bool, plan: &mut PlanFacts) {
    if schema {
        return;
    }
    let object = &mut plan.object;
    (object.spec.suspend, object.spec.max_concurrent) = (None, None);
    (object.spec.reboot, object.spec.settle) = (None, None);
    object.spec.version_policy = None;
    if let Some(status) = &mut object.status {
        *status = PlanStatus {
            conditions: std::mem::take(&mut status.conditions),
            latest_version: status.latest_version.take(),
            latest_hash: status.latest_hash.take(),
            applying: status.applying.take(),
            ..PlanStatus::default()
        };
    }
}

impl Toy {
    /// A Plan as the API server gives it now.
    pub(super) fn reads(&self, plan: &PlanFacts) -> Box<PlanFacts> {
        let mut plan = plan.clone();
        prune(self.schema, &mut plan);
        Box::new(plan)
    }

    pub(super) fn changes_plan(&mut self, name: &str, change: impl FnOnce(&mut PlanFacts)) -> News {
        let version = self.next_version();
        let schema = self.schema;
        let plan = self.plans.get_mut(name).unwrap();
        // A write begins with what is read, and its result is pruned as well.
        prune(schema, &mut plan.it);
        let spec = plan.it.object.spec.clone();
        change(&mut plan.it);
        prune(schema, &mut plan.it);
        if spec != plan.it.object.spec {
            let generation = plan.it.object.metadata.generation.get_or_insert(0);
            *generation += 1;
        }
        plan.version = version;
        let news = News::Plan(version, Box::new(plan.it.clone()));
        self.emit(Kind::Plan, news.clone());
        news
    }

    pub(in super::super) fn change_job(&mut self, name: &str, change: impl FnOnce(&mut ToyJob)) {
        let version = self.next_version();
        let job = self.jobs.get_mut(name).unwrap();
        change(&mut job.it);
        job.version = version;
        let (ours, facts) = (job.it.ours, job.it.facts.clone());
        if ours {
            self.emit(Kind::Job, News::Job(version, facts));
        }
    }

    pub(in super::super) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut ToyNode)) {
        let version = self.next_version();
        let node = self.nodes.get_mut(name).unwrap();
        change(&mut node.it);
        node.version = version;
        let facts = node.it.facts.clone();
        self.emit(Kind::Node, News::Node(version, facts));
    }

    pub(in super::super) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut ToyPod)) {
        let version = self.next_version();
        let pod = self.pods.get_mut(name).unwrap();
        change(&mut pod.it);
        pod.version = version;
        let facts = pod.it.facts.clone();
        self.emit(Kind::Pod, News::Pod(version, facts));
    }

    pub(in super::super) fn create_pod(&mut self, pod: ToyPod) {
        let version = self.next_version();
        self.emit(Kind::Pod, News::Pod(version, pod.facts.clone()));
        self.pods
            .insert(pod.facts.name.to_string(), Stored { version, it: pod });
    }

    /// A Job is gone, and its pods are told to go (propagation Background).
    pub(in super::super) fn job_goes(&mut self, name: &str) {
        self.next_version();
        self.job_is_lost(name);
        let Some(job) = self.jobs.remove(name) else { return };
        self.note(|| format!("Job {name} goes"));
        if job.it.ours {
            self.emit(
                Kind::Job,
                News::JobGone(job.it.facts.name.clone(), job.it.facts.uid.clone()),
            );
        }
        for pod in self
            .pods
            .values_mut()
            .filter(|pod| pod.it.facts.job_uid == job.it.facts.uid)
        {
            pod.it.terminating = true;
        }
    }

    pub(in super::super) fn pod_goes(&mut self, name: &str) {
        self.next_version();
        let Some(pod) = self.pods.remove(name) else { return };
        self.emit(
            Kind::Pod,
            News::PodGone(pod.it.facts.name.clone(), pod.it.facts.uid.clone()),
        );
    }

    pub(in super::super) fn node_goes(&mut self, name: &str) {
        self.next_version();
        let Some(node) = self.nodes.remove(name) else {
            return;
        };
        self.emit(
            Kind::Node,
            News::NodeGone(node.it.facts.name.clone(), node.it.facts.uid.clone()),
        );
    }

    pub(in super::super) fn plan_goes(&mut self, name: &str) {
        self.next_version();
        let Some(plan) = self.plans.remove(name) else {
            return;
        };
        self.emit(
            Kind::Plan,
            News::PlanGone(plan.it.name.clone(), plan.it.uid.clone()),
        );
    }
}
