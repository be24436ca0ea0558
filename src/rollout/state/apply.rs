//! The one way into the state for what was observed ([`ClusterState::apply`]) and for what steps caused
//! ([`ClusterState::apply_effect`]).

mod jobs;
pub(crate) mod lists;
mod nodes;
mod plans;
mod steps;

use jiff::Timestamp;

use super::ClusterState;
use crate::memory::{StepFailure, answers};
use crate::observation::{Kind, Observation, StepEffect};
use crate::step::{Key, Step};
use crate::world::limits::KnownLimits;
use lists::ListCounts;

impl ClusterState {
    /// Applies what a list or a watch has returned. Returns whether it changed a fact, so that a decision is due.
    pub fn apply(&mut self, observation: Observation) -> bool {
        // Responses to refit's own writes do not count as listed, because they may be older than the list.
        let listed = observation.object().map(|(kind, name)| (kind, name.clone()));
        let changed = self.update(observation);
        if let Some((kind, name)) = listed {
            lists::mark_listed(self, kind, &name);
        }
        changed
    }

    /// Applies what the response to a step says, which was sent when there had been `sent` lists. Returns whether it
    /// changed a fact.
    pub fn apply_effect(&mut self, effect: StepEffect, sent: ListCounts, now: Timestamp) -> bool {
        let known = &mut self.memory.answers;
        match effect {
            StepEffect::Observed(observation) => match observation.object() {
                // The next decision requests the step again.
                Some((kind, name)) if lists::is_answer_stale(self, kind, name, sent) => {
                    if kind == Kind::Job {
                        jobs::mark_create_unconfirmed(self, name);
                    }
                    return false;
                }
                _ => return self.update(observation),
            },
            StepEffect::JobDeleting(name, uid) => return jobs::mark_deleting(self, &name, &uid),
            StepEffect::PodDeleting(name, uid) => return self.world.pods.mark_deleting(&name, &uid),
            StepEffect::NameTaken(job) => jobs::record_name_conflict(self, &job, now),
            StepEffect::PodNameTaken(pod) => {
                self.memory.name_conflicts.insert(pod, now);
            }
            StepEffect::CreateUnconfirmed(job) => jobs::mark_create_unconfirmed(self, &job),
            StepEffect::JobNotFound(job) => self.memory.set_create_unknown(&job, false),
            StepEffect::StatusWritten(plan) => plans::status_written(self, &plan, now),
            StepEffect::StatusPruned => return self.world.definition.pruned(now),
            StepEffect::Event(plan, key) => {
                if let Some(plan) = self.plans.get_mut(&plan) {
                    plan.event_sent = Some(key);
                }
            }
            StepEffect::Secret(name, version, hash) => {
                return plans::secret(self, &name, |secrets| secrets.read(&name, version, hash));
            }
            StepEffect::SecretMissing(name) => {
                return plans::secret(self, &name, |secrets| secrets.mark_missing(&name));
            }
            StepEffect::Channel(channel, polled, answer, asked_by) => {
                plans::channel(self, &channel, polled, answer, &asked_by);
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
            StepEffect::Refusal(job, refusal) => {
                answers::add(&mut known.refusals, job, refusal, |it| it.seen);
            }
            StepEffect::Workload(workload, facts) => known.add_workload(workload, facts),
            StepEffect::Lease(node, check) => answers::add(&mut known.leases, node, check, |it| it.seen),
            StepEffect::PodCheck(plan, node, check) => {
                answers::add(&mut known.pod_checks, (plan, node), check, |it| it.seen);
            }
            StepEffect::DaemonPods(plan, node, pods) => known.add_daemon_pods(plan, node, pods),
            StepEffect::Permissions(missing) => self.world.permissions = Some(missing),
            StepEffect::Maintained(id, uid, progress, again) => {
                self.memory.turns.ended(&id, &uid, *progress, again);
            }
        }
        true
    }

    fn update(&mut self, observation: Observation) -> bool {
        match observation {
            Observation::ListStarted(kind) => {
                lists::start(self, kind);
                false
            }
            Observation::ListFinished(kind) => lists::finish(self, kind),
            Observation::Unreadable { kind, name, uid, why } => {
                lists::unreadable(self, kind, &name, uid, why)
            }
            Observation::Node(version, facts) => nodes::put(self, version, *facts),
            Observation::NodeDeleted(name, uid) => nodes::remove(self, &name, &uid),
            Observation::Job(version, facts) => jobs::put(self, version, *facts),
            Observation::JobDeleted(name, uid) => jobs::remove(self, &name, &uid),
            Observation::Pod(version, facts) => jobs::put_pod(self, version, *facts),
            Observation::PodDeleted(name, uid) => jobs::remove_pod(self, &name, &uid),
            Observation::Plan(version, facts) => plans::put(self, version, *facts),
            Observation::PlanDeleted(name, uid) => plans::remove(self, &name, &uid),
            Observation::Secret(version, name) => {
                plans::secret(self, &name, |secrets| secrets.seen(&name, version))
            }
            Observation::SecretAbsent(version, name) => {
                plans::secret(self, &name, |secrets| secrets.absent(&name, version))
            }
            Observation::SecretDeleted(name) => plans::secret(self, &name, |secrets| secrets.remove(&name)),
            Observation::SecretForbidden(name, forbidden) => {
                self.world.secrets.set_unwatched(name, forbidden)
            }
            Observation::Schema(schema, edition) => {
                let has_listed_plans = self.plan_listing.count() > 0;
                self.world.definition.put(schema, edition, has_listed_plans)
            }
            Observation::Limits(limits) => {
                self.world.limits = KnownLimits::parse(limits, &self.defaults.local_zone);
                true
            }
            Observation::EtcdDown(nodes) => self.world.etcd_down.replace(nodes) != self.world.etcd_down,
            Observation::Maintenance(group, change) => nodes::maintenance(self, group, change),
            Observation::Notified(plan, uid, marks) => {
                let plan = self.plans.get_mut(&plan).filter(|plan| plan.facts.uid == uid);
                plan.is_some_and(|plan| plan.add_notified(marks))
            }
            Observation::SchemaReplaced => {
                self.world.definition.distrust_lists();
                false
            }
            Observation::PlanRelistStarted => {
                self.world.definition.relist_started();
                false
            }
            Observation::PlanListTooEarly => {
                self.world.definition.relist_due();
                false
            }
            Observation::Forbidden => {
                self.world.permissions.take_if(|missing| missing.is_empty());
                true
            }
            Observation::PermissionsGranted => self.world.permissions.take().is_some(),
            Observation::ApiServer(version) => {
                self.world.api_server_version = Some(version);
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

    /// A step begins. Until its response arrives, the objects that it changes may be in the old or the new state.
    pub fn step_started(&mut self, step: &Step) {
        steps::started(self, step);
    }

    /// A step has ended, successfully or not, and its result is applied.
    pub fn step_finished(&mut self, key: &Key) {
        steps::finished(self, key);
    }

    pub fn step_failed(&mut self, key: Key, failure: StepFailure) {
        if let Key::Job(job) = &key {
            // Jobs that come later must not wait for this one.
            self.world.jobs.file_as_open(job);
        }
        self.memory.failures.insert(key, failure);
    }

    /// A step has succeeded, or is no longer requested.
    pub fn clear_failure(&mut self, key: &Key) {
        self.memory.failures.remove(key);
    }

    /// Number of lists of each kind that have begun and ended. Note it when a request is sent, for
    /// [`ClusterState::apply_effect`].
    pub fn lists(&self) -> ListCounts {
        lists::counts(self)
    }
}
