//! Pods and Jobs, from the binding to the end.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use refit::job::{JobInput, JobSettings, NodeInput, PlanInput, render};
use serde_json::{Value, json};

use super::{bind, exit, in_phase, with_nodes};
use crate::support::kubelet::NodeSet;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

/// Makes a Job on a node; `more` goes over its spec.
async fn job(world: &World, node: &str, steering: &[(&str, &str)], more: Value) -> Job {
    let annotations: BTreeMap<String, &str> = steering
        .iter()
        .map(|(key, value)| (format!("fake-kubelet/{key}"), *value))
        .collect();
    let mut job = json!({
        "metadata": {"name": "j"},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": annotations}, "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"kubernetes.io/hostname": node},
                "initContainers": [{"name": "prepare", "image": "example.com/i:1"}],
                "containers": [{"name": "upgrade", "image": "example.com/i:1"}],
            }},
        },
    });
    if let (Some(into), Value::Object(more)) = (job["spec"].as_object_mut(), more) {
        into.extend(more);
    }
    let job: Job = serde_json::from_value(job).unwrap();
    world.jobs().create(&PostParams::default(), &job).await.unwrap()
}

/// Waits until the Job has that condition.
async fn ended(world: &World, name: &str, condition: &str) -> Job {
    let has = |job: &Job| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|it| it.type_ == condition && it.status == "True")
    };
    wait::object(world.jobs(), name, &format!("is {condition}"), SOON, has).await
}

async fn pods_of(world: &World, job: &str) -> Vec<Pod> {
    let mine = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    world.pods().list(&mine).await.unwrap().items
}

#[tokio::test]
async fn a_job_succeeds_and_its_containers_were_started_once() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    job(&world, &names[0], &[("message", "all good")], json!({})).await;
    ended(&world, "j", "Complete").await;
    let [pod] = <[Pod; 1]>::try_from(pods_of(&world, "j").await).unwrap();
    let status = pod.status.unwrap();
    assert_eq!(exit(&status, "prepare"), (0, "Completed".to_owned()));
    let upgrade = &status.container_statuses.as_ref().unwrap()[0];
    let exit = upgrade.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(exit.message.as_deref(), Some("all good"));
    assert!(status.host_ip.is_some() && status.pod_ip.is_some());
    for container in ["prepare", "upgrade"] {
        assert_eq!(kubelets.runs(&names[0], container).await, 1, "{container}");
    }
}

#[tokio::test]
async fn a_job_that_fails_at_first_is_tried_again() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("exit-code-first", "7")).await;
    job(
        &world,
        &names[0],
        &[("run-delay", "100ms")],
        json!({"backoffLimit": 3}),
    )
    .await;
    let job = ended(&world, "j", "Complete").await;
    assert_eq!(job.status.unwrap().failed, Some(1));
    let mut exits: Vec<i32> = pods_of(&world, "j")
        .await
        .iter()
        .map(|pod| exit(pod.status.as_ref().unwrap(), "upgrade").0)
        .collect();
    exits.sort_unstable();
    assert_eq!(
        (exits, kubelets.runs(&names[0], "upgrade").await),
        (vec![0, 7], 2)
    );
}

#[tokio::test]
async fn a_pod_is_restarted_on_failure() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    let spec = json!({"restartPolicy": "OnFailure"});
    bind(
        &world,
        &names[0],
        "p",
        &[("exit-code-first", "1"), ("run-delay", "100ms")],
        spec,
    )
    .await;
    let status = in_phase(&world, "p", "Succeeded").await;
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!(container.restart_count, 1);
    let last = container
        .last_state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (1, Some("Error")));
    assert_eq!(kubelets.runs(&names[0], "c").await, 2);
}

