//! One node under one Plan: its state, derived from its Job, its record and the stored status, and the next steps. The
//! result depends only on these facts, so a new controller continues where another one stopped.

mod begin;
mod boots;
mod cancel;
mod daemon_sets;
pub(super) mod fail;
mod finish;
mod lost;
mod reboot;
mod recover;
mod settle;
mod skip;
pub(super) mod state;
mod unreadable;
mod verify;
mod waits;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::event::Event;
use super::permissions;
use super::plan::DerivedPlan;
use super::start::taints::Tolerations;
use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_api::{NodePhase, NodeProgress, ObjectRef, Reason, names};
use refit_facts::record::{Phase, Record};
use refit_facts::{Hash, JobFacts, JobOutcome, NodeFacts, NodeName, PodFacts, PodStage, words};
use state::{NodeDecision, NodeState, Start};

/// Reconciles the nodes of one Plan.
pub(super) struct NodeReconciler<'a> {
    pub(super) cluster: &'a ClusterState,
    pub(super) plan: &'a DerivedPlan,
    pub(super) now: Timestamp,
    /// Why the node may not start, as far as it is the Plan that says so.
    pub(super) gate: Option<&'a Blocker>,
}

impl NodeReconciler<'_> {
    /// `stored_entry` is the node's entry in the stored status, if it has a slot there.
    pub(super) fn reconcile(&self, name: &NodeName, stored_entry: Option<&NodeProgress>) -> NodeDecision {
        if let Some((_, unreadable)) = self.cluster.world.nodes.unreadable(name) {
            return self.leave_alone(name, unreadable, stored_entry);
        }
        let Some(node) = self.cluster.world.nodes.get(name) else {
            return NodeDecision::Cleanup(self.without_node(name));
        };
        let mut cleanup = self.release_verify_jobs(name, Some(node));
        let mut leaving = None;
        let mut live: Vec<&JobFacts> = Vec::new();
        let mut ended: Vec<&JobFacts> = Vec::new();
        for job in self.jobs_on(name) {
            // Names are reused: by a Plan that is recreated, by a machine that joins under the name of another, and
            // by nodes that share a short host name (W13). UIDs are not. A Job of system-upgrade-controller has no
            // UID of the Node.
            let right = job.plan_uid == self.plan.facts.uid
                && job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
            // It may still end before it is gone. Then `ClusterState::remove_job` keeps it, and its result is
            // recorded.
            if job.deleting {
                leaving = Some(job);
            } else if !right {
                leaving = Some(job);
                cleanup.push(Step::delete(
                    job,
                    "it is for another Plan or another machine of the same name",
                ));
            } else if job.recorded || self.cluster.world.jobs.lacks_annotation(job) {
                // Recorded: the Job needs no further step.
            } else if self.cluster.is_result_recorded(job) || self.is_superseded(job) {
                cleanup.push(self.mark_done(node, job));
            } else if job.is_live() {
                live.push(job);
            } else {
                ended.push(job);
            }
        }
        // By the end, not by the creation: clocks of API servers differ, and creation times have seconds only.
        ended.sort_by_key(|job| job.outcome.ended());
        if let Some(first) = live
            .iter()
            .position(|job| self.is_wanted(node, job))
            .or((!live.is_empty()).then_some(0))
        {
            // Of several live Jobs, the one that the Plan needs continues. Others exist after a fail-over or next to
            // those of system-upgrade-controller.
            let job = live.swap_remove(first);
            cleanup.extend(live.iter().filter_map(|job| self.replace(job, NOT_REQUIRED)));
            cleanup.extend(ended.iter().map(|job| self.mark_recorded(job, Vec::new())));
            return NodeDecision::slot(self.reconcile_live_job(node, job, stored_entry)).and(cleanup);
        }
        let last = ended.pop();
        // A later Job supersedes all Jobs that ended before it.
        cleanup.extend(ended.iter().map(|job| self.mark_recorded(job, Vec::new())));
        let decision = match last {
            Some(job) if matches!(job.outcome, JobOutcome::Complete { .. }) => self.finish_job(node, job),
            Some(job) => self.fail(node, job, stored_entry, leaving),
            None => self.without_job(node, stored_entry, leaving),
        };
        decision.and(cleanup)
    }

    fn jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.cluster
            .world
            .jobs
            .on(node)
            .filter(|job| job.plan == self.plan.facts.name)
    }

    /// Whether a later Job was created after this one had ended. The controller does that only after it has recorded
    /// the result, even if the annotation on this Job is missing.
    fn is_superseded(&self, job: &JobFacts) -> bool {
        let Some(ended) = job.outcome.ended() else {
            return false;
        };
        self.jobs_on(&job.node).any(|next| {
            next.recorded
                && next.plan_uid == job.plan_uid
                && next.node_uid == job.node_uid
                && next.created > job.created
                && next.created >= ended
        })
    }

    /// Steps for the Jobs of a node that no longer exists.
    fn without_node(&self, name: &str) -> Vec<Step> {
        self.jobs_on(name)
            .filter(|job| !job.deleting)
            // The Job would replace its pod until its deadline, and no node could run the new one.
            .map(|job| Step::delete(job, "its node is gone"))
            .chain(self.release_verify_jobs(name, None))
            .collect()
    }

    /// Since when this process has known the record.
    fn known_since(&self, node: &NodeFacts, record: &Record) -> Timestamp {
        let known = self.cluster.memory.timers.record_known_since(node, record);
        known.unwrap_or(self.now)
    }

    fn is_eligible(&self, node: &NodeFacts) -> bool {
        self.plan.targets.is_eligible(&node.name)
    }

    fn can_start(&self, node: &NodeFacts) -> bool {
        node.ready || self.plan.selection.tolerates_not_ready
    }

    /// The node, if its taints keep the pod of a Job off it.
    fn kept_off_by(&self, node: &NodeFacts) -> Option<ObjectRef> {
        let taints = Tolerations::of(self.plan).blocker(node);
        taints.map(|_| ObjectRef::node(&*node.name))
    }

    fn hash(&self) -> Option<&Hash> {
        self.plan.resolved.as_ref().map(|r| &r.hash)
    }

    fn record<'n>(&self, node: &'n NodeFacts) -> Option<&'n Record> {
        self.plan.facts.record(node)
    }

    /// Whether the Job matches the Plan, and may begin its upgrade. An invalid spec matches every Job, so that nodes in
    /// progress finish.
    fn is_wanted(&self, node: &NodeFacts, job: &JobFacts) -> bool {
        !self.plan.is_aborted() && self.matches_plan(node, job)
    }

    fn matches_plan(&self, node: &NodeFacts, job: &JobFacts) -> bool {
        self.plan.facts.malformed.is_some()
            || self.is_eligible(node)
                && self.plan.is_at(&job.hash)
                // Jobs of system-upgrade-controller have no digest of their inputs, so only another hash replaces them.
                && job
                    .inputs
                    .as_ref()
                    .is_none_or(|inputs| *inputs == self.plan.inputs)
    }

    /// Reconciles a Job that has not ended. If the Plan no longer needs it, the controller deletes it before it runs on
    /// the node, cancels it during the drain, and lets a running upgrade finish.
    fn reconcile_live_job(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        stored_entry: Option<&NodeProgress>,
    ) -> NodeState {
        // The Job controller waits for the end of the pods before it sets Failed (KEP-3939), and pods of a node that
        // is down do not end. Without this the node would count as upgrading for ever.
        if let JobOutcome::Failing { reason, message } = &job.outcome
            && (!node.ready || self.has_lost_slot(stored_entry))
        {
            let mut state = NodeState::of_job(node, job, NodePhase::Failed);
            let why = if node.ready {
                "the node was lost, and its pod is being ended"
            } else {
                "the node is not Ready, so the state of its pod is unknown: repair the node, or delete it"
            };
            let text = format!("{reason}: {message}; {why}");
            // A machine that is gone for good must not hold up a roll-out that continues without failed nodes.
            state.frees_slot = self.plan.failed_nodes_free_slots();
            return state.with_reason(Reason::NodeLost, text);
        }
        if let Some(state) = self.stop_for_good(node, job) {
            return state;
        }
        let pod = self.pod(job);
        let pod_stage = pod.map_or(PodStage::Unbound, |p| p.stage);
        let mut state = NodeState::of_job(node, job, pod_stage.phase());
        if let Some(why) = pod.and_then(|p| p.waiting.clone()) {
            let taints = Some(node).filter(|_| pod_stage == PodStage::Unbound && words::names_taints(&why));
            let about = taints.and_then(|node| self.kept_off_by(node));
            let taints = taints.and_then(|node| Tolerations::of(self.plan).blocker(node));
            let text = taints.map_or(why.clone(), |blocker| {
                format!("{blocker}; the scheduler says: {why}")
            });
            state = state.with_reason(Reason::PodWaiting, shorten(&text, MAX_MESSAGE).into_owned());
            state.about = about.into_iter().collect();
        }
        // The annotation stays on the Node after a drain, so it may be that of an earlier pod, or of another Plan.
        if let Some(drain) = &node.drain
            && pod.is_some_and(|pod| pod.stage == PodStage::Drain && *pod.uid == *drain.pod)
        {
            let progress = shorten(&drain.note.to_string(), MAX_MESSAGE).into_owned();
            state = if !drain.note.running.is_empty() {
                let (reason, text) = self.wait_for_pods(node, job, progress);
                state.with_reason(reason, text)
            } else if drain.note.waiting.is_empty() {
                state.with_message(progress)
            } else {
                state.with_reason(Reason::DrainWaiting, progress)
            };
        }
        state = self.with_wait(state, job, waits::entry_of(job, stored_entry));
        if !node.ready && pod_stage != PodStage::Unbound {
            state = state.with_blocker(&Blocker::NodeNotReady);
        }
        if let Some(step) = self.revoke_late_cancel(node, job) {
            state.steps.push(step);
        } else if self.is_cancelled(node) {
            state = state.with_reason(
                Reason::Cancelled,
                "the Plan no longer requires this Job, and refit has cancelled its drain".to_owned(),
            );
        }
        if !self.is_wanted(node, job) {
            let replaced = self.replace(job, NOT_REQUIRED);
            state.steps.extend(replaced.or_else(|| self.cancel(node, job)));
        } else if let Some(replaced) = self.replace_kept_off(node, job) {
            state.steps.push(replaced);
        } else if job.parallelism == 0 {
            // system-upgrade-controller creates Jobs suspended and releases them in a second step.
            let may = self.may_begin(stored_entry) && self.gate.is_none() && self.can_start(node);
            let step = Step::ReleaseJob {
                job: job.name.clone(),
                uid: job.uid.clone(),
            };
            state.start = Some(if may { Start::Now(step) } else { Start::Later });
        }
        // Only if no step ends the Job.
        if state.steps.is_empty() && state.start.is_none() {
            state.steps.extend(boots::note_boot(node, job));
        }
        state
    }

    /// The pod that shows the progress of a Job.
    fn pod(&self, job: &JobFacts) -> Option<&PodFacts> {
        self.cluster
            .world
            .pods
            .of(job)
            // After a retry there are several pods; one that still runs says more than one that has ended.
            .max_by_key(|p| (p.stage != PodStage::Ended, p.stage))
    }

    /// Another Node has got the hostname of this one since the Job was created, so a pod there can keep the scheduler from
    /// binding that of the Job until it exceeds its deadline. The next Job does not look at hostnames.
    fn replace_kept_off(&self, node: &NodeFacts, job: &JobFacts) -> Option<Step> {
        (job.avoids_hosts && job.parallelism > 0 && self.cluster.world.nodes.shares_hostname(node)).then(
            || {
                self.replace(
                    job,
                    "another Node has the hostname of its node, and none of its pods runs",
                )
            },
        )?
    }

    fn replace(&self, job: &JobFacts, why: &'static str) -> Option<Step> {
        // Until a pod is bound to the node, nothing has happened there, so the Job can be replaced without loss. The
        // API server checks it again (`only_unbound`), because a watch may be late.
        let unbound = self.pod(job).is_none_or(|pod| pod.stage == PodStage::Unbound);
        unbound.then(|| Step::DeleteJob {
            job: job.name.clone(),
            uid: job.uid.clone(),
            only_unbound: true,
            why,
        })
    }

    /// Whether the stored status names the machine at this hash, and the API server has confirmed all permissions. A
    /// status in flight must not remove the slot that the stored status gives, because another node may get it.
    fn may_begin(&self, stored_entry: Option<&NodeProgress>) -> bool {
        stored_entry
            .is_some_and(|stored_entry| stored_entry.uid.is_some() && self.plan.keeps_slot(stored_entry))
            && self
                .hash()
                .is_some_and(|hash| self.plan.facts.status().latest_hash.as_deref() == Some(&**hash))
            // A successor must create the Jobs of other nodes with the same digests.
            && self.plan.digests.is_stored()
            && permissions::are_granted(self.cluster, self.plan)
            // Otherwise a successor would not believe the ledger if the Plan is deleted, and leave the node
            // cordoned.
            && self.cluster.is_remembered(self.plan)
    }

    fn job_event(&self, reason: Reason, message: String, job_uid: &str) -> Event {
        Event::job(
            &self.plan.facts.name,
            &self.plan.facts.uid,
            reason,
            message,
            job_uid,
        )
    }

    fn patch_record(&self, node: &NodeFacts, record: &Record, events: Vec<Event>) -> Step {
        patch(node, self.store(node, record), events)
    }

    /// The change that stores a record. A node that has failed at one version is done at no other: its label goes, so that
    /// a Plan that returns to an earlier version upgrades the node again.
    fn store(&self, node: &NodeFacts, record: &Record) -> NodeChange {
        let plan = &self.plan.facts.name;
        let change = NodeChange::default().annotate(Record::key(plan), Some(record.to_text()));
        let mut label = node.labels.of_plan(plan).into_iter();
        if record.phase == Phase::Failed && label.any(|it| *it != *names::LABEL_VALUE_DISABLED) {
            return change.label(names::plan_label(plan), None);
        }
        change
    }

    fn mark_recorded(&self, job: &JobFacts, events: Vec<Event>) -> Step {
        Step::record(job, events, self.now)
    }
}

/// Why a Job is replaced.
const NOT_REQUIRED: &str = "the Plan no longer requires it, and none of its pods runs";
