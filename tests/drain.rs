//! `refit cordon`, `uncordon` and `drain` on a real control plane, compared with `kubectl` of the same modules: evicted
//! pods, output and exit codes; and as containers of Plans, with their real command lines.

mod bench;
mod cancel;
mod detach;
mod ledger;
mod node_health;
pub(crate) mod plans;
mod pulled;
mod rights;
mod side_by_side;
mod virtual_machines;
mod waits;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use refit_api::names;
use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::harness::is_cordoned;
use crate::testenv::audit::Requests;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::wait::{self, SOON};

/// The service account of the Plans.
const DRAINER: &str = "system-upgrade";

/// The tool under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Kubectl,
    Refit,
}

/// Output and exit status of a program.
#[derive(Debug)]
struct CommandOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    took: Duration,
}

impl CommandOutput {
    fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    fn last_line(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}

/// A test context with nodes whose pods run until they are deleted.
struct DrainHarness {
    ctx: TestContext,
    kubelet: FakeKubelet,
    kubectl: PathBuf,
    /// Kubeconfig of the Plans' service account.
    drainer: PathBuf,
    /// The controller of pods that need an owner; it does nothing.
    owner: Value,
}

impl DrainHarness {
    async fn new(nodes: &[&str]) -> Self {
        Self::on(TestContext::new().await, nodes).await
    }

    async fn on(ctx: TestContext, nodes: &[&str]) -> Self {
        Self::with(ctx, nodes, |set| set).await
    }

