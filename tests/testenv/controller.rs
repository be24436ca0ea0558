//! The controller: the real binary in a process of its own, or on a simulated cluster the same code as a task.

mod task;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use rustix::process::Signal;

use super::faults::FaultProxy;
use super::process::{self, Process, Program};
use super::simulated::Simulated;
use super::wait;
use task::Task;

/// Name of the controller unless a test says otherwise; the roles allow the Lease of this name only (S65).
pub const NAME: &str = "system-upgrade-controller";

/// Duration, renew deadline and retry period of the Lease.
const LEASE_TIMES: [&str; 3] = [
    "CATTLE_ELECTION_LEASE_DURATION",
    "CATTLE_ELECTION_RENEW_DEADLINE",
    "CATTLE_ELECTION_RETRY_PERIOD",
];
/// So long that a busy machine does not lose the Lease. A process that is started after a killed one has the same
/// identity, and leads at once; a test in which another replica takes over has shorter ones ([`Setup::lease_times`]).
const LONG: [&str; 3] = ["90s", "60s", "500ms"];

/// A controller that has not been started yet.
#[derive(Clone)]
pub struct Setup {
    program: PathBuf,
    log_name: String,
    dir: PathBuf,
    namespace: String,
    kubeconfig: PathBuf,
    environment: BTreeMap<String, String>,
    args: Vec<String>,
    faults: Option<FaultProxy>,
    client: Client,
    /// The cluster, and the controller's user name there.
    simulated: Option<(Simulated, String)>,
}

/// A running controller. Dropping it kills it.
pub struct Controller {
    running: Running,
    setup: Setup,
    started: Timestamp,
}

enum Running {
    Process(Arc<Process>),
    Task(Task),
}

impl Setup {
    /// `environment` is what the manifests give it.
    pub(super) fn new(
        dir: &Path,
        namespace: &str,
        kubeconfig: &Path,
        environment: &BTreeMap<String, String>,
        client: Client,
    ) -> Self {
        let setup = Self {
            program: binary(),
            log_name: "controller".to_owned(),
            dir: dir.to_owned(),
            namespace: namespace.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            environment: environment.clone(),
            args: Vec::new(),
            faults: None,
            client,
            simulated: None,
        };
        let given = [
            ("SYSTEM_UPGRADE_CONTROLLER_NAME", NAME),
            ("SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", namespace),
            ("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "test-machine"),
            ("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "true"),
            // It does not run in a pod, which would name it.
            (
                "REFIT_IMAGE",
                concat!("ghcr.io/refit-rs/refit:v", env!("CARGO_PKG_VERSION")),
            ),
            // The kubelets of a test register their nodes seconds before.
            ("REFIT_MIN_NODE_AGE", "0s"),
            // The images of most tests do not exist.
            ("REFIT_CHECK_IMAGES", "false"),
            // Many run on this machine at a time.
            ("REFIT_METRICS_BIND_ADDRESS", "0"),
        ];
        given
            .into_iter()
            .fold(setup, |setup, (name, value)| setup.env(name, value))
            .lease_times(LONG)
    }

    /// A task on this cluster, under this user name.
    pub(super) fn in_process(mut self, simulated: &Simulated, user: &str) -> Self {
        self.simulated = Some((simulated.clone(), user.to_owned()));
        self
    }

    /// Another name for `SYSTEM_UPGRADE_CONTROLLER_NAME` and with it for the Lease. The roles do not allow
    /// it.
    pub fn name(self, name: &str) -> Self {
        self.env("SYSTEM_UPGRADE_CONTROLLER_NAME", name)
    }

    /// One of several replicas: its log, and its identity in the Lease, which would be the machine's name
    /// otherwise.
    pub fn replica(mut self, name: &str) -> Self {
        self.log_name = format!("controller-{name}");
        self.env("REFIT_IDENTITY", name)
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    /// With these times of the Lease: its duration, the renew deadline and the retry period.
    pub fn lease_times(self, times: [&str; 3]) -> Self {
        let times = LEASE_TIMES.into_iter().zip(times);
        times.fold(self, |setup, (name, value)| setup.env(name, value))
    }

    /// With the times of the Lease that it has where nobody gives others.
    pub fn usual_lease_times(self) -> Self {
        LEASE_TIMES.into_iter().fold(self, Self::without_env)
    }

    /// With metrics and probes on a free port: see [`Controller::metrics_address`].
    pub fn with_metrics(self) -> Self {
        self.env("REFIT_METRICS_BIND_ADDRESS", "127.0.0.1:0")
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Another program than refit's binary.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = path.into();
        self
    }

    /// Another identity than the context's service account.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = path.into();
        self
    }

    /// All its requests go through this proxy, whose rules may kill it.
    pub fn through(mut self, faults: &FaultProxy) -> Self {
        self.faults = Some(faults.clone());
        self
    }

    /// Starts it. It may not lead yet: see [`Controller::leading`].
    pub fn start(&self) -> Controller {
        if let Some((simulated, user)) = &self.simulated {
            assert!(
                self.faults.is_none() && self.args.is_empty(),
                "not simulated: this test needs a real control plane"
            );
            return Controller {
                started: simulated.now(),
                running: Running::Task(Task::start(simulated, user, &self.environment)),
                setup: self.clone(),
            };
        }
        let kubeconfig = match &self.faults {
            None => self.kubeconfig.clone(),
            Some(faults) => faults.kubeconfig_for(&self.kubeconfig),
        };
        let program = Program::new(&self.log_name, &self.program, &self.dir)
            .args(&self.args)
            .env("SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG", &kubeconfig);
        let program = self
            .environment
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        #[expect(
            clippy::disallowed_methods,
            reason = "compared with the time in the Lease, which a process on this machine writes"
        )]
        let started = Timestamp::now();
        let process = Arc::new(
            program
                .start()
                .unwrap_or_else(|error| panic!("cannot start the controller: {error:#}")),
        );
        if let Some(faults) = &self.faults {
            faults.set_kill_target(&process);
        }
        Controller {
            running: Running::Process(process),
            setup: self.clone(),
            started,
        }
    }
}

