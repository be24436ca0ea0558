//! The work on one object: finalizer, Lease, drain, status, and the way back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;

use super::events::{MaintenanceEvent, event};
use super::lease::{LeaseError, NodeLease};
use super::status::{self, LEASE_LOST, MAX_LEASE_ERRORS};
use super::{FrontEnd, PAUSE, guard};
use refit_api::text::{MAX_MESSAGE, shorten_in_place};
use refit_api::{Holder, NodeMark, OpenEnum};
use refit_base::go::GoDuration;
use refit_cluster::drain::pods::{PodId, Rules};
use refit_cluster::drain::{DryRun, Event, Failure, NodeSelection, Options, PlanRun, Session};
use refit_cluster::kube::read::list_metadata;
use refit_cluster::kube::{Answer, brief};
use refit_facts::NodeFacts;
use refit_facts::objects::maintenance::{
    KIND, Maintenance, MaintenanceGroup, MaintenancePhase, MaintenanceStatus, PLURAL, VERSION,
};
use refit_facts::objects::{Intern, SlimNode};

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

/// What a worker is to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) object: Maintenance,
    /// Whether the node is its own, and not that of an older object.
    pub(super) is_owner: bool,
    /// Whether it may take the node, and otherwise why not; `None` before a decision.
    pub(super) grant: Option<Result<(), String>>,
}

/// When to look again.
enum Next {
    After(Duration),
    /// When the object changes.
    Changed,
    Over,
}

pub(super) struct Worker {
    front_end: FrontEnd,
    task: watch::Receiver<Task>,
    /// The status that was written last, which a watch may not have delivered yet.
    status: MaintenanceStatus,
    /// Whether this process has reported that the maintenance begins, succeeded, or failed.
    reported: Option<MaintenancePhase>,
    has_reported_end: bool,
}

type Pass = Result<Next, kube::Error>;

