//! A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use tokio::sync::OnceCell;

use super::binaries::Binaries;
use super::kubeconfig;
use super::pki::{Identity as Certificate, Pki};
use super::process::{Process, Program, Run};
use super::real::lan::Lan;
use super::{audit, names};

/// Service addresses, which only the network of real nodes (`super::real::lan`) has.
const SERVICE_RANGE: &str = "10.96.0.0/16";
pub const SERVICE_IP: &str = "10.96.0.1";

/// Listening ports. Outgoing connections use higher ones (from 32768 on Linux, 49152 on macOS), so none takes the API
/// server's port while a test has stopped it.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Another process may take a free port first.
const ATTEMPTS: u32 = 8;

/// Some seconds on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Additional flags.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub apiserver: Vec<String>,
    pub controller_manager: Vec<String>,
}

/// Dropping it stops it.
pub struct ControlPlane {
    /// Logs and configuration.
    dir: PathBuf,
    data: PathBuf,
    binaries: Binaries,
    options: Options,
    pki: Pki,
    ports: Ports,
    etcd: Mutex<Option<Process>>,
    apiserver: Mutex<Option<Process>>,
    controller_manager: Mutex<Option<Process>>,
    scheduler: Mutex<Option<Process>>,
    lan: OnceCell<Lan>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) api: u16,
    pub(crate) etcd: u16,
    etcd_peer: u16,
}

/// The clients of a control plane, by user in the audit log.
#[derive(Clone, Copy, Debug)]
enum Identity {
    /// The test and its users: cluster administrator, in the audit log.
    Admin,
    /// Fake kubelets, waits and cleanup: cluster administrator, not in the audit log.
    TestEnv,
    ControllerManager,
    Scheduler,
}

impl Identity {
    const ALL: [Self; 4] = [
        Self::Admin,
        Self::TestEnv,
        Self::ControllerManager,
        Self::Scheduler,
    ];

    fn user(self) -> &'static str {
        match self {
            Self::Admin => audit::ADMIN,
            Self::TestEnv => audit::TEST_ENV_USER,
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
        }
    }

    fn group(self) -> Option<&'static str> {
        matches!(self, Self::Admin | Self::TestEnv).then_some("system:masters")
    }

    fn file(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::TestEnv => "testenv",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
        }
    }
}

impl ControlPlane {
    /// Starts a control plane, and waits until the API server is ready and the first service account exists.
    pub async fn start(binaries: &Binaries, options: Options) -> Result<Self> {
        for _ in 1..ATTEMPTS {
            match Self::attempt(binaries, options.clone(), Ports::free()?).await {
                Err(error) if is_port_taken(&error) => (),
                done => return done,
            }
        }
        Self::attempt(binaries, options, Ports::free()?).await
    }

    pub(crate) async fn attempt(binaries: &Binaries, options: Options, ports: Ports) -> Result<Self> {
        let run = Run::current();
        let name = format!("controlplane-{}", names::random());
        let dir = run.folder(&name);
        let plane = Self {
            data: run.data_folder(&name),
            pki: Pki::write(dir.join("pki"), SERVICE_IP)?,
            dir,
            binaries: binaries.clone(),
            options,
            ports,
            etcd: Mutex::default(),
            apiserver: Mutex::default(),
            controller_manager: Mutex::default(),
            scheduler: Mutex::default(),
            lan: OnceCell::new(),
        };
        plane.write_configuration()?;
        *lock(&plane.etcd) = Some(plane.etcd_program().start()?);
        plane.start_apiserver().await?;
        *lock(&plane.controller_manager) = Some(plane.controller_manager_program().start()?);
        *lock(&plane.scheduler) = Some(plane.scheduler_program().start()?);
        plane.first_service_account().await?;
        Ok(plane)
    }

