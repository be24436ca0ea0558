//! A cluster in miniature: it carries out the steps of decisions as the API server, the Job controller, the scheduler and
//! kubelets would, and tells of it as watches and answers do. Pure and deterministic; whoever plays it says what happens
//! next, and what goes wrong.

mod engine;
mod laws;
mod life;
mod objects;
mod people;
mod power;
mod questions;
mod requests;
mod store;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

pub(super) use engine::Fate;
pub(super) use laws::Laws;
pub(super) use objects::{Cordon, ToyJob, ToyNode, ToyPod, Who};

use super::build::{defaults, morning};
use crate::api::Plan;
use crate::channel::Offer;
use crate::rollout::{Defaults, Kind, Missing, PlanFacts, World};
use engine::Engine;
use wire::{News, Wire};

/// The cluster, and the controller that works on it.
pub(super) struct Toy {
    pub(super) defaults: Defaults,
    pub(super) now: Timestamp,
    /// Version of the last object written.
    version: u64,
    uids: u64,
    pub(super) nodes: BTreeMap<String, Stored<ToyNode>>,
    pub(super) jobs: BTreeMap<String, Stored<ToyJob>>,
    pub(super) pods: BTreeMap<String, Stored<ToyPod>>,
    pub(super) plans: BTreeMap<String, Stored<PlanFacts>>,
    /// Hashes of Secrets.
    pub(super) secrets: BTreeMap<String, Stored<String>>,
    pub(super) channels: BTreeMap<String, Result<String, String>>,
    /// Channels that have several releases.
    pub(super) feeds: BTreeMap<String, Offer>,
    pub(super) polls: Vec<(Timestamp, String)>,
    /// Images whose digest was asked for.
    pub(super) digests_asked: Vec<String>,
    /// Why the registry tells no digest.
    pub(super) refuses_digests: Option<String>,
    /// Events by key: type, reason and message.
    pub(super) events: BTreeMap<String, (&'static str, String)>,
    /// The same in the order in which they were written.
    pub(super) told: Vec<String>,
    /// How long a status takes the API server.
    pub(super) status_takes: SignedDuration,
    /// How many pods are ready of how many, by workload.
    pub(super) workloads: BTreeMap<String, (i32, i32)>,
    /// What the controller may not do.
    pub(super) forbidden: Missing,
    /// Why the API server makes no Job.
    pub(super) refuses_jobs: Option<String>,
    /// The API server serves a CRD that knows our fields.
    pub(super) schema: bool,
    /// What the controller was told of that last, and how often it was another CRD.
    pub(super) crd: (bool, u32),
    /// The API server refuses fields that it would prune, as it was asked to.
    pub(super) strict: bool,
    /// Nodes on which the upgrade fails.
    pub(super) fails_on: BTreeSet<String>,
    /// Nodes whose pods a budget keeps: drains wait there until they are told to stop.
    pub(super) guarded: BTreeSet<String>,
    /// Nodes on which nothing is left after an upgrade that asks for a reboot.
    pub(super) content: BTreeSet<String>,
    /// Nodes whose command to reboot does nothing.
    pub(super) deaf: BTreeSet<String>,
    /// Nodes whose upgrade reboots them, how many times more.
    pub(super) restless: BTreeMap<String, u32>,
    pub(super) world: World,
    wire: Wire,
    pub(super) engine: Engine,
    pub(super) laws: Laws,
    pub(super) trace: Vec<String>,
}

/// An object in a version.
#[derive(Clone, Debug)]
pub(super) struct Stored<T> {
    pub(super) version: u64,
    pub(super) it: T,
}

impl Toy {
    /// A cluster without nodes, with a controller that has listed all there is.
    pub(super) fn new() -> Self {
        let mut toy = Self::asleep();
        toy.wakes_up();
        toy.settle();
        toy
    }

    /// A cluster with these nodes and a Plan.
    pub(super) fn with(nodes: &[&str], plan: Plan) -> Self {
        let mut toy = Self::new();
        toy.add_nodes(nodes);
        toy.apply(plan);
        toy.settle();
        toy
    }

    /// A cluster without a controller.
    pub(super) fn asleep() -> Self {
        Self {
            defaults: defaults(),
            now: morning(),
            version: 100,
            uids: 0,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            plans: BTreeMap::new(),
            secrets: BTreeMap::new(),
            channels: BTreeMap::new(),
            feeds: BTreeMap::new(),
            polls: Vec::new(),
            digests_asked: Vec::new(),
            refuses_digests: None,
            events: BTreeMap::new(),
            told: Vec::new(),
            status_takes: SignedDuration::ZERO,
            workloads: BTreeMap::new(),
            forbidden: Missing::default(),
            refuses_jobs: None,
            schema: true,
            crd: (true, 1),
            strict: true,
            fails_on: BTreeSet::new(),
            guarded: BTreeSet::new(),
            content: BTreeSet::new(),
            deaf: BTreeSet::new(),
            restless: BTreeMap::new(),
            world: World::new(defaults()),
            wire: Wire::default(),
            engine: Engine::default(),
            laws: Laws::default(),
            trace: Vec::new(),
        }
    }

    /// The controller starts, or another one takes over that knows nothing.
    pub(super) fn wakes_up(&mut self) {
        self.note(|| "the controller starts".to_owned());
        self.world = World::new(self.defaults.clone());
        self.engine = Engine::default();
        self.wire = Wire::default();
        self.crd_is_told();
        if self.crd.0 != self.schema {
            self.world.is_wary_of_lists();
        }
        for kind in [Kind::Secret, Kind::Pod, Kind::Job] {
            self.list(kind);
        }
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        self.trace
            .push(format!("{} {}", self.now.strftime("%H:%M:%S%.3f"), text()));
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn next_uid(&mut self, what: &str) -> String {
        self.uids += 1;
        format!("{what}-{}", self.uids)
    }

    pub(super) fn passes(&mut self, time: SignedDuration) {
        self.now = self.now.checked_add(time).unwrap();
    }

    /// A law of this world: broken, the whole story is told.
    fn law(&self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            let from = self
                .trace
                .len()
                .saturating_sub(if std::env::var_os("REFIT_SEED").is_some() {
                    usize::MAX
                } else {
                    400
                });
            let seed = self.trace.first().map_or("", String::as_str);
            panic!("{}\n{seed}\n{}", text(), self.trace[from..].join("\n"));
        }
    }

    pub(super) fn fail(&self, text: &str) {
        self.law(false, || text.to_owned());
    }

    fn emit(&mut self, kind: Kind, news: News) {
        self.wire.emit(kind, news);
    }
}
