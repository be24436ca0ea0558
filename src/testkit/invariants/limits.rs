//! How many nodes may be unavailable or in progress, by a Plan's `maxUnavailable` and by the `ConfigMap` `refit`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::nodes::is_available;
use super::{Checked, Invariants, Node, SEEN};
use refit_api::limits::Limits;
use refit_api::{NodeLimit, NodePhase, names};
use refit_facts::{JobFacts, PlanFacts};
use refit_rehearse::store::Change;

/// What the `ConfigMap` says; `None` is unreadable, so that no node may start.
pub(super) type Known = Option<Limits>;

impl Invariants {
    pub(super) fn limits(&mut self, at: Timestamp, change: &Change) {
        let value = &change.new.value;
        if value["metadata"]["name"] != refit_api::limits::NAME {
            return;
        }
        let data: BTreeMap<String, String> = super::read(&value["data"]).unwrap_or_default();
        let known = if change.gone {
            Some(Limits::default())
        } else {
            Limits::parse(&data, &TimeZone::UTC).ok()
        };
        self.limits.push((at, known));
    }

    /// Checks what the stored status of a Plan begins: `given` are the nodes with a new slot, `held` all nodes with one.
    /// Only what a controller must have seen counts.
    pub(super) fn check_limits(
        &self,
        at: Timestamp,
        plan: &PlanFacts,
        given: &[&str],
        held: &[&str],
    ) -> Checked {
        if given.is_empty() {
            return Ok(());
        }
        let name = &plan.name;
        let limit = plan.object.spec.max_unavailable.as_ref();
        if let Some(limit) = limit.and_then(NodeLimit::parse) {
            let selected = self.nodes.values().filter(|node| is_selected(plan, node));
            let counts = self.unavailable(at, plan, held, |node| is_selected(plan, node));
            let is_busy = |node: &str| {
                let mut jobs = self.jobs.values();
                jobs.any(|job| *job.node == *node && job.disruptive && job.is_live())
            };
            let limit = ("maxUnavailable", limit.of(selected.count()));
            self.check_count(at, limit, &counts, given, is_busy)
                .map_err(|why| format!("{name}: {why}"))?;
        }
        let broken = self.limits_seen(at).map(|known| {
            let limits = known.ok_or("ConfigMap refit cannot be read")?;
            if let Some(reason) = &limits.freeze {
                return Err(format!("ConfigMap refit freezes: {reason}"));
            }
            let number = |limit: NodeLimit| limit.of(self.nodes.len());
            if let Some(limit) = limits.max_concurrent {
                let counts = self.in_progress(plan, held);
                let is_new = |node: &&str| counts.contains(*node) && !self.counts_already(plan, node);
                if counts.len() > number(limit) && given.iter().any(is_new) {
                    return Err(format!(
                        "maxConcurrent of ConfigMap refit is {limit:?}: {counts:?}"
                    ));
                }
            }
            if let Some(limit) = limits.max_unavailable {
                let counts = self.unavailable(at, plan, held, |_| true);
                self.check_count(
                    at,
                    ("maxUnavailable of ConfigMap refit", number(limit)),
                    &counts,
                    given,
                    |node| self.counts_already(plan, node),
                )?;
            }
            Ok(())
        });
        // A change that no controller need have seen yet may be broken, and so may the one before it.
        let broken: Result<Vec<String>, ()> = broken.map(|checked| checked.err().ok_or(())).collect();
        match broken {
            Ok(broken) if broken.is_empty() => Ok(()),
            Ok(broken) => Err(format!("{name} gives {given:?} slots: {}", broken.join("; "))),
            Err(()) => Ok(()),
        }
    }

    /// Checks that an object other than a Plan takes a node only if `maxUnavailable` of the `ConfigMap` admits it.
    /// Nodes that went down by themselves since it was granted its node do not count.
    pub(super) fn check_taken(&self, at: Timestamp, object: &str, taken: &Node) -> Checked {
        if !is_available(&taken.facts) || !is_settled(at, taken) {
            return Ok(());
        }
        let is_at_work = |node: &&Node| {
            let mut jobs = self.jobs.values();
            jobs.any(|job| {
                job.node == node.facts.name
                    && job.disruptive
                    && job.is_live()
                    && at.duration_since(job.created) > SEEN + SEEN
            })
        };
        let others = self
            .nodes
            .values()
            .filter(|node| node.facts.name != taken.facts.name);
        let others = others.filter(|node| self.front_end(&node.facts).is_some() || is_at_work(node));
        let others: Vec<_> = others.map(|node| &*node.facts.name).collect();
        let admits = |known: Option<&Limits>| {
            let limit = known.and_then(|limits| limits.max_unavailable);
            limit.is_none_or(|limit| others.len() < limit.of(self.nodes.len()))
        };
        let mut seen = self.limits_seen(at).peekable();
        let is_limited = seen.peek().is_some();
        invariant!(
            !is_limited || seen.any(admits),
            "{object} takes {} beside {others:?}",
            taken.facts.name
        );
        Ok(())
    }

