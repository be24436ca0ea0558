//! The work on one object: finalizer, Lease, drain, status, and the way back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::events::{MaintenanceEvent, event};
use super::guard;
use super::status::{self, LEASE_LOST};
use crate::act::Actor;
use crate::node_lease::{LeaseError, NodeLease};
use refit_api::text::{MAX_MESSAGE, shorten_in_place};
use refit_api::{Holder, NodeMark};
use refit_base::go::GoDuration;
use refit_cluster::drain::pods::{PodId, Rules};
use refit_cluster::drain::{DryRun, Event, NodeSelection, Options, PlanRun, Session};
use refit_cluster::kube::pages::on_node;
use refit_cluster::kube::read::list_metadata;
use refit_cluster::kube::{Answer, brief};
use refit_facts::NodeFacts;
use refit_facts::objects::maintenance::{
    KIND, MAX_LEASE_ERRORS, Maintenance, MaintenanceGroup, MaintenancePhase, MaintenanceStatus, PLURAL,
    VERSION,
};
use refit_facts::objects::{Intern, SlimNode};
use refit_rollout::{MaintenanceProgress, MaintenanceTask};

/// Finalizer of node-maintenance-operator.
const FINALIZER: &str = "foregroundDeleteNodeMaintenance";
/// Time limit of one drain. After it the next one begins.
const DRAIN_LIMIT: GoDuration = GoDuration::from_nanos(30_000_000_000);
/// Pause between two drains.
const RETRY: Duration = Duration::from_secs(5);
/// How often a drained node is looked at: pods that tolerate the cordon may have landed there, and a user may have
/// uncordoned it.
const LOOK: Duration = Duration::from_secs(30);
/// How often it is looked at whether the node has been restored.
const RESTORE_LOOK: Duration = Duration::from_millis(500);
/// Pause after an error of the API server that is not about the drain.
const PAUSE: Duration = Duration::from_secs(5);

/// A turn for one object.
struct Turn<'a> {
    actor: &'a Actor,
    task: MaintenanceTask,
    progress: MaintenanceProgress,
    /// Completes when the object does not want its node any more.
    stopped: oneshot::Receiver<()>,
}

/// After which time to look again; otherwise when the object changes.
type TurnResult = Result<Option<Duration>, kube::Error>;

impl Actor {
    /// Does for an object what can be done now. Returns what was written, and when to look again if nothing changes before.
    pub(crate) async fn maintain(
        &self,
        task: MaintenanceTask,
        progress: MaintenanceProgress,
        stopped: oneshot::Receiver<()>,
    ) -> (MaintenanceProgress, Option<Timestamp>) {
        let mut turn = Turn {
            actor: self,
            task,
            progress,
            stopped,
        };
        let pause = turn.take().await.unwrap_or_else(|error| {
            let object = turn.task.object.title();
            tracing::warn!(object, error = brief(&error), "a maintenance is tried again");
            Some(PAUSE)
        });
        let again = pause.map(|pause| self.clock.now().saturating_add(pause).unwrap_or(Timestamp::MAX));
        (turn.progress, again)
    }
}

