//! Permissions of a drain: it uses exactly those of the shipped roles, and no more than those of
//! system-upgrade-controller's role. A missing permission is reported before anything is changed.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::side_by_side::daemon_set;
use super::{CommandOutput, DrainHarness, Tool, finish};
use crate::harness::is_cordoned;
use crate::testenv::audit::{Request, Requests};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::manifest::{Manifests, TEST_LABEL};
use crate::testenv::wait::{self, SOON};

/// Permissions, each as verb and resource with its group: `get nodes.`, `patch plans.upgrade.cattle.io`.
fn permissions(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut permissions = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                permissions.extend(rule.verbs.iter().map(|verb| format!("{verb} {resource}.{group}")));
            }
        }
    }
    permissions
}

fn used(requests: &Requests) -> BTreeSet<String> {
    let permission = |it: &Request| format!("{} {}.{}", it.verb, it.resource, it.group);
    requests.0.iter().map(permission).collect()
}

/// Everything that a drain may encounter: a DaemonSet, a node selector, a budget, two budgets, a delete, a Plan.
async fn everything(harness: &DrainHarness) {
    harness.guard().await;
    harness
        .budget("second", "web", json!({ "minAvailable": 0 }), 1)
        .await;
    let own = harness.pod("one", "own", json!({ "mirror": true })).await;
    harness.phase("own", "Running").await;
    let env = harness.plan_env("k3s", "one", Some(&own)).await;
    let node = harness.node("one");
    let drain = async |flags: &[&str]| -> CommandOutput {
        let args = [&["drain", node.as_str()], flags].concat();
        let mut command = harness.command(Tool::Refit, &args);
        command.envs(&env);
        finish(command).await
    };
    let out = drain(&["--timeout=120s"]).await;
    assert!(
        out.last_line().contains("more than one PodDisruptionBudget"),
        "{out:?}"
    );
    harness.open("second").await;
    wait::gone(harness.budgets(), "second", SOON).await;
    let out = drain(&["--timeout=20s"]).await;
    assert!(out.last_line().contains("PodDisruptionBudget guard"), "{out:?}");
    let out = drain(&["--disable-eviction"]).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(harness.run(Tool::Refit, &["uncordon", &node]).await.code, Some(0));
    assert_eq!(harness.run(Tool::Refit, &["cordon", &node]).await.code, Some(0));
}

async fn daemon(harness: &DrainHarness) {
    daemon_set(harness, "one", "daemon").await;
    let out = harness.drain("one", &[]).await;
    assert_eq!(out.code, Some(1));
    assert!(out.last_line().contains("DaemonSet-managed Pods"), "{out:?}");
}

async fn by_selector(harness: &DrainHarness) {
    let node = harness.node("one");
    harness.ctx.label_node(&node, "drain", Some(&node)).await;
    let selector = format!("drain={node}");
    let out = harness
        .run(Tool::Refit, &["drain", "-l", &selector, "--ignore-daemonsets"])
        .await;
    assert_eq!(out.code, Some(0), "{out:?}");
}

/// A pod that its budget protects is deleted at the timeout, and an event tells whoever looks after it.
async fn deleted_at_the_timeout(harness: &DrainHarness) {
    harness.pods("one", ["db-1"], json!({ "app": "db" })).await;
    harness.budget("db", "db", json!({ "minAvailable": 1 }), 1).await;
    let flags = ["--timeout=10s", "--after-timeout=delete", "--ignore-daemonsets"];
    let out = harness.drain("one", &flags).await;
    let message = format!(
        "pod {}/db-1 is deleted: it could not be evicted within 10s",
        harness.ctx.namespace()
    );
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stderr.contains(&format!("Warning: {message}\n")), "{out:?}");
    let events = Api::<Event>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let of_drain = events
        .iter()
        .filter(|it| it.reason.as_deref() == Some("DrainTimeout"));
    let told: Vec<_> = of_drain
        .map(|it| (it.involved_object.name.as_deref(), it.message.as_deref()))
        .collect();
    assert_eq!(told, [(Some("db-1"), Some(message.as_str()))]);
}

#[tokio::test]
async fn a_drain_does_what_the_shipped_roles_allow_and_nothing_else() {
    let harness = DrainHarness::new(&["one"]).await;
    everything(&harness).await;
    daemon(&harness).await;
    by_selector(&harness).await;
    deleted_at_the_timeout(&harness).await;
    let requests = harness.drainer_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());

    let client = &harness.ctx.client;
    let role = Api::<ClusterRole>::all(client.clone())
        .get(&harness.ctx.local_name("system-upgrade-controller-drainer"))
        .await
        .unwrap();
    let mut allowed = permissions(&role.rules.unwrap());
    let deleter = Api::<ClusterRole>::all(client.clone())
        .get(&harness.ctx.local_name("system-upgrade-controller-pod-deleter"))
        .await
        .unwrap();
    allowed.extend(permissions(&deleter.rules.unwrap()));
    let own = Api::<Role>::namespaced(client.clone(), harness.ctx.namespace())
        .get("system-upgrade")
        .await
        .unwrap();
    allowed.extend(permissions(&own.rules.unwrap()));
    // Permissions that every user has.
    let mut used = used(&requests);
    used.remove("create selfsubjectaccessreviews.authorization.k8s.io");
    assert!(used.is_subset(&allowed), "{:?}", used.difference(&allowed));
    // Needed by kubectl on Windows nodes, and by `prepare` of k3s-upgrade and rke2-upgrade.
    let unused: Vec<_> = allowed.difference(&used).cloned().collect();
    assert_eq!(unused, ["get plans.upgrade.cattle.io", "get pods."]);
}

