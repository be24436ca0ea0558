//! The audit log is believed by tests that count requests, so its own count has to be right.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use refit::api::Plan;
use serde_json::json;

use crate::support::kubeconfig;
use crate::support::manifest::Manifests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

#[tokio::test]
async fn a_known_number_of_requests_is_counted_exactly() {
    let world = World::with(Manifests::Suc).await;
    let client = kubeconfig::client(world.kubeconfig(), "counted").await.unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let plans = Api::<Plan>::namespaced(client.clone(), world.namespace());
    let maps = Api::<ConfigMap>::namespaced(client, world.namespace());
    for round in 1..=20 {
        nodes.list(&ListParams::default()).await.unwrap();
        assert!(plans.get_opt("no-such-plan").await.unwrap().is_none());
        maps.get_opt("forbidden").await.unwrap_err();
        let two_seconds = WatchParams::default().timeout(1);
        if round == 1 {
            let events: Vec<WatchEvent<Node>> = nodes
                .watch(&two_seconds, "0")
                .await
                .unwrap()
                .try_collect()
                .await
                .unwrap();
            drop(events);
        }
        let requests = world.controller_requests().await;
        let expected = BTreeMap::from([
            (("get", "configmaps", 403), round),
            (("get", "plans", 404), round),
            (("list", "nodes", 200), round),
            (("watch", "nodes", 200), 1),
        ]);
        assert_eq!(requests.tally(), expected, "after {round} rounds");
        assert_eq!(requests.forbidden().len(), round);
        assert_eq!(requests.by("counted").0.len(), requests.0.len());
        assert_eq!(requests.writes().count(), 0);
    }
}

#[tokio::test]
async fn a_created_job_is_found_with_its_node_and_hash() {
    let world = World::with(Manifests::Suc).await;
    let client = kubeconfig::client(world.kubeconfig(), "jobs").await.unwrap();
    let jobs = Api::<Job>::namespaced(client, world.namespace());
    let mut uids = BTreeMap::new();
    for (name, node_uid) in [("on-a", "uid-a"), ("on-a-again", "uid-a"), ("on-b", "uid-b")] {
        let job: Job = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {
                    "upgrade.cattle.io/plan": "p", "plan.upgrade.cattle.io/p": "f00d", "upgrade.cattle.io/node": "short",
                },
                "annotations": { "refit.rs/node-uid": node_uid, "refit.rs/node": "the.whole.name" },
            },
            "spec": {
                "suspend": true,
                "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } },
            },
        }))
        .unwrap();
        let made = jobs.create(&PostParams::default(), &job).await.unwrap();
        uids.insert(name, made.metadata.uid.unwrap());
    }
    // Refused, and so not created.
    let again: Job = jobs.get("on-b").await.unwrap();
    let again = Job {
        metadata: kube::api::ObjectMeta {
            resource_version: None,
            ..again.metadata
        },
        ..again
    };
    jobs.create(&PostParams::default(), &again).await.unwrap_err();

    let requests = world.requests().await;
    let created = requests.jobs_created();
    assert_eq!(created.len(), 3);
    assert_eq!(created[0].uid, uids["on-a"]);
    assert_eq!(
        (created[0].plan.as_str(), created[0].node.as_str()),
        ("p", "the.whole.name")
    );
    let by_node = requests.jobs_by_node_and_hash();
    assert_eq!(by_node[&("uid-a".to_owned(), "f00d".to_owned())].len(), 2);
    assert_eq!(by_node[&("uid-b".to_owned(), "f00d".to_owned())].len(), 1);
    assert_eq!(requests.most_jobs_at_once("p"), 3);
}

#[tokio::test]
async fn a_job_that_has_ended_is_seen_to_have_ended() {
    let world = World::with(Manifests::Suc).await;
    let client = kubeconfig::client(world.kubeconfig(), "jobs").await.unwrap();
    let jobs = Api::<Job>::namespaced(client, world.namespace());
    for name in ["first", "second"] {
        let job: Job = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "upgrade.cattle.io/plan": "p" } },
            // No node, not even another test's, is to take its pod: the test is the kubelet.
            "spec": { "template": { "spec": {
                "restartPolicy": "Never",
                "nodeSelector": { "test": "nobody" },
                "containers": [{ "name": "c", "image": "i" }],
            } } },
        }))
        .unwrap();
        jobs.create(&PostParams::default(), &job).await.unwrap();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let pod = wait::eventually("the Job has a pod", SOON, async || {
            let pods = world
                .pods()
                .list(&of_job)
                .await
                .map_err(|error| error.to_string())?;
            pods.items.into_iter().next().ok_or_else(|| "none".to_owned())
        })
        .await;
        let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
        let pod = pod.metadata.name.unwrap();
        world
            .pods()
            .patch_status(&pod, &PatchParams::default(), &done)
            .await
            .unwrap();
        wait::object(world.jobs(), name, "is complete", SOON, |job| {
            job.status
                .as_ref()
                .is_some_and(|status| status.completion_time.is_some())
        })
        .await;
        let uid = jobs.get(name).await.unwrap().metadata.uid;
        let recorded = json!({ "metadata": { "uid": uid, "annotations": { "refit.rs/recorded": "true" } } });
        jobs.patch(name, &PatchParams::default(), &Patch::Merge(recorded))
            .await
            .unwrap();
    }
    let mut requests = world.requests().await;
    assert_eq!(requests.most_jobs_at_once("p"), 1);
    // The log of an API server that was killed may lack what it did last.
    requests.0.retain(|request| request.resource != "jobs/status");
    assert_eq!(requests.most_jobs_at_once("p"), 1, "the result is recorded");
    requests.0.retain(|request| request.verb != "patch");
    assert_eq!(requests.most_jobs_at_once("p"), 2);
}
