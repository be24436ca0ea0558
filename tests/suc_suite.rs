//! The e2e suite of system-upgrade-controller, unmodified, against refit on real nodes (F67): its own Deployment with
//! refit's image, its own Plans and timeouts. The suite is a Go program outside of this repository: `just suc-suite
//! CHECKOUT` takes a checkout of it.

mod migrate;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::process::tail;
use crate::testenv::real;
use crate::testenv::real::lan::GATEWAY;
use crate::testenv::wait;

/// The variable with the path of the checkout.
const CHECKOUT: &str = "REFIT_SUC_CHECKOUT";

/// Where the pods of its controllers run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    Pods,
    Host,
}

/// Eighteen specs in sequence, each with its own controller and namespace, and the build before them.
const LIMIT: Duration = Duration::from_secs(45 * 60);

#[tokio::test]
#[ignore = "the e2e suite of system-upgrade-controller on real nodes: just suc-suite CHECKOUT"]
async fn the_e2e_suite_of_system_upgrade_controller_passes_unmodified() {
    passes(Network::Pods).await;
}

/// The name of the host is then that of the node, and says nothing about the pod.
#[tokio::test]
#[ignore = "the e2e suite of system-upgrade-controller on real nodes: just suc-suite CHECKOUT"]
async fn the_e2e_suite_of_system_upgrade_controller_passes_with_controllers_on_the_network_of_their_host() {
    passes(Network::Host).await;
}

async fn passes(network: Network) {
    let checkout = checkout();
    let ctx = real::context().await;
    if network == Network::Host {
        put_deployments_on_the_network_of_their_host(&ctx).await;
    }
    let suite = ctx.dir().join("suite");
    run(tokio::process::Command::new("go")
        .args(["test", "-c", "-trimpath", "-o"])
        .arg(&suite)
        .arg("./e2e/suite")
        .env("CGO_ENABLED", "0")
        .current_dir(&checkout))
    .await;

    // A server and an agent, as in its own cluster. Its Plans select nodes outside of the control plane.
    let [server, _agent] = real::nodes(&ctx, ["server", "agent"]).await;
    let role = "node-role.kubernetes.io/control-plane";
    ctx.label_node(server.name(), role, Some("true")).await;
    let plane = ctx.test_env.control_plane();
    let kubeconfig = ctx.dir().join("suite.kubeconfig");
    plane
        .write_lan_kubeconfig(&kubeconfig, "suite", Some("system:masters"))
        .unwrap();
    // Its channel server listens at the address of its host name, which the controller's pods must reach.
    let lan = plane.lan().await.unwrap();
    let hosts = ctx.dir().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{GATEWAY} suite\n")).unwrap();
    let said = run(tokio::process::Command::new("nsenter")
        .arg(format!("--net={}", lan.namespace()))
        .args(["unshare", "--mount", "--uts", "/bin/sh", "-euc"])
        .arg("hostname suite; mount --bind \"$1\" /etc/hosts; shift; exec \"$@\"")
        .arg("suite")
        .arg(hosts)
        .arg(suite)
        .args([
            "-test.v",
            "-test.timeout=0",
            "-ginkgo.v",
            "-ginkgo.no-color",
            "-provider=local",
        ])
        .arg(format!("-kubeconfig={}", kubeconfig.display()))
        .env("SYSTEM_UPGRADE_CONTROLLER_IMAGE", real::REFIT)
        .current_dir(&checkout))
    .await;
    let result = said
        .lines()
        .find(|line| line.contains(" Passed | "))
        .unwrap_or_else(|| panic!("no result:\n{}", tail(&said, 40)));
    eprintln!("{network:?}: {result}");
    assert!(
        result.contains("18 Passed") && result.contains("0 Failed"),
        "{result}"
    );
}

/// Kubernetes changes the Deployments as they are created, because the suite has no setting for it. Returns when it does.
async fn put_deployments_on_the_network_of_their_host(ctx: &TestContext) {
    const NAME: &str = "network-of-the-host";
    let rule = json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"] });
    let change = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{hostNetwork: true}}}}";
    let policy = json!({
        "metadata": { "name": NAME },
        "spec": {
            "matchConstraints": { "resourceRules": [rule] },
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": change } }],
            "reinvocationPolicy": "Never",
        },
    });
    create::<MutatingAdmissionPolicy>(&Api::all(ctx.client.clone()), policy).await;
    let binding = json!({ "metadata": { "name": NAME }, "spec": { "policyName": NAME } });
    create::<MutatingAdmissionPolicyBinding>(&Api::all(ctx.client.clone()), binding).await;
    let labels = json!({ "app": NAME });
    let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    let deployment = json!({
        "metadata": { "name": NAME },
        "spec": { "selector": { "matchLabels": labels }, "template": pod },
    });
    let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
    let deployments = Api::<Deployment>::namespaced(ctx.client.clone(), ctx.namespace());
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait::holds("Deployments get the network of their host", async || {
        let made = deployments
            .create(&dry_run, &deployment)
            .await
            .expect("a Deployment");
        let spec = made.spec.template.spec;
        spec.and_then(|spec| spec.host_network) == Some(true)
    })
    .await;
}

fn checkout() -> PathBuf {
    let checkout = std::env::var_os(CHECKOUT).map(PathBuf::from);
    checkout.unwrap_or_else(|| panic!("{CHECKOUT} names no checkout of system-upgrade-controller"))
}

/// Runs a command and returns its output. Fails the test if the command fails.
async fn run(command: &mut tokio::process::Command) -> String {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let out = tokio::time::timeout(LIMIT, child.wait_with_output())
        .await
        .expect("it ends in time")
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}\n{}",
        out.status,
        tail(&said, 400),
        tail(&String::from_utf8_lossy(&out.stderr), 40)
    );
    said
}
