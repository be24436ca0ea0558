//! What is known of the objects and their Plans, and what follows from it, one object after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::status::{self, Progress};
use super::traces::{self, missing_is_fine, skipped_because};
use super::{Kind, NodeOps, Object, PAUSE, child};
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_api::{NodePhase, names};
use refit_cluster::kube::read::get_metadata;
use refit_cluster::kube::{Answer, brief};
use refit_facts::objects::node_op::{AnyOp, OwnedPlan};
use refit_rollout::Change;

/// The owner of the fields of Plans that are made here.
const MANAGER: &str = "refit-node-ops";

/// How long a Plan that is being deleted stays for labels that arrive late, because its deletion was not seen when a
/// node became done: the time of a request ([`REQUEST_TIMEOUT`](refit_cluster::kube::client::REQUEST_TIMEOUT)), and the delay
/// of the watch.
const LATE: Duration = Duration::from_secs(20);
/// Nodes that are read one by one. A list costs less for more.
const MAX_READ: usize = 8;

/// A Plan that is made here.
struct Child {
    plan: OwnedPlan,
    /// What was last read of its nodes, and at which counts. `None` if what was read did not agree with them.
    seen: Option<Counts>,
    /// The nodes that had a slot then. One of them that has none any more may be done, whatever the counts.
    had_slot: BTreeSet<String>,
    done: Vec<String>,
    skipped: BTreeMap<String, String>,
    /// Set when its deletion is seen.
    stays_until: Option<Instant>,
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
        traces::label(self.name())
    }

    fn may_have_skipped(&self) -> bool {
        self.plan.spec.preflight.is_some() || self.counts().1 > 0
    }

    fn with_slot(&self) -> BTreeSet<String> {
        let active = self.plan.status.active.iter().flatten();
        let with_slot = active.filter(|node| node.phase != NodePhase::Waiting);
        with_slot.map(|node| node.name.clone()).collect()
    }

    /// Notes whether a node is done or skipped.
    fn note(&mut self, node: ObjectMeta, hash: &str) {
        let of = node.name.unwrap_or_default();
        let labels = node.labels.unwrap_or_default();
        let annotations = node.annotations.unwrap_or_default();
        if labels.get(&self.label()).is_some_and(|label| label == hash) {
            self.done.push(of);
        } else if let Some(why) = annotations
            .get(names::ANNOTATION_SKIP)
            .and_then(|skip| skipped_because(skip, self.name()))
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

    /// Whether a node may be labelled as done although the Plan is being deleted: one that was in progress then.
    fn may_get_labels(&self) -> bool {
        let mut active = self.plan.status.active.iter().flatten();
        active.any(|node| node.phase != NodePhase::Waiting && node.phase != NodePhase::Failed)
    }

    fn counts(&self) -> Counts {
        let counts = self.plan.status.nodes.unwrap_or_default();
        let hash = self.plan.status.latest_hash.clone();
        (counts.done, counts.skipped.unwrap_or_default(), hash)
    }
}

pub(super) struct Supervisor {
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
            objects: BTreeMap::new(),
            children: BTreeMap::new(),
            listed: BTreeMap::new(),
            known: BTreeSet::new(),
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

    pub(super) fn apply(&mut self, kind: Kind, change: Change<Object>) {
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
                        had_slot: BTreeSet::new(),
                        done: Vec::new(),
                        skipped: BTreeMap::new(),
                        stays_until: None,
                    },
                };
                self.children.insert(owner, child);
            }
            Change::Deleted { uid, .. } => self.keep(kind, |one| one != uid),
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

    pub(super) async fn reconcile_all(&mut self) {
        // Before, an object whose Plan is not listed yet would get another one, and a Plan without its object would go.
        if self.known.len() < Kind::ALL.len() {
            return;
        }
        while let Some(uid) = self.due.pop_first() {
            if let Err(error) = self.reconcile(&uid).await {
                let object = self.objects.get(&uid).map(AnyOp::title);
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
        let mut refusal = child.and_then(|child| status::invalid(&child.plan.status));
        // Its digest tells what was applied, and not what another CustomResourceDefinition has left of it.
        let lacks_fields = child.is_some_and(|child| status::lacks_fields(&child.plan.status));
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
            && let Some(op) = self.objects.get(uid)
        {
            self.front_end.refuse(op, &shorten(&why, MAX_MESSAGE));
            self.refused.insert(uid.to_owned(), why);
        }
    }

    /// Reads which nodes are done, if that may have changed: those without a slot since the last time, or all if they
    /// are many.
    async fn read_nodes(&mut self, uid: &str) -> Result<(), kube::Error> {
        let Some(child) = self.children.get_mut(uid) else {
            return Ok(());
        };
        let counts = child.counts();
        let (done, skipped, Some(hash)) = (counts.0, counts.1, counts.2.clone()) else {
            return Ok(());
        };
        let with_slot = child.with_slot();
        let freed: Vec<String> = child.had_slot.difference(&with_slot).cloned().collect();
        let is_seen = child.seen.as_ref() == Some(&counts) && freed.is_empty();
        if done + skipped == 0 || is_seen {
            child.had_slot = with_slot;
            return Ok(());
        }
        let is_known = match &child.seen {
            Some(seen) if seen.2 == counts.2 && freed.len() <= MAX_READ => {
                let by_people = seen.1 - child.skipped_count();
                let client = &self.front_end.client;
                for name in freed {
                    child.forget(&name);
                    if let Some(node) = get_metadata::<Node>(client, None, &name).await? {
                        child.note(node, &hash);
                    }
                }
                child.agrees_with(done) && by_people + child.skipped_count() == skipped
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
            (child.done, child.skipped) = (Vec::new(), BTreeMap::new());
            for node in nodes {
                child.note(node, &hash);
            }
        }
        child.seen = Some(counts).filter(|_| child.agrees_with(done));
        child.had_slot = with_slot;
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
        let Some(child) = self.children.get_mut(uid) else {
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
        let stays_until = *child.stays_until.get_or_insert_with(|| Instant::now() + LATE);
        if child.may_get_labels() && Instant::now() < stays_until {
            // The garbage collector would wait for the Plan, and its nodes are released already.
            self.front_end.delete_jobs(&child.plan).await?;
            self.look_again(uid);
            return Ok(());
        }
        self.front_end
            .remove_traces(child.name(), child.may_have_skipped())
            .await?;
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
