//! What one test has for itself on a cluster that it shares: a namespace, nodes that only its Plans select, a
//! service account with the roles that the manifests give a controller, and files.
//!
//! A [`TestContext`] clears up when it is dropped. If the test fails, it says first what its objects look like.

pub mod cluster;
mod rbac;
mod report;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use refit_cluster::clock::Clock;
use serde_json::json;

#[allow(
    unused_imports,
    reason = "two programs include this, and each uses a part of it"
)]
pub use cluster::{create, done, find_condition};

use super::audit::{AuditLog, Requests};
use super::controller;
use super::environment::TestEnv;
use super::faults::{self, FaultProxy};
use super::manifest::{self, Installation, Manifests, TEST_LABEL};
use super::process::Run;
use super::simulated::Simulated;
use super::{kubeconfig, names, wait};

/// Longer than any test.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// One test's part of a cluster.
pub struct TestContext {
    /// Random. It is the namespace, the beginning of the names of nodes and the value of their label `test`.
    pub id: String,
    /// The administrator who is the test.
    pub client: Client,
    pub test_env: TestEnv,
    dir: PathBuf,
    audit: Option<AuditLog>,
    installation: Installation,
    kubeconfig: PathBuf,
    /// Value of the label `test` on the nodes that Plans select; another context's if this one was made beside
    /// it. `None` means all nodes: this is the only ctx.
    nodes_of: Option<String>,
    /// Dropped with the ctx.
    kept: Option<Box<dyn Any + Send + Sync>>,
}

impl TestContext {
    /// A context on the cluster that all tests share, under the manifests that refit ships.
    pub async fn new() -> Self {
        Self::with(Manifests::Shipped).await
    }

    /// As [`Self::new`], under other manifests.
    pub async fn with(manifests: Manifests) -> Self {
        let id = random_id();
        Self::on(TestEnv::shared().await.clone(), manifests, &id, Some(&id)).await
    }

    /// As [`Self::new`], on a control plane that nobody else uses: for tests that stop the API server or take
    /// the CRD away.
    pub async fn alone() -> Self {
        Self::alone_with(Manifests::Shipped).await
    }

    /// As [`Self::alone`], under other manifests.
    pub async fn alone_with(manifests: Manifests) -> Self {
        let test_env = TestEnv::own(super::controlplane::Options::default()).await;
        let id = random_id();
        Self::on(test_env, manifests, &id, Some(&id)).await
    }

    /// As [`Self::new`], on this environment: for several contexts on a control plane of their own.
    pub async fn at(test_env: &TestEnv) -> Self {
        let id = random_id();
        Self::on(test_env.clone(), Manifests::Shipped, &id, Some(&id)).await
    }

    /// A namespace on this simulated cluster.
    pub async fn simulated(simulated: Simulated) -> Self {
        let id = format!("t-{}", simulated.next_number());
        Self::on(TestEnv::simulated(simulated), Manifests::Shipped, &id, Some(&id)).await
    }

    /// Another namespace whose Plans select the nodes of this ctx.
    pub async fn beside(&self) -> Self {
        let id = match self.test_env.as_simulated() {
            Some(simulated) => format!("t-{}", simulated.next_number()),
            None => random_id(),
        };
        let nodes_of = self.nodes_of.as_deref();
        Self::on(self.test_env.clone(), Manifests::Shipped, &id, nodes_of).await
    }

    /// The only context of an environment, with nothing renamed and nothing confined: as it looks in a cluster of one's
    /// own.
    pub async fn sole(test_env: TestEnv) -> Self {
        Self::on(test_env, Manifests::Shipped, manifest::HOME, None).await
    }

