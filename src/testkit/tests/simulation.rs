//! The simulation: two replicas of the real controller on the simulated cluster, with random faults of requests,
//! watches, processes and machines, and random user actions. Invariants are checked on every change (`invariants`);
//! after the faults end, the roll-outs must end and leave nothing of refit behind.
//!
//! `REFIT_SEEDS` is the number of runs (a share of `SEEDS` by default), `REFIT_SEED` the first seed; a broken invariant
//! prints the trace. `REFIT_TRACES` is a file that gets a line for each seed with a digest of all requests and changes: a change of
//! the code that is to change no behaviour leaves it as it was.

mod front_ends;
mod hostile;
mod lifecycle;
mod one_answer;
mod totals;
mod users;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use one_answer::OneAnswer;
use tokio::time::sleep;

use super::faults::{FaultInjector, FaultyTransport, Process, Tally};
use super::rng::Rng;
use crate::invariants;
use crate::invariants::{Invariants, is_hostile};
use refit_api::{CheckAnswer, crd};
use refit_base::version::Offer;
use refit_channel::ChannelClient;
use refit_cluster::kube::client::{ApiServer, RequestCounts, over_transport};
use refit_controller::lease::LeaseTiming;
use refit_controller::settings::{Flags, Settings};
use refit_controller::{Dependencies, run_with};
use refit_fixtures::repetitions;
use refit_rehearse::journal::JournalEvent;
use refit_rehearse::json::Value;
use refit_rehearse::pod_lifecycle::{Boot, Defaults, Delay};
use refit_rehearse::server::Transport;
use refit_rehearse::{Cluster, DefaultBehaviour, Kind, Options, State, in_virtual_time};
use totals::Totals;
use users::{NAMESPACE, Users};

/// Default number of runs, about a minute with or without optimization.
const SEEDS: u64 = if cfg!(debug_assertions) { 200 } else { 500 };
/// Minimum number of user actions in a run, and maximum number of additional ones.
const USER_ACTIONS: (u64, u64) = (5, 20);
/// The shortest `settle.minReady` after a reboot among the Plans, shorter than the default.
pub(super) const MIN_READY: SignedDuration = SignedDuration::from_secs(7);
/// Time for the roll-outs to end after the faults.
const RECOVERY_TIME: SignedDuration = SignedDuration::from_hours(2);
/// Number of failures after which no more seeds run.
const MAX_FAILURES: usize = 5;
/// Number of runs between progress messages.
const PROGRESS_EVERY: u64 = 1_000;
/// Names the file of the digests.
const TRACES: &str = "REFIT_TRACES";
/// Maximum number of trace lines, unless a single seed runs.
const TRACE_LINES: usize = 250;

/// All faults; each occurs within a hundred runs.
const FAULTS: [&str; 62] = [
    "409",
    "410",
    "429",
    "500",
    "500 after",
    "500 after a write",
    "504 after a write",
    "Job deleted",
    "Plan deleted",
    "Plan made again",
    "aborted or resumed",
    "another SUC's CRD",
    "budget changed",
    "checks fail or pass",
    "concurrency edited",
    "container edited",
    "controller cut off for a while",
    "controller cut off, and its lease lost",
    "controller killed",
    "controller stopped",
    "condition removed",
    "condition set",
    "cordon edited",
    "deadline edited",
    "death after a write",
    "death before a write",
    "event delayed",
    "hostile object",
    "label of what is done changed",
    "late",
    "late answer",
    "limits changed",
    "maintenance begins",
    "maintenance ends",
    "node asks for a reboot",
    "node comes back",
    "node deleted",
    "node dies",
    "node made again",
    "our CRD again",
    "operation begins",
    "operation edited",
    "operation ends",
    "payload fails",
    "payload is mended",
    "person cordons",
    "person uncordons",
    "pod deleted",
    "reboot goes wrong",
    "reboot required",
    "retry asked for",
    "skipped or not",
    "start in spite of limits",
    "suspended or resumed",
    "timeout after",
    "timeout after a write",
    "timeout before",
    "version edited",
    "watch broken off",
    "wave approved",
    "(upgrades)",
    "(reboots)",
];

