//! Nodes: cordons, records and labels.

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::{SignedDuration, Timestamp};

use super::lifecycle;
use super::{CONTROLLER, Checked, CordonedBy, Fitness, Invariants, Node, SEEN, USER, read};
use refit_api::{MarkForm, NodeMark, OnDrift, Reason, SettleConditionSpec, names};
use refit_facts::NodeFacts;
use refit_facts::objects::SlimNode;
use refit_facts::record::{Phase, Record};
use refit_rehearse::store::Change;

/// Whether pods can be placed on it.
pub(super) fn is_available(node: &NodeFacts) -> bool {
    node.is_ready_and_untainted() && !node.unschedulable
}

impl Invariants {
    pub(super) fn node(&mut self, at: Timestamp, who: &str, change: &Change) -> Checked {
        let facts = read::<SlimNode>(&change.new.value)?.facts(&self.intern);
        let name = facts.name.to_string();
        if change.gone {
            self.nodes.remove(&name);
            return Ok(());
        }
        let before = self.nodes.get(&name).map(|node| {
            (
                node.facts.clone(),
                node.cordoned_by,
                node.fitness,
                node.left.clone(),
            )
        });
        let (old, cordoned_by, fitness, mut left) = match before {
            Some((old, by, fitness, left)) => (Some(old), by, fitness, left),
            None => (None, CordonedBy::Nobody, Fitness::default(), BTreeMap::new()),
        };
        if let Some(old) = &old {
            if old.boot_id != facts.boot_id {
                left.entry(old.boot_id.to_string()).or_insert(at);
            }
            if who == CONTROLLER {
                self.check_settled(at, old, &facts, fitness)?;
                self.check_ready_time(at, old, &facts, &left)?;
                self.check_node_patched(old, &facts, cordoned_by)?;
                lifecycle::check_written(old, &facts)?;
                self.check_verified(old, &facts)?;
                if self.front_end(old).is_none()
                    && let Some(object) = self.front_end(&facts)
                {
                    let mut jobs = self.jobs.values().filter(|job| job.node == facts.name);
                    let job = jobs.find(|job| job.is_live() && job.parallelism > 0 && !job.deleting);
                    invariant!(job.is_none(), "{object} takes the node of {job:?}");
                    if let Some(node) = self.nodes.get(&name) {
                        self.check_taken(at, object, node)?;
                    }
                }
            } else if who == USER {
                self.track_node(old, &facts);
            }
            self.log_node(who, old, &facts);
        }
        let was = old.as_ref().is_some_and(|old| old.unschedulable);
        let cordoned_by = match (was, facts.unschedulable) {
            (_, false) => CordonedBy::Nobody,
            (true, true) => cordoned_by,
            (false, true) if who != USER => CordonedBy::Refit,
            // While the ledger has a holder, a user's cordon cannot be distinguished from the holder's.
            (false, true) => match &facts.ledger {
                Some(ledger) if !ledger.before && !ledger.holders.is_empty() => CordonedBy::Refit,
                _ => CordonedBy::User,
            },
        };
        let changed = old
            .as_ref()
            .is_none_or(|old| old.is_ready_and_untainted() != facts.is_ready_and_untainted());
        let fitness = if changed {
            Fitness {
                since: Some(at),
                before: fitness
                    .since
                    .map_or(SignedDuration::ZERO, |since| at.duration_since(since)),
            }
        } else {
            fitness
        };
        let changed = old
            .as_ref()
            .is_none_or(|old| is_available(old) != is_available(&facts));
        let before = self.nodes.get(&name).filter(|_| !changed);
        let unchanged_since = before.map_or(at, |node| node.unchanged_since);
        let metadata = &change.new.value["metadata"];
        let is_set = |mark: &NodeMark| {
            let of_kind = match mark.form() {
                MarkForm::Label => "labels",
                MarkForm::Annotation => "annotations",
                MarkForm::Taint => return false,
            };
            metadata[of_kind][mark.key()] == NodeMark::VALUE
        };
        let node = Node {
            marks: NodeMark::ALL.into_iter().filter(is_set).collect(),
            facts,
            cordoned_by,
            fitness,
            unchanged_since,
            left,
        };
        self.nodes.insert(name, node);
        Ok(())
    }

