//! The one way into the state for what was observed ([`ClusterState::apply`]) and for what steps caused
//! ([`ClusterState::apply_effect`]).

mod jobs;
mod lists;
mod nodes;
mod plans;
mod pods;
mod schema;
mod secrets;
mod steps;
mod unreadable;

use jiff::Timestamp;

pub use lists::ListCounts;
pub(crate) use unreadable::UnreadableNode;

use super::super::node::Workload;
use super::super::observation::{Kind, Observation, StepEffect};
use super::{ClusterState, Relist};
use refit_facts::{Text, WorkloadFacts};

impl ClusterState {
    /// Applies what a list or a watch has returned. Returns whether it changed a fact, so that a decision is due.
    pub fn apply(&mut self, observation: Observation) -> bool {
        // Responses to refit's own writes do not count as listed, because they may be older than the list.
        let listed = observation.object().map(|(kind, name)| (kind, name.clone()));
        let changed = self.update(observation);
        if let Some((kind, name)) = listed {
            self.mark_listed(kind, &name);
        }
        changed
    }

    /// Applies what the response to a step says, which was sent when there had been `sent` lists. Returns whether it
    /// changed a fact.
    pub fn apply_effect(&mut self, effect: StepEffect, sent: ListCounts, now: Timestamp) -> bool {
        match effect {
            StepEffect::Observed(observation) => match observation.object() {
                // The next decision requests the step again.
                Some((kind, name)) if self.is_answer_stale(kind, name, sent) => {
                    if kind == Kind::Job {
                        self.mark_create_unconfirmed(name);
                    }
                    return false;
                }
                _ => return self.update(observation),
            },
            StepEffect::JobDeleting(name, uid) => return self.mark_job_deleting(&name, &uid),
            StepEffect::PodDeleting(name, uid) => return self.mark_pod_deleting(&name, &uid),
            StepEffect::NameTaken(job) => self.record_name_conflict(&job, now),
            StepEffect::PodNameTaken(pod) => {
                self.name_conflicts.insert(pod, now);
            }
            StepEffect::CreateUnconfirmed(job) => self.mark_create_unconfirmed(&job),
            StepEffect::JobNotFound(job) => self.mark_create_absent(&job),
            StepEffect::StatusWritten(plan) => self.record_written_status(&plan, now),
            StepEffect::StatusPruned => return self.mark_status_pruned(now),
            StepEffect::Event(plan, key) => {
                self.events_sent.insert(plan, key);
            }
            StepEffect::Secret(name, version, hash) => return self.apply_secret_hash(&name, version, hash),
            StepEffect::SecretMissing(name) => return self.mark_secret_missing(&name),
            StepEffect::Channel(channel, polled, answer, asked_by) => {
                self.apply_channel_result(&channel, polled, answer, &asked_by);
            }
            StepEffect::Digest(plan, hash, image, answer) => {
                if let Some(plan) = self.plans.get_mut(&plan) {
                    plan.apply_image(&hash, image, answer, now);
                }
            }
            StepEffect::Check(plan, check, asked, answer) => {
                if let Some(plan) = self.plans.get_mut(&plan) {
                    plan.checks.apply(&check, asked, answer, now);
                }
            }
            StepEffect::Refusal(job, refusal) => self.apply_refusal(job, refusal),
            StepEffect::Workload(workload, facts) => self.apply_workload(workload, facts),
            StepEffect::PodCheck(plan, node, check) => self.apply_pod_check(plan, node, check),
            StepEffect::Permissions(missing) => self.permissions = Some(missing),
            StepEffect::Forbidden => self.recheck_permissions(),
        }
        true
    }

    fn update(&mut self, observation: Observation) -> bool {
        match observation {
            Observation::ListStarted(kind) => {
                self.start_list(kind);
                false
            }
            Observation::ListFinished(kind) => self.finish_list(kind),
            Observation::Unreadable { kind, name, uid, why } => self.apply_unreadable(kind, &name, uid, why),
            Observation::Node(version, facts) => self.apply_node(version, *facts),
            Observation::NodeDeleted(name, uid) => self.remove_node(&name, &uid),
            Observation::Job(version, facts) => self.apply_job(version, *facts),
            Observation::JobDeleted(name, uid) => self.remove_job(&name, &uid),
            Observation::Pod(version, facts) => self.apply_pod(version, *facts),
            Observation::PodDeleted(name, uid) => self.remove_pod(&name, &uid),
            Observation::Plan(version, facts) => self.apply_plan(version, *facts),
            Observation::PlanDeleted(name, uid) => self.remove_plan(&name, &uid),
            Observation::Secret(version, name) => self.apply_secret(&name, version),
            Observation::SecretAbsent(version, name) => self.apply_absent_secret(&name, version),
            Observation::SecretDeleted(name) => self.remove_secret(&name),
            Observation::SecretForbidden(name, forbidden) => self.apply_secret_watch(name, forbidden),
            Observation::Schema(schema, edition) => self.apply_schema(schema, edition),
            Observation::Limits(limits) => self.apply_limits(limits),
            Observation::EtcdDown(nodes) => self.etcd_down.replace(nodes) != self.etcd_down,
            Observation::Reservations(reservations) => self.apply_reservations(reservations),
            Observation::Notified(plan, uid, marks) => self.apply_notified(plan, uid, marks),
            Observation::SchemaReplaced => {
                self.distrusts_lists = true;
                false
            }
            Observation::PlanRelistStarted => {
                self.start_plan_relist();
                false
            }
            Observation::PlanListTooEarly => {
                self.relist = Relist::Due;
                false
            }
            Observation::Forbidden => {
                self.recheck_permissions();
                true
            }
            Observation::PermissionsGranted => self.permissions.take().is_some(),
            Observation::ApiServer(version) => {
                self.api_server_version = Some(version);
                true
            }
            Observation::OwnImage(image, pull_secrets) => {
                self.defaults.job.own_image = image;
                self.defaults.job.own_image_pull_secrets = pull_secrets;
                for plan in self.plans.values_mut() {
                    plan.settings_changed();
                }
                true
            }
        }
    }

    fn apply_workload(&mut self, workload: Text, facts: WorkloadFacts) {
        let before = self
            .workloads
            .get(&workload)
            .and_then(|known| known.available_since);
        let available_since = facts.is_available().then(|| before.unwrap_or(facts.seen));
        self.workloads.insert(
            workload,
            Workload {
                facts,
                available_since,
            },
        );
    }
}
