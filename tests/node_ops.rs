//! `NodeOp` and `NodeOpUpgrade` on a real API server: they run on their nodes as a Plan would, say so in their own
//! words, and leave nothing when they go.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::{Value, json};

use crate::harness::{Harness, apply_component, is_cordoned, is_free, quick};
use crate::maintenance::{self, MEDIK};
use crate::steering::UserCli;
use crate::testenv::audit::Request;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::Controller;
use crate::testenv::faults::{Moment, Rule};
use crate::testenv::kubelet::NodeSet;
use crate::testenv::wait::{self, SOON};

/// The example of kairos-operator's README, with another image.
pub(crate) const EXAMPLE: &str = "
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata:
  name: example-nodeop
spec:
  nodeSelector: {}
  image: example.com/upgrade
  command:
    - sh
    - -c
    - |
      echo \"Running on node $(hostname)\"
      ls -la /host/etc/kairos-release
  hostMountPath: /host
  cordon: true
  drainOptions:
    enabled: true
    force: false
    gracePeriodSeconds: 30
    ignoreDaemonSets: true
    deleteEmptyDirData: false
    timeoutSeconds: 300
  rebootOnSuccess: true
  backoffLimit: 3
  concurrency: 2
  stopOnFailure: true
";
/// Settles as soon as a node is Ready.
const AT_ONCE: &str = r#"{"settle":{"minReady":"0s"}}"#;

/// A context of its own, whose controller handles node operations.
struct NodeOps {
    harness: Harness,
}

impl NodeOps {
    async fn new<const N: usize>(nodes: [&str; N], change: impl FnOnce(NodeSet) -> NodeSet) -> Self {
        let ctx = TestContext::alone().await;
        let harness = Harness::on(ctx, nodes, change).await;
        apply_overlay(&harness.ctx).await;
        Self { harness }
    }

    fn start(&self) -> Controller {
        let setup = self.harness.ctx.controller();
        let setup = setup.env("REFIT_ENABLE", "nodeops");
        setup.env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0").start()
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.harness.ctx, kind)
    }

    /// Makes the example, changed by `change`. Its name is unique.
    async fn create(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut object: Value = serde_saphyr::from_str(EXAMPLE).unwrap();
        object["metadata"]["name"] = self.harness.node("op").into();
        object["metadata"]["annotations"] = json!({ "refit.rs/plan-spec": AT_ONCE });
        change(&mut object);
        let kind = object["kind"].as_str().unwrap().to_owned();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.api(&kind).create(&PostParams::default(), &object).await;
        made.unwrap().name_any()
    }

    async fn status(&self, kind: &str, name: &str) -> Value {
        let object = self.api(kind).get(name).await.unwrap();
        object.data["status"].clone()
    }

    async fn in_phase(&self, kind: &str, name: &str, phase: &str) -> Value {
        let status = async || self.status(kind, name).await;
        wait::until(&format!("it is {phase}"), status, |status| {
            status["phase"] == phase
        })
        .await
    }

    fn entry<'a>(&self, status: &'a Value, node: &str) -> &'a Value {
        &status["nodeStatuses"][self.harness.node(node)]
    }

    async fn end(&self, kind: &str, name: &str) {
        self.api(kind)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        let plans = async || {
            self.harness
                .ctx
                .plans()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        };
        wait::holds("its Plan is gone", plans).await;
    }

    async fn plan_labels(&self, node: &str) -> Vec<String> {
        let node = self.harness.get(node).await;
        let keys = node
            .labels()
            .keys()
            .filter(|key| key.starts_with("plan.upgrade.cattle.io/"));
        keys.cloned().collect()
    }

    async fn refusals(&self, name: &str) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.harness.ctx.client.clone(), "default");
        let of = ListParams::default().fields(&format!("reason=Refused,involvedObject.name={name}"));
        events.list(&of).await.unwrap().items
    }
}

/// Applies the files of the component, for the namespace of this test, and waits until both kinds are served.
pub(crate) async fn apply_overlay(ctx: &TestContext) {
    apply_component(ctx, "nodeops", &["crds.yaml", "rbac.yaml"]).await;
    for kind in ["NodeOp", "NodeOpUpgrade"] {
        let served = async || {
            let all = api(ctx, kind).list(&ListParams::default()).await;
            all.map_err(|error| error.to_string())
        };
        wait::eventually("the kind is served", SOON, served).await;
    }
}