    /// A node labelled as done has been Ready for as long as the Plan requires.
    fn check_settled(&self, at: Timestamp, old: &NodeFacts, new: &NodeFacts, fitness: Fitness) -> Checked {
        for (name, plan) in &self.plans {
            let label = |facts: &NodeFacts| facts.labels.of_plan(name).map(str::to_owned);
            let (Some(settle), false) = (&plan.object.spec.settle, label(old) == label(new)) else {
                continue;
            };
            let made = plan.object.metadata.creation_timestamp.as_ref();
            if made.is_none_or(|made| at.duration_since(made.0) < SEEN) {
                continue; // its previous Plan may have left it
            }
            let since = fitness.since.map_or(SEEN, |since| at.duration_since(since));
            // A write for a disruptive Plan must be based on the observed version of the Node.
            let spec = &plan.object.spec;
            let exact = spec.drain.is_some() || spec.may_reboot();
            invariant!(
                old.is_ready_and_untainted() || !exact && since < SEEN,
                "{} is done for {name}, and not Ready for {since:#}",
                new.name
            );
            let lacks = |wanted: &SettleConditionSpec| {
                let is = old.conditions.iter().find(|it| *it.type_ == *wanted.type_);
                is.is_none_or(|is| *is.status != *wanted.status_text())
            };
            let mut conditions = settle.conditions.iter().flatten();
            let gone = settle.taints_gone().unwrap_or_default();
            let mut taints = old.taints.iter().flatten();
            invariant!(
                !exact
                    || !conditions.any(lacks)
                        && !taints.any(|taint| gone.iter().any(|it| it.matches(&taint.key, &taint.effect))),
                "{} is done for {name}, and lacks a condition or has a taint",
                new.name
            );
            let long = settle.min_ready.as_deref().map(str::parse::<SignedDuration>);
            let long = long.and_then(Result::ok).unwrap_or_default();
            invariant!(
                !old.is_ready_and_untainted() || since >= long || fitness.before < SEEN,
                "{} is done for {name}, and Ready for {since:#} only",
                new.name
            );
        }
        Ok(())
    }

    /// A node labelled as done after a reboot has been in another boot for at least the shortest `minReady`.
    fn check_ready_time(
        &self,
        at: Timestamp,
        old: &NodeFacts,
        new: &NodeFacts,
        left: &BTreeMap<String, Timestamp>,
    ) -> Checked {
        for (name, record) in &old.records {
            let plan = self
                .plans
                .get(&**name)
                .and_then(|plan| plan.object.metadata.uid.as_deref());
            if plan != Some(&*record.plan_uid) {
                continue; // left by a previous Plan
            }
            let label = |facts: &NodeFacts| {
                let label = facts.labels.of_plan(name);
                label.map(str::to_owned)
            };
            let boot = record
                .reboot
                .as_ref()
                .and_then(|reboot| reboot.boot_id.as_deref());
            let Some(boot) = boot.filter(|_| label(new).is_some_and(|hash| hash == *record.hash)) else {
                continue;
            };
            if label(old) == label(new) {
                continue;
            }
            let since = left.get(boot).map(|since| at.duration_since(*since));
            invariant!(
                since.is_some_and(|since| since >= self.min_ready),
                "{} is done for {name}, and not in the boot that it was rebooted in, or only for {since:?}",
                new.name
            );
        }
        Ok(())
    }

    fn track_node(&mut self, old: &NodeFacts, new: &NodeFacts) {
        let done = |facts: &NodeFacts| -> Vec<(String, String)> {
            let labels = facts.labels.iter();
            let done = labels.filter(|(key, _)| key.starts_with(names::LABEL_PLAN_PREFIX));
            done.map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect()
        };
        // A skipped node loses its failure, so that it may begin anew later.
        if done(old) != done(new) || old.skip != new.skip {
            let runs = self.runs.iter_mut().filter(|((_, uid), _)| **uid == *new.uid);
            runs.for_each(|(_, run)| run.again = true);
        }
    }

