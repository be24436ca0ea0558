//! What a case begins with: two real nodes, the controller on the first of them as `deploy/` has it, Plans whose payload is a
//! script, and pods that somebody minds.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use refit::api::{NodeProgress, Plan};
use serde_json::{Value, json};

use crate::scene::{active, is_cordoned, ledger};
use crate::support::real::{self, BUSYBOX, Deployed, PATIENCE, RealNode};
use crate::support::wait;
use crate::support::world::World;
use crate::support::world::create;

/// Payloads append a line to it as they begin, so it counts their runs.
pub(crate) const RUNS: &str = "/var/lib/runs";

/// Label of the second node, for Plans that are to leave the controller's alone.
const WORKER: &str = "pool";

pub(crate) struct Stage {
    pub(crate) one: RealNode,
    pub(crate) two: RealNode,
    pub(crate) deployed: Deployed,
    /// Last, and dropped last: it tells what nodes have left.
    pub(crate) world: World,
}

/// Nodes that are Ready, and a controller that leads.
pub(crate) async fn stage() -> Stage {
    let world = real::world().await;
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

fn merge(into: &mut Value, patch: &Value) {
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

    /// A Deployment `web` of one pod on the second node, Ready, with a budget `guard` that spares none.
    pub(crate) async fn guarded_pod(&self) -> Pod {
        let labels = json!({ "app": "web" });
        let web = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "web" },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "nodeSelector": { WORKER: "workers" },
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{ "name": "web", "image": BUSYBOX, "command": ["sleep", "infinity"] }],
                    },
                },
            },
        });
        let guard = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "guard" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } },
        });
        create(&self.namespaced::<Deployment>(), web).await;
        create(&self.budgets(), guard).await;
        let pod = self.web_is_ready().await;
        let looked = |budget: &PodDisruptionBudget| {
            budget
                .status
                .as_ref()
                .is_some_and(|status| status.current_healthy == Some(1))
        };
        wait::object(self.budgets(), "guard", "counts its pod", PATIENCE, looked).await;
        pod
    }

    /// The one pod of `web`, when it is Ready.
    pub(crate) async fn web_is_ready(&self) -> Pod {
        wait::eventually("web is ready", PATIENCE, async || {
            let mine = ListParams::default().labels("app=web");
            let pods = self
                .world
                .pods()
                .list(&mine)
                .await
                .map_err(|error| error.to_string())?;
            let ready = |pod: &&Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                pod.metadata.deletion_timestamp.is_none()
                    && conditions
                        .into_iter()
                        .flatten()
                        .any(|it| it.type_ == "Ready" && it.status == "True")
            };
            let found = pods.iter().find(ready).cloned();
            found.ok_or_else(|| format!("{:?}", pods.iter().map(Pod::name_any).collect::<Vec<_>>()))
        })
        .await
    }

    /// From now on the budget lets its pod go.
    pub(crate) async fn relent(&self) {
        let patch = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
        self.budgets()
            .patch("guard", &PatchParams::default(), &patch)
            .await
            .unwrap_or_else(|error| panic!("cannot change the budget: {error}"));
    }

    /// Waits until the node is cordoned and its drain waits for the budget.
    pub(crate) async fn drain_waits(&self, plan: &str, node: &RealNode) -> NodeProgress {
        let waits = |node: &NodeProgress| node.reason.as_deref() == Some("DrainWaiting");
        let told = self.told(plan, node, "waits in its drain", waits).await;
        assert!(self.is_cordoned(node).await);
        told
    }

    pub(crate) async fn node(&self, node: &RealNode) -> Node {
        self.world.node(node.name()).await
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        self.namespaced()
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.world.client.clone(), self.world.namespace())
    }
}
