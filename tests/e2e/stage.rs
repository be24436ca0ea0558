//! What a case begins with: two real nodes, the controller on the first of them as `deploy/` has it, Plans whose payload is a
//! script, and pods that somebody minds.

mod workloads;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use refit::api::{NodeProgress, Plan};
use serde_json::{Value, json};

use crate::scene::{active, is_cordoned, ledger};
use crate::support::real::{self, BUSYBOX, Deployed, PATIENCE, RealNode};
use crate::support::wait;
use crate::support::world::World;
pub(crate) use workloads::is_serving;

/// Payloads append a line to it as they begin, so it counts their runs.
pub(crate) const RUNS: &str = "/var/lib/runs";

/// Label of the second node, for Plans that are to leave the controller's alone.
pub(crate) const WORKER: &str = "pool";

pub(crate) struct Stage {
    pub(crate) one: RealNode,
    pub(crate) two: RealNode,
    pub(crate) deployed: Deployed,
    /// Last, and dropped last: it tells what nodes have left.
    pub(crate) world: World,
}

/// Nodes that are Ready, and a controller that leads.
pub(crate) async fn stage() -> Stage {
    stage_in(real::world().await).await
}

/// As [`stage`], in that world.
pub(crate) async fn stage_in(world: World) -> Stage {
    let [one, two] = real::nodes(&world, ["one", "two"]).await;
    world.label_node(two.name(), WORKER, Some("workers")).await;
    let deployed = real::deploy(&world, &one).await;
    deployed.leading().await;
    Stage {
        one,
        two,
        deployed,
        world,
    }
}

/// A Plan to version `v2` for both nodes, one at a time, changed by `more` as a merge patch would.
pub(crate) fn plan(name: &str, script: &str, more: &Value) -> String {
    let mut plan = json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": { "name": name },
        "spec": {
            "concurrency": 1,
            "version": "v2",
            "nodeSelector": { "matchLabels": {} },
            "serviceAccountName": "system-upgrade",
            "upgrade": container(script),
        },
    });
    merge(&mut plan["spec"], more);
    plan.to_string()
}

/// For [`plan`]: the second node only.
pub(crate) fn workers() -> Value {
    json!({ "matchLabels": { WORKER: "workers" } })
}

/// A container of a Plan that runs a script with the host at `/host`.
pub(crate) fn container(script: &str) -> Value {
    let script = format!("set -eu\n{script}");
    json!({ "image": BUSYBOX, "command": ["sh", "-c"], "args": [script] })
}

/// A payload that says that it runs, and ends when the test lets it ([`Stage::go`]).
pub(crate) fn waits() -> String {
    format!(
        "echo \"$SYSTEM_UPGRADE_PLAN_LATEST_VERSION\" >>/host{RUNS}\nuntil [ -e /host/var/lib/go ]; do sleep 0.1; done"
    )
}

/// A payload that says in which boot of its node it runs.
pub(crate) fn notes_its_boot() -> String {
    format!("cat /proc/sys/kernel/random/boot_id >>/host{RUNS}")
}

pub(crate) fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

impl Stage {
    pub(crate) async fn make(&self, name: &str, script: &str, more: &Value) -> Plan {
        self.world.plan(&plan(name, script, more)).await
    }

    /// Waits until the Plan is Complete, with all nodes given back.
    pub(crate) async fn complete(&self, plan: &str) -> Plan {
        let plan = self.world.plan_complete(plan, 2 * PATIENCE).await;
        for node in [&self.one, &self.two] {
            let node = self.world.node(node.name()).await;
            assert!(!is_cordoned(&node) && ledger(&node).is_none(), "{node:#?}");
        }
        plan
    }

    /// The node on which a payload has begun, and the other, on which none has.
    pub(crate) async fn first_and_other(&self) -> (&RealNode, &RealNode) {
        wait::eventually("a payload has begun", PATIENCE, async || {
            let (one, two) = (self.one.lines(RUNS), self.two.lines(RUNS));
            match (one.is_empty(), two.is_empty()) {
                (false, true) => Ok((&self.one, &self.two)),
                (true, false) => Ok((&self.two, &self.one)),
                both => {
                    assert!(both.0, "one at a time");
                    Err("none".to_owned())
                }
            }
        })
        .await
    }

    /// Ends the payload of [`waits`] on that node.
    pub(crate) fn go(node: &RealNode) {
        node.write("/var/lib/go", "");
    }

    pub(crate) async fn is_cordoned(&self, node: &RealNode) -> bool {
        is_cordoned(&self.world.node(node.name()).await)
    }

    /// Waits until status says that of the node, and returns it.
    pub(crate) async fn told(
        &self,
        plan: &str,
        node: &RealNode,
        what: &str,
        good: impl Fn(&NodeProgress) -> bool,
    ) -> NodeProgress {
        let seen = self
            .world
            .plan_until(
                plan,
                &format!("says that {} {what}", node.name()),
                PATIENCE,
                |plan| active(plan, node.name()).is_some_and(&good),
            )
            .await;
        active(&seen, node.name()).expect("it was there").clone()
    }

    pub(crate) async fn node(&self, node: &RealNode) -> Node {
        self.world.node(node.name()).await
    }

    pub(crate) fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), self.world.namespace())
    }
}
