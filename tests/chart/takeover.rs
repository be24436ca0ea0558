//! Taking over from system-upgrade-controller, which runs until refit is ready, and the way back.

use serde_json::Value;

use super::cluster::{Cluster, is_available};
use super::{NAME, NAMESPACE, REPOSITORY, Tools, documented, root};
use crate::testenv::wait;

/// system-upgrade-controller on a cluster of one server, with its roles, settings and Deployment.
async fn with_suc(agents: usize) -> (Cluster, (String, String)) {
    let cluster = Cluster::new(1, agents).await;
    let tools = &cluster.tools;
    tools.kubectl(&format!("create namespace {NAMESPACE}"));
    tools.kubectl("apply -f tests/fixtures/suc-rbac.yaml");
    tools.kubectl("apply -f tests/fixtures/suc-deployment.yaml");
    tools.kubectl("apply --server-side -f crds/plans.upgrade.cattle.io.yaml");
    cluster
        .until(
            "system-upgrade-controller runs",
            &format!("deployment {NAME}"),
            is_available(1),
        )
        .await;
    let suc = cluster.running().remove(0);
    assert!(suc.0.starts_with("rancher/system-upgrade-controller:"), "{suc:?}");
    (cluster, suc)
}

impl Cluster {
    /// A pod of refit is on the node and does not start, and system-upgrade-controller runs on.
    async fn keeps(&self, suc: &(String, String)) {
        let line = format!("get pods -n {NAMESPACE} -l app.kubernetes.io/name=refit");
        let on_nodes = async || {
            let pods = self.tools.json(&line);
            let all = pods["items"].as_array().into_iter().flatten();
            all.filter(|pod| pod["spec"]["nodeName"].is_string()).count()
        };
        wait::until("a pod of refit is on the node", on_nodes, |count| *count > 0).await;
        // The Deployment controller has seen that pod, which it counts, and would have taken the other away for it.
        let line = format!("get deployment {NAME} -n {NAMESPACE}");
        let counted = |deployment: &Value| {
            let status = &deployment["status"];
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && status["updatedReplicas"].as_u64() >= Some(1)
        };
        wait::until("it is counted", async || self.tools.json(&line), counted).await;
        let running = self.running();
        let events = format!("get events,pods -n {NAMESPACE} -o wide");
        assert!(
            running.contains(suc),
            "{running:?}\n{}",
            self.tools.kubectl(&events)
        );
    }

    /// Only refit runs, with both replicas.
    async fn is_taken_over(&self) {
        self.until("refit runs", &format!("deployment {NAME}"), is_available(2))
            .await;
        let of_refit = |running: &Vec<(String, String)>| {
            running.len() == 2
                && running
                    .iter()
                    .all(|(image, _)| image == "registry.example.com/refit:v0.1.0")
        };
        wait::until("only refit runs", async || self.running(), of_refit).await;
    }
}

/// An image that cannot be pulled must not take a working controller away, also where there is one node for both. In
/// these tests a container that does not start stands for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_by_the_manifests_keeps_system_upgrade_controller_until_refit_is_ready() {
    let (cluster, suc) = with_suc(0).await;
    let tools = &cluster.tools;
    let dir = Tools::checkout();
    let test = "a_takeover_by_the_manifests_keeps_system_upgrade_controller_until_refit_is_ready";
    let steps = documented("docs/migrate.md", test);
    tools.script(dir.path(), &steps["check"]);
    tools.script(dir.path(), &steps["snapshot"]);
    let settings = format!("configmap default-controller-env -n {NAMESPACE}");
    let patch = r#"{"data":{"SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL":"3h"}}"#;
    tools.kubectl(&format!("patch {settings} --type merge -p '{patch}'"));

    let file = dir.path().join("deploy/deployment.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    let never = "    metadata:\n      annotations: {fake-kubelet/start-delay: 8760h}\n      labels:\n";
    let broken = good.replacen("    metadata:\n      labels:\n", never, 1);
    assert_ne!(good, broken);
    std::fs::write(&file, broken).unwrap();
    tools.script(dir.path(), &steps["takeover"]);
    cluster.keeps(&suc).await;

    std::fs::write(&file, good).unwrap();
    tools.script(dir.path(), &steps["takeover"]);
    cluster.is_taken_over().await;
    let map = tools.json(&format!("get {settings}"));
    assert_eq!(map["data"]["SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL"], "3h");
    // The pod of system-upgrade-controller may still be there, and end.
    let line = format!("get pods -n {NAMESPACE} -l app.kubernetes.io/name=refit");
    let pod = tools.json(&line)["items"][0]["spec"].clone();
    assert_eq!(pod["serviceAccountName"], NAME);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_by_the_chart_keeps_system_upgrade_controller_until_refit_is_ready() {
    let (cluster, suc) = with_suc(1).await;
    let tools = &cluster.tools;
    let test = "a_takeover_by_the_chart_keeps_system_upgrade_controller_until_refit_is_ready";
    let script = documented("deploy/chart/README.md", test)
        .remove("check and take over")
        .unwrap();
    let same = &documented("docs/migrate.md", test)["takeover by the chart"];
    assert!(script.ends_with(same), "both documents have the same command");
    let never = "--set-string podAnnotations.fake-kubelet/start-delay=8760h";
    tools.script(root(), &format!("{} {never}", script.trim_end()));
    cluster.keeps(&suc).await;

    tools.helm(&format!(
        "upgrade refit deploy/chart -n {NAMESPACE} --set {REPOSITORY} --force-conflicts"
    ));
    cluster.is_taken_over().await;
    let controller = cluster.controller("one");
    cluster.plan("v1");
    cluster.complete("v1").await;

    // And back: the Plan, its Jobs and the marks of nodes stay, and nothing else of refit.
    let (jobs, nodes) = (
        cluster.job_uids(),
        tools.json("get nodes -l plan.upgrade.cattle.io/agents"),
    );
    assert_eq!(
        (jobs.len(), nodes["items"].as_array().map(Vec::len)),
        (1, Some(1))
    );
    controller.terminate().await;
    let dir = Tools::checkout();
    let read = |file: &str| std::fs::read_to_string(root().join("tests/fixtures").join(file)).unwrap();
    let manifests = format!("{}\n---\n{}", read("suc-rbac.yaml"), read("suc-deployment.yaml"));
    std::fs::write(dir.path().join("system-upgrade-controller.yaml"), manifests).unwrap();
    tools.script(dir.path(), &documented("docs/migrate.md", test)["go back"]);
    let is_back = |running: &Vec<(String, String)>| running.as_slice() == std::slice::from_ref(&suc);
    wait::until(
        "only system-upgrade-controller runs",
        async || cluster.running(),
        is_back,
    )
    .await;
    assert_eq!(cluster.job_uids(), jobs);
    let is_done = tools.json("get nodes -l plan.upgrade.cattle.io/agents");
    assert_eq!(is_done["items"].as_array().map(Vec::len), Some(1));
    let kinds = "deployments,configmaps,serviceaccounts,roles,poddisruptionbudgets,networkpolicies";
    let left = tools.kubectl(&format!(
        "get {kinds} -n {NAMESPACE} -l app.kubernetes.io/managed-by=Helm -o name"
    ));
    assert_eq!(left, "");
}
