//! Events, in system-upgrade-controller's words (S63): which are written, and that none is written twice. Every test
//! compares the whole set.

use k8s_openapi::api::core::v1::Event;
use refit::api::Plan;
use serde_json::json;

use crate::support::faults::{Moment, Rule};
use crate::support::plan::{plan, says, status};
use crate::support::told::line;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

/// How a Plan begins that is valid and has its version.
fn begins(version: &str) -> [String; 2] {
    [
        "Normal Validated: Plan is valid".to_owned(),
        format!("Normal Resolved: Resolved latest version from Spec.Version: {version}"),
    ]
}

fn synced(version: &str, nodes: &str, hash: &str) -> String {
    format!("Normal SyncJob: Jobs synced for version {version} on Nodes {nodes}. Hash: {hash}")
}

fn complete(version: &str, hash: &str) -> String {
    format!("Normal Complete: Jobs complete for version {version}. Hash: {hash}")
}

fn job_complete(node: &str) -> String {
    format!("Normal JobComplete: Job completed on Node {node}")
}

#[tokio::test]
async fn a_roll_out_tells_each_of_its_events_once() {
    let world = World::new().await;
    let nodes = world.puppets(["a", "b"]).await;
    let (a, b) = (nodes.name("a"), nodes.name("b"));
    let controller = world.at_work().await;
    let spec = "{concurrency: 2, nodeSelector: {}, version: v1, upgrade: {image: i}}";
    world.plan(&plan("two", spec)).await;
    let both = |plan: &Plan| status(plan).applying.is_some_and(|nodes| nodes.len() == 2);
    world.plan_until("two", "applies both", SOON, both).await;
    nodes.succeed("two", &a).await;
    world
        .plan_until("two", "applies one", SOON, |plan| !both(plan))
        .await;
    nodes.succeed("two", &b).await;
    let hash = status(&world.plan_complete("two", SOON).await)
        .latest_hash
        .unwrap();
    let mut expected = begins("v1").to_vec();
    expected.extend([
        synced("v1", &format!("{a},{b}"), &hash),
        synced("v1", &b, &hash),
        job_complete(&a),
        job_complete(&b),
        complete("v1", &hash),
    ]);
    world.told_exactly("two", SOON, &expected).await;

    // Neither a controller that starts nor an edit that changes nothing about it tells anything again.
    controller.kill();
    let controller = controller.start_again();
    world.works(&controller).await;
    world
        .edit_plan(
            "two",
            json!({ "spec": { "concurrency": 1 }, "metadata": { "labels": { "a": "b" } } }),
        )
        .await;
    world.plan_complete("two", SOON).await;
    world.told_exactly("two", SOON, &expected).await;

    // Another version is another roll-out, and what runs again is told again.
    world
        .edit_plan("two", json!({ "spec": { "version": "v2" } }))
        .await;
    let (first, second) = (applying(&world, "two", None).await, &mut Vec::new());
    nodes.succeed("two", &first).await;
    second.push(applying(&world, "two", Some(&first)).await);
    nodes.succeed("two", &second[0]).await;
    let hash = status(&world.plan_complete("two", SOON).await)
        .latest_hash
        .unwrap();
    expected.extend([
        "Normal Resolved: Resolved latest version from Spec.Version: v2".to_owned(),
        synced("v2", &first, &hash),
        synced("v2", &second[0], &hash),
        complete("v2", &hash),
    ]);
    let told = wait::eventually("all is told", SOON, async || {
        let told = world.told("two").await;
        if told.len() == expected.len() + 2 {
            Ok(told)
        } else {
            Err(format!("{told:#?}"))
        }
    })
    .await;
    // The words of JobComplete do not name the version: two nodes have it twice.
    expected.extend([job_complete(&a), job_complete(&b)]);
    expected.sort();
    assert_eq!(told, expected);
}

/// The one node that applies, another than `before`.
async fn applying(world: &World, name: &str, before: Option<&String>) -> String {
    let other = |plan: &Plan| {
        let nodes = status(plan).applying.unwrap_or_default();
        nodes.len() == 1 && nodes.first() != before
    };
    let plan = world.plan_until(name, "applies the next node", SOON, other).await;
    status(&plan).applying.unwrap().remove(0)
}

