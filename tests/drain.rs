//! `refit cordon`, `uncordon` and `drain` on a real control plane, beside `kubectl` of the same modules: who is evicted and
//! who is not, what is said, how it ends; and as a part of Plans, with the container's command line run for real.

mod bench;
mod cancel;
mod ledger;
mod plans;
mod pulled;
mod rights;
mod side_by_side;
mod waits;
mod workloads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use refit::api::names;
use refit::rehearse::podlife::{Defaults, Delay};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::scene::is_cordoned;
use crate::support::audit::Requests;
use crate::support::kubelet::{FakeKubelet, NodeSet};
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::create;

/// Longer than any drain of a test takes on a busy machine.
const A_WHILE: Duration = Duration::from_secs(90);

/// The account that Plans name.
const DRAINER: &str = "system-upgrade";

/// What drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Kubectl,
    Refit,
}

/// What a program said, and how it ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    took: Duration,
}

impl Said {
    fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    fn last_line(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}

/// A world with nodes whose pods run until they are told to go.
struct Bench {
    world: World,
    kubelet: FakeKubelet,
    kubectl: PathBuf,
    /// Kubeconfig of the account that Plans name.
    drainer: PathBuf,
    /// In charge of pods that are not to be alone in the world; it does nothing.
    owner: Value,
}

impl Bench {
    async fn new(nodes: &[&str]) -> Self {
        Self::on(World::new().await, nodes).await
    }

    async fn on(world: World, nodes: &[&str]) -> Self {
        Self::with(world, nodes, |set| set).await
    }

    async fn with(world: World, nodes: &[&str], change: impl FnOnce(NodeSet) -> NodeSet) -> Self {
        let token = world.token(DRAINER).await;
        let drainer = world.write_kubeconfig("drainer", &token);
        let pods = Defaults {
            start: Delay::millis(20),
            stop: Delay::millis(100),
            ..Defaults::default()
        };
        let set = NodeSet::named(nodes.iter().map(|node| world.node_name(node))).pods(pods);
        let kubelet = world.run(change(set)).await;
        let kubectl = world.bed.kubectl().await;
        let owner = json!({ "metadata": { "name": "owner", "namespace": world.namespace() } });
        let api = Api::<ConfigMap>::namespaced(world.client.clone(), world.namespace());
        let owner = create(&api, owner).await;
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "controller": true,
        });
        Self {
            world,
            kubelet,
            kubectl,
            drainer,
            owner,
        }
    }

    fn node(&self, name: &str) -> String {
        self.world.node_name(name)
    }

    /// A pod on a node, with a controller and without data, changed by `more`: `alone` has no controller, `data` is an
    /// emptyDir, `steer` goes to the kubelet, `app` is its label, and what else there is goes into `spec`.
    async fn pod(&self, node: &str, name: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": name,
                "namespace": self.world.namespace(),
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
        create(&self.world.pods(), pod).await
    }

    /// A budget for the pods with that label, once the disruption controller has counted `healthy` of them.
    async fn budget(&self, name: &str, app: &str, spec: Value, healthy: i32) {
        let mut budget = json!({
            "metadata": { "name": name, "namespace": self.world.namespace() },
            "spec": { "selector": { "matchLabels": { "app": app } } },
        });
        for (key, value) in spec.as_object().unwrap() {
            budget["spec"][key] = value.clone();
        }
        create(&self.budgets(), budget).await;
        self.counted(name, healthy).await;
    }

    /// The budget is no more, and keeps no pod any longer.
    async fn open(&self, budget: &str) {
        self.budgets()
            .delete(budget, &DeleteParams::default())
            .await
            .unwrap();
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.world.client.clone(), self.world.namespace())
    }

    async fn counted(&self, name: &str, healthy: i32) {
        let what = format!("counts {healthy} healthy pods");
        wait::object(
            self.budgets(),
            name,
            &what,
            A_WHILE,
            |budget: &PodDisruptionBudget| {
                budget.status.as_ref().is_some_and(|status| {
                    status.current_healthy == Some(healthy)
                        && status.observed_generation == budget.metadata.generation
                })
            },
        )
        .await;
    }

    /// Waits until a pod is in that phase; those that run are ready as well.
    async fn phase(&self, name: &str, phase: &str) {
        let what = format!("is {phase}");
        wait::object(self.world.pods(), name, &what, SOON, |pod: &Pod| {
            let status = pod.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) == Some(phase)
                && (phase != "Running" || is_ready(pod))
        })
        .await;
    }

    /// Pods that run on a node, and that say so.
    async fn pods<const N: usize>(&self, node: &str, names: [&str; N], more: Value) {
        for name in names {
            self.pod(node, name, more.clone()).await;
        }
        for name in names {
            self.phase(name, "Running").await;
        }
    }

    /// The pods on a node, and whether they are told to go.
    async fn on_node(&self, node: &str) -> BTreeMap<String, bool> {
        let there = ListParams::default().fields(&format!("spec.nodeName={}", self.node(node)));
        let pods = self.world.pods().list(&there).await.unwrap();
        let entry = |pod: Pod| (pod.name_any(), pod.metadata.deletion_timestamp.is_some());
        pods.items.into_iter().map(entry).collect()
    }

    async fn is_cordoned(&self, node: &str) -> bool {
        is_cordoned(&self.world.node(&self.node(node)).await)
    }

    /// The program, not yet started: kubectl as the administrator, refit as the account that Plans name.
    fn command(&self, tool: Tool, args: &[&str]) -> Command {
        let (program, kubeconfig): (&Path, _) = match tool {
            Tool::Kubectl => (&self.kubectl, self.world.bed.kubeconfig()),
            Tool::Refit => (Path::new(env!("CARGO_BIN_EXE_refit")), self.drainer.clone()),
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", self.world.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, tool: Tool, args: &[&str]) -> Said {
        finish(self.command(tool, args)).await
    }

    /// User name of the account that Plans name.
    fn drainer_user(&self) -> String {
        format!("system:serviceaccount:{}:{DRAINER}", self.world.namespace())
    }

    /// What the account that Plans name has asked of the API server.
    async fn drainer_requests(&self) -> Requests {
        self.world.requests().await.by(&self.drainer_user())
    }

    /// The environment that a container of a Plan has, on that node and in that pod.
    async fn plan_env(&self, plan: &str, node: &str, pod: Option<&Pod>) -> BTreeMap<String, String> {
        let node = self.world.node(&self.node(node)).await;
        let mut env = BTreeMap::from([
            (names::ENV_CONTROLLER_NAME, "system-upgrade-controller".to_owned()),
            (names::ENV_PLAN_NAMESPACE, self.world.namespace().to_owned()),
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

    /// `refit drain` of a node with these flags.
    async fn drain(&self, node: &str, flags: &[&str]) -> Said {
        let node = self.node(node);
        let args: Vec<_> = ["drain", node.as_str()].iter().chain(flags).copied().collect();
        self.run(Tool::Refit, &args).await
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

async fn finish(mut command: Command) -> Said {
    let started = Instant::now();
    said(command.spawn().unwrap(), started).await
}

async fn said(child: Child, started: Instant) -> Said {
    let out = tokio::time::timeout(2 * A_WHILE, child.wait_with_output()).await;
    let out = out.expect("it ends in time").unwrap();
    Said {
        code: out.status.code(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        took: started.elapsed(),
    }
}
