//! Watches: changes of the cluster as facts, in a safe order.
//!
//! The first lists are consistent and run one after the other: Jobs before Nodes before Plans. Writers change Plan, Job
//! and Node in that order, or the Job last. So a kind that is listed later is never older than what was concluded from
//! it: a Job that is missing did not exist when its Node was read, or its result is on that Node.

mod api_server;
mod etcd;
mod limits;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use tokio::sync::{mpsc, watch};

use super::metrics::{DEFINITIONS, resource};
use super::notify::NotifyConfig;
use super::watches::{Named, News, Subject, Watches, named};
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_api::{crd, names};
use refit_base::names::shortened;
use refit_cluster::kube::Answer;
use refit_cluster::kube::watch::Selection;
use refit_facts::Watched;
use refit_facts::objects::maintenance::{
    KubevirtMaintenance, Maintenance, MaintenanceGroup, MedikMaintenance,
};
use refit_facts::objects::{Intern, SlimJob, SlimNode, SlimPod, version};
use refit_facts::read::Unreadable;
use refit_facts::store::Change;
use refit_facts::{PlanFacts, Schema, Text};
use refit_job::name::hook_controller;
use refit_rollout::{Kind, Observation};

/// Capacity of the queue of observations: a page of a list, and some more.
pub(super) const QUEUE: usize = 256;
/// Objects per page of a list: larger pages cost memory, smaller ones requests.
pub(super) const PAGE: u32 = 100;
/// Interval at which pods are listed while Jobs run, if watching them is forbidden.
const POD_POLL: Duration = Duration::from_secs(2);

/// Watches the cluster.
#[derive(Clone)]
pub(super) struct Observer {
    pub(super) watches: Watches,
    pub(super) namespace: String,
    /// Name of the controller, which is the label of its Jobs and pods.
    pub(super) controller: String,
    /// `SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH`.
    pub(super) ttl: i64,
    pub(super) observations: mpsc::Sender<Observation>,
    /// Interns texts, so that each is stored once.
    pub(super) intern: Intern,
    /// What the `ConfigMap` `refit` says of notifications.
    pub(super) notify: Arc<watch::Sender<NotifyConfig>>,
}

impl Observer {
    /// All objects of a kind: in the namespace, or those that have none.
    fn all<K: Resource<DynamicType = ()>>(&self, namespaced: bool) -> Selection {
        let namespace = namespaced.then_some(&*self.namespace);
        Selection {
            path: K::url_path(&(), namespace),
            page: PAGE,
            ..Selection::default()
        }
    }

    /// Selects the pods of this controller's Jobs. The controller's own pod has the controller label too, so that
    /// drains skip it, but no Plan label.
    fn our_pods(&self) -> String {
        format!(
            "{}={},{}",
            names::LABEL_CONTROLLER,
            self.controller,
            names::LABEL_PLAN
        )
    }

    pub(super) async fn jobs(self) {
        let (intern, ttl) = (self.intern.clone(), self.ttl);
        let observe =
            move |job: &SlimJob| Observation::Job(version(job.meta()), Box::new(job.facts(&intern, ttl)));
        let ours = Selection {
            labels: Some(format!(
                "{} in ({},{})",
                names::LABEL_CONTROLLER,
                self.controller,
                hook_controller(&self.controller)
            )),
            ..self.all::<SlimJob>(true)
        };
        let observe = observations(Kind::Job, observe, Observation::JobDeleted);
        self.follow(of_kind(Kind::Job, ours), observe).await;
    }

    /// Watches the pods of this controller's Jobs. If that is forbidden, lists them while `wanted`.
    pub(super) async fn pods(self, may_watch: bool, mut wanted: watch::Receiver<bool>) {
        let intern = self.intern.clone();
        let observe =
            move |pod: &SlimPod| Observation::Pod(version(pod.meta()), Box::new(pod.facts(&intern)));
        let mut observe = observations(Kind::Pod, observe, Observation::PodDeleted);
        let ours = Selection {
            labels: Some(self.our_pods()),
            ..self.all::<SlimPod>(true)
        };
        // system-upgrade-controller does not need pods, so its role does not allow to watch them. The drainer role
        // lists them.
        if may_watch {
            return self.follow(of_kind(Kind::Pod, ours), observe).await;
        }
        let mut has_listed = false;
        loop {
            let list = Subject {
                once: true,
                ..of_kind(Kind::Pod, ours.clone())
            };
            let listing = self.follow(list, |news| {
                has_listed |= matches!(news, News::Change(Change::ListFinished(_)));
                observe(news)
            });
            listing.await;
            tokio::time::sleep(POD_POLL).await;
            // Only while a Job runs, because without one no pod of refit can be of interest; but no Job starts before
            // the first list.
            if has_listed && wanted.wait_for(|wanted| *wanted).await.is_err() {
                return;
            }
        }
    }

    pub(super) async fn nodes(self) {
        let intern = self.intern.clone();
        let observe =
            move |node: &SlimNode| Observation::Node(version(node.meta()), Box::new(node.facts(&intern)));
        let observe = observations(Kind::Node, observe, Observation::NodeDeleted);
        let all = self.all::<SlimNode>(false);
        self.follow(of_kind(Kind::Node, all), observe).await;
    }

    /// Watches the Plans of the namespace. Starts again whenever `again` changes.
    pub(super) async fn plans(self, mut again: watch::Receiver<()>) {
        let observe = |plan: &PlanFacts| Observation::plan(plan.clone());
        loop {
            self.send(Observation::PlanRelistStarted).await;
            let all = of_kind(Kind::Plan, self.all::<PlanFacts>(true));
            let observe = observations(Kind::Plan, observe, Observation::PlanDeleted);
            tokio::select! {
                biased;
                () = self.follow(all, observe) => return,
                asked = again.changed() => if asked.is_err() { return },
            }
        }
    }

