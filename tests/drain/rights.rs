//! What a drain may do, and what it does: exactly what the shipped roles allow; no more than system-upgrade-controller's
//! role allows; and what is missing is said before anything is changed.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role};
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::{Value, json};

use super::side_by_side::daemon_set;
use super::{Bench, Said, Tool, finish};
use crate::scene::is_cordoned;
use crate::support::audit::Requests;
use crate::support::faults::Rule;
use crate::support::manifest::{Manifests, TEST_LABEL};
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::create;

/// Verb, group and resource.
type Right = (String, String, String);

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    rights.insert((verb.clone(), group.clone(), resource.clone()));
                }
            }
        }
    }
    rights
}

fn right(verb: &str, group: &str, resource: &str) -> Right {
    (verb.to_owned(), group.to_owned(), resource.to_owned())
}

fn used(requests: &Requests) -> BTreeSet<Right> {
    requests
        .0
        .iter()
        .map(|it| right(&it.verb, &it.group, &it.resource))
        .collect()
}

/// All that a drain can come across: a DaemonSet, a selector of nodes, a budget, two budgets, a delete, a Plan.
async fn everything(bench: &Bench) {
    bench.pods("one", ["web-1"], json!({ "app": "web" })).await;
    bench
        .budget("guard", "web", json!({ "minAvailable": 1 }), 1)
        .await;
    bench
        .budget("second", "web", json!({ "minAvailable": 0 }), 1)
        .await;
    let own = bench.pod("one", "own", json!({ "mirror": true })).await;
    bench.phase("own", "Running").await;
    let env = bench.plan_env("k3s", "one", Some(&own)).await;
    let node = bench.node("one");
    let drain = async |flags: &[&str]| -> Said {
        let args: Vec<_> = ["drain", node.as_str()].iter().chain(flags).copied().collect();
        let mut command = bench.command(Tool::Refit, &args);
        command.envs(&env);
        finish(command).await
    };
    let out = drain(&["--timeout=5s"]).await;
    assert!(
        out.last_line().contains("more than one PodDisruptionBudget"),
        "{out:?}"
    );
    bench.open("second").await;
    wait::gone(bench.budgets(), "second", SOON).await;
    let out = drain(&["--timeout=7s"]).await;
    assert!(out.last_line().contains("PodDisruptionBudget guard"), "{out:?}");
    let out = drain(&["--disable-eviction"]).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(bench.run(Tool::Refit, &["uncordon", &node]).await.code, Some(0));
    assert_eq!(bench.run(Tool::Refit, &["cordon", &node]).await.code, Some(0));
}

async fn daemon(bench: &Bench) {
    daemon_set(bench, "one", "daemon").await;
    let out = bench.drain("one", &[]).await;
    assert_eq!(out.code, Some(1));
    assert!(out.last_line().contains("DaemonSet-managed Pods"), "{out:?}");
}

async fn by_selector(bench: &Bench) {
    let node = bench.node("one");
    bench.world.label_node(&node, "drain", Some(&node)).await;
    let selector = format!("drain={node}");
    let out = bench
        .run(Tool::Refit, &["drain", "-l", &selector, "--ignore-daemonsets"])
        .await;
    assert_eq!(out.code, Some(0), "{out:?}");
}

#[tokio::test]
async fn a_drain_does_what_the_shipped_roles_allow_and_nothing_else() {
    let bench = Bench::new(&["one"]).await;
    everything(&bench).await;
    daemon(&bench).await;
    by_selector(&bench).await;
    let requests = bench.drainer_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());

    let client = &bench.world.client;
    let role = Api::<ClusterRole>::all(client.clone())
        .get(&bench.world.local_name("system-upgrade-controller-drainer"))
        .await
        .unwrap();
    let mut allowed = rights(&role.rules.unwrap());
    let own = Api::<Role>::namespaced(client.clone(), bench.world.namespace())
        .get("system-upgrade")
        .await
        .unwrap();
    allowed.extend(rights(&own.rules.unwrap()));
    // What everybody may.
    let mut used = used(&requests);
    used.remove(&right(
        "create",
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
    ));
    assert!(used.is_subset(&allowed), "{:?}", used.difference(&allowed));
    // What kubectl needs on Windows nodes, and what `prepare` of k3s-upgrade and rke2-upgrade reads.
    let unused: Vec<_> = allowed.difference(&used).cloned().collect();
    assert_eq!(
        unused,
        [
            right("get", "", "pods"),
            right("get", "upgrade.cattle.io", "plans")
        ]
    );
}

