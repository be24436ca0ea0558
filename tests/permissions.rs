//! Permissions of the controller: no request is refused under the shipped roles, no rule of them is unused, and each that is
//! missing is named.

mod roles;
mod rules;
mod secrets;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use refit_api::Plan;
use serde_json::{Value, json};

use crate::rollout::{PLAN, RollOut, Shape, line};
use crate::testenv::audit::Requests;
use crate::testenv::channel::ChannelServer;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, done, find_condition};
use crate::testenv::faults::Rule;
use crate::testenv::manifest::Manifests;
use crate::testenv::plan::status;
use crate::testenv::wait::{self, SOON};

/// Reason of condition and event.
const MISSING: &str = "MissingPermission";

/// The manifests' 99 would keep a broken Job busy for hours.
const BACKOFF_LIMIT: &str = "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT";

const SHAPE: Shape = Shape {
    nodes: 4,
    concurrency: 2,
    run: Duration::from_millis(200),
};

/// A roll-out with a channel, Secrets, a window, an exclusive Plan with prepare and delay, a failure and the attempt
/// after it, refit's own fields, the next version, and the deletion of the Plan while nodes are being upgraded.
async fn whole_roll_out(rollout: &RollOut) {
    let ctx = &rollout.ctx;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "https://example.com/releases/v1.2.3+k3s1");
    let secret =
        json!({ "metadata": { "name": PLAN, "namespace": ctx.namespace() }, "stringData": { "a": "1" } });
    create(&ctx.secrets(), secret).await;
    let nodes = ctx.my_nodes().await;
    let broken = nodes[0].metadata.name.clone().expect("a name");
    rollout
        .kubelet
        .behaviour(&broken, &[("upgrade.exit-code", "1")])
        .await;

    let spec = json!({
        "concurrency": 2,
        "channel": channel.url("/stable"),
        "nodeSelector": {},
        "serviceAccountName": "system-upgrade",
        "secrets": [{ "name": PLAN, "path": "/run/secret" }],
        "cordon": true,
        "exclusive": true,
        "window": {
            "days": ["mo", "tu", "we", "th", "fr", "sa", "su"],
            "startTime": "00:00", "endTime": "23:59:59", "timeZone": "UTC",
        },
        "postCompleteDelay": "1s",
        "postCompleteLabels": { "example.com/version": "$(LATEST_VERSION)" },
        "maxConcurrent": "50%",
        "prepare": { "image": "example.com/prepare" },
        "upgrade": { "image": "example.com/upgrade" },
    });
    apply(ctx, PLAN, spec).await;
    let one_failed = |plan: &Plan| {
        let counts = status(plan).nodes.unwrap_or_default();
        (counts.failed, counts.done) == (1, 3)
    };
    ctx.plan_until(PLAN, "has failed on one node only", SOON, one_failed)
        .await;
    let failures = async || ctx.events_with("JobFailed").await.len();
    wait::until("the failure has one event", failures, |count| *count == 1).await;

    // A user requests another attempt.
    rollout.kubelet.behaviour(&broken, &[]).await;
    ctx.annotate_node(&broken, "refit.rs/retry", Some(PLAN)).await;
    ctx.plan_complete(PLAN, SOON).await;
    assert_eq!(rollout.kubelet.runs(&broken, "upgrade").await, 2);

    // The next version, which the Secret brings about.
    let before = status(&ctx.plans().get(PLAN).await.expect("the Plan")).latest_hash;
    let edit = json!({ "stringData": { "a": "2" } });
    ctx.secrets()
        .patch(PLAN, &PatchParams::default(), &Patch::Merge(edit))
        .await
        .expect("the Secret is edited");
    let is_at_next = |plan: &Plan| {
        let is_complete = find_condition(plan, "Complete").is_some_and(|it| it.status == "True");
        status(plan).latest_hash != before && is_complete
    };
    let plan = ctx
        .plan_until(PLAN, "is Complete with another hash", SOON, is_at_next)
        .await;
    let hash = status(&plan).latest_hash.expect("a hash");
    for node in ctx.my_nodes().await {
        assert_eq!(done(&node, PLAN).as_ref(), Some(&hash));
        let labels = node.metadata.labels.unwrap_or_default();
        assert_eq!(labels["example.com/version"], "v1.2.3-k3s1");
    }

    // A Plan that is deleted during an upgrade leaves only the marks of nodes that are done.
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        rollout
            .kubelet
            .behaviour(name, &[("upgrade.run-delay", "1m")])
            .await;
    }
    let edit = json!({ "spec": { "version": "v2.0.0" } });
    ctx.edit_plan(PLAN, edit).await;
    let cordoned = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let nodes_now = async || ctx.my_nodes().await;
    wait::until("a node is cordoned for it", nodes_now, |nodes| {
        nodes.iter().any(cordoned)
    })
    .await;
    ctx.plans()
        .delete(PLAN, &DeleteParams::default())
        .await
        .expect("the Plan is deleted");
    wait::eventually("nothing is left of the Plan", SOON, async || {
        let jobs = ctx.jobs_of(PLAN).await.len();
        let nodes = ctx.my_nodes().await;
        let held: Vec<_> = nodes.iter().filter(|node| is_held(node)).collect();
        if jobs == 0 && held.is_empty() {
            Ok(())
        } else {
            Err(format!("{jobs} Jobs; {held:?}"))
        }
    })
    .await;
}

