//! Right node, right Job, right label: where names collide, lie, or come back with somebody else behind them.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use refit::job::name::{job_name, second_job_name};
use serde_json::json;

use crate::scene::{A_WHILE, Scene, applying, both, hash, held, set, steer};
use crate::support::wait::SOON;
use crate::support::world::cluster::{create, done, find_condition};

/// Fails unless every pod of the Plan ran on the node that its label is about.
async fn pods_ran_where_they_belong(scene: &Scene, plan: &str) {
    let of_plan = ListParams::default().labels(&format!("upgrade.cattle.io/plan={plan}"));
    for pod in scene.world.pods().list(&of_plan).await.unwrap() {
        assert_eq!(
            pod.spec.as_ref().unwrap().node_name.as_deref(),
            Some(&*pod.annotations()["refit.rs/node"]),
            "{}",
            pod.name_any()
        );
    }
}

#[tokio::test]
async fn two_nodes_whose_short_names_are_the_same_get_a_job_each() {
    let scene = Scene::new(["a.x", "a.y"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("short", json!({ "spec": { "concurrency": 2 } })).await;
    let plan_hash = scene.complete("short").await;
    scene
        .made_once_each([("a.x", &plan_hash), ("a.y", &plan_hash)])
        .await;
    pods_ran_where_they_belong(&scene, "short").await;
    let made = scene.made().await;
    let common = job_name("short", &scene.node("a.x"), &plan_hash);
    assert_eq!(
        common,
        job_name("short", &scene.node("a.y"), &plan_hash),
        "that is why they collide"
    );
    assert_eq!(made.iter().filter(|job| job.name == common).count(), 1);
    for node in ["a.x", "a.y"] {
        scene.done("short", node, &plan_hash).await;
        assert_eq!(scene.runs(node, "upgrade").await, 1, "{node}");
    }
    scene
        .told_exactly(
            "JobComplete",
            ["a.x", "a.y"].map(|node| format!("Job completed on Node {}", scene.node(node))),
        )
        .await;
}

#[tokio::test]
async fn nodes_that_bear_each_others_hostname_are_told_apart() {
    let scene = Scene::with(["one", "two"], |set| {
        let names: Vec<_> = set.nodes.iter().rev().map(|node| node.name.clone()).collect();
        set.each(move |index, node| node.hostname = Some(names[index].clone()))
    })
    .await;
    let _controller = scene.world.controller().start();
    scene.plan("swapped", json!({})).await;
    let plan_hash = scene.complete("swapped").await;
    scene
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    pods_ran_where_they_belong(&scene, "swapped").await;
    // Each was announced by the other's name, which is its hostname.
    let made = scene.made_for().await;
    let announced: Vec<_> = scene.world.controller_requests().await.0;
    let announced: Vec<_> = announced
        .iter()
        .filter(|request| request.resource == "plans/status")
        .filter_map(|request| request.sent["status"]["applying"][0].as_str().map(str::to_owned))
        .fold(Vec::new(), |mut all, name| {
            if all.last() != Some(&name) {
                all.push(name);
            }
            all
        });
    let swapped: Vec<_> = made
        .iter()
        .map(|node| scene.node(if node == "one" { "two" } else { "one" }))
        .collect();
    assert_eq!(announced, swapped);
}

#[tokio::test]
async fn nodes_that_share_a_hostname_get_a_job_each() {
    let scene = Scene::with(["one", "two"], |set| {
        held(set).each(|_, node| node.hostname = Some("shared".to_owned()))
    })
    .await;
    let _controller = scene.world.controller().start();
    scene
        .plan("shared", json!({ "spec": { "concurrency": 2 } }))
        .await;
    let plan = scene
        .world
        .plan_until("shared", "applies both", A_WHILE, |plan| {
            applying(plan).len() == 2
        })
        .await;
    assert_eq!(applying(&plan), ["shared", "shared"]);
    scene.release("one").await;
    scene.release("two").await;
    let plan_hash = scene.complete("shared").await;
    scene
        .made_once_each([("one", &plan_hash), ("two", &plan_hash)])
        .await;
    pods_ran_where_they_belong(&scene, "shared").await;
}

#[tokio::test]
async fn a_node_name_of_253_characters_is_too_long_for_a_label_and_for_nothing_else() {
    // 253 with the id of the world and a dash in front.
    let label = "n".repeat(63);
    let name = |id: &str| {
        format!(
            "{label}.{label}.{label}.{}",
            "m".repeat(253 - id.len() - 1 - 3 * 64)
        )
    };
    let world = crate::support::world::World::new().await;
    let long = name(&world.id);
    let scene = Scene::on(world, [&long], |set| {
        set.each(|_, node| node.hostname = Some("long".to_owned()))
    })
    .await;
    assert_eq!(scene.node(&long).len(), 253);
    let _controller = scene.world.controller().start();
    scene.plan("long", json!({ "spec": { "cordon": true } })).await;
    let plan_hash = scene.complete("long").await;
    scene.made_once_each([(&long, &plan_hash)]).await;
    pods_ran_where_they_belong(&scene, "long").await;
    let job = scene.job("long", &long).await;
    assert_eq!(job.labels()["upgrade.cattle.io/node"].len(), 63);
    assert_eq!(job.annotations()["refit.rs/node"], scene.node(&long));
    assert!(!crate::scene::is_cordoned(
        &scene.world.node(&scene.node(&long)).await
    ));
    scene.told_complete([&long]).await;
}

#[tokio::test]
async fn a_plan_name_of_63_characters_leaves_no_room_for_the_node_and_still_each_gets_its_job() {
    let scene = Scene::new(["one", "two", "three"]).await;
    let _controller = scene.world.controller().start();
    let name = "p".repeat(63);
    scene.plan(&name, json!({ "spec": { "concurrency": 3 } })).await;
    let plan_hash = scene.complete(&name).await;
    scene
        .made_once_each(["one", "two", "three"].map(|node| (node, &*plan_hash)))
        .await;
    pods_ran_where_they_belong(&scene, &name).await;
}

/// A Job of somebody's that runs nothing.
async fn foreign_job(scene: &Scene, name: &str) -> Job {
    let container = json!({ "name": "c", "image": "i" });
    let pod = json!({ "restartPolicy": "Never", "containers": [container] });
    let job =
        json!({ "metadata": { "name": name }, "spec": { "suspend": true, "template": { "spec": pod } } });
    create(&scene.world.jobs(), job).await
}

/// Fails if the controller wrote to the Job.
async fn untouched(scene: &Scene, job: &str) {
    scene.world.jobs().get(job).await.unwrap();
    let requests = scene.world.controller_requests().await;
    let touched: Vec<_> = requests
        .writes()
        .filter(|request| {
            request.resource.starts_with("jobs") && request.name == job && request.verb != "create"
        })
        .collect();
    assert!(touched.is_empty(), "{touched:#?}");
}

/// A suspended Plan, and the names of its Job on the only node.
async fn suspended(scene: &Scene, name: &str) -> [String; 2] {
    let plan = scene.plan(name, json!({ "spec": { "suspend": true } })).await;
    let hash = hash(
        &scene
            .world
            .plan_condition(name, "LatestResolved", "True", SOON)
            .await,
    );
    let node = scene.world.node(&scene.node("one")).await;
    let (plan_uid, node_uid) = (plan.uid().unwrap(), node.uid().unwrap());
    [
        job_name(name, &node.name_any(), &hash),
        second_job_name(name, &plan_uid, &node.name_any(), &node_uid, &hash),
    ]
}

#[tokio::test]
async fn a_foreign_job_under_our_name_stays_and_ours_gets_another() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let [first, second] = suspended(&scene, "named").await;
    foreign_job(&scene, &first).await;

    scene.edit("named", json!({ "suspend": false })).await;
    let plan_hash = scene.complete("named").await;
    scene.made_once_each([("one", &plan_hash)]).await;
    assert_eq!(scene.made().await[0].name, second);
    untouched(&scene, &first).await;
}

#[tokio::test]
async fn a_node_waits_while_foreign_jobs_have_both_names_and_no_longer() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let [first, second] = suspended(&scene, "named").await;
    foreign_job(&scene, &first).await;
    foreign_job(&scene, &second).await;

    scene.edit("named", json!({ "suspend": false })).await;
    let waits = scene.held_up("named", "one", "NameTaken").await;
    assert_eq!(
        waits.message.unwrap(),
        format!("another Job has the name {second}")
    );
    scene
        .world
        .plan_until("named", "says so in its condition", SOON, |plan| {
            find_condition(plan, "Complete")
                .is_some_and(|it| it.message.as_deref().is_some_and(|text| text.contains(&second)))
        })
        .await;
    assert!(done(&scene.world.node(&scene.node("one")).await, "named").is_none());

    // A person sees that, and makes room.
    scene
        .world
        .jobs()
        .delete(&second, &DeleteParams::background())
        .await
        .unwrap();
    let plan_hash = scene.complete("named").await;
    scene.made_once_each([("one", &plan_hash)]).await;
    untouched(&scene, &first).await;
}