/// What holds at each change.
struct Checks {
    invariants: Invariants,
    answers: OneAnswer,
}

/// The result of a run.
struct SimulationResult {
    tally: Tally,
    upgrades: u64,
    reboots: u64,
    requests: usize,
    /// Of all requests, and of all changes with their objects, in order.
    digest: u64,
}

/// Runs a seed. An error includes the trace.
fn simulate(seed: u64) -> Result<SimulationResult, String> {
    // The controller's watches use this generator for their back-off.
    fastrand::seed(seed);
    in_virtual_time(async {
        let mut rng = Rng::new(seed ^ 0xf0);
        let fault_percent = if rng.chance(15) { 0 } else { 1 + rng.below(12) };
        let fault_injector = FaultInjector::new(seed, fault_percent);
        let cluster = cluster(seed, &fault_injector);
        let mut users = Users::new(&cluster, &fault_injector, seed ^ 0xff);
        users.create_cluster();
        let checks = Mutex::new(Checks {
            invariants: Invariants::with_min_ready(MIN_READY),
            answers: OneAnswer::new(cluster.clock().now()),
        });
        let processes: Vec<ControllerReplica> = (0..2)
            .map(|number| ControllerReplica::new(number, &cluster, &fault_injector, &users))
            .collect();
        let scenario = async {
            let broken = tokio::select! {
                biased;
                broken = check_until_broken(&cluster, &checks) => Err(broken),
                () = processes[0].run(seed ^ 1) => Ok(()),
                () = processes[1].run(seed ^ 2) => Ok(()),
                over = run_actions(&cluster, &checks, &mut users, &processes) => over,
            };
            broken
                .and_then(|()| check_journal(&cluster, &checks))
                .and_then(|()| checks.lock().unwrap().invariants.check_final_state())
        };
        let ended = cluster.run_while(scenario).await;
        let (trace, unsupported_requests) =
            cluster.with(|state| (state.trace().to_vec(), state.unsupported_requests().to_vec()));
        let ended = ended.and(if unsupported_requests.is_empty() {
            Ok(())
        } else {
            Err(format!("not played: {unsupported_requests:?}"))
        });
        let invariants = checks.into_inner().unwrap().invariants;
        ended.map_err(|why| failure(seed, &why, &trace))?;
        Ok(SimulationResult {
            tally: fault_injector.tally(),
            upgrades: invariants.upgrades,
            reboots: invariants.reboots,
            requests: trace.len(),
            digest: digest(&trace),
        })
    })
    .unwrap()
}

