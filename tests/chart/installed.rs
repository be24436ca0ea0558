//! The chart, and the commands of docs/install.md, from the installation to the end.

use serde_json::Value;

use super::cluster::{Cluster, is_available};
use super::{DEFINITION, NAME, NAMESPACE, Tools, documented, root};
use crate::testenv::wait;

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_upgraded_rolled_back_and_uninstalled_around_roll_outs() {
    let cluster = Cluster::new(3, 3).await;
    let tools = &cluster.tools;
    let deployment = format!("deployment {NAME}");
    let chart = format!("deploy/chart -n {NAMESPACE} --reset-then-reuse-values");
    let test = "the_chart_is_installed_upgraded_rolled_back_and_uninstalled_around_roll_outs";
    let steps = documented("deploy/chart/README.md", test);

    // Nothing of a release remains.
    let plans = "--create-namespace --set plans.workers.spec.version=v1";
    let error = tools.try_run(
        &tools.helm,
        &format!("install refit deploy/chart -n {NAMESPACE} {plans}"),
    );
    let error = error.expect_err("the cluster knows no Plans");
    assert!(error.contains("ensure CRDs are installed first"), "{error}");
    tools.script(root(), &steps["install"]);
    cluster
        .until("two replicas run", &deployment, is_available(2))
        .await;
    let nodes: Vec<String> = cluster.running().into_iter().map(|(_, node)| node).collect();
    assert_ne!(nodes[0], nodes[1], "on different nodes");
    let one = cluster.controller("one");
    cluster.leads("one").await;
    let other = cluster.controller("other");
    cluster.plan("v1");
    cluster.complete("v1").await;

    // In the middle of a roll-out the leader ends, and the release is upgraded.
    cluster.plan("v2");
    let has_begun =
        |plan: &Value| plan["status"]["latestVersion"] == "v2" && plan["status"]["nodes"]["applying"] == 1;
    cluster
        .until("a node is being upgraded", "plan agents", has_begun)
        .await;
    let before = cluster.job_uids();
    one.terminate().await;
    cluster.leads("other").await;
    tools.helm(&format!(
        "upgrade refit {chart} --set config.SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL=1h --set image.tag=v0.1.1"
    ));
    cluster.complete("v2").await;
    cluster
        .until("two replicas run", &deployment, is_available(2))
        .await;
    let after = cluster.job_uids();
    assert!(
        before.iter().all(|uid| after.contains(uid)),
        "no Job was replaced: {before:?} {after:?}"
    );
    assert_eq!(after.len(), 6, "one Job for each node and version");
    let images = |wanted: &str| {
        cluster
            .running()
            .iter()
            .all(|(image, _)| image == &format!("registry.example.com/refit:{wanted}"))
    };
    assert!(images("v0.1.1"), "{:?}", cluster.running());

    tools.script(root(), &steps["roll back"]);
    cluster
        .until("two replicas run", &deployment, is_available(2))
        .await;
    wait::holds("the old image runs", async || images("v0.1.0")).await;
    let map = tools.json(&format!("get configmap default-controller-env -n {NAMESPACE}"));
    assert_eq!(map["data"]["SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL"], "15m");

    tools.kubectl(&format!("delete plan agents -n {NAMESPACE}"));
    let is_clean = |nodes: &Value| !nodes.to_string().contains("refit.rs/");
    cluster
        .until("nodes have no annotation of refit", "nodes", is_clean)
        .await;
    other.terminate().await;
    // As if an earlier chart had created the definition, which was no part of its releases.
    let definition = format!("crd {DEFINITION}");
    // Another program has its Leases of nodes there: the namespace is not Helm's, and stays.
    tools.kubectl("create namespace medik8s-leases");
    tools.helm(&format!(
        "upgrade refit {chart} --set crds.create=false --set remediation.create=true"
    ));
    tools.kubectl("get role system-upgrade-controller-remediation -n medik8s-leases");
    tools.kubectl(&format!("label {definition} app.kubernetes.io/managed-by-"));
    tools.kubectl(&format!("annotate {definition} meta.helm.sh/release-name-"));
    let again = format!("upgrade refit {chart} --set crds.create=true");
    let error = tools.try_run(&tools.helm, &again).expect_err("not Helm's");
    assert!(error.contains("cannot be imported"), "{error}");
    let own = steps["own the definition"].trim_end();
    tools.script(root(), &format!("{own} --set crds.create=true"));
    tools.script(root(), &steps["upgrade"]);
    tools.script(root(), &steps["uninstall"]);
    cluster
        .until("the Deployment is gone", &deployment, Value::is_null)
        .await;
    let kinds =
        "deployments,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies";
    let left = tools.kubectl(&format!("get {kinds} -n {NAMESPACE} -o name"));
    let of_kubernetes = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
    assert_eq!(left.lines().collect::<Vec<_>>(), of_kubernetes);
    let wide = tools.kubectl("get clusterroles,clusterrolebindings -o name");
    assert!(!wide.contains("system-upgrade"), "{wide}");
    tools.kubectl(&format!("get {definition}"));
    let leases = tools.json("get namespace medik8s-leases");
    assert_eq!(leases["status"]["phase"], "Active");
    for node in tools.json("get nodes")["items"].as_array().unwrap() {
        assert!(node["spec"]["unschedulable"].is_null(), "{node}");
        let annotations = node["metadata"]["annotations"].to_string();
        assert!(!annotations.contains("refit.rs"), "{annotations}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_commands_install_roll_out_upgrade_and_uninstall() {
    let cluster = Cluster::new(1, 2).await;
    let tools = &cluster.tools;
    let dir = Tools::checkout();
    let test = "the_documented_commands_install_roll_out_upgrade_and_uninstall";
    let steps = documented("docs/install.md", test);
    let run = |step: &str| tools.script(dir.path(), &steps[step]);
    run("install");
    let of_refit = |image: &str| image == "registry.example.com/refit:v0.1.0";
    assert_eq!(
        cluster
            .running()
            .iter()
            .filter(|(image, _)| of_refit(image))
            .count(),
        2
    );
    let controller = cluster.controller("one");
    run("first roll-out");
    run("rehearse");
    let recipes = documented("docs/operations.md", test);
    for step in ["retry", "recipes"] {
        let script = recipes[step]
            .replace("PLAN", "hello")
            .replace("NODE", "agent-0000");
        tools.script(dir.path(), &script);
    }
    // Nothing had failed, so the annotation is still there.
    tools.kubectl("annotate node agent-0000 refit.rs/retry-");
    run("single file");
    run("upgrade");
    run("uninstall");
    drop(controller);
    for kind in [
        "namespace system-upgrade",
        "crd plans.upgrade.cattle.io",
        "clusterrole system-upgrade-controller",
    ] {
        assert_eq!(tools.json(&format!("get {kind}")), Value::Null, "{kind}");
    }
    run("labels");
    for node in tools.json("get nodes")["items"].as_array().unwrap() {
        let metadata = node["metadata"].to_string();
        assert!(
            !metadata.contains("upgrade.cattle.io") && !metadata.contains("refit.rs"),
            "{metadata}"
        );
    }
}
