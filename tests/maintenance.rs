//! `NodeMaintenance` on a real API server: drain, status, Lease, taints, and the way back; beside Plans, and through kills.

pub(crate) mod admission;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Harness, apply_component, is_cordoned, is_free, ledger};
use crate::steering::UserCli;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::{Controller, Setup};
use crate::testenv::wait::{self, SOON};

pub(crate) const MEDIK: &str = "nodemaintenance.medik8s.io";
const KUBEVIRT: &str = "nodemaintenance.kubevirt.io";
const EXCLUDE: &str = "remediation.medik8s.io/exclude-from-remediation";

/// A context of its own, whose controller handles `NodeMaintenance`.
struct Maintenances {
    harness: Harness,
}

impl Maintenances {
    async fn new<const N: usize>(nodes: [&str; N]) -> Self {
        let ctx = TestContext::alone().await;
        let harness = Harness::on(ctx, nodes, crate::harness::held).await;
        apply_overlay(&harness.ctx).await;
        Self { harness }
    }

    fn api(&self, group: &str) -> Api<DynamicObject> {
        api(&self.harness.ctx, group)
    }

    fn setup(&self) -> Setup {
        self.harness.ctx.controller().env("REFIT_ENABLE", "maintenance")
    }

    fn start(&self) -> Controller {
        self.setup().start()
    }

    fn object(&self, group: &str, name: &str, node: &str) -> DynamicObject {
        object(group, name, &self.harness.node(node))
    }

    async fn begin(&self, group: &str, name: &str, node: &str) {
        self.api(group)
            .create(&PostParams::default(), &self.object(group, name, node))
            .await
            .unwrap();
    }

    async fn get(&self, group: &str, name: &str) -> Value {
        let object = self.api(group).get(name).await.unwrap();
        serde_json::to_value(object).unwrap()
    }

    async fn status(&self, group: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let status = async || self.get(group, name).await["status"].clone();
        wait::until(what, status, holds).await
    }

    async fn succeeded(&self, group: &str, name: &str) -> Value {
        self.status(group, name, "it has succeeded", |status| {
            status["phase"] == "Succeeded"
        })
        .await
    }

    async fn end(&self, group: &str, name: &str) {
        self.api(group)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        let is_gone = async || self.api(group).get_opt(name).await.unwrap().is_none();
        wait::holds("the object is gone", is_gone).await;
    }

    fn leases(&self, namespace: &str) -> Api<Lease> {
        Api::namespaced(self.harness.ctx.client.clone(), namespace)
    }

    async fn events(&self, reason: &str) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.harness.ctx.client.clone(), "default");
        let of_reason = ListParams::default().fields(&format!("reason={reason}"));
        events.list(&of_reason).await.unwrap().items
    }

    /// A pod with a controller that runs until it is deleted.
    async fn pod(&self, name: &str, node: &str, labels: Value) {
        let pod = json!({
            "metadata": { "name": name, "labels": labels, "annotations": { "fake-kubelet/run-delay": "never" } },
            "spec": { "nodeName": self.harness.node(node), "containers": [{ "name": "main", "image": "example.com/main" }] },
        });
        create::<Pod>(&self.harness.ctx.pods(), pod).await;
    }

    async fn pods_on(&self, node: &str) -> Vec<String> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", self.harness.node(node)));
        let pods = self.harness.ctx.pods().list(&on_node).await.unwrap().items;
        pods.into_iter().filter_map(|pod| pod.metadata.name).collect()
    }
}

/// Applies the files of the components, for the namespace of this test, and waits until both kinds are served.
pub(crate) async fn apply_overlay(ctx: &TestContext) {
    let files = ["crds.yaml", "namespaces.yaml", "rbac.yaml", "admission.yaml"];
    apply_component(ctx, "maintenance", &files).await;
    apply_component(ctx, "maintenance-kubevirt", &files).await;
    for group in [MEDIK, KUBEVIRT] {
        let served = async || {
            let listed = api(ctx, group).list(&ListParams::default()).await;
            listed.map_err(|error| error.to_string())
        };
        wait::eventually("the kind is served", SOON, served).await;
    }
}

/// The objects of one of the two kinds.
pub(crate) fn api(ctx: &TestContext, group: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: group.to_owned(),
        version: "v1beta1".to_owned(),
        api_version: format!("{group}/v1beta1"),
        kind: "NodeMaintenance".to_owned(),
        plural: "nodemaintenances".to_owned(),
    };
    Api::all_with(ctx.client.clone(), &resource)
}

/// An object for a node by its full name.
pub(crate) fn object(group: &str, name: &str, node: &str) -> DynamicObject {
    let object = json!({
        "apiVersion": format!("{group}/v1beta1"), "kind": "NodeMaintenance", "metadata": { "name": name },
        "spec": { "nodeName": node, "reason": "a new disk" },
    });
    serde_json::from_value(object).unwrap()
}