#[tokio::test]
async fn under_system_upgrade_controllers_role_only_the_names_of_budgets_are_refused() {
    let harness = DrainHarness::on(TestContext::with(Manifests::Suc).await, &["one"]).await;
    everything(&harness).await;
    daemon(&harness).await;
    let requests = harness.drainer_requests().await;
    let refused = requests.forbidden().into_iter();
    let refused: BTreeSet<_> = refused.map(|it| format!("{} {}", it.verb, it.resource)).collect();
    let refused: Vec<_> = refused.into_iter().collect();
    assert_eq!(refused, ["list poddisruptionbudgets"]);
}

/// An account with these rules on the whole cluster.
async fn account(harness: &DrainHarness, name: &str, rules: Value) -> std::path::PathBuf {
    let (client, namespace) = (&harness.ctx.client, harness.ctx.namespace());
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    create(&accounts, json!({ "metadata": { "name": name } })).await;
    let role = harness.ctx.local_name(name);
    let labels = json!({ TEST_LABEL: namespace });
    let object =
        json!({ "kind": "ClusterRole", "metadata": { "name": role, "labels": labels }, "rules": rules });
    create(&Api::<ClusterRole>::all(client.clone()), object.clone()).await;
    let binding = json!({
        "metadata": { "name": role, "labels": labels },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
    });
    create(&Api::<ClusterRoleBinding>::all(client.clone()), binding.clone()).await;
    harness.ctx.in_force(&[object, binding]).await;
    let token = harness.ctx.token(name).await;
    harness.ctx.write_kubeconfig(name, &token)
}

#[tokio::test]
async fn a_missing_permission_is_reported_before_the_node_is_cordoned() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["a"], json!({})).await;
    let (node, namespace) = (harness.node("one"), harness.ctx.namespace().to_owned());
    let looks = json!([
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
    ]);
    let kubeconfig = account(&harness, "looks", looks).await;
    let cordons = json!([
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
    ]);
    let cordons = account(&harness, "cordons", cordons).await;
    let drain = async |kubeconfig: &std::path::Path, flags: &[&str]| {
        let args = [&["drain", node.as_str()], flags].concat();
        let out = harness.run_as(Tool::Refit, kubeconfig, &args).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(!is_cordoned(&harness.ctx.node(&node).await), "{out:?}");
        out
    };
    // The roles are in force once reads succeed.
    wait::eventually("the account may look", SOON, async || {
        let out = drain(&kubeconfig, &[]).await;
        let last = out.last_line().to_owned();
        if last.contains("cannot list") || last.contains("cannot get") {
            Err(last)
        } else {
            Ok(())
        }
    })
    .await;
    let out = drain(&kubeconfig, &[]).await;
    let missing = format!("MissingPermission: patch nodes; create pods/eviction in namespace {namespace}");
    assert!(out.last_line().ends_with(&missing), "{out:?}");
    wait::eventually("the other account may cordon", SOON, async || {
        let out = drain(&cordons, &["--disable-eviction"]).await;
        let missing = format!("MissingPermission: delete pods in namespace {namespace}");
        if out.last_line().ends_with(&missing) {
            Ok(())
        } else {
            Err(out.stderr)
        }
    })
    .await;

    // kubectl reports it too, and ends with 0.
    let out = harness.run_as(Tool::Refit, &kubeconfig, &["cordon", &node]).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(
        out.last_line().contains("cannot patch resource \"nodes\""),
        "{out:?}"
    );
    assert_eq!(harness.on_node("one").await.get("a"), Some(&false));
}

#[tokio::test]
async fn an_account_without_permissions_gets_an_error_that_says_so() {
    let harness = DrainHarness::new(&["one"]).await;
    let kubeconfig = account(&harness, "nothing", json!([])).await;
    for verb in ["drain", "cordon", "uncordon"] {
        let out = harness
            .run_as(Tool::Refit, &kubeconfig, &[verb, &harness.node("one")])
            .await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.last_line().contains("MissingPermission: nodes"), "{out:?}");
        assert!(
            out.last_line().contains("cannot get resource \"nodes\""),
            "{out:?}"
        );
    }
    assert_eq!(harness.get("one").await.name_any(), harness.node("one"));
}
