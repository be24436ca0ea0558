//! Watches: changes of the cluster as facts, in a safe order.
//!
//! The first lists are consistent and run one after the other: Jobs before Nodes before Plans. Writers change Plan, Job
//! and Node in that order, or the Job last. So a kind that is listed later is never older than what was concluded from
//! it: a Job that is missing did not exist when its Node was read, or its result is on that Node.

mod api_server;
mod etcd;
mod limits;
mod report;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, Resource};
use tokio::sync::{Notify, mpsc, watch};

use super::front_end::Watcher;
use super::metrics::{DEFINITIONS, Metrics, resource};
use super::notify::NotifyConfig;
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_api::{crd, names};
use refit_cluster::kube::Answer;
use refit_cluster::kube::watch::{Selection, Watch, WatchEvent};
use refit_facts::Watched;
use refit_facts::objects::maintenance::{
    KubevirtMaintenance, Maintenance, MaintenanceGroup, MedikMaintenance,
};
use refit_facts::objects::{Intern, RawPlan, SlimJob, SlimNode, SlimPod, version};
use refit_facts::read::Unreadable;
use refit_facts::{Schema, Text};
use refit_rollout::{Change, Kind, Observation};

pub use report::Reports;

/// Capacity of the queue of observations: a page of a list, and some more.
pub const QUEUE: usize = 256;
/// Objects per page of a list: larger pages cost memory, smaller ones requests.
const PAGE: u32 = 100;
/// Interval at which pods are listed while Jobs run, if watching them is forbidden.
const POD_POLL: Duration = Duration::from_secs(2);

/// Watches the cluster.
#[derive(Clone)]
pub struct Observer {
    pub client: Client,
    pub namespace: String,
    /// Name of the controller, which is the label of its Jobs and pods.
    pub controller: String,
    /// `SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH`.
    pub ttl: i64,
    pub observations: mpsc::Sender<Observation>,
    /// Interns texts, so that each is stored once.
    pub intern: Intern,
    /// Reports objects that cannot be read.
    pub reports: Reports,
    /// Notified when the resource versions of the server went back, so that all known facts may be wrong.
    pub restored: Arc<Notify>,
    /// Counts failures.
    pub metrics: Metrics,
    /// What the `ConfigMap` `refit` says of notifications.
    pub notify: Arc<watch::Sender<NotifyConfig>>,
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

    pub async fn jobs(self) {
        let (intern, ttl) = (self.intern.clone(), self.ttl);
        let observe =
            move |job: SlimJob| Observation::Job(version(job.meta()), Box::new(job.facts(&intern, ttl)));
        let ours = Selection {
            labels: Some(format!("{}={}", names::LABEL_CONTROLLER, self.controller)),
            ..self.all::<SlimJob>(true)
        };
        self.run(Kind::Job, ours, observe, Observation::JobDeleted).await;
    }

    /// Watches the pods of this controller's Jobs. If that is forbidden, lists them while `wanted`.
    pub async fn pods(self, may_watch: bool, mut wanted: watch::Receiver<bool>) {
        let intern = self.intern.clone();
        let observe = move |pod: SlimPod| Observation::Pod(version(pod.meta()), Box::new(pod.facts(&intern)));
        let ours = Selection {
            labels: Some(self.our_pods()),
            ..self.all::<SlimPod>(true)
        };
        // system-upgrade-controller does not need pods, so its role does not allow to watch them. The drainer role
        // lists them.
        if may_watch {
            self.run(Kind::Pod, ours, observe, Observation::PodDeleted).await;
            return;
        }
        let mut has_listed = false;
        loop {
            has_listed |= self.list_pods(&ours, &observe).await;
            tokio::time::sleep(POD_POLL).await;
            // Only while a Job runs, because without one no pod of refit can be of interest; but no Job starts before
            // the first list.
            if has_listed && wanted.wait_for(|wanted| *wanted).await.is_err() {
                return;
            }
        }
    }