fn digest(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn failure(seed: u64, why: &str, trace: &[String]) -> String {
    let shown: Vec<&String> = trace.iter().filter(|line| !line.contains("/leases/")).collect();
    let from = if std::env::var("REFIT_SEED").is_ok() {
        0
    } else {
        shown.len().saturating_sub(TRACE_LINES)
    };
    let lines: Vec<&str> = shown[from..].iter().map(|line| line.as_str()).collect();
    format!("{}\nREFIT_SEED={seed}: {why}", lines.join("\n"))
}

fn cluster(seed: u64, fault_injector: &FaultInjector) -> Cluster {
    let mut rng = Rng::new(seed ^ 0x1a6);
    let mut options = Options::new(seed, "2026-01-05T09:00:00Z".parse().unwrap());
    (options.traced, options.journaled) = (true, true);
    options.default_behaviour = DefaultBehaviour {
        defaults: Defaults {
            run: Delay::millis(8_000),
            jitter_percent: 60,
            boot: Boot {
                off: SignedDuration::from_secs(*rng.pick(&[25, 50, 90]).unwrap()),
                not_ready: SignedDuration::from_secs(*rng.pick(&[0, 3, 12]).unwrap()),
                ..Boot::default()
            },
            ..Defaults::default()
        },
        steering: BTreeMap::new(),
    };
    let cluster = Cluster::new(options);
    // Random lag of the API server's caches.
    let lag = Kind::ALL.map(|_| if rng.chance(50) { rng.below(300) } else { 0 });
    cluster.with(|state| state.lag = lag);
    cluster.put(serde_json::to_value(crd::plans()).unwrap()).unwrap();
    let fault_injector = fault_injector.clone();
    cluster.set_client_factory(move |transport| {
        let line = FaultyTransport::new(transport, &fault_injector, None);
        over_transport(line, None, Arc::<RequestCounts>::default())
    });
    cluster
}

fn settings(identity: &str, (enabled, node_conditions): (&str, bool)) -> Settings {
    let lookup = |name: &str| {
        let value = match name {
            "SYSTEM_UPGRADE_CONTROLLER_NAME" => "system-upgrade-controller",
            "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE" => NAMESPACE,
            "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT" => "true",
            "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS" => "900",
            "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT" => "2",
            "REFIT_IMAGE" => "refit:test",
            "REFIT_ENABLE" if !enabled.is_empty() => enabled,
            "REFIT_NODE_CONDITIONS" if node_conditions => "true",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let (mut settings, _) = Settings::resolve(Flags::default(), &lookup, identity).unwrap();
    identity.clone_into(&mut settings.identity);
    // The usual time between two leaders, in which requests may still be in flight.
    settings.lease = LeaseTiming {
        lease_duration: Duration::from_secs(24),
        renew_deadline: Duration::from_secs(9),
        retry_period: Duration::from_secs(4),
    };
    settings
}

/// One of the two replicas, one process after another.
struct ControllerReplica {
    number: usize,
    cluster: Cluster,
    fault_injector: FaultInjector,
    process: Mutex<Arc<Process>>,
    /// What the servers of checks answer.
    is_healthy: Arc<AtomicBool>,
    /// The value of `--enable`.
    enabled: String,
    /// The value of `--node-conditions`.
    node_conditions: bool,
    stop: tokio::sync::Notify,
}

impl ControllerReplica {
    fn new(number: usize, cluster: &Cluster, fault_injector: &FaultInjector, users: &Users) -> Self {
        Self {
            number,
            is_healthy: users.health(),
            enabled: users.front_ends.enabled(),
            node_conditions: users.lifecycle.is_some(),
            cluster: cluster.clone(),
            fault_injector: fault_injector.clone(),
            process: Mutex::new(Process::new()),
            stop: tokio::sync::Notify::new(),
        }
    }

    async fn run(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        sleep(Duration::from_millis(rng.below(3_000))).await;
        for generation in 0_u64.. {
            let process = Process::new();
            *self.process.lock().unwrap() = Arc::clone(&process);
            let name = format!("{}-{}", invariants::CONTROLLER, self.number);
            let transport = Transport::new(&self.cluster, &name);
            let line = FaultyTransport::new(transport, &self.fault_injector, Some(Arc::clone(&process)));
            let mut settings = settings(
                &format!("{name}-{generation}"),
                (&self.enabled, self.node_conditions),
            );
            settings.manage_crd = rng.chance(35);
            let dependencies = Dependencies {
                server: ApiServer::in_process(line),
                clock: self.cluster.clock(),
                channels: Some({
                    let is_healthy = Arc::clone(&self.is_healthy);
                    let answers = |_: &str, _: Option<&str>| Ok(Offer::one("v1".to_owned()));
                    ChannelClient::with_answers(answers).with_checks(move |_| {
                        let passed = is_healthy.load(Ordering::Relaxed);
                        let message = if passed {
                            "200 OK"
                        } else {
                            "503 Service Unavailable"
                        };
                        CheckAnswer {
                            passed,
                            message: message.to_owned(),
                        }
                    })
                }),
                listener: None,
            };
            let runs = run_with(dependencies, settings, self.stop.notified());
            let ended = tokio::select! {
                biased;
                () = process.died() => "it died".to_owned(),
                ended = Box::pin(runs) => format!("{ended:?}"),
            };
            // Cuts off what is still running of it.
            process.kill();
            self.cluster
                .with(|state| state.trace_line(&format!("{name}-{generation} has ended: {ended}")));
            sleep(Duration::from_millis(500 + rng.below(20_000))).await;
        }
    }

    fn process(&self) -> Arc<Process> {
        Arc::clone(&self.process.lock().unwrap())
    }
}

/// Checks all new journal entries.
fn check_journal(cluster: &Cluster, checks: &Mutex<Checks>) -> Result<(), String> {
    let Checks { invariants, answers } = &mut *checks.lock().unwrap();
    let journal = cluster.with(State::take_journal);
    let broken = journal.iter().try_for_each(|entry| {
        invariants.observe(entry)?;
        answers.check(entry)
    });
    let mut log = invariants.take_log();
    if std::env::var_os(TRACES).is_some() {
        // The descriptions in a definition are no behaviour.
        let changes: Vec<_> = journal
            .iter()
            .filter(|entry| !matches!(entry.what, JournalEvent::Change(Kind::Definition, _)))
            .collect();
        log.push(format!("changes: {:016x}", digest(&format!("{changes:?}"))));
    }
    cluster.with(|state| {
        if let Some(trace) = &mut state.trace {
            trace.extend(log);
        }
    });
    broken
}

async fn check_until_broken(cluster: &Cluster, checks: &Mutex<Checks>) -> String {
    loop {
        if let Err(broken) = check_journal(cluster, checks) {
            return broken;
        }
        cluster
            .until(|state| state.journal.as_ref().is_some_and(|journal| !journal.is_empty()))
            .await;
    }
}

/// Runs the faults and user actions, and then the recovery.
async fn run_actions(
    cluster: &Cluster,
    checks: &Mutex<Checks>,
    users: &mut Users,
    processes: &[ControllerReplica],
) -> Result<(), String> {
    for _ in 0..USER_ACTIONS.0 + users.below(USER_ACTIONS.1) {
        sleep(users.pause()).await;
        users.approve(30);
        if let Some(health) = users.change_health() {
            let now = cluster.clock().now();
            checks.lock().unwrap().invariants.set_health(health, now);
        }
        if users.chance(20) {
            let control = &processes[usize::try_from(users.below(2)).unwrap()];
            disturb(control, users);
        } else {
            users.act();
        }
    }
    users.end_faults();
    checks
        .lock()
        .unwrap()
        .invariants
        .set_health(true, cluster.clock().now());
    let limit = cluster.clock().now() + RECOVERY_TIME;
    loop {
        sleep(Duration::from_secs(10)).await;
        check_journal(cluster, checks)?;
        let failed: Vec<String> = {
            let invariants = &checks.lock().unwrap().invariants;
            let over = invariants
                .check_final_state()
                .and_then(|()| front_ends::check(cluster))
                .and_then(|()| hostile::check(cluster, invariants));
            if over.is_ok() && cluster.with(|state| state.all(Kind::Plan).all(is_over)) {
                return Ok(());
            }
            let failed = invariants.nodes.iter().filter(|(_, node)| {
                let facts = &node.facts;
                facts.retry.as_deref() != Some("*")
                    && facts.records.values().any(|record| record.reason.is_some())
            });
            failed.map(|(name, _)| name.clone()).collect()
        };
        for node in failed {
            users.retry(&node, "*");
        }
        users.retry_hooks();
        users.start_machines();
        users.approve(100);
        if cluster.clock().now() > limit {
            let plans: Vec<Value> = cluster.with(|state| state.all(Kind::Plan).cloned().collect());
            let invariants = &checks.lock().unwrap().invariants;
            let left = invariants
                .check_final_state()
                .and_then(|()| front_ends::check(cluster))
                .and_then(|()| hostile::check(cluster, invariants));
            return Err(format!("the roll-outs do not end: {left:?}: {plans:#?}"));
        }
    }
}

/// A fault of a controller process.
fn disturb(control: &ControllerReplica, users: &mut Users) {
    let process = control.process();
    let say = |what: &'static str| {
        control.fault_injector.count(what);
        control
            .cluster
            .with(|state| state.trace_line(&format!("{what}: {}", control.number)));
    };
    match users.below(4) {
        0 => {
            say("controller killed");
            process.kill();
        }
        1 => {
            say("controller stopped");
            control.stop.notify_waiters();
        }
        2 => {
            say("controller cut off, and its lease lost");
            process.cut_off(Duration::from_secs(35 + users.below(60)));
        }
        _ => {
            say("controller cut off for a while");
            process.cut_off(Duration::from_millis(500 + users.below(25_000)));
        }
    }
}

fn is_over(plan: &Value) -> bool {
    if is_hostile(plan) {
        return true;
    }
    let conditions = plan["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Complete" && one["status"] == "True")
        && plan["status"]["observedGeneration"] == plan["metadata"]["generation"]
}

#[test]
fn whatever_happens_the_invariants_hold_and_the_roll_outs_end() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // One seed, a number of seeds, or a number from one on.
    let first = number("REFIT_SEED");
    let count = number("REFIT_SEEDS").unwrap_or(if first.is_some() {
        1
    } else {
        SEEDS / repetitions::rate()
    });
    let (next, end) = (AtomicU64::new(first.unwrap_or(0)), first.unwrap_or(0) + count);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let began = std::time::Instant::now();
    let sums = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while sums.lock().unwrap().broken.len() < MAX_FAILURES {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let played = simulate(seed);
                    let mut sums = sums.lock().unwrap();
                    sums.add(seed, played);
                    if sums.played.is_multiple_of(PROGRESS_EVERY) {
                        sums.print(began);
                    }
                }
            });
        }
    });
    let sums = sums.into_inner().unwrap();
    if let Some(file) = std::env::var_os(TRACES) {
        let lines = sums.digests.iter();
        let lines: Vec<_> = lines
            .map(|(seed, digest)| format!("{seed} {digest:016x}"))
            .collect();
        std::fs::write(file, lines.join("\n") + "\n").unwrap();
    }
    for (kind, count) in &sums.tally {
        println!("{count:>9} {kind}");
    }
    sums.print(began);
    if let Some(why) = sums.broken.values().next() {
        panic!("{why}");
    }
    let missed: Vec<_> = FAULTS
        .iter()
        .filter(|kind| !sums.tally.contains_key(*kind))
        .collect();
    assert!(count < 100 || missed.is_empty(), "never met: {missed:?}");
}

/// Seeds that once found a defect of refit or of an invariant, beyond the default range.
const REGRESSIONS: [u64; 15] = [
    2398, 3176, 4323, 5820, 6214, 7104, 8938, 9584, 9970, 10766, 12678, 14660, 16323, 18007, 19556,
];

#[test]
fn seeds_that_once_found_a_bug_find_none() {
    for seed in repetitions::sample(&REGRESSIONS) {
        if let Err(why) = simulate(seed) {
            panic!("{why}");
        }
    }
}

#[test]
fn a_simulation_is_the_same_when_it_runs_again() {
    let trace = |seed| {
        let played = simulate(seed);
        played.map(|played| (played.requests, played.tally, played.upgrades, played.reboots))
    };
    // The last two have several nodes in maintenance at once.
    for seed in [11, 2396, 2398] {
        assert_eq!(trace(seed), trace(seed), "REFIT_SEED={seed}");
    }
}
