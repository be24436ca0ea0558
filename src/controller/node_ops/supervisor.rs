//! What is known of the objects and their Plans, and what follows from it, one object after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::status;
use super::traces::{missing_is_fine, skipped_because};
use super::{NodeOps, Observed, PAUSE, child};
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_api::{Plan, names};
use refit_cluster::kube::read::get_metadata;
use refit_cluster::kube::{Answer, brief};
use refit_facts::objects::node_op::{AnyOp, OpKind};
use refit_facts::objects::version;
use refit_facts::store::{Change, Entry, Store};

/// The owner of the fields of Plans that are made here.
const MANAGER: &str = "refit-node-ops";

/// How long a Plan that is being deleted stays for labels that arrive late, because its deletion was not seen when a
/// node became done: the time of a request ([`REQUEST_TIMEOUT`](refit_cluster::kube::client::REQUEST_TIMEOUT)), and the delay
/// of the watch.
const LATE: Duration = Duration::from_secs(20);
/// Nodes that are read one by one. A list costs less for more.
const MAX_READ: usize = 8;

/// A Plan that is made here.
#[derive(Clone, Copy)]
struct Child<'a>(&'a Plan);

/// What was read of the nodes of such a Plan.
#[derive(Default)]
struct NodesRead {
    /// UID of the Plan.
    plan: Option<String>,
    /// At which counts. `None` if what was read did not agree with them.
    seen: Option<Counts>,
    /// The nodes that had a slot then. One of them that has none any more may be done, whatever the counts.
    had_slot: BTreeSet<String>,
    done: Vec<String>,
    skipped: BTreeMap<String, String>,
    /// Set when the deletion of the Plan is seen.
    stays_until: Option<Instant>,
}

/// Nodes that are done and skipped, and the hash.
type Counts = (i64, i64, Option<String>);

impl<'a> Child<'a> {
    fn name(self) -> &'a str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    fn is_being_deleted(self) -> bool {
        self.0.metadata.deletion_timestamp.is_some()
    }

    fn annotation(self, key: &str) -> Option<&'a str> {
        Some(self.0.metadata.annotations.as_ref()?.get(key)?)
    }

    fn label(self) -> String {
        names::plan_label(self.name())
    }

    fn may_have_skipped(self) -> bool {
        self.0.spec.preflight.is_some() || self.counts().1 > 0
    }

    fn with_slot(self) -> BTreeSet<String> {
        let slots = self.0.stored_status().slots();
        slots.map(|node| node.name.clone()).collect()
    }

    /// Whether a node may be labelled as done although the Plan is being deleted: one that was in progress then.
    fn may_get_labels(self) -> bool {
        self.0.stored_status().slots().any(|node| !node.is_failed())
    }

    fn counts(self) -> Counts {
        let counts = self.0.stored_status().nodes.unwrap_or_default();
        let hash = self.0.stored_status().latest_hash.clone();
        (counts.done, counts.skipped.unwrap_or_default(), hash)
    }
}

impl NodesRead {
    /// That of the Plan of an object, among those of all. It begins anew with another Plan.
    fn of<'a>(all: &'a mut BTreeMap<String, Self>, uid: &str, child: Child<'_>) -> &'a mut Self {
        let read = all.entry(uid.to_owned()).or_default();
        if read.plan != child.0.metadata.uid {
            *read = Self {
                plan: child.0.metadata.uid.clone(),
                ..Self::default()
            };
        }
        read
    }

    /// Notes whether a node is done or skipped.
    fn note(&mut self, node: ObjectMeta, child: Child<'_>, hash: &str) {
        let of = node.name.unwrap_or_default();
        let labels = node.labels.unwrap_or_default();
        let annotations = node.annotations.unwrap_or_default();
        if labels.get(&child.label()).is_some_and(|label| label == hash) {
            self.done.push(of);
        } else if let Some(why) = annotations
            .get(names::ANNOTATION_SKIP)
            .and_then(|skip| skipped_because(skip, child.name()))
        {
            self.skipped.insert(of, why);
        }
    }

    fn forget(&mut self, node: &str) {
        self.done.retain(|done| done != node);
        self.skipped.remove(node);
    }

    /// Whether the Plan counts as many nodes done as were read.
    fn agrees_with(&self, done: i64) -> bool {
        i64::try_from(self.done.len()) == Ok(done)
    }

    /// Nodes that `preflight` has skipped. The Plan counts those that people have skipped, too.
    fn skipped_count(&self) -> i64 {
        i64::try_from(self.skipped.len()).unwrap_or(i64::MAX)
    }
}