#[tokio::test]
async fn a_failed_job_is_told_once() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let controller = world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start();
    world.works(&controller).await;
    world
        .plan(&plan(
            "fails",
            "{concurrency: 1, nodeSelector: {}, version: v1, upgrade: {image: i}}",
        ))
        .await;
    nodes.end("fails", &node, 1).await;
    let failed = world
        .plan_until("fails", "has failed", SOON, |plan| {
            says(plan, "Complete").contains("JobFailed")
        })
        .await;
    let hash = status(&failed).latest_hash.unwrap();
    let job = world.jobs_of("fails").await.remove(0).metadata.name.unwrap();
    let why =
        "BackoffLimitExceeded: Job has reached the specified backoff limit: container upgrade exited with 1";
    let text = format!("Job {}/{job} failed on Node {node}: {why}", world.namespace());
    assert_eq!(says(&failed, "Complete"), format!("False/JobFailed/{text}"));
    let mut expected = begins("v1").to_vec();
    expected.extend([synced("v1", &node, &hash), format!("Warning JobFailed: {text}")]);
    world.told_exactly("fails", SOON, &expected).await;

    controller.kill();
    let controller = controller.start_again();
    world.works(&controller).await;
    world.told_exactly("fails", SOON, &expected).await;
}

#[tokio::test]
async fn a_delay_after_the_job_is_told_in_go_s_words() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    let spec = "{concurrency: 1, nodeSelector: {}, version: v1, upgrade: {image: i}, postCompleteDelay: 90s}";
    world.plan(&plan("delayed", spec)).await;
    nodes.succeed("delayed", &node).await;
    let waits =
        format!("Normal JobCompleteWaiting: Job completed on Node {node}, waiting 1m30s PostCompleteDelay");
    let hash = async || {
        status(&world.plans().get("delayed").await.unwrap())
            .latest_hash
            .unwrap()
    };
    let mut expected = begins("v1").to_vec();
    wait::eventually("it is told that the node waits", SOON, async || {
        let told = world.told("delayed").await;
        if told.contains(&waits) {
            Ok(())
        } else {
            Err(format!("{told:#?}"))
        }
    })
    .await;
    expected.extend([synced("v1", &node, &hash().await), waits]);
    world.told_exactly("delayed", SOON, &expected).await;

    // A shorter delay is over already.
    world
        .edit_plan("delayed", json!({ "spec": { "postCompleteDelay": "0s" } }))
        .await;
    world.plan_complete("delayed", SOON).await;
    expected.extend([job_complete(&node), complete("v1", &hash().await)]);
    world.told_exactly("delayed", SOON, &expected).await;
}

#[tokio::test]
async fn a_windows_node_without_an_image_for_it_is_told_and_linux_nodes_go_on() {
    let world = World::new().await;
    let nodes = world
        .puppets_with(["linux", "windows"], |nodes| {
            nodes.each(|_, node| {
                if node.name.ends_with("windows") {
                    node.os = "windows".to_owned();
                }
            })
        })
        .await;
    let (linux, windows) = (nodes.name("linux"), nodes.name("windows"));
    let _controller = world.at_work().await;
    world
        .plan(&plan(
            "mixed",
            "{concurrency: 2, nodeSelector: {}, version: v1, upgrade: {image: i}}",
        ))
        .await;
    nodes.succeed("mixed", &linux).await;
    let failed = "Warning ValidationFailed: Failed to create job for node";
    let why = "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes";
    let plan = world
        .plan_until("mixed", "has done what it can", SOON, |plan| {
            status(plan).nodes.is_some_and(|nodes| nodes.done == 1) && says(plan, "Complete").contains(why)
        })
        .await;
    assert!(
        says(&plan, "Complete").starts_with("False/"),
        "{}",
        says(&plan, "Complete")
    );
    let hash = status(&plan).latest_hash.unwrap();
    let mut expected = begins("v1").to_vec();
    expected.extend([
        synced("v1", &format!("{linux},{windows}"), &hash),
        synced("v1", &windows, &hash),
        format!("{failed} {windows}: {why}"),
        job_complete(&linux),
    ]);
    world.told_exactly("mixed", SOON, &expected).await;
    assert_eq!(world.jobs_of("mixed").await.len(), 1);
}

