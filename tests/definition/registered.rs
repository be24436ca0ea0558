//! The controller registers the definition at its start, and only where there is need to (S5).

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use refit::api::{Plan, crd};
use serde_json::json;

use super::{definitions, established, foreign, serve, take_away, writes_to_definitions};
use crate::scene::{A_WHILE, Scene, is_cordoned, ledger};
use crate::support::audit::Requests;
use crate::support::kubelet::NodeSet;
use crate::support::plan::{plan, status};
use crate::support::wait::{self, SOON};
use crate::support::world::{World, create};

/// Sooner than the watch of Plans would try again by itself.
const PROMPTLY: Duration = Duration::from_secs(8);

/// Writes to definitions by controllers of this world, after those of `before`.
async fn writes_since(world: &World, before: &Requests) -> Vec<String> {
    let now = world.controller_requests().await;
    writes_to_definitions(&Requests(now.0[before.0.len()..].to_vec()))
}

/// Takes the printer columns off the definition, which hurts nobody, and leaves a note on it.
async fn without_columns(world: &World) {
    let mut versions = serde_json::to_value(established(world).await.spec.versions).unwrap();
    versions[0]
        .as_object_mut()
        .unwrap()
        .remove("additionalPrinterColumns");
    let patch =
        json!({ "metadata": { "annotations": { "somebody": "else" } }, "spec": { "versions": versions } });
    let patched = definitions(world)
        .patch(crd::NAME, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    assert_eq!(patched.unwrap().spec.versions[0].additional_printer_columns, None);
}

/// Allows the controller nothing but to look at the definition.
async fn may_only_look(world: &World) {
    let roles = Api::<ClusterRole>::all(world.client.clone());
    let name = world.local_name("system-upgrade-controller");
    let mut rules = serde_json::to_value(roles.get(&name).await.unwrap().rules).unwrap();
    for rule in rules.as_array_mut().unwrap() {
        if rule["apiGroups"][0] == "apiextensions.k8s.io" {
            rule["verbs"] = json!(["get", "list", "watch"]);
            rule["resourceNames"] = json!([crd::NAME]);
        }
    }
    roles
        .patch(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({ "rules": rules })),
        )
        .await
        .unwrap();
    let reviews = Api::<SubjectAccessReview>::all(world.client.clone());
    for verb in ["create", "update"] {
        let review = json!({ "spec": {
            "user": world.user(),
            "resourceAttributes": {
                "verb": verb, "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "name": crd::NAME,
            },
        } });
        wait::eventually("the role is in force", SOON, async || {
            let answer: SubjectAccessReview = create(&reviews, review.clone()).await;
            if answer.status.is_some_and(|status| status.allowed) {
                Err(format!("may {verb}"))
            } else {
                Ok(())
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_definition_is_made_kept_and_never_written_without_need() {
    let world = World::alone().await;
    take_away(&world).await;

    // Not there: it is made, and Plans can be made at once.
    let controller = world.controller().start();
    controller.leading().await;
    let live = established(&world).await;
    assert_eq!(live.spec.versions, crd::plans().spec.versions);
    world.works(&controller).await;
    let before = world.controller_requests().await;
    assert_eq!(writes_to_definitions(&before), ["create 201"]);

    // There, as it should be: it is not written.
    assert!(controller.terminate().await.success());
    let controller = controller.start_again();
    world.works(&controller).await;
    assert_eq!(writes_since(&world, &before).await, Vec::<String>::new());
    assert_eq!(
        established(&world).await.metadata.generation,
        live.metadata.generation
    );

    // Another one: it is written, and what somebody else has noted on it stays.
    assert!(controller.terminate().await.success());
    without_columns(&world).await;
    let before = world.controller_requests().await;
    let controller = controller.start_again();
    world.works(&controller).await;
    assert_eq!(writes_since(&world, &before).await, ["update 200"]);
    let updated = established(&world).await;
    assert_eq!(updated.spec.versions, crd::plans().spec.versions);
    assert_eq!(updated.metadata.annotations.unwrap()["somebody"], "else");

    // One that prunes our fields: likewise.
    assert!(controller.terminate().await.success());
    serve(&world, &foreign()).await;
    let before = world.controller_requests().await;
    let controller = controller.start_again();
    world.works(&controller).await;
    assert_eq!(writes_since(&world, &before).await, ["update 200"]);
    world
        .plan(&plan("ours", "{version: v1, suspend: true, upgrade: {image: i}}"))
        .await;
    assert_eq!(world.plan_complete("ours", SOON).await.spec.suspend, Some(true));
    assert!(world.controller_requests().await.forbidden().is_empty());
    assert!(controller.is_running());
}

#[tokio::test]
async fn whoever_owns_the_definition_otherwise_is_let_alone() {
    let world = World::alone().await;
    // Of somebody who keeps it in Git: nothing is written, whatever is there, as long as it has our fields.
    without_columns(&world).await;
    let controller = world.controller().arg("--manage-crd=false").start();
    world.works(&controller).await;
    assert!(controller.terminate().await.success());
    assert_eq!(
        writes_to_definitions(&world.controller_requests().await),
        Vec::<String>::new()
    );

    // Without the right to write it, it is used as it is.
    may_only_look(&world).await;
    let controller = world.controller().start();
    world.works(&controller).await;
    assert!(
        controller
            .log()
            .contains("may not be updated; it has all our fields"),
        "{}",
        controller.log()
    );
    assert!(controller.terminate().await.success());
    assert_eq!(
        writes_to_definitions(&world.controller_requests().await),
        ["update 403"]
    );
    serve(&world, &crd::plans()).await;
    let before = world.controller_requests().await;
    let controller = world.controller().start();
    world.works(&controller).await;
    assert!(controller.terminate().await.success());
    assert_eq!(writes_since(&world, &before).await, Vec::<String>::new());

    // One that prunes our fields cannot be used, and who can help is told how.
    serve(&world, &foreign()).await;
    let controller = world.controller().start();
    assert_eq!(controller.ended(SOON).await.code(), Some(1));
    for text in [
        "spec.suspend",
        "spec.maxConcurrent",
        "allow the verb update, or apply the output of `refit crd`",
    ] {
        assert!(
            controller.log().contains(text),
            "{text:?} is not in\n{}",
            controller.log()
        );
    }

    // One that is not there is waited for.
    for argument in ["--manage-crd=true", "--manage-crd=false"] {
        take_away(&world).await;
        let looks = async || {
            world
                .controller_requests()
                .await
                .count("get", "customresourcedefinitions")
        };
        let before = looks().await;
        let controller = world.controller().arg(argument).start();
        wait::eventually("it looks more than once", SOON, async || {
            match looks().await - before {
                0..=2 => Err("it does not".to_owned()),
                _ => Ok(()),
            }
        })
        .await;
        assert!(controller.is_running());
        serve(&world, &crd::plans()).await;
        world.works(&controller).await;
        assert!(controller.terminate().await.success());
    }
}

#[tokio::test]
async fn a_definition_that_is_taken_away_and_comes_back_is_gone_on_with() {
    let never = |nodes: NodeSet| nodes.steer("upgrade.run-delay", "never");
    let scene = Scene::on(World::alone().await, ["a"], never).await;
    let (world, a) = (&scene.world, scene.node("a"));
    let controller = world.at_work().await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, cordon: true, upgrade: {image: i}}";
    world.plan(&plan("before", spec)).await;
    scene.upgrading("before", "a").await;
    assert!(is_cordoned(&world.node(&a).await));

    // All Plans are gone with it, and so is the reason to keep nodes cordoned once nothing runs there. Kubernetes collects
    // the Job of a Plan that is gone, sooner or later; the controller lets it go on.
    take_away(world).await;
    controller.logs("lacks fields; no Plan is written", SOON).await;
    controller.logs("missing=the definition itself", SOON).await;
    scene.release("a").await;
    let given_back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
    world.node_until(&a, "is given back", A_WHILE, given_back).await;
    let away = world.controller_requests().await;
    let deletes = away.writes().filter(|it| it.verb == "delete").collect::<Vec<_>>();
    assert!(deletes.is_empty(), "{deletes:#?}");
    // Long enough that the next look at Plans would be long in coming.
    wait::eventually("Plans were looked for in vain", SOON, async || {
        match controller.log().matches("kind=Plan").count() {
            0..5 => Err(controller.log()),
            _ => Ok(()),
        }
    })
    .await;

    // It is back, and gone on with at once.
    serve(world, &crd::plans()).await;
    world.plan(&plan("after", spec)).await;
    let resolved = |plan: &Plan| status(plan).latest_version.is_some();
    world.plan_until("after", "is seen", PROMPTLY, resolved).await;
    scene.complete("after").await;
    let node = world.node_until(&a, "is given back", SOON, given_back).await;
    let notes = node.metadata.annotations.unwrap_or_default();
    assert!(notes.keys().all(|key| !key.contains("refit.rs/")), "{notes:?}");
    assert_eq!(world.jobs_of("before").await.len(), 0);
    assert!(controller.is_running());
}
