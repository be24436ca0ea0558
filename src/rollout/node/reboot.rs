//! A node that must reboot after its upgrade. The record says which boot has to end, and since when; the Node says in
//! which boot it is. Unless the payload reboots the node itself, a pod requests the reboot. Its state proves nothing: the controller recreates it whenever it is
//! missing, and it does nothing in any boot but the recorded one.
//!
//! The order of writes is: the record; the pod; at the end one patch with label and cordon, which also removes the
//! record. A controller that takes over at any point continues from what was written.

use jiff::{SignedDuration, Timestamp};

use super::state::{NodeDecision, NodeState};
use super::{NodeReconciler, patch};
use crate::blocker::Blocker;
use crate::failure;
use crate::later::{later, requeue};
use crate::step::{Key, NodeChange, Step};
use refit_api::{NodePhase, Reason};
use refit_facts::record::{Phase, Reboot, Record};
use refit_facts::{BootId, JobFacts, NodeFacts, PodFacts, PodStage, PodUid, RebootPod, SentinelResult, Text};

/// How much later than its Job the pod of a successful Job may be reported.
const EVIDENCE_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);
/// Delay before a pod that has ended is recreated: a node that shuts down rejects all pods.
const POD_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(5);
/// The account of a pod: the API server writes `default` where the Plan names none.
fn account(name: &str) -> &str {
    if name.is_empty() { "default" } else { name }
}

/// Why a pod has not rebooted its node.
struct PodProblem {
    reason: Reason,
    text: String,
}

impl PodProblem {
    /// A failure says more than the wait for the next attempt.
    fn of(pod: &PodFacts) -> Option<Self> {
        let failed = pod.failed.as_ref().map(|failed| Self {
            reason: Reason::RebootPod,
            text: failed.to_string(),
        });
        failed.or_else(|| {
            Some(Self {
                reason: Reason::PodWaiting,
                text: pod.waiting.clone()?,
            })
        })
    }
}

/// What is known about the boot in which an upgrade succeeded.
pub(super) enum Evidence {
    /// The pod with the report has not been seen yet.
    Awaited {
        until: Timestamp,
    },
    NoReboot,
    /// The node must leave this boot. Without one, only the node knows which.
    Reboot {
        boot_id: Option<BootId>,
    },
}

