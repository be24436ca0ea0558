//! What people do.

use std::collections::BTreeMap;

use super::objects::Cordon;
use super::store::prune;
use super::wire::News;
use super::{Stored, Toy, ToyJob, ToyNode, Who};
use crate::api::{Plan, PlanSpec, names};
use crate::rollout::facts::Text;
use crate::rollout::tests::build;
use crate::rollout::{JobFacts, Kind, Labels, NodeFacts, Outcome, PlanFacts};

impl Toy {
    pub(in super::super) fn add_nodes(&mut self, names: &[&str]) {
        for name in names {
            self.add_node(name, |_| {});
        }
    }

    pub(in super::super) fn add_node(&mut self, name: &str, change: impl FnOnce(&mut NodeFacts)) {
        let uid = self.next_uid("node");
        let mut facts = build::node(name, &uid);
        change(&mut facts);
        let version = self.next_version();
        self.note(|| format!("node {name} {uid}"));
        self.emit(Kind::Node, News::Node(version, facts.clone()));
        let cordoned_by = if facts.unschedulable {
            Who::Person
        } else {
            Who::Nobody
        };
        self.nodes.insert(
            name.to_owned(),
            Stored {
                version,
                it: ToyNode {
                    boot: facts.boot_id.to_string(),
                    facts,
                    cordoned_by,
                    is_away: false,
                    goes_down: false,
                    sentinels: BTreeMap::new(),
                },
            },
        );
    }

    /// Creates a Plan, or makes the one of its name have its spec and metadata.
    pub(in super::super) fn apply(&mut self, mut plan: Plan) {
        let name = plan.metadata.name.clone().unwrap();
        self.note(|| format!("apply Plan {name} {:?}", plan.spec.version));
        if self.plans.contains_key(&name) {
            self.change_plan(&name, |known| {
                known.object.spec = plan.spec;
                for (key, value) in plan.metadata.annotations.into_iter().flatten() {
                    known
                        .object
                        .metadata
                        .annotations
                        .get_or_insert_default()
                        .insert(key, value);
                }
            });
            return;
        }
        let uid = plan.metadata.uid.clone().unwrap_or_else(|| self.next_uid("plan"));
        plan.metadata.uid = Some(uid.clone());
        plan.metadata.generation = Some(1);
        let mut facts = PlanFacts {
            name: name.as_str().into(),
            uid: uid.as_str().into(),
            object: plan,
            malformed: None,
        };
        prune(self.schema, &mut facts);
        let version = self.next_version();
        self.emit(Kind::Plan, News::Plan(version, Box::new(facts.clone())));
        self.plans.insert(name, Stored { version, it: facts });
    }

    pub(in super::super) fn change_plan(&mut self, plan: &str, change: impl FnOnce(&mut PlanFacts)) {
        self.changes_plan(plan, change);
    }

    /// A Secret is created or changed, and has this hash then.
    pub(in super::super) fn secret(&mut self, name: &str, hash: &str) {
        let version = self.next_version();
        self.emit(Kind::Secret, News::Secret(version, name.into()));
        self.secrets.insert(
            name.to_owned(),
            Stored {
                version,
                it: hash.to_owned(),
            },
        );
    }

    pub(in super::super) fn edit(&mut self, plan: &str, change: impl FnOnce(&mut PlanSpec)) {
        self.note(|| format!("edit of Plan {plan}"));
        self.change_plan(plan, |facts| change(&mut facts.object.spec));
        let spec = &self.plans[plan].it.object.spec;
        let text = format!(
            "{:?} {:?} {:?} {:?}",
            spec.version, spec.concurrency, spec.suspend, spec.upgrade.args
        );
        self.note(|| format!("    {text}"));
    }

    pub(in super::super) fn delete_plan(&mut self, plan: &str) {
        self.note(|| format!("Plan {plan} is deleted"));
        self.plan_goes(plan);
    }

    pub(in super::super) fn label(&mut self, node: &str, key: &str, value: Option<&str>) {
        self.note(|| format!("label of {node}: {key}={value:?}"));
        let value = value.map(Text::from);
        let before = self.nodes[node].it.facts.clone();
        self.done_label_is_touched(&before, key);
        self.change_node(node, |node| {
            let labels = node.facts.labels.iter().filter(|(k, _)| *k != key);
            let labels = labels.map(|(k, v)| (Text::from(k), Text::from(v)));
            node.facts.labels = Labels::new(
                labels
                    .chain(value.map(|value| (Text::from(key), value)))
                    .collect::<Vec<_>>(),
            );
        });
    }

