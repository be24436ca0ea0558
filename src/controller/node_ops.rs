//! Node operations (`NodeOp` and `NodeOpUpgrade`, as of kairos-operator): a front end. Each object becomes a Plan in
//! the namespace of the controller, so that its order, limits, drains, reboots and proofs are those of Plans, and one
//! decision sees both. What the Plan does becomes the status of the object, in kairos-operator's words.
//!
//! The Plan has a finalizer: when the object goes, the labels of the Plan are taken off its nodes before it goes too.
//! While nodes were in progress, it stays a little for labels that arrive late, without its Jobs.

mod child;
mod status;
mod supervisor;
mod traces;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::engine::sleep_until;
use super::events::front_end_event;
use super::observe::{Observer, PAGE};
use super::outbox::Outbox;
use super::settings::{FrontEndName, Settings};
use super::watches::{News, Subject, Watches};
use refit_api::{ForeignReason, Plan};
use refit_cluster::clock::Clock;
use refit_cluster::kube::read::list_metadata;
use refit_cluster::kube::watch::Selection;
use refit_facts::Watched;
use refit_facts::objects::node_op::{AnyOp, GROUP, NodeOp, NodeOpUpgrade, OpKind, OpStatus, VERSION};
use refit_facts::store::Change;
use supervisor::Supervisor;

/// Capacity of the queue of changes.
const QUEUE: usize = 64;
/// Nodes per page of a list of metadata.
const NODES_PER_PAGE: u32 = 500;
/// Pause before objects are looked at again, such as those whose requests have failed.
const PAUSE: Duration = Duration::from_secs(5);
const COMPONENT: &str = "NodeOp";

/// What has happened to the objects of a kind.
enum Observed {
    Op(OpKind, Change<Box<AnyOp>>),
    Plan(Change<Box<Plan>>),
}

/// What the front end needs of the controller.
pub(super) struct NodeOps {
    client: Client,
    clock: Clock,
    outbox: Outbox,
    namespace: String,
    watches: Watches,
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
            client: observer.watches.client.clone(),
            clock: clock.clone(),
            outbox: outbox.clone(),
            namespace: settings.namespace.clone(),
            watches: observer.watches.clone(),
        })
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let (observed, mut queue) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        let ops = |change: Change<NodeOp>| Observed::Op(OpKind::Op, change.map(|op| Box::new(op.into())));
        let upgrades = |change: Change<NodeOpUpgrade>| {
            Observed::Op(OpKind::Upgrade, change.map(|op| Box::new(op.into())))
        };
        tasks.spawn(follow(self.watches.clone(), None, None, observed.clone(), ops));
        tasks.spawn(follow(
            self.watches.clone(),
            None,
            None,
            observed.clone(),
            upgrades,
        ));
        let plans = |change: Change<Plan>| Observed::Plan(change.map(Box::new));
        let (namespace, labels) = (Some(self.namespace.clone()), Some(child::LABEL_OWNER.to_owned()));
        tasks.spawn(follow(self.watches.clone(), namespace, labels, observed, plans));
        let mut supervisor = Supervisor::new(self);
        loop {
            tokio::select! {
                biased;
                observed = queue.recv() => match observed {
                    Some(observed) => supervisor.apply(observed),
                    None => return,
                },
                () = sleep_until(supervisor.retry_at) => supervisor.retry(),
            }
            // What has arrived meanwhile is one change.
            while let Ok(observed) = queue.try_recv() {
                supervisor.apply(observed);
            }
            supervisor.reconcile_all().await;
        }
    }

    fn plans(&self) -> Api<Plan> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The metadata of nodes.
    async fn list_nodes(&self, labels: Option<&str>) -> Result<Vec<ObjectMeta>, kube::Error> {
        let mut params = ListParams::default().limit(NODES_PER_PAGE);
        params.label_selector = labels.map(str::to_owned);
        list_metadata::<Node>(&self.client, None, params).await
    }

    async fn write_status(&self, op: &AnyOp, status: &OpStatus) -> Result<(), kube::Error> {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, op.kind.name());
        let resource = ApiResource::from_gvk_with_plural(&kind, op.kind.plural());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), op.namespace(), &resource);
        // All of it: a merge patch would keep fields of nodes that are absent now. Another object of the name is
        // another one's. `add` replaces a member that exists (RFC 6902, section 4.1).
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
        let regarding = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(op.kind.name().to_owned()),
            namespace: Some(op.namespace().to_owned()),
            name: Some(op.name().to_owned()),
            uid: Some(op.uid().to_owned()),
            ..ObjectReference::default()
        };
        let event = front_end_event(COMPONENT, regarding, ForeignReason::Refused, why, now);
        self.outbox.put(event);
    }
}

/// Sends what happens to the objects of a kind, in a namespace or in all.
async fn follow<K: Watched + Resource<DynamicType = ()>>(
    watches: Watches,
    namespace: Option<String>,
    labels: Option<String>,
    observed: mpsc::Sender<Observed>,
    message: impl Fn(Change<K>) -> Observed,
) {
    let all = Subject {
        selection: Selection {
            path: K::url_path(&(), namespace.as_deref()),
            labels,
            page: PAGE,
            ..Selection::default()
        },
        may_be_unknown: true,
        ..Subject::default()
    };
    let message = |news| match news {
        News::Change(change) => Some(message(change)),
        _ => None,
    };
    watches.follow(all, &observed, message).await;
}

#[cfg(test)]
mod tests;