    /// The limits that a controller may know: the newest that it must have seen, and those after it. None before the
    /// first one.
    fn limits_seen(&self, at: Timestamp) -> impl Iterator<Item = Option<&Limits>> {
        let seen = at - (SEEN + SEEN);
        let old = self.limits.iter().rposition(|(since, _)| *since < seen);
        let known = self.limits.iter().skip(old.unwrap_or(usize::MAX));
        known.map(|(_, known)| known.as_ref())
    }

    fn check_count(
        &self,
        at: Timestamp,
        (what, limit): (&str, usize),
        counts: &BTreeSet<&str>,
        given: &[&str],
        counts_already: impl Fn(&str) -> bool,
    ) -> Checked {
        // A node that is unavailable anyway may start, and one that another Plan takes down.
        let was_available = |name: &&&str| {
            let node = self.nodes.get(**name);
            let was_seen = |node: &Node| is_available(&node.facts) && is_settled(at, node);
            node.is_some_and(was_seen) && !counts_already(name)
        };
        let new = given.iter().find(was_available);
        invariant!(
            new.is_none() || counts.len() <= limit,
            "{what} is {limit}, and {new:?} starts beside {counts:?}"
        );
        Ok(())
    }

    /// Whether another Plan works on the node, or has given it a slot: then one more costs nothing.
    fn counts_already(&self, plan: &PlanFacts, node: &str) -> bool {
        let mut jobs = self.jobs.values();
        let by_job = jobs.any(|job| *job.node == *node && job.plan_uid != plan.uid && job.is_live());
        let others = self.plans.values().filter(|other| other.uid != plan.uid);
        let mut slots = others.flat_map(|other| other.status().active.iter().flatten());
        let is_begun = |phase| phase != NodePhase::Waiting && phase != NodePhase::Failed;
        by_job || slots.any(|slot| slot.name == node && slot.phase.known().is_some_and(is_begun))
    }

    /// The nodes that have been unavailable for so long that a controller must have seen it, those with a slot of this
    /// Plan, and those on which another Plan that takes nodes down works.
    fn unavailable<'a>(
        &'a self,
        at: Timestamp,
        plan: &PlanFacts,
        held: &[&'a str],
        counts: impl Fn(&Node) -> bool,
    ) -> BTreeSet<&'a str> {
        let is_down = |node: &&Node| !is_available(&node.facts) && is_settled(at, node);
        let down = self.nodes.values().filter(is_down);
        let down = down.filter(|node| counts(node)).map(|node| &*node.facts.name);
        let others = self.jobs.values();
        let others = others.filter(|job| job.plan_uid != plan.uid && job.disruptive && job.is_live());
        // One decision gives nodes to both Plans, in their order, and their writes may come in another one.
        let second = SignedDuration::from_secs(1);
        let decided = self.decided.get(&*plan.name);
        let was_known = |job: &&JobFacts| {
            decided.is_some_and(|decided| job.created + second <= *decided)
                || at.duration_since(job.created) > SEEN
        };
        let others = others.filter(was_known).filter_map(|job| {
            let node = self.nodes.get(&*job.node)?;
            let is_here = job.node_uid.as_ref().is_none_or(|uid| *uid == node.facts.uid);
            (is_here && counts(node)).then_some(node)
        });
        let held = held.iter().filter_map(|name| self.nodes.get(*name));
        let busy = held.chain(others).map(|node| &*node.facts.name);
        down.chain(busy).collect()
    }

    /// The nodes with a slot of this Plan, and those on which a Job of another one has not finished.
    fn in_progress<'a>(&'a self, plan: &PlanFacts, held: &[&'a str]) -> BTreeSet<&'a str> {
        let others = self.jobs.values();
        let others = others
            .filter(|job| job.plan_uid != plan.uid && job.is_live() && self.plans.contains_key(&*job.plan));
        let others = others.map(|job| &*job.node);
        others
            .chain(held.iter().copied())
            .filter(|name| self.nodes.contains_key(*name))
            .collect()
    }
}

fn is_selected(plan: &PlanFacts, node: &Node) -> bool {
    let label = node.facts.labels.of_plan(&plan.name);
    *node.facts.name != *super::SPARE && label != Some(names::LABEL_VALUE_DISABLED)
}

/// Whether the node has been as it is for so long that a controller must have seen it.
fn is_settled(at: Timestamp, node: &Node) -> bool {
    at.duration_since(node.unchanged_since) > SEEN + SEEN
}
