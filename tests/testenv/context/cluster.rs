//! What a test does to its Plans, nodes and Jobs, and what it waits for.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Request};
use refit_api::names::{LABEL_PLAN, plan_label};
use refit_api::{Plan, PlanCondition};
use serde_json::{Value, json};

use super::TestContext;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::manifest::{self, TEST_LABEL};
use crate::testenv::process::tail;
use crate::testenv::wait;

impl TestContext {
    pub fn plans(&self) -> Api<Plan> {
        Api::namespaced(self.client.clone(), &self.id)
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.id)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.id)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.id)
    }

    /// Events about objects of this namespace. Those about Nodes are in `default`.
    pub fn events(&self) -> Api<Event> {
        Api::namespaced(self.client.clone(), &self.id)
    }

    /// All Nodes, those of other tests as well.
    /// Gives an object a time in `managedFields` that Go accepts and refit's types do not, as whoever may write it can.
    pub async fn write_late_time<K: kube::Resource>(&self, api: &Api<K>, name: &str) {
        let late = "9999-12-31T23:59:59Z";
        let fields = json!([{
            "manager": "someone", "operation": "Update", "apiVersion": "v1", "time": late,
            "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": {} },
        }]);
        let patch = json!({ "metadata": { "managedFields": fields } });
        let request = Request::new(api.resource_url());
        let request = request.patch(name, &PatchParams::default(), &Patch::Merge(&patch));
        let written = self.client.request_text(request.unwrap()).await.unwrap();
        assert!(written.contains(late), "{written}");
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Registers so many nodes of this context and runs their pods: `<id>-n0000`, `<id>-n0001` and so on.
    pub async fn run_nodes(&self, count: usize) -> FakeKubelet {
        self.run(NodeSet::numbered(&self.node_name("n"), count)).await
    }

    /// Registers these nodes, as nodes of this context, and runs their pods.
    pub async fn run(&self, nodes: NodeSet) -> FakeKubelet {
        let nodes = nodes.labels(self.node_labels());
        match self.test_env.as_simulated() {
            Some(simulated) => FakeKubelet::simulated(simulated, nodes),
            None => FakeKubelet::start(&self.test_env.kubelet_config().await, nodes).await,
        }
    }

    /// Makes, or merges into, what the YAML documents say. They are put into this context: its namespace, and
    /// Plans that have a `nodeSelector` select only nodes of this context, whatever else they ask for.
    pub async fn apply(&self, yaml: &str) -> Vec<DynamicObject> {
        let mut made = Vec::new();
        for object in manifest::parse(yaml).unwrap_or_else(|error| panic!("{error:#}\n{yaml}")) {
            made.push(
                self.try_apply(object)
                    .await
                    .unwrap_or_else(|error| panic!("{error:#}")),
            );
        }
        made
    }

    /// As [`Self::apply`], for one object that the API server may refuse.
    pub async fn try_apply(&self, mut object: Value) -> anyhow::Result<DynamicObject> {
        object["metadata"]["namespace"] = json!(self.id);
        if object["kind"] == "Plan" && object["spec"]["nodeSelector"].is_object() {
            for (label, value) in self.node_labels() {
                object["spec"]["nodeSelector"]["matchLabels"][label] = json!(value);
            }
        }
        match self.test_env.as_simulated() {
            Some(simulated) => Ok(serde_json::from_value(simulated.apply(&object)?)?),
            None => manifest::apply(&self.client, &object).await,
        }
    }

    /// [`Self::apply`] for one Plan.
    pub async fn plan(&self, yaml: &str) -> Plan {
        let [made] = <[_; 1]>::try_from(self.apply(yaml).await).expect("one document");
        made.try_parse().expect("the API server gives back a Plan")
    }

    /// Changes a Plan as `kubectl patch --type=merge` does.
    pub async fn edit_plan(&self, name: &str, patch: Value) -> Plan {
        self.plans()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap_or_else(|error| panic!("cannot edit Plan {name}: {error}"))
    }

    /// Deletes a Plan, and does not wait until it is gone.
    pub async fn delete_plan(&self, name: &str) {
        let deleted = self.plans().delete(name, &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("cannot delete Plan {name}: {error}"));
    }

    /// Waits until the Plan is as `good` wants it.
    pub async fn plan_until(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        good: impl Fn(&Plan) -> bool,
    ) -> Plan {
        wait::object(self.plans(), name, what, limit, good).await
    }

    /// Waits until a condition of the Plan has that status for the generation that is there now.
    pub async fn plan_condition(&self, name: &str, condition: &str, status: &str, limit: Duration) -> Plan {
        self.plan_until(name, &format!("has {condition}={status}"), limit, |plan| {
            let observed = plan.status.as_ref().and_then(|status| status.observed_generation);
            observed >= plan.metadata.generation
                && find_condition(plan, condition).is_some_and(|it| it.status == status)
        })
        .await
    }

    /// Waits until the Plan is Complete.
    pub async fn plan_complete(&self, name: &str, limit: Duration) -> Plan {
        self.plan_condition(name, "Complete", "True", limit).await
    }

    /// Jobs of a Plan, in the order of their names.
    pub async fn jobs_of(&self, plan: &str) -> Vec<Job> {
        let mine = ListParams::default().labels(&format!("{LABEL_PLAN}={plan}"));
        self.jobs()
            .list(&mine)
            .await
            .unwrap_or_else(|error| panic!("cannot list Jobs: {error}"))
            .items
    }

    /// Pods of this namespace with these labels.
    pub async fn pods_with(&self, labels: &str) -> Vec<Pod> {
        let pods = self.pods().list(&ListParams::default().labels(labels)).await;
        pods.unwrap_or_else(|error| panic!("cannot list pods: {error}"))
            .items
    }

    /// Nodes that Plans of this context select, in the order of their names.
    pub async fn my_nodes(&self) -> Vec<Node> {
        self.nodes()
            .list(&self.my_node_list())
            .await
            .unwrap_or_else(|error| panic!("cannot list Nodes: {error}"))
            .items
    }

    pub async fn node(&self, name: &str) -> Node {
        self.nodes()
            .get(name)
            .await
            .unwrap_or_else(|error| panic!("cannot get Node {name}: {error}"))
    }

    /// Waits until the node is as `good` wants it.
    pub async fn node_until(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        good: impl Fn(&Node) -> bool,
    ) -> Node {
        wait::object(self.nodes(), name, what, limit, good).await
    }

    /// Sets a label of a node, or removes it with `None`.
    pub async fn label_node(&self, name: &str, label: &str, value: Option<&str>) -> Node {
        self.edit_node(name, json!({ "metadata": { "labels": { label: value } } }))
            .await
    }

    /// Sets an annotation of a node, or removes it with `None`.
    pub async fn annotate_node(&self, name: &str, annotation: &str, value: Option<&str>) -> Node {
        self.edit_node(
            name,
            json!({ "metadata": { "annotations": { annotation: value } } }),
        )
        .await
    }

    pub async fn cordon(&self, name: &str) -> Node {
        self.edit_node(name, json!({ "spec": { "unschedulable": true } }))
            .await
    }

    pub async fn uncordon(&self, name: &str) -> Node {
        self.edit_node(name, json!({ "spec": { "unschedulable": null } }))
            .await
    }

    /// Changes a node as `kubectl patch --type=merge` does.
    pub async fn edit_node(&self, name: &str, patch: Value) -> Node {
        self.nodes()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap_or_else(|error| panic!("cannot edit Node {name}: {error}"))
    }

    /// Events of this namespace with that reason, such as `JobFailed`.
    pub async fn events_with(&self, reason: &str) -> Vec<Event> {
        let with = ListParams::default().fields(&format!("reason={reason}"));
        self.events()
            .list(&with)
            .await
            .unwrap_or_else(|error| panic!("cannot list Events: {error}"))
            .items
    }

    /// Runs `kubectl` as the administrator, in this context's namespace. Fails the test if it fails.
    pub async fn kubectl(&self, args: &[&str]) -> String {
        let mut kubectl = tokio::process::Command::new(self.test_env.kubectl().await);
        kubectl
            .args(args)
            .args(["--namespace", &self.id])
            .env("KUBECONFIG", self.test_env.kubeconfig())
            .kill_on_drop(true);
        let out = kubectl
            .output()
            .await
            .unwrap_or_else(|error| panic!("cannot run kubectl: {error}"));
        let (said, complained) = (
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
        );
        assert!(
            out.status.success(),
            "kubectl {args:?}: {}\n{said}{}",
            out.status,
            tail(&complained, 20)
        );
        said.into_owned()
    }
}

