//! Requests, as the API server answers them, and what the controller makes of the answers (as `controller::act` does).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::objects::{Cordon, ToyPod, apply, job_facts, reboot_pod};
use super::wire::News;
use super::{Fate, Stored, Toy, ToyJob, Who};
use crate::api::{PlanStatus, names};
use crate::channel::{Named, Offer};
use crate::job::render::UPGRADE;
use crate::job::{JobInput, NodeInput, render};
use crate::rollout::facts::Text;
use crate::rollout::{Event, Holder, Kind, Missing, NodeChange, Stage, Step, WorkloadFacts};

/// A step as a request: what it takes from what is known is in it.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Status {
        plan: Text,
        uid: Text,
        version: u64,
        status: Box<PlanStatus>,
        events: Vec<Event>,
    },
    Fields {
        plan: Text,
        uid: Text,
        version: u64,
        note: Option<String>,
    },
    Tell {
        plan: Text,
        events: Vec<Event>,
    },
    Create {
        job: Box<ToyJob>,
    },
    Look {
        job: Text,
    },
    Delete {
        job: Text,
        uid: Text,
        only_unbound: bool,
    },
    Release {
        job: Text,
        uid: Text,
    },
    EndRetries {
        job: Text,
        uid: Text,
        version: u64,
        limit: i32,
    },
    NoteBoots {
        job: Text,
        uid: Text,
        version: u64,
        boots: Vec<Text>,
    },
    CreatePod {
        pod: Box<ToyPod>,
    },
    DeletePod {
        pod: Text,
        uid: Text,
    },
    Mark {
        job: Text,
        uid: Text,
        ttl: i32,
        events: Vec<Event>,
    },
    Node {
        node: Text,
        uid: Text,
        version: Option<u64>,
        change: NodeChange,
        events: Vec<Event>,
    },
    Poll {
        channel: Named,
        asked_by: BTreeMap<Text, String>,
    },
    Digest {
        plan: Text,
        hash: Text,
        image: String,
    },
    Secret {
        name: Text,
    },
    Workload {
        workload: Text,
    },
    Permissions {
        reboots: bool,
    },
}

/// What the controller is told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    News(Box<News>),
    JobLeaving(Text, Text),
    PodLeaving(Text, Text),
    NameTaken(Text),
    JobUnknown(Text),
    JobAbsent(Text),
    SecretMissing(Text),
    StatusWritten(Text),
    StatusPruned,
    Event(Text, String),
    Secret(Text, u64, String),
    Channel(Named, Timestamp, Result<Offer, String>, BTreeMap<Text, String>),
    Digest(Text, Text, String, String),
    Permissions(Missing),
    Workload(Text, WorkloadFacts),
}

/// How a step went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Stale,
    /// Nobody answered.
    Unanswered,
    Passing,
    Refused,
    Forbidden,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) told: Vec<Told>,
    pub(super) trouble: Option<(String, Wrong)>,
}

pub(super) fn news(news: News) -> Told {
    Told::News(Box::new(news))
}

pub(super) fn told(told: Vec<Told>) -> Reply {
    Reply { told, trouble: None }
}

pub(super) fn wrong(told: Vec<Told>, kind: Wrong, text: &str) -> Reply {
    Reply {
        told,
        trouble: Some((text.to_owned(), kind)),
    }
}

/// How the API server takes a write.
enum Taken {
    Yes,
    NotFound,
    Conflict,
    /// `metadata.uid` of the patch is another one.
    Invalid,
    /// The CRD that is served would drop a field.
    UnknownField,
}

/// Image of the container that upgrades.
fn image_of(job: &Job) -> String {
    let pod = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .unwrap();
    let mut containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let upgrade = containers.find(|container| container.name == UPGRADE).unwrap();
    upgrade.image.clone().unwrap()
}