impl Worker {
    pub(super) fn new(front_end: FrontEnd, task: watch::Receiver<Task>) -> Self {
        let status = task.borrow().object.status.clone();
        let reported = status.phase.as_ref().and_then(OpenEnum::known);
        let reported = reported.filter(|phase| *phase != MaintenancePhase::Running);
        Self {
            front_end,
            task,
            status,
            reported,
            has_reported_end: false,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let pause = match self.pass().await {
                Ok(Next::Over) => return,
                Ok(Next::After(pause)) => Some(pause),
                Ok(Next::Changed) => None,
                Err(error) => {
                    let object = self.task.borrow().object.title();
                    tracing::warn!(object, error = brief(&error), "a maintenance is tried again");
                    Some(PAUSE)
                }
            };
            let pause = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.task.changed() => if changed.is_err() { return },
                () = pause => {}
            }
        }
    }

    fn client(&self) -> Client {
        self.front_end.client.clone()
    }

    fn api(&self, group: MaintenanceGroup) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: group.name().to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{}/{VERSION}", group.name()),
            kind: KIND.to_owned(),
            plural: PLURAL.to_owned(),
        };
        Api::all_with(self.client(), &resource)
    }

    async fn node(&self, name: &str) -> Result<Option<NodeFacts>, kube::Error> {
        let node = Api::<SlimNode>::all(self.client()).get_opt(name).await?;
        Ok(node.map(|node| node.facts(&Intern::default())))
    }

    fn emit(&self, kind: MaintenanceEvent, object: &Maintenance, node_uid: &str) {
        let event = event(kind, object, node_uid, self.front_end.clock.now());
        self.front_end.outbox.put(event);
    }

    async fn pass(&mut self) -> Pass {
        let Task { object, is_owner, .. } = self.task.borrow_and_update().clone();
        if object.is_being_deleted() {
            return self.end(&object).await;
        }
        if !has_finalizer(&object) {
            let finalizers = object.metadata.finalizers.iter().flatten().cloned();
            let finalizers: Vec<_> = finalizers.chain([FINALIZER.to_owned()]).collect();
            self.patch(&object, &json!({ "finalizers": finalizers })).await?;
            self.emit(MaintenanceEvent::Begun, &object, "");
        }
        if status::has_given_up(&self.status) {
            return Ok(Next::Changed);
        }
        let name = object.spec.node_name.clone();
        let Some(node) = self.node(&name).await? else {
            return self
                .fail(&object, format!("nodes {name:?} not found"), LOOK)
                .await;
        };
        if !is_owner {
            let why = format!("invalid nodeName, a NodeMaintenance for node {name} already exists");
            return self.fail(&object, why, LOOK).await;
        }
        if status::is_in(&self.status, MaintenancePhase::Failed) || self.status.phase.is_none() {
            let (pending, total) = (self.pending(&name).await, self.total(&name).await?);
            status::begin(&mut self.status, &pending, total);
            self.status.last_error = None;
            self.reported = None;
            self.write(&object).await?;
        }
        let has_taken = holds(&node, object.uid());
        if !has_taken && let Some(why) = self.blocker(&object, &node).await? {
            self.status.last_error = Some(why);
            self.write(&object).await?;
            return Ok(Next::After(PAUSE));
        }
        if let Err(error) = self.hold_lease(&object, &node).await {
            return self.record_lease_error(&object, error).await;
        }
        self.status.error_on_lease_count = 0;
        let is_drained =
            node.unschedulable && has_taken && status::is_in(&self.status, MaintenancePhase::Succeeded);
        if is_drained && self.pending(&name).await.is_empty() {
            self.write(&object).await?;
            return Ok(Next::After(LOOK));
        }
        let session = self.session(&object, Some(&node), DryRun::None, Arc::new(|_| {}));
        let (mut task, which, options) = (self.task.clone(), which(&name), options());
        let drained = tokio::select! {
            biased;
            // The decision restores the node at once, and no pod of it may be evicted any more.
            _ = task.wait_for(|task| task.object.is_being_deleted() || !task.is_owner) => {
                return Ok(Next::After(Duration::ZERO));
            }
            drained = session.drain(&which, &options) => drained,
        };
        match drained {
            Ok(()) => {
                status::succeed(&mut self.status);
                self.write(&object).await?;
                let phase = MaintenancePhase::Succeeded;
                if self.reported.replace(phase) != Some(phase) {
                    self.emit(MaintenanceEvent::Succeeded, &object, "");
                }
                Ok(Next::After(LOOK))
            }
            Err(Failure::Failed(why) | Failure::Stopped { message: why, .. }) => {
                let pending = self.pending(&name).await;
                status::fall_short(&mut self.status, &pending, why);
                self.reported = None;
                self.write(&object).await?;
                tracing::info!(object = object.title(), "Reconciling with fixed duration");
                Ok(Next::After(RETRY))
            }
        }
    }

    /// Why the node may not be taken. One that was taken stays so.
    async fn blocker(&self, object: &Maintenance, node: &NodeFacts) -> Result<Option<String>, kube::Error> {
        match &self.task.borrow().grant {
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
        match guard::blocker(&self.front_end.client, &object.spec.node_name).await {
            // Without the permission, there is no etcd of OpenShift to guard.
            Err(error) if matches!(Answer::of(&error), Answer::Forbidden | Answer::NotFound) => Ok(None),
            answer => answer,
        }
    }

    async fn hold_lease(&self, object: &Maintenance, node: &NodeFacts) -> Result<(), LeaseError> {
        let lease = NodeLease::new(self.client(), object.group, &node.name);
        lease.hold(&node.uid, &node.name, &self.front_end.clock).await
    }

    /// The Lease is another's, or cannot be written. Before the drain this is waited for; later, the fourth time in a
    /// row ends the maintenance.
    async fn record_lease_error(&mut self, object: &Maintenance, error: LeaseError) -> Pass {
        let has_begun = self.status.drain_progress > 0;
        let (why, is_held) = match error {
            LeaseError::Held(holder) => {
                let why = format!(
                    "can't update or invalidate the lease because it is held by different owner: {holder}"
                );
                (why, true)
            }
            LeaseError::Api(why) => (why, false),
        };
        // Before the drain nothing is lost by waiting.
        if has_begun {
            self.status.error_on_lease_count += 1;
        }
        let number = self.status.error_on_lease_count;
        self.status.last_error = Some(match (is_held, has_begun) {
            (false, _) => why,
            (true, false) => {
                format!("failed to obtain a lease that is not owned by us : {why} errorOnLeaseCount {number}")
            }
            (true, true) => format!(
                "failed to extend a lease that used to be owned by us, incrementing error on lease count: {why}, errorOnLeaseCount: {number}"
            ),
        });
        if number >= MAX_LEASE_ERRORS {
            self.status.phase = Some(MaintenancePhase::Failed.into());
            self.status.last_error = Some(LEASE_LOST.to_owned());
            self.emit(MaintenanceEvent::Failed, object, "");
            self.reported = Some(MaintenancePhase::Failed);
            self.write(object).await?;
            // The supervisor sees the status, and the node is restored.
            return Ok(Next::Changed);
        }
        self.status.phase = Some(MaintenancePhase::Running.into());
        self.write(object).await?;
        tracing::info!(object = object.title(), "Reconciling with exponential duration");
        Ok(Next::After(PAUSE))
    }

    async fn fail(&mut self, object: &Maintenance, why: String, again: Duration) -> Pass {
        self.status.phase = Some(MaintenancePhase::Failed.into());
        self.status.last_error = Some(why);
        self.write(object).await?;
        let phase = MaintenancePhase::Failed;
        if self.reported.replace(phase) != Some(phase) {
            self.emit(MaintenanceEvent::Failed, object, "");
        }
        Ok(Next::After(again))
    }

    /// The object is being deleted. The decision restores the node; what is left is to give back the Lease and the
    /// finalizer.
    async fn end(&mut self, object: &Maintenance) -> Pass {
        if !has_finalizer(object) {
            return Ok(Next::Over);
        }
        let name = &object.spec.node_name;
        let node = self.node(name).await?;
        if node.as_ref().is_some_and(|node| holds(node, object.uid())) {
            return Ok(Next::After(RESTORE_LOOK));
        }
        // Before the last patch: the supervisor ends this task when the object is gone.
        if !std::mem::replace(&mut self.has_reported_end, true) {
            let restored = node.filter(|node| !node.unschedulable);
            if let Some(node) = restored.filter(|_| status::is_in(&self.status, MaintenancePhase::Succeeded))
            {
                self.emit(MaintenanceEvent::Uncordoned, object, &node.uid);
            }
            self.emit(MaintenanceEvent::Removed, object, "");
        }
        // Before the finalizer goes: if the controller dies here, the next leader finds the object and repeats this.
        NodeLease::new(self.client(), object.group, name)
            .release()
            .await?;
        let finalizers = object.metadata.finalizers.iter().flatten();
        let left: Vec<_> = finalizers.filter(|it| *it != FINALIZER).cloned().collect();
        match self.patch(object, &json!({ "finalizers": left })).await {
            Err(error) if Answer::of(&error) == Answer::NotFound => {}
            answer => answer?,
        }
        Ok(Next::Over)
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
        if let Some(error) = &mut self.status.last_error {
            shorten_in_place(error, MAX_MESSAGE);
        }
        let stored = MaintenanceStatus {
            last_update: object.status.last_update.clone(),
            ..self.status.clone()
        };
        if stored == object.status {
            return Ok(());
        }
        self.status.last_update = Some(format!("{:.0}", self.front_end.clock.now()));
        let patch = Patch::Merge(status::patch(&self.status));
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
            clock: self.front_end.clock.clone(),
            plan,
            dry_run,
            report,
            changes: None,
            stop,
        }
    }

    /// The pods that a drain would evict now. None if they cannot be listed: the drain says why.
    async fn pending(&self, node: &str) -> Vec<PodId> {
        let object = self.task.borrow().object.clone();
        let found = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&found);
        let report = Arc::new(move |event| {
            if let Event::Evicting { pod } = event {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(pod);
            }
        });
        let session = self.session(&object, None, DryRun::Client, report);
        let _ = session.drain(&which(node), &options()).await;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *found)
    }

    /// Number of pods that are bound to the node.
    async fn total(&self, node: &str) -> Result<usize, kube::Error> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = list_metadata::<Pod>(&self.client(), None, on_node).await?;
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
