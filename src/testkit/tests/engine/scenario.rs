//! A cluster with the real controller, and the actions of tests. Upgrades run until a test ends them
//! ([`succeed`](Scenario::succeed), [`fail`](Scenario::fail), [`roll_out`](Scenario::roll_out)); everything else
//! proceeds by itself.

mod actions;
mod reads;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::runtime::{EnterGuard, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::super::definition;
use super::super::faults::{FaultInjector, FaultyTransport, Process};
use super::super::simulation::MIN_READY;
use crate::fault::Rule;
use crate::invariants::{CONTROLLER, Invariants, USER};
use refit_api::{Check, CheckAnswer, Plan};
use refit_base::version::Offer;
use refit_channel::{ChannelClient, ChannelError};
use refit_cluster::clock::Clock;
use refit_cluster::kube::client::ApiServer;
use refit_controller::settings::{Flags, Settings};
use refit_controller::{Dependencies, run_with};
use refit_rehearse::journal::{Entry, JournalEvent};
use refit_rehearse::json::{Value, json};
use refit_rehearse::server::Transport;
use refit_rehearse::{Cluster, Kind, Options, State};

pub(super) const NAMESPACE: &str = refit_fixtures::NAMESPACE;
/// A Thursday.
pub(super) const START: &str = "2026-01-01T09:00:00Z";
/// Time for immediate reactions: several sync delays of kubelets and of the Job controller.
const MOMENT: Duration = Duration::from_secs(3);
/// Time without a change after which nothing is left to do: longer than a boot or a pause of any scenario.
const REST: Duration = Duration::from_secs(25);
/// Maximum time of a wait.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The start of a scenario.
pub(super) struct Setup {
    pub(super) seed: u64,
    /// `SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT`.
    pub(super) backoff_limit: u32,
    pub(super) kubectl_image_windows: Option<&'static str>,
    /// `REFIT_IMAGE`.
    pub(super) own_image: Option<&'static str>,
    /// Whether upgrades run until a test ends them.
    pub(super) held: bool,
    /// `SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT`.
    pub(super) leader_elect: bool,
    /// `REFIT_NODE_CONDITIONS`.
    pub(super) node_conditions: bool,
    /// `REFIT_ENABLE`.
    pub(super) enable: Option<&'static str>,
    /// `REFIT_CHECK_DRAINS`.
    pub(super) check_drains: bool,
    /// `SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL`.
    pub(super) polling_interval: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            backoff_limit: 0,
            kubectl_image_windows: Some("example.com/kubectl-windows"),
            own_image: Some("refit:test"),
            held: true,
            leader_elect: false,
            node_conditions: false,
            enable: None,
            check_drains: false,
            polling_interval: None,
        }
    }
}

/// The offers of channels, and the times of their queries.
#[derive(Default)]
pub(super) struct Channels {
    pub(super) offers: BTreeMap<String, Result<Offer, String>>,
    pub(super) polls: Vec<Timestamp>,
    /// Why checks fail, by name; others pass.
    pub(super) failing_checks: BTreeMap<String, String>,
    /// When each check was asked.
    pub(super) asked: Vec<(String, Timestamp)>,
    /// Whether a controller that starts has registries to ask for images.
    pub(super) has_registries: bool,
    /// Why registries give no digest of images; others exist.
    pub(super) images: BTreeMap<String, ChannelError>,
    /// When registries were asked for images.
    pub(super) looked_up: Vec<(String, Timestamp)>,
}

pub(super) struct Scenario {
    /// Code outside of a task also needs this runtime's clock. Dropped first.
    _entered: EnterGuard<'static>,
    /// Leaked, because the guard borrows it.
    runtime: &'static Runtime,
    tasks: LocalSet,
    pub(super) cluster: Cluster,
    pub(super) fault_injector: FaultInjector,
    pub(super) invariants: Invariants,
    pub(super) channels: Arc<Mutex<Channels>>,
    process: Arc<Mutex<Arc<Process>>>,
    shutdown: Arc<Shutdown>,
    /// How far the controller's clock was set.
    clock_step: Arc<Mutex<SignedDuration>>,
    /// Whether a controller should run.
    wanted: watch::Sender<bool>,
    /// Events about Plans in the order of their writes: reason and message.
    events: Vec<(String, String)>,
    held: bool,
}

/// A replica of the controller, one process after another.
struct ControllerReplica {
    cluster: Cluster,
    fault_injector: FaultInjector,
    settings: Settings,
    channels: Arc<Mutex<Channels>>,
    process: Arc<Mutex<Arc<Process>>>,
    shutdown: Arc<Shutdown>,
    clock_step: Arc<Mutex<SignedDuration>>,
}