impl Toy {
    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    pub(super) fn prepare(&self, step: Step) -> Option<Request> {
        let world = &self.world;
        Some(match step {
            Step::WriteStatus { plan, status, events } => {
                let uid = world.plan(&plan)?.uid.clone();
                let version = world.plan_version(&plan)?;
                Request::Status {
                    plan,
                    uid,
                    version,
                    status,
                    events,
                }
            }
            Step::NoteFields { plan, note } => {
                let uid = world.plan(&plan)?.uid.clone();
                let version = world.plan_version(&plan)?;
                Request::Fields {
                    plan,
                    uid,
                    version,
                    note,
                }
            }
            Step::Tell { plan, events } => Request::Tell { plan, events },
            Step::CreateJob {
                plan,
                node,
                job,
                attempt,
            } => {
                let (input, facts) = (world.job_input(&plan)?, world.node(&node)?);
                let input = JobInput {
                    plan: input,
                    node: NodeInput {
                        name: &facts.name,
                        uid: &facts.uid,
                        os: facts.labels.get(names::LABEL_OS),
                    },
                    name: &job,
                    attempt: u32::try_from(attempt).unwrap(),
                    unschedulable_before: facts.is_windows().then_some(facts.unschedulable),
                };
                let settings = world.job_settings();
                let manifest = render(&input, settings).unwrap();
                let spec = input.plan.spec;
                let cordons = spec.cordon.unwrap_or_default() || spec.drain.is_some();
                let holder = Holder {
                    namespace: input.plan.namespace.to_owned(),
                    controller: settings.controller_name.clone(),
                    plan: plan.to_string(),
                    plan_uid: input.plan.uid.to_owned(),
                    cancelled: false,
                    passed: false,
                    evicted: Vec::new(),
                };
                let cordon = match (cordons, facts.is_windows()) {
                    (false, _) => Cordon::None,
                    (true, false) => Cordon::Refit(holder),
                    (true, true) => Cordon::Kubectl,
                };
                let mut facts_of_job = job_facts(&manifest, "", self.now);
                facts_of_job.boots = [facts.boot_id.clone()].into();
                let facts = facts_of_job;
                let mut job = Box::new(ToyJob::new(facts, cordon));
                job.image = image_of(&manifest);
                job.drains = spec.drain.is_some();
                Request::Create { job }
            }
            Step::LookForJob { job, .. } => Request::Look { job },
            Step::DeleteJob {
                job,
                uid,
                only_unbound,
                ..
            } => Request::Delete {
                job,
                uid,
                only_unbound,
            },
            Step::ReleaseJob { job, uid } => Request::Release { job, uid },
            Step::EndRetries { job, uid, limit } => Request::EndRetries {
                version: world.job_version(&job)?,
                job,
                uid,
                limit,
            },
            Step::NoteBoots { job, uid, boots } => Request::NoteBoots {
                version: world.job_version(&job)?,
                job,
                uid,
                boots,
            },
            Step::CreatePod {
                plan,
                node,
                pod,
                hash,
                boot_id,
                ..
            } => {
                let (plan, node) = (world.plan(&plan)?, world.node(&node)?);
                Request::CreatePod {
                    pod: Box::new(reboot_pod(
                        &plan.name, &plan.uid, node, &pod, hash, boot_id, self.now,
                    )),
                }
            }
            Step::DeletePod { pod, uid, .. } => Request::DeletePod { pod, uid },
            Step::MarkRecorded {
                job,
                uid,
                ttl_seconds,
                events,
                ..
            } => Request::Mark {
                job,
                uid,
                ttl: ttl_seconds,
                events,
            },
            Step::PatchNode {
                node,
                uid,
                change,
                events,
            } => {
                let version = change
                    .exact
                    .then(|| world.node_version(&node).unwrap_or_default());
                Request::Node {
                    node,
                    uid,
                    version,
                    change,
                    events,
                }
            }
            Step::Poll {
                channel, asked_by, ..
            } => Request::Poll { channel, asked_by },
            Step::ReadDigest {
                plan, hash, image, ..
            } => Request::Digest { plan, hash, image },
            Step::ReadSecret { name } => Request::Secret { name },
            Step::ReadWorkload { workload } => Request::Workload { workload },
            Step::AskPermissions => Request::Permissions {
                reboots: world.has_reboots(),
            },
            Step::ReadPlans => return None,
        })
    }

