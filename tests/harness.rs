//! Shared setup of tests of the controller: a namespace, nodes with kubelets that run pods, short Plans. Shared checks:
//! which Jobs ran how often, from the API server's audit log and from the kubelets.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use refit_api::Ledger;
use refit_api::names::plan_label;
use refit_api::{NodeProgress, Plan};
use refit_rehearse::pod_lifecycle::{Defaults, Delay, STEERING_PREFIX};
use serde_json::{Value, json};

use crate::testenv::audit::JobCreated;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::done;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::manifest;
use crate::testenv::wait::{self, SOON};

/// A test context with nodes that run pods.
pub(crate) struct Harness {
    pub(crate) ctx: TestContext,
    pub(crate) kubelet: FakeKubelet,
}

impl Harness {
    /// Nodes of these names, each with the id of the context in front ([`Self::node`]).
    pub(crate) async fn new<const N: usize>(nodes: [&str; N]) -> Self {
        Self::with(nodes, |set| set).await
    }

    /// As [`Self::new`], with nodes as `change` wants them.
    pub(crate) async fn with<const N: usize>(
        nodes: [&str; N],
        change: impl FnOnce(NodeSet) -> NodeSet,
    ) -> Self {
        Self::on(TestContext::new().await, nodes, change).await
    }

    /// As [`Self::with`], in an existing context.
    pub(crate) async fn on<const N: usize>(
        ctx: TestContext,
        nodes: [&str; N],
        change: impl FnOnce(NodeSet) -> NodeSet,
    ) -> Self {
        let kubelet = kubelets(&ctx, nodes, change).await;
        Self { ctx, kubelet }
    }

    /// As [`Self::new`], with upgrades that go on until [`Self::release`].
    pub(crate) async fn held<const N: usize>(nodes: [&str; N]) -> Self {
        Self::with(nodes, held).await
    }

    /// Upgrades that begin on the node from now on go on until [`Self::release`].
    pub(crate) async fn hold(&self, node: &str) {
        self.behave(node, &[("upgrade.run-delay", "never")]).await;
    }

    /// Ends the upgrade that runs on the node. Those to come end as soon as they begin.
    pub(crate) async fn release(&self, node: &str) {
        self.behave(node, &[("upgrade.run-delay", "0")]).await;
    }

    /// How pods behave on the node from now on.
    pub(crate) async fn behave(&self, node: &str, steering: &[(&str, &str)]) {
        self.kubelet.behaviour(&self.node(node), steering).await;
    }

    pub(crate) async fn get(&self, node: &str) -> Node {
        self.ctx.node(&self.node(node)).await
    }

    /// The full name of a node.
    pub(crate) fn node(&self, name: &str) -> String {
        self.ctx.node_name(name)
    }

    /// Makes a Plan for all nodes of the context, one at a time, to version `v1`, changed by `more` as a merge patch would.
    pub(crate) async fn plan(&self, name: &str, more: Value) -> Plan {
        self.ctx.plan(&plan(name, more)).await
    }

    /// As [`Self::plan`], with a spec alone.
    pub(crate) async fn plan_with(&self, name: &str, spec: Value) -> Plan {
        self.plan(name, json!({ "spec": spec })).await
    }

    /// Changes the spec of a Plan.
    pub(crate) async fn edit(&self, plan: &str, spec: Value) -> Plan {
        self.ctx.edit_plan(plan, json!({ "spec": spec })).await
    }

    /// Waits until the Plan is Complete with every node that it selects, and returns its hash.
    pub(crate) async fn complete(&self, plan: &str) -> String {
        let plan = self.ctx.plan_complete(plan, SOON).await;
        hash(&plan)
    }

    /// Waits until the node is done with that hash.
    pub(crate) async fn done(&self, plan: &str, node: &str, hash: &str) -> Node {
        let what = format!("is done for {plan} with {hash}");
        self.ctx
            .node_until(&self.node(node), &what, SOON, |node| {
                done(node, plan).as_deref() == Some(hash)
            })
            .await
    }

    /// Waits until `upgrade` runs on the node for the Plan, and returns what status says of the node.
    pub(crate) async fn upgrading(&self, plan: &str, node: &str) -> NodeProgress {
        self.phase(plan, node, "Upgrading").await
    }

    /// Waits until `upgrade` runs on one of the nodes `one` and `two`, and returns that one and the other.
    pub(crate) async fn first_of_two(&self, plan: &str) -> (&'static str, &'static str) {
        tokio::select! {
            _ = self.upgrading(plan, "one") => ("one", "two"),
            _ = self.upgrading(plan, "two") => ("two", "one"),
        }
    }

    /// Waits until status says that the node is in that phase.
    pub(crate) async fn phase(&self, plan: &str, node: &str, phase: &str) -> NodeProgress {
        self.progress(plan, node, &format!("is {phase}"), |node| node.phase == phase)
            .await
    }

    /// Waits until status says that the node is held up for that reason.
    pub(crate) async fn held_up(&self, plan: &str, node: &str, reason: &str) -> NodeProgress {
        self.progress(plan, node, &format!("is held up by {reason}"), |node| {
            node.reason.as_deref() == Some(reason)
        })
        .await
    }