/// The requests that only a Plan makes that reboots its nodes and waits for evicted workloads.
async fn reboots(rollout: &RollOut) {
    let ctx = &rollout.ctx;
    let behave = async |steering: &[(&str, &str)]| {
        for node in ctx.my_nodes().await {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            rollout.kubelet.behaviour(name, steering).await;
        }
    };
    behave(&[("upgrade.run-delay", "never")]).await;
    let spec = json!({
        "concurrency": 2, "version": "v1", "nodeSelector": {}, "serviceAccountName": "system-upgrade",
        "cordon": true, "reboot": { "when": "Always" }, "settle": { "minReady": "0s", "workloads": true },
        "upgrade": { "image": "example.com/upgrade" },
    });
    apply(ctx, "reboots", spec).await;
    let (name, mut ledger) = wait::eventually("a node is held", SOON, async || {
        let nodes = ctx.my_nodes().await;
        let held = nodes.iter().find_map(|node| {
            let ledger = crate::harness::ledger(node).filter(|ledger| !ledger.holders.is_empty())?;
            Some((node.metadata.name.clone()?, ledger))
        });
        held.ok_or_else(|| "none is".to_owned())
    })
    .await;
    // A drain leaves the evicted workloads there. Neither exists by the time the controller looks for it.
    ledger.holders[0].evicted = vec!["ReplicaSet/shop/web".to_owned(), "StatefulSet/shop/db".to_owned()];
    ctx.annotate_node(&name, "refit.rs/cordon", Some(&ledger.to_text()))
        .await;
    behave(&[]).await;
    ctx.plan_complete("reboots", SOON).await;
    let pods = async || ctx.pods_with(refit_api::names::LABEL_ROLE).await.len();
    wait::until("no reboot Pod is left", pods, |left| *left == 0).await;
}

/// The request that is only made for a Job whose pod the API server refuses.
async fn refused_pod(rollout: &RollOut) {
    let ctx = &rollout.ctx;
    let spec = json!({
        "concurrency": 1, "version": "v1", "nodeSelector": {}, "serviceAccountName": "nobody",
        "upgrade": { "image": "example.com/upgrade" },
    });
    apply(ctx, "refused", spec).await;
    let is_said = |plan: &Plan| {
        let mut nodes = status(plan).active.unwrap_or_default().into_iter();
        let is_named = |text: &str| {
            text.contains("refuses the pod of Job") && text.contains("serviceaccount \"nobody\" not found")
        };
        nodes.any(|node| node.message.as_deref().is_some_and(is_named))
    };
    ctx.plan_until("refused", "has the words of the API server", SOON, is_said)
        .await;
    let deleted = ctx.plans().delete("refused", &DeleteParams::default()).await;
    deleted.expect("the Plan is deleted");
}

