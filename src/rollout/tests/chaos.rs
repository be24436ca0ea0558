//! Roll-outs by dice: watches that lag and break off, answers that are lost, controllers that die, people who meddle. What
//! must hold is asked all along (`toy::laws`); when the faults end, the roll-out ends.
//!
//! `REFIT_SEEDS` says how many roll-outs are played (1,000), `REFIT_SEED` from which one on; a broken law prints the story.

use jiff::SignedDuration;

use super::build::plan_with;
use super::dice::Dice;
use super::toy::{Fate, Toy, Who};
use crate::api::{DrainSpec, Plan, RebootSpec, RebootWhen, SettleSpec, VersionPolicySpec, names};
use crate::job::name::job_name;
use crate::rollout::{Kind, Outcome};

const PLANS: [&str; 3] = ["agent", "patch", "server"];
const NODES: [&str; 5] = ["a.x", "a.y", "b", "c", "d"];
/// With those many have slots, and some are next.
const MORE: [&str; 8] = ["e", "f", "g", "h", "i", "j", "k", "l"];

/// One roll-out.
struct Game {
    toy: Toy,
    dice: Dice,
    /// Whether there is something better to do than what can wait.
    rush: Dice,
    /// How often a request or a watch goes wrong, in percent.
    faults: usize,
    /// How many more times somebody meddles.
    meddling: usize,
    edits: u32,
    /// The CRD that is stored has our fields.
    definition: bool,
}

fn plan(name: &str, dice: &mut Dice) -> Plan {
    let (disruption, concurrency) = (dice.roll(4), i64::try_from(1 + dice.roll(3)).unwrap());
    let (delayed, labels) = (dice.chance(20), dice.chance(30));
    let when = match dice.roll(10) {
        0..3 => Some(RebootWhen::Always),
        3 => Some(RebootWhen::IfRequired),
        _ => None,
    };
    let settles = dice.chance(25);
    let pins = dice.chance(25);
    plan_with(name, |spec| {
        spec.reboot = when.map(|when| RebootSpec {
            when: Some(when),
            timeout: Some("3m".to_owned()),
            ..RebootSpec::default()
        });
        spec.settle = settles.then(|| SettleSpec {
            min_ready: Some("7s".to_owned()),
            workloads: Some(true),
            timeout: Some("2m".to_owned()),
            ..SettleSpec::default()
        });
        spec.version_policy = pins.then(|| VersionPolicySpec {
            pin_digest: Some(true),
            ..VersionPolicySpec::default()
        });
        spec.concurrency = Some(concurrency);
        spec.cordon = Some(disruption == 1);
        spec.drain = (disruption == 2).then(DrainSpec::default);
        spec.exclusive = Some(disruption == 3);
        spec.post_complete_delay = delayed.then(|| "20s".to_owned());
        if labels {
            let pairs = [("refit.test/version".to_owned(), "$(LATEST_VERSION)".to_owned())];
            spec.post_complete_labels = Some(pairs.into());
        }
    })
}

