//! Node operations (`NodeOp` and `NodeOpUpgrade`, as of kairos-operator): a front end. Each object becomes a Plan in the namespace of
//! the controller, so that its order, limits, drains, reboots and proofs are those of Plans, and one decision sees both. What
//! the Plan does becomes the status of the object, in kairos-operator's words.
//!
//! The Plan has a finalizer: when the object goes, the labels of the Plan are taken off its nodes before it goes too.

mod child;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions,
};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::observe::Observer;
use super::outbox::Outbox;
use super::settings::{FrontEndName, Settings};
use crate::api::text::{MAX_MESSAGE, shorten};
use crate::api::{annotation, names};
use crate::clock::Clock;
use crate::kube::brief;
use crate::kube::objects::node_op::{
    AnyOp, GROUP, NodeOp, NodeOpUpgrade, OpKind, OpStatus, OwnedPlan, VERSION,
};
use crate::kube::watch::{Selection, Watch, WatchEvent, Watched};
use crate::rollout::Observation;
use status::Progress;

/// Objects per page of a list.
const PAGE: u32 = 100;
/// Nodes per page of a list of metadata.
const NODES_PER_PAGE: u32 = 500;
/// Capacity of the queue of changes.
const QUEUE: usize = 64;
/// Pause before objects are tried again whose requests have failed.
const PAUSE: Duration = Duration::from_secs(5);
/// The owner of the fields of Plans that are made here.
const MANAGER: &str = "refit-node-ops";
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
    observations: mpsc::Sender<Observation>,
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
            observations: observer.observations.clone(),
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
                    if error.is_forbidden() {
                        let _ = self.observations.send(Observation::Forbidden).await;
                    }
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

/// A Plan that is made here.
struct Child {
    plan: OwnedPlan,
    /// What was last read of its nodes, and at which counts.
    seen: Option<Counts>,
    done: Vec<String>,
    skipped: BTreeMap<String, String>,
}

/// Nodes that are done and skipped, and the hash.
type Counts = (i64, i64, Option<String>);

impl Child {
    fn name(&self) -> &str {
        self.plan.metadata.name.as_deref().unwrap_or_default()
    }

    fn is_being_deleted(&self) -> bool {
        self.plan.metadata.deletion_timestamp.is_some()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        Some(self.plan.metadata.annotations.as_ref()?.get(key)?)
    }

    fn label(&self) -> String {
        format!("{}{}", names::LABEL_PLAN_PREFIX, self.name())
    }

    fn counts(&self) -> Counts {
        let counts = self.plan.status.nodes.unwrap_or_default();
        let hash = self.plan.status.latest_hash.clone();
        (counts.done, counts.skipped.unwrap_or_default(), hash)
    }
}

struct Supervisor {
    front_end: NodeOps,
    /// By UID.
    objects: BTreeMap<String, AnyOp>,
    /// By UID of the object.
    children: BTreeMap<String, Child>,
    /// UIDs in the list that runs.
    listed: BTreeMap<Kind, BTreeSet<String>>,
    /// Kinds that were listed at least once, or do not exist.
    known: BTreeSet<Kind>,
    /// UIDs of objects that have to be looked at.
    due: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// Why objects were refused, by UID.
    refused: BTreeMap<String, String>,
}

impl Supervisor {
    fn new(front_end: NodeOps) -> Self {
        Self {
            front_end,
            objects: BTreeMap::new(),
            children: BTreeMap::new(),
            listed: BTreeMap::new(),
            known: BTreeSet::new(),
            due: BTreeSet::new(),
            failed: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }

    fn retry(&mut self) {
        self.due.append(&mut self.failed);
    }

    fn apply(&mut self, kind: Kind, change: Change) {
        match change {
            Change::ListStarted => {
                self.listed.insert(kind, BTreeSet::new());
            }
            Change::Object(Object::Op(op)) => {
                let uid = op.uid().to_owned();
                self.listed.entry(kind).and_modify(|listed| {
                    listed.insert(uid.clone());
                });
                self.due.insert(uid.clone());
                self.objects.insert(uid, *op);
            }
            Change::Object(Object::Plan(plan)) => {
                let uid = plan.metadata.uid.clone().unwrap_or_default();
                self.listed.entry(kind).and_modify(|listed| {
                    listed.insert(uid);
                });
                let labels = plan.metadata.labels.as_ref();
                let Some(owner) = labels.and_then(|all| all.get(child::LABEL_OWNER)).cloned() else {
                    return;
                };
                self.due.insert(owner.clone());
                let known = self.children.remove(&owner);
                let known = known.filter(|known| known.plan.metadata.uid == plan.metadata.uid);
                let child = match known {
                    Some(known) => Child { plan: *plan, ..known },
                    None => Child {
                        plan: *plan,
                        seen: None,
                        done: Vec::new(),
                        skipped: BTreeMap::new(),
                    },
                };
                self.children.insert(owner, child);
            }
            Change::Deleted(uid) => self.keep(kind, |one| one != uid),
            Change::ListFinished => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                self.keep(kind, |one| listed.contains(one));
                self.known.insert(kind);
            }
            Change::Unknown => {
                self.keep(kind, |_| false);
                self.known.insert(kind);
            }
        }
    }

