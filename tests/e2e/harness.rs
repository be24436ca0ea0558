//! Shared setup: two real nodes, the controller of `deploy/` on the first of them, Plans whose payload is a script, and pods
//! with a budget.

mod workloads;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use refit_api::{NodeProgress, Plan};
use serde_json::{Value, json};

use crate::harness::{active, is_cordoned, ledger};
use crate::testenv::context::TestContext;
use crate::testenv::real::{self, BUSYBOX, Deployed, PATIENCE, RealNode};
use crate::testenv::wait;
pub(crate) use workloads::is_serving;

/// File on the host to which payloads append a line when they begin: their runs.
pub(crate) const RUNS: &str = "/var/lib/runs";

/// Label of the second node, for Plans that do not select the controller's node.
pub(crate) const WORKER: &str = "pool";

pub(crate) struct E2eHarness {
    pub(crate) one: RealNode,
    pub(crate) two: RealNode,
    pub(crate) deployed: Deployed,
    /// The last field, so that it is dropped last: it reports what the nodes have left.
    pub(crate) ctx: TestContext,
}

/// Nodes that are Ready, and a controller that leads.
pub(crate) async fn harness() -> E2eHarness {
    harness_in(real::context().await).await
}

/// As [`harness`], in this context.
pub(crate) async fn harness_in(ctx: TestContext) -> E2eHarness {
    let [one, two] = real::nodes(&ctx, ["one", "two"]).await;
    ctx.label_node(two.name(), WORKER, Some("workers")).await;
    let deployed = real::deploy(&ctx, &one).await;
    deployed.leading().await;
    E2eHarness {
        one,
        two,
        deployed,
        ctx,
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

/// A payload that records its run, and waits for [`E2eHarness::go`].
pub(crate) fn waits() -> String {
    format!(
        "echo \"$SYSTEM_UPGRADE_PLAN_LATEST_VERSION\" >>/host{RUNS}\nuntil [ -e /host/var/lib/go ]; do sleep 0.1; done"
    )
}

/// A payload that records the boot in which it runs.
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

impl E2eHarness {
    pub(crate) async fn make(&self, name: &str, script: &str, more: &Value) -> Plan {
        self.ctx.plan(&plan(name, script, more)).await
    }

    /// Waits until the Plan is Complete. Checks that all nodes are released.
    pub(crate) async fn complete(&self, plan: &str) -> Plan {
        let plan = self.ctx.plan_complete(plan, 2 * PATIENCE).await;
        for node in [&self.one, &self.two] {
            let node = self.ctx.node(node.name()).await;
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
        is_cordoned(&self.ctx.node(node.name()).await)
    }

    /// Waits until the status of the node is `good`, and returns it.
    pub(crate) async fn wait_for_progress(
        &self,
        plan: &str,
        node: &RealNode,
        what: &str,
        good: impl Fn(&NodeProgress) -> bool,
    ) -> NodeProgress {
        let what = format!("says that {} {what}", node.name());
        let is_good = |plan: &Plan| active(plan, node.name()).is_some_and(&good);
        let seen = self.ctx.plan_until(plan, &what, PATIENCE, is_good).await;
        active(&seen, node.name()).expect("it was there").clone()
    }

    pub(crate) async fn node(&self, node: &RealNode) -> Node {
        self.ctx.node(node.name()).await
    }

    pub(crate) fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.ctx.client.clone(), self.ctx.namespace())
    }
}