pub(super) struct Supervisor {
    front_end: NodeOps,
    /// Of each kind, by UID.
    ops: [Store<String, String, Box<AnyOp>>; OpKind::ALL.len()],
    /// By UID of the object.
    plans: Store<String, String, Box<Plan>>,
    /// By UID of the object.
    nodes: BTreeMap<String, NodesRead>,
    /// UIDs of objects that have to be looked at.
    due: BTreeSet<String>,
    /// UIDs of those that are looked at again after a pause.
    later: BTreeSet<String>,
    /// When that is over.
    pub(super) retry_at: Option<Instant>,
    /// Why objects were refused, by UID.
    refused: BTreeMap<String, String>,
}

impl Supervisor {
    pub(super) fn new(front_end: NodeOps) -> Self {
        Self {
            front_end,
            ops: Default::default(),
            plans: Store::default(),
            nodes: BTreeMap::new(),
            due: BTreeSet::new(),
            later: BTreeSet::new(),
            retry_at: None,
            refused: BTreeMap::new(),
        }
    }

    pub(super) fn retry(&mut self) {
        self.due.append(&mut self.later);
        self.retry_at = None;
    }

    pub(super) fn apply(&mut self, observed: Observed) {
        match observed {
            Observed::Op(kind, change) => {
                let changed = self.ops[kind as usize].apply(change.map(|op| Entry {
                    name: op.uid().to_owned(),
                    uid: op.uid().to_owned(),
                    version: version(&op.metadata),
                    object: op,
                }));
                self.due.extend(changed.into_iter().map(|(uid, _)| uid));
            }
            // The watch selects Plans with the label.
            Observed::Plan(Change::Object(plan)) if owner(&plan).is_none() => {}
            Observed::Plan(change) => {
                let changed = self.plans.apply(change.map(|plan| Entry {
                    name: owner(&plan).unwrap_or_default().to_owned(),
                    uid: plan.metadata.uid.clone().unwrap_or_default(),
                    version: version(&plan.metadata),
                    object: plan,
                }));
                self.due.extend(changed.into_iter().map(|(owner, _)| owner));
            }
        }
    }

    fn op(&self, uid: &str) -> Option<&AnyOp> {
        self.ops.iter().find_map(|ops| ops.get(uid)).map(|op| &**op)
    }

