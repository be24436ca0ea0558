//! Which nodes start now. A slot, an open gate and a node on which nobody else is at work: then the next in the order.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decide::Report;
use super::facts::Text;
use super::fields;
use super::node::Standing;
use super::plan::PlanView;
use super::resolve::Resolution;
use super::world::World;

/// Why no node of a Plan may start now.
pub(super) fn gate(
    world: &World,
    plan: &PlanView,
    now: Timestamp,
    wake: &mut Option<Timestamp>,
) -> Option<Blocker> {
    let resolved = matches!(plan.resolution, Resolution::Resolved(_));
    if plan.invalid.is_some() || !resolved {
        return Some(Blocker::NotReady);
    }
    if fields::are_pruned(&plan.facts) {
        return Some(Blocker::SpecPruned);
    }
    if let Some(Err(what)) = &world.permissions {
        return Some(Blocker::MissingPermission { what: what.clone() });
    }
    if plan.is_suspended() {
        return Some(Blocker::Suspended);
    }
    if plan.limit() == 0 {
        return Some(Blocker::ConcurrencyZero);
    }
    if let Some(window) = plan.window.as_ref().filter(|_| plan.nodes.eligible() > 0) {
        let open = window.contains(now);
        let turn = if open {
            window.closes(now)
        } else {
            window.next_open(now)
        };
        if let Some(at) = turn {
            *wake = Some(wake.map_or(at, |known| known.min(at)));
        }
        if !open {
            return Some(Blocker::WindowClosed { opens: turn });
        }
    }
    plan.job_blocker(false)
}

/// Which disruptive Plan is at work on which node.
pub(super) struct Busy<'a> {
    world: &'a World,
    taken: BTreeMap<Text, Text>,
}

impl<'a> Busy<'a> {
    pub(super) fn new(world: &'a World, standings: &BTreeMap<Text, BTreeMap<Text, Standing>>) -> Self {
        let mut taken = BTreeMap::new();
        for (plan, nodes) in standings {
            if !world.plans.get(plan).is_some_and(|p| p.disruptive) {
                continue;
            }
            for (node, _) in nodes.iter().filter(|(_, standing)| !standing.failed) {
                taken.entry(node.clone()).or_insert_with(|| plan.clone());
            }
        }
        Self { world, taken }
    }

    /// What keeps a Plan off a node.
    fn blocker(&self, plan: &PlanView, node: &Text) -> Option<Blocker> {
        let name = &plan.facts.name;
        if plan.disruptive
            && let Some(other) = self.taken.get(node).filter(|other| *other != name)
        {
            return Some(Blocker::NodeBusy {
                plan: other.to_string(),
            });
        }
        let jobs = self.world.jobs_on.get(node).into_iter().flatten();
        jobs.filter_map(|job| self.world.jobs.get(job)).find_map(|job| {
            if job.plan != *name {
                let busy = plan.disruptive && job.cordons && job.is_live();
                return busy.then(|| Blocker::NodeBusy {
                    plan: job.plan.to_string(),
                });
            }
            let leaving = job.deleting || job.plan_uid != plan.facts.uid;
            leaving.then(|| Blocker::JobLeaving {
                job: job.name.to_string(),
            })
        })
    }
}

/// Gives free slots to the next nodes, and says of the others why they wait.
pub(super) fn start(
    world: &World,
    plan: &PlanView,
    gate: Option<Blocker>,
    nodes: &mut BTreeMap<Text, Standing>,
    busy: &mut Busy<'_>,
    now: Timestamp,
) -> Report {
    let mut report = Report::default();
    let limit = plan.limit();
    let waiting = plan.nodes.eligible().saturating_sub(begun(plan, nodes));
    if waiting == 0 {
        return report;
    }
    if gate.is_some() {
        report.blocker = gate;
        return report;
    }
    report.blocker = Some(Blocker::NoSlot { limit });
    let mut free = limit.saturating_sub(i64::try_from(nodes.len()).unwrap_or(i64::MAX));
    for name in plan.nodes.ready() {
        if free <= 0 {
            break;
        }
        if nodes.contains_key(name) {
            continue;
        }
        let Some(node) = world.nodes.get(name) else {
            continue;
        };
        if let Some(blocker) = busy.blocker(plan, name) {
            report.nodes.insert(name.clone(), blocker);
            continue;
        }
        nodes.insert(name.clone(), Standing::starting(node, now));
        if plan.disruptive {
            busy.taken.insert(name.clone(), plan.facts.name.clone());
        }
        free -= 1;
    }
    if free > 0 {
        // All that could start has started: who is left is not Ready.
        report.blocker = Some(Blocker::NodeNotReady);
    }
    report
}

/// How many of the nodes to be done the Plan has begun with.
pub(super) fn begun(plan: &PlanView, nodes: &BTreeMap<Text, Standing>) -> usize {
    nodes
        .keys()
        .filter(|name| matches!(plan.nodes.class(name), Some(super::view::Class::Eligible { .. })))
        .count()
}