/// Objects of a kind in the namespace `default`.
pub(crate) fn api(ctx: &TestContext, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "operator.kairos.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "operator.kairos.io/v1alpha1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    Api::namespaced_with(ctx.client.clone(), "default", &resource)
}

#[tokio::test]
async fn the_example_of_the_readme_runs_once_on_each_node_and_reboots_it() {
    let test = NodeOps::new(["one", "two", "three"], |set| set).await;
    let _controller = test.start();
    let name = test.create(|_| {}).await;
    let status = test.in_phase("NodeOp", &name, "Completed").await;
    for node in ["one", "two", "three"] {
        let entry = test.entry(&status, node);
        assert_eq!(entry["phase"], "Completed", "{status:#}");
        assert_eq!(entry["message"], "Job and reboot completed successfully");
        assert_eq!(entry["rebootStatus"], "completed");
        assert!(entry["jobName"].as_str().is_some_and(|job| !job.is_empty()));
        assert_eq!(test.harness.runs(node, "upgrade").await, 1);
        assert_eq!(test.harness.kubelet.boots(&test.harness.node(node)).await, 2);
        assert!(is_free(&test.harness.get(node).await));
        assert_eq!(test.plan_labels(node).await.len(), 1);
    }
    test.end("NodeOp", &name).await;
    for node in ["one", "two", "three"] {
        assert_eq!(test.plan_labels(node).await, [""; 0], "nothing is left");
    }
    let requests = test.harness.ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}

#[tokio::test]
async fn a_preflight_that_writes_why_skips_its_node_and_the_upgrade_says_so() {
    let skips = |set: NodeSet| {
        set.steer("preflight.exit-code", "77")
            .steer("preflight.message", "node is already at v3.5.0")
    };
    let test = NodeOps::new(["one"], skips).await;
    let _controller = test.start();
    let name = test
        .create(|object| {
            object["kind"] = "NodeOpUpgrade".into();
            object["spec"] =
                json!({ "nodeSelector": {}, "image": "example.com/kairos:v3.5.0", "concurrency": 1 });
        })
        .await;
    let status = test.in_phase("NodeOpUpgrade", &name, "Completed").await;
    assert_eq!(status["message"], "Upgrade operation completed successfully");
    let entry = test.entry(&status, "one");
    assert_eq!(
        entry["message"],
        "Skipped by preflight: node is already at v3.5.0"
    );
    assert!(entry["jobName"].is_null(), "{entry}");
    assert_eq!(test.harness.runs("one", "upgrade").await, 0);
    test.end("NodeOpUpgrade", &name).await;
    let node = test.harness.get("one").await;
    assert!(
        !node.annotations().contains_key("refit.rs/skip"),
        "{:#?}",
        node.annotations()
    );
}

#[tokio::test]
async fn a_failure_stops_the_others_and_the_node_is_released_when_the_object_goes() {
    let test = NodeOps::new(["one", "two"], |set| set.steer("upgrade.exit-code", "3")).await;
    let _controller = test.start();
    let name = test
        .create(|object| {
            object["spec"]["concurrency"] = 1.into();
            object["spec"]["rebootOnSuccess"] = false.into();
        })
        .await;
    let status = test.in_phase("NodeOp", &name, "Failed").await;
    let begun = status["nodeStatuses"].as_object().unwrap();
    assert_eq!(begun.len(), 1, "{status:#}");
    let (node, entry) = begun.iter().next().unwrap();
    assert_eq!(
        (&entry["phase"], &entry["rebootStatus"]),
        (&json!("Failed"), &json!("not-requested"))
    );
    let message = entry["message"].as_str().unwrap();
    assert!(message.starts_with("Job failed"), "{message}");
    assert!(is_cordoned(&test.harness.ctx.node(node).await));
    test.end("NodeOp", &name).await;
    let free = async || is_free(&test.harness.ctx.node(node).await);
    wait::holds("the node is as it was before", free).await;
}

