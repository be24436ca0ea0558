//! The invariants of roll-outs, checked on a journal of all changes of a cluster, in order. Tests fill the journal on the
//! simulated cluster and on a real control plane. Objects are parsed like the controller does; everything else is computed
//! independently.
//!
//! Only the simulated cluster reports which pod reboots a machine ([`JournalEvent::Reboot`]), so only there the invariants
//! of reboots are checked. The others hold on both.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use refit_api::{Hook, MarkForm, NodeMark, names};
use refit_facts::objects::Intern;
use refit_facts::{
    BootId, Hash, JobFacts, JobUid, NodeFacts, NodeUid, PlanFacts, PlanName, PlanUid, PodFacts, PodStage,
};
use refit_rehearse::Kind;
use refit_rehearse::journal::{Entry, JournalEvent};
use refit_rehearse::json::Value;
use refit_rehearse::store::Change;

/// Prefix of the names of controller clients.
pub const CONTROLLER: &str = "controller";
/// The name of a node that no Plan selects.
pub const SPARE: &str = "spare";
/// Prefix of the names of objects that an attacker has written. Nothing holds for them but what the attack says.
pub const HOSTILE: &str = "hostile";
/// The name of users' clients.
pub const USER: &str = "user";

/// A Plan on a machine.
type PlanOnNode = (PlanUid, NodeUid);
/// Any Plan of this name on a machine.
type NamedPlanOnNode = (PlanName, NodeUid);
/// An error is the broken invariant.
pub type Checked = Result<(), String>;

#[derive(Default)]
pub struct Invariants {
    pub nodes: BTreeMap<String, Node>,
    pub jobs: BTreeMap<String, JobFacts>,
    /// Jobs that verify nodes.
    pub verify_jobs: BTreeMap<String, JobFacts>,
    /// Jobs that run once for each roll-out.
    pub hook_jobs: BTreeMap<String, JobFacts>,
    /// Those that have succeeded: UID of the Plan, and hash.
    hooked: BTreeSet<(PlanUid, Hook, Hash)>,
    /// The upgrades that were verified (`Record::upgrade_id`).
    verified: BTreeSet<String>,
    pub plans: BTreeMap<String, PlanFacts>,
    pub pods: BTreeMap<String, Pod>,
    /// When the controller last wrote each Plan. The next write was decided later.
    decided: BTreeMap<String, Timestamp>,
    /// The shortest `settle.minReady` after a reboot among the Plans.
    min_ready: SignedDuration,
    intern: Intern,
    /// The last run on a node for a Plan.
    runs: BTreeMap<PlanOnNode, Run>,
    succeeded: BTreeSet<(PlanOnNode, Hash)>,
    /// The same by the name of the Plan, because the label has no UID: a run that was in flight when the Plan was
    /// recreated counts for the new Plan.
    succeeded_by_name: BTreeSet<(NamedPlanOnNode, Hash)>,
    /// Jobs whose result has been written to their node.
    recorded_on_node: BTreeSet<JobUid>,
    /// The boot in which the last upgrade that requires a reboot succeeded, by Plan name, node and hash.
    to_leave: BTreeMap<(NamedPlanOnNode, Hash), BootId>,
    /// Number of requested reboots since the last upgrade.
    requested: BTreeMap<(PlanOnNode, String), u32>,
    /// When each Plan last had a slot in status, by UID.
    busy: BTreeMap<String, Timestamp>,
    /// When each Plan last began to soak, by UID.
    soaking: BTreeMap<String, Timestamp>,
    /// What the `ConfigMap` `refit` said, and since when, in order.
    limits: Vec<(Timestamp, limits::Known)>,
    /// Since when the checks of all Plans fail.
    unhealthy: Option<Timestamp>,
    /// Number of waves that followed another one.
    pub waves: u64,
    /// Number of reboots by pods.
    pub reboots: u64,
    /// Number of started upgrades.
    pub upgrades: u64,
    /// Events about hostile objects: their names and the reasons.
    named: BTreeSet<(String, String)>,
    /// Leases of nodes that a controller of Plans holds.
    node_leases: BTreeSet<String>,
    /// Machines that a controller of Plans keeps from being remediated.
    skipped_machines: BTreeSet<String>,
    /// UIDs of the `NodeMaintenance` objects that are not being deleted.
    maintenances: BTreeSet<String>,
    /// A log, one line per entry.
    log: Vec<String>,
}

struct Run {
    hash: Hash,
    job_uid: JobUid,
    /// Whether it may run again: the attempt was recorded, a user requested it, or the Job was lost.
    again: bool,
    /// Whether a user has edited the Plan since, so that its failure may be cleared.
    edited: bool,
    /// The Job was lost, and only the sentinel proves its success, for a Plan with `reboot`.
    proven_by_sentinel: bool,
}

