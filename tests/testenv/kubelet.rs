//! Simulated kubelets: nodes whose pods run as on real ones, as far as the API server can see.
//!
//! ```ignore
//! let nodes = NodeSet::numbered(&ctx.node_name("n"), 5).steer("run-delay", "100ms");
//! let kubelets = ctx.run(nodes).await;                    // the nodes exist, and take pods
//! kubelets.behaviour(&node, &[("exit-code", "1")]).await; // from now on, pods on that node fail
//! kubelets.reboot(&node).await;                           // NotReady, new boot ID, Ready
//! assert_eq!(kubelets.runs(&node, "upgrade").await, 1);   // number of starts of the container
//! ```
//!
//! [`refit_rehearse::pod_lifecycle`] decides what pods do. This module connects it to an API server.
//!
//! # Steering
//! Annotations `fake-kubelet/<key>` on a Plan, the template of a Job, a pod or a Node, or [`FakeKubelet::behaviour`]. The pod
//! takes precedence over `behaviour`, and that over the Node; `fake-kubelet/<container>.<key>` over `fake-kubelet/<key>`.
//!
//! | key | meaning |
//! |---|---|
//! | `start-delay` | time from the binding, or a boot, to the first container |
//! | `run-delay` | duration of a container; `never` does not end |
//! | `exit-code`, `exit-code-first` | exit codes; `-first` applies to the first start of a container of that name on the node |
//! | `message` | termination message |
//! | `delete-delay`, `stop-exit-code` | how containers end on SIGTERM |
//! | `reject` | the kubelet refuses the pod for this reason |
//! | `reboot` | the container reboots its node instead of ending: `once` or `always` |
//! | `comes-back` | how a node comes back after that: `ready`, `not-ready`, `never`, `as-if-nothing` (no reboot) |
//! | `boot-delay` | time without power (1s) |
//! | `reboot-required` | what `refit sentinel` finds with `IfRequired`: `true` or `false` |
//! | `backoff` | time before the second restart, doubled up to five minutes |
//!
//! `run-delay`, `exit-code`, `exit-code-first`, `message`, `delete-delay`, `stop-exit-code` and `reboot` may name a container. Without
//! a name they are for all but init containers, and `delete-delay` for all. With an unknown key, the kubelet refuses the pod with
//! `InvalidSteering`.
//!
//! # Reboots
//! `refit sentinel` and `refit reboot` are simulated by their arguments. The sentinel ends with its report, and leaves it on
//! the machine until the next boot. `reboot` ends with 0 in another boot than that of its argument, reboots the node in
//! that boot, and ends with 3 and `SentinelMissing` without a sentinel. `reboot.exit-code` is that of its command.
//!
//! # Containers with a real effect
//! A container with a task ([`TaskRunner`]) ends when the task does. By default `cordon` and `drain` cordon the node.
//!
//! # Cost
//! All nodes of one API server share a thread, a watch of pods and a watch of Nodes.

mod api;
mod container_task;
mod hub;
mod machine;
mod nodeset;
mod pod;
mod remote;
mod simulated;
mod watch;

use std::time::Duration;

use kube::Config;
use refit_rehearse::pod_lifecycle::{Boot, Machine, STEERING_PREFIX};
use tokio::sync::oneshot;

#[allow(
    unused_imports,
    reason = "two programs include this, and each uses a part of it"
)]
pub use container_task::{ContainerTask, CordonTasks, DrainProcesses, NoTasks, TaskRunner};
use machine::Health;
#[allow(
    unused_imports,
    reason = "two programs include this, and each uses a part of it"
)]
pub use nodeset::{NodeSet, NodeSpec};
use remote::{Command, NodeChange, Remote};
use simulated::SimulatedKubelets;

use super::simulated::Simulated;

/// Much longer than the node controller takes to make 2,500 new nodes schedulable.
const SCHEDULABLE: Duration = Duration::from_secs(120);

/// The kubelets of a set of nodes. They vanish when this is dropped; [`Self::stop`] takes the nodes along.
pub struct FakeKubelet(Kubelets);

enum Kubelets {
    Remote {
        remote: Remote,
        set: u64,
    },
    /// Those of a simulated cluster stay until it ends.
    Simulated(SimulatedKubelets),
}

impl FakeKubelet {
    /// Registers the nodes and runs their pods. `config` needs the permissions of all these kubelets.
    ///
    /// An existing Node keeps its boot ID, and its pods continue from their statuses.
    pub async fn start(config: &Config, nodes: NodeSet) -> Self {
        let count = nodes.nodes.len();
        let remote = Remote::connect(config.clone());
        let (done, answer) = oneshot::channel();
        remote.send(Command::Register { set: nodes, done });
        let limit = SCHEDULABLE * u32::try_from(count.div_ceil(2500).max(1)).expect("a number of nodes");
        let Ok(answer) = tokio::time::timeout(limit, answer).await else {
            panic!(
                "{count} nodes are not all schedulable after {} s",
                limit.as_secs()
            );
        };
        let set = answer.unwrap_or_else(|_| panic!("the fake kubelets cannot play these nodes"));
        Self(Kubelets::Remote { remote, set })
    }

