//! The cluster on which tests run: the control plane that all tests of this process share, one of a test's
//! own, or a cluster that is there already.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use refit_api::crd;
use tokio::sync::OnceCell;

use super::audit::AuditLog;
use super::binaries::Binaries;
use super::controlplane::{ControlPlane, Options};
use super::kubeconfig;
use super::simulated::Simulated;

/// Names the kubeconfig of a cluster that is there already.
const EXISTING: &str = "REFIT_TEST_KUBECONFIG";

const NO_NETWORK: &str = "a simulated cluster has no address: this test needs a real control plane";

/// A cluster for tests. Holds no connection: clients belong to the runtime of a test.
#[derive(Clone)]
pub struct TestEnv {
    kind: Kind,
    /// Others go on using it when a test is over.
    shared: bool,
}

#[derive(Clone)]
enum Kind {
    Own(Arc<ControlPlane>),
    /// `REFIT_TEST_KUBECONFIG`.
    Existing(PathBuf),
    Simulated(Simulated),
}

impl TestEnv {
    /// The one that all tests of this process share: an existing cluster if `REFIT_TEST_KUBECONFIG` names
    /// one, else a control plane that the first test to ask brings up. It ends with the process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<TestEnv> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async {
                let kind = match std::env::var_os(EXISTING).filter(|path| !path.is_empty()) {
                    Some(path) => Kind::Existing(path.into()),
                    None => Kind::Own(Arc::new(Self::bring_up(Options::default()).await)),
                };
                let test_env = Self { kind, shared: true };
                test_env
                    .prepare()
                    .await
                    .unwrap_or_else(|error| panic!("cannot prepare the cluster: {error:#}"));
                test_env
            })
            .await
    }

    /// A control plane of one's own, for tests that take the API server, the CRD or the whole cluster away.
    /// It takes some seconds and half a gigabyte, and ends when dropped. An existing cluster is never used
    /// for this.
    pub async fn own(options: Options) -> Self {
        let test_env = Self {
            kind: Kind::Own(Arc::new(Self::bring_up(options).await)),
            shared: false,
        };
        test_env
            .prepare()
            .await
            .unwrap_or_else(|error| panic!("cannot prepare the cluster: {error:#}"));
        test_env
    }

    /// A simulated cluster in this process.
    pub fn simulated(simulated: Simulated) -> Self {
        Self {
            kind: Kind::Simulated(simulated),
            shared: false,
        }
    }

    /// The simulated cluster, if this is one.
    pub fn as_simulated(&self) -> Option<&Simulated> {
        match &self.kind {
            Kind::Simulated(simulated) => Some(simulated),
            Kind::Own(_) | Kind::Existing(_) => None,
        }
    }

    async fn bring_up(options: Options) -> ControlPlane {
        let started = async {
            let binaries = tokio::task::spawn_blocking(Binaries::ready).await??;
            ControlPlane::start(&binaries, options).await
        };
        started
            .await
            .unwrap_or_else(|error: anyhow::Error| panic!("cannot bring up the control plane: {error:#}"))
    }

    /// Puts the CRD there, so that a Plan can be made before a controller runs. Controllers find nothing to
    /// change.
    async fn prepare(&self) -> Result<()> {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

        let crds = Api::<CustomResourceDefinition>::all(self.client("prepare").await);
        crds.patch(
            crd::NAME,
            &PatchParams::apply("refit-test").force(),
            &Patch::Apply(crd::plans()),
        )
        .await
        .context("cannot write the CRD of the Plan")?;
        let established = kube::runtime::wait::conditions::is_crd_established();
        kube::runtime::wait::await_condition(crds, crd::NAME, established).await?;
        Ok(())
    }

    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Kubeconfig of a cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.kind {
            Kind::Own(plane) => plane.kubeconfig(),
            Kind::Existing(path) => path.clone(),
            Kind::Simulated(_) => panic!("{NO_NETWORK}"),
        }
    }

    /// A cluster administrator. Its requests are recorded under the name of the test.
    pub async fn client(&self, test: &str) -> Client {
        match &self.kind {
            Kind::Simulated(simulated) => simulated.client(test),
            _ => self.client_of(&self.kubeconfig(), test).await,
        }
    }

    /// For what a test does not want to see in the audit log.
    pub async fn unrecorded_client(&self) -> Client {
        self.client_of(&self.unrecorded_kubeconfig(), "testenv").await
    }

    /// The same for fake kubelets, which make connections of their own.
    pub async fn kubelet_config(&self) -> kube::Config {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = self.unrecorded_kubeconfig();
        kubeconfig::load(&kubeconfig, "refit-test/kubelet")
            .await
            .unwrap_or_else(|error| panic!("cannot use {}: {error:#}", kubeconfig.display()))
    }

    fn unrecorded_kubeconfig(&self) -> PathBuf {
        match &self.kind {
            Kind::Own(plane) => plane.env_kubeconfig(),
            Kind::Existing(path) => path.clone(),
            Kind::Simulated(_) => panic!("{NO_NETWORK}"),
        }
    }

    async fn client_of(&self, kubeconfig: &Path, test: &str) -> Client {
        // The first one wins; it is always this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        kubeconfig::client(kubeconfig, &format!("refit-test/{test}"))
            .await
            .unwrap_or_else(|error| panic!("cannot use {}: {error:#}", kubeconfig.display()))
    }

    /// The API server's audit log from now on; `None` on an existing cluster.
    pub fn audit_log(&self) -> Option<AuditLog> {
        match &self.kind {
            Kind::Own(plane) => Some(AuditLog::from_now(&plane.audit_log())),
            Kind::Existing(_) | Kind::Simulated(_) => None,
        }
    }

    /// The control plane, to stop and freeze parts of it. Fails the test on an existing cluster.
    pub fn control_plane(&self) -> &ControlPlane {
        match &self.kind {
            Kind::Own(plane) => plane,
            Kind::Existing(_) => {
                panic!("this test needs a control plane of the test environment: unset {EXISTING}")
            }
            Kind::Simulated(_) => panic!("{NO_NETWORK}"),
        }
    }

    /// `kubectl`, built with the control plane.
    pub async fn kubectl(&self) -> PathBuf {
        let binaries = tokio::task::spawn_blocking(Binaries::ready)
            .await
            .expect("the build does not panic");
        binaries
            .unwrap_or_else(|error| panic!("cannot build kubectl: {error:#}"))
            .path("kubectl")
    }
}
