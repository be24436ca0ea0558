//! Watches: what changes in the cluster, as facts, in the order in which it is safe to learn it.
//!
//! The first lists are consistent and come one after the other, Jobs before Nodes before Plans: whoever made a change
//! wrote Plan, Job and Node in that order or left the Job for last, so what is listed later is never older than what
//! was concluded from it (a Job that is missing was not there when its Node was read, or its result is on that Node).

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use super::client::brief;
use super::objects::{Intern, RawPlan, SlimJob, SlimNode, SlimPod, version};
use crate::api::{crd, names};
use crate::rollout::facts::Text;
use crate::rollout::{JobFacts, Kind, NodeFacts, PlanFacts, PodFacts, Schema};

/// Something that was seen in the cluster.
#[derive(Debug)]
pub enum Seen {
    /// A list begins.
    ListBegins(Kind),
    /// A list has ended.
    ListEnds(Kind),
    /// A Node, in this version.
    Node(u64, Box<NodeFacts>),
    /// A Node is gone: name and UID.
    NodeGone(Text, Text),
    /// A Job, in this version.
    Job(u64, Box<JobFacts>),
    /// A Job is gone: name and UID.
    JobGone(Text, Text),
    /// A pod, in this version.
    Pod(u64, Box<PodFacts>),
    /// A pod is gone: name and UID.
    PodGone(Text, Text),
    /// A Plan, in this version.
    Plan(u64, Box<PlanFacts>),
    /// A Plan is gone: name and UID.
    PlanGone(Text, Text),
    /// The metadata of a Secret, in this version.
    Secret(u64, Text),
    /// A Secret is gone.
    SecretGone(Text),
    /// The CRD that is served, and which edition of it that is.
    Schema(Schema, Text),
    /// The watch of Plans begins, and with it a list.
    PlansAgain,
    /// A list or a watch of this kind is not allowed.
    Forbidden(Kind),
}

impl Seen {
    /// The object that was seen.
    pub fn object(&self) -> Option<(Kind, &Text)> {
        match self {
            Self::Node(_, facts) => Some((Kind::Node, &facts.name)),
            Self::Job(_, facts) => Some((Kind::Job, &facts.name)),
            Self::Pod(_, facts) => Some((Kind::Pod, &facts.name)),
            Self::Plan(_, facts) => Some((Kind::Plan, &facts.name)),
            Self::Secret(_, name) => Some((Kind::Secret, name)),
            _ => None,
        }
    }
}

/// How many things that were seen wait for the loop: a page of a list and some.
pub const QUEUE: usize = 256;
/// Objects per page of a list: more cost memory, fewer cost requests.
const PAGE: u32 = 100;
/// How often pods are listed while Jobs run, where they may not be watched.
const POD_POLL: Duration = Duration::from_secs(2);

/// What is watched, and how.
#[derive(Clone)]
pub struct Observer {
    /// Handle on the API server.
    pub client: Client,
    /// Namespace of the controller and of its Plans.
    pub namespace: String,
    /// Name of the controller: the label of its Jobs and pods.
    pub controller: String,
    /// `SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH`.
    pub ttl: i64,
    /// Where it goes.
    pub seen: mpsc::Sender<Seen>,
    /// Texts that are kept once.
    pub intern: Intern,
}

impl Observer {
    fn ours(&self) -> watcher::Config {
        let mine = format!("{}={}", names::LABEL_CONTROLLER, self.controller);
        watcher::Config::default().labels(&mine).page_size(PAGE)
    }

    /// Which pods are of our Jobs. The controller's own pod carries the label of the controller too, so that it is not
    /// drained; it is of no Plan, and at work on no node.
    fn our_pods(&self) -> String {
        format!(
            "{}={},{}",
            names::LABEL_CONTROLLER,
            self.controller,
            names::LABEL_PLAN
        )
    }

    /// Watches the Jobs of this controller.
    pub async fn jobs(self) {
        let api = Api::<SlimJob>::namespaced(self.client.clone(), &self.namespace);
        let (intern, ttl) = (self.intern.clone(), self.ttl);
        let seen = move |job: &SlimJob| Seen::Job(version(job.meta()), Box::new(job.facts(&intern, ttl)));
        self.run(Kind::Job, api, self.ours(), seen, Seen::JobGone).await;
    }

    /// Watches the pods of this controller's Jobs, or where that is not allowed lists them while `wanted`.
    pub async fn pods(self, may_watch: bool, mut wanted: watch::Receiver<bool>) {
        let api = Api::<SlimPod>::namespaced(self.client.clone(), &self.namespace);
        let intern = self.intern.clone();
        let seen = move |pod: &SlimPod| Seen::Pod(version(pod.meta()), Box::new(pod.facts(&intern)));
        let mine = self.our_pods();
        if may_watch {
            let config = watcher::Config::default().labels(&mine).page_size(PAGE);
            self.run(Kind::Pod, api, config, seen, Seen::PodGone).await;
            return;
        }
        loop {
            match api.list(&ListParams::default().labels(&mine)).await {
                Ok(list) => {
                    self.tell(Seen::ListBegins(Kind::Pod)).await;
                    for pod in &list.items {
                        self.tell(seen(pod)).await;
                    }
                    self.tell(Seen::ListEnds(Kind::Pod)).await;
                }
                Err(error) => tracing::warn!(error = brief(&error), "cannot list pods"),
            }
            tokio::time::sleep(POD_POLL).await;
            if wanted.wait_for(|wanted| *wanted).await.is_err() {
                return;
            }
        }
    }