#[tokio::test]
async fn an_object_that_goes_while_a_node_is_at_work_takes_its_job_at_once_and_its_plan_soon() {
    let test = NodeOps::new(["one"], |set| set.steer("upgrade.run-delay", "10m")).await;
    let _controller = test.start();
    let name = test
        .create(|object| object["spec"]["rebootOnSuccess"] = false.into())
        .await;
    test.in_phase("NodeOp", &name, "Running").await;
    let ctx = &test.harness.ctx;
    let jobs = async || ctx.jobs().list(&ListParams::default()).await.unwrap().items.len();
    wait::until("its Job is there", jobs, |count| *count == 1).await;
    test.api("NodeOp")
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    wait::until("its Job is gone", jobs, |count| *count == 0).await;
    let plans = async || {
        ctx.plans()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len()
    };
    wait::until("its Plan is gone", plans, |count| *count == 0).await;
    // The Plan stays for labels that arrive late: its finalizer, which its last write takes away, keeps it.
    let requests = ctx.requests().await;
    let written = |resource: &'static str| {
        let done = move |it: &&Request| it.resource == resource && it.code < 300;
        requests.writes().filter(done)
    };
    let deleted = written("nodeops").find(|it| it.verb == "delete").unwrap();
    let gone = written("plans").last().unwrap();
    let waited = gone.received.duration_since(deleted.received);
    assert!(waited >= SignedDuration::from_secs(20), "{waited:#}");
    let free = async || is_free(&test.harness.get("one").await);
    wait::holds("the node is as it was before", free).await;
    assert_eq!(test.plan_labels("one").await, [""; 0]);
}

