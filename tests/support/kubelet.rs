//! Fake kubelets: nodes that run pods as real ones would, as far as the API server can tell.
//!
//! ```ignore
//! let kubelets = FakeKubelet::start(&world.bed.kubelet_config().await, NodeSet::numbered(&world.node_name("n"), 5)
//!     .labels(world.node_labels())
//!     .steer("run-delay", "100ms")).await;              // nodes are there, and pods may be bound to them
//! kubelets.behaviour(&node, &[("exit-code", "1")]).await;  // pods on that node fail from now on
//! kubelets.reboot(&node).await;                         // NotReady, new boot ID, Ready
//! assert_eq!(kubelets.runs(&node, "upgrade").await, 1); // how often the container was started there
//! ```
//!
//! A pod's life is [`refit::rehearse::podlife`]; what is written here is only how it meets an API server.
//!
//! # Steering
//! Annotations `fake-kubelet/<key>` on a Plan, a Job's template, a pod or a Node, or [`FakeKubelet::behaviour`]. On the pod
//! comes before `behaviour`, that before the Node, and `fake-kubelet/<container>.<key>` before `fake-kubelet/<key>`.
//!
//! | key | meaning |
//! |---|---|
//! | `start-delay` | from the binding, or a boot, to the first container |
//! | `init-delay`, `run-delay` | how long init containers, the others run; `never` hangs |
//! | `exit-code`, `exit-code-first`, `init-exit-code` | exit codes; `-first` is for the first try of the pod's owner on the node |
//! | `message` | termination message |
//! | `delete-delay`, `stop-exit-code` | how containers end that are told to |
//! | `reject` | the kubelet refuses the pod: `Reason` or `Reason: message` |
//! | `reboot` | the container reboots its node instead of ending: `once` or `always` |
//! | `comes-back` | how a node does that a container has rebooted: `ready`, `not-ready`, `never`, `as-if-nothing` (no reboot) |
//! | `boot-delay`, `ready-delay` | how long it is without power (1s), then `NotReady` in its new boot (0) |
//! | `reboot-required` | what `refit sentinel` finds with `IfRequired`: `true` or `false` |
//! | `teardown-delay`, `backoff`, `resync-delay` | the kubelet's own pace |
//!
//! By container there are `run-delay`, `exit-code`, `exit-code-first`, `message`, `delete-delay`, `stop-exit-code` and `reboot`. A
//! key that does not exist makes the kubelet refuse the pod with `InvalidSteering`.
//!
//! # Reboots
//! `refit sentinel` and `refit reboot` are played by what they are started with: the sentinel ends with its report and leaves
//! it on the machine until the next boot; `reboot` ends with 0 in another boot than it is told, reboots the node in the same
//! one, and ends with 3 and `SentinelMissing` where there is no sentinel. `reboot.exit-code` is its command's.
//!
//! # Containers whose effect is real
//! [`ContainerAct`]: the container ends when its act does. By default `cordon` and `drain` cordon the node.
//!
//! # Cost
//! All sets of nodes on one API server share a thread, a watch of the pods and one of the Nodes.

mod act;
mod api;
mod hub;
mod machine;
mod nodeset;
mod pod;
mod remote;
mod watch;

use std::time::Duration;

use kube::Config;
use refit::api::SentinelName;
use refit::rehearse::podlife::{Boot, STEERING_PREFIX};
use tokio::sync::oneshot;

#[allow(
    unused_imports,
    reason = "two programs include this, and each uses a part of it"
)]
pub use act::{Act, ContainerAct, Cordons, Nothing};
use machine::Health;
#[allow(
    unused_imports,
    reason = "two programs include this, and each uses a part of it"
)]
pub use nodeset::{NodeSet, NodeSpec};
use remote::{Command, NodeChange, Remote};

/// Longer than a node controller with a few thousand nodes takes to let pods onto a new one.
const SCHEDULABLE: Duration = Duration::from_secs(120);

/// The kubelets of a set of nodes. They vanish when this is dropped; [`Self::stop`] takes the nodes along.
pub struct FakeKubelet {
    remote: Remote,
    set: u64,
}

impl FakeKubelet {
    /// Registers the nodes and runs their pods. `config` must be allowed to do what kubelets do, for all nodes.
    ///
    /// A Node that exists already is taken up with its boot ID, and its pods where their statuses say that they are.
    pub async fn start(config: &Config, nodes: NodeSet) -> Self {
        let count = nodes.nodes.len();
        let remote = Remote::connect(config.clone());
        let (done, answer) = oneshot::channel();
        remote.send(Command::Register { set: nodes, done });
        let Ok(answer) = tokio::time::timeout(SCHEDULABLE, answer).await else {
            panic!(
                "{count} nodes are not all schedulable after {} s",
                SCHEDULABLE.as_secs()
            );
        };
        let set = answer.unwrap_or_else(|_| panic!("the fake kubelets cannot play these nodes"));
        Self { remote, set }
    }

    /// Cuts the power: nothing happens on the node any more, and nothing is heard of it.
    pub async fn power_off(&self, node: &str) {
        self.remote.change(node, NodeChange::PowerOff).await;
    }