    /// Watches the definition of the Plan. Sets `defined` once something is known about it.
    pub(super) async fn schema(self, defined: watch::Sender<bool>) {
        // A list or watch of one name is authorized by this name, so a Role may have `resourceNames`.
        let definition = Subject {
            selection: Selection {
                fields: Some(format!("metadata.name=plans.{}", names::GROUP)),
                ..self.all::<CustomResourceDefinition>(false)
            },
            resource: Some(DEFINITIONS),
            // The loop gets Plans only after it.
            told: Some(defined.clone()),
            ..Subject::default()
        };
        let mut known = named::<CustomResourceDefinition>();
        let schema = |news| match news {
            News::Change(change) => Some(match known(change)? {
                Named::There(definition) => Observation::Schema(served(&definition), edition(&definition)),
                Named::Absent(_) | Named::Deleted => {
                    Observation::Schema(Schema::Outdated(NOT_THERE.to_owned()), "".into())
                }
                Named::Unreadable(unreadable) => {
                    let edition = unreadable.resource_version.as_str().into();
                    Observation::Schema(Schema::Outdated(UNREADABLE.to_owned()), edition)
                }
            }),
            // Without the permission to read it, refit learns from refused writes which fields it lacks.
            News::Failed(Answer::Forbidden, _) if !*defined.borrow() => {
                Some(Observation::Schema(Schema::Current, "".into()))
            }
            _ => None,
        };
        self.follow(definition, schema).await;
    }

    /// Watches the objects of the kind `NodeMaintenance` of both groups.
    pub(super) async fn maintenances(self) {
        let [medik8s, kubevirt] = MaintenanceGroup::ALL;
        tokio::join!(
            self.maintenances_of::<MedikMaintenance>(medik8s),
            self.maintenances_of::<KubevirtMaintenance>(kubevirt),
        );
    }

    async fn maintenances_of<K>(&self, group: MaintenanceGroup)
    where
        K: Watched + Resource<DynamicType = ()> + Into<Maintenance>,
    {
        let all = Subject {
            selection: self.all::<K>(false),
            may_be_unknown: true,
            ..Subject::default()
        };
        let observe = |news: News<K>| match news {
            News::Change(change) => {
                let change = change.map(|object| Box::new(object.into()));
                Some(Observation::Maintenance(group, change))
            }
            News::Failed(Answer::Forbidden, _) => Some(Observation::Forbidden),
            _ => None,
        };
        self.follow(all, observe).await;
    }

    async fn follow<K: Watched + Resource<DynamicType = ()>>(
        &self,
        subject: Subject,
        observe: impl FnMut(News<K>) -> Option<Observation>,
    ) {
        self.watches.follow(subject, &self.observations, observe).await;
    }

    async fn send(&self, observation: Observation) {
        // Fails only if the loop has ended, and then this task ends too.
        let _ = self.observations.send(observation).await;
    }
}

fn of_kind(kind: Kind, selection: Selection) -> Subject {
    Subject {
        selection,
        resource: Some(resource(kind)),
        ..Subject::default()
    }
}

/// What the news of a kind tell the loop.
fn observations<K, Name, Uid>(
    kind: Kind,
    observe: impl Fn(&K) -> Observation,
    gone: impl Fn(Name, Uid) -> Observation,
) -> impl FnMut(News<K>) -> Option<Observation>
where
    Name: for<'a> From<&'a str>,
    Uid: for<'a> From<&'a str>,
{
    move |news| match news {
        News::Change(Change::ListStarted) => Some(Observation::ListStarted(kind)),
        News::Change(Change::ListFinished(_)) => Some(Observation::ListFinished(kind)),
        News::Change(Change::Object(object)) => Some(observe(&object)),
        News::Change(Change::Deleted { name, uid }) => Some(gone(name.as_str().into(), uid.as_str().into())),
        News::Change(Change::Unreadable(unreadable)) => {
            let Unreadable { name, uid, why, .. } = unreadable;
            let why = shorten(&why, MAX_MESSAGE).into_owned();
            let (name, uid) = (Text::from(name.as_str()), uid.as_str().into());
            // Without a name nothing is known of the object but that it exists; the report of it is all that can be done.
            (!name.is_empty()).then_some(Observation::Unreadable { kind, name, uid, why })
        }
        // A watch that is refused will not succeed by itself: the loop must know, to report it and to stop deciding.
        News::Failed(Answer::Forbidden, _) => Some(Observation::Forbidden),
        _ => None,
    }
}

/// The missing part if a CRD does not exist, is not established, or is being deleted.
const NOT_THERE: &str = "the definition itself";
/// What is said of one that cannot be read.
const UNREADABLE: &str = "a form that refit can read";

fn served(definition: &CustomResourceDefinition) -> Schema {
    let conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let is_served = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    // While a CRD is being deleted, the API server deletes all of its objects, and admits no new ones.
    if !is_served || definition.metadata.deletion_timestamp.is_some() {
        return Schema::Outdated(NOT_THERE.to_owned());
    }
    let missing = crd::missing_fields(definition);
    if missing.is_empty() {
        Schema::Current
    } else {
        // It has to fit into an event.
        Schema::Outdated(shortened(&missing, 8))
    }
}

/// Each change of a CRD's spec is another edition; a change of its status is not.
fn edition(definition: &CustomResourceDefinition) -> Text {
    let meta = &definition.metadata;
    let (uid, generation) = (
        meta.uid.as_deref().unwrap_or_default(),
        meta.generation.unwrap_or_default(),
    );
    format!("{uid}/{generation}").as_str().into()
}