/// A kubelet may write its own Node, `managedFields` included.
#[tokio::test]
async fn a_node_with_a_time_that_cannot_be_read_stops_no_operation_and_no_deletion_of_one() {
    let test = NodeOps::new(["one", "two"], |set| set).await;
    let _controller = test.start();
    let nodes = test.harness.ctx.nodes();
    let one = test.harness.node("one");
    test.harness.ctx.write_late_time(&nodes, &one).await;
    nodes.get(&one).await.unwrap_err();
    let name = test
        .create(|object| {
            let spec = object["spec"].as_object_mut().unwrap();
            for field in ["cordon", "drainOptions", "rebootOnSuccess"] {
                spec.remove(field);
            }
        })
        .await;
    let status = test.in_phase("NodeOp", &name, "Completed").await;
    for node in ["one", "two"] {
        assert_eq!(test.entry(&status, node)["phase"], "Completed", "{status:#}");
    }
    let plans = test
        .harness
        .ctx
        .plans()
        .list(&ListParams::default())
        .await
        .unwrap();
    let done = ListParams::default().labels(&format!("plan.upgrade.cattle.io/{}", plans.items[0].name_any()));
    nodes.list_metadata(&done).await.unwrap_err();
    test.end("NodeOp", &name).await;
    assert!(nodes.list_metadata(&done).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn an_object_that_was_begun_before_or_is_no_plan_runs_nothing_and_an_edit_is_followed() {
    let test = NodeOps::new(["one", "two"], |set| set.pods(quick())).await;
    let done = test
        .create(|object| object["metadata"]["name"] = test.harness.node("done").into())
        .await;
    let status =
        json!({ "status": { "phase": "Completed", "nodeStatuses": { "one": { "phase": "Completed" } } } });
    let api = test.api("NodeOp");
    api.patch_status(&done, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let refused = test
        .create(|object| {
            object["metadata"]["name"] = test.harness.node("refused").into();
            object["metadata"]["annotations"] = json!({ "refit.rs/plan-spec": r#"{"windowss": []}"# });
        })
        .await;
    let _controller = test.start();
    let events = wait::until(
        "it is refused",
        async || test.refusals(&refused).await,
        |all| !all.is_empty(),
    )
    .await;
    assert_eq!(
        events[0].message.as_deref(),
        Some("annotation refit.rs/plan-spec: a Plan has no field spec.windowss")
    );
    assert!(
        test.harness
            .ctx
            .plans()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );

    // The annotation suspends the Plan that comes of it, until it goes.
    let suspended = json!({ "metadata": { "annotations": { "refit.rs/plan-spec": r#"{"suspend":true}"# } } });
    api.patch(&refused, &PatchParams::default(), &Patch::Merge(&suspended))
        .await
        .unwrap();
    test.in_phase("NodeOp", &refused, "Running").await;
    let edit = json!({
        "metadata": { "annotations": { "refit.rs/plan-spec": AT_ONCE } },
        "spec": { "rebootOnSuccess": false, "drainOptions": null, "concurrency": 0 },
    });
    api.patch(&refused, &PatchParams::default(), &Patch::Merge(&edit))
        .await
        .unwrap();
    let status = test.in_phase("NodeOp", &refused, "Completed").await;
    for node in ["one", "two"] {
        assert_eq!(test.entry(&status, node)["message"], "Job completed successfully");
        assert_eq!(test.harness.runs(node, "upgrade").await, 1);
    }
    assert_eq!(test.harness.kubelet.boots(&test.harness.node("one")).await, 1);
    test.end("NodeOp", &refused).await;
    test.end("NodeOp", &done).await;
}

#[tokio::test]
async fn a_mistake_in_the_plan_that_follows_is_named_on_the_object() {
    let test = NodeOps::new(["one"], |set| set).await;
    let _controller = test.start();
    let name = test
        .create(|object| {
            object["metadata"]["annotations"] =
                json!({ "refit.rs/plan-spec": r#"{"postCompleteDelay":"-30s"}"# });
        })
        .await;
    let events = wait::until(
        "it is refused",
        async || test.refusals(&name).await,
        |all| !all.is_empty(),
    )
    .await;
    let message = events[0].message.clone().unwrap();
    assert!(
        message.contains("spec.postCompleteDelay is negative"),
        "{message}"
    );
    // An annotation that is right again is taken as it comes.
    let api = test.api("NodeOp");
    let edit = json!({ "metadata": { "annotations": { "refit.rs/plan-spec": AT_ONCE } } });
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&edit))
        .await
        .unwrap();
    test.in_phase("NodeOp", &name, "Completed").await;
    test.end("NodeOp", &name).await;
}

#[tokio::test]
async fn users_see_the_plan_of_a_node_op_and_why_an_object_has_none() {
    let test = NodeOps::new(["one"], |set| set).await;
    let _controller = test.start();
    let named = |name: &str, spec: &str| {
        let (name, spec) = (test.harness.node(name), spec.to_owned());
        move |object: &mut Value| {
            object["metadata"]["name"] = name.into();
            object["metadata"]["annotations"] = json!({ "refit.rs/plan-spec": spec });
        }
    };
    let held = test.create(named("held", r#"{"suspend":true}"#)).await;
    let refused = test.create(named("refused", r#"{"windowss":[]}"#)).await;
    test.in_phase("NodeOp", &held, "Running").await;
    wait::until(
        "it is refused",
        async || test.refusals(&refused).await,
        |all| !all.is_empty(),
    )
    .await;
    let admin = UserCli::admin(&test.harness);
    admin
        .refit("status")
        .await
        .ends(0)
        .says(&format!("of: NodeOp default/{held}\n"));
    admin
        .refit(&format!("explain nodeop/{held}"))
        .await
        .ends(1)
        .says(&format!("NodeOp default/{held}: Plan "))
        .says("Suspended");
    admin
        .refit(&format!("explain nodeop/{refused}"))
        .await
        .ends(1)
        .says("is refused: it cannot become a Plan")
        .says("a Plan has no field spec.windowss");
    admin
        .refit("explain nodeopupgrade/none")
        .await
        .ends(1)
        .says("NodeOpUpgrade none not found: there are no NodeOpUpgrades");
    test.end("NodeOp", &held).await;
}

/// With `kill -9` at a write after each of them has begun.
#[tokio::test]
async fn a_plan_a_node_op_a_maintenance_and_a_reboot_request_share_nodes_through_kills() {
    let nodes = ["one", "two", "three"];
    // So slow that each of them comes while another one is at work.
    let pods = Defaults {
        run: Delay::millis(900),
        ..quick()
    };
    let test = NodeOps::new(nodes, |set| set.pods(pods)).await;
    let ctx = &test.harness.ctx;
    maintenance::apply_overlay(ctx).await;
    let limits = json!({ "metadata": { "name": "refit" }, "data": { "maxUnavailable": "1" } });
    let maps = Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace());
    create(&maps, limits).await;
    let maintenances = maintenance::api(ctx, MEDIK);
    let reboots = json!({
        "version": null, "upgrade": null, "trigger": "RebootNeeded", "cordon": true, "reboot": {},
        "settle": { "minReady": "0s" },
    });
    test.harness.plan_with("reboots", reboots).await;
    let faults = ctx.faults(0).await;
    let setup = ctx.controller().env("REFIT_ENABLE", "maintenance,nodeops");
    let setup = setup.env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0");
    let mut controller = setup.through(&faults).start();
    let mut op = String::new();
    for step in 0..4 {
        match step {
            0 => {
                let spec = json!({ "version": "v1", "concurrency": 3, "cordon": true });
                test.harness.plan_with("p", spec).await;
            }
            1 => {
                op = test
                    .create(|object| {
                        object["metadata"]["name"] = test.harness.node("op").into();
                        object["spec"]["concurrency"] = 0.into();
                        object["spec"]["rebootOnSuccess"] = false.into();
                    })
                    .await;
            }
            2 => {
                let object = maintenance::object(MEDIK, "disk", &test.harness.node("two"));
                maintenances
                    .create(&PostParams::default(), &object)
                    .await
                    .unwrap();
            }
            _ => {
                let node = test.harness.get("three").await;
                let boot = node.status.unwrap().node_info.unwrap().boot_id;
                let request = json!({ "bootID": boot, "reasons": ["a kernel"] }).to_string();
                let edit = json!({ "metadata": { "annotations": { "refit.rs/reboot-needed": request } } });
                ctx.edit_node(&test.harness.node("three"), edit).await;
            }
        }
        // At its next write, before or after it has taken effect.
        let moment = [Moment::Before, Moment::After][step % 2];
        faults.add(Rule::write().once().kill(moment));
        controller.ended(SOON).await;
        controller = controller.start_again();
        at_most_one_is_cordoned(&test).await;
    }
    let is_drained = async || {
        at_most_one_is_cordoned(&test).await;
        maintenances.get("disk").await.unwrap().data["status"].clone()
    };
    wait::until("the node is drained", is_drained, |status| {
        status["phase"] == "Succeeded"
    })
    .await;
    controller.kill();
    let _again = controller.start_again();
    maintenances
        .delete("disk", &DeleteParams::default())
        .await
        .unwrap();
    let is_over = async || {
        at_most_one_is_cordoned(&test).await;
        let boots = test.harness.kubelet.boots(&test.harness.node("three")).await;
        let phase = test.status("NodeOp", &op).await["phase"].clone();
        // Why it has not, if it has not.
        (boots, phase, ctx.plans().get("reboots").await.unwrap().status)
    };
    let over = |(boots, phase, _): &(u32, Value, _)| *boots == 2 && phase == "Completed";
    wait::until("the node has rebooted and the NodeOp is over", is_over, over).await;
    ctx.plan_until("p", "is at its version", SOON, |plan| {
        let status = plan.status.clone().unwrap_or_default();
        status.latest_version.as_deref() == Some("v1") && status.nodes.is_some_and(|nodes| nodes.done == 3)
    })
    .await;
    for node in nodes {
        let free = async || is_free(&test.harness.get(node).await);
        wait::holds("the node is as before", free).await;
        // Once for the Plan, and once for the NodeOp.
        assert_eq!(test.harness.runs(node, "upgrade").await, 2, "{node}");
    }
    assert_eq!(test.harness.kubelet.boots(&test.harness.node("one")).await, 1);
    let api = test.api("NodeOp");
    api.delete(&op, &DeleteParams::default()).await.unwrap();
    let requests = ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}

/// Of the nodes as they are at one moment.
async fn at_most_one_is_cordoned(test: &NodeOps) {
    let own = test.harness.node("");
    let nodes = Api::<Node>::all(test.harness.ctx.client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let cordoned: Vec<_> = nodes
        .into_iter()
        .filter(|node| node.name_any().starts_with(&own) && is_cordoned(node))
        .map(|node| node.name_any())
        .collect();
    assert!(cordoned.len() <= 1, "{cordoned:?}");
}