#[tokio::test]
async fn pods_behave_as_is_said_of_their_node_and_that_can_change_while_they_run() {
    let (world, kubelets, names) = with_nodes(&["good", "bad"], |nodes| nodes).await;
    kubelets
        .behaviour(&names[1], &[("exit-code", "5"), ("run-delay", "never")])
        .await;
    for (name, node) in [("p", &names[0]), ("q", &names[1])] {
        bind(&world, node, name, &[], json!({})).await;
    }
    in_phase(&world, "p", "Succeeded").await;
    in_phase(&world, "q", "Running").await;
    kubelets.behaviour(&names[1], &[("exit-code", "6")]).await;
    let status = in_phase(&world, "q", "Failed").await;
    assert_eq!(exit(&status, "c"), (6, "Error".to_owned()));

    world
        .annotate_node(&names[0], "fake-kubelet/c.exit-code", Some("9"))
        .await;
    bind(&world, &names[0], "r", &[("exit-code", "1")], json!({})).await;
    let status = in_phase(&world, "r", "Failed").await;
    assert_eq!(
        exit(&status, "c"),
        (9, "Error".to_owned()),
        "the annotation names the container"
    );
}

#[tokio::test]
async fn a_deadline_ends_a_job() {
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    job(&world, &names[0], &[], json!({"activeDeadlineSeconds": 2})).await;
    let job = ended(&world, "j", "Failed").await;
    let conditions = job.status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.reason.as_deref() == Some("DeadlineExceeded"))
    );
    wait::eventually("its pod is gone", SOON, async || {
        match pods_of(&world, "j").await.len() {
            0 => Ok(()),
            some => Err(format!("{some} pods")),
        }
    })
    .await;

    bind(&world, &names[0], "p", &[], json!({"activeDeadlineSeconds": 1})).await;
    let status = in_phase(&world, "p", "Failed").await;
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
}

#[tokio::test]
async fn a_deleted_pod_ends_and_is_gone() {
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    // The finalizer keeps the pod, so that its end can be seen.
    let mut pod = bind(&world, &names[0], "p", &[("delete-delay", "100ms")], json!({})).await;
    in_phase(&world, "p", "Running").await;
    pod.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    let finalizers = |value: Value| kube::api::Patch::Merge(json!({"metadata": {"finalizers": value}}));
    let params = kube::api::PatchParams::default();
    world
        .pods()
        .patch("p", &params, &finalizers(json!(["example.com/hold"])))
        .await
        .unwrap();
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    let status = in_phase(&world, "p", "Failed").await;
    assert_eq!(exit(&status, "c"), (143, "Error".to_owned()));
    world
        .pods()
        .patch("p", &params, &finalizers(Value::Null))
        .await
        .unwrap();
    wait::gone(world.pods(), "p", SOON).await;
}

#[tokio::test]
async fn an_evicted_pod_keeps_the_condition_that_says_so() {
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    bind(
        &world,
        &names[0],
        "p",
        &[("delete-delay", "never")],
        json!({"terminationGracePeriodSeconds": 2}),
    )
    .await;
    in_phase(&world, "p", "Running").await;
    let watched = world.pods();
    world.pods().evict("p", &EvictParams::default()).await.unwrap();
    // The kubelet tells first that it has seen the deletion.
    let seen = |pod: &Pod| pod.status.as_ref().unwrap().observed_generation >= pod.metadata.generation;
    let pod = wait::object(watched, "p", "is being ended", SOON, seen).await;
    let conditions = pod.status.unwrap().conditions.unwrap();
    let disrupted = conditions
        .iter()
        .find(|condition| condition.type_ == "DisruptionTarget")
        .unwrap();
    assert_eq!(disrupted.reason.as_deref(), Some("EvictionByEvictionAPI"));
    wait::gone(world.pods(), "p", SOON).await;
}

#[tokio::test]
async fn a_kubelet_refuses_what_is_not_for_its_node() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    let elsewhere = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}]}}}});
    for (name, steering, spec, reason) in [
        ("affinity", &[][..], elsewhere, "NodeAffinity"),
        ("asked", &[("reject", "OutOfpods")], json!({}), "OutOfpods"),
        ("slip", &[("exitcode", "1")], json!({}), "InvalidSteering"),
    ] {
        bind(&world, &names[0], name, steering, spec).await;
        assert_eq!(
            in_phase(&world, name, "Failed").await.reason.as_deref(),
            Some(reason)
        );
    }
    assert_eq!(kubelets.runs(&names[0], "c").await, 0);
}

