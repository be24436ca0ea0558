//! Containers with a real effect, which end when their task does.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use refit_api::names;
use refit_api::{Holder, Ledger, MarkForm, NodeMark};
use refit_rehearse::pod_lifecycle::{ContainerStart, Exit};
use serde_json::json;

use super::super::controller::binary;

/// A container that was started.
#[derive(Clone)]
pub struct ContainerTask {
    /// Name of the node.
    pub node: String,
    pub namespace: String,
    pub start: ContainerStart,
    /// The kubelets' client.
    pub client: Client,
}

/// Gives containers a real effect.
pub trait TaskRunner: Send + Sync + 'static {
    /// Whether containers of this name have a task.
    fn has_task(&self, container: &str) -> bool;

    /// Runs the task. Dropped when the container is killed, for example by a deletion of its pod or a reboot.
    fn run(&self, act: ContainerTask) -> BoxFuture<'static, Exit>;
}

/// No container has a real effect.
pub struct NoTasks;

impl TaskRunner for NoTasks {
    fn has_task(&self, _: &str) -> bool {
        false
    }

    fn run(&self, _: ContainerTask) -> BoxFuture<'static, Exit> {
        Box::pin(async { Exit::default() })
    }
}

/// `cordon` and `drain` cordon the node with a ledger, and evict no pods.
pub struct CordonTasks;

impl TaskRunner for CordonTasks {
    fn has_task(&self, container: &str) -> bool {
        matches!(container, "cordon" | "drain")
    }

    fn run(&self, act: ContainerTask) -> BoxFuture<'static, Exit> {
        Box::pin(async move {
            match cordon(&act).await {
                Ok(()) => Exit {
                    code: 0,
                    message: Some(format!("node/{} cordoned", act.node)),
                },
                Err(message) => Exit {
                    code: 1,
                    message: Some(message),
                },
            }
        })
    }
}

/// What a kubelet keeps of a log where a container has failed without a termination message (`FallbackToLogsOnError`).
const TERMINATION_LOG: usize = 2_048;

/// Runs `cordon` and `drain` containers as processes, with the kubeconfig of the Plans' service account.
pub struct DrainProcesses {
    pub kubeconfig: PathBuf,
}

impl TaskRunner for DrainProcesses {
    fn has_task(&self, container: &str) -> bool {
        matches!(container, "cordon" | "drain")
    }

    fn run(&self, act: ContainerTask) -> BoxFuture<'static, Exit> {
        let mut command = tokio::process::Command::new(binary());
        command
            .args(&act.start.args)
            .env_clear()
            .envs(&act.start.env)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        assert!(act.start.command.is_empty(), "the image's entrypoint is refit");
        Box::pin(async move {
            let out = command.output().await.unwrap();
            let log = [out.stdout, out.stderr].concat();
            let log = String::from_utf8_lossy(&log[log.len().saturating_sub(TERMINATION_LOG)..]).into_owned();
            let code = out.status.code().unwrap_or(137);
            Exit {
                code,
                message: (code != 0).then_some(log),
            }
        })
    }
}

async fn cordon(act: &ContainerTask) -> Result<(), String> {
    let nodes = Api::<Node>::all(act.client.clone());
    let env = |name: &str| act.start.env.get(name).cloned().unwrap_or_default();
    let holder = Holder {
        namespace: env(names::ENV_PLAN_NAMESPACE),
        controller: env(names::ENV_CONTROLLER_NAME),
        plan: env(names::ENV_PLAN_NAME),
        plan_uid: env(names::ENV_PLAN_UID).into(),
        cancelled: false,
        completed: true,
        evicted: Vec::new(),
    };
    loop {
        let node = nodes.get(&act.node).await.map_err(|error| error.to_string())?;
        let expected = env(names::ENV_NODE_UID);
        if !expected.is_empty() && node.uid().as_deref() != Some(&expected) {
            return Err(format!("node {} is another one now", act.node));
        }
        let unschedulable = node
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or_default();
        let ledger = node
            .annotations()
            .get(names::ANNOTATION_CORDON)
            .and_then(|text| Ledger::parse(text));
        let mut ledger = Ledger::with_holder(ledger.as_ref(), unschedulable, holder.clone())
            .map_err(|cancelled| cancelled.to_string())?;
        let of_kind = |mark: NodeMark| {
            if mark.form() == MarkForm::Label {
                node.labels()
            } else {
                node.annotations()
            }
        };
        let wanted = NodeMark::split(&env(names::ENV_NODE_MARKS));
        let marks = ledger.add_marks(&wanted, |mark| of_kind(mark).contains_key(mark.key()));
        // A kubectl that is run on Windows, or for another controller, keeps no ledger.
        let annotations = if holder.plan_uid.is_empty() {
            json!({})
        } else {
            json!({names::ANNOTATION_CORDON: ledger.to_text()})
        };
        let mut patch = json!({
            "metadata": {"resourceVersion": node.resource_version(), "annotations": annotations},
            "spec": {"unschedulable": true},
        });
        for mark in marks {
            let of_kind = if mark.form() == MarkForm::Label {
                "labels"
            } else {
                "annotations"
            };
            patch["metadata"][of_kind][mark.key()] = json!(NodeMark::VALUE);
        }
        match nodes
            .patch(&act.node, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