    async fn progress(
        &self,
        plan: &str,
        node: &str,
        what: &str,
        good: impl Fn(&NodeProgress) -> bool,
    ) -> NodeProgress {
        let node = self.node(node);
        let plan = self
            .ctx
            .plan_until(plan, &format!("says that {node} {what}"), SOON, |plan| {
                active(plan, &node).is_some_and(&good)
            })
            .await;
        active(&plan, &node).unwrap().clone()
    }

    /// Fails unless the Plan has exactly one Job for the node.
    pub(crate) async fn job(&self, plan: &str, node: &str) -> Job {
        let node = self.node(node);
        let mut jobs = self.ctx.jobs_of(plan).await;
        jobs.retain(|job| job.annotations().get("refit.rs/node") == Some(&node));
        let [job] = <[Job; 1]>::try_from(jobs)
            .unwrap_or_else(|jobs| panic!("{} Jobs of Plan {plan} for {node}: {jobs:#?}", jobs.len()));
        job
    }

    /// Waits until there is a Job of the Plan for the node that is as `good` wants it.
    pub(crate) async fn job_until(
        &self,
        plan: &str,
        node: &str,
        what: &str,
        good: impl Fn(&Job) -> bool,
    ) -> Job {
        let node = self.node(node);
        wait::eventually(&format!("a Job of {plan} on {node} {what}"), SOON, async || {
            let jobs = self.ctx.jobs_of(plan).await;
            let mine = |job: &&Job| job.annotations().get("refit.rs/node") == Some(&node);
            let seen = jobs
                .iter()
                .filter(mine)
                .map(Job::name_any)
                .collect::<Vec<_>>()
                .join(", ");
            jobs.iter()
                .filter(mine)
                .find(|job| good(job))
                .cloned()
                .ok_or(format!("Jobs: {seen}"))
        })
        .await
    }

    /// Deletes a Job with its pods, as a user does, and waits until it is gone.
    pub(crate) async fn delete_job(&self, job: &Job) {
        let (jobs, name) = (self.ctx.jobs(), job.name_any());
        jobs.delete(&name, &DeleteParams::background()).await.unwrap();
        wait::gone(jobs, &name, SOON).await;
    }

    /// Deletes a Plan, and waits until it is gone.
    pub(crate) async fn delete_plan(&self, plan: &str) {
        self.ctx.delete_plan(plan).await;
        wait::gone(self.ctx.plans(), plan, SOON).await;
    }

    /// All Jobs that the controller made, in their order.
    pub(crate) async fn made(&self) -> Vec<JobCreated> {
        self.ctx.controller_requests().await.jobs_created()
    }

    /// Names of the nodes for which the controller made Jobs, in their order, without the id of the ctx.
    pub(crate) async fn made_for(&self) -> Vec<String> {
        let prefix = self.node("");
        let made = self.made().await;
        made.iter()
            .map(|job| job.node.strip_prefix(&prefix).unwrap_or(&job.node).to_owned())
            .collect()
    }

    /// Fails unless the controller was never refused anything, each node (by UID) got one Job for each hash, and those
    /// are Jobs for these nodes and hashes, in any order.
    pub(crate) async fn made_once_each<const N: usize>(&self, expected: [(&str, &str); N]) {
        let requests = self.ctx.controller_requests().await;
        assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
        for ((node, hash), jobs) in requests.jobs_by_node_and_hash() {
            assert_eq!(jobs.len(), 1, "Jobs for node {node} and hash {hash}");
        }
        let mut made: Vec<_> = requests
            .jobs_created()
            .into_iter()
            .map(|job| (job.node, job.hash))
            .collect();
        let mut expected = expected
            .map(|(node, hash)| (self.node(node), hash.to_owned()))
            .to_vec();
        made.sort();
        expected.sort();
        assert_eq!(made, expected);
    }

    /// How often a container of that name was started on the node.
    pub(crate) async fn runs(&self, node: &str, container: &str) -> u32 {
        self.kubelet.runs(&self.node(node), container).await
    }

    /// What the events with that reason say, sorted. Fails if one was counted up: each tells one thing.
    pub(crate) async fn event_lines(&self, reason: &str) -> Vec<String> {
        let mut lines: Vec<_> = self
            .ctx
            .events_with(reason)
            .await
            .into_iter()
            .map(|event| {
                assert_eq!(event.count, Some(1), "{event:#?}");
                event.message.unwrap_or_default()
            })
            .collect();
        lines.sort();
        lines
    }

    /// Fails unless the events with that reason are these, in any order.
    pub(crate) async fn expect_events<const N: usize>(&self, reason: &str, expected: [String; N]) {
        let mut expected = expected.to_vec();
        expected.sort();
        // The event comes before the write that it tells of, but that write may be one that the test does not wait for.
        wait::until(
            &format!("the events {reason} are {expected:#?}"),
            async || self.event_lines(reason).await,
            |lines| *lines == expected,
        )
        .await;
    }