impl Turn<'_> {
    fn client(&self) -> Client {
        self.actor.client.clone()
    }

    fn api(&self, group: MaintenanceGroup) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group.name(), VERSION, KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
        Api::all_with(self.client(), &resource)
    }

    async fn node(&self, name: &str) -> Result<Option<NodeFacts>, kube::Error> {
        let node = Api::<SlimNode>::all(self.client()).get_opt(name).await?;
        Ok(node.map(|node| node.facts(&Intern::default())))
    }

    fn emit(&self, kind: MaintenanceEvent, object: &Maintenance, node_uid: &str) {
        let event = event(kind, object, node_uid, self.actor.clock.now());
        self.actor.outbox.put(event);
    }

    async fn take(&mut self) -> TurnResult {
        let MaintenanceTask { object, is_owner, .. } = self.task.clone();
        if object.is_being_deleted() {
            return self.end(&object).await;
        }
        if !has_finalizer(&object) {
            let finalizers = object.metadata.finalizers.iter().flatten().cloned();
            let finalizers: Vec<_> = finalizers.chain([FINALIZER.to_owned()]).collect();
            self.patch(&object, &json!({ "finalizers": finalizers })).await?;
            self.emit(MaintenanceEvent::Begun, &object, "");
        }
        if self.progress.status.has_given_up() {
            return Ok(None);
        }
        let name = object.spec.node_name.clone();
        let Some(node) = self.node(&name).await? else {
            return self.fail(&object, format!("nodes {name:?} not found")).await;
        };
        if !is_owner {
            let why = format!("invalid nodeName, a NodeMaintenance for node {name} already exists");
            return self.fail(&object, why).await;
        }
        if self.progress.status.is_in(MaintenancePhase::Failed) || self.progress.status.phase.is_none() {
            let (pending, total) = (self.pending(&name).await, self.total(&name).await?);
            status::begin(&mut self.progress.status, &pending, total);
            self.progress.status.last_error = None;
            self.progress.reported = None;
            self.write(&object).await?;
        }
        let has_taken = holds(&node, object.uid());
        if !has_taken && let Some(why) = self.blocker(&object, &node).await? {
            self.progress.status.last_error = Some(why);
            self.write(&object).await?;
            return Ok(Some(PAUSE));
        }
        if let Err(error) = self.hold_lease(&object, &node).await {
            return self.record_lease_error(&object, error).await;
        }
        self.progress.status.error_on_lease_count = 0;
        let is_drained =
            node.unschedulable && has_taken && self.progress.status.is_in(MaintenancePhase::Succeeded);
        if is_drained && self.pending(&name).await.is_empty() {
            self.write(&object).await?;
            return Ok(Some(LOOK));
        }
        let session = self.session(&object, Some(&node), DryRun::None, Arc::new(|_| {}));
        let (which, options) = (which(&name), options());
        let drained = tokio::select! {
            biased;
            // The decision restores the node at once, and no pod of it may be evicted any more.
            _ = &mut self.stopped => return Ok(None),
            drained = session.drain(&which, &options) => drained,
        };
        match drained {
            Ok(()) => {
                status::succeed(&mut self.progress.status);
                self.write(&object).await?;
                let phase = MaintenancePhase::Succeeded;
                if self.progress.reported.replace(phase) != Some(phase) {
                    self.emit(MaintenanceEvent::Succeeded, &object, "");
                }
                Ok(Some(LOOK))
            }
            Err(failure) => {
                let pending = self.pending(&name).await;
                status::fall_short(&mut self.progress.status, &pending, failure.message);
                self.progress.reported = None;
                self.write(&object).await?;
                tracing::info!(object = object.title(), "Reconciling with fixed duration");
                Ok(Some(RETRY))
            }
        }
    }

    /// Why the node may not be taken. One that was taken stays so.
    async fn blocker(&self, object: &Maintenance, node: &NodeFacts) -> Result<Option<String>, kube::Error> {
        match &self.task.grant {
            Some(Ok(())) => {}
            Some(Err(why)) => return Ok(Some(why.clone())),
            None => {
                return Ok(Some(
                    "it is being decided whether the node may be taken".to_owned(),
                ));
            }
        }
        if !node.is_control_plane() {
            return Ok(None);
        }
        match guard::blocker(&self.actor.client, &object.spec.node_name).await {
            // Without the permission, there is no etcd of OpenShift to guard.
            Err(error) if matches!(Answer::of(&error), Answer::Forbidden | Answer::NotFound) => Ok(None),
            answer => answer,
        }
    }

    async fn hold_lease(&self, object: &Maintenance, node: &NodeFacts) -> Result<(), LeaseError> {
        let lease = NodeLease::of_maintenance(self.client(), object.group, &node.name);
        lease.hold(&node.uid, &node.name, &self.actor.clock).await
    }

    /// The Lease is another's, or cannot be written. Before the drain this is waited for; later, the fourth time in a
    /// row ends the maintenance.
    async fn record_lease_error(&mut self, object: &Maintenance, error: LeaseError) -> TurnResult {
        let has_begun = self.progress.status.drain_progress > 0;
        let (why, is_held) = match error {
            LeaseError::Held(holder) => {
                let why = format!(
                    "can't update or invalidate the lease because it is held by different owner: {}",
                    holder.name
                );
                (why, true)
            }
            LeaseError::Api(error) => (brief(&error), false),
        };
        // Before the drain nothing is lost by waiting.
        if has_begun {
            self.progress.status.error_on_lease_count += 1;
        }
        let number = self.progress.status.error_on_lease_count;
        self.progress.status.last_error = Some(match (is_held, has_begun) {
            (false, _) => why,
            (true, false) => {
                format!("failed to obtain a lease that is not owned by us : {why} errorOnLeaseCount {number}")
            }
            (true, true) => format!(
                "failed to extend a lease that used to be owned by us, incrementing error on lease count: {why}, errorOnLeaseCount: {number}"
            ),
        });
        if number >= MAX_LEASE_ERRORS {
            self.progress.status.phase = Some(MaintenancePhase::Failed.into());
            self.progress.status.last_error = Some(LEASE_LOST.to_owned());
            self.emit(MaintenanceEvent::Failed, object, "");
            self.progress.reported = Some(MaintenancePhase::Failed);
            self.write(object).await?;
            // The supervisor sees the status, and the node is restored.
            return Ok(None);
        }
        self.progress.status.phase = Some(MaintenancePhase::Running.into());
        self.write(object).await?;
        tracing::info!(object = object.title(), "Reconciling with exponential duration");
        Ok(Some(PAUSE))
    }

    async fn fail(&mut self, object: &Maintenance, why: String) -> TurnResult {
        self.progress.status.phase = Some(MaintenancePhase::Failed.into());
        self.progress.status.last_error = Some(why);
        self.write(object).await?;
        let phase = MaintenancePhase::Failed;
        if self.progress.reported.replace(phase) != Some(phase) {
            self.emit(MaintenanceEvent::Failed, object, "");
        }
        Ok(Some(LOOK))
    }

    /// The object is being deleted. The decision restores the node; what is left is to give back the Lease and the
    /// finalizer.
    async fn end(&mut self, object: &Maintenance) -> TurnResult {
        if !has_finalizer(object) {
            return Ok(None);
        }
        let name = &object.spec.node_name;
        let node = self.node(name).await?;
        if node.as_ref().is_some_and(|node| holds(node, object.uid())) {
            return Ok(Some(RESTORE_LOOK));
        }
        // Before the last patch: the supervisor ends this task when the object is gone.
        if !std::mem::replace(&mut self.progress.has_reported_end, true) {
            let restored = node.filter(|node| !node.unschedulable);
            if let Some(node) = restored.filter(|_| self.progress.status.is_in(MaintenancePhase::Succeeded)) {
                self.emit(MaintenanceEvent::Uncordoned, object, &node.uid);
            }
            self.emit(MaintenanceEvent::Removed, object, "");
        }
        // Before the finalizer goes: if the controller dies here, the next leader finds the object and repeats this.
        NodeLease::of_maintenance(self.client(), object.group, name)
            .release()
            .await?;
        let finalizers = object.metadata.finalizers.iter().flatten();
        let left: Vec<_> = finalizers.filter(|it| *it != FINALIZER).cloned().collect();
        match self.patch(object, &json!({ "finalizers": left })).await {
            Err(error) if Answer::of(&error) == Answer::NotFound => {}
            answer => answer?,
        }
        Ok(None)
    }

    /// Patches the metadata of the object, at the version that was read.
    /// A merge patch replaces the whole list of finalizers, and must not remove one that another client has added.
    async fn patch(&self, object: &Maintenance, metadata: &serde_json::Value) -> Result<(), kube::Error> {
        let mut metadata = metadata.clone();
        metadata["uid"] = json!(object.uid());
        metadata["resourceVersion"] = json!(object.metadata.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = self.api(object.group);
        api.patch(object.name(), &PatchParams::default(), &patch)
            .await
            .map(drop)
    }

    /// Writes the status, unless it is stored.
    async fn write(&mut self, object: &Maintenance) -> Result<(), kube::Error> {
        if let Some(error) = &mut self.progress.status.last_error {
            shorten_in_place(error, MAX_MESSAGE);
        }
        let stored = MaintenanceStatus {
            last_update: object.status.last_update.clone(),
            ..self.progress.status.clone()
        };
        if stored == object.status {
            return Ok(());
        }
        self.progress.status.last_update = Some(format!("{:.0}", self.actor.clock.now()));
        let patch = Patch::Merge(status::patch(&self.progress.status));
        let api = self.api(object.group);
        match api
            .patch_status(object.name(), &PatchParams::default(), &patch)
            .await
        {
            // It has been deleted.
            Err(error) if Answer::of(&error) == Answer::NotFound => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn session(
        &self,
        object: &Maintenance,
        node: Option<&NodeFacts>,
        dry_run: DryRun,
        report: Arc<dyn Fn(Event) + Send + Sync>,
    ) -> Session {
        let drain = match object.group {
            MaintenanceGroup::Medik8s => NodeMark::MedikDrain,
            MaintenanceGroup::Kubevirt => NodeMark::KubevirtDrain,
        };
        let mut marks = vec![drain, NodeMark::Unschedulable];
        if object.group == MaintenanceGroup::Medik8s {
            marks.push(NodeMark::ExcludeFromRemediation);
        }
        let plan = node.map(|node| PlanRun {
            holder: Holder {
                namespace: String::new(),
                controller: object.group.name().to_owned(),
                plan: object.title(),
                plan_uid: object.uid().into(),
                cancelled: false,
                completed: false,
                evicted: Vec::new(),
            },
            node_uid: node.uid.clone(),
            pod: None,
            notes_workloads: false,
            marks,
        });
        // Dropped with the task: nothing stops a session but the end of its worker.
        let (_, stop) = watch::channel(None);
        Session {
            client: self.client(),
            clock: self.actor.clock.clone(),
            plan,
            dry_run,
            report,
            changes: None,
            stop,
        }
    }

    /// The pods that a drain would evict now. None if they cannot be listed: the drain says why.
    async fn pending(&self, node: &str) -> Vec<PodId> {
        let object = &self.task.object;
        let found = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&found);
        let report = Arc::new(move |event| {
            if let Event::Evicting { pod } = event {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(pod);
            }
        });
        let session = self.session(object, None, DryRun::Client, report);
        let _ = session.drain(&which(node), &options()).await;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *found)
    }

    /// Number of pods that are bound to the node.
    async fn total(&self, node: &str) -> Result<usize, kube::Error> {
        let pods = list_metadata::<Pod>(&self.client(), None, on_node(node)).await?;
        Ok(pods.len())
    }
}

fn has_finalizer(object: &Maintenance) -> bool {
    let mut finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.any(|it| it == FINALIZER)
}

/// Whether the object is in the ledger of the node.
fn holds(node: &NodeFacts, uid: &str) -> bool {
    let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
    holders.any(|holder| *holder.plan_uid == *uid)
}

fn which(node: &str) -> NodeSelection {
    NodeSelection::Names(vec![node.to_owned()])
}

/// Those of node-maintenance-operator.
fn options() -> Options {
    Options {
        rules: Rules {
            ignore_daemon_sets: true,
            delete_empty_dir_data: true,
            force: true,
            skip_wait_for_delete: 0,
        },
        timeout: Some(DRAIN_LIMIT),
        chunk_size: 500,
        ..Options::default()
    }
}