    async fn on(test_env: TestEnv, manifests: Manifests, id: &str, nodes_of: Option<&str>) -> Self {
        report::remember_panics();
        let id = id.to_owned();
        let client = test_env.client(&id).await;
        let dir = match test_env.as_simulated() {
            Some(_) => PathBuf::new(),
            None => Run::current().folder(&id),
        };
        let mut ctx = Self {
            audit: test_env.audit_log(),
            kubeconfig: dir.join("controller.kubeconfig"),
            nodes_of: nodes_of.map(str::to_owned),
            installation: manifests
                .install_for(&id)
                .unwrap_or_else(|error| panic!("manifests: {error:#}")),
            id,
            client,
            test_env,
            dir,
            kept: None,
        };
        if let Some(simulated) = ctx.test_env.as_simulated() {
            simulated.make_namespace(&ctx.id);
            return ctx;
        }
        ctx.make_namespace().await;
        for object in &ctx.installation.objects {
            manifest::apply(&ctx.client, object)
                .await
                .unwrap_or_else(|error| panic!("{error:#}"));
        }
        rbac::wait_until_in_force(&ctx.test_env.unrecorded_client().await, &ctx.installation.objects).await;
        let token = ctx.token(&ctx.installation.service_account).await;
        ctx.kubeconfig = ctx.write_kubeconfig("controller", &token);
        ctx
    }

    /// Waits until the roles that these objects bind are in force; the shipped ones may be bound, too.
    pub async fn in_force(&self, objects: &[serde_json::Value]) {
        let all = [&self.installation.objects[..], objects].concat();
        rbac::wait_until_in_force(&self.test_env.unrecorded_client().await, &all).await;
    }

    /// Holds something until the context is gone.
    #[allow(dead_code, reason = "two programs include this, and one has no use for it")]
    pub fn keep(&mut self, what: impl Any + Send + Sync) {
        self.kept = Some(Box::new(what));
    }

    pub fn namespace(&self) -> &str {
        &self.id
    }

    /// A folder for files of this test. It is gone after the run, unless a test failed.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What something cluster-wide of the manifests is called in this ctx.
    pub fn local_name(&self, name: &str) -> String {
        manifest::local_name(&self.id, name)
    }

    /// The full name of a node of this context: `t-abc123-one`.
    pub fn node_name(&self, name: &str) -> String {
        match &self.nodes_of {
            Some(id) => format!("{id}-{name}"),
            None => name.to_owned(),
        }
    }

    /// Labels by which Plans of this context select nodes, and by which no other test's do.
    pub fn node_labels(&self) -> BTreeMap<String, String> {
        self.nodes_of
            .iter()
            .map(|id| (TEST_LABEL.to_owned(), id.clone()))
            .collect()
    }

    /// User name of the controller's service account.
    pub fn user(&self) -> String {
        format!(
            "system:serviceaccount:{}:{}",
            self.id, self.installation.service_account
        )
    }

    /// Kubeconfig of the controller's service account.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What a list of those nodes asks for.
    pub fn my_node_list(&self) -> ListParams {
        match &self.nodes_of {
            Some(id) => ListParams::default().labels(&format!("{TEST_LABEL}={id}")),
            None => ListParams::default(),
        }
    }

    /// A token of a service account of this namespace, by `TokenRequest`.
    pub async fn token(&self, service_account: &str) -> String {
        self.token_bound_to(service_account, None).await
    }