impl NodeReconciler<'_> {
    /// The evidence from the sentinel of a successful Job.
    pub(super) fn evidence(&self, job: &JobFacts) -> Evidence {
        let found = self
            .cluster
            .world
            .pods
            .of(job)
            .find_map(|pod| match &pod.sentinel_result {
                Some(SentinelResult::Success { boot_id, required }) => Some((boot_id, *required)),
                _ => None,
            });
        match found {
            Some((_, false)) => Evidence::NoReboot,
            Some((boot_id, true)) => Evidence::Reboot {
                boot_id: Some(boot_id.clone()),
            },
            None => {
                // The pod with the report may be seen later than its Job, because the two watches are independent.
                let since = self
                    .cluster
                    .memory
                    .timers
                    .success_known_since(job)
                    .unwrap_or(self.now);
                let until = later(since, EVIDENCE_TIMEOUT);
                if until > self.now {
                    Evidence::Awaited { until }
                } else {
                    Evidence::Reboot { boot_id: None }
                }
            }
        }
    }

    /// Writes the required reboot to the record, before anything else is done about it.
    pub(super) fn request_reboot(
        &self,
        node: &NodeFacts,
        success: &Record,
        boot_id: Option<&BootId>,
    ) -> NodeDecision {
        let record = Record {
            reboot: Some(Reboot {
                boot_id: boot_id.map(ToString::to_string),
                since: self.now,
            }),
            ..success.clone()
        };
        let state = rebooting_state(node, &record);
        let text = match boot_id {
            Some(boot_id) if *boot_id != node.boot_id => {
                format!("Job completed on Node {}, which has rebooted since", node.name)
            }
            _ if self.plan.spec().payload_reboots() => {
                format!("Job completed on Node {}, which its payload reboots", node.name)
            }
            _ => format!("Job completed on Node {}, which is rebooted", node.name),
        };
        let event = self.job_event(Reason::JobCompleteReboot, text, &success.job_uid);
        NodeDecision::slot(state.with_step(self.patch_record(node, &record, vec![event])))
    }

    /// The state of a node that must reboot; `None` if it need not, or if the reboot is over.
    pub(super) fn reboot(&self, node: &NodeFacts, record: &Record) -> Option<NodeDecision> {
        let reboot = record.reboot.as_ref()?;
        // A new controller counts from when it saw the record, because no reboot was requested before.
        let since = self.known_since(node, record);
        let deadline = later(since.max(reboot.since), self.plan.completion.reboot_timeout);
        let late = deadline <= self.now;
        let Some(boot_id) = reboot.boot_id.as_deref() else {
            return Some(self.ask_for_boot(node, record, deadline));
        };
        let mut state = rebooting_state(node, record);
        state.requeue_at = Some(deadline);
        // Any other boot counts, also one that refit did not cause: the upgrade is active in it all the same. An
        // empty boot ID proves nothing.
        let over = !node.boot_id.is_empty() && *node.boot_id != *boot_id;
        if over {
            if node.is_ready_and_untainted() {
                return None;
            }
            let why = if node.ready {
                "the node is Ready in its new boot, but still has the taint node.kubernetes.io/not-ready or unreachable"
            } else {
                "the node is in its new boot and not Ready"
            };
            return Some(if late {
                self.fail_reboot(node, record, Reason::NotReadyAfterReboot, why)
            } else {
                NodeDecision::slot(state.with_reason(Blocker::NodeNotReady.reason(), why.to_owned()))
            });
        }
        if self.plan.spec().payload_reboots() {
            return Some(if late {
                self.fail_overdue_reboot(node, record, None)
            } else {
                let waits = "its payload has ended, and is to reboot the node";
                NodeDecision::slot(state.with_message(waits.to_owned()))
            });
        }
        let boot_id = Some(BootId::from(boot_id));
        let pod = self
            .reboot_pod(node, &record.hash, boot_id.as_ref())
            .map(|(pod, _)| pod);
        if let Some(pod) = pod
            && matches!(pod.sentinel_result, Some(SentinelResult::Nothing { .. }))
        {
            let why = "the node has no sentinel for this boot, so refit does not reboot it: find out what removed the file, then set refit.rs/retry on the node";
            return Some(self.fail_reboot(node, record, Reason::SentinelMissing, why));
        }
        let problem = pod
            .and_then(PodProblem::of)
            .or_else(|| self.stored_pod_problem(node, record));
        if late {
            return Some(self.fail_overdue_reboot(node, record, problem.as_ref()));
        }
        state = self.ensure_pod(node, state, &record.hash, boot_id, deadline);
        if state.reason.is_none() {
            state = match problem {
                // A kubelet that no longer reports a problem does not wait for it any more.
                Some(PodProblem { reason, text })
                    if reason == Reason::RebootPod || pod.is_some_and(|it| it.waiting.is_some()) =>
                {
                    state.with_reason(reason, text)
                }
                _ if !node.ready => state.with_message("the node is not Ready".to_owned()),
                _ => state,
            };
        }
        Some(NodeDecision::slot(state))
    }

    /// The stored message of this reboot's pods. A pod that was replaced, or has reached its time limit, no longer says
    /// why it failed.
    fn stored_pod_problem(&self, node: &NodeFacts, record: &Record) -> Option<PodProblem> {
        let active = self.plan.facts.status().active.as_deref()?;
        let stored_entry = active.iter().find(|stored_entry| {
            stored_entry.uid.as_deref() == Some(&*node.uid)
                && stored_entry.job.as_deref() == Some(&*record.job)
                && stored_entry.attempt == Some(record.attempt)
        })?;
        let reason = [Reason::RebootPod, Reason::PodWaiting, Reason::NameTaken]
            .into_iter()
            .find(|reason| {
                stored_entry
                    .reason
                    .as_ref()
                    .is_some_and(|stored| stored == reason)
            })?;
        let text = stored_entry.message.clone()?;
        Some(PodProblem { reason, text })
    }

    /// The pods of the Plan for this machine and this hash. The owner, not a label, ties a pod to the Plan, and a pod of
    /// another account may be a forgery. There is more than one if an answer of the API server was lost: a further one does
    /// nothing in any boot but its own.
    fn reboot_pods<'s>(
        &'s self,
        node: &'s NodeFacts,
        hash: &'s str,
    ) -> impl Iterator<Item = (&'s PodFacts, &'s RebootPod)> {
        let plan = &self.plan.facts;
        let wanted = account(
            self.plan
                .spec()
                .service_account_name
                .as_deref()
                .unwrap_or_default(),
        );
        let pods = self.cluster.world.pods.reboots();
        pods.filter_map(|pod| Some((pod, pod.reboot.as_deref()?)))
            .filter(move |(pod, it)| {
                it.owner_uid == plan.uid
                    && pod.node.as_ref() == Some(&node.name)
                    && account(&it.service_account) == wanted
                    && it.plan_uid == plan.uid
                    && it.node_uid == node.uid
                    && *it.hash == *hash
            })
    }

    /// The pod of the Plan that ends this boot of the machine for this hash, or, without a boot, that reads the
    /// sentinel.
    pub(super) fn reboot_pod<'s>(
        &'s self,
        node: &'s NodeFacts,
        hash: &'s str,
        boot_id: Option<&BootId>,
    ) -> Option<(&'s PodFacts, &'s RebootPod)> {
        let mut pods = self.reboot_pods(node, hash);
        pods.find(|(_, it)| it.boot_id.as_ref() == boot_id)
    }

    fn pod_name(&self, node: &NodeFacts, hash: &str, reboots: bool) -> String {
        let run = self.plan.facts.run_id(node, hash);
        if reboots {
            run.reboot_pod_name()
        } else {
            run.query_pod_name()
        }
    }

    /// A pod that was to reboot the machine for the current hash, or to read its sentinel.
    pub(super) fn leftover_pod(&self, node: &NodeFacts) -> Option<Blocker> {
        let (pod, _) = self.reboot_pods(node, self.hash()?).next()?;
        Some(Blocker::PodLeaving {
            pod: pod.name.to_string(),
        })
    }

    /// UID of the pod whose report is about to be recorded. It is kept until then.
    pub(super) fn evidence_pod(&self, node: &NodeFacts, hash: &str) -> Option<PodUid> {
        let mut pods = self.reboot_pods(node, hash);
        pods.next().map(|(pod, _)| pod.uid.clone())
    }

    /// Ensures that a pod exists that ends this boot, or reads which one has to end.
    pub(super) fn ensure_pod(
        &self,
        node: &NodeFacts,
        mut state: NodeState,
        hash: &str,
        boot_id: Option<BootId>,
        deadline: Timestamp,
    ) -> NodeState {
        let name: Text = self.pod_name(node, hash, boot_id.is_some()).into();
        if let Some(problem) = self.cluster.memory.failures.get(&Key::Pod(name.clone())) {
            state.set_reason(Reason::PodRefused, format!("pod {name}: {}", problem.message));
        }
        let taken_by = self.cluster.world.pods.get(&name);
        let conflict_until = self.name_conflict_until(&name);
        let name_is_taken = taken_by.is_some_and(|pod| pod.foreign) || conflict_until.is_some();
        if name_is_taken {
            // Also while the pod with another name is there: a person must find out who takes the names of others.
            requeue(&mut state.requeue_at, conflict_until);
            let taken = Blocker::NameTaken {
                kind: "pod",
                name: name.to_string(),
            };
            state.set_reason(taken.reason(), taken.to_string());
        }
        let Some((pod, it)) = self.reboot_pod(node, hash, boot_id.as_ref()) else {
            if taken_by.is_some_and(|pod| !pod.foreign) {
                return state; // an earlier pod, which is deleted because nothing keeps it
            }
            // Without a valid Plan the command is not known.
            let unknown =
                self.plan.facts.malformed.is_some() || matches!(self.gate, Some(Blocker::SpecPruned));
            let create = Step::CreatePod {
                plan: self.plan.facts.name.clone(),
                node: node.name.clone(),
                pod: name,
                hash: hash.into(),
                boot_id,
                seconds: deadline.duration_since(self.now).as_secs(),
                name_is_taken,
            };
            state.steps.extend((!unknown).then_some(create));
            return state;
        };
        state.pod = Some(pod.uid.clone());
        // A pod that has succeeded in the recorded boot waits for the shutdown that it requested. To create another
        // one would request it twice.
        let ended =
            pod.stage == PodStage::Ended && pod.sentinel_result.is_none() && !it.succeeded && !pod.deleting;
        if ended {
            let again = later(it.created, POD_RETRY_DELAY);
            if again <= self.now {
                state.steps.push(Step::DeletePod {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    why: "it has ended, and the node has not rebooted",
                });
            } else {
                requeue(&mut state.requeue_at, again);
            }
        }
        state
    }

    /// Only the node knows in which boot the upgrade succeeded.
    fn ask_for_boot(&self, node: &NodeFacts, record: &Record, deadline: Timestamp) -> NodeDecision {
        let pod = self.reboot_pod(node, &record.hash, None);
        let answer = pod.and_then(|(pod, _)| pod.sentinel_result.as_ref());
        match answer {
            Some(SentinelResult::Success { boot_id, required }) => {
                let known = Record {
                    // No reboot required: the record then holds a success that only has to settle.
                    reboot: required.then(|| Reboot {
                        boot_id: Some(boot_id.to_string()),
                        since: self.now,
                    }),
                    ..record.clone()
                };
                let mut state = rebooting_state(node, &known);
                state.pod = self.evidence_pod(node, &record.hash);
                NodeDecision::slot(state.with_step(self.patch_record(node, &known, Vec::new())))
            }
            Some(SentinelResult::Nothing { .. }) => {
                self.fail_reboot(node, record, Reason::EvidenceLost, EVIDENCE_LOST)
            }
            None if deadline <= self.now => {
                self.fail_reboot(node, record, Reason::EvidenceLost, EVIDENCE_UNAVAILABLE)
            }
            None => {
                let mut state = rebooting_state(node, record);
                state.requeue_at = Some(deadline);
                let state = state.with_message(ASKING_NODE.to_owned());
                NodeDecision::slot(self.ensure_pod(node, state, &record.hash, None, deadline))
            }
        }
    }

    fn fail_overdue_reboot(
        &self,
        node: &NodeFacts,
        record: &Record,
        problem: Option<&PodProblem>,
    ) -> NodeDecision {
        let (reason, why) = if node.ready {
            (
                Reason::NeverRebooted,
                "the node is Ready in the boot in which it was upgraded",
            )
        } else {
            (
                Reason::RebootTimedOut,
                "the node is not Ready, and has not reported another boot",
            )
        };
        let problem = problem.map_or_else(String::new, |problem| {
            format!("; its reboot Pod: {}", problem.text)
        });
        self.fail_reboot(node, record, reason, &format!("{why}{problem}"))
    }

    fn fail_reboot(&self, node: &NodeFacts, record: &Record, reason: Reason, why: &str) -> NodeDecision {
        let message = format!("the upgrade succeeded, but its reboot did not: {why}");
        self.fail_permanently(node, record, Reason::RebootFailed, reason, message)
    }

    /// Records a failure after a successful Job. The pod is deleted because nothing keeps it.
    pub(super) fn fail_permanently(
        &self,
        node: &NodeFacts,
        record: &Record,
        event: Reason,
        reason: Reason,
        message: String,
    ) -> NodeDecision {
        let text = format!("Node {}: {reason}: {message}", node.name);
        let failed = Record {
            phase: Phase::Failed,
            at: self.now,
            reboot: None,
            settling: None,
            verify: None,
            workloads: Vec::new(),
            reason: Some(reason.into()),
            message: Some(message),
            ..record.clone()
        };
        let text = failure::event_text(self.cluster, self.plan, node, &failed, &text);
        // Not by the UID of the Job, which is not known if the Job was lost.
        let once = format!("{}/{}/{}", node.uid, record.hash, record.attempt);
        let event = self.job_event(event, text, &once);
        let mut state = self.state_of_failure(node, &failed);
        state.pod = self.evidence_pod(node, &record.hash);
        let change = NodeChange {
            // Fails if the node has changed in the meantime.
            exact: true,
            ..self.store(node, &failed)
        };
        NodeDecision::slot(state.with_step(patch(node, change, vec![event])))
    }
}

pub(super) const EVIDENCE_LOST: &str = "the boot in which the node was upgraded is unknown, and so is whether it has rebooted since: check the node, then set refit.rs/retry on the node to upgrade it again";
pub(super) const EVIDENCE_UNAVAILABLE: &str = "the pod of the upgrade is gone, and the node has no record of the boot in which it was upgraded: check the node, then set \
    refit.rs/retry on the node to upgrade it again";
pub(super) const ASKING_NODE: &str =
    "the pod of the upgrade is gone; refit reads from the node in which boot it was upgraded";

/// The state of a node whose pod has yet to report the boot of the upgrade.
pub(super) fn awaiting_report(node: &NodeFacts, success: &Record, until: Timestamp) -> NodeState {
    let mut state = NodeState::of_record(node, success, NodePhase::Finishing);
    state.requeue_at = Some(until);
    state
}

/// The state of a node that must reboot.
fn rebooting_state(node: &NodeFacts, record: &Record) -> NodeState {
    let mut state = NodeState::of_record(node, record, NodePhase::Rebooting);
    state.since = Some(record.reboot.as_ref().map_or(record.at, |reboot| reboot.since));
    state
}