    /// Registers the nodes on a simulated cluster, whose own kubelets run their pods.
    pub fn simulated(simulated: &Simulated, nodes: NodeSet) -> Self {
        Self(Kubelets::Simulated(SimulatedKubelets::register(simulated, nodes)))
    }

    async fn change(&self, node: &str, change: NodeChange) {
        match &self.0 {
            Kubelets::Remote { remote, .. } => remote.change(node, change).await,
            Kubelets::Simulated(simulated) => simulated.change(node, change),
        }
    }

    /// Cuts the power: everything on the node stops.
    pub async fn power_off(&self, node: &str) {
        self.change(node, NodeChange::PowerOff).await;
    }

    /// Boots the machine. It is Ready, with a new boot ID.
    pub async fn power_on(&self, node: &str) {
        self.change(node, NodeChange::Boot).await;
        self.change(node, NodeChange::SetHealth(Health::Ready)).await;
    }

    /// Cuts the network: the node reports nothing, and its containers continue.
    pub async fn disconnect(&self, node: &str) {
        self.change(node, NodeChange::Disconnect).await;
    }

    /// Restores the network: the node reports what has happened, and is Ready.
    pub async fn reconnect(&self, node: &str) {
        self.change(node, NodeChange::Reconnect).await;
        self.change(node, NodeChange::SetHealth(Health::Ready)).await;
    }

    /// Sets Ready to Unknown, like the node controller about a minute after the last sign of a node.
    pub async fn declare_lost(&self, node: &str) {
        self.change(node, NodeChange::SetHealth(Health::Unknown)).await;
    }

    /// `NotReady`, 100 ms later a new boot ID, and Ready. Running containers end with 255.
    pub async fn reboot(&self, node: &str) {
        self.reboot_taking(node, Duration::from_millis(100), Duration::ZERO)
            .await;
    }

    /// Like [`Self::reboot`], with these times without power, and `NotReady` with the new boot ID.
    pub async fn reboot_taking(&self, node: &str, off: Duration, not_ready: Duration) {
        let boot = Boot {
            off: off.try_into().expect("a short time"),
            not_ready: not_ready.try_into().expect("a short time"),
            ..Boot::default()
        };
        remote::reboot(boot, async |change| self.change(node, change).await).await;
    }

    /// The kubelet reports that it is not Ready, and still runs pods.
    pub async fn set_not_ready(&self, node: &str) {
        self.change(node, NodeChange::SetHealth(Health::NotReady)).await;
    }

    pub async fn set_ready(&self, node: &str) {
        self.change(node, NodeChange::SetHealth(Health::Ready)).await;
    }

    pub async fn set_kubelet_version(&self, node: &str, version: &str) {
        self.change(node, NodeChange::KubeletVersion(version.to_owned()))
            .await;
    }

    /// Deletes the Node and its machine.
    pub async fn delete_node(&self, node: &str) {
        self.change(node, NodeChange::Delete).await;
    }

    /// Replaces the steering of the node's pods. Keys have no prefix. An exit code is determined when the container ends.
    pub async fn behaviour(&self, node: &str, steering: &[(&str, &str)]) {
        let steering = steering
            .iter()
            .map(|(key, value)| (format!("{STEERING_PREFIX}{key}"), (*value).to_owned()));
        self.change(node, NodeChange::Steer(steering.collect())).await;
    }

    /// Number of starts of containers with this name.
    pub async fn runs(&self, node: &str, container: &str) -> u32 {
        let container = container.to_owned();
        match &self.0 {
            Kubelets::Remote { remote, .. } => {
                let runs = move |node: &machine::Node| {
                    node.machine.runs.get(&container).copied().unwrap_or_default()
                };
                remote.read(node, runs).await
            }
            Kubelets::Simulated(simulated) => simulated.runs(node, &container),
        }
    }

    async fn machine(&self, node: &str) -> Machine {
        match &self.0 {
            Kubelets::Remote { remote, .. } => remote.read(node, |node| node.machine.clone()).await,
            Kubelets::Simulated(simulated) => simulated.machine(node),
        }
    }

    pub async fn boot_id(&self, node: &str) -> String {
        self.machine(node).await.boot_id
    }

    /// Empties `/run/refit` on the machine.
    pub async fn lose_sentinels(&self, node: &str) {
        self.change(node, NodeChange::LoseSentinels).await;
    }

    /// Number of boots of the machine.
    pub async fn boots(&self, node: &str) -> u32 {
        match &self.0 {
            Kubelets::Remote { remote, .. } => remote.read(node, |node| node.boots).await,
            Kubelets::Simulated(simulated) => simulated.boots(node),
        }
    }

    /// Ends the kubelets, and leaves their nodes and pods as they are.
    pub fn leave(&self) {
        if let Kubelets::Remote { remote, set } = &self.0 {
            remote.send(Command::Leave {
                set: *set,
                remove: false,
                done: None,
            });
        }
    }

    /// Deletes the nodes and their pods.
    pub async fn stop(self) {
        let Kubelets::Remote { remote, set } = &self.0 else {
            return;
        };
        let (done, answer) = oneshot::channel();
        remote.send(Command::Leave {
            set: *set,
            remove: true,
            done: Some(done),
        });
        let _ = answer.await;
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.leave();
    }
}