    /// The API server carries out a request, and the controller reads its answer.
    pub(super) fn execute(&mut self, request: &Request, fate: Fate) -> Reply {
        match fate {
            Fate::Overload => return wrong(Vec::new(), Wrong::Passing, "too many requests"),
            Fate::Forbidden => return wrong(Vec::new(), Wrong::Forbidden, "forbidden"),
            Fate::LostBefore(looks) => return self.look(request, looks),
            Fate::Fine | Fate::LostAfter(_) => {}
        }
        let reply = self.answer(request);
        match fate {
            Fate::LostAfter(looks) => self.look(request, looks),
            _ => reply,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    fn answer(&mut self, request: &Request) -> Reply {
        match request {
            Request::Status {
                plan,
                uid,
                version,
                status,
                events,
            } => {
                self.write_events(events);
                match self.take_plan(plan, uid, *version) {
                    Taken::Yes => {}
                    taken => return self.look_at_plan(plan, uid, &taken),
                }
                self.status_is_written(plan, status, events);
                let now = self.changes_plan(plan, |facts| facts.object.status = Some((**status).clone()));
                let mut heard = vec![news(now), Told::StatusWritten(plan.clone())];
                if !self.schema {
                    heard.push(Told::StatusPruned);
                }
                told(heard)
            }
            Request::Fields {
                plan,
                uid,
                version,
                note,
            } => {
                match self.take_plan(plan, uid, *version) {
                    Taken::Yes => {}
                    taken => return self.look_at_plan(plan, uid, &taken),
                }
                let note = note.clone();
                told(vec![news(self.changes_plan(plan, |facts| {
                    let annotations = facts.object.metadata.annotations.get_or_insert_default();
                    match note {
                        Some(note) => annotations.insert(names::ANNOTATION_FIELDS.to_owned(), note),
                        None => annotations.remove(names::ANNOTATION_FIELDS),
                    };
                }))])
            }
            Request::Tell { plan, events } => {
                self.write_events(events);
                told(
                    events
                        .iter()
                        .map(|event| Told::Event(plan.clone(), event.key.clone()))
                        .collect(),
                )
            }
            Request::Create { job } => self.create_job(job),
            Request::Look { job } => match self.jobs.get(&**job) {
                Some(_) => told(vec![self.see_job(job)]),
                None => told(vec![Told::JobAbsent(job.clone())]),
            },
            Request::Delete {
                job,
                uid,
                only_unbound,
            } => self.delete_request(job, uid, *only_unbound),
            Request::Release { job, uid } => self.patch_job(job, uid, &[], |job| job.facts.parallelism = 1),
            Request::EndRetries {
                job,
                uid,
                version,
                limit,
            } => {
                if self
                    .jobs
                    .get(&**job)
                    .is_some_and(|known| known.version != *version)
                {
                    return self.look_at_job(job, uid, Wrong::Stale);
                }
                self.retries_are_ended(job, *limit);
                self.patch_job(job, uid, &[], |job| job.facts.backoff_limit = *limit)
            }
            Request::NoteBoots {
                job,
                uid,
                version,
                boots,
            } => {
                if self
                    .jobs
                    .get(&**job)
                    .is_some_and(|known| known.version != *version)
                {
                    return self.look_at_job(job, uid, Wrong::Stale);
                }
                let boots = boots.clone().into();
                self.patch_job(job, uid, &[], |job| job.facts.boots = boots)
            }
            Request::CreatePod { pod } => self.create_pod_request(pod),
            Request::DeletePod { pod, uid } => {
                if self
                    .pods
                    .get(&**pod)
                    .is_none_or(|known| known.it.facts.uid != *uid)
                {
                    return self.look_at_pod(pod, uid, Wrong::Stale);
                }
                self.pod_is_told_to_go(pod);
                told(vec![Told::PodLeaving(pod.clone(), uid.clone())])
            }
            Request::Mark {
                job,
                uid,
                ttl,
                events,
            } => {
                let ttl = i64::from(*ttl);
                self.patch_job(job, uid, events, |job| {
                    job.facts.recorded = true;
                    job.ttl = Some(ttl);
                })
            }
            Request::Node {
                node,
                uid,
                version,
                change,
                events,
            } => {
                self.write_events(events);
                self.patch_node(node, uid, *version, change)
            }
            Request::Poll { channel, asked_by } => {
                self.polls.push((self.now, channel.url.to_string()));
                let unknown = || Err("unexpected response: HTTP/1.1 404 Not Found".to_owned());
                let feed = self.feeds.get(&*channel.url).cloned().map(Ok);
                let answer = feed.unwrap_or_else(|| {
                    let answer = self.channels.get(&*channel.url).cloned();
                    answer.unwrap_or_else(unknown).map(Offer::one)
                });
                told(vec![Told::Channel(
                    channel.clone(),
                    self.now,
                    answer,
                    asked_by.clone(),
                )])
            }
            Request::Digest { plan, hash, image } => {
                self.digests_asked.push(image.clone());
                if let Some(why) = &self.refuses_digests {
                    return wrong(Vec::new(), Wrong::Refused, &why.clone());
                }
                // The tag moves whenever somebody looks.
                let digest = format!("sha256:{:064x}", self.digests_asked.len());
                let (plan, hash) = (plan.clone(), hash.clone());
                told(vec![Told::Digest(plan, hash, image.clone(), digest)])
            }
            Request::Secret { name } => match self.secrets.get(&**name) {
                Some(secret) => told(vec![Told::Secret(
                    name.clone(),
                    secret.version,
                    secret.it.clone(),
                )]),
                None => wrong(vec![Told::SecretMissing(name.clone())], Wrong::Stale, "not found"),
            },
            Request::Workload { workload } => {
                let (ready, wanted) = self.workloads.get(&**workload).copied().unwrap_or_default();
                let seen = self.now;
                told(vec![Told::Workload(
                    workload.clone(),
                    WorkloadFacts { seen, ready, wanted },
                )])
            }
            Request::Permissions { reboots } => {
                let mut forbidden = self.forbidden.clone();
                forbidden.knows_reboots = *reboots;
                forbidden.knows_workloads = true;
                forbidden.for_reboots.retain(|_| *reboots);
                let nothing = forbidden.is_empty();
                let missing = vec![Told::Permissions(forbidden)];
                if nothing {
                    told(missing)
                } else {
                    wrong(missing, Wrong::Refused, "MissingPermission")
                }
            }
        }
    }

    /// What becomes of a write whose answer got lost: one read, which may fail as well.
    fn look(&mut self, request: &Request, looks: bool) -> Reply {
        let lost = |told| wrong(told, Wrong::Unanswered, "no answer");
        if !looks {
            return lost(match request {
                Request::Create { job } => vec![Told::JobUnknown(job.facts.name.clone())],
                _ => Vec::new(),
            });
        }
        match request {
            Request::Status { plan, .. } | Request::Fields { plan, .. } => {
                let known = self.plans.get(&**plan);
                lost(
                    known
                        .map(|p| news(News::Plan(p.version, self.reads(&p.it))))
                        .into_iter()
                        .collect(),
                )
            }
            Request::Create { job } => match self.jobs.get(&*job.facts.name) {
                Some(_) => told(vec![self.see_job(&job.facts.name.clone())]),
                None => lost(Vec::new()),
            },
            Request::Delete { job, uid, .. }
            | Request::Release { job, uid }
            | Request::EndRetries { job, uid, .. }
            | Request::NoteBoots { job, uid, .. }
            | Request::Mark { job, uid, .. } => self.look_at_job(job, uid, Wrong::Unanswered),
            Request::Node { node, uid, .. } => self.look_at_node(node, uid, Wrong::Unanswered),
            Request::CreatePod { pod } => match self.pods.get(&*pod.facts.name) {
                Some(known) => told(vec![news(News::Pod(known.version, known.it.facts.clone()))]),
                None => lost(Vec::new()),
            },
            Request::DeletePod { pod, uid } => self.look_at_pod(pod, uid, Wrong::Unanswered),
            Request::Tell { .. }
            | Request::Look { .. }
            | Request::Poll { .. }
            | Request::Digest { .. }
            | Request::Secret { .. }
            | Request::Workload { .. }
            | Request::Permissions { .. } => lost(Vec::new()),
        }
    }

    fn take_plan(&self, name: &str, uid: &str, version: u64) -> Taken {
        match self.plans.get(name) {
            None => Taken::NotFound,
            Some(plan) if *plan.it.uid != *uid => Taken::Invalid,
            Some(plan) if plan.version != version => Taken::Conflict,
            Some(_) if self.strict && !self.schema => Taken::UnknownField,
            Some(_) => Taken::Yes,
        }
    }

    fn look_at_plan(&self, name: &str, uid: &str, taken: &Taken) -> Reply {
        let Some(plan) = self.plans.get(name) else {
            return wrong(Vec::new(), Wrong::Stale, "not found");
        };
        if matches!(taken, Taken::UnknownField) {
            return wrong(vec![Told::StatusPruned], Wrong::Stale, "unknown field");
        }
        let kind = match taken {
            Taken::Invalid if *plan.it.uid == *uid => Wrong::Refused,
            _ => Wrong::Stale,
        };
        wrong(
            vec![news(News::Plan(plan.version, self.reads(&plan.it)))],
            kind,
            "conflict",
        )
    }

    fn see_job(&self, name: &Text) -> Told {
        let job = &self.jobs[&**name];
        if job.it.ours {
            news(News::Job(job.version, job.it.facts.clone()))
        } else {
            Told::NameTaken(name.clone())
        }
    }

    fn look_at_job(&self, name: &Text, uid: &Text, kind: Wrong) -> Reply {
        let gone = news(News::JobGone(name.clone(), uid.clone()));
        match self.jobs.get(&**name) {
            Some(job) if job.it.facts.uid == *uid => wrong(vec![self.see_job(name)], kind, "conflict"),
            Some(_) => told(vec![gone, self.see_job(name)]),
            None => told(vec![gone]),
        }
    }

    fn look_at_node(&self, name: &Text, uid: &Text, kind: Wrong) -> Reply {
        let gone = news(News::NodeGone(name.clone(), uid.clone()));
        let seen = |node: &Stored<super::ToyNode>| news(News::Node(node.version, node.it.facts.clone()));
        match self.nodes.get(&**name) {
            Some(node) if node.it.facts.uid == *uid => wrong(vec![seen(node)], kind, "conflict"),
            Some(node) => told(vec![gone, seen(node)]),
            None => told(vec![gone]),
        }
    }

    fn create_job(&mut self, job: &ToyJob) -> Reply {
        if let Some(why) = self.refuses_jobs.clone() {
            return wrong(Vec::new(), Wrong::Refused, &why);
        }
        let name = job.facts.name.clone();
        if self.jobs.contains_key(&*name) {
            return wrong(vec![self.see_job(&name)], Wrong::Stale, "already exists");
        }
        let mut job = job.clone();
        job.facts.uid = self.next_uid("job").as_str().into();
        job.facts.created = self.now;
        self.job_is_created(&job);
        let version = self.next_version();
        self.emit(Kind::Job, News::Job(version, job.facts.clone()));
        self.jobs.insert(name.to_string(), Stored { version, it: job });
        told(vec![self.see_job(&name)])
    }

    fn delete_request(&mut self, name: &Text, uid: &Text, only_unbound: bool) -> Reply {
        if only_unbound {
            let pods: Vec<_> = self
                .pods
                .values()
                .filter(|pod| pod.it.facts.job_uid == *uid)
                .collect();
            let at_work = pods.iter().any(|pod| pod.it.is_at_work());
            let ended = pods.iter().any(|pod| pod.it.has_ended());
            let next = pods.iter().any(|pod| pod.it.facts.stage == Stage::Unbound);
            if at_work || ended && !next {
                let seen = |pod: &&Stored<super::ToyPod>| news(News::Pod(pod.version, pod.it.facts.clone()));
                return wrong(pods.iter().map(seen).collect(), Wrong::Stale, "bound by now");
            }
        }
        if self.jobs.get(&**name).is_none_or(|job| job.it.facts.uid != *uid) {
            return self.look_at_job(name, uid, Wrong::Stale);
        }
        self.job_is_deleted(name);
        self.job_goes(name);
        told(vec![Told::JobLeaving(name.clone(), uid.clone())])
    }

    fn patch_job(
        &mut self,
        name: &Text,
        uid: &Text,
        events: &[Event],
        change: impl FnOnce(&mut ToyJob),
    ) -> Reply {
        self.write_events(events);
        if self.jobs.get(&**name).is_none_or(|job| job.it.facts.uid != *uid) {
            return self.look_at_job(name, uid, Wrong::Stale);
        }
        self.change_job(name, change);
        told(vec![self.see_job(name)])
    }

    fn patch_node(&mut self, name: &Text, uid: &Text, version: Option<u64>, change: &NodeChange) -> Reply {
        let known = self.nodes.get(&**name);
        let right = known.is_some_and(|node| {
            node.it.facts.uid == *uid && version.is_none_or(|version| version == node.version)
        });
        if !right {
            return self.look_at_node(name, uid, Wrong::Stale);
        }
        self.node_is_patched(name, change);
        self.change_node(name, |node| {
            apply(&mut node.facts, change);
            if change.unschedulable == Some(false) {
                node.cordoned_by = Who::Nobody;
            }
        });
        let node = &self.nodes[&**name];
        told(vec![news(News::Node(node.version, node.it.facts.clone()))])
    }

    fn write_events(&mut self, events: &[Event]) {
        for event in events {
            if !self.events.contains_key(&event.key) {
                self.events
                    .insert(event.key.clone(), (event.reason, event.message.clone()));
                self.told.push(format!("{} {}", event.reason, event.message));
                let Event { reason, message, .. } = event;
                self.note(|| format!("event {reason}: {message}"));
            }
        }
    }
}
