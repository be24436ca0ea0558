//! What the API server stores: facts, and what only the cluster knows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::api::names;
use crate::rollout::facts::Text;
use crate::rollout::{
    Holder, JobFacts, Ledger, NodeChange, NodeFacts, Outcome, PodFacts, RebootPod, Record, Stage,
};

/// Who cordoned a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Who {
    Nobody,
    Person,
    /// A pod of refit's, for the Plan of this UID.
    Plan(String),
    /// kubectl, in a Job of system-upgrade-controller.
    Kubectl,
}

#[derive(Clone, Debug)]
pub(in super::super) struct ToyNode {
    pub(in super::super) facts: NodeFacts,
    pub(in super::super) cordoned_by: Who,
    /// The boot that the machine is in. The Node says so once the kubelet is back.
    pub(in super::super) boot: String,
    /// Its kubelet has not been heard of in this boot.
    pub(in super::super) is_away: bool,
    /// It has been asked to reboot.
    pub(in super::super) goes_down: bool,
    /// Sentinels in `/run`, by UID of the Plan and hash: whether a reboot is required. They are of this boot.
    pub(in super::super) sentinels: BTreeMap<(Text, Text), bool>,
}

/// How a Job cordons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Cordon {
    None,
    /// With refit's own image, which keeps a ledger.
    Refit(Holder),
    Kubectl,
}

#[derive(Clone, Debug)]
pub(in super::super) struct ToyJob {
    pub(in super::super) facts: JobFacts,
    /// It bears our controller label.
    pub(in super::super) ours: bool,
    pub(in super::super) cordon: Cordon,
    /// It cordons with a drain.
    pub(in super::super) drains: bool,
    pub(in super::super) ttl: Option<i64>,
    /// Its upgrade container has been started.
    pub(in super::super) upgraded: bool,
    /// Image of its upgrade.
    pub(in super::super) image: String,
}

#[derive(Clone, Debug)]
pub(in super::super) struct ToyPod {
    pub(in super::super) facts: PodFacts,
    /// Node that it is for.
    pub(in super::super) target: String,
    pub(in super::super) cordon: Cordon,
    pub(in super::super) drains: bool,
    pub(in super::super) terminating: bool,
    pub(in super::super) succeeded: Option<bool>,
    /// Its Job has a sentinel; of which hash.
    pub(in super::super) sentinel: Option<Text>,
    /// UID of its Plan.
    pub(in super::super) plan_uid: Text,
    /// It has requested a reboot, and sleeps.
    pub(in super::super) sleeps: bool,
}

/// The facts of a rendered Job, by its labels and annotations, as the controller reads them.
pub(super) fn job_facts(job: &Job, uid: &str, created: Timestamp) -> JobFacts {
    let meta = &job.metadata;
    let label = |key: &str| {
        meta.labels
            .as_ref()
            .and_then(|l| l.get(key))
            .map_or("", String::as_str)
    };
    let annotation = |key: &str| {
        meta.annotations
            .as_ref()
            .and_then(|a| a.get(key))
            .map(String::as_str)
    };
    let spec = job.spec.as_ref().unwrap();
    let inits = spec
        .template
        .spec
        .as_ref()
        .unwrap()
        .init_containers
        .iter()
        .flatten();
    let plan = label(names::LABEL_PLAN);
    JobFacts {
        name: meta.name.as_deref().unwrap().into(),
        uid: uid.into(),
        plan: plan.into(),
        plan_uid: annotation(names::ANNOTATION_PLAN_UID).unwrap().into(),
        node: annotation(names::ANNOTATION_NODE_NAME).unwrap().into(),
        node_uid: annotation(names::ANNOTATION_NODE_UID).map(Text::from),
        hash: label(&format!("{}{plan}", names::LABEL_PLAN_PREFIX)).into(),
        version: label(names::LABEL_VERSION).into(),
        inputs: annotation(names::ANNOTATION_INPUTS).map(Text::from),
        attempt: annotation(names::ANNOTATION_ATTEMPT).unwrap().parse().unwrap(),
        parallelism: spec.parallelism.unwrap(),
        backoff_limit: spec.backoff_limit.unwrap(),
        failures: 0,
        ttl: annotation(names::ANNOTATION_TTL).unwrap().parse().unwrap(),
        recorded: false,
        deleting: false,
        outcome: Outcome::Running,
        created,
        unschedulable_before: annotation(names::ANNOTATION_UNSCHEDULABLE_BEFORE).map(|b| b == "true"),
        disruptive: label(names::LABEL_EXCLUSIVE) == "true"
            || inits
                .clone()
                .any(|c| matches!(c.name.as_str(), "cordon" | "drain"))
            || annotation(names::ANNOTATION_REBOOT).is_some(),
        sentinel: annotation(names::ANNOTATION_REBOOT).is_some(),
        boots: [].into(),
    }
}