#[tokio::test]
async fn under_system_upgrade_controllers_role_only_the_note_on_the_pod_is_refused() {
    let bench = Bench::on(World::with(Manifests::Suc).await, &["one"]).await;
    everything(&bench).await;
    daemon(&bench).await;
    let requests = bench.drainer_requests().await;
    let refused: BTreeSet<_> = requests
        .forbidden()
        .into_iter()
        .map(|it| (it.verb.clone(), it.resource.clone()))
        .collect();
    let refused: Vec<_> = refused
        .iter()
        .map(|(verb, resource)| (verb.as_str(), resource.as_str()))
        .collect();
    assert_eq!(
        refused,
        [
            ("list", "poddisruptionbudgets"),
            ("patch", "pods"),
            ("patch", "pods/status")
        ]
    );
}

/// An account of its own, with these rules on the whole cluster.
async fn account(bench: &Bench, name: &str, rules: Value) -> std::path::PathBuf {
    let (client, namespace) = (&bench.world.client, bench.world.namespace());
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    create(&accounts, json!({ "metadata": { "name": name } })).await;
    let role = bench.world.local_name(name);
    let labels = json!({ TEST_LABEL: namespace });
    let object = json!({ "metadata": { "name": role, "labels": labels }, "rules": rules });
    create(&Api::<ClusterRole>::all(client.clone()), object).await;
    let binding = json!({
        "metadata": { "name": role, "labels": labels },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
    });
    create(&Api::<ClusterRoleBinding>::all(client.clone()), binding).await;
    let token = bench.world.token(name).await;
    bench.world.write_kubeconfig(name, &token)
}

#[tokio::test]
async fn what_is_missing_is_said_before_the_node_is_cordoned() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["a"], json!({})).await;
    let (node, namespace) = (bench.node("one"), bench.world.namespace().to_owned());
    let looks = json!([
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
    ]);
    let kubeconfig = account(&bench, "looks", looks).await;
    let cordons = json!([
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
    ]);
    let cordons = account(&bench, "cordons", cordons).await;
    let drain = async |kubeconfig: &std::path::Path, flags: &[&str]| {
        let args: Vec<_> = ["drain", node.as_str()].iter().chain(flags).copied().collect();
        let mut command = bench.command(Tool::Refit, &args);
        command.env("KUBECONFIG", kubeconfig);
        let out = finish(command).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(!is_cordoned(&bench.world.node(&node).await), "{out:?}");
        out
    };
    // The roles are in force once they let it look.
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

    // kubectl says so too, and ends with 0.
    let mut command = bench.command(Tool::Refit, &["cordon", &node]);
    command.env("KUBECONFIG", &kubeconfig);
    let out = finish(command).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(
        out.last_line().contains("cannot patch resource \"nodes\""),
        "{out:?}"
    );

    // Where one may not even ask, it is done dry.
    let faults = bench.world.faults(1).await;
    faults.add(Rule::on("create", "selfsubjectaccessreviews").answer(403));
    let out = drain(&faults.kubeconfig_for(&kubeconfig), &[]).await;
    let last = out.last_line();
    assert!(
        last.contains("MissingPermission: ") && last.contains("cannot patch resource \"nodes\""),
        "{out:?}"
    );
    assert!(
        last.contains("cannot create resource \"pods/eviction\""),
        "{out:?}"
    );
    assert_eq!(bench.on_node("one").await.get("a"), Some(&false));
}

#[tokio::test]
async fn an_account_that_may_nothing_is_told_so() {
    let bench = Bench::new(&["one"]).await;
    let kubeconfig = account(&bench, "nothing", json!([])).await;
    for verb in ["drain", "cordon", "uncordon"] {
        let mut command = bench.command(Tool::Refit, &[verb, &bench.node("one")]);
        command.env("KUBECONFIG", &kubeconfig);
        let out = finish(command).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.last_line().contains("MissingPermission: nodes"), "{out:?}");
        assert!(
            out.last_line().contains("cannot get resource \"nodes\""),
            "{out:?}"
        );
    }
    assert_eq!(
        bench.world.node(&bench.node("one")).await.name_any(),
        bench.node("one")
    );
}
