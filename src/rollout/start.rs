//! Which nodes start now. A slot, an open gate and a node on which nobody else is at work: then the next in the order.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decide::Report;
use super::facts::{NodeFacts, Text};
use super::fields;
use super::next::Line;
use super::node::{Next, Standing};
use super::plan::PlanView;
use super::resolve::Resolution;
use super::step::{Key, Step};
use super::view::Class;
use super::world::World;
use crate::version::Version;

/// Where the nodes stand that each Plan has begun with.
pub(super) type Standings = BTreeMap<Text, BTreeMap<Text, Standing>>;

/// Why no node of a Plan may start now.
pub(super) fn gate(
    world: &World,
    plan: &PlanView,
    now: Timestamp,
    wake: &mut Option<Timestamp>,
) -> Option<Blocker> {
    let Resolution::Resolved(resolved) = &plan.resolution else {
        return Some(Blocker::NotReady);
    };
    if plan.invalid.is_some() || plan.unproven {
        return Some(Blocker::NotReady);
    }
    if fields::are_pruned(&plan.facts) {
        return Some(Blocker::SpecPruned);
    }
    if let Some(what) = world.missing_permission(plan) {
        return Some(Blocker::MissingPermission { what });
    }
    if plan.is_suspended() {
        return Some(Blocker::Suspended);
    }
    if plan.limit() == 0 {
        return Some(Blocker::ConcurrencyZero);
    }
    if let Some(offered) = &resolved.withdrawn {
        let (offered, current) = (offered.to_string(), resolved.version.to_string());
        return Some(Blocker::ChannelWithdrawn { offered, current });
    }
    if let Some(range) = &resolved.out_of_range {
        let (version, range) = (resolved.version.to_string(), range.to_string());
        return Some(Blocker::VersionOutOfRange { version, range });
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
    plan.job_blocker(false).or_else(|| digest_blocker(world, plan))
}

/// Jobs run by digest, and the registry has not said yet by which.
fn digest_blocker(world: &World, plan: &PlanView) -> Option<Blocker> {
    let image = plan.digests.unknown().next()?;
    let key = Key::Digest(plan.facts.name.clone(), image.clone());
    let why = world.troubles.get(&key).map(|trouble| trouble.message.clone());
    Some(Blocker::DigestUnknown {
        image: image.clone(),
        why: why.unwrap_or_default(),
    })
}

/// How far a node's kubelet may be from the version of its Plan.
struct Skips<'a> {
    version: &'a Text,
    parsed: Option<Version>,
    limit: u64,
    /// What is so of kubelets that have been looked at: there are few versions of them, however many nodes.
    known: BTreeMap<&'a str, Option<Blocker>>,
}

impl<'a> Skips<'a> {
    fn of(plan: &'a PlanView) -> Option<Self> {
        let limit = plan.spec().max_minor_skip()?;
        let version = &plan.resolved.as_ref()?.version;
        Some(Self {
            version,
            parsed: version.parse().ok(),
            limit,
            known: BTreeMap::new(),
        })
    }

    fn blocker(&mut self, node: &'a NodeFacts) -> Option<Blocker> {
        let (version, parsed, limit) = (self.version, self.parsed.as_ref(), self.limit);
        let look = || {
            let skip = parsed.and_then(|version| version.minors_from(&node.kubelet.parse().ok()?));
            skip.is_none_or(|skip| skip > limit).then(|| Blocker::MinorSkip {
                kubelet: node.kubelet.clone(),
                version: version.clone(),
                skip,
                limit,
            })
        };
        self.known.entry(&node.kubelet).or_insert_with(look).clone()
    }
}

/// Which disruptive Plan is at work on which node.
pub(super) struct Busy<'a> {
    world: &'a World,
    taken: BTreeMap<Text, Text>,
}

impl<'a> Busy<'a> {
    /// Nodes on which work has begun. Who is still to begin comes after them.
    pub(super) fn new(world: &'a World, standings: &Standings) -> Self {
        let making = world.making.iter().filter(|(_, making)| making.disruptive);
        let mut taken: BTreeMap<_, _> = making
            .map(|((plan, node), _)| (node.clone(), plan.clone()))
            .collect();
        for (plan, nodes) in standings {
            if !world.plans.get(plan).is_some_and(|p| p.disruptive) {
                continue;
            }
            for (node, _) in nodes
                .iter()
                .filter(|(_, standing)| !standing.failed && standing.next.is_none())
            {
                taken.entry(node.clone()).or_insert_with(|| plan.clone());
            }
        }
        Self { world, taken }
    }