/// The taints of a node: key, effect, and whether there is anything else.
fn taints(node: &Node) -> Vec<(String, String, bool)> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let more =
        |taint: &k8s_openapi::api::core::v1::Taint| taint.value.is_some() || taint.time_added.is_some();
    taints
        .map(|taint| (taint.key.clone(), taint.effect.clone(), more(taint)))
        .collect()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[tokio::test]
async fn a_node_in_maintenance_is_drained_and_is_as_before_when_the_object_goes() {
    let test = Maintenances::new(["one", "two"]).await;
    test.pod("web", "one", json!({})).await;
    let _controller = test.start();
    let began = test.harness.ctx.now();
    test.begin(MEDIK, "disk", "one").await;
    let status = test.succeeded(MEDIK, "disk").await;
    assert_eq!(status["drainProgress"], 100);
    assert_eq!(
        (&status["evictionPods"], &status["totalpods"]),
        (&json!(1), &json!(1))
    );
    assert!(
        status["pendingPods"].is_null() && status["lastError"].is_null(),
        "{status}"
    );
    assert!(
        status["lastUpdate"]
            .as_str()
            .unwrap()
            .parse::<Timestamp>()
            .is_ok()
    );
    assert_eq!(test.pods_on("one").await, [""; 0]);
    let object = test.get(MEDIK, "disk").await;
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["foregroundDeleteNodeMaintenance"])
    );

    let node = test.harness.get("one").await;
    assert!(is_cordoned(&node));
    assert_eq!(label(&node, EXCLUDE), Some("true"));
    let ours = ["medik8s.io/drain", "node.kubernetes.io/unschedulable"];
    let mut found = taints(&node);
    found.sort();
    let expected = ours.map(|key| (key.to_owned(), "NoSchedule".to_owned(), false));
    assert_eq!(found, expected, "without value and time");
    let lease = test
        .leases("medik8s-leases")
        .get(&format!("node-{}", test.harness.node("one")))
        .await;
    let lease = lease.unwrap();
    let owner = &lease.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), &Some(owner.uid.clone())),
        ("Node", &node.metadata.uid)
    );
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("node-maintenance"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(3600), Some(0))
    );
    assert!(spec.acquire_time.unwrap().0 >= began && spec.renew_time.unwrap().0 >= began);
    for reason in ["BeginMaintenance", "SucceedMaintenance"] {
        let events = wait::until(
            "the event is written",
            async || test.events(reason).await,
            |all| !all.is_empty(),
        )
        .await;
        assert_eq!(events.len(), 1, "{events:#?}");
        assert!(events[0].metadata.name.as_ref().unwrap().contains("disk"));
    }

    test.end(MEDIK, "disk").await;
    let node = test.harness.get("one").await;
    assert!(is_free(&node), "{node:#?}");
    assert_eq!((taints(&node), label(&node, EXCLUDE)), (Vec::new(), None));
    let (leases, name) = (
        test.leases("medik8s-leases"),
        format!("node-{}", test.harness.node("one")),
    );
    assert!(leases.get_opt(&name).await.unwrap().is_none());
    for reason in ["RemovedMaintenance", "UncordonNode"] {
        wait::until(
            "the event is written",
            async || test.events(reason).await,
            |all| all.len() == 1,
        )
        .await;
    }
}

#[tokio::test]
async fn the_older_object_has_its_own_taint_and_lease_and_a_node_that_was_cordoned_stays_so() {
    let test = Maintenances::new(["one"]).await;
    test.harness
        .ctx
        .edit_node(
            &test.harness.node("one"),
            json!({ "spec": { "unschedulable": true } }),
        )
        .await;
    let _controller = test.start();
    test.begin(KUBEVIRT, "disk", "one").await;
    test.succeeded(KUBEVIRT, "disk").await;
    let node = test.harness.get("one").await;
    let has = |key: &str| taints(&node).iter().any(|(of, ..)| of == key);
    assert!(has("kubevirt.io/drain") && !has("medik8s.io/drain"));
    assert_eq!(label(&node, EXCLUDE), None);
    let leases = test.leases("node-maintenance");
    let lease = leases.get(&test.harness.node("one")).await.unwrap();
    assert_eq!(
        lease.spec.unwrap().holder_identity.as_deref(),
        Some("node-maintenance")
    );
    test.end(KUBEVIRT, "disk").await;
    let node = test.harness.get("one").await;
    assert!(
        is_cordoned(&node) && ledger(&node).is_none(),
        "a person has cordoned it"
    );
    assert!(
        taints(&node)
            .iter()
            .all(|(key, ..)| key == "node.kubernetes.io/unschedulable")
    );
    let lease = leases.get(&test.harness.node("one")).await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity.unwrap_or_default(), "");
    assert_eq!((lease.renew_time, lease.lease_duration_seconds), (None, None));
}