#[tokio::test]
async fn an_event_is_written_once_though_the_controller_dies_before_the_status() {
    let world = World::new().await;
    let faults = world.faults(1).await;
    let controller = world.controller().through(&faults).start();
    world.works(&controller).await;
    faults.add(
        Rule::on("patch", "plans/status")
            .named("dies")
            .nth(1)
            .kill(Moment::Before),
    );
    world
        .plan(&plan("dies", "{version: v1, upgrade: {image: i}}"))
        .await;
    controller.ended(SOON).await;
    let told = world.told("dies").await;
    assert_eq!(told.len(), 3, "events come before the status: {told:#?}");
    assert_eq!(world.plans().get("dies").await.unwrap().status, None);

    let controller = controller.start_again();
    controller.leading().await;
    let hash = status(&world.plan_complete("dies", SOON).await)
        .latest_hash
        .unwrap();
    let mut expected = begins("v1").to_vec();
    expected.push(complete("v1", &hash));
    world.told_exactly("dies", SOON, &expected).await;
}

#[tokio::test]
async fn an_event_is_written_once_though_the_answers_get_lost() {
    let world = World::new().await;
    let faults = world.faults(2).await;
    let controller = world.controller().through(&faults).start();
    world.works(&controller).await;
    // Each event's answer once, then the status'.
    faults
        .add(Rule::on("create", "events").times(3).lose_answer())
        .add(
            Rule::on("patch", "plans/status")
                .named("lost")
                .nth(1)
                .lose_answer(),
        );
    world
        .plan(&plan("lost", "{version: v1, upgrade: {image: i}}"))
        .await;
    let hash = status(&world.plan_complete("lost", SOON).await)
        .latest_hash
        .unwrap();
    wait::eventually("all faults have happened", SOON, async || match faults.faults() {
        4.. => Ok(()),
        faults => Err(format!("{faults}")),
    })
    .await;
    let mut expected = begins("v1").to_vec();
    expected.push(complete("v1", &hash));
    world.told_exactly("lost", SOON, &expected).await;
}

#[tokio::test]
async fn a_plan_that_is_edited_under_the_controller_s_hands_is_told_about_once() {
    let world = World::new().await;
    let faults = world.faults(3).await;
    let controller = world.controller().through(&faults).start();
    world.works(&controller).await;
    // The status is written in a version of the Plan that is not the latest any more.
    faults.add(
        Rule::on("patch", "plans/status")
            .named("edited")
            .times(2)
            .answer(409),
    );
    world
        .plan(&plan("edited", "{version: v1, upgrade: {image: i}}"))
        .await;
    world
        .edit_plan("edited", json!({ "metadata": { "labels": { "a": "b" } } }))
        .await;
    let hash = status(&world.plan_complete("edited", SOON).await)
        .latest_hash
        .unwrap();
    assert_eq!(faults.faults(), 2);
    let mut expected = begins("v1").to_vec();
    expected.push(complete("v1", &hash));
    world.told_exactly("edited", SOON, &expected).await;
}

#[tokio::test]
async fn the_node_of_the_controller_is_told_of_its_start() {
    let world = World::new().await;
    let controller = world.at_work().await;
    let lines = async |count: usize| {
        wait::eventually("the starts are told", SOON, async || {
            let told = world.told_of_the_controller().await;
            if told.len() == count {
                Ok(told)
            } else {
                Err(format!("{told:#?}"))
            }
        })
        .await
    };
    let program = concat!("refit ", env!("CARGO_PKG_VERSION"));
    let identity = format!("{}/system-upgrade-controller", world.namespace());
    let starting = format!("Normal Starting: {program} starting leader election for {identity}");
    let started = format!("Normal Started: {program} running as {identity}");
    let told = lines(2).await;
    let mut texts: Vec<_> = told.iter().map(line).collect();
    texts.sort();
    assert_eq!(texts, [started.clone(), starting.clone()]);
    for event in &told {
        is_about_the_node(event);
    }

    // Each start is told of, and without an election there is none to be told of.
    assert!(controller.terminate().await.success());
    let again = world
        .controller()
        .env("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "false")
        .start();
    let mut texts: Vec<_> = lines(3).await.iter().map(line).collect();
    texts.sort();
    assert_eq!(texts, [started.clone(), started, starting]);
    assert!(again.terminate().await.success());
    assert!(world.controller_requests().await.forbidden().is_empty());
}

/// As system-upgrade-controller, and the kubelet, refer to a Node: its name is its UID.
fn is_about_the_node(event: &Event) {
    let about = &event.involved_object;
    assert_eq!(about.kind.as_deref(), Some("Node"));
    assert_eq!(about.name.as_deref(), Some("test-machine"));
    assert_eq!(about.uid.as_deref(), Some("test-machine"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let source = event.source.as_ref().unwrap();
    assert_eq!(source.component.as_deref(), Some("system-upgrade-controller"));
    assert_eq!(source.host.as_deref(), Some("test-machine"));
}