/// A pod that reboots a node, as it is asked for.
pub(super) fn reboot_pod(
    plan: &Text,
    plan_uid: &Text,
    node: &NodeFacts,
    name: &Text,
    hash: Text,
    boot_id: Option<Text>,
    created: Timestamp,
) -> ToyPod {
    ToyPod {
        facts: PodFacts {
            name: name.clone(),
            uid: "".into(),
            job_uid: plan_uid.clone(),
            plan: plan.clone(),
            node: Some(node.name.clone()),
            stage: Stage::Starting,
            waiting: None,
            drain: None,
            last_words: None,
            upgraded: false,
            found: None,
            reboot: Some(Box::new(RebootPod {
                plan_uid: plan_uid.clone(),
                node_uid: node.uid.clone(),
                hash,
                boot_id,
                created,
                succeeded: false,
            })),
            deleting: false,
        },
        target: node.name.to_string(),
        cordon: Cordon::None,
        drains: false,
        terminating: false,
        succeeded: None,
        sentinel: None,
        plan_uid: plan_uid.clone(),
        sleeps: false,
    }
}

/// Carries out a merge patch of a Node.
pub(super) fn apply(facts: &mut NodeFacts, change: &NodeChange) {
    let mut labels: BTreeMap<Text, Text> = facts.labels.iter().map(|(k, v)| (k.into(), v.into())).collect();
    for (key, value) in &change.labels {
        match value {
            Some(value) => labels.insert(key.as_str().into(), value.as_str().into()),
            None => labels.remove(key.as_str()),
        };
    }
    facts.labels = crate::rollout::Labels::new(labels);
    for (key, value) in &change.annotations {
        if let Some(plan) = key.strip_prefix(names::ANNOTATION_RECORD_PREFIX) {
            match value {
                Some(text) => facts.records.insert(plan.into(), Record::parse(text).unwrap()),
                None => facts.records.remove(plan),
            };
        } else if key == names::ANNOTATION_CORDON {
            facts.ledger = value.as_deref().map(|text| Ledger::parse(text).unwrap());
        } else if key == names::ANNOTATION_RETRY {
            facts.retry = value.as_deref().map(Text::from);
        } else {
            panic!("annotation {key} of a Node");
        }
    }
    if let Some(unschedulable) = change.unschedulable {
        facts.unschedulable = unschedulable;
    }
}

impl ToyNode {
    /// What `refit cordon` does: cordon and ledger are one patch. `passed`: that is all.
    pub(super) fn cordon(&mut self, holder: &Holder, passed: bool) {
        let facts = &mut self.facts;
        let holder = Holder {
            passed,
            ..holder.clone()
        };
        let ledger = Ledger::entered(facts.ledger.as_ref(), facts.unschedulable, holder.clone());
        facts.ledger = Some(ledger.unwrap());
        if !facts.unschedulable {
            facts.unschedulable = true;
            self.cordoned_by = Who::Plan(holder.plan_uid);
        }
    }

    /// A drain notes whose pods it evicts.
    pub(super) fn evicts(&mut self, holder: &Holder) {
        let workload = format!("ReplicaSet/shop/on-{}", self.facts.name);
        let holders = self
            .facts
            .ledger
            .iter_mut()
            .flat_map(|ledger| &mut ledger.holders);
        for mine in holders.filter(|one| one.is_same(holder)) {
            mine.evicted = vec![workload.clone()];
        }
    }

    /// The holder as the ledger has it.
    pub(super) fn holder(&self, holder: &Holder) -> Option<&Holder> {
        let mut holders = self.facts.ledger.iter().flat_map(|ledger| &ledger.holders);
        holders.find(|one| one.is_same(holder))
    }

    /// Whether a cordon or drain gets in; one that was told to stop does not.
    pub(super) fn lets_in(&self, holder: &Holder) -> bool {
        self.holder(holder).is_none_or(|mine| !mine.cancelled)
    }

    /// Whether the last act of a drain gets through. Where a person has uncordoned the node meanwhile, that is respected.
    pub(super) fn lets_through(&self, holder: &Holder) -> bool {
        match self.holder(holder) {
            Some(mine) => !mine.cancelled,
            None => !self.facts.unschedulable,
        }
    }
}

impl ToyPod {
    pub(super) fn has_ended(&self) -> bool {
        self.facts.stage == Stage::Ended
    }

    /// It is on a node and may be at work there.
    pub(in super::super) fn is_at_work(&self) -> bool {
        self.facts.node.is_some() && !self.has_ended()
    }
}