/// SIGTERM, and the end of the process that got it.
#[derive(Default)]
struct Shutdown {
    asked: Notify,
    done: Notify,
}

impl ControllerReplica {
    fn clock(&self) -> Clock {
        let step = Arc::clone(&self.clock_step);
        self.cluster.clock().stepped(move || *step.lock().unwrap())
    }

    async fn run(self, mut wanted: watch::Receiver<bool>) {
        while wanted.wait_for(|wanted| *wanted).await.is_ok() {
            let process = Process::new();
            *self.process.lock().unwrap() = Arc::clone(&process);
            let transport = Transport::new(&self.cluster, CONTROLLER);
            let line = FaultyTransport::new(transport, &self.fault_injector, Some(Arc::clone(&process)));
            let (channels, clock) = (Arc::clone(&self.channels), self.clock());
            let answer = move |url: &str, _: Option<&str>| {
                let mut channels = channels.lock().unwrap();
                channels.polls.push(clock.now());
                let offer = channels.offers.get(url).cloned();
                let offer = offer.unwrap_or_else(|| Err("HTTP/1.1 404 Not Found".to_owned()));
                offer.map_err(ChannelError::Unexpected)
            };
            let (channels, clock) = (Arc::clone(&self.channels), self.clock());
            let checks = move |check: &Check| {
                let mut channels = channels.lock().unwrap();
                channels.asked.push((check.name.clone(), clock.now()));
                let failure = channels.failing_checks.get(&check.name).cloned();
                CheckAnswer {
                    passed: failure.is_none(),
                    message: failure.unwrap_or_else(|| "0".to_owned()),
                }
            };
            let (channels, clock) = (Arc::clone(&self.channels), self.clock());
            let images = move |image: &str| {
                let mut channels = channels.lock().unwrap();
                channels.looked_up.push((image.to_owned(), clock.now()));
                let failure = channels.images.get(image).cloned();
                failure.map_or_else(|| Ok("sha256:0".to_owned()), Err)
            };
            let has_registries = self.channels.lock().unwrap().has_registries;
            let client = ChannelClient::with_answers(answer).with_checks(checks);
            let dependencies = Dependencies {
                server: ApiServer::in_process(line),
                clock: self.clock(),
                channels: Some(if has_registries {
                    client.with_images(images)
                } else {
                    client
                }),
                listener: None,
            };
            let runs = run_with(
                dependencies,
                self.settings.clone(),
                self.shutdown.asked.notified(),
            );
            tokio::select! {
                biased;
                () = process.died() => self.cluster.with(|state| state.trace_line("the controller dies")),
                ended = Box::pin(runs) => match ended {
                    Ok(()) => self.shutdown.done.notify_one(),
                    Err(error) => panic!("the controller has ended: {error:?}"),
                },
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

fn settings(setup: &Setup) -> Settings {
    let lookup = |name: &str| match name {
        "SYSTEM_UPGRADE_CONTROLLER_NAME" => Some("system-upgrade-controller".to_owned()),
        "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE" => Some(NAMESPACE.to_owned()),
        "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT" => Some(setup.leader_elect.to_string()),
        "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS" => Some("86400".to_owned()),
        "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT" => Some(setup.backoff_limit.to_string()),
        // Otherwise its first write would be the CRD with descriptions.
        "REFIT_MANAGE_CRD" => Some("false".to_owned()),
        "REFIT_CHECK_DRAINS" => setup.check_drains.then(|| "true".to_owned()),
        "REFIT_NODE_CONDITIONS" => Some(setup.node_conditions.to_string()),
        "REFIT_ENABLE" => setup.enable.map(str::to_owned),
        "SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL" => setup.polling_interval.map(str::to_owned),
        "REFIT_IMAGE" => setup.own_image.map(str::to_owned),
        "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS" => setup.kubectl_image_windows.map(str::to_owned),
        _ => None,
    };
    Settings::resolve(Flags::default(), &lookup, "controller-0")
        .unwrap()
        .0
}

/// A Ready node with a merge patch.
pub(super) fn node(name: &str, change: &Value) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
            "nodeInfo": { "bootID": format!("boot-{name}-1"), "kubeletVersion": "v1.36.0" },
        },
    });
    refit_rehearse::write::merge(&mut node, change);
    node
}

impl Scenario {
    // -- how it begins