impl Game {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut toy = Toy::asleep();
        toy.note(|| format!("REFIT_SEED={seed}"));
        toy.add_nodes(&NODES[..2 + dice.roll(4)]);
        if dice.chance(30) {
            toy.add_node("misnamed", |node| {
                node.labels = super::build::labels([(names::LABEL_HOSTNAME, "host-1")]);
            });
        }
        for node in NODES {
            if dice.chance(30) {
                toy.guarded.insert(node.to_owned());
            }
        }
        let mut more = Dice::new(seed ^ 0x5107);
        let many = more.chance(25);
        if many {
            toy.add_nodes(&MORE);
            toy.status_takes = SignedDuration::from_millis(i64::try_from(more.roll(200)).unwrap());
        }
        for name in PLANS.iter().take(1 + dice.roll(3)) {
            let mut plan = plan(name, &mut dice);
            if many && more.chance(70) {
                plan.spec.concurrency = Some(i64::try_from(6 + more.roll(4)).unwrap());
                plan.spec.reboot = plan.spec.reboot.filter(|_| more.chance(50));
            }
            toy.apply(plan);
        }
        let faults = if dice.chance(25) { 0 } else { 2 + dice.roll(25) };
        let meddling = dice.roll(14);
        toy.wakes_up();
        Self {
            toy,
            dice,
            rush: Dice::new(seed ^ 0xB059),
            faults,
            meddling,
            edits: 0,
            definition: true,
        }
    }

    fn fate(&mut self) -> Fate {
        if !self.dice.chance(self.faults) {
            return Fate::Fine;
        }
        let looks = self.dice.chance(70);
        match self.dice.roll(5) {
            0 | 1 => Fate::LostAfter(looks),
            2 => Fate::LostBefore(looks),
            3 => Fate::Overload,
            _ => Fate::Forbidden,
        }
    }

    /// One thing happens.
    fn turn(&mut self) {
        if self.rush.chance(5) {
            self.toy.engine.busy ^= true;
        }
        let toy = &mut self.toy;
        let (kinds, sent, answered, moves) = (toy.kinds_waiting(), toy.sent(), toy.answered(), toy.moves());
        match self.dice.roll(100) {
            0..30 => {
                if let Some(kind) = self.dice.pick(&kinds) {
                    toy.tell(*kind);
                    self.decides();
                }
            }
            30..50 => {
                if let Some(flight) = self.dice.pick(&sent).copied() {
                    let fate = self.fate();
                    self.toy.reaches(flight, fate);
                }
            }
            50..70 => {
                if let Some(flight) = self.dice.pick(&answered) {
                    toy.hears(*flight);
                    self.decides();
                }
            }
            70..90 => {
                if let Some(next) = self.dice.pick(&moves) {
                    toy.play(next);
                }
            }
            90..94 => {
                let millis = i64::try_from(self.dice.roll(8000)).unwrap();
                toy.passes(SignedDuration::from_millis(millis));
                self.decides();
            }
            94 if self.faults > 0 => self.watch_breaks_off(),
            95 if self.faults > 0 && self.dice.chance(30) => self.controller_dies(),
            _ if self.meddling > 0 && self.dice.chance(12) => {
                self.meddling -= 1;
                self.somebody_meddles();
            }
            _ => {}
        }
    }

    fn decides(&mut self) {
        if self.toy.is_listed() {
            self.toy.decides();
        }
    }

    fn watch_breaks_off(&mut self) {
        let kind = [Kind::Node, Kind::Job, Kind::Pod, Kind::Plan][self.dice.roll(4)];
        if self.toy.is_listed() {
            self.toy.list(kind);
        }
    }

    /// Of what was under way, some arrives still.
    fn controller_dies(&mut self) {
        for flight in self.toy.sent() {
            if self.dice.chance(50) {
                self.toy.reaches(flight, Fate::LostAfter(false));
            }
        }
        self.toy.wakes_up();
    }

    fn node(&mut self) -> Option<String> {
        let names: Vec<_> = self.toy.nodes.keys().cloned().collect();
        self.dice.pick(&names).cloned()
    }

    fn plan(&mut self) -> Option<String> {
        let names: Vec<_> = self.toy.plans.keys().cloned().collect();
        self.dice.pick(&names).cloned()
    }

    fn somebody_meddles(&mut self) {
        let (Some(node), plan) = (self.node(), self.plan()) else {
            return;
        };
        match self.dice.roll(25) {
            0 => self.toy.cordon(&node),
            1 => self.toy.uncordon(&node),
            2 => {
                let ready = !self.toy.nodes[&node].it.facts.ready;
                self.toy.ready(&node, ready);
            }
            3 => {
                self.toy.delete_node(&node);
                if self.dice.chance(80) {
                    self.toy.add_nodes(&[&node]);
                }
            }
            4 => {
                let jobs: Vec<_> = self.toy.jobs.keys().cloned().collect();
                if let Some(job) = self.dice.pick(&jobs) {
                    self.toy.delete_job(job);
                }
            }
            5 => {
                let jobs = self
                    .toy
                    .jobs
                    .iter()
                    .filter(|(_, job)| job.it.facts.outcome == Outcome::Running);
                let jobs: Vec<_> = jobs.map(|(name, _)| name.clone()).collect();
                if let Some(job) = self.dice.pick(&jobs) {
                    self.toy.deadline(job);
                }
            }
            6 => self.definition_changes(),
            7 => {
                if !self.toy.fails_on.remove(&node) {
                    self.toy.fails_on.insert(node);
                }
            }
            8 => {
                if !self.toy.guarded.remove(&node) {
                    self.toy.guarded.insert(node);
                }
            }
            9 | 10 => self.toy.power_cycle(&node),
            11 => {
                let pods: Vec<_> = self.toy.pods.keys().cloned().collect();
                if let Some(pod) = self.dice.pick(&pods) {
                    self.toy.pod_is_told_to_go(pod);
                }
            }
            12 => self.somebody_is_evicted(),
            13 => {
                if !self.toy.deaf.remove(&node) {
                    self.toy.deaf.insert(node);
                }
            }
            14 => {
                if !self.toy.content.remove(&node) {
                    self.toy.content.insert(node);
                }
            }
            15 => {
                let times = u32::try_from(1 + self.dice.roll(3)).unwrap();
                self.toy.restless.insert(node, times);
            }
            16 => self.all_is_lost(),
            17 => {
                let workload = format!("ReplicaSet/shop/on-{node}");
                if self.toy.workloads.remove(&workload).is_none() {
                    self.toy.workloads.insert(workload, (1, 2));
                }
            }
            _ => {
                if let Some(plan) = plan {
                    self.somebody_meddles_with(&plan, &node);
                }
            }
        }
    }

    /// The kubelet ends a pod that is to reboot its node.
    fn somebody_is_evicted(&mut self) {
        let pods = self.toy.pods.iter();
        let pods = pods.filter(|(_, pod)| pod.it.facts.reboot.is_some() && pod.it.is_at_work());
        let pods: Vec<_> = pods.map(|(name, _)| name.clone()).collect();
        if let Some(pod) = self.dice.pick(&pods) {
            self.toy.pod_is_evicted(pod);
        }
    }

    /// The controller is stopped, a Job goes with its pods, and another controller comes.
    fn all_is_lost(&mut self) {
        let jobs: Vec<_> = self.toy.jobs.keys().cloned().collect();
        let Some(job) = self.dice.pick(&jobs) else { return };
        let uid = self.toy.jobs[job].it.facts.uid.clone();
        self.toy.delete_job(job);
        let pods = self
            .toy
            .pods
            .iter()
            .filter(|(_, pod)| pod.it.facts.job_uid == uid);
        for pod in pods.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.toy.pod_goes(&pod);
        }
        self.controller_dies();
    }

    /// Another CRD is put there; the API server and the controller take it up in their own time.
    fn definition_changes(&mut self) {
        if self.toy.schema == self.definition && self.toy.crd.0 == self.definition {
            self.definition = !self.definition;
        }
        let (current, both) = (self.definition, self.dice.chance(30));
        if self.toy.schema != current && (both || self.dice.chance(50)) {
            self.toy.serves(current);
        }
        if self.toy.crd.0 != current && (both || self.dice.chance(50)) {
            self.toy.crd_becomes(current);
        }
    }

    fn somebody_meddles_with(&mut self, plan: &str, node: &str) {
        self.edits += 1;
        let edits = self.edits;
        match self.dice.roll(12) {
            0 => self.toy.set_done_label(node, plan, Some("disabled")),
            1 => self.toy.set_done_label(node, plan, None),
            2 => {
                let all = self.dice.chance(50);
                self.toy.retry(node, if all { "*" } else { plan });
            }
            3 => self.toy.delete_plan(plan),
            4 => {
                let again = self::plan(plan, &mut self.dice);
                self.toy.delete_plan(plan);
                self.toy.apply(again);
            }
            5 | 6 => {
                let version = ["v1", "v2"][self.dice.roll(2)].to_owned();
                self.toy.edit(plan, |spec| spec.version = Some(version));
            }
            7 => self
                .toy
                .edit(plan, |spec| spec.upgrade.args = Some(vec![edits.to_string()])),
            8 => {
                let concurrency = i64::try_from(self.dice.roll(4)).unwrap();
                self.toy.edit(plan, |spec| spec.concurrency = Some(concurrency));
            }
            9 => self.toy.edit(plan, |spec| {
                spec.suspend = Some(!spec.suspend.unwrap_or_default());
            }),
            10 => self
                .toy
                .edit(plan, |spec| spec.cordon = Some(!spec.cordon.unwrap_or_default())),
            _ => {
                let hash = self.toy.plans[plan]
                    .it
                    .status()
                    .latest_hash
                    .clone()
                    .unwrap_or_default();
                let name = job_name(plan, node, &hash);
                if !self.toy.jobs.contains_key(&name) {
                    self.toy.foreign_job(&name);
                }
            }
        }
    }

    /// All is well from now on, and people have taken back what kept the roll-out from going on.
    fn peace(&mut self) {
        self.toy.note(|| "peace".to_owned());
        self.faults = 0;
        self.toy.engine.busy = false;
        self.toy.fails_on.clear();
        self.toy.guarded.clear();
        self.toy.deaf.clear();
        self.toy.workloads.clear();
        self.toy.restless.clear();
        self.definition = true;
        if !self.toy.schema || !self.toy.crd.0 {
            self.toy.schema_is(true);
        }
        for node in self.toy.nodes.keys().cloned().collect::<Vec<_>>() {
            self.toy.ready(&node, true);
        }
        for plan in self.toy.plans.keys().cloned().collect::<Vec<_>>() {
            self.toy.edit(&plan, |spec| {
                // Applied again, so that what was lost is not missed.
                spec.suspend = Some(false);
                spec.concurrency = spec.concurrency.map(|limit| limit.max(1));
            });
        }
        for _ in 0..400 {
            self.toy.passes(SignedDuration::from_secs(5));
            self.toy.runs();
            let failed = self.toy.nodes.iter().filter(|(_, n)| {
                n.it.facts.retry.as_deref() != Some("*")
                    && n.it.facts.records.values().any(|r| r.reason.is_some())
            });
            let failed: Vec<_> = failed.map(|(name, _)| name.clone()).collect();
            let next = self.toy.decision();
            // Mere progress is written a little later.
            let soon = self.toy.now.checked_add(SignedDuration::from_secs(2)).unwrap();
            let rests = next.steps.is_empty() && next.wake.is_none_or(|at| at > soon);
            if failed.is_empty() && self.is_over() && rests {
                return;
            }
            for node in &failed {
                self.toy.retry(node, "*");
            }
        }
        let decision = self.toy.decision();
        let plans: Vec<_> = self
            .toy
            .plans
            .keys()
            .map(|plan| (plan, self.toy.complete(plan)))
            .collect();
        let nodes: Vec<_> = self.toy.nodes.values().map(|node| &node.it.facts).collect();
        self.toy.fail(&format!(
            "the roll-out does not end: {plans:#?} {nodes:#?} {decision:#?}"
        ));
    }

    fn is_over(&self) -> bool {
        self.toy.plans.values().all(|plan| {
            let status = plan.it.status();
            status.conditions.first().is_some_and(|c| c.status == "True")
                && status.observed_generation == plan.it.object.metadata.generation
        })
    }

    /// What is left when all is over.
    fn aftermath(&mut self) {
        for (name, node) in &self.toy.nodes {
            let facts = &node.it.facts;
            let cordoned = facts.unschedulable && node.it.cordoned_by != Who::Person;
            if facts.ledger.is_some() || !facts.records.is_empty() || cordoned {
                self.toy.fail(&format!("left on {name}: {node:?}"));
            }
            for (plan, known) in &self.toy.plans {
                let label = facts.labels.get_joined(names::LABEL_PLAN_PREFIX, plan);
                let hash = known.it.status().latest_hash.as_deref();
                if label != Some(names::LABEL_VALUE_DISABLED) && label != hash {
                    self.toy
                        .fail(&format!("{name} is not done: {label:?} for {hash:?}"));
                }
            }
        }
        if let Some(pod) = self.toy.pods.values().find(|pod| pod.it.facts.reboot.is_some()) {
            self.toy.fail(&format!("left: {pod:?}"));
        }
        for job in self.toy.jobs.values().filter(|job| job.it.ours) {
            if !job.it.facts.recorded {
                self.toy.fail(&format!("not recorded: {job:?}"));
            }
        }
        for plan in self.toy.plans.values() {
            let (status, disabled) = (plan.it.status(), plan.it.status().nodes.unwrap().disabled);
            let selected = i64::try_from(self.toy.nodes.len()).unwrap() - disabled;
            let progress = format!("{selected}/{selected}");
            if status.applying.is_some() || status.progress.as_ref() != Some(&progress) {
                self.toy.fail(&format!("{status:?}"));
            }
        }
    }
}

#[test]
fn whatever_happens_the_laws_hold_and_the_roll_out_ends() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // One seed, or so many, or so many from one on.
    let first = number("REFIT_SEED");
    let count = number("REFIT_SEEDS").unwrap_or(if first.is_some() { 1 } else { 1_000 });
    let seeds = first.unwrap_or(0)..first.unwrap_or(0) + count;
    let enough = count >= 100;
    let (mut cancelled, mut reboots) = (0, 0);
    for seed in seeds {
        let mut game = Game::new(seed);
        for _ in 0..600 {
            game.turn();
        }
        game.peace();
        game.aftermath();
        cancelled += game.toy.laws.cancelled;
        reboots += game.toy.laws.reboots;
    }
    assert!(!enough || reboots > 50, "{reboots} reboots were requested");
    assert!(!enough || cancelled > 10, "{cancelled} drains were told to stop");
}
