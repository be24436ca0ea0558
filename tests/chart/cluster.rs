//! A control plane with simulated nodes, controllers that run as the installed Deployment says, and Helm and kubectl for it.

use std::process::{Child, Command};

use serde_json::{Value, json};

use super::{CONTROL_PLANE, NAME, NAMESPACE, Tools};
use crate::testenv::controller::binary;
use crate::testenv::controlplane::Options;
use crate::testenv::environment::TestEnv;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::wait::{self, SOON};

/// A control plane without anything of refit, and fake nodes for its pods.
pub(super) struct Cluster {
    pub(super) tools: Tools,
    _env: TestEnv,
    _kubelet: FakeKubelet,
}

impl Cluster {
    pub(super) async fn new(servers: usize, agents: usize) -> Self {
        let env = TestEnv::own(Options::default()).await;
        let nodes = NodeSet::numbered("server-", servers).label(CONTROL_PLANE, "true");
        let mut nodes = nodes
            .steer("run-delay", "1s")
            .steer(&format!("{NAME}.run-delay"), "never");
        nodes
            .nodes
            .extend(NodeSet::numbered("agent-", agents).steer("run-delay", "1s").nodes);
        let kubelet = FakeKubelet::start(&env.kubelet_config().await, nodes).await;
        let kubeconfig = env.kubeconfig();
        let tools = tokio::task::spawn_blocking(|| Tools::new(kubeconfig))
            .await
            .unwrap();
        tools.kubectl("delete crd plans.upgrade.cattle.io");
        Self {
            tools,
            _env: env,
            _kubelet: kubelet,
        }
    }

    pub(super) async fn until(&self, what: &str, object: &str, is: impl Fn(&Value) -> bool) -> Value {
        let line = format!("get {object} -n {NAMESPACE}");
        wait::until(what, async || self.tools.json(&line), is).await
    }

    /// Starts a controller with the account that the release created.
    pub(super) fn controller(&self, identity: &str) -> Controller {
        let token = self
            .tools
            .kubectl(&format!("create token {NAME} -n {NAMESPACE} --duration 1h"));
        let mut config: Value =
            serde_saphyr::from_str(&self.tools.kubectl("config view --raw --flatten")).unwrap();
        config["users"][0]["user"] = json!({ "token": token.trim() });
        let path = self.tools.home.path().join(format!("{identity}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        let map = self
            .tools
            .json(&format!("get configmap default-controller-env -n {NAMESPACE}"));
        let settings = map["data"].as_object().unwrap().iter();
        let log = std::fs::File::create(self.tools.home.path().join(format!("{identity}.log"))).unwrap();
        let child = Command::new(binary())
            .args(["--name", NAME, "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(path)
            .envs(settings.map(|(name, value)| (name, value.as_str().unwrap())))
            .env("REFIT_IDENTITY", identity)
            .env("REFIT_IMAGE", "registry.example.com/refit:v0.1.0")
            .stderr(log)
            .spawn();
        Controller(child.unwrap())
    }

    pub(super) async fn leads(&self, identity: &str) {
        let is_holder = |lease: &Value| lease["spec"]["holderIdentity"] == identity;
        self.until(&format!("{identity} leads"), &format!("lease {NAME}"), is_holder)
            .await;
    }

    pub(super) fn plan(&self, version: &str) {
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": "agents", "namespace": NAMESPACE },
            "spec": {
                "concurrency": 1, "version": version, "serviceAccountName": "system-upgrade", "cordon": true,
                "nodeSelector": { "matchExpressions": [{ "key": CONTROL_PLANE, "operator": "DoesNotExist" }] },
                "upgrade": { "image": "example.com/upgrade" },
            },
        });
        let file = self.tools.home.path().join("plan.json");
        std::fs::write(&file, plan.to_string()).unwrap();
        self.tools.kubectl(&format!("apply -f {}", file.display()));
    }

    pub(super) async fn complete(&self, version: &str) {
        let is_complete = |plan: &Value| {
            let conditions = plan["status"]["conditions"].as_array().into_iter().flatten();
            let mut complete = conditions.filter(|one| one["type"] == "Complete" && one["status"] == "True");
            plan["status"]["latestVersion"] == version && complete.next().is_some()
        };
        self.until(
            &format!("the Plan is complete at {version}"),
            "plan agents",
            is_complete,
        )
        .await;
    }

    pub(super) fn job_uids(&self) -> Vec<String> {
        let jobs = self.tools.json(&format!("get jobs -n {NAMESPACE}"));
        let all = jobs["items"].as_array().into_iter().flatten();
        all.map(|job| job["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The node of each running pod of the Deployment, by image.
    pub(super) fn running(&self) -> Vec<(String, String)> {
        let pods = self.tools.json(&format!("get pods -n {NAMESPACE}"));
        let all = pods["items"].as_array().into_iter().flatten();
        let running = all.filter(|pod| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        running
            .map(|pod| {
                (
                    text(&pod["spec"]["containers"][0]["image"]),
                    text(&pod["spec"]["nodeName"]),
                )
            })
            .collect()
    }
}

/// A controller that is killed with its value.
pub(super) struct Controller(Child);

impl Controller {
    pub(super) async fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        wait::eventually("the controller has ended", SOON, async || {
            match self.0.try_wait() {
                Ok(Some(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn is_available(replicas: u64) -> impl Fn(&Value) -> bool {
    move |deployment| {
        let status = &deployment["status"];
        let count = |name: &str| status[name].as_u64().unwrap_or_default();
        let is_current = status["observedGeneration"] == deployment["metadata"]["generation"];
        is_current
            && [
                count("readyReplicas"),
                count("updatedReplicas"),
                count("replicas"),
            ] == [replicas; 3]
    }
}
