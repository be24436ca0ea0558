//! The controller registers the definition at its start, and only where there is need to (S5).

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, Patch, PatchParams};
use refit_api::{Plan, crd};
use serde_json::json;

use super::{definitions, established, foreign, serve, take_away, writes_to_definitions};
use crate::harness::{Harness, is_cordoned, is_free};
use crate::testenv::audit::Requests;
use crate::testenv::context::{TestContext, create};
use crate::testenv::kubelet::NodeSet;
use crate::testenv::plan::{plan, status};
use crate::testenv::wait::{self, SOON};

/// Writes to definitions by controllers of this context, after those of `before`.
async fn writes_since(ctx: &TestContext, before: &Requests) -> Vec<String> {
    let now = ctx.controller_requests().await;
    writes_to_definitions(&Requests(now.0[before.0.len()..].to_vec()))
}

/// Takes the printer columns off the definition, which hurts nobody, and leaves a note on it.
async fn without_columns(ctx: &TestContext) {
    let mut versions = serde_json::to_value(established(ctx).await.spec.versions).unwrap();
    versions[0]
        .as_object_mut()
        .unwrap()
        .remove("additionalPrinterColumns");
    let patch =
        json!({ "metadata": { "annotations": { "somebody": "else" } }, "spec": { "versions": versions } });
    let patched = definitions(ctx)
        .patch(crd::NAME, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    assert_eq!(patched.unwrap().spec.versions[0].additional_printer_columns, None);
}

/// Allows the controller nothing but to look at the definition: what the component grants is gone.
async fn may_only_look(ctx: &TestContext) {
    let roles = Api::<ClusterRole>::all(ctx.client.clone());
    let name = ctx.local_name("system-upgrade-controller-crd");
    roles
        .patch(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({ "rules": [] })),
        )
        .await
        .unwrap();
    let reviews = Api::<SubjectAccessReview>::all(ctx.client.clone());
    for verb in ["create", "update"] {
        let review = json!({ "spec": {
            "user": ctx.user(),
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
    let ctx = TestContext::alone().await;
    take_away(&ctx).await;

    // Not there: it is made, and Plans can be made at once.
    let controller = ctx.controller().start();
    controller.leading().await;
    let live = established(&ctx).await;
    assert_eq!(live.spec.versions, crd::plans().spec.versions);
    ctx.wait_until_working(&controller).await;
    let before = ctx.controller_requests().await;
    assert_eq!(writes_to_definitions(&before), ["create 201"]);

    // There, as it should be: it is not written.
    assert!(controller.terminate().await.success());
    let controller = controller.start_again();
    ctx.wait_until_working(&controller).await;
    assert_eq!(writes_since(&ctx, &before).await, Vec::<String>::new());
    assert_eq!(
        established(&ctx).await.metadata.generation,
        live.metadata.generation
    );

    // Another one: it is written, and what somebody else has noted on it stays.
    assert!(controller.terminate().await.success());
    without_columns(&ctx).await;
    let before = ctx.controller_requests().await;
    let controller = controller.start_again();
    ctx.wait_until_working(&controller).await;
    assert_eq!(writes_since(&ctx, &before).await, ["update 200"]);
    let updated = established(&ctx).await;
    assert_eq!(updated.spec.versions, crd::plans().spec.versions);
    assert_eq!(updated.metadata.annotations.unwrap()["somebody"], "else");

    // One that prunes our fields: likewise.
    assert!(controller.terminate().await.success());
    serve(&ctx, &foreign()).await;
    let before = ctx.controller_requests().await;
    let controller = controller.start_again();
    ctx.wait_until_working(&controller).await;
    assert_eq!(writes_since(&ctx, &before).await, ["update 200"]);
    ctx.plan(&plan("ours", "{version: v1, suspend: true, upgrade: {image: i}}"))
        .await;
    assert_eq!(ctx.plan_complete("ours", SOON).await.spec.suspend, Some(true));
    assert!(ctx.controller_requests().await.forbidden().is_empty());
    assert!(controller.is_running());
}

#[tokio::test]
async fn a_definition_that_another_manager_owns_is_left_alone() {
    let ctx = TestContext::alone().await;
    // Of somebody who keeps it in Git: nothing is written, whatever is there, as long as it has our fields.
    without_columns(&ctx).await;
    let controller = ctx.controller().arg("--manage-crd=false").start();
    ctx.wait_until_working(&controller).await;
    assert!(controller.terminate().await.success());
    assert_eq!(
        writes_to_definitions(&ctx.controller_requests().await),
        Vec::<String>::new()
    );

    // Without the right to write it, it is used as it is.
    may_only_look(&ctx).await;
    let controller = ctx.controller().start();
    ctx.wait_until_working(&controller).await;
    assert!(
        controller
            .log()
            .contains("may not update it; it has all of refit's fields"),
        "{}",
        controller.log()
    );
    assert!(controller.terminate().await.success());
    assert_eq!(
        writes_to_definitions(&ctx.controller_requests().await),
        ["update 403"]
    );
    serve(&ctx, &crd::plans()).await;
    let before = ctx.controller_requests().await;
    let controller = ctx.controller().start();
    ctx.wait_until_working(&controller).await;
    assert!(controller.terminate().await.success());
    assert_eq!(writes_since(&ctx, &before).await, Vec::<String>::new());

    // One that prunes our fields cannot be used, and an event says who can help, and how.
    serve(&ctx, &foreign()).await;
    let controller = ctx.controller().start();
    assert_eq!(controller.ended(SOON).await.code(), Some(1));
    for text in [
        "spec.suspend",
        "spec.maxConcurrent",
        "apply the output of `refit crd`, or grant the verb update",
    ] {
        assert!(
            controller.log().contains(text),
            "{text:?} is not in\n{}",
            controller.log()
        );
    }

    // One that is not there is waited for.
    for argument in ["--manage-crd=true", "--manage-crd=false"] {
        take_away(&ctx).await;
        let looks = async || {
            ctx.controller_requests()
                .await
                .count("get", "customresourcedefinitions")
        };
        let before = looks().await;
        let controller = ctx.controller().arg(argument).start();
        wait::eventually("it looks more than once", SOON, async || {
            match looks().await - before {
                0..=2 => Err("it does not".to_owned()),
                _ => Ok(()),
            }
        })
        .await;
        assert!(controller.is_running());
        serve(&ctx, &crd::plans()).await;
        ctx.wait_until_working(&controller).await;
        assert!(controller.terminate().await.success());
    }
}

#[tokio::test]
async fn a_definition_that_is_taken_away_and_comes_back_is_used_again() {
    let never = |nodes: NodeSet| nodes.steer("upgrade.run-delay", "never");
    let harness = Harness::on(TestContext::alone().await, ["a"], never).await;
    let (ctx, a) = (&harness.ctx, harness.node("a"));
    let controller = ctx.start_and_warm_up().await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, cordon: true, upgrade: {image: i}}";
    ctx.plan(&plan("before", spec)).await;
    harness.upgrading("before", "a").await;
    assert!(is_cordoned(&ctx.node(&a).await));

    // All Plans are gone with it, and so is the reason to keep nodes cordoned once nothing runs there. Kubernetes collects
    // the Job of a Plan that is gone, sooner or later; the controller lets it go on.
    take_away(ctx).await;
    controller.logs("lacks fields; refit writes no Plan", SOON).await;
    controller.logs("missing=the definition itself", SOON).await;
    harness.release("a").await;
    ctx.node_until(&a, "is released", SOON, is_free).await;
    let away = ctx.controller_requests().await;
    let deletes = away.writes().filter(|it| it.verb == "delete").collect::<Vec<_>>();
    assert!(deletes.is_empty(), "{deletes:#?}");

    // It is back, and gone on with.
    for round in 0..2 {
        if round > 0 {
            take_away(ctx).await;
        }
        let looks = async || controller.log().matches("kind=Plan").count();
        let before = looks().await;
        wait::until("Plans are looked for in vain", looks, |it| *it > before).await;
        serve(ctx, &crd::plans()).await;
        let name = format!("back-{round}");
        ctx.plan(&plan(&name, "{version: v1, upgrade: {image: i}}")).await;
        let resolved = |plan: &Plan| status(plan).latest_version.is_some();
        ctx.plan_until(&name, "is seen", SOON, resolved).await;
    }
    ctx.plan(&plan("after", spec)).await;
    harness.complete("after").await;
    let node = ctx.node_until(&a, "is released", SOON, is_free).await;
    let notes = node.metadata.annotations.unwrap_or_default();
    let left: Vec<_> = notes.keys().filter(|key| key.contains("refit.rs/")).collect();
    assert_eq!(left, ["refit.rs/labelled-jobs"], "{notes:?}");
    assert_eq!(ctx.jobs_of("before").await.len(), 0);
    assert!(controller.is_running());
}