pub struct Node {
    pub facts: NodeFacts,
    /// Marks for load balancers and autoscalers with the value that refit gives them.
    marks: Vec<NodeMark>,
    /// Who made it unschedulable.
    cordoned_by: CordonedBy,
    fitness: Fitness,
    /// Since when it has been available, or not.
    unchanged_since: Timestamp,
    /// The previous boots, and when they ended.
    left: BTreeMap<String, Timestamp>,
}

impl Node {
    /// Number of reboots of the machine.
    pub fn left_boots(&self) -> usize {
        self.left.len()
    }
}

/// Whether a node is Ready and untainted, since when, and how long it was not before.
#[derive(Clone, Copy, Default)]
struct Fitness {
    since: Option<Timestamp>,
    before: SignedDuration,
}

/// Longer than a write may be under way that was decided while the last answer was good.
const LAST_ANSWER: SignedDuration = SignedDuration::from_secs(120);
/// Longer than the delay of events, so that a controller must have seen it.
const SEEN: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CordonedBy {
    Nobody,
    Refit,
    User,
}

pub struct Pod {
    pub facts: PodFacts,
    /// The container of the last start of its upgrade.
    container: Option<String>,
    /// Since when it has been running.
    upgrading: Option<Timestamp>,
}

macro_rules! invariant {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

// declared here because they need the macro
mod despite;
mod hooks;
mod jobs;
mod lifecycle;
mod limits;
mod nodes;
mod plans;
mod pods;
mod reasons;
mod verify;
mod waves;

impl Invariants {
    /// From now on, the checks of all Plans pass or fail.
    pub fn set_health(&mut self, is_healthy: bool, now: Timestamp) {
        self.unhealthy = (!is_healthy).then_some(now);
    }

    /// Requires that a node settles at least so long after a reboot.
    pub fn with_min_ready(min_ready: SignedDuration) -> Self {
        Self {
            min_ready,
            ..Self::default()
        }
    }

    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Checks an entry of the journal.
    ///
    /// # Errors
    /// Fails if the entry breaks an invariant, with a sentence that names it, the object and the values.
    pub fn observe(&mut self, entry: &Entry) -> Checked {
        let Entry { at, who, what } = entry;
        let who = if who.starts_with(CONTROLLER) {
            CONTROLLER
        } else {
            who
        };
        match what {
            // An event begins with the name of its object.
            JournalEvent::Change(kind, change) if *kind != Kind::Event && is_hostile(&change.new.value) => {
                Ok(())
            }
            JournalEvent::Change(kind, change) => {
                let done = match kind {
                    Kind::Plan => self.plan(*at, who, change),
                    Kind::Node => self.node(*at, who, change),
                    Kind::Job => self.job(*at, who, change),
                    Kind::Pod => self.pod(*at, change),
                    Kind::ConfigMap => {
                        self.limits(*at, change);
                        Ok(())
                    }
                    Kind::Maintenance | Kind::OldMaintenance => {
                        self.maintenance(change);
                        Ok(())
                    }
                    Kind::Lease => {
                        let holder = &change.new.value["spec"]["holderIdentity"];
                        note(&mut self.node_leases, change, holder);
                        Ok(())
                    }
                    Kind::Machine | Kind::OldMachine => {
                        let skips =
                            &change.new.value["metadata"]["annotations"][names::ANNOTATION_SKIP_REMEDIATION];
                        note(&mut self.skipped_machines, change, skips);
                        Ok(())
                    }
                    // In the words of node-maintenance-operator.
                    Kind::Event if change.new.value["source"]["component"] == "NodeMaintenance" => Ok(()),
                    // Of the Job controller.
                    Kind::Event if change.new.value["involvedObject"]["kind"] == "Job" => Ok(()),
                    Kind::Event if !change.gone => {
                        self.note_named(&change.new.value);
                        reasons::check_event(&change.new.value)
                    }
                    _ => Ok(()),
                };
                done.map_err(|why| format!("{at} {who}: {why}"))
            }
            JournalEvent::Prepare { .. } => Ok(()),
            JournalEvent::Reboot { node, pod } => {
                self.log_line(*at, &format!("{} reboots {node}", pod.name));
                self.reboot(node, &pod.name)
            }
        }
    }

    /// One that is being deleted wants its node no more, whatever is still under way.
    fn maintenance(&mut self, change: &Change) {
        let metadata = &change.new.value["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        if change.gone || metadata["deletionTimestamp"].is_string() {
            self.maintenances.remove(&uid);
        } else {
            self.maintenances.insert(uid);
        }
    }

    /// The object, other than a Plan, that holds a node and wants it.
    fn front_end<'a>(&self, node: &'a NodeFacts) -> Option<&'a str> {
        let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
        let holder = holders
            .find(|holder| holder.is_of_front_end() && self.maintenances.contains(&*holder.plan_uid))?;
        Some(&holder.plan)
    }

    fn note_named(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = text(&event["involvedObject"]["name"]);
        if about.starts_with(HOSTILE) {
            self.named.insert((about, text(&event["reason"])));
        }
    }

    /// Whether an event with this reason has named a hostile object.
    pub fn is_named(&self, object: &str, reason: &str) -> bool {
        self.named.contains(&(object.to_owned(), reason.to_owned()))
    }

    fn log_line(&mut self, at: Timestamp, text: &str) {
        self.log.push(format!("{at:.3}     {text}"));
    }

    /// Checks the state after the roll-out: all nodes are done, and nothing of refit is left.
    ///
    /// # Errors
    /// Fails with the first node that is not done, and with the first cordon, taint, label, ledger or record that is left.
    pub fn check_final_state(&self) -> Checked {
        for (name, node) in &self.nodes {
            let facts = &node.facts;
            invariant!(
                facts.ledger.is_none(),
                "a ledger is left on {name}: {:?}",
                facts.ledger
            );
            invariant!(
                facts.remediation.is_none(),
                "the remediation of {name} is left paused: {:?}",
                facts.remediation
            );
            invariant!(
                node.marks.is_empty(),
                "marks are left on {name}: {:?}",
                node.marks
            );
            let mut taints = facts.taints.iter().flatten();
            let is_ours = |key: &str| {
                let mut marks = NodeMark::ALL.iter().filter(|mark| mark.form() == MarkForm::Taint);
                key.starts_with(names::TAINT_PENDING_PREFIX)
                    || key == names::TAINT_NEW_NODE
                    || marks.any(|mark| mark.key() == key)
            };
            let left = taints.find(|taint| is_ours(&taint.key) && !facts.unschedulable);
            invariant!(left.is_none(), "a taint is left on {name}: {left:?}");
            lifecycle::check_none_left(name, facts)?;
            invariant!(
                facts.records.is_empty(),
                "records are left on {name}: {:?}",
                facts.records
            );
            invariant!(
                !facts.unschedulable || node.cordoned_by == CordonedBy::User,
                "{name} is left cordoned by {:?}",
                node.cordoned_by
            );
            for (plan, known) in self.plans.iter().filter(|_| name != SPARE) {
                let label = facts.labels.of_plan(plan);
                let hash = known.status().latest_hash.as_deref();
                if label == Some(names::LABEL_VALUE_DISABLED) {
                    continue;
                }
                if known.object.spec.is_on_request() {
                    let open = facts
                        .needed_reboot()
                        .filter(|request| label.is_none() || request.boot_id.is_some());
                    invariant!(
                        open.is_none(),
                        "{name} needs a reboot, and {plan} is over: {open:?}"
                    );
                    continue;
                }
                invariant!(
                    label == hash,
                    "{name} is not done: {label:?} for {hash:?} of {plan}"
                );
            }
        }
        for left in [&self.node_leases, &self.skipped_machines] {
            invariant!(
                left.is_empty(),
                "the remediation of a node is left paused: {left:?}"
            );
        }
        let left = self
            .pods
            .values()
            .find(|pod| pod.facts.reboot.is_some() || pod.facts.stage != PodStage::Ended);
        invariant!(left.is_none(), "a pod is left: {:?}", left.map(|pod| &pod.facts));
        let jobs = self.jobs.values().chain(self.verify_jobs.values());
        for job in jobs.chain(self.hook_jobs.values()) {
            invariant!(job.recorded, "not recorded: {job:?}");
        }
        for (name, plan) in &self.plans {
            let status = plan.status();
            invariant!(
                status.applying.is_none(),
                "{name} is over, and applies: {status:?}"
            );
        }
        Ok(())
    }
}

/// Notes an object by the holder that it names, if that is a controller of Plans.
fn note(held: &mut BTreeSet<String>, change: &Change, holder: &Value) {
    let name = change.new.value["metadata"]["name"].as_str().unwrap_or_default();
    let is_ours = holder.as_str().is_some_and(|holder| holder.starts_with("refit/"));
    if is_ours && !change.gone {
        held.insert(name.to_owned());
    } else {
        held.remove(name);
    }
}

/// Whether an attacker has written the object.
pub fn is_hostile(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str();
    name.is_some_and(|name| name.starts_with(HOSTILE))
}

fn read<'a, T: serde::Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("{value} cannot be read: {error}"))
}
