//! What the policies of the component refuse.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{KUBEVIRT, MEDIK, Maintenances};
use crate::testenv::context::TestContext;
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

/// Takes the policies about second objects out of force.
pub(super) async fn allow_second_objects(ctx: &TestContext) {
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(ctx.client.clone());
    for kind in ["medik8s", "kubevirt"] {
        let name = format!("system-upgrade-maintenance-other-{kind}");
        bindings.delete(&name, &DeleteParams::default()).await.unwrap();
    }
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

    // Nothing keeps the first one from being changed, and the API server itself says that its name is taken.
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": "disks" } } }));
    let first = test.api(MEDIK);
    first
        .patch("first", &PatchParams::default(), &labels)
        .await
        .unwrap();
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
