//! What must hold whatever happens, judged on every change of the cluster in its order. The objects are read as the
//! controller reads them; all else is worked out here.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::people::SPARE;
use crate::api::names;
use crate::controller::objects::Intern;
use crate::rehearse::Kind;
use crate::rehearse::journal::{Entry, What};
use crate::rehearse::json::Value;
use crate::rollout::{JobFacts, NodeFacts, PlanFacts, PodFacts, Stage};

/// How the names of the clients of controllers begin.
pub(super) const CONTROLLER: &str = "controller";
/// Name of whoever meddles.
pub(super) const PERSON: &str = "somebody";

/// UIDs of a Plan and a node.
type Place = (String, String);
/// Name of a Plan and UID of a node.
type ByName = (String, String);
/// The law that was broken.
pub(super) type Broken = Result<(), String>;

#[derive(Default)]
pub(super) struct Laws {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) jobs: BTreeMap<String, JobFacts>,
    pub(super) plans: BTreeMap<String, PlanFacts>,
    pub(super) pods: BTreeMap<String, Pod>,
    intern: Intern,
    /// What ran last on a node for a Plan.
    runs: BTreeMap<Place, Run>,
    succeeded: BTreeSet<(Place, String)>,
    /// The same by the Plan's name, which is all that a label says: one that was on its way when the Plan was made again
    /// counts for the new one.
    succeeded_by_name: BTreeSet<(ByName, String)>,
    /// Jobs whose result has come to their node.
    told_to_node: BTreeSet<String>,
    /// Boot in which the last upgrade succeeded that asked for a reboot, by Plan name, node and hash.
    to_leave: BTreeMap<(ByName, String), String>,
    /// Reboots that were requested since the upgrade ran last.
    requested: BTreeMap<(Place, String), u32>,
    pub(super) reboots: u64,
    pub(super) upgrades: u64,
    /// When it was changed last how many nodes a Plan may work on, and how many that were before.
    limits: BTreeMap<String, (Timestamp, usize)>,
    /// How many Jobs were made for a node that status named as next.
    pub(super) nexts: u64,
    /// What has been seen, a line each.
    story: Vec<String>,
}

struct Run {
    hash: String,
    job_uid: String,
    /// It may run again: the attempt was written down, somebody asked for it, or the Job was lost.
    again: bool,
    /// Somebody has edited the Plan since: its failure need not count any more.
    edited: bool,
    /// The Job was lost, and only the sentinel on the node tells of its success: to a Plan that asks for a reboot.
    told_by_sentinel: bool,
}

pub(super) struct Node {
    pub(super) facts: NodeFacts,
    /// Who made it unschedulable, if it is.
    pub(super) cordoned_by: Who,
    fitness: Fitness,
    /// The boots that it has left, and when.
    left: BTreeMap<String, Timestamp>,
}

/// Whether a node is fit, since when, and for how long it was otherwise before.
#[derive(Clone, Copy, Default)]
struct Fitness {
    since: Option<Timestamp>,
    before: SignedDuration,
}

/// The shortest `settle.minReady` after a reboot: what people write, and less than where they write nothing.
pub(super) const MIN_READY: SignedDuration = SignedDuration::from_secs(7);

/// Longer than news are on their way, so that a controller must have seen it.
const SEEN: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Nobody,
    Refit,
    Person,
}

pub(super) struct Pod {
    pub(super) facts: PodFacts,
    /// The container of the last start of its upgrade.
    container: Option<String>,
    /// Since when it runs.
    upgrading: Option<Timestamp>,
}

macro_rules! law {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

mod jobs; // they need the macro
mod nodes;
mod plans;
mod pods;

impl Laws {
    /// What was seen since this was last asked.
    pub(super) fn take_story(&mut self) -> Vec<String> {
        std::mem::take(&mut self.story)
    }

    /// Something has happened.
    pub(super) fn learn(&mut self, entry: &Entry) -> Broken {
        let Entry { at, who, what } = entry;
        let who = if who.starts_with(CONTROLLER) {
            CONTROLLER
        } else {
            who
        };
        match what {
            What::Change(kind, change) => {
                let done = match kind {
                    Kind::Plan => self.plan(*at, who, change),
                    Kind::Node => self.node(*at, who, change),
                    Kind::Job => self.job(*at, who, change),
                    Kind::Pod => self.pod(*at, change),
                    _ => Ok(()),
                };
                done.map_err(|why| format!("{at} {who}: {why}"))
            }
            What::Reboot { node, pod } => {
                self.tell(*at, &format!("{} reboots {node}", pod.name));
                self.reboot(node, &pod.name)
            }
        }
    }

    fn tell(&mut self, at: Timestamp, text: &str) {
        self.story.push(format!("{at:.3}     {text}"));
    }

    /// What is left when all is over.
    pub(super) fn aftermath(&self) -> Broken {
        for (name, node) in &self.nodes {
            let facts = &node.facts;
            law!(
                facts.ledger.is_none(),
                "a ledger is left on {name}: {:?}",
                facts.ledger
            );
            law!(
                facts.records.is_empty(),
                "records are left on {name}: {:?}",
                facts.records
            );
            law!(
                !facts.unschedulable || node.cordoned_by == Who::Person,
                "{name} is left cordoned by {:?}",
                node.cordoned_by
            );
            for (plan, known) in self.plans.iter().filter(|_| name != SPARE) {
                let label = facts.labels.get_joined(names::LABEL_PLAN_PREFIX, plan);
                let hash = known.status().latest_hash.as_deref();
                law!(
                    label == Some(names::LABEL_VALUE_DISABLED) || label == hash,
                    "{name} is not done: {label:?} for {hash:?} of {plan}"
                );
            }
        }
        let left = self
            .pods
            .values()
            .find(|pod| pod.facts.reboot.is_some() || pod.facts.stage != Stage::Ended);
        law!(left.is_none(), "a pod is left: {:?}", left.map(|pod| &pod.facts));
        for job in self.jobs.values() {
            law!(job.recorded, "not recorded: {job:?}");
        }
        for (name, plan) in &self.plans {
            let status = plan.status();
            law!(
                status.applying.is_none(),
                "{name} is over, and applies: {status:?}"
            );
        }
        Ok(())
    }
}

fn read<'a, T: serde::Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("{value} cannot be read: {error}"))
}
