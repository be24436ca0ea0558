//! Node operations (`NodeOp` and `NodeOpUpgrade`, as of kairos-operator): a front end. Each object becomes a Plan in the namespace of
//! the controller, so that its order, limits, drains, reboots and proofs are those of Plans, and one decision sees both. What
//! the Plan does becomes the status of the object, in kairos-operator's words.
//!
//! The Plan has a finalizer: when the object goes, the labels of the Plan are taken off its nodes before it goes too.

mod child;
mod status;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::observe::Observer;
use super::outbox::Outbox;
use super::settings::{FrontEndName, Settings};
use crate::clock::Clock;
use crate::kube::objects::node_op::{
    AnyOp, GROUP, NodeOp, NodeOpUpgrade, OpKind, OpStatus, OwnedPlan, VERSION,
};
use crate::kube::watch::{Selection, Watch, WatchEvent, Watched};
use supervisor::Supervisor;

/// Objects per page of a list.
const PAGE: u32 = 100;
/// Nodes per page of a list of metadata.
const NODES_PER_PAGE: u32 = 500;
/// Capacity of the queue of changes.
const QUEUE: usize = 64;
/// Pause before objects are tried again whose requests have failed.
const PAUSE: Duration = Duration::from_secs(5);
const COMPONENT: &str = "NodeOp";

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Op(OpKind),
    Plan,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Op(OpKind::Op), Self::Op(OpKind::Upgrade), Self::Plan];
}

enum Object {
    Op(Box<AnyOp>),
    Plan(Box<OwnedPlan>),
}

enum Change {
    ListStarted,
    ListFinished,
    Object(Object),
    /// By its UID.
    Deleted(String),
    /// The API server does not know the kind, so there are no objects.
    Unknown,
}

/// The front end.
#[derive(Clone)]
pub(super) struct NodeOps {
    client: Client,
    clock: Clock,
    outbox: Outbox,
    namespace: String,
    /// Notified when the resource versions of the server went back.
    restored: Arc<Notify>,
}

impl NodeOps {
    /// The front end, if the settings ask for it.
    pub(super) fn if_enabled(
        settings: &Settings,
        observer: &Observer,
        outbox: &Outbox,
        clock: &Clock,
    ) -> Option<Self> {
        let is_enabled = settings.enable.contains(&FrontEndName::Nodeops);
        is_enabled.then(|| Self {
            client: observer.client.clone(),
            clock: clock.clone(),
            outbox: outbox.clone(),
            namespace: settings.namespace.clone(),
            restored: Arc::clone(&observer.restored),
        })
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let (changes, mut queue) = mpsc::channel(QUEUE);
        let mut watches = JoinSet::new();
        let into_op = |op: AnyOp| Object::Op(Box::new(op));
        let [ops, upgrades, plans] = Kind::ALL;
        watches.spawn(
            self.clone()
                .watch(ops, changes.clone(), None, None, move |op: NodeOp| {
                    into_op(op.into())
                }),
        );
        watches.spawn(
            self.clone()
                .watch(upgrades, changes.clone(), None, None, move |op: NodeOpUpgrade| {
                    into_op(op.into())
                }),
        );
        let (namespace, labels) = (Some(self.namespace.clone()), Some(child::LABEL_OWNER.to_owned()));
        watches.spawn(
            self.clone()
                .watch(plans, changes, namespace, labels, |plan: OwnedPlan| {
                    Object::Plan(Box::new(plan))
                }),
        );
        let mut supervisor = Supervisor::new(self);
        loop {
            let retry = async {
                if supervisor.failed.is_empty() {
                    std::future::pending::<()>().await;
                } else {
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::select! {
                biased;
                change = queue.recv() => match change {
                    Some((kind, change)) => supervisor.apply(kind, change),
                    None => return,
                },
                () = retry => supervisor.retry(),
            }
            // What has arrived meanwhile is one change.
            while let Ok((kind, change)) = queue.try_recv() {
                supervisor.apply(kind, change);
            }
            supervisor.reconcile_all().await;
        }
    }

    async fn watch<K: Watched>(
        self,
        kind: Kind,
        changes: mpsc::Sender<(Kind, Change)>,
        namespace: Option<String>,
        labels: Option<String>,
        object: impl Fn(K) -> Object,
    ) {
        let selection = Selection {
            path: K::url_path(&(), namespace.as_deref()),
            labels,
            page: PAGE,
            ..Selection::default()
        };
        let mut watch = Watch::<K>::new(self.client.clone(), selection);
        loop {
            let change = match watch.next().await {
                WatchEvent::ListStarted => Change::ListStarted,
                WatchEvent::ListFinished => Change::ListFinished,
                WatchEvent::Object(read) => Change::Object(object(read)),
                WatchEvent::Deleted { uid, .. } => Change::Deleted(uid),
                WatchEvent::Watching => continue,
                WatchEvent::Unreadable(unreadable) => {
                    tracing::error!(
                        kind = K::kind(&()).as_ref(),
                        name = unreadable.name,
                        why = unreadable.why,
                        "an object cannot be read"
                    );
                    continue;
                }
                WatchEvent::VersionsReset => {
                    self.restored.notify_one();
                    return std::future::pending().await;
                }
                WatchEvent::Failed(error) if error.is_not_found() => Change::Unknown,
                WatchEvent::Failed(error) => {
                    tracing::warn!(
                        kind = K::kind(&()).as_ref(),
                        error = error.to_string(),
                        "the watch ended unexpectedly"
                    );
                    continue;
                }
            };
            if changes.send((kind, change)).await.is_err() {
                return;
            }
        }
    }

    fn plans(&self) -> Api<OwnedPlan> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The metadata of nodes.
    async fn list_nodes(&self, labels: Option<&str>) -> Result<Vec<PartialObjectMeta<Node>>, kube::Error> {
        let mut params = ListParams::default().limit(NODES_PER_PAGE);
        params.label_selector = labels.map(str::to_owned);
        let mut all = Vec::new();
        loop {
            let page = self.nodes().list_metadata(&params).await?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(all),
            }
        }
    }

    async fn write_status(&self, op: &AnyOp, status: &OpStatus) -> Result<(), kube::Error> {
        let resource = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: op.kind.name().to_owned(),
            plural: op.kind.plural().to_owned(),
        };
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), op.namespace(), &resource);
        // All of it: a merge patch would keep fields of nodes that are absent now. Another object of the name is another one's.
        let operations = serde_json::from_value(json!([
            { "op": "test", "path": "/metadata/uid", "value": op.uid() },
            { "op": "add", "path": "/status", "value": status },
        ]))
        .map_err(kube::Error::SerdeError)?;
        let patch = Patch::Json::<()>(operations);
        api.patch_status(op.name(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    fn refuse(&self, op: &AnyOp, why: &str) {
        tracing::error!(object = op.title(), why, "the object is refused");
        let now = self.clock.now();
        let about: String = op.name().chars().take(230).collect();
        self.outbox.put(Event {
            metadata: ObjectMeta {
                name: Some(format!("{about}.{:016x}", now.as_nanosecond())),
                namespace: Some(op.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(format!("{GROUP}/{VERSION}")),
                kind: Some(op.kind.name().to_owned()),
                namespace: Some(op.namespace().to_owned()),
                name: Some(op.name().to_owned()),
                uid: Some(op.uid().to_owned()),
                ..ObjectReference::default()
            },
            reason: Some("Refused".to_owned()),
            message: Some(why.to_owned()),
            type_: Some("Warning".to_owned()),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: None,
            }),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        });
    }
}

#[cfg(test)]
mod tests;
