//! Nodes whose upgrades end when the test says so, and not before: for tests of what a Plan says meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt as _};
use refit::api::names::ENV_PLAN_NAME;
use refit::rehearse::podlife::{Defaults, Delay, Exit};
use tokio::sync::oneshot;

use super::kubelet::{Act, ContainerAct, FakeKubelet, NodeSet};
use super::wait::{self, SOON};
use super::world::World;

/// Nodes with fake kubelets. They vanish when dropped.
pub struct Puppets {
    pub kubelet: FakeKubelet,
    strings: Arc<Strings>,
    names: BTreeMap<String, String>,
}

/// What ends a running container: by node and Plan.
type Ends = HashMap<(String, String), oneshot::Sender<i32>>;

#[derive(Clone, Default)]
struct Strings(Arc<Mutex<Ends>>);

impl Strings {
    fn with<T>(&self, act: impl FnOnce(&mut Ends) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ContainerAct for Strings {
    fn acts(&self, container: &str) -> bool {
        container == "upgrade"
    }

    fn run(&self, act: Act) -> BoxFuture<'static, Exit> {
        let plan = act.start.env.get(ENV_PLAN_NAME).cloned().unwrap_or_default();
        let (end, ended) = oneshot::channel();
        self.with(|ends| ends.insert((act.node, plan), end));
        ended
            .map(|code| Exit {
                code: code.unwrap_or(255),
                message: None,
            })
            .boxed()
    }
}

impl World {
    /// Registers nodes and waits until pods may be bound to them. Their label `kubernetes.io/hostname` is their full name.
    pub async fn puppets<const N: usize>(&self, names: [&str; N]) -> Puppets {
        self.puppets_with(names, |nodes| nodes).await
    }

    /// As [`Self::puppets`], with nodes as `change` wants them.
    pub async fn puppets_with<const N: usize>(
        &self,
        names: [&str; N],
        change: impl FnOnce(NodeSet) -> NodeSet,
    ) -> Puppets {
        let strings = Strings::default();
        let quick = Defaults {
            start: Delay::millis(20),
            init: Delay::millis(20),
            ..Defaults::default()
        };
        let nodes = NodeSet::named(names.map(|name| self.node_name(name)))
            .labels(self.node_labels())
            .pods(quick)
            .act(strings.clone());
        Puppets {
            kubelet: FakeKubelet::start(&self.bed.kubelet_config().await, change(nodes)).await,
            strings: Arc::new(strings),
            names: names
                .iter()
                .map(|name| ((*name).to_owned(), self.node_name(name)))
                .collect(),
        }
    }
}

impl Puppets {
    /// The full name of a node.
    pub fn name(&self, name: &str) -> String {
        self.names[name].clone()
    }

    /// Waits until the upgrade of a Plan runs on a node, and ends it with that exit code.
    pub async fn end(&self, plan: &str, node: &str, code: i32) {
        let key = (node.to_owned(), plan.to_owned());
        let end = wait::eventually(&format!("{plan} runs on {node}"), SOON, async || {
            self.strings
                .with(|ends| ends.remove(&key))
                .ok_or_else(|| "it does not".to_owned())
        })
        .await;
        end.send(code)
            .unwrap_or_else(|_| panic!("the container of {plan} on {node} is gone"));
    }

    /// Waits until the upgrade of a Plan runs on a node, and has it succeed.
    pub async fn succeed(&self, plan: &str, node: &str) {
        self.end(plan, node, 0).await;
    }
}