    fn child(&self, uid: &str) -> Option<Child<'_>> {
        self.plans.get(uid).map(|plan| Child(plan))
    }

    pub(super) async fn reconcile_all(&mut self) {
        // Before, an object whose Plan is not listed yet would get another one, and a Plan without its object would go.
        if !self.plans.was_listed() || !self.ops.iter().all(Store::was_listed) {
            return;
        }
        while let Some(uid) = self.due.pop_first() {
            if let Err(error) = self.reconcile(&uid).await {
                let object = self.op(&uid).map(AnyOp::title);
                tracing::warn!(object, error = brief(&error), "an object is tried again");
                self.look_again(&uid);
            }
        }
    }

    fn look_again(&mut self, uid: &str) {
        self.later.insert(uid.to_owned());
        self.retry_at.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    async fn reconcile(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(op) = self.op(uid).filter(|op| !op.is_being_deleted()) else {
            self.refused.remove(uid);
            return self.end(uid).await;
        };
        let child = self.child(uid);
        if child.is_some_and(Child::is_being_deleted) {
            return self.end(uid).await;
        }
        // One that has begun has had its Plan, here or with kairos-operator: nothing runs twice.
        let may_begin = child.is_some() || op.status.phase.is_empty();
        let mut refusal = child.and_then(|child| status::invalid(child.0.stored_status()));
        // Its digest tells what was applied, and not what another CustomResourceDefinition has left of it.
        let lacks_fields = child.is_some_and(|child| status::lacks_fields(child.0.stored_status()));
        if may_begin && (child.is_none() || child::follows_edits(op) || lacks_fields) {
            match child::plan(op, &self.front_end.namespace) {
                Ok(made) => {
                    let digest = made["metadata"]["annotations"][child::ANNOTATION_DIGEST].as_str();
                    let applied = child.map(|child| child.annotation(child::ANNOTATION_DIGEST));
                    if applied == Some(digest) {
                        if lacks_fields {
                            self.make(uid, &made).await?;
                        }
                    } else if child.is_none() || child::follows_edits(op) {
                        // The watch brings it.
                        return self.make(uid, &made).await;
                    }
                }
                Err(why) => refusal = Some(why),
            }
        }
        self.refuse(uid, refusal);
        self.read_nodes(uid).await?;
        self.report(uid).await
    }

    /// Creates the Plan of an object, or changes it.
    async fn make(&mut self, uid: &str, plan: &Value) -> Result<(), kube::Error> {
        let name = plan["metadata"]["name"].as_str().unwrap_or_default();
        // Without `force`, the apply is a conflict once a user has edited one of its fields in the Plan.
        let params = PatchParams::apply(MANAGER).force();
        let made = self
            .front_end
            .plans()
            .patch(name, &params, &Patch::Apply(plan))
            .await;
        if let Err(error) = &made
            && matches!(Answer::of(error), Answer::Invalid | Answer::Forbidden)
        {
            self.refuse(uid, Some(format!("its Plan is refused: {}", brief(error))));
        }
        made.map(drop)
    }

    /// Says once on the object why it does nothing.
    fn refuse(&mut self, uid: &str, why: Option<String>) {
        let Some(why) = why else {
            self.refused.remove(uid);
            return;
        };
        if self.refused.get(uid) != Some(&why)
            && let Some(op) = self.op(uid)
        {
            self.front_end.refuse(op, &shorten(&why, MAX_MESSAGE));
            self.refused.insert(uid.to_owned(), why);
        }
    }

    /// Reads which nodes are done, if that may have changed: those without a slot since the last time, or all if they
    /// are many.
    async fn read_nodes(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(child) = self.plans.get(uid).map(|plan| Child(plan)) else {
            return Ok(());
        };
        let read = NodesRead::of(&mut self.nodes, uid, child);
        let counts = child.counts();
        let (done, skipped, Some(hash)) = (counts.0, counts.1, counts.2.clone()) else {
            return Ok(());
        };
        let with_slot = child.with_slot();
        let freed: Vec<String> = read.had_slot.difference(&with_slot).cloned().collect();
        let is_seen = read.seen.as_ref() == Some(&counts) && freed.is_empty();
        if done + skipped == 0 || is_seen {
            read.had_slot = with_slot;
            return Ok(());
        }
        let is_known = match &read.seen {
            Some(seen) if seen.2 == counts.2 && freed.len() <= MAX_READ => {
                let by_people = seen.1 - read.skipped_count();
                let client = &self.front_end.client;
                for name in freed {
                    read.forget(&name);
                    if let Some(node) = get_metadata::<Node>(client, None, &name).await? {
                        read.note(node, child, &hash);
                    }
                }
                read.agrees_with(done) && by_people + read.skipped_count() == skipped
            }
            _ => false,
        };
        if !is_known {
            // A list for each node that becomes done would grow with the cluster.
            let selector = format!("{}={hash}", child.label());
            let nodes = self
                .front_end
                .list_nodes((skipped == 0).then_some(&*selector))
                .await?;
            (read.done, read.skipped) = (Vec::new(), BTreeMap::new());
            for node in nodes {
                read.note(node, child, &hash);
            }
        }
        read.seen = Some(counts).filter(|_| read.agrees_with(done));
        read.had_slot = with_slot;
        Ok(())
    }

    async fn report(&mut self, uid: &str) -> Result<(), kube::Error> {
        let (Some(op), Some(plan), Some(nodes)) = (self.op(uid), self.plans.get(uid), self.nodes.get(uid))
        else {
            return Ok(());
        };
        let now = self.front_end.clock.now();
        let next = status::next(op, plan, &nodes.done, &nodes.skipped, now);
        if next != op.status {
            self.front_end.write_status(op, &next).await?;
            let kind = op.kind as usize;
            self.ops[kind].alter(uid, |op| {
                op.status = next;
                true
            });
        }
        Ok(())
    }

    /// The object is gone, and its Plan goes too. Its labels leave the nodes.
    async fn end(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(child) = self.plans.get(uid).map(|plan| Child(plan)) else {
            self.nodes.remove(uid);
            return Ok(());
        };
        let metadata = &child.0.metadata;
        let plans = self.front_end.plans();
        if !child.is_being_deleted() {
            let params = DeleteParams::background().preconditions(Preconditions {
                uid: metadata.uid.clone(),
                ..Preconditions::default()
            });
            return missing_is_fine(plans.delete(child.name(), &params).await.map(drop));
        }
        let finalizers = metadata.finalizers.iter().flatten();
        let others: Vec<&String> = finalizers
            .clone()
            .filter(|one| *one != child::FINALIZER)
            .collect();
        if others.len() == finalizers.count() {
            return Ok(());
        }
        let read = NodesRead::of(&mut self.nodes, uid, child);
        let stays_until = *read.stays_until.get_or_insert_with(|| Instant::now() + LATE);
        if child.may_get_labels() && Instant::now() < stays_until {
            // The garbage collector would wait for the Plan, and its nodes are released already.
            self.front_end.delete_jobs(child.0).await?;
            self.look_again(uid);
            return Ok(());
        }
        self.front_end
            .remove_traces(child.name(), child.may_have_skipped())
            .await?;
        let patch = json!({ "metadata": {
            "finalizers": others, "resourceVersion": metadata.resource_version, "uid": metadata.uid,
        } });
        let patched = plans
            .patch_metadata(child.name(), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        missing_is_fine(patched.map(drop))
    }
}

/// UID of the object that a Plan is made for.
fn owner(plan: &Plan) -> Option<&str> {
    Some(plan.metadata.labels.as_ref()?.get(child::LABEL_OWNER)?)
}