    /// Forgets the objects of a kind that do not exist any more.
    fn keep(&mut self, kind: Kind, exists: impl Fn(&str) -> bool) {
        let due = &mut self.due;
        match kind {
            Kind::Op(of) => self.objects.retain(|uid, op| {
                let stays = op.kind != of || exists(uid);
                if !stays {
                    due.insert(uid.clone());
                }
                stays
            }),
            Kind::Plan => self.children.retain(|owner, child| {
                let stays = exists(child.plan.metadata.uid.as_deref().unwrap_or_default());
                if !stays {
                    due.insert(owner.clone());
                }
                stays
            }),
        }
    }

    async fn reconcile_all(&mut self) {
        // Before, an object whose Plan is not listed yet would get another one, and a Plan without its object would go.
        if self.known.len() < Kind::ALL.len() {
            return;
        }
        while let Some(uid) = self.due.pop_first() {
            if let Err(error) = self.reconcile(&uid).await {
                let object = self.objects.get(&uid).map(AnyOp::title);
                tracing::warn!(object, error = brief(&error), "an object is tried again");
                self.failed.insert(uid);
            }
        }
    }

    async fn reconcile(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(op) = self.objects.get(uid).filter(|op| !op.is_being_deleted()) else {
            self.refused.remove(uid);
            return self.end(uid).await;
        };
        let child = self.children.get(uid);
        if child.is_some_and(Child::is_being_deleted) {
            return self.end(uid).await;
        }
        // One that has begun has had its Plan, here or with kairos-operator: nothing runs twice.
        let may_begin = child.is_some() || op.status.phase.is_empty();
        if may_begin && (child.is_none() || child::follows_edits(op)) {
            match child::plan(op, &self.front_end.namespace) {
                Ok(made) => {
                    self.refused.remove(uid);
                    let digest = made["metadata"]["annotations"][child::ANNOTATION_DIGEST].as_str();
                    if child.is_none_or(|child| child.annotation(child::ANNOTATION_DIGEST) != digest) {
                        let name = made["metadata"]["name"].as_str().unwrap_or_default();
                        let params = PatchParams::apply(MANAGER).force();
                        let plans = self.front_end.plans();
                        plans.patch(name, &params, &Patch::Apply(&made)).await?;
                        // The watch brings it.
                        return Ok(());
                    }
                }
                Err(why) => {
                    if self.refused.get(uid) != Some(&why) {
                        self.front_end.refuse(op, &shorten(&why, MAX_MESSAGE));
                        self.refused.insert(uid.to_owned(), why);
                    }
                }
            }
        }
        if self.children.contains_key(uid) {
            self.read_nodes(uid).await?;
            self.report(uid).await?;
        }
        Ok(())
    }

    /// Reads which nodes are done, if their number has changed.
    async fn read_nodes(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(child) = self.children.get_mut(uid) else {
            return Ok(());
        };
        let counts = child.counts();
        let (done, skipped, Some(hash)) = (counts.0, counts.1, counts.2.clone()) else {
            return Ok(());
        };
        if done + skipped == 0 || child.seen.as_ref() == Some(&counts) {
            return Ok(());
        }
        let selector = format!("{}={hash}", child.label());
        let nodes = self
            .front_end
            .list_nodes((skipped == 0).then_some(&*selector))
            .await?;
        let label = child.label();
        let name = child.name().to_owned();
        (child.done, child.skipped) = (Vec::new(), BTreeMap::new());
        for node in nodes {
            let of = node.metadata.name.unwrap_or_default();
            let labels = node.metadata.labels.unwrap_or_default();
            let annotations = node.metadata.annotations.unwrap_or_default();
            if labels.get(&label) == Some(&hash) {
                child.done.push(of);
            } else if let Some(why) = annotations
                .get(names::ANNOTATION_SKIP)
                .and_then(|skip| skipped_because(skip, &name))
            {
                child.skipped.insert(of, why);
            }
        }
        child.seen = Some(counts);
        Ok(())
    }

