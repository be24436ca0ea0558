//! The loop round the decision (as `controller::engine`): one step per object at a time, pauses after trouble.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Toy;
use super::requests::{Reply, Request, Told, Wrong};
use crate::rollout::facts::Text;
use crate::rollout::{Decision, Key, Kind, Lists, Schema, Trouble, Written, decide};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Fate {
    Fine,
    /// It is not carried out, and there is no answer; whether the read after it gets one.
    LostBefore(bool),
    /// It is carried out, and there is no answer.
    LostAfter(bool),
    /// Refused for load.
    Overload,
    Forbidden,
}

#[derive(Debug)]
pub(in super::super) struct Flight {
    key: Key,
    sent: Lists,
    request: Request,
    reply: Option<Reply>,
    /// When it was sent.
    at: Timestamp,
}

impl Flight {
    /// Name of the Job that it is to make.
    pub(super) fn creates(&self) -> Option<&str> {
        match &self.request {
            Request::Create { job } => Some(&job.facts.name),
            _ => None,
        }
    }

    pub(super) fn makes_pod(&self) -> bool {
        matches!(self.request, Request::CreatePod { .. })
    }

    pub(super) fn patches_node(&self) -> bool {
        matches!(self.request, Request::Node { .. })
    }

    pub(super) fn notes_fields(&self) -> bool {
        matches!(self.request, Request::Fields { .. })
    }

    pub(super) fn writes_status(&self) -> bool {
        matches!(self.request, Request::Status { .. })
    }

    pub(super) fn deletes(&self) -> bool {
        matches!(self.request, Request::Delete { .. })
    }
}

#[derive(Debug, Default)]
pub(in super::super) struct Engine {
    pub(in super::super) flights: Vec<Flight>,
    pauses: BTreeMap<Key, (Timestamp, u32)>,
    /// When to decide at the latest.
    pub(in super::super) wake: Option<Timestamp>,
    /// What can wait does.
    pub(in super::super) busy: bool,
    /// Jobs whose marks wait.
    put_off: Vec<Text>,
    /// How many steps were begun by all decisions.
    pub(in super::super) begun: usize,
}

impl Toy {
    /// Decides, and begins the steps that can begin.
    pub(in super::super) fn decides(&mut self) {
        if !self.engine.busy {
            for job in std::mem::take(&mut self.engine.put_off) {
                self.world.takes_up(&job);
            }
        }
        self.world.settle(self.now);
        let decision = decide(&self.world, self.now);
        self.is_decided(&decision);
        self.begin(decision);
    }

    /// What would be decided now.
    pub(in super::super) fn decision(&mut self) -> Decision {
        self.world.settle(self.now);
        decide(&self.world, self.now)
    }

    fn begin(&mut self, decision: Decision) {
        self.engine.wake = decision.wake;
        for step in decision.steps {
            if self.engine.busy && step.may_wait() {
                if let Some(job) = self.world.puts_off(&step) {
                    self.note(|| format!("put off: {job} is marked"));
                    self.engine.put_off.push(job);
                }
                continue;
            }
            let key = step.key();
            if self.engine.flights.iter().any(|flight| flight.key == key) {
                continue;
            }
            if let Some((until, _)) = self
                .engine
                .pauses
                .get(&key)
                .filter(|(until, _)| *until > self.now)
            {
                self.engine.wake = Some(self.engine.wake.map_or(*until, |wake| wake.min(*until)));
                continue;
            }
            self.is_begun(&step);
            self.world.sends(&step);
            if key == Key::Plans {
                self.engine.begun += 1;
                self.world.plans_read_again();
                self.list(Kind::Plan);
            }
            let Some(request) = self.prepare(step) else {
                self.world.answered(&key);
                continue;
            };
            self.engine.begun += 1;
            let sent = self.world.lists();
            self.engine.flights.push(Flight {
                key,
                sent,
                request,
                reply: None,
                at: self.now,
            });
        }
    }

    /// Requests that have not reached the API server.
    pub(in super::super) fn sent(&self) -> Vec<usize> {
        let flights = self.engine.flights.iter().enumerate();
        flights
            .filter(|(_, flight)| flight.reply.is_none())
            .map(|(at, _)| at)
            .collect()
    }

    /// A status is under way.
    pub(in super::super) fn sends_status(&self) -> bool {
        self.engine.flights.iter().any(Flight::writes_status)
    }

    /// Patches of nodes that are under way.
    pub(in super::super) fn node_patches(&self) -> Vec<usize> {
        let flights = self.engine.flights.iter().enumerate();
        flights
            .filter(|(_, flight)| flight.patches_node())
            .map(|(at, _)| at)
            .collect()
    }

    /// Requests whose answer has not reached the controller.
    pub(in super::super) fn answered(&self) -> Vec<usize> {
        let flights = self.engine.flights.iter().enumerate();
        flights
            .filter(|(_, flight)| flight.reply.is_some())
            .map(|(at, _)| at)
            .collect()
    }

    /// A request reaches the API server.
    pub(in super::super) fn reaches(&mut self, flight: usize, fate: Fate) {
        let request = self.engine.flights[flight].request.clone();
        self.note(|| format!("{fate:?}: {}", short(&request)));
        let reply = self.execute(&request, fate);
        if let Some((text, kind)) = &reply.trouble {
            self.note(|| format!("    {kind:?}: {text}"));
        }
        self.engine.flights[flight].reply = Some(reply);
    }