#[tokio::test]
async fn a_budget_that_allows_nothing_is_named_and_waited_for() {
    let test = Maintenances::new(["one"]).await;
    test.pod("web", "one", json!({ "app": "web" })).await;
    let budget = json!({
        "metadata": { "name": "guard" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    let budgets = Api::<k8s_openapi::api::policy::v1::PodDisruptionBudget>::namespaced(
        test.harness.ctx.client.clone(),
        test.harness.ctx.namespace(),
    );
    create(&budgets, budget).await;
    let _controller = test.start();
    test.begin(MEDIK, "disk", "one").await;
    let status = test
        .status(MEDIK, "disk", "it names the budget", |status| {
            status["lastError"]
                .as_str()
                .unwrap_or_default()
                .contains("PodDisruptionBudget guard")
        })
        .await;
    assert_eq!(
        (&status["phase"], &status["pendingPods"]),
        (&json!("Running"), &json!(["web"]))
    );
    assert_eq!(
        status["pendingPodsRefs"][0]["namespace"],
        test.harness.ctx.namespace()
    );
    budgets.delete("guard", &DeleteParams::default()).await.unwrap();
    test.succeeded(MEDIK, "disk").await;
    test.end(MEDIK, "disk").await;
}

#[tokio::test]
async fn a_lease_of_another_is_respected_and_one_that_is_lost_ends_the_maintenance() {
    let test = Maintenances::new(["one"]).await;
    let leases = test.leases("medik8s-leases");
    let name = format!("node-{}", test.harness.node("one"));
    let foreign = |now: Timestamp| LeaseSpec {
        holder_identity: Some("NodeHealthCheck-x".to_owned()),
        lease_duration_seconds: Some(600),
        renew_time: Some(MicroTime(now)),
        acquire_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    };
    let lease = json!({ "metadata": { "name": name }, "spec": foreign(test.harness.ctx.now()) });
    create::<Lease>(&leases, lease).await;
    let _controller = test.start();
    test.begin(MEDIK, "disk", "one").await;
    let status = test
        .status(MEDIK, "disk", "it waits for the Lease", |status| {
            // On a busy machine it is seen before the controller has decided.
            let error = status["lastError"].as_str().unwrap_or_default();
            error.contains("obtain a lease")
        })
        .await;
    assert_eq!(
        status["lastError"],
        "failed to obtain a lease that is not owned by us : can't update or invalidate the lease because it is held by different owner: NodeHealthCheck-x errorOnLeaseCount 0"
    );
    assert!(
        !is_cordoned(&test.harness.get("one").await),
        "nothing is disturbed"
    );
    // It expires.
    let past = test.harness.ctx.now() - SignedDuration::from_hours(1);
    let expired = Patch::Merge(json!({ "spec": foreign(past) }));
    leases
        .patch(&name, &PatchParams::default(), &expired)
        .await
        .unwrap();
    test.succeeded(MEDIK, "disk").await;
    let taken = leases.get(&name).await.unwrap().spec.unwrap();
    assert_eq!(
        (taken.holder_identity.as_deref(), taken.lease_transitions),
        (Some("node-maintenance"), Some(1))
    );

    let stolen = Patch::Merge(json!({ "spec": foreign(test.harness.ctx.now()) }));
    leases
        .patch(&name, &PatchParams::default(), &stolen)
        .await
        .unwrap();
    let status = test
        .status(MEDIK, "disk", "it has given up", |status| {
            status["phase"] == "Failed"
        })
        .await;
    assert_eq!(status["errorOnLeaseCount"], 4);
    assert_eq!(
        status["lastError"],
        "maintenance failed: lease could not be extended after 4 attempts"
    );
    let is_restored = async || is_free(&test.harness.get("one").await);
    wait::holds("the node is as it was", is_restored).await;
    test.end(MEDIK, "disk").await;
    let left = leases.get(&name).await.unwrap().spec.unwrap();
    assert_eq!(
        left.holder_identity.as_deref(),
        Some("NodeHealthCheck-x"),
        "it is not ours"
    );
}

#[tokio::test]
async fn an_object_for_no_node_or_for_a_taken_one_says_so_and_an_object_that_vanishes_leaves_its_node_as_it_was()
 {
    let test = Maintenances::new(["one"]).await;
    let controller = test.start();
    test.begin(MEDIK, "disk", "one").await;
    test.succeeded(MEDIK, "disk").await;
    test.begin(MEDIK, "ghost", "nowhere").await;
    // As if both had been created at the same time.
    admission::allow_second_objects(&test.harness.ctx).await;
    let second = test.object(MEDIK, "second", "one");
    wait::eventually("the second object is created", SOON, async || {
        let created = test.api(MEDIK).create(&PostParams::default(), &second).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let failed = |status: &Value| status["phase"] == "Failed";
    let ghost = test.status(MEDIK, "ghost", "it has failed", failed).await;
    let missing = format!("nodes {:?} not found", test.harness.node("nowhere"));
    assert_eq!(ghost["lastError"], missing.as_str());
    let second = test.status(MEDIK, "second", "it has failed", failed).await;
    let taken = format!(
        "a NodeMaintenance for node {} already exists",
        test.harness.node("one")
    );
    assert!(
        second["lastError"].as_str().unwrap().ends_with(&taken),
        "{second}"
    );
    test.end(MEDIK, "second").await;
    assert!(
        is_cordoned(&test.harness.get("one").await),
        "it is that of the first"
    );

    let moves = Patch::Merge(json!({ "spec": { "nodeName": "another" } }));
    let refused = test
        .api(MEDIK)
        .patch("disk", &PatchParams::default(), &moves)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("updating spec.NodeName isn't allowed"),
        "{refused}"
    );

    // Somebody removes the finalizer while no controller runs.
    controller.kill();
    test.api(MEDIK)
        .patch(
            "disk",
            &PatchParams::default(),
            &Patch::Merge(json!({ "metadata": { "finalizers": null } })),
        )
        .await
        .unwrap();
    test.end(MEDIK, "disk").await;
    assert!(is_cordoned(&test.harness.get("one").await));
    let _again = controller.start_again();
    let is_restored = async || is_free(&test.harness.get("one").await);
    wait::holds("the node is as it was", is_restored).await;
    test.end(MEDIK, "ghost").await;
}

#[tokio::test]
async fn a_node_that_somebody_uncordons_is_drained_again_while_the_object_is_there() {
    let test = Maintenances::new(["one"]).await;
    let _controller = test.start();
    test.begin(MEDIK, "disk", "one").await;
    test.succeeded(MEDIK, "disk").await;
    test.harness.ctx.uncordon(&test.harness.node("one")).await;
    let is_cordoned_again = async || is_cordoned(&test.harness.get("one").await);
    wait::holds("it is cordoned again", is_cordoned_again).await;
    test.end(MEDIK, "disk").await;
    assert!(is_free(&test.harness.get("one").await));
}

#[tokio::test]
async fn users_see_a_node_in_maintenance_or_that_they_may_not_read_it() {
    let test = Maintenances::new(["one", "two"]).await;
    let _controller = test.start();
    test.begin(MEDIK, "disk", "one").await;
    test.succeeded(MEDIK, "disk").await;
    let node = test.harness.node("one");
    test.harness.plan_with("p", json!({ "concurrency": 2 })).await;
    test.harness
        .ctx
        .plan_until("p", "waits for the maintenance", SOON, |plan| {
            let status = plan.status.clone().unwrap_or_default();
            let mut active = status.active.into_iter().flatten();
            active.any(|entry| entry.name == node && entry.reason.as_deref() == Some("NodeBusy"))
        })
        .await;
    let admin = UserCli::admin(&test.harness);
    let line = format!("NodeMaintenance disk  {node}  Succeeded");
    admin.refit("status").await.ends(0).says(&line);
    let json: Value = serde_json::from_str(&admin.refit("status -o json").await.ends(0).out).unwrap();
    let seen = &json["nodeMaintenances"][0];
    assert_eq!(
        (&seen["name"], &seen["node"], &seen["phase"]),
        (&json!("disk"), &json!(node), &json!("Succeeded"))
    );
    assert_eq!(json["gaps"], json!([]));
    admin
        .refit("explain nodemaintenance/disk")
        .await
        .ends(0)
        .says(&format!("NodeMaintenance disk has drained Node {node}"));
    admin
        .refit(&format!("explain p {node}"))
        .await
        .ends(1)
        .says("NodeMaintenance disk: Succeeded for ");
    admin
        .refit(&format!("explain node/{node}"))
        .await
        .ends(1)
        .says("NodeMaintenance disk has drained")
        .says("NodeBusy");
    admin
        .refit("explain nodemaintenance/disc")
        .await
        .ends(1)
        .says("there is no NodeMaintenance disc, did you mean disk?");
    let viewer = UserCli::viewer(&test.harness).await;
    let seen = viewer.refit("status").await.ends(0);
    let seen = seen.says("not shown: NodeMaintenances of nodemaintenance.medik8s.io cannot be read");
    assert!(!seen.out.contains("Succeeded"), "{seen:#?}");
    test.end(MEDIK, "disk").await;
}