    async fn with(ctx: TestContext, nodes: &[&str], change: impl FnOnce(NodeSet) -> NodeSet) -> Self {
        let token = ctx.token(DRAINER).await;
        let drainer = ctx.write_kubeconfig("drainer", &token);
        let pods = Defaults {
            start: Delay::millis(20),
            stop: Delay::millis(100),
            ..Defaults::default()
        };
        let set = NodeSet::named(nodes.iter().map(|node| ctx.node_name(node))).pods(pods);
        let kubelet = ctx.run(change(set)).await;
        let kubectl = ctx.test_env.kubectl().await;
        let owner = json!({ "metadata": { "name": "owner", "namespace": ctx.namespace() } });
        let owner = create(
            &Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace()),
            owner,
        )
        .await;
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "controller": true,
        });
        Self {
            ctx,
            kubelet,
            kubectl,
            drainer,
            owner,
        }
    }

    fn node(&self, name: &str) -> String {
        self.ctx.node_name(name)
    }

    /// Creates a pod on a node, with a controller and without data, changed by `more`: `alone` has no controller,
    /// `data` is an emptyDir, `steer` is for the kubelet, `app` is its label, and everything else goes into `spec`.
    async fn pod(&self, node: &str, name: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": name,
                "namespace": self.ctx.namespace(),
                "labels": { "app": "none" },
                "annotations": {},
                "ownerReferences": [self.owner],
            },
            "spec": {
                "nodeName": self.node(node),
                "terminationGracePeriodSeconds": 2,
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "example.com/main" }],
            },
        });
        for (key, value) in more.as_object().unwrap() {
            match key.as_str() {
                "alone" => pod["metadata"]["ownerReferences"] = json!([]),
                "data" => pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]),
                "app" => pod["metadata"]["labels"]["app"] = value.clone(),
                "finalizer" => pod["metadata"]["finalizers"] = json!(["example.com/stuck"]),
                "mirror" => pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x"),
                "steer" => {
                    for (key, value) in value.as_object().unwrap() {
                        pod["metadata"]["annotations"][format!("fake-kubelet/{key}")] = value.clone();
                    }
                }
                key => pod["spec"][key] = value.clone(),
            }
        }
        create(&self.ctx.pods(), pod).await
    }

    /// Creates a budget for the pods with that label, and waits until it counts `healthy` of them.
    async fn budget(&self, name: &str, app: &str, spec: Value, healthy: i32) {
        let mut budget = json!({
            "metadata": { "name": name, "namespace": self.ctx.namespace() },
            "spec": { "selector": { "matchLabels": { "app": app } } },
        });
        for (key, value) in spec.as_object().unwrap() {
            budget["spec"][key] = value.clone();
        }
        create(&self.budgets(), budget).await;
        self.counted(name, healthy).await;
    }

    /// Deletes the budget.
    async fn open(&self, budget: &str) {
        let budgets = self.budgets();
        budgets.delete(budget, &DeleteParams::default()).await.unwrap();
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.ctx.client.clone(), self.ctx.namespace())
    }

    async fn counted(&self, name: &str, healthy: i32) {
        let counted = |budget: &PodDisruptionBudget| {
            budget.status.as_ref().is_some_and(|status| {
                status.current_healthy == Some(healthy)
                    && status.observed_generation == budget.metadata.generation
            })
        };
        let what = format!("counts {healthy} healthy pods");
        wait::object(self.budgets(), name, &what, SOON, counted).await;
    }

    /// Waits until a pod is in that phase, and Ready if it is running.
    async fn phase(&self, name: &str, phase: &str) {
        let what = format!("is {phase}");
        wait::object(self.ctx.pods(), name, &what, SOON, |pod: &Pod| {
            let status = pod.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) == Some(phase)
                && (phase != "Running" || is_ready(pod))
        })
        .await;
    }

    /// Creates pods on a node, and waits until they are Ready.
    async fn pods<const N: usize>(&self, node: &str, names: [&str; N], more: Value) {
        for name in names {
            self.pod(node, name, more.clone()).await;
        }
        for name in names {
            self.phase(name, "Running").await;
        }
    }

    /// The pods on a node, and whether they are being deleted.
    async fn on_node(&self, node: &str) -> BTreeMap<String, bool> {
        let there = ListParams::default().fields(&format!("spec.nodeName={}", self.node(node)));
        let pods = self.ctx.pods().list(&there).await.unwrap();
        let entry = |pod: Pod| (pod.name_any(), pod.metadata.deletion_timestamp.is_some());
        pods.items.into_iter().map(entry).collect()
    }

    async fn get(&self, node: &str) -> Node {
        self.ctx.node(&self.node(node)).await
    }

    async fn behave(&self, node: &str, steering: &[(&str, &str)]) {
        self.kubelet.behaviour(&self.node(node), steering).await;
    }

    async fn is_cordoned(&self, node: &str) -> bool {
        is_cordoned(&self.get(node).await)
    }

    /// The command: kubectl as administrator, refit as the Plans' service account.
    fn command(&self, tool: Tool, args: &[&str]) -> Command {
        let (program, kubeconfig): (&Path, _) = match tool {
            Tool::Kubectl => (&self.kubectl, self.ctx.test_env.kubeconfig()),
            Tool::Refit => (Path::new(env!("CARGO_BIN_EXE_refit")), self.drainer.clone()),
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", self.ctx.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, tool: Tool, args: &[&str]) -> CommandOutput {
        finish(self.command(tool, args)).await
    }

    async fn run_as(&self, tool: Tool, kubeconfig: &Path, args: &[&str]) -> CommandOutput {
        let mut command = self.command(tool, args);
        command.env("KUBECONFIG", kubeconfig);
        finish(command).await
    }

    /// A node with the pod `web-1`, whose budget `guard` allows no eviction.
    async fn guarded() -> Self {
        let harness = Self::new(&["one"]).await;
        harness.guard().await;
        harness
    }

    /// As [`Self::guarded`], on the node `one`.
    async fn guard(&self) {
        self.pods("one", ["web-1"], json!({ "app": "web" })).await;
        self.budget("guard", "web", json!({ "minAvailable": 1 }), 1).await;
    }

    /// Number of eviction requests that had this status code.
    async fn evictions(&self, code: u16) -> usize {
        let requests = self.drainer_requests().await.0;
        let evictions = requests.iter().filter(|it| it.resource == "pods/eviction");
        evictions.filter(|it| it.code == code).count()
    }

    /// User name of the Plans' service account.
    fn drainer_user(&self) -> String {
        format!("system:serviceaccount:{}:{DRAINER}", self.ctx.namespace())
    }

    /// Requests of the Plans' service account.
    async fn drainer_requests(&self) -> Requests {
        self.ctx.requests().await.by(&self.drainer_user())
    }

    /// The environment of a Plan's container on that node and in that pod.
    async fn plan_env(&self, plan: &str, node: &str, pod: Option<&Pod>) -> BTreeMap<String, String> {
        let node = self.ctx.node(&self.node(node)).await;
        let mut env = BTreeMap::from([
            (names::ENV_CONTROLLER_NAME, "system-upgrade-controller".to_owned()),
            (names::ENV_PLAN_NAMESPACE, self.ctx.namespace().to_owned()),
            (names::ENV_PLAN_NAME, plan.to_owned()),
            (names::ENV_PLAN_UID, format!("uid-of-{plan}")),
            (names::ENV_NODE_UID, node.uid().unwrap()),
        ]);
        if let Some(pod) = pod {
            env.insert(names::ENV_POD_NAME, pod.name_any());
            env.insert(names::ENV_POD_UID, pod.uid().unwrap());
        }
        env.into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Runs `refit drain` on a node with these flags.
    async fn drain(&self, node: &str, flags: &[&str]) -> CommandOutput {
        let node = self.node(node);
        let args = [&["drain", node.as_str()], flags].concat();
        self.run(Tool::Refit, &args).await
    }
}

/// A drain of the node `one` that waits for a budget.
struct WaitingDrain {
    child: Child,
    /// Its first line on standard error.
    line: String,
    // Kept open, so that the child can continue to write.
    _lines: Lines<BufReader<ChildStderr>>,
}

impl WaitingDrain {
    async fn start(harness: &DrainHarness, env: &BTreeMap<String, String>) -> Self {
        let mut command = harness.command(Tool::Refit, &["drain", &harness.node("one")]);
        let mut child = command.envs(env).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        assert!(
            line.contains("(will retry after 5s): The disruption budget guard needs"),
            "{line}"
        );
        Self {
            child,
            line,
            _lines: lines,
        }
    }

    async fn ended(self) -> CommandOutput {
        output_of(self.child, Instant::now()).await
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|it| it.type_ == "Ready" && it.status == "True")
}

async fn finish(mut command: Command) -> CommandOutput {
    let started = Instant::now();
    output_of(command.spawn().unwrap(), started).await
}

async fn output_of(child: Child, started: Instant) -> CommandOutput {
    let out = tokio::time::timeout(2 * SOON, child.wait_with_output()).await;
    let out = out.expect("it ends in time").unwrap();
    CommandOutput {
        code: out.status.code(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        took: started.elapsed(),
    }
}