    /// An answer reaches the controller.
    pub(in super::super) fn hears(&mut self, flight: usize) {
        let Flight {
            key,
            sent,
            request,
            reply,
            at,
        } = self.engine.flights.remove(flight);
        self.note(|| format!("heard: {}", short(&request)));
        let Reply { told, trouble } = reply.unwrap();
        for told in told {
            self.hear(told, sent, at);
        }
        self.world.answered(&key);
        if let Some((message, kind)) = trouble {
            self.troubled(key, message, kind);
        } else {
            self.engine.pauses.remove(&key);
            self.world.untroubled(&key);
        }
    }

    fn hear(&mut self, told: Told, sent: Lists, at: Timestamp) {
        let world = &mut self.world;
        match told {
            Told::News(news) => {
                if let Some((Kind::Job, name)) = news.object()
                    && world.is_overtaken(Kind::Job, name, sent)
                {
                    world.job_unknown(name);
                }
                if !news
                    .object()
                    .is_some_and(|(kind, name)| world.is_overtaken(kind, name, sent))
                {
                    (*news).tell(world);
                }
            }
            Told::JobLeaving(name, uid) => {
                world.job_leaving(&name, &uid);
            }
            Told::PodLeaving(name, uid) => {
                world.pod_leaving(&name, &uid);
            }
            Told::NameTaken(job) => world.name_taken(job, self.now),
            Told::JobUnknown(job) => world.job_unknown(&job),
            Told::JobAbsent(job) => world.job_absent(&job),
            Told::StatusWritten(plan) => {
                let written = Written {
                    sent: at,
                    at: self.now,
                    took: self.now.duration_since(at).max(self.status_takes),
                };
                world.status_written(&plan, written);
            }
            Told::StatusPruned => {
                world.status_pruned(self.now);
            }
            Told::Event(plan, key) => world.told(plan, key),
            Told::Secret(name, version, hash) => {
                world.secret_read(&name, version, hash);
            }
            Told::SecretMissing(name) => {
                world.secret_missing(&name);
            }
            Told::Channel(channel, polled, answer, asked_by) => {
                world.channel_answered(&channel, polled, answer, &asked_by);
            }
            Told::Digest(plan, hash, image, digest) => world.digest_read(&plan, &hash, image, digest),
            Told::Workload(workload, facts) => world.workload_read(workload, facts),
            Told::Permissions(missing) => world.permissions_seen(missing),
        }
    }

    fn troubled(&mut self, key: Key, message: String, kind: Wrong) {
        let tries = self.engine.pauses.get(&key).map_or(0, |(_, tries)| *tries);
        let first = match kind {
            Wrong::Stale if tries == 0 => 0,
            Wrong::Stale | Wrong::Unanswered | Wrong::Passing => 100,
            Wrong::Refused | Wrong::Forbidden => 5000,
        };
        let pause = SignedDuration::from_millis((first * 2_i64.pow(tries.min(10))).min(30_000));
        if kind == Wrong::Forbidden {
            self.world.permissions_doubted();
        }
        let refused = matches!(kind, Wrong::Refused | Wrong::Forbidden);
        if refused || kind == Wrong::Passing && tries >= 4 {
            self.world.troubled(key.clone(), Trouble { message, refused });
        }
        self.engine
            .pauses
            .insert(key, (self.now.checked_add(pause).unwrap(), tries + 1));
    }

    /// Another CRD: the API server serves it, and the controller is told.
    pub(in super::super) fn schema_is(&mut self, current: bool) {
        self.serves(current);
        self.crd_becomes(current);
    }

    /// The API server takes up another CRD.
    pub(in super::super) fn serves(&mut self, current: bool) {
        self.note(|| format!("schema served: {current}"));
        self.schema = current;
    }

    /// The controller is told of another CRD.
    pub(in super::super) fn crd_becomes(&mut self, current: bool) {
        self.note(|| format!("schema told: {current}"));
        self.crd = (current, self.crd.1 + 1);
        self.crd_is_told();
    }

    pub(super) fn crd_is_told(&mut self) {
        let (current, edition) = self.crd;
        let schema = if current {
            Schema::Current
        } else {
            Schema::Outdated("spec.suspend".to_owned())
        };
        self.world
            .schema_seen(schema, edition.to_string().as_str().into());
    }

    /// All that is under way comes to an end, well, and what follows from it, while the clock stands still.
    pub(in super::super) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.tell_all();
            let begun = self.engine.begun;
            self.decides();
            if self.engine.flights.is_empty() && self.engine.begun == begun && self.kinds_waiting().is_empty()
            {
                return;
            }
            for flight in self.sent() {
                self.reaches(flight, Fate::Fine);
            }
            while !self.engine.flights.is_empty() {
                self.hears(0);
            }
        }
        self.law(false, || "the controller goes on for ever".to_owned());
    }
}

fn short(request: &Request) -> String {
    match request {
        Request::Status {
            plan,
            version,
            status,
            ..
        } => {
            let nodes = status.active.iter().flatten().filter(|n| n.phase != "Waiting");
            let nodes: Vec<_> = nodes.map(|n| format!("{}:{}", n.name, n.phase)).collect();
            format!(
                "status of {plan} at {version}: {} {:?}",
                nodes.join(" "),
                status.latest_version
            )
        }
        Request::Create { job } => {
            let f = &job.facts;
            format!(
                "create {} {} of {} {} on {} {:?}",
                f.name, f.attempt, f.plan, f.version, f.node, f.node_uid
            )
        }
        other => format!("{other:?}"),
    }
}