/// The Job of a Plan that cordons, on a node of the world.
async fn job_of_a_plan(world: &World, node: &str, annotations: &[(&str, &str)]) -> Job {
    let spec = serde_saphyr::from_str("{cordon: true, upgrade: {image: example.com/upgrade}}").unwrap();
    let uid = world.node(node).await.uid().unwrap();
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let plan = PlanInput {
        name: "plan",
        namespace: world.namespace(),
        uid: "plan-uid",
        labels: None,
        annotations: Some(&annotations),
        spec: &spec,
        latest_version: "v1",
        latest_hash: "hash",
        inputs: "inputs",
        digests: &refit::job::NO_DIGESTS,
    };
    let node = NodeInput {
        name: node,
        uid: &uid,
        os: Some("linux"),
    };
    let input = JobInput {
        plan,
        node,
        name: "of-a-plan",
        attempt: 1,
        unschedulable_before: None,
    };
    let mut job = render(&input, &JobSettings::new("controller", "example.com/refit:1")).unwrap();
    job.metadata.owner_references = None; // there is no such Plan
    world.jobs().create(&PostParams::default(), &job).await.unwrap()
}

#[tokio::test]
async fn the_annotations_of_a_plan_steer_its_pods() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    job_of_a_plan(
        &world,
        &names[0],
        &[
            ("fake-kubelet/upgrade.message", "done"),
            ("fake-kubelet/run-delay", "50ms"),
        ],
    )
    .await;
    ended(&world, "of-a-plan", "Complete").await;
    let status = pods_of(&world, "of-a-plan").await.remove(0).status.unwrap();
    let upgrade = status.container_statuses.unwrap()[0]
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(upgrade.message.as_deref(), Some("done"));
    assert_eq!(kubelets.runs(&names[0], "cordon").await, 1);
}

#[tokio::test]
async fn a_plan_that_cordons_leaves_its_node_cordoned_and_in_the_ledger() {
    let (world, _kubelets, names) =
        with_nodes(&["n"], |nodes| nodes.steer("upgrade.run-delay", "never")).await;
    job_of_a_plan(&world, &names[0], &[]).await;
    let cordoned =
        |node: &k8s_openapi::api::core::v1::Node| node.spec.as_ref().unwrap().unschedulable == Some(true);
    let node = world.node_until(&names[0], "is cordoned", SOON, cordoned).await;
    let ledger = refit::rollout::Ledger::parse(&node.annotations()["refit.rs/cordon"]).unwrap();
    assert!(!ledger.before);
    let [holder] = <[_; 1]>::try_from(ledger.holders).unwrap();
    assert_eq!(
        (holder.plan.as_str(), holder.plan_uid.as_str()),
        ("plan", "plan-uid")
    );
    assert_eq!(
        (holder.namespace.as_str(), holder.controller.as_str()),
        (world.namespace(), "controller")
    );
}

#[tokio::test]
async fn two_hundred_pods_on_fifty_nodes_each_run_once() {
    let world = World::new().await;
    let nodes = NodeSet::numbered(&world.node_name("n"), 50).steer("run-delay", "200ms");
    let kubelets = super::start(&world, nodes).await;
    let names: Vec<String> = (0..50)
        .map(|index| world.node_name(&format!("n{index:04}")))
        .collect();
    futures::future::join_all((0..200).map(|index| {
        let (world, node) = (&world, &names[index % 50]);
        async move { bind(world, node, &format!("p{index}"), &[], json!({})).await }
    }))
    .await;
    wait::eventually("all pods have succeeded", Duration::from_secs(120), async || {
        let done = ListParams::default().fields("status.phase=Succeeded");
        let done = Api::<Pod>::namespaced(world.client.clone(), &world.id)
            .list_metadata(&done)
            .await
            .unwrap();
        if done.items.len() == 200 {
            Ok(())
        } else {
            Err(format!("{} have", done.items.len()))
        }
    })
    .await;
    for name in &names {
        assert_eq!(kubelets.runs(name, "c").await, 4, "{name}");
    }
}