    /// Lists the pods once, in pages as a watch does. Returns whether that succeeded.
    async fn list_pods(&self, selection: &Selection, observe: &impl Fn(SlimPod) -> Observation) -> bool {
        let mut list = Watch::<SlimPod>::new(self.client.clone(), selection.clone());
        loop {
            match list.next().await {
                WatchEvent::ListStarted => self.send(Observation::ListStarted(Kind::Pod)).await,
                WatchEvent::Object(pod) => self.send(observe(pod)).await,
                WatchEvent::Unreadable(unreadable) => self.skip::<SlimPod>(Kind::Pod, unreadable).await,
                WatchEvent::ListFinished => {
                    self.send(Observation::ListFinished(Kind::Pod)).await;
                    return true;
                }
                WatchEvent::Failed(error) => {
                    tracing::warn!(error = error.to_string(), "cannot list pods");
                    if error.answer() == Answer::Forbidden {
                        self.send(Observation::Forbidden).await;
                    }
                    return false;
                }
                // A list alone has none of these.
                WatchEvent::Watching | WatchEvent::Deleted { .. } | WatchEvent::VersionsReset => {
                    return false;
                }
            }
        }
    }

    pub async fn nodes(self) {
        let intern = self.intern.clone();
        let observe =
            move |node: SlimNode| Observation::Node(version(node.meta()), Box::new(node.facts(&intern)));
        let all = self.all::<SlimNode>(false);
        self.run(Kind::Node, all, observe, Observation::NodeDeleted).await;
    }

    /// Watches the Plans of the namespace. Starts again whenever `again` changes.
    pub async fn plans(self, mut again: watch::Receiver<()>) {
        let observe = |plan: RawPlan| Observation::Plan(version(plan.meta()), Box::new(plan.facts()));
        let all = self.all::<RawPlan>(true);
        loop {
            self.send(Observation::PlanRelistStarted).await;
            tokio::select! {
                biased;
                () = self.run(Kind::Plan, all.clone(), observe, Observation::PlanDeleted) => return,
                asked = again.changed() => if asked.is_err() { return },
            }
        }
    }

    /// Watches the definition of the Plan. Sets `defined` once something is known about it.
    pub async fn schema(self, defined: watch::Sender<bool>) {
        // A list or watch of one name is authorized by this name, so a Role may have `resourceNames`.
        let definition = Selection {
            fields: Some(format!("metadata.name=plans.{}", names::GROUP)),
            ..self.all::<CustomResourceDefinition>(false)
        };
        let mut watch = Watch::<CustomResourceDefinition>::new(self.client.clone(), definition);
        let mut found = false;
        let nowhere = || (Schema::Outdated(NOT_THERE.to_owned()), "".into());
        loop {
            let (schema, edition) = match watch.next().await {
                WatchEvent::ListStarted => {
                    found = false;
                    continue;
                }
                WatchEvent::Object(crd) => {
                    found = true;
                    (served(&crd), edition(&crd))
                }
                WatchEvent::Watching => continue,
                WatchEvent::ListFinished if found => continue,
                WatchEvent::ListFinished | WatchEvent::Deleted { .. } => nowhere(),
                WatchEvent::Unreadable(unreadable) => {
                    found = true;
                    let edition = unreadable.resource_version.as_str().into();
                    self.metrics.unreadable(DEFINITIONS);
                    self.reports
                        .report(CustomResourceDefinition::kind(&()).as_ref(), &unreadable);
                    (Schema::Outdated(UNREADABLE.to_owned()), edition)
                }
                WatchEvent::VersionsReset => return self.give_up().await,
                WatchEvent::Failed(error) => {
                    self.metrics.watch_restarted(DEFINITIONS);
                    tracing::warn!(
                        error = error.to_string(),
                        "cannot watch the CustomResourceDefinition"
                    );
                    // Without the permission to read it, refit learns from refused writes which fields it lacks.
                    if error.answer() != Answer::Forbidden || *defined.borrow() {
                        continue;
                    }
                    (Schema::Current, "".into())
                }
            };
            self.send(Observation::Schema(schema, edition)).await;
            defined.send_replace(true);
        }
    }