    /// A token that is valid for as long as an object, a Pod or a Secret, exists.
    pub async fn token_of<K: k8s_openapi::Metadata<Ty = ObjectMeta>>(
        &self,
        service_account: &str,
        object: &K,
    ) -> String {
        let object = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(K::KIND.to_owned()),
            name: object.metadata().name.clone(),
            uid: object.metadata().uid.clone(),
        };
        self.token_bound_to(service_account, Some(object)).await
    }

    async fn token_bound_to(&self, service_account: &str, object: Option<BoundObjectReference>) -> String {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: i64::try_from(TOKEN_LIFETIME.as_secs()).ok(),
                bound_object_ref: object,
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let api = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.id);
        let answer = api
            .create_token_request(service_account, &PostParams::default(), &request)
            .await;
        let answer = answer.unwrap_or_else(|error| panic!("no token for {service_account}: {error}"));
        answer
            .status
            .and_then(|status| status.token)
            .expect("an answered TokenRequest has a token")
    }

    /// Writes `<name>.kubeconfig` for a bearer of that token, and returns its path.
    pub fn write_kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        self.write_kubeconfig_of(name, &kubeconfig::token(token))
    }

    /// Writes `<name>.kubeconfig` for whom the `user` of a kubeconfig describes, and returns its path.
    pub fn write_kubeconfig_of(&self, name: &str, user: &serde_json::Value) -> PathBuf {
        let path = self.dir.join(format!("{name}.kubeconfig"));
        kubeconfig::cluster_of(&self.test_env.kubeconfig())
            .and_then(|cluster| kubeconfig::write(&path, &cluster, user, &self.id))
            .unwrap_or_else(|error| panic!("{error:#}"));
        path
    }

    /// The service account of the controller.
    pub fn service_account(&self) -> &str {
        &self.installation.service_account
    }

    /// The controller, not yet started: as this context's service account, with the environment of the
    /// manifests.
    pub fn controller(&self) -> controller::Setup {
        let setup = controller::Setup::new(
            &self.dir,
            &self.id,
            &self.kubeconfig,
            &self.installation.environment,
            self.client.clone(),
        );
        match self.test_env.as_simulated() {
            Some(simulated) => setup.in_process(simulated, &self.user()),
            None => setup,
        }
    }

    /// The Deployment of the manifests, in this context's namespace. Nodes of fake kubelets run it as they run anything.
    pub fn deployment(&self) -> serde_json::Value {
        let deployment = self.installation.deployment.clone();
        deployment.expect("the manifests have a Deployment")
    }

    /// A proxy between a controller and the API server that does what its rules say. `seed` decides where
    /// chance is asked for.
    pub async fn faults(&self, seed: u64) -> FaultProxy {
        faults::FaultProxy::start(&self.test_env.kubeconfig(), &self.dir, seed)
            .await
            .unwrap_or_else(|error| panic!("cannot start the fault proxy: {error:#}"))
    }

    /// All that was asked of the API server by service accounts of this context, by this test, and by the Job
    /// controller about Jobs of this namespace, from the beginning of the ctx. Fails the test on an
    /// existing cluster.
    pub async fn requests(&self) -> Requests {
        if let Some(simulated) = self.test_env.as_simulated() {
            return simulated.requests(&self.id);
        }
        let Some(audit) = &self.audit else {
            panic!(
                "this test needs the API server's audit log, which only a control plane of the test environment has"
            )
        };
        audit.settle(&self.client).await;
        audit.requests(&self.id)
    }

    /// What the controller asked; see [`Self::requests`].
    pub async fn controller_requests(&self) -> Requests {
        self.requests().await.by(&self.user())
    }

    /// The cluster's time.
    pub fn now(&self) -> Timestamp {
        match self.test_env.as_simulated() {
            Some(simulated) => simulated.now(),
            None => Clock::system().now(),
        }
    }

    async fn make_namespace(&self) {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.id,
                "labels": { TEST_LABEL: self.id, "pod-security.kubernetes.io/enforce": "privileged" },
            },
        });
        manifest::apply(&self.client, &namespace)
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
        // Pods are refused until it is there, and then the Job controller waits ten seconds before it tries
        // again.
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.id);
        wait::object(accounts, "default", "exists", wait::SOON, |_| true).await;
    }
}

fn random_id() -> String {
    format!("t-{}", names::random())
}

impl Drop for TestContext {
    /// Clears up, after a report if the test has failed. On a thread of its own, because this runs on the
    /// test's runtime.
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if let Some(simulated) = self.test_env.as_simulated() {
            if failed {
                eprintln!("---- the last requests\n{}", simulated.report());
            } else {
                simulated.assert_supported();
            }
            return;
        }
        let work = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .ok()?;
                    let limit = Duration::from_secs(20);
                    runtime.block_on(async { tokio::time::timeout(limit, self.clean_up(failed)).await.ok() })
                })
                .join()
        });
        if failed {
            Run::current().keep();
            let report = work
                .ok()
                .flatten()
                .unwrap_or_else(|| "the cluster does not answer".to_owned());
            eprintln!(
                "---- test context {} (files: {})\n{report}",
                self.id,
                self.dir.display()
            );
            report::repeat_panic();
        }
    }
}

/// `Namespace` objects of tests that are over take a moment to go; nobody waits for them.
impl TestContext {
    async fn clean_up(&self, failed: bool) -> String {
        // Its own client: connections of the test's live on the test's runtime, which stands still now.
        let client = self.test_env.unrecorded_client().await;
        let report = if failed {
            self.report(&client).await
        } else {
            String::new()
        };
        if self.test_env.is_shared() {
            cluster::clear(&client, &self.id).await;
        }
        report
    }
}