    /// Boots a machine that was off; it is Ready with a new boot ID.
    pub async fn power_on(&self, node: &str) {
        self.remote.change(node, NodeChange::Boot).await;
        self.remote.change(node, NodeChange::Say(Health::Ready)).await;
    }

    /// Cuts the network: nothing is heard of the node, but its containers go on.
    pub async fn disconnect(&self, node: &str) {
        self.remote.change(node, NodeChange::Disconnect).await;
    }

    /// The network is there again: what happened meanwhile is told now, and the node is Ready.
    pub async fn reconnect(&self, node: &str) {
        self.remote.change(node, NodeChange::Reconnect).await;
        self.remote.change(node, NodeChange::Say(Health::Ready)).await;
    }

    /// Says of a node that is not heard of what the node controller says after its grace period of about a minute: Ready is
    /// Unknown.
    pub async fn declare_lost(&self, node: &str) {
        self.remote.change(node, NodeChange::Say(Health::Unknown)).await;
    }

    /// `NotReady`, some 100 ms later a new boot ID, and Ready. Running containers end with 255.
    pub async fn reboot(&self, node: &str) {
        self.reboot_taking(node, Duration::from_millis(100), Duration::ZERO)
            .await;
    }

    /// As [`Self::reboot`]: so long without power, and then so long `NotReady` with the new boot ID.
    pub async fn reboot_taking(&self, node: &str, off: Duration, not_ready: Duration) {
        let boot = Boot {
            off: off.try_into().expect("a short time"),
            not_ready: not_ready.try_into().expect("a short time"),
            ..Boot::default()
        };
        self.remote.reboot(node, boot).await;
    }

    /// The kubelet shuts down in an orderly way: it refuses pods and ends those that run (KEP-2000). It is still there;
    /// [`Self::reboot`] or [`Self::power_off`] comes next.
    pub async fn shut_down(&self, node: &str) {
        self.remote.change(node, NodeChange::ShutDown).await;
        self.remote.change(node, NodeChange::Say(Health::NotReady)).await;
    }

    /// The kubelet says that it is not Ready; it runs pods all the same.
    pub async fn set_not_ready(&self, node: &str) {
        self.remote.change(node, NodeChange::Say(Health::NotReady)).await;
    }

    /// The kubelet says that it is Ready.
    pub async fn set_ready(&self, node: &str) {
        self.remote.change(node, NodeChange::Say(Health::Ready)).await;
    }

    /// The kubelet has another version from now on.
    pub async fn set_kubelet_version(&self, node: &str, version: &str) {
        self.remote
            .change(node, NodeChange::KubeletVersion(version.to_owned()))
            .await;
    }

    /// The Node object is deleted, and its machine is gone.
    pub async fn delete_node(&self, node: &str) {
        self.remote.change(node, NodeChange::Delete).await;
    }

    /// Another machine registers under the name of a deleted node. Returns when pods may be bound to it.
    pub async fn recreate_node(&self, node: &str) {
        self.remote.change(node, NodeChange::Recreate).await;
        let what = format!("{node} is schedulable");
        super::wait::eventually(&what, SCHEDULABLE, async || {
            let schedulable = self.remote.ask(node, machine::Node::is_schedulable).await;
            schedulable.then_some(()).ok_or_else(|| "it is not".to_owned())
        })
        .await;
    }

    /// How pods on that node behave from now on, in place of what was said here before: keys of the steering without their
    /// prefix. For `exit-code` and the like a pod goes by what is said when its container ends.
    pub async fn behaviour(&self, node: &str, steering: &[(&str, &str)]) {
        let steering = steering
            .iter()
            .map(|(key, value)| (format!("{STEERING_PREFIX}{key}"), (*value).to_owned()));
        self.remote
            .change(node, NodeChange::Steer(steering.collect()))
            .await;
    }

    /// How often containers of this name were started on this node.
    pub async fn runs(&self, node: &str, container: &str) -> u32 {
        let container = container.to_owned();
        self.remote
            .ask(node, move |node| {
                node.runs.get(&container).copied().unwrap_or_default()
            })
            .await
    }

    /// The boot ID of the machine.
    pub async fn boot_id(&self, node: &str) -> String {
        self.remote.ask(node, |node| node.machine.boot_id.clone()).await
    }

    /// The sentinels on the machine.
    pub async fn sentinels(&self, node: &str) -> Vec<SentinelName> {
        self.remote
            .ask(node, |node| node.machine.sentinels.keys().cloned().collect())
            .await
    }

    /// Somebody empties `/run/refit` on the machine.
    pub async fn lose_sentinels(&self, node: &str) {
        self.remote.change(node, NodeChange::LoseSentinels).await;
    }

    /// How often the machine was started.
    pub async fn boots(&self, node: &str) -> u32 {
        self.remote.ask(node, |node| node.boots).await
    }

    /// Takes the nodes and their pods out of the cluster.
    pub async fn stop(self) {
        let (done, answer) = oneshot::channel();
        self.remote.send(Command::Leave {
            set: self.set,
            remove: true,
            done: Some(done),
        });
        let _ = answer.await;
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.remote.send(Command::Leave {
            set: self.set,
            remove: false,
            done: None,
        });
    }
}
