//! What the policies of the component refuse.

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{KUBEVIRT, MEDIK, Maintenances};
use crate::testenv::wait::{self, SOON};

/// The API server evaluates everything, and stores nothing.
fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// Waits until the API server refuses an object, and returns why. For up to half a minute after a kind was defined, the
/// API server does not know it as the parameter of a policy.
pub(crate) async fn refused(api: &Api<DynamicObject>, object: &DynamicObject) -> String {
    wait::eventually("the object is refused", SOON, async || {
        match api.create(&dry_run(), object).await {
            Err(error) => Ok(error.to_string()),
            Ok(_) => Err("it is not".to_owned()),
        }
    })
    .await
}

#[tokio::test]
async fn a_second_object_for_a_node_is_refused_whatever_the_kinds_of_the_two() {
    let test = Maintenances::new(["one", "two", "three"]).await;
    test.begin(MEDIK, "first", "one").await;
    test.begin(KUBEVIRT, "older", "two").await;
    for group in [MEDIK, KUBEVIRT] {
        for (node, name) in [("one", "second"), ("two", "second"), ("three", "third")] {
            let object = test.object(group, name, node);
            if node == "three" {
                test.api(group).create(&dry_run(), &object).await.unwrap();
                continue;
            }
            let why = refused(&test.api(group), &object).await;
            let expected = format!(
                "invalid nodeName, a NodeMaintenance for node {} already exists",
                test.harness.node(node)
            );
            assert!(why.contains(&expected), "{group}, {node}: {why}");
        }
    }

    // Nothing keeps the first one from being changed, except to another node, and the API server itself says that its name is
    // taken.
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": "disks" } } }));
    let first = test.api(MEDIK);
    first
        .patch("first", &PatchParams::default(), &labels)
        .await
        .unwrap();
    let moves = Patch::Merge(json!({ "spec": { "nodeName": "another" } }));
    let only_tried = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let why = wait::eventually("another node is refused", SOON, async || {
        match first.patch("first", &only_tried, &moves).await {
            Err(error) => Ok(error.to_string()),
            Ok(_) => Err("it is not".to_owned()),
        }
    })
    .await;
    assert!(why.contains("updating spec.NodeName isn't allowed"), "{why}");
    let again = first
        .create(&PostParams::default(), &test.object(MEDIK, "first", "one"))
        .await;
    assert!(
        matches!(&again, Err(kube::Error::Api(status)) if status.reason == "AlreadyExists"),
        "{again:?}"
    );
    let why = refused(&test.api(KUBEVIRT), &test.object(KUBEVIRT, "first", "one")).await;
    assert!(why.contains("a NodeMaintenance for node"), "{why}");

    test.end(MEDIK, "first").await;
    let second = test.object(KUBEVIRT, "second", "one");
    wait::eventually("another object may have the node", SOON, async || {
        let created = test.api(KUBEVIRT).create(&dry_run(), &second).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;
}