/// The node is cordoned, or has something of refit's on it.
fn is_held(node: &Node) -> bool {
    let ours = |(key, _): (&String, &String)| key.contains("refit.rs/");
    node.spec.as_ref().and_then(|spec| spec.unschedulable).is_some()
        || node.metadata.annotations.iter().flatten().any(ours)
}

async fn apply(ctx: &TestContext, name: &str, spec: Value) -> Plan {
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name }, "spec": spec,
    });
    let made = ctx.try_apply(plan).await;
    let made = made.unwrap_or_else(|error| panic!("{error:#}"));
    made.try_parse().expect("a Plan")
}

fn refused(requests: &Requests) -> Vec<String> {
    requests.forbidden().into_iter().map(line).collect()
}

/// Deletes the definition of the Plan, which the controller must register.
async fn unregister(ctx: &TestContext) -> Api<CustomResourceDefinition> {
    let crds = Api::<CustomResourceDefinition>::all(ctx.client.clone());
    let crd = refit_api::crd::NAME;
    crds.delete(crd, &DeleteParams::default())
        .await
        .expect("the definition is deleted");
    // The API server gives up on a definition whose storage had only just begun, until something about it changes.
    let mut looks = 0;
    wait::eventually("the definition is gone", SOON, async || {
        looks += 1;
        let again =
            json!({ "metadata": { "annotations": { "refit-test/looks": (looks / 20).to_string() } } });
        match crds
            .patch(crd, &PatchParams::default(), &Patch::Merge(again))
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Ok(_) => Err("it is there".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    crds
}

#[tokio::test]
async fn under_system_upgrade_controllers_own_roles_and_configuration_nothing_is_refused() {
    let ctx = TestContext::alone_with(Manifests::Suc).await;
    // These roles do not cover the ConfigMap refit, so it has no effect.
    let maps = Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace());
    let map = json!({ "metadata": { "name": "refit", "namespace": ctx.namespace() }, "data": { "freeze": "audit" } });
    create::<ConfigMap>(&maps, map).await;
    let rollout = RollOut::prepare(ctx, SHAPE).await;
    unregister(&rollout.ctx).await;
    let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
    controller.logs("watching", SOON).await;
    controller
        .logs("may not list and watch the ConfigMap refit", SOON)
        .await;
    whole_roll_out(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    assert_eq!(refused(&rollout.ctx.controller_requests().await), [""; 0]);
}

/// A verb on a resource in a namespace, as a rule grants it and a request uses it; the cluster is the namespace without
/// a name.
type Right = (String, String, String);

fn granted(rules: &[PolicyRule], namespace: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        let groups = rule.api_groups.as_deref().expect("a group");
        for (group, resource) in groups
            .iter()
            .flat_map(|group| rule.resources.iter().flatten().map(move |it| (group, it)))
        {
            for verb in &rule.verbs {
                rights.insert((namespace.to_owned(), qualified(group, resource), verb.clone()));
            }
        }
    }
    rights
}

fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

#[tokio::test]
async fn under_the_shipped_roles_nothing_is_refused_and_each_of_their_rules_is_used() {
    let rollout = RollOut::prepare(TestContext::alone().await, SHAPE).await;
    let ctx = &rollout.ctx;
    let namespace = ctx.namespace();
    let crds = unregister(ctx).await;
    let crd = refit_api::crd::NAME;

    // Each kind of write goes wrong once in a way that makes the controller look.
    let faults = ctx.faults(0).await;
    for (verb, resource) in [("patch", "plans/status"), ("create", "jobs"), ("patch", "nodes")] {
        faults.add(Rule::on(verb, resource).nth(2).lose_answer());
    }
    let setup = rollout.controller().through(&faults).env(BACKOFF_LIMIT, "0");
    // In a cluster, the controller looks for its own pod.
    let setup = setup.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    let controller = setup.start();
    controller.logs("watching", SOON).await;
    whole_roll_out(&rollout).await;
    reboots(&rollout).await;
    refused_pod(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));

    // An older definition is updated.
    let mut versions = crds.get(crd).await.expect("the definition").spec.versions;
    versions[0].additional_printer_columns = None;
    let edit = json!({ "spec": { "versions": versions } });
    crds.patch(crd, &PatchParams::default(), &Patch::Merge(edit))
        .await
        .expect("the definition is edited");
    let again = controller.start_again();
    again.leading().await;

    let requests = ctx.controller_requests().await;
    assert_eq!(refused(&requests), [""; 0]);
    let mut used = BTreeSet::new();
    for request in requests.0 {
        // Every account may create these, and get `/version`, which is no resource.
        if ["selfsubjectaccessreviews", ""].contains(&&*request.resource) {
            continue;
        }
        // The audit log gives a Namespace as its own namespace, and workloads are in any: both are granted on the cluster.
        let place = if request.resource == "namespaces" || request.group == "apps" {
            String::new()
        } else {
            request.namespace
        };
        used.insert((place, qualified(&request.group, &request.resource), request.verb));
    }
    let [cluster, role] = roles::rules(ctx).await;
    let writes_crd = Api::<ClusterRole>::all(ctx.client.clone());
    let writes_crd = writes_crd
        .get(&ctx.local_name("system-upgrade-controller-crd"))
        .await
        .expect("the ClusterRole of the component");
    let role_in = async |namespace: &str, name: &str| {
        let roles = Api::<Role>::namespaced(ctx.client.clone(), namespace);
        let role = roles.get(&ctx.local_name(name)).await;
        granted(&role.expect("the Role").rules.unwrap_or_default(), namespace)
    };
    let mut rights = granted(&cluster, "");
    rights.extend(granted(&writes_crd.rules.unwrap_or_default(), ""));
    rights.extend(granted(&role, namespace));
    rights.extend(role_in("default", "system-upgrade-controller-events").await);
    rights.extend(role_in("kube-system", "system-upgrade-controller-etcd").await);
    let (unused, missing): (Vec<_>, Vec<_>) = (
        rights.difference(&used).collect(),
        used.difference(&rights).collect(),
    );
    assert!(
        unused.is_empty() && missing.is_empty(),
        "unused: {unused:#?}; done without a rule: {missing:#?}"
    );
}

/// `kubectl apply -k deploy` creates the CRD, so the controller need not.
#[tokio::test]
async fn without_the_component_manage_crd_a_roll_out_ends_and_an_older_definition_is_named() {
    let rollout = RollOut::prepare(TestContext::alone_with(Manifests::Base).await, SHAPE).await;
    let ctx = &rollout.ctx;
    let controller = rollout.controller().env(BACKOFF_LIMIT, "0").start();
    controller.logs("watching", SOON).await;
    whole_roll_out(&rollout).await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    assert_eq!(refused(&ctx.controller_requests().await), [""; 0]);

    let crds = Api::<CustomResourceDefinition>::all(ctx.client.clone());
    let mut versions = crds
        .get(refit_api::crd::NAME)
        .await
        .expect("the definition")
        .spec
        .versions;
    let schema = versions[0]
        .schema
        .as_mut()
        .and_then(|it| it.open_api_v3_schema.as_mut());
    let fields = schema.and_then(|it| it.properties.as_mut()?.get_mut("spec")?.properties.as_mut());
    assert!(fields.expect("fields of the spec").remove("reboot").is_some());
    let edit = json!({ "spec": { "versions": versions } });
    crds.patch(refit_api::crd::NAME, &PatchParams::default(), &Patch::Merge(edit))
        .await
        .expect("the definition is edited");
    let again = controller.start_again();
    again.logs("lacks the fields spec.reboot", SOON).await;
    again.logs("overlays/manage-crd", SOON).await;
}