/// A condition of a Plan.
pub fn find_condition<'a>(plan: &'a Plan, condition: &str) -> Option<&'a PlanCondition> {
    plan.status
        .as_ref()?
        .conditions
        .iter()
        .find(|it| it.type_ == condition)
}

/// The hash that a node's label says is done for a Plan.
pub fn done(node: &Node, plan: &str) -> Option<String> {
    node.metadata.labels.as_ref()?.get(&plan_label(plan)).cloned()
}

/// Starts the removal of all that a test has made. What fails here is somebody else's next run to clear:
/// every name is random.
pub async fn clear(client: &Client, test: &str) {
    let mine = ListParams::default().labels(&format!("{TEST_LABEL}={test}"));
    let background = DeleteParams::background();
    let _ = Api::<Namespace>::all(client.clone())
        .delete(test, &background)
        .await;
    // There is no kubelet any more that would end them.
    let pods = Api::<Pod>::namespaced(client.clone(), test);
    let _ = pods
        .delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default())
        .await;
    let _ = Api::<Node>::all(client.clone())
        .delete_collection(&background, &mine)
        .await;
    let _ = Api::<ClusterRole>::all(client.clone())
        .delete_collection(&background, &mine)
        .await;
    let _ = Api::<ClusterRoleBinding>::all(client.clone())
        .delete_collection(&background, &mine)
        .await;
    // Manifests may have some in `default`, where Events about Nodes are, and in `kube-system`, where etcd is.
    for namespace in ["default", "kube-system"] {
        let _ = Api::<Role>::namespaced(client.clone(), namespace)
            .delete_collection(&background, &mine)
            .await;
        let _ = Api::<RoleBinding>::namespaced(client.clone(), namespace)
            .delete_collection(&background, &mine)
            .await;
    }
}

/// Makes an object as it is. For Nodes and other things that [`TestContext::apply`] would put elsewhere.
pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).expect("a valid object");
    api.create(&PostParams::default(), &object)
        .await
        .unwrap_or_else(|error| panic!("cannot make {object:?}: {error}"))
}