impl Controller {
    /// A number that no other controller of this test has.
    pub fn pid(&self) -> u32 {
        match &self.running {
            Running::Process(process) => process.pid(),
            Running::Task(task) => task.number(),
        }
    }

    /// Waits until a Lease that was renewed after this process started names a holder.
    pub async fn leading(&self) -> &Self {
        let name = &self.setup.environment["SYSTEM_UPGRADE_CONTROLLER_NAME"];
        let leases = Api::<Lease>::namespaced(self.setup.client.clone(), &self.setup.namespace);
        wait::eventually("the controller leads", wait::SOON, async || {
            if let Some(status) = self.try_ended() {
                panic!("the controller ended, {status}:\n{}", self.log_tail(30));
            }
            let lease = leases.get_opt(name).await.map_err(|error| error.to_string())?;
            let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
            match (&spec.holder_identity, &spec.renew_time) {
                (Some(holder), Some(renewed)) if !holder.is_empty() && renewed.0 >= self.started => Ok(()),
                _ => Err(format!("Lease {name}: {spec:?}")),
            }
        })
        .await;
        self
    }

    /// `kill -9`. It is gone when this returns.
    pub fn kill(&self) {
        match &self.running {
            Running::Process(process) => process.kill(),
            Running::Task(task) => task.kill(),
        }
    }

    /// SIGSTOP: it stands still, and keeps its connections.
    pub fn freeze(&self) {
        self.process().freeze();
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process().thaw();
    }

    /// SIGTERM, and how it ended.
    pub async fn terminate(&self) -> ExitStatus {
        match &self.running {
            Running::Process(process) => process.signal(Signal::TERM),
            Running::Task(task) => task.shut_down(),
        }
        self.ended(wait::SOON).await
    }

    /// Waits until it ends by itself.
    pub async fn ended(&self, limit: Duration) -> ExitStatus {
        let ended = match &self.running {
            Running::Process(process) => process.end(limit).await,
            Running::Task(task) => task.end(limit).await,
        };
        match ended {
            Some(status) => status,
            None => panic!(
                "the controller still runs after {} s:\n{}",
                limit.as_secs(),
                self.log_tail(30)
            ),
        }
    }

    pub fn is_running(&self) -> bool {
        self.try_ended().is_none()
    }

    fn try_ended(&self) -> Option<ExitStatus> {
        match &self.running {
            Running::Process(process) => process.ended(),
            Running::Task(task) => task.ended(),
        }
    }

    /// Another process with the same setup. The log goes on in the same file.
    pub fn start_again(&self) -> Self {
        self.setup.start()
    }

    pub fn log_path(&self) -> &Path {
        self.process().log_path()
    }

    pub fn log(&self) -> String {
        self.process().log()
    }

    fn log_tail(&self, lines: usize) -> String {
        match &self.running {
            Running::Process(process) => process.log_tail(lines),
            Running::Task(_) => String::new(),
        }
    }

    /// Where it serves metrics and probes, which the log says.
    pub async fn metrics_address(&self) -> SocketAddr {
        let found = || {
            let log = self.log();
            let line = log.lines().rfind(|line| line.contains("serving /livez"))?;
            // The log may have colours.
            let start = line.find("127.0.0.1:")?;
            let address: String = line[start..]
                .chars()
                .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
                .collect();
            address.parse().ok()
        };
        wait::eventually(
            "the controller says where it serves metrics",
            wait::SOON,
            async || found().map(drop).ok_or_else(|| self.log_tail(10)),
        )
        .await;
        found().unwrap()
    }

    /// Waits until the log has that text.
    pub async fn logs(&self, text: &str, limit: Duration) {
        wait::eventually(&format!("the controller logs {text:?}"), limit, async || {
            if self.log().contains(text) {
                Ok(())
            } else {
                Err(self.log_tail(10))
            }
        })
        .await;
    }

    /// Most memory that it has had so far beside the program itself, in bytes (Linux).
    pub fn peak_data(&self) -> u64 {
        let (peak, program) = (self.peak_memory(), self.program_memory());
        let [peak, program] = [peak, program].map(|it| it.expect("the memory of a running process in /proc"));
        peak.saturating_sub(program)
    }

    /// Most resident memory that it has had so far, in bytes (Linux).
    pub fn peak_memory(&self) -> Option<u64> {
        self.memory("VmHWM:")
    }

    /// How much of its memory are pages of the program itself now, in bytes (Linux). Without optimization they are many.
    pub fn program_memory(&self) -> Option<u64> {
        self.memory("RssFile:")
    }

    /// Resident memory now, in bytes (Linux).
    pub fn memory_now(&self) -> Option<u64> {
        self.memory("VmRSS:")
    }

    /// Processor time that it has used so far (Linux, in steps of 10 ms).
    pub fn cpu_time(&self) -> Option<Duration> {
        process::cpu_time(self.pid())
    }

    fn memory(&self, line: &str) -> Option<u64> {
        process::memory(self.process().pid(), line)
    }

    fn process(&self) -> &Process {
        match &self.running {
            Running::Process(process) => process,
            Running::Task(_) => panic!("this test needs the controller as a process of its own"),
        }
    }
}

/// refit's binary: the one that `REFIT_TEST_BINARY` names, or the one which cargo builds for tests.
pub fn binary() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_refit").into();
    std::env::var_os("REFIT_TEST_BINARY").map_or_else(built, PathBuf::from)
}
