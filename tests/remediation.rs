//! `pauseRemediation` on a real API server: the label, the Lease of medik8s and the Machine of Cluster API, with the shipped
//! roles, and through a kill.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use refit_api::Plan;
use serde_json::{Value, json};

use crate::harness::{Harness, apply_component};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, done};
use crate::testenv::plan::says;
use crate::testenv::wait::{self, SOON};

const EXCLUDE: &str = "remediation.medik8s.io/exclude-from-remediation";
const SKIP: &str = "cluster.x-k8s.io/skip-remediation";

scenarios! {
    real {
        a_plan_waits_for_a_foreign_lease_and_takes_back_all_that_pauses_remediation_through_a_kill,
    }
}

fn machines(harness: &Harness) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "cluster.x-k8s.io".to_owned(),
        version: "v1beta1".to_owned(),
        api_version: "cluster.x-k8s.io/v1beta1".to_owned(),
        kind: "Machine".to_owned(),
        plural: "machines".to_owned(),
    };
    Api::namespaced_with(harness.ctx.client.clone(), harness.ctx.namespace(), &resource)
}

/// The Machine of a node, and a definition with what is read of it, in the older version only.
async fn make_machine(harness: &Harness, node: &str) {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({
        "metadata": { "name": "machines.cluster.x-k8s.io" },
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": { "kind": "Machine", "plural": "machines", "singular": "machine", "listKind": "MachineList" },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": any } }],
        },
    });
    create::<CustomResourceDefinition>(&Api::all(harness.ctx.client.clone()), definition).await;
    let machine: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": { "name": "m" },
        "status": { "nodeRef": { "name": harness.node(node) } },
    }))
    .unwrap();
    let created = async || {
        let created = machines(harness).create(&PostParams::default(), &machine).await;
        created.map(drop).map_err(|error| error.to_string())
    };
    wait::eventually("the kind is served", SOON, created).await;
    let annotations = json!({
        "cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": harness.ctx.namespace(),
    });
    let edit = json!({ "metadata": { "annotations": annotations } });
    harness.ctx.edit_node(&harness.node(node), edit).await;
}

/// The label of a node, the holder of its Lease, and what keeps its Machine from being remediated.
async fn paused(harness: &Harness, node: &str) -> [Value; 3] {
    let machine = machines(harness).get("m").await.unwrap();
    let lease = leases(harness).get_opt(&lease_of(harness, node)).await.unwrap();
    let labels = harness.get(node).await.metadata.labels.unwrap_or_default();
    [
        json!(labels.get(EXCLUDE)),
        json!(lease.and_then(|lease| lease.spec?.holder_identity)),
        json!(machine.metadata.annotations.unwrap_or_default().get(SKIP)),
    ]
}

fn leases(harness: &Harness) -> Api<Lease> {
    Api::namespaced(harness.ctx.client.clone(), "medik8s-leases")
}

fn lease_of(harness: &Harness, node: &str) -> String {
    format!("node-{}", harness.node(node))
}

async fn a_plan_waits_for_a_foreign_lease_and_takes_back_all_that_pauses_remediation_through_a_kill() {
    let ctx = TestContext::alone().await;
    let harness = Harness::on(ctx, ["one", "two"], crate::harness::held).await;
    make_machine(&harness, "one").await;
    let controller = harness.ctx.controller().start();
    harness
        .plan_with("p", json!({ "pauseRemediation": true, "concurrency": 2 }))
        .await;
    let lacks = |plan: &Plan| says(plan, "Complete").starts_with("False/MissingPermission/");
    let lacking = harness
        .ctx
        .plan_until("p", "lacks a permission", SOON, lacks)
        .await;
    let text = "create leases.coordination.k8s.io in namespace medik8s-leases";
    assert!(says(&lacking, "Complete").contains(text), "{lacking:?}");
    assert_eq!(harness.made_for().await, [""; 0], "no node has started");

    apply_component(&harness.ctx, "remediation", &["namespaces.yaml"]).await;
    let now = harness.ctx.now();
    let foreign = json!({
        "metadata": { "name": lease_of(&harness, "two") },
        "spec": {
            "holderIdentity": "self-node-remediation", "leaseDurationSeconds": 3600,
            "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}"),
        },
    });
    create::<Lease>(&leases(&harness), foreign).await;
    apply_component(&harness.ctx, "remediation-machines", &["rbac.yaml"]).await;
    apply_component(&harness.ctx, "remediation", &["rbac.yaml"]).await;
    let waits = harness.held_up("p", "two", "NodeBusy").await;
    let begins = format!(
        "spec.pauseRemediation: self-node-remediation holds Lease medik8s-leases/{} until 20",
        lease_of(&harness, "two")
    );
    assert!(waits.message.unwrap_or_default().starts_with(&begins));

    let ours = format!("refit/{}/system-upgrade-controller", harness.ctx.namespace());
    let all = [json!("true"), json!(ours), json!(ours)];
    let state = async || paused(&harness, "one").await;
    wait::until("the node is left alone", state, |now| *now == all).await;
    controller.kill();
    let _controller = controller.start_again();
    harness.release("one").await;
    let one = harness.node("one");
    harness
        .ctx
        .node_until(&one, "is done", SOON, |node| done(node, "p").is_some())
        .await;
    wait::until("nothing is left", state, |now| now.iter().all(Value::is_null)).await;

    // The Lease of the other expires.
    let past = json!({ "spec": { "renewTime": "2020-01-01T00:00:00.000000Z" } });
    leases(&harness)
        .patch(
            &lease_of(&harness, "two"),
            &PatchParams::default(),
            &Patch::Merge(past),
        )
        .await
        .unwrap();
    harness.release("two").await;
    harness.complete("p").await;
    let state = async || paused(&harness, "two").await;
    wait::until("nothing is left", state, |now| now.iter().all(Value::is_null)).await;
    let annotations = harness.get("two").await.metadata.annotations.unwrap_or_default();
    assert!(
        !annotations.contains_key("refit.rs/remediation"),
        "{annotations:?}"
    );
}