    pub(in super::super) fn set_done_label(&mut self, node: &str, plan: &str, value: Option<&str>) {
        self.label(node, &format!("{}{plan}", names::LABEL_PLAN_PREFIX), value);
    }

    /// While the ledger names a holder, nobody can tell this cordon from the holder's: not who was away during the uncordon
    /// before it.
    pub(in super::super) fn cordon(&mut self, node: &str) {
        self.note(|| format!("a person cordons {node}"));
        self.change_node(node, |node| {
            if !node.facts.unschedulable {
                node.facts.unschedulable = true;
                let ledger = node.facts.ledger.as_ref().filter(|ledger| !ledger.before);
                let holder = ledger.and_then(|ledger| ledger.holders.first());
                node.cordoned_by = holder.map_or(Who::Person, |it| Who::Plan(it.plan_uid.clone()));
            }
        });
    }

    pub(in super::super) fn uncordon(&mut self, node: &str) {
        self.note(|| format!("a person uncordons {node}"));
        self.change_node(node, |node| {
            node.facts.unschedulable = false;
            node.cordoned_by = Who::Nobody;
        });
    }

    pub(in super::super) fn ready(&mut self, node: &str, ready: bool) {
        let ready = ready && !self.nodes[node].it.is_away;
        self.note(|| format!("{node} Ready: {ready}"));
        self.change_node(node, |node| node.facts.ready = ready);
    }

    pub(in super::super) fn retry(&mut self, node: &str, plan: &str) {
        self.note(|| format!("retry of {plan} on {node}"));
        self.change_node(node, |node| node.facts.retry = Some(plan.into()));
    }

    pub(in super::super) fn delete_node(&mut self, node: &str) {
        self.note(|| format!("node {node} is deleted"));
        self.node_goes(node);
    }

    pub(in super::super) fn delete_job(&mut self, job: &str) {
        self.note(|| format!("a person deletes Job {job}"));
        self.job_goes(job);
    }

    /// A Job of somebody else.
    pub(in super::super) fn foreign_job(&mut self, name: &str) {
        self.note(|| format!("somebody else's Job {name}"));
        let mut job = ToyJob::new(self.suc_job(name, "", "", ""), Cordon::None);
        job.ours = false;
        let version = self.next_version();
        self.jobs.insert(name.to_owned(), Stored { version, it: job });
    }

    /// A Job as system-upgrade-controller leaves it; `cordons` as its Plan did.
    pub(in super::super) fn add_suc_job(&mut self, facts: JobFacts, cordons: bool) {
        let cordon = if cordons { Cordon::Kubectl } else { Cordon::None };
        let mut job = ToyJob::new(facts, cordon);
        (job.ttl, job.drains) = (Some(900), cordons);
        self.job_is_created(&job);
        let version = self.next_version();
        self.emit(Kind::Job, News::Job(version, job.facts.clone()));
        let name = job.facts.name.to_string();
        let complete = matches!(job.facts.outcome, Outcome::Complete { .. });
        self.jobs.insert(name.clone(), Stored { version, it: job });
        if complete {
            self.job_succeeds(&name);
        }
    }

    pub(in super::super) fn suc_job(&mut self, name: &str, plan: &str, node: &str, hash: &str) -> JobFacts {
        let plan_uid = self.plans.get(plan).map_or("".into(), |plan| plan.it.uid.clone());
        JobFacts {
            name: name.into(),
            uid: self.next_uid("job").as_str().into(),
            plan: plan.into(),
            plan_uid,
            node: node.into(),
            node_uid: None,
            hash: hash.into(),
            version: "v1".into(),
            inputs: None,
            attempt: 1,
            parallelism: 1,
            backoff_limit: 2,
            failures: 0,
            ttl: 900,
            recorded: false,
            deleting: false,
            outcome: Outcome::Running,
            created: self.now,
            unschedulable_before: None,
            disruptive: true,
            sentinel: false,
            boots: [].into(),
        }
    }
}