    /// Lets those begin that have a slot already, as far as no other Plan is at work on their node.
    pub(super) fn begin(&mut self, standings: &mut Standings) {
        for (name, nodes) in standings {
            let Some(plan) = self.world.plans.get(name) else {
                continue;
            };
            for (node, standing) in nodes.iter_mut().filter(|(_, standing)| standing.next.is_some()) {
                if let Some(blocker) = self.blocker(plan, node) {
                    standing.is_held_up(blocker.reason(), blocker.to_string());
                    continue;
                }
                self.take(plan, node);
                if let Some(Next::Now(step)) = standing.next.take() {
                    standing.steps.push(step);
                }
            }
        }
    }

    fn take(&mut self, plan: &PlanView, node: &Text) {
        if plan.disruptive {
            self.taken.insert(node.clone(), plan.facts.name.clone());
        }
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
        let by_job = self.world.jobs_on(node).find_map(|job| {
            if job.plan != *name {
                let busy = plan.disruptive && job.disruptive && job.parallelism > 0 && job.is_live();
                return busy.then(|| Blocker::NodeBusy {
                    plan: job.plan.to_string(),
                });
            }
            let leaving = job.deleting || job.plan_uid != plan.facts.uid;
            leaving.then(|| Blocker::JobLeaving {
                job: job.name.to_string(),
            })
        });
        by_job.or_else(|| {
            let of_before =
                |pod: &&super::PodFacts| !self.world.jobs_on(node).any(|job| job.uid == pod.job_uid);
            let mut pods = self.world.live_pods_on(node).filter(of_before);
            let pod = pods.find(|pod| plan.disruptive || pod.plan == *name)?;
            Some(Blocker::PodLeaving {
                pod: pod.name.to_string(),
            })
        })
    }
}

/// Gives free slots to the next nodes, and says of the others why they wait. Their Jobs are made once stored status names
/// them; those that it names as next begin at once.
pub(super) fn start(
    world: &World,
    plan: &PlanView,
    gate: Option<Blocker>,
    nodes: &mut BTreeMap<Text, Standing>,
    busy: &mut Busy<'_>,
    now: Timestamp,
    steps: &mut Vec<Step>,
) -> Report {
    let mut report = Report {
        waiting: waiting(plan, nodes),
        ..Report::default()
    };
    let limit = plan.limit();
    if report.waiting == 0 {
        return report;
    }
    if gate.is_some() {
        report.blocker = gate;
        return report;
    }
    let mut skips = Skips::of(plan);
    let mut free = limit.saturating_sub(i64::try_from(nodes.len()).unwrap_or(i64::MAX));
    let line = (free > 0).then(|| Line::new(world, plan, now));
    for (line, name) in line
        .iter()
        .flat_map(|line| line.nodes().map(move |name| (line, name)))
    {
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
        if let Some(blocker) = skips.as_mut().and_then(|skips| skips.blocker(node)) {
            report.nodes.insert(name.clone(), blocker);
            continue;
        }
        let starting = line.begins(node, nodes, limit).map_or_else(
            || {
                let mut starting = Standing::starting(node, now);
                starting.boot = plan.spec().may_reboot().then(|| node.boot_id.clone());
                starting
            },
            |mut begun| {
                steps.append(&mut begun.steps);
                begun
            },
        );
        nodes.insert(name.clone(), starting);
        busy.take(plan, name);
        report.waiting -= 1;
        free -= 1;
    }
    report.blocker = if free <= 0 {
        (report.waiting > 0).then_some(Blocker::NoSlot { limit })
    } else {
        // All that could start has started: who is left is named above, or is not Ready.
        plan.nodes
            .not_ready()
            .any(|name| !nodes.contains_key(name))
            .then_some(Blocker::NodeNotReady)
    };
    report
}

/// How many of the nodes to be done the Plan has not begun with.
fn waiting(plan: &PlanView, nodes: &BTreeMap<Text, Standing>) -> usize {
    let begun = nodes
        .keys()
        .filter(|name| matches!(plan.nodes.class(name), Some(Class::Eligible { .. })))
        .count();
    plan.nodes.eligible().saturating_sub(begun)
}