    /// Kubeconfig of a cluster administrator; its requests are in the audit log as [`audit::ADMIN`].
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of(Identity::Admin)
    }

    /// Kubeconfig of the test environment itself, whose requests are not in the audit log.
    pub fn env_kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of(Identity::TestEnv)
    }

    /// The network of real nodes, created on demand.
    pub async fn lan(&self) -> Result<&Lan> {
        let api = ([127, 0, 0, 1], self.ports.api).into();
        self.lan
            .get_or_try_init(async || Lan::start(&self.dir, api).await)
            .await
    }

    /// Writes a kubeconfig for a client on that network.
    pub fn write_lan_kubeconfig(&self, path: &Path, user: &str, group: Option<&str>) -> Result<()> {
        let identity = self.pki.authority().client(user, group)?;
        self.write_lan_kubeconfig_of(path, &kubeconfig::inline_certificate(&identity), "default")
    }

    /// The same for whom the `user` of a kubeconfig describes.
    pub fn write_lan_kubeconfig_of(
        &self,
        path: &Path,
        user: &serde_json::Value,
        namespace: &str,
    ) -> Result<()> {
        let authority = self.pki.authority().pem();
        let cluster = kubeconfig::inline_cluster(&format!("https://{SERVICE_IP}"), authority);
        kubeconfig::write(path, &cluster, user, namespace)
    }

    /// A certificate for what the API server takes for a kubelet at `localhost`.
    pub fn kubelet_identity(&self) -> Result<Certificate> {
        self.pki
            .authority()
            .server("kubelet", &["localhost", "127.0.0.1"])
    }

    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.jsonl")
    }

    /// Name and pid of each running process.
    pub fn pids(&self) -> Vec<(String, u32)> {
        self.slots()
            .into_iter()
            .filter_map(|slot| {
                lock(slot)
                    .as_ref()
                    .map(|process| (process.name().to_owned(), process.pid()))
            })
            .collect()
    }

    pub fn stop_apiserver(&self) {
        lock(&self.apiserver).take();
    }

    /// Starts the API server on the same port, with the same data and audit log, and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        if lock(&self.apiserver)
            .as_ref()
            .is_none_or(|process| process.ended().is_some())
        {
            *lock(&self.apiserver) = Some(self.apiserver_program().start()?);
        }
        self.apiserver_ready().await
    }

    /// Kills etcd, and starts it with the same data.
    pub fn restart_etcd(&self) -> Result<()> {
        let mut etcd = lock(&self.etcd);
        drop(etcd.take());
        *etcd = Some(self.etcd_program().start()?);
        Ok(())
    }

    /// Freezes etcd: requests to the API server that need it hang.
    pub fn pause_etcd(&self) {
        if let Some(etcd) = &*lock(&self.etcd) {
            etcd.freeze();
        }
    }

    pub fn resume_etcd(&self) {
        if let Some(etcd) = &*lock(&self.etcd) {
            etcd.thaw();
        }
    }

    /// Copies etcd's data, which does not change meanwhile.
    pub fn snapshot(&self, to: &Path) -> Result<()> {
        self.pause_etcd();
        let copied = copy(&self.data.join("etcd"), to);
        self.resume_etcd();
        copied
    }

    /// Restores a copy of etcd's data, and restarts all that has read later data.
    pub async fn restore(&self, from: &Path) -> Result<()> {
        for slot in self.slots().into_iter().rev() {
            lock(slot).take();
        }
        let data = self.data.join("etcd");
        std::fs::remove_dir_all(&data)?;
        copy(from, &data)?;
        *lock(&self.etcd) = Some(self.etcd_program().start()?);
        self.start_apiserver().await?;
        *lock(&self.controller_manager) = Some(self.controller_manager_program().start()?);
        *lock(&self.scheduler) = Some(self.scheduler_program().start()?);
        Ok(())
    }

    /// Freezes the API server: it accepts connections, and does not respond.
    pub fn pause_apiserver(&self) {
        self.with_apiserver(Process::freeze);
    }

    pub fn resume_apiserver(&self) {
        self.with_apiserver(Process::thaw);
    }

    fn with_apiserver(&self, change: impl Fn(&Process)) {
        if let Some(apiserver) = &*lock(&self.apiserver) {
            change(apiserver);
        }
    }

    fn slots(&self) -> [&Mutex<Option<Process>>; 4] {
        [
            &self.etcd,
            &self.apiserver,
            &self.controller_manager,
            &self.scheduler,
        ]
    }

    fn kubeconfig_of(&self, identity: Identity) -> PathBuf {
        self.dir.join(format!("{}.kubeconfig", identity.file()))
    }

    fn write_configuration(&self) -> Result<()> {
        let server = format!("https://127.0.0.1:{}", self.ports.api);
        let cluster = kubeconfig::cluster(&server, &self.pki.path("ca.crt"));
        for identity in Identity::ALL {
            let (certificate, key) = self
                .pki
                .client(identity.file(), identity.user(), identity.group())?;
            let user = kubeconfig::certificate(&certificate, &key);
            kubeconfig::write(&self.kubeconfig_of(identity), &cluster, &user, "default")?;
        }
        std::fs::write(self.dir.join("audit-policy.yaml"), audit::POLICY)?;
        Ok(())
    }

    fn program(&self, name: &str) -> Program {
        Program::new(name, self.binaries.path(name), &self.dir)
    }

    fn etcd_program(&self) -> Program {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        self.program("etcd").args([
            format!("--data-dir={}", self.data.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
            // The data need not survive a power failure.
            "--unsafe-no-fsync".to_owned(),
            // Statuses with thousands of nodes need more than the default of 2 GiB between compactions.
            format!("--quota-backend-bytes={}", 8_u64 << 30),
        ])
    }

    fn apiserver_program(&self) -> Program {
        let pki = |file| self.pki.path(file);
        self.program("kube-apiserver")
            .args([
                format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=127.0.0.1".to_owned(),
                format!("--secure-port={}", self.ports.api),
                // Endpoints must not have loopback addresses.
                "--endpoint-reconciler-type=none".to_owned(),
                format!("--service-cluster-ip-range={SERVICE_RANGE}"),
                "--allow-privileged=true".to_owned(),
                "--authorization-mode=Node,RBAC".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                format!("--client-ca-file={}", pki("ca.crt")),
                format!("--tls-cert-file={}", pki("apiserver.crt")),
                format!("--tls-private-key-file={}", pki("apiserver.key")),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", pki("sa.pub")),
                format!("--service-account-signing-key-file={}", pki("sa.key")),
                format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
                format!("--kubelet-client-key={}", pki("kubelet-client.key")),
                format!("--kubelet-certificate-authority={}", pki("ca.crt")),
                format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
                "--requestheader-allowed-names=front-proxy-client".to_owned(),
                "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
                "--requestheader-group-headers=X-Remote-Group".to_owned(),
                "--requestheader-username-headers=X-Remote-User".to_owned(),
                format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
                format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
                format!(
                    "--audit-policy-file={}",
                    self.dir.join("audit-policy.yaml").display()
                ),
                format!("--audit-log-path={}", self.audit_log().display()),
                // One file, never rotated.
                "--audit-log-maxsize=0".to_owned(),
            ])
            .args(self.binaries.feature_gates())
            .args(&self.options.apiserver)
    }

    fn controller_manager_program(&self) -> Program {
        self.program("kube-controller-manager")
            .args(self.client_flags(Identity::ControllerManager))
            .args([
                "--use-service-account-credentials=true".to_owned(),
                format!("--service-account-private-key-file={}", self.pki.path("sa.key")),
                format!("--root-ca-file={}", self.pki.path("ca.crt")),
                "--allocate-node-cidrs=false".to_owned(),
            ])
            .args(self.binaries.feature_gates())
            .args(&self.options.controller_manager)
    }

    fn scheduler_program(&self) -> Program {
        self.program("kube-scheduler")
            .args(self.client_flags(Identity::Scheduler))
    }

    /// Flags of controller manager and scheduler. Port 0 means that they do not listen. With their default limits of 20
    /// to 50 requests a second, a roll-out of 1,000 nodes would measure them and not refit.
    fn client_flags(&self, identity: Identity) -> [String; 5] {
        [
            format!("--kubeconfig={}", self.kubeconfig_of(identity).display()),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            "--kube-api-qps=300".to_owned(),
            "--kube-api-burst=600".to_owned(),
        ]
    }

    async fn apiserver_ready(&self) -> Result<()> {
        let client = kubeconfig::client(&self.env_kubeconfig(), "refit-testenv").await?;
        self.eventually("kube-apiserver is ready", async || {
            let ask = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(ask).await.map(drop).context("/readyz")
        })
        .await
    }

    async fn first_service_account(&self) -> Result<()> {
        let client = kubeconfig::client(&self.env_kubeconfig(), "refit-testenv").await?;
        let accounts = Api::<ServiceAccount>::namespaced(client, "default");
        self.eventually("the ServiceAccount `default` exists", async || {
            accounts
                .get("default")
                .await
                .map(drop)
                .context("ServiceAccount default/default")
        })
        .await
    }

    /// Repeats a request until it succeeds. Fails at once if a process has ended.
    async fn eventually(&self, what: &str, ask: impl AsyncFn() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        loop {
            let answer = tokio::time::timeout(Duration::from_secs(5), ask()).await;
            if matches!(answer, Ok(Ok(()))) {
                return Ok(());
            }
            for slot in self.slots() {
                if let Some(process) = &*lock(slot)
                    && let Some(status) = process.ended()
                {
                    bail!(
                        "{} ended, {status}; its last lines:\n{}",
                        process.name(),
                        process.log_tail(15)
                    );
                }
            }
            if started.elapsed() > READY_WITHIN {
                let why = match answer {
                    Ok(answer) => format!("{:#}", answer.expect_err("a good answer has been returned")),
                    Err(_) => "no answer".to_owned(),
                };
                bail!(
                    "waited {} s until {what}: {why}; logs are in {}",
                    READY_WITHIN.as_secs(),
                    self.dir.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Clients first, so that no log fills with refused connections.
        for slot in self.slots().into_iter().rev() {
            lock(slot).take();
        }
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

impl Ports {
    /// Three free ports. Another process may take one before ours listens, so the caller tries again.
    pub(crate) fn free() -> Result<Self> {
        let mut free = names::shuffled(PORTS)
            .into_iter()
            .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        let mut next = || free.next().context("no free port on 127.0.0.1");
        Ok(Self {
            api: next()?,
            etcd: next()?,
            etcd_peer: next()?,
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([from, to])
        .status()?;
    anyhow::ensure!(copied.success(), "cannot copy {}: {copied}", from.display());
    Ok(())
}

/// Whether a program ended because its port is taken.
pub(crate) fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
