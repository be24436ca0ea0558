//! What holds a Plan: what its stored status says, unless the object itself or an event says more.

use jiff::Timestamp;

use super::plan::{PlanOverview, derived, is_foreign};
use super::read::{EventLine, Snapshot};
use super::remedy::{self, Remedy};
use super::stall;
use refit_api::{ConditionType, NodeProgress, Obstacle, OpenEnum, Reason, Severity};
use refit_facts::PlanFacts;

impl<'a> PlanOverview<'a> {
    pub fn new(snapshot: &'a Snapshot, plan: &'a PlanFacts) -> Self {
        let status = plan.status();
        let (counts, nodes, counted) = match (&status.nodes, &status.active) {
            (Some(counts), Some(active)) => (*counts, active.clone(), true),
            _ => derived(snapshot, plan),
        };
        let mut nodes: Vec<NodeProgress> = nodes;
        for node in &mut nodes {
            if node.has_slot()
                && !node.is_failed()
                && node.reason.is_none()
                && let Some((reason, message, about)) = stall::stall(snapshot, plan, node)
            {
                (node.reason, node.message, node.about) = (Some(reason.into()), Some(message), about);
            }
        }
        let mut view = Self {
            plan,
            snapshot,
            counts,
            counted,
            foreign: is_foreign(plan),
            nodes,
            obstacle: None,
            remedy: String::new(),
            commands: Vec::new(),
            complete: plan.status().is_true(ConditionType::Complete),
        };
        if let Some((obstacle, (remedy, commands))) = view.find_obstacle() {
            (view.obstacle, view.remedy, view.commands) = (Some(obstacle), remedy, commands);
        }
        view
    }

    /// What holds it, and what releases it.
    fn find_obstacle(&self) -> Option<(Obstacle, Remedy)> {
        if let Some(why) = &self.plan.malformed {
            return Some(self.with_remedy(Obstacle {
                reason: Reason::Error.into(),
                message: why.clone(),
                ..Obstacle::default()
            }));
        }
        if let Some(obstacle) = stall::deletion(self.plan) {
            return Some(obstacle);
        }
        let stored = self.plan.status().obstacle.clone();
        if let Some(event) = self.blocking_event() {
            let same = stored.filter(|it| it.reason == event.reason).unwrap_or_default();
            return Some(self.with_remedy(Obstacle {
                reason: event.reason.clone(),
                message: event.message.clone(),
                about: same.about,
                ..Obstacle::default()
            }));
        }
        // The status is of an earlier spec.
        if !self.is_current() {
            return Some(self.unprocessed());
        }
        let found = stored
            .or_else(|| self.of_slots())
            .or_else(|| self.of_conditions())?;
        Some(self.with_remedy(found))
    }

    /// A node that has failed, or else one that has stalled, which shows only in its pods.
    fn of_slots(&self) -> Option<Obstacle> {
        let is_warning = |reason: &OpenEnum<Reason>| {
            let known = reason.known();
            known.is_none_or(|reason| reason.severity() == Severity::Warning)
        };
        let stalled = |node: &&NodeProgress| node.reason.as_ref().is_some_and(is_warning);
        let slots = || self.nodes.iter().filter(|node| node.has_slot());
        let node = slots()
            .find(|node| node.is_failed())
            .or_else(|| slots().find(stalled))?;
        Some(Obstacle {
            reason: node.reason.clone().unwrap_or_default(),
            message: node.message.clone().unwrap_or_default(),
            node: Some(node.name.clone()),
            about: node.about.clone(),
            since: None,
        })
    }

    /// What system-upgrade-controller says in its conditions.
    fn of_conditions(&self) -> Option<Obstacle> {
        let denied = [ConditionType::Validated, ConditionType::LatestResolved].into_iter();
        let denied = denied.filter_map(|type_| self.plan.status().condition(type_));
        let mut denied = denied.filter(|it| it.status == "False");
        let complete = || {
            let selected =
                self.counts.selected + self.counts.disabled + self.counts.skipped.unwrap_or_default();
            let progresses = [Reason::SyncJob, Reason::Resolved, Reason::Complete];
            self.plan
                .status()
                .condition(ConditionType::Complete)
                .filter(|it| {
                    let reason = it.reason.as_ref();
                    let says_nothing =
                        reason.is_none_or(|reason| progresses.iter().any(|known| reason == known));
                    !says_nothing || it.status == "True" && selected == 0 && self.counted
                })
        };
        let it = denied.next().or_else(complete)?;
        let reason = match (&it.reason, it.status.as_str()) {
            (_, "True") => Reason::NoNodes.into(),
            (Some(reason), _) if *reason == Reason::Waiting => Reason::WindowClosed.into(),
            (reason, _) => reason.clone().unwrap_or_else(|| Reason::Error.into()),
        };
        Some(Obstacle {
            reason,
            message: it.message.clone().unwrap_or_default(),
            ..Obstacle::default()
        })
    }

    /// An event that says why the status cannot be written, unless the status is younger.
    fn blocking_event(&self) -> Option<&'a EventLine> {
        let blocking = [
            Reason::SchemaOutdated,
            Reason::MissingPermission,
            Reason::StatusRefused,
        ];
        let updates = self.plan.status().conditions.iter();
        let written = updates
            .filter_map(|it| it.last_update_time.as_deref()?.parse::<Timestamp>().ok())
            .max();
        let last = self.events().last()?;
        let is_last = written.is_none_or(|written| last.at > written) || !self.is_current();
        (blocking.iter().any(|it| last.reason == *it) && is_last).then_some(last)
    }

    fn unprocessed(&self) -> (Obstacle, Remedy) {
        let (namespace, status) = (self.plan.namespace(), self.plan.status());
        let is_processed = |plan: &&PlanFacts| plan.status().observed_generation.is_some();
        // A controller handles the Plans of its own namespace.
        let elsewhere = self.snapshot.plans.iter().filter(is_processed);
        let elsewhere = elsewhere
            .map(PlanFacts::namespace)
            .find(|other| *other != namespace);
        let persists = format!(
            "if it persists, check that a controller runs in namespace {namespace} and is responsible for it"
        );
        let (message, remedy) = match (status.observed_generation, elsewhere) {
            (Some(seen), _) => (
                format!(
                    "the controller has not processed generation {} of the Plan yet; status is of generation {seen}",
                    self.plan.generation()
                ),
                format!("wait some seconds; {persists}"),
            ),
            (None, Some(other)) => (
                format!(
                    "no controller has processed the Plan; the one of namespace {other} handles only the Plans of that namespace"
                ),
                format!(
                    "create the Plan in namespace {other} instead; or, if it is to be in {namespace}, run a controller there"
                ),
            ),
            (None, None) => (
                "no controller has processed the Plan".to_owned(),
                format!("wait some seconds; {persists}"),
            ),
        };
        let obstacle = Obstacle {
            reason: Reason::Unprocessed.into(),
            message,
            ..Obstacle::default()
        };
        let commands = vec![
            format!("kubectl get deployments,pods,leases -n {namespace}"),
            format!("kubectl logs -n {namespace} deployment/system-upgrade-controller"),
        ];
        (obstacle, (remedy, commands))
    }

    fn with_remedy(&self, obstacle: Obstacle) -> (Obstacle, Remedy) {
        let node = obstacle.node.as_deref();
        let remedy = remedy::remedy(self, &obstacle.reason, &obstacle.about, node);
        (obstacle, remedy)
    }
}