    /// Fails unless there is one event `JobComplete` for each of these nodes, and none for another.
    pub(crate) async fn expect_complete_events<const N: usize>(&self, nodes: [&str; N]) {
        let texts = nodes.map(|node| format!("Job completed on Node {}", self.node(node)));
        self.expect_events("JobComplete", texts).await;
    }

    /// Waits until the results of all Jobs of the Plan are recorded.
    pub(crate) async fn all_recorded(&self, plan: &str) {
        wait::until(
            "the results of all Jobs are recorded",
            async || {
                let jobs = self.ctx.jobs_of(plan).await;
                jobs.iter()
                    .filter(|job| !is_recorded(job))
                    .map(Job::name_any)
                    .collect::<Vec<_>>()
            },
            Vec::is_empty,
        )
        .await;
    }
}

async fn kubelets<const N: usize>(
    ctx: &TestContext,
    nodes: [&str; N],
    change: impl FnOnce(NodeSet) -> NodeSet,
) -> FakeKubelet {
    let set = NodeSet::named(nodes.map(|name| ctx.node_name(name))).pods(quick());
    ctx.run(change(set)).await
}

/// A Plan as [`Harness::plan`] makes it.
pub(crate) fn plan(name: &str, more: Value) -> String {
    let mut plan = json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": { "name": name },
        "spec": {
            "concurrency": 1,
            "version": "v1",
            "nodeSelector": {},
            "serviceAccountName": "system-upgrade",
            "upgrade": { "image": "example.com/upgrade" },
        },
    });
    merge(&mut plan, more);
    plan.to_string()
}

/// Upgrades go on until [`Harness::release`].
pub(crate) fn held(set: NodeSet) -> NodeSet {
    set.steer("upgrade.run-delay", "never")
}

/// Pods that are soon over.
pub(crate) fn quick() -> Defaults {
    Defaults {
        start: Delay::millis(50),
        init: Delay::millis(50),
        run: Delay::millis(300),
        stop: Delay::millis(50),
        ..Defaults::default()
    }
}

/// `metadata` that steers the pods of a Plan: `steer(&[("run-delay", "never")])`.
pub(crate) fn steer(steering: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<_, _> = steering
        .iter()
        .map(|(key, value)| (format!("{STEERING_PREFIX}{key}"), *value))
        .collect();
    json!({ "metadata": { "annotations": annotations } })
}

/// Two patches in one.
pub(crate) fn both(mut one: Value, other: Value) -> Value {
    merge(&mut one, other);
    one
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// `status.latestHash`.
pub(crate) fn hash(plan: &Plan) -> String {
    plan.status
        .as_ref()
        .and_then(|status| status.latest_hash.clone())
        .unwrap()
}

/// What `status.active` says of a node, by its full name.
pub(crate) fn active<'a>(plan: &'a Plan, node: &str) -> Option<&'a NodeProgress> {
    plan.status
        .as_ref()?
        .active
        .as_ref()?
        .iter()
        .find(|entry| entry.name == node)
}

/// `status.applying`.
pub(crate) fn applying(plan: &Plan) -> Vec<String> {
    plan.status
        .as_ref()
        .and_then(|status| status.applying.clone())
        .unwrap_or_default()
}

/// Whether the controller has recorded the result of a Job.
pub(crate) fn is_recorded(job: &Job) -> bool {
    job.annotations().contains_key("refit.rs/recorded")
}

pub(crate) fn has_condition(job: &Job, type_: &str) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|it| it.type_ == type_ && it.status == "True")
}

/// `spec.unschedulable`.
pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or_default()
}

/// Whether nobody holds a node, and it is not cordoned.
pub(crate) fn is_free(node: &Node) -> bool {
    !is_cordoned(node) && ledger(node).is_none()
}

/// Who cordoned a node.
pub(crate) fn ledger(node: &Node) -> Option<Ledger> {
    node.annotations()
        .get("refit.rs/cordon")
        .and_then(|text| Ledger::parse(text))
}

pub(crate) fn record(node: &Node, plan: &str) -> Option<Value> {
    let text = node.annotations().get(&format!("plan.refit.rs/{plan}"))?;
    Some(serde_json::from_str(text).unwrap())
}

/// Label by which a node is done for a Plan.
pub(crate) fn label(plan: &str) -> String {
    plan_label(plan)
}

/// Applies files of a component of `deploy/`, for the namespace of this test.
pub(crate) async fn apply_component(ctx: &TestContext, component: &str, files: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/overlays");
    let own = format!("namespace: {}\n", ctx.namespace());
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(folder.join(component).join(file)).unwrap();
        for object in manifest::parse(&text.replace("namespace: system-upgrade\n", &own)).unwrap() {
            let applied = async || {
                let applied = manifest::apply(&ctx.client, &object).await;
                applied.map(drop).map_err(|error| format!("{error:#}"))
            };
            wait::eventually("the object is applied", SOON, applied).await;
            objects.push(object);
        }
    }
    ctx.in_force(&objects).await;
}