    /// A cluster with these nodes and a Plan, after the immediate reactions.
    pub(super) fn with(nodes: &[&str], plan: Plan) -> Self {
        let mut scenario = Self::of_nodes(nodes);
        scenario.apply_and_settle(plan);
        scenario
    }

    pub(super) fn empty() -> Self {
        Self::new(&Setup::default())
    }

    /// A cluster with these nodes, and a controller.
    pub(super) fn of_nodes(nodes: &[&str]) -> Self {
        let mut scenario = Self::empty();
        scenario.add_nodes(nodes);
        scenario
    }

    /// A cluster without nodes, and a controller.
    pub(super) fn new(setup: &Setup) -> Self {
        let scenario = Self::without_controller(setup);
        scenario.start();
        scenario
    }

    pub(super) fn without_controller(setup: &Setup) -> Self {
        fastrand::seed(setup.seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let runtime: &'static Runtime = Box::leak(Box::new(runtime));
        let entered = runtime.enter();
        let tasks = LocalSet::new();
        let mut options = Options::new(setup.seed, START.parse().unwrap());
        (options.traced, options.journaled) = (true, true);
        options.default_behaviour.defaults.boot.off = SignedDuration::from_secs(10);
        if setup.held {
            let never = ("fake-kubelet/upgrade.run-delay".to_owned(), "never".to_owned());
            options.default_behaviour.steering.extend([never]);
        }
        let (cluster, fault_injector) = (Cluster::new(options), FaultInjector::new(setup.seed, 0));
        cluster.put(definition::without_descriptions()).unwrap();
        let (wanted, wish) = watch::channel(false);
        let control = ControllerReplica {
            cluster: cluster.clone(),
            fault_injector: fault_injector.clone(),
            settings: settings(setup),
            channels: Arc::default(),
            process: Arc::new(Mutex::new(Process::new())),
            shutdown: Arc::default(),
            clock_step: Arc::default(),
        };
        let (channels, process) = (Arc::clone(&control.channels), Arc::clone(&control.process));
        let (shutdown, clock_step) = (Arc::clone(&control.shutdown), Arc::clone(&control.clock_step));
        tasks.spawn_local(control.run(wish));
        let working = cluster.clone();
        tasks.spawn_local(async move { working.run_while(pending::<()>()).await });
        Self {
            _entered: entered,
            runtime,
            tasks,
            cluster: cluster.acting_as(USER),
            fault_injector,
            invariants: Invariants::with_min_ready(MIN_READY),
            channels,
            process,
            shutdown,
            clock_step,
            wanted,
            events: Vec::new(),
            held: setup.held,
        }
    }

    // -- time

    pub(super) fn now(&self) -> Timestamp {
        self.cluster.clock().now()
    }

    /// Advances the time.
    pub(super) fn pass(&mut self, time: Duration) {
        self.tasks.block_on(self.runtime, sleep(time));
        self.judge();
    }

    pub(super) fn pass_secs(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    /// Waits for immediate reactions.
    pub(super) fn settle(&mut self) {
        self.pass(MOMENT);
    }

    /// Waits until a condition of the cluster holds.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, holds: impl FnMut(&State) -> bool) {
        let waits = timeout(PATIENCE, self.cluster.until(holds));
        let came = self.tasks.block_on(self.runtime, waits);
        self.judge();
        if came.is_err() {
            self.panic(&format!("it does not come to that: {what}"));
        }
    }

    /// Waits until the controller has made so many writes. False if it makes fewer.
    pub(super) fn after_writes(&mut self, count: u64) -> bool {
        let fault_injector = self.fault_injector.clone();
        let writes = move |_: &State| fault_injector.writes() >= count;
        let waits = timeout(Duration::from_secs(600), self.cluster.until(writes));
        let came = self.tasks.block_on(self.runtime, waits).is_ok();
        self.judge();
        came
    }

    /// Waits until nothing is left to do.
    pub(super) fn rest(&mut self) {
        for _ in 0..400 {
            let version = self.cluster.with(|state| state.store.version());
            self.pass(REST);
            if self.cluster.with(|state| state.store.version()) == version {
                return;
            }
        }
        self.panic("the cluster does not come to rest");
    }

    /// Ends upgrades successfully until nothing is left to do.
    pub(super) fn roll_out(&mut self) {
        let all = self.names(Kind::Node);
        self.steer_upgrades(&all, Some("1s"));
        self.rest();
        self.steer_upgrades(&all, None);
    }

    /// Ends upgrades successfully until all nodes are done, and checks that nothing of refit is left.
    #[track_caller]
    pub(super) fn finish(&mut self) {
        self.roll_out();
        self.assert_over();
    }

    fn steer_upgrades(&mut self, nodes: &[String], delay: Option<&str>) {
        if self.held {
            for node in nodes {
                self.steer(node, "upgrade.run-delay", delay);
            }
        }
    }

    /// Steers the pods of a node, including running ones.
    pub(super) fn steer(&mut self, node: &str, key: &str, value: Option<&str>) {
        self.annotate(Kind::Node, node, &format!("fake-kubelet/{key}"), value);
        let on_node = |pod: &&Value| pod["spec"]["nodeName"] == *node;
        let keys: Vec<(String, String)> = self.cluster.with(|state| {
            let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
            let pods = state.all(Kind::Pod).filter(on_node);
            pods.map(|pod| (text(pod, "namespace"), text(pod, "name")))
                .collect()
        });
        for (namespace, name) in keys {
            // A kubelet reads the steering when a pod changes.
            let patch = json!({ "metadata": { "annotations": { "example.com/touched": format!("{key} {value:?}") } } });
            let _ = self.cluster.patch(Kind::Pod, &namespace, &name, &patch);
        }
    }

    /// Sets the clock of the controller's machine so far from the right time.
    pub(super) fn set_clock(&self, step: SignedDuration) {
        *self.clock_step.lock().unwrap() = step;
    }

    // -- the controller

    pub(super) fn start(&self) {
        self.wanted.send_replace(true);
    }

    /// Stops the controller.
    pub(super) fn stop(&mut self) {
        self.wanted.send_replace(false);
        self.process.lock().unwrap().kill();
        self.pass(Duration::from_secs(1));
    }

    /// Terminates the controller, and returns how long that took.
    pub(super) fn terminate(&mut self) -> SignedDuration {
        let began = self.now();
        self.wanted.send_replace(false);
        self.shutdown.asked.notify_one();
        let ends = timeout(PATIENCE, self.shutdown.done.notified());
        let ended = self.tasks.block_on(self.runtime, ends);
        self.judge();
        if ended.is_err() {
            self.panic("the controller does not end");
        }
        self.now().duration_since(began)
    }

    /// Keeps the controller from being restarted after its next death until [`start`](Self::start).
    pub(super) fn stop_at_death(&self) {
        self.wanted.send_replace(false);
    }

    /// Kills the controller, and starts another one without its memory.
    pub(super) fn restart(&mut self) {
        self.stop();
        self.start();
        self.settle();
    }

    /// Injects a fault into the next matching request.
    pub(super) fn fault(&self, rule: Rule) {
        self.fault_injector.add(rule.once());
    }

    /// Injects a fault into all matching requests until [`mend`](Self::mend).
    pub(super) fn fault_always(&self, rule: Rule) {
        self.fault_injector.add(rule);
    }

    pub(super) fn mend(&self) {
        self.fault_injector.clear_rules();
    }

    pub(super) fn serve_definition_of_suc(&mut self, theirs: bool) {
        definition::put(&self.cluster, theirs);
    }

    // -- invariants

    /// Checks that all nodes are done, and that nothing of refit is left.
    #[track_caller]
    pub(super) fn assert_over(&self) {
        if let Err(why) = self.invariants.check_final_state() {
            self.panic(&why);
        }
    }

    #[track_caller]
    fn judge(&mut self) {
        let journal = self.cluster.with(State::take_journal);
        for entry in &journal {
            self.note_event(entry);
            if let Err(broken) = self.invariants.observe(entry) {
                self.panic(&broken);
            }
        }
        let scenario = self.invariants.take_log();
        let unsupported_requests = self.cluster.with(|state| {
            if let Some(trace) = &mut state.trace {
                trace.extend(scenario);
            }
            state.unsupported_requests().to_vec()
        });
        if !unsupported_requests.is_empty() {
            self.panic(&format!("not played: {unsupported_requests:?}"));
        }
    }

    fn note_event(&mut self, entry: &Entry) {
        if let JournalEvent::Change(Kind::Event, change) = &entry.what
            && change.old.is_none()
            && change.new.value["involvedObject"]["kind"] == "Plan"
        {
            let [reason, message] = ["reason", "message"].map(|field| {
                let text = change.new.value[field].as_str();
                text.unwrap_or_default().to_owned()
            });
            self.events.push((reason, message));
        }
    }

    /// Fails the test with the trace of the scenario.
    #[track_caller]
    pub(super) fn panic(&self, why: &str) -> ! {
        let trace = self.cluster.with(|state| state.trace().join("\n"));
        panic!("{trace}\n{why}");
    }
}
