//! The e2e suite of node-maintenance-operator, unmodified, against refit, on a control plane with simulated kubelets.
//! The suite is a Go program outside of this repository: `just nmo-suite PROGRAM` takes the compiled tests of its
//! package `test/e2e`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::{Pod, Taint};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{is_free, quick};
use crate::maintenance::{self, MEDIK, admission};
use crate::testenv::context::{TestContext, create};
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::process::tail;
use crate::testenv::serve::{Server, full};
use crate::testenv::wait;

/// The variable with the path of the program.
const PROGRAM: &str = "REFIT_NMO_SUITE";

/// Its specs in their order, and how they end with refit. Those that fail expect the refusal of a webhook that looks up
/// Nodes, or budgets: docs/from-node-maintenance.md.
const RESULTS: [(&str, &str); 5] = [
    ("for the 1st master/control-plane node should succeed", "passed"),
    // Only with fewer than three control-plane nodes.
    ("for the 1st master/control-plane node should fail", "skipped"),
    ("for the 2nd master/control-plane node should fail", "failed"),
    ("for a not existing node should fail", "failed"),
    ("for a worker node shoud put the node under maintenance", "passed"),
];

/// The object was created, which the spec does not expect.
const NOT_REFUSED: &str = "Expected an error to have occurred.";

/// Two minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(15 * 60);

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

#[tokio::test]
#[ignore = "the e2e suite of node-maintenance-operator: just nmo-suite PROGRAM"]
async fn the_e2e_suite_of_node_maintenance_operator_passes_but_for_two_refusals_of_its_webhook() {
    let suite = std::env::var_os(PROGRAM).map(PathBuf::from);
    let suite = suite.unwrap_or_else(|| panic!("{PROGRAM} names no program with the e2e suite"));
    let ctx = TestContext::alone().await;
    maintenance::apply_overlay(&ctx).await;
    policies_are_in_force(&ctx).await;
    let controller = ctx.controller().env("REFIT_ENABLE", "maintenance").start();
    let logs = serve_logs(&ctx, controller.log_path()).await;
    let _kubelets = nodes(&ctx, logs.port()).await;
    operator_pod(&ctx).await;

    let report = ctx.dir().join("report.json");
    let child = tokio::process::Command::new(suite)
        .args(["-test.timeout=0", "-ginkgo.v", "-ginkgo.no-color"])
        .arg(format!("-ginkgo.json-report={}", report.display()))
        .current_dir(ctx.dir())
        .env("KUBECONFIG", ctx.test_env.kubeconfig())
        .env("OPERATOR_NS", ctx.namespace())
        .env("TEST_NAMESPACE", "node-maintenance-test")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
    let output = output.expect("it ends in time").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let specs = specs(&report).unwrap_or_else(|error| panic!("{error}\n{}", tail(&said, 40)));
    let found: Vec<_> = specs.iter().map(Spec::result).collect();
    assert_eq!(found, RESULTS, "{}", tail(&said, 400));
    for spec in &specs {
        eprintln!("{:>5.1} s  {}: {}", spec.seconds, spec.state, spec.name);
        assert!(
            spec.state != "failed" || spec.failure.starts_with(NOT_REFUSED),
            "{}: {}",
            spec.name,
            spec.failure
        );
    }

    wait::until(
        "no object of the suite is left, and all nodes are as they were",
        async || {
            let left = maintenance::api(&ctx, MEDIK).list(&ListParams::default()).await;
            let nodes = ctx.my_nodes().await;
            (left.unwrap().items.len(), nodes.iter().all(is_free))
        },
        |found| *found == (0, true),
    )
    .await;
}

/// A spec that was run.
struct Spec {
    name: String,
    state: String,
    failure: String,
    seconds: f64,
}

impl Spec {
    fn result(&self) -> (&str, &str) {
        (&self.name, &self.state)
    }
}

/// The specs of a report of Ginkgo.
fn specs(report: &Path) -> Result<Vec<Spec>, String> {
    let text = std::fs::read(report).map_err(|error| format!("no report: {error}"))?;
    let report: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let all = report[0]["SpecReports"].as_array().ok_or("no specs")?;
    let specs = all.iter().filter(|spec| spec["LeafNodeType"] == "It");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |spec: &Value| {
        format!(
            "{} {}",
            text(&spec["ContainerHierarchyTexts"][1]),
            text(&spec["LeafNodeText"])
        )
    };
    let spec = |spec: &Value| Spec {
        name: name(spec),
        state: text(&spec["State"]),
        failure: text(&spec["Failure"]["Message"]),
        seconds: spec["RunTime"].as_f64().unwrap_or_default() / 1e9,
    };
    Ok(specs.map(spec).collect())
}

/// Waits until a second object for a node is refused.
async fn policies_are_in_force(ctx: &TestContext) {
    let api = maintenance::api(ctx, MEDIK);
    let object = |name| maintenance::object(MEDIK, name, "nowhere");
    api.create(&PostParams::default(), &object("first"))
        .await
        .unwrap();
    let why = admission::refused(&api, &object("second")).await;
    assert!(why.contains("already exists"), "{why}");
    api.delete("first", &DeleteParams::default()).await.unwrap();
    let is_gone = async || api.get_opt("first").await.unwrap().is_none();
    wait::holds("the object is gone", is_gone).await;
}

/// Three control-plane nodes, with the taint of kubeadm, and two workers. Pods run until they are deleted, and then for
/// forty of the eighty seconds that the suite allows them: a drain takes thirty at most, and is repeated.
async fn nodes(ctx: &TestContext, logs_port: u16) -> FakeKubelet {
    let names = ["control-1", "control-2", "control-3", "worker-1", "worker-2"];
    let set = NodeSet::named(names.map(|name| ctx.node_name(name)))
        .pods(quick())
        .steer("run-delay", "never")
        .steer("delete-delay", "40s")
        .each(|index, node| {
            if index > 2 {
                return;
            }
            node.labels.insert(CONTROL_PLANE.to_owned(), String::new());
            node.taints.push(Taint {
                key: CONTROL_PLANE.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            });
            if index == 2 {
                // The API server asks a kubelet by its hostname.
                node.hostname = Some("localhost".to_owned());
                node.logs_port = Some(logs_port);
            }
        });
    ctx.run(set).await
}

/// The suite looks for a line of the log of the operator's pod. This pod stands for the controller, which runs as a
/// process beside the cluster, and its log is the controller's.
async fn operator_pod(ctx: &TestContext) {
    let pod = json!({
        "metadata": { "name": "operator", "labels": { "node-maintenance-operator": "" } },
        "spec": {
            "nodeName": ctx.node_name("control-3"),
            "containers": [{ "name": "manager", "image": "example.com/refit" }],
        },
    });
    create::<Pod>(&ctx.pods(), pod).await;
}

/// Serves a file as the log of every container, as a kubelet does.
async fn serve_logs(ctx: &TestContext, log: &Path) -> Server {
    let identity = ctx.test_env.control_plane().kubelet_identity().unwrap();
    let log = log.to_owned();
    let answer = move |request: Request<Incoming>| {
        let log = log.clone();
        async move {
            if !request.uri().path().starts_with("/containerLogs/") {
                return Ok(Response::builder().status(StatusCode::NOT_FOUND).body(full(""))?);
            }
            Ok(Response::new(full(std::fs::read(log)?)))
        }
    };
    Server::start(Some(&identity), answer).await.unwrap()
}