    /// Watches the objects of the kind `NodeMaintenance` of both groups.
    pub async fn maintenances(self) {
        let watcher = || Watcher {
            client: self.client.clone(),
            restored: Arc::clone(&self.restored),
        };
        let [medik8s, kubevirt] = MaintenanceGroup::ALL;
        let observations = || self.observations.clone();
        tokio::join!(
            watcher().run(None, None, observations(), in_group::<MedikMaintenance>(medik8s)),
            watcher().run(
                None,
                None,
                observations(),
                in_group::<KubevirtMaintenance>(kubevirt)
            ),
        );
    }

    /// Has the controller start over, which ends this task.
    async fn give_up(&self) {
        self.restored.notify_one();
        std::future::pending::<()>().await;
    }

    async fn send(&self, observation: Observation) {
        // Fails only if the loop has ended, and then this task ends too.
        let _ = self.observations.send(observation).await;
    }

    async fn run<K, Name, Uid>(
        &self,
        kind: Kind,
        selection: Selection,
        observe: impl Fn(K) -> Observation,
        gone: impl Fn(Name, Uid) -> Observation,
    ) where
        K: Watched + Resource<DynamicType = ()>,
        Name: for<'a> From<&'a str>,
        Uid: for<'a> From<&'a str>,
    {
        let mut watch = Watch::<K>::new(self.client.clone(), selection);
        loop {
            match watch.next().await {
                WatchEvent::Watching => {}
                WatchEvent::ListStarted => self.send(Observation::ListStarted(kind)).await,
                WatchEvent::ListFinished => self.send(Observation::ListFinished(kind)).await,
                WatchEvent::Object(object) => {
                    self.reports.report_ignored(&object);
                    self.send(observe(object)).await;
                }
                WatchEvent::Deleted { name, uid } => {
                    self.send(gone(name.as_str().into(), uid.as_str().into())).await;
                }
                WatchEvent::Unreadable(unreadable) => self.skip::<K>(kind, unreadable).await,
                WatchEvent::VersionsReset => return self.give_up().await,
                WatchEvent::Failed(error) => {
                    self.metrics.watch_restarted(resource(kind));
                    let why = error.to_string();
                    tracing::warn!(
                        ?kind,
                        error = why,
                        "the watch ended unexpectedly; refit starts it again"
                    );
                    // A watch that is refused will not succeed by itself: the loop must know, to report it and to
                    // stop deciding.
                    if error.answer() == Answer::Forbidden {
                        self.send(Observation::Forbidden).await;
                    }
                }
            }
        }
    }

    /// Skips an object that cannot be read.
    async fn skip<K: Watched + Resource<DynamicType = ()>>(&self, kind: Kind, unreadable: Unreadable) {
        self.metrics.unreadable(resource(kind));
        self.reports.report(K::kind(&()).as_ref(), &unreadable);
        let Unreadable { name, uid, why, .. } = unreadable;
        // Without a name nothing is known of the object but that it exists; the report above is all that can be done.
        if !name.is_empty() {
            let why = shorten(&why, MAX_MESSAGE).into_owned();
            let (name, uid) = (name.as_str().into(), uid.as_str().into());
            self.send(Observation::Unreadable { kind, name, uid, why }).await;
        }
    }
}

fn in_group<K: Into<Maintenance>>(
    group: MaintenanceGroup,
) -> impl Fn(Option<Change<K>>) -> Option<Observation> {
    move |change| {
        let change = change.map(|change| change.map(|object| Box::new(object.into())));
        Some(change.map_or(Observation::Forbidden, |change| {
            Observation::Maintenance(group, change)
        }))
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
        Schema::Outdated(missing.join(", "))
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