    /// A Plan may run again on a node that has drifted, if its stored status says so.
    fn note_drift(&mut self, old: &NodeFacts, new: &NodeFacts) {
        for plan in self.plans.values() {
            let label = names::plan_label(&plan.name);
            let is_removed = old.labels.get(&label).is_some() && new.labels.get(&label).is_none();
            let mut entries = plan.status().version_differs.iter().flatten();
            let has_drifted = plan.object.spec.on_drift == Some(OnDrift::Rerun)
                && entries.any(|it| *it.uid == *new.uid && it.reason == Some(Reason::Drifted.into()));
            if is_removed && has_drifted {
                let place = (plan.uid.clone(), new.uid.clone());
                self.runs.entry(place).and_modify(|run| run.again = true);
            }
        }
    }

    fn check_node_patched(&mut self, old: &NodeFacts, new: &NodeFacts, cordoned_by: CordonedBy) -> Checked {
        let name = &new.name;
        self.note_drift(old, new);
        invariant!(
            !old.unschedulable || new.unschedulable || cordoned_by == CordonedBy::Refit,
            "{name} is uncordoned, and was cordoned by {cordoned_by:?}: {old:?}"
        );
        for (key, value) in new.labels.iter() {
            let Some(plan) = key.strip_prefix(names::LABEL_PLAN_PREFIX) else {
                continue;
            };
            if old.labels.get(key) == Some(value) {
                continue;
            }
            let done = ((plan.into(), new.uid.clone()), (*value).into());
            let spec = self.plans.get(plan).map(|known| &known.object.spec);
            let is_at_version = spec.is_some_and(|spec| {
                let version = spec.version.as_deref().unwrap_or_default();
                spec.skips_at_version()
                    .is_some_and(|evidence| old.ready && evidence.missing(old.info(), version).is_none())
            });
            invariant!(
                is_at_version || self.succeeded_by_name.contains(&done),
                "{name} is done without a Job: {done:?}"
            );
            let left = self.to_leave.get(&done).is_none_or(|boot| *boot != new.boot_id);
            invariant!(left, "{name} is done, and has not rebooted: {done:?}");
            for job in self.jobs.values() {
                if *job.hash == *value && *job.plan == *plan && job.node == new.name {
                    self.recorded_on_node.insert(job.uid.clone());
                }
            }
        }
        for record in new.records.values() {
            if !old.records.values().any(|known| known == record) {
                self.check_recorded(name, record)?;
            }
        }
        for record in old
            .records
            .values()
            .filter(|record| record.phase == Phase::Failed)
        {
            let place = (record.plan_uid.clone(), record.node_uid.clone());
            let counts = new.records.values().any(|known| known.job_uid == record.job_uid);
            if let Some(run) = self.runs.get_mut(&place).filter(|run| !counts && run.edited) {
                run.again = true;
            }
        }
        Ok(())
    }

    fn check_recorded(&mut self, name: &str, record: &Record) -> Checked {
        let place = (record.plan_uid.clone(), record.node_uid.clone());
        if record.phase == Phase::Retry
            && let Some(run) = self.runs.get_mut(&place)
        {
            run.again = true;
        }
        if record.phase == Phase::Upgraded {
            let done = (place, record.hash.clone());
            invariant!(
                self.succeeded.contains(&done),
                "{name} is upgraded without a Job: {record:?}"
            );
        }
        self.recorded_on_node.insert(record.job_uid.clone());
        Ok(())
    }

    fn log_node(&mut self, who: &str, old: &NodeFacts, new: &NodeFacts) {
        let mut log = |changed: bool, what: &str, now: &dyn Debug| {
            if changed {
                let line = format!("        {} by {who}: {what} {now:?}", new.name);
                self.log.push(line);
            }
        };
        log(
            old.is_ready_and_untainted() != new.is_ready_and_untainted(),
            "ready",
            &new.is_ready_and_untainted(),
        );
        log(
            old.unschedulable != new.unschedulable,
            "unschedulable",
            &new.unschedulable,
        );
        log(old.boot_id != new.boot_id, "boot", &new.boot_id);
        log(old.records != new.records, "records", &new.records);
        log(old.ledger != new.ledger, "ledger", &new.ledger);
    }
}