#[tokio::test]
async fn a_node_that_is_made_again_under_its_name_in_mid_roll_out_is_another_node() {
    let scene = Scene::held(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan("reborn", json!({})).await;
    let (first, other) = scene.first_of_two("reborn").await;
    let old = scene.job("reborn", first).await;
    let old_uid = scene.world.node(&scene.node(first)).await.uid().unwrap();

    // The machine goes with what ran on it; another one comes.
    scene.kubelet.delete_node(&scene.node(first)).await;
    scene.release(first).await;
    scene.release(other).await;
    scene.kubelet.recreate_node(&scene.node(first)).await;
    let plan_hash = scene.complete("reborn").await;
    let new_uid = scene.world.node(&scene.node(first)).await.uid().unwrap();
    assert_ne!(old_uid, new_uid);

    // One Job for each machine: the old one's, the new one's, the other node's.
    scene
        .made_once_each([(first, &plan_hash), (first, &plan_hash), (other, &plan_hash)])
        .await;
    let made = scene.made().await;
    let machines = set(made.iter().map(|job| job.node_uid.clone()));
    assert!(machines.contains(&old_uid) && machines.contains(&new_uid));
    scene.done("reborn", first, &plan_hash).await;
    let jobs = scene.world.jobs_of("reborn").await;
    assert!(
        jobs.iter().all(|job| job.uid() != old.uid()),
        "the old machine's Job is deleted"
    );
    let requests = scene.world.controller_requests().await;
    let deleted: Vec<_> = requests
        .0
        .iter()
        .filter(|it| it.verb == "delete" && it.resource == "jobs")
        .collect();
    assert!(
        deleted.iter().all(|request| request.name == old.name_any()),
        "{deleted:#?}"
    );
}

#[tokio::test]
async fn a_plan_that_is_made_again_at_once_takes_nothing_of_the_old_one_for_its_own() {
    let scene = Scene::new(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    let both_at_once = json!({ "spec": { "concurrency": 2 } });
    let old = scene
        .plan(
            "again",
            both(steer(&[("run-delay", "never")]), both_at_once.clone()),
        )
        .await;
    scene.upgrading("again", "one").await;
    scene.upgrading("again", "two").await;

    scene
        .world
        .plans()
        .delete("again", &DeleteParams::default())
        .await
        .unwrap();
    let new = scene.plan("again", both_at_once).await;
    assert_ne!(old.uid(), new.uid());
    let plan_hash = scene.complete("again").await;

    // The same version, hash and names; a Job for each node under either Plan.
    let made = scene.made().await;
    assert_eq!(made.len(), 4, "{made:#?}");
    assert!(made.iter().all(|job| job.hash == plan_hash));
    for job in scene.world.jobs_of("again").await {
        assert_eq!(job.annotations()["refit.rs/plan-uid"], new.uid().unwrap());
        assert_eq!(job.owner_references()[0].uid, new.uid().unwrap());
    }
    for node in ["one", "two"] {
        scene.done("again", node, &plan_hash).await;
        assert_eq!(scene.runs(node, "upgrade").await, 2);
    }
    scene.told_complete(["one", "two"]).await;
}