    /// Watches all Nodes.
    pub async fn nodes(self) {
        let api = Api::<SlimNode>::all(self.client.clone());
        let intern = self.intern.clone();
        let seen = move |node: &SlimNode| Seen::Node(version(node.meta()), Box::new(node.facts(&intern)));
        let config = watcher::Config::default().page_size(PAGE);
        self.run(Kind::Node, api, config, seen, Seen::NodeGone).await;
    }

    /// Watches the Plans of the namespace, from the beginning each time that `again` says so.
    pub async fn plans(self, mut again: watch::Receiver<()>) {
        let api = Api::<RawPlan>::namespaced(self.client.clone(), &self.namespace);
        let seen = |plan: &RawPlan| Seen::Plan(version(plan.meta()), Box::new(plan.clone().facts()));
        let config = watcher::Config::default().page_size(PAGE);
        loop {
            self.tell(Seen::PlansAgain).await;
            tokio::select! {
                biased;
                () = self.run(Kind::Plan, api.clone(), config.clone(), seen, Seen::PlanGone) => return,
                asked = again.changed() => if asked.is_err() { return },
            }
        }
    }

    /// Watches the metadata of the namespace's Secrets: which there are, and when one changes.
    pub async fn secrets(self) {
        let api = Api::<PartialObjectMeta<Secret>>::namespaced(self.client.clone(), &self.namespace);
        let seen = |secret: &PartialObjectMeta<Secret>| {
            Seen::Secret(version(secret.meta()), secret.name_any().as_str().into())
        };
        let config = watcher::Config::default().page_size(PAGE);
        self.run(Kind::Secret, api, config, seen, |name, _| Seen::SecretGone(name))
            .await;
    }

    /// Watches the definition of the Plan itself, and says in `defined` that something is known of it.
    pub async fn schema(self, defined: watch::Sender<bool>) {
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        let name = format!("metadata.name=plans.{}", names::GROUP);
        let config = watcher::Config::default().fields(&name);
        let mut stream = watcher(api, config).backoff(Steady::default()).boxed();
        let mut found = false;
        let nowhere = || (Schema::Outdated(NOT_THERE.to_owned()), "".into());
        loop {
            let (schema, edition) = match stream.next().await {
                Some(Ok(watcher::Event::Init)) => {
                    found = false;
                    continue;
                }
                Some(Ok(watcher::Event::InitApply(crd) | watcher::Event::Apply(crd))) => {
                    found = true;
                    (served(&crd), edition(&crd))
                }
                Some(Ok(watcher::Event::InitDone)) if found => continue,
                Some(Ok(watcher::Event::InitDone | watcher::Event::Delete(_))) => nowhere(),
                Some(Err(error)) => {
                    tracing::warn!(
                        error = watch_error(&error),
                        "cannot watch the CustomResourceDefinition"
                    );
                    // Who may not look at it learns from refused writes what it lacks.
                    if !is_forbidden(&error) || *defined.borrow() {
                        continue;
                    }
                    (Schema::Current, "".into())
                }
                None => return,
            };
            self.tell(Seen::Schema(schema, edition)).await;
            defined.send_replace(true);
        }
    }

    async fn tell(&self, seen: Seen) {
        // Nobody listens any more: the loop has ended, and so will this task.
        let _ = self.seen.send(seen).await;
    }

    async fn run<K>(
        &self,
        kind: Kind,
        api: Api<K>,
        config: watcher::Config,
        seen: impl Fn(&K) -> Seen,
        gone: impl Fn(Text, Text) -> Seen,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut stream = watcher(api, config).backoff(Steady::default()).boxed();
        loop {
            match stream.try_next().await {
                Ok(Some(watcher::Event::Init)) => self.tell(Seen::ListBegins(kind)).await,
                Ok(Some(watcher::Event::InitDone)) => self.tell(Seen::ListEnds(kind)).await,
                Ok(Some(watcher::Event::InitApply(object) | watcher::Event::Apply(object))) => {
                    self.tell(seen(&object)).await;
                }
                Ok(Some(watcher::Event::Delete(object))) => {
                    let text = |text: Option<&str>| text.unwrap_or_default().into();
                    let meta = object.meta();
                    self.tell(gone(text(meta.name.as_deref()), text(meta.uid.as_deref())))
                        .await;
                }
                Ok(None) => return,
                Err(error) => {
                    let why = watch_error(&error);
                    tracing::warn!(?kind, error = why, "the watch broke off and starts again");
                    if is_forbidden(&error) {
                        self.tell(Seen::Forbidden(kind)).await;
                    }
                }
            }
        }
    }
}

/// What a CRD lacks that is not there, not there yet, or about to go.
const NOT_THERE: &str = "the definition itself";

fn served(definition: &CustomResourceDefinition) -> Schema {
    let conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let is_served = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
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

/// Each change of what a CRD asks for is another edition; one of its status is not.
fn edition(definition: &CustomResourceDefinition) -> Text {
    let meta = &definition.metadata;
    let (uid, generation) = (
        meta.uid.as_deref().unwrap_or_default(),
        meta.generation.unwrap_or_default(),
    );
    format!("{uid}/{generation}").as_str().into()
}

/// The API server's own words, without the status behind them.
fn watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => brief(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            matches!(error, kube::Error::Api(status) if status.is_forbidden())
        }
        watcher::Error::WatchError(status) => status.is_forbidden(),
        watcher::Error::NoResourceVersion => false,
    }
}

/// The watcher's own back-off, without its reset at the beginning of each try: that is what keeps a list which fails
/// again and again from being asked for without a pause. It starts afresh by itself after two quiet minutes.
#[derive(Default)]
struct Steady(watcher::DefaultBackoff);

impl Iterator for Steady {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }
}

impl kube::runtime::utils::Backoff for Steady {
    fn reset(&mut self) {}
}