    async fn report(&mut self, uid: &str) -> Result<(), kube::Error> {
        let (Some(op), Some(child)) = (self.objects.get_mut(uid), self.children.get(uid)) else {
            return Ok(());
        };
        let progress = Progress {
            status: &child.plan.status,
            generation: child.plan.metadata.generation,
            may_reboot: child.plan.spec.may_reboot(),
            has_preflight: child.plan.spec.preflight.is_some(),
            done: &child.done,
            skipped: &child.skipped,
        };
        let next = status::next(op, &progress, self.front_end.clock.now());
        if next != op.status {
            self.front_end.write_status(op, &next).await?;
            op.status = next;
        }
        Ok(())
    }

    /// The object is gone, and its Plan goes too. Its labels leave the nodes.
    async fn end(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(child) = self.children.get(uid) else {
            return Ok(());
        };
        let plans = self.front_end.plans();
        if !child.is_being_deleted() {
            let params = DeleteParams::background().preconditions(Preconditions {
                uid: child.plan.metadata.uid.clone(),
                ..Preconditions::default()
            });
            return missing_is_fine(plans.delete(child.name(), &params).await.map(drop));
        }
        let finalizers = child.plan.metadata.finalizers.iter().flatten();
        let others: Vec<&String> = finalizers
            .clone()
            .filter(|one| *one != child::FINALIZER)
            .collect();
        if others.len() == finalizers.count() {
            return Ok(());
        }
        let label = child.label();
        // A node that was skipped has an annotation, and no label.
        let selector = (child.counts().1 == 0).then_some(&*label);
        for node in self.front_end.list_nodes(selector).await? {
            if let Some(patch) = without_traces(&node.metadata, &label, child.name()) {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                let nodes = self.front_end.nodes();
                let patched = nodes
                    .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch))
                    .await;
                missing_is_fine(patched.map(drop))?;
            }
        }
        let metadata = &child.plan.metadata;
        let patch = json!({ "metadata": {
            "finalizers": others, "resourceVersion": metadata.resource_version, "uid": metadata.uid,
        } });
        let patched = plans
            .patch_metadata(child.name(), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        missing_is_fine(patched.map(drop))
    }
}

fn missing_is_fine(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result,
    }
}

/// Why `preflight` has skipped a node, by its annotation.
fn skipped_because(skip: &str, plan: &str) -> Option<String> {
    let mut entries = annotation::entries(skip).filter(|entry| entry.plan == plan);
    let author = entries.find_map(|entry| entry.author())?;
    let why = author.strip_prefix(annotation::BY_PREFLIGHT)?;
    Some(why.to_owned())
}

/// A patch that removes what a Plan has left on a node for those who look later.
fn without_traces(node: &ObjectMeta, label: &str, plan: &str) -> Option<Value> {
    let has_label = node
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(label));
    let skip = node
        .annotations
        .as_ref()
        .and_then(|all| all.get(names::ANNOTATION_SKIP));
    let others = skip.map(|skip| {
        let others = annotation::entries(skip).filter(|entry| entry.plan != plan);
        others.map(|entry| entry.text).collect::<Vec<_>>()
    });
    let is_skipped = skip.is_some_and(|skip| annotation::entries(skip).any(|entry| entry.plan == plan));
    if !has_label && !is_skipped {
        return None;
    }
    let mut metadata = json!({ "uid": node.uid });
    if has_label {
        metadata["labels"] = json!({ label: null });
    }
    if is_skipped {
        let left = others
            .filter(|others| !others.is_empty())
            .map(|others| others.join(", "));
        // Somebody else may write the annotation, whose entries must not be lost.
        metadata["resourceVersion"] = json!(node.resource_version);
        metadata["annotations"] = json!({ names::ANNOTATION_SKIP: left });
    }
    Some(json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests;
