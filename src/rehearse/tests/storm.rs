//! The storm: the real controller, twice, on the cluster in the process, while requests get lost, watches break off, processes
//! die, machines die, and people meddle, all by the dice. What must hold is judged on every change (`laws`); when the storm is
//! over, the roll-outs end and nothing of ours is left.
//!
//! `REFIT_SEEDS` says how many storms are played, `REFIT_SEED` from which one on; a broken law prints the trace.

mod dice;
mod laws;
mod people;
mod weather;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::sleep;

use crate::api::crd;
use crate::channel::{ChannelClient, Offer};
use crate::controller::client::{ApiServer, RequestCounts, over_transport};
use crate::controller::lease::LeaseTiming;
use crate::controller::settings::{Flags, Settings};
use crate::controller::{Surroundings, run_in};
use crate::rehearse::json::Value;
use crate::rehearse::podlife::{Boot, Defaults, Delay};
use crate::rehearse::server::Transport;
use crate::rehearse::{Cluster, Habits, Kind, Options, State, in_virtual_time};
use dice::Dice;
use laws::Laws;
use people::{NAMESPACE, People};
use weather::{Line, Process, Tally, Weather};

/// How many storms `cargo test` plays: what takes a minute, optimized or not.
const SEEDS: u64 = if cfg!(debug_assertions) { 200 } else { 500 };
/// How many things people do in one at least, and how many more at most.
const DEEDS: (u64, u64) = (5, 20);
/// How long the roll-outs may take once it is over.
const PEACE: SignedDuration = SignedDuration::from_hours(2);
/// After how many broken ones no more are played.
const ENOUGH: usize = 5;
/// After how many it is told how far they have come.
const TOLD: u64 = 1_000;
/// How many lines of a trace are shown, unless one seed is asked for.
const LINES: usize = 250;

/// All that may go wrong, and each does in a hundred storms.
const FAULTS: [&str; 48] = [
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
    "another SUC's CRD",
    "budget changed",
    "concurrency edited",
    "container edited",
    "controller cut off for a while",
    "controller cut off, and its lease lost",
    "controller killed",
    "controller stopped",
    "cordon edited",
    "deadline edited",
    "death after a write",
    "death before a write",
    "event delayed",
    "label of what is done changed",
    "late",
    "late answer",
    "node comes back",
    "node deleted",
    "node dies",
    "node made again",
    "our CRD again",
    "payload fails",
    "payload is mended",
    "person cordons",
    "person uncordons",
    "pod deleted",
    "reboot goes wrong",
    "reboot required",
    "retry asked for",
    "suspended or resumed",
    "timeout after",
    "timeout after a write",
    "timeout before",
    "version edited",
    "watch broken off",
    "(upgrades)",
    "(reboots)",
    "(began as next)",
];

/// What came of a storm.
struct Played {
    tally: Tally,
    upgrades: u64,
    nexts: u64,
    reboots: u64,
    requests: usize,
}

/// Plays a storm. What went wrong comes with the trace.
fn play(seed: u64) -> Result<Played, String> {
    // The watches of the controller pause by this dice.
    fastrand::seed(seed);
    in_virtual_time(async {
        let mut dice = Dice::new(seed ^ 0xf0);
        let faults = if dice.chance(15) { 0 } else { 1 + dice.roll(12) };
        let weather = Weather::new(seed, faults);
        let cluster = cluster(seed, &weather);
        let mut people = People::new(&cluster, &weather, seed ^ 0xff);
        people.settle_in();
        let laws = Mutex::new(Laws::default());
        let processes: Vec<Control> = (0..2)
            .map(|number| Control::new(number, &cluster, &weather))
            .collect();
        let story = async {
            let broken = tokio::select! {
                biased;
                broken = judge(&cluster, &laws) => Err(broken),
                () = processes[0].runs(seed ^ 1) => Ok(()),
                () = processes[1].runs(seed ^ 2) => Ok(()),
                over = tell(&cluster, &laws, &mut people, &processes) => over,
            };
            broken
                .and_then(|()| look(&cluster, &laws))
                .and_then(|()| laws.lock().unwrap().aftermath())
        };
        let ended = cluster.during(story).await;
        let (trace, holes) = cluster.with(|state| (state.trace().to_vec(), state.holes().to_vec()));
        let ended = ended.and(if holes.is_empty() {
            Ok(())
        } else {
            Err(format!("not played: {holes:?}"))
        });
        let laws = laws.into_inner().unwrap();
        ended.map_err(|why| failure(seed, &why, &trace))?;
        Ok(Played {
            tally: weather.tally(),
            upgrades: laws.upgrades,
            nexts: laws.nexts,
            reboots: laws.reboots,
            requests: trace.len(),
        })
    })
    .unwrap()
}

fn failure(seed: u64, why: &str, trace: &[String]) -> String {
    let told: Vec<&String> = trace.iter().filter(|line| !line.contains("/leases/")).collect();
    let from = if std::env::var("REFIT_SEED").is_ok() {
        0
    } else {
        told.len().saturating_sub(LINES)
    };
    let lines: Vec<&str> = told[from..].iter().map(|line| line.as_str()).collect();
    format!("{}\nREFIT_SEED={seed}: {why}", lines.join("\n"))
}

fn cluster(seed: u64, weather: &Weather) -> Cluster {
    let mut dice = Dice::new(seed ^ 0x1a6);
    let mut options = Options::new(seed, "2026-01-05T09:00:00Z".parse().unwrap());
    (options.traced, options.journaled) = (true, true);
    options.habits = Habits {
        defaults: Defaults {
            run: Delay::millis(8_000),
            jitter_percent: 60,
            boot: Boot {
                off: SignedDuration::from_secs(*dice.pick(&[25, 50, 90]).unwrap()),
                not_ready: SignedDuration::from_secs(*dice.pick(&[0, 3, 12]).unwrap()),
                ..Boot::default()
            },
            ..Defaults::default()
        },
        steering: BTreeMap::new(),
    };
    let cluster = Cluster::new(options);
    // Some caches of the API server are behind, each in its own way.
    let lag = Kind::ALL.map(|_| if dice.chance(50) { dice.roll(300) } else { 0 });
    cluster.with(|state| state.lag = lag);
    cluster.put(serde_json::to_value(crd::plans()).unwrap()).unwrap();
    let weather = weather.clone();
    cluster.make_clients_by(move |transport| {
        let line = Line::new(transport, &weather, None);
        over_transport(line, None, Arc::<RequestCounts>::default())
    });
    cluster
}

fn settings(identity: &str) -> Settings {
    let lookup = |name: &str| {
        let value = match name {
            "SYSTEM_UPGRADE_CONTROLLER_NAME" => "system-upgrade-controller",
            "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE" => NAMESPACE,
            "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT" => "true",
            "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS" => "900",
            "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT" => "2",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let (mut settings, _) = Settings::resolve(Flags::default(), &lookup, identity).unwrap();
    identity.clone_into(&mut settings.identity);
    // As long as usual between the end of one leader and the begin of the next: requests are on their way meanwhile.
    settings.lease = LeaseTiming {
        lease_duration: Duration::from_secs(24),
        renew_deadline: Duration::from_secs(9),
        retry_period: Duration::from_secs(4),
    };
    settings
}

/// One of the two controllers: a process after the other.
struct Control {
    number: usize,
    cluster: Cluster,
    weather: Weather,
    /// The process that runs.
    process: Mutex<Arc<Process>>,
    stop: tokio::sync::Notify,
}

impl Control {
    fn new(number: usize, cluster: &Cluster, weather: &Weather) -> Self {
        Self {
            number,
            cluster: cluster.clone(),
            weather: weather.clone(),
            process: Mutex::new(Process::new()),
            stop: tokio::sync::Notify::new(),
        }
    }

    async fn runs(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        sleep(Duration::from_millis(dice.roll(3_000))).await;
        for generation in 0_u64.. {
            let process = Process::new();
            *self.process.lock().unwrap() = Arc::clone(&process);
            let name = format!("{}-{}", laws::CONTROLLER, self.number);
            let transport = Transport::new(&self.cluster, &name);
            let line = Line::new(transport, &self.weather, Some(Arc::clone(&process)));
            let mut settings = settings(&format!("{name}-{generation}"));
            settings.manage_crd = dice.chance(35);
            let surroundings = Surroundings {
                server: ApiServer::in_process(line),
                clock: self.cluster.clock(),
                channels: Some(ChannelClient::given(|_, _| Ok(Offer::one("v1".to_owned())))),
            };
            let runs = run_in(surroundings, settings, self.stop.notified());
            let ended = tokio::select! {
                biased;
                () = process.is_dead() => "it died".to_owned(),
                ended = Box::pin(runs) => format!("{ended:?}"),
            };
            // What still runs of it is heard no more.
            process.dies();
            self.cluster
                .with(|state| state.tell(&format!("{name}-{generation} has ended: {ended}")));
            sleep(Duration::from_millis(500 + dice.roll(20_000))).await;
        }
    }

    fn process(&self) -> Arc<Process> {
        Arc::clone(&self.process.lock().unwrap())
    }
}

/// Judges everything that has happened since.
fn look(cluster: &Cluster, laws: &Mutex<Laws>) -> Result<(), String> {
    let mut laws = laws.lock().unwrap();
    let news = cluster.with(State::take_journal);
    let broken = news.iter().try_for_each(|entry| laws.learn(entry));
    let story = laws.take_story();
    cluster.with(|state| {
        if let Some(trace) = &mut state.trace {
            trace.extend(story);
        }
    });
    broken
}

/// Judges everything that happens, until a law is broken.
async fn judge(cluster: &Cluster, laws: &Mutex<Laws>) -> String {
    loop {
        if let Err(broken) = look(cluster, laws) {
            return broken;
        }
        cluster
            .until(|state| state.journal.as_ref().is_some_and(|journal| !journal.is_empty()))
            .await;
    }
}

/// The storm, and the peace after it.
async fn tell(
    cluster: &Cluster,
    laws: &Mutex<Laws>,
    people: &mut People,
    processes: &[Control],
) -> Result<(), String> {
    for _ in 0..DEEDS.0 + people.roll(DEEDS.1) {
        sleep(people.pause()).await;
        if people.chance(20) {
            let control = &processes[usize::try_from(people.roll(2)).unwrap()];
            shake(control, people);
        } else {
            people.meddle();
        }
    }
    people.make_peace();
    let limit = cluster.clock().now() + PEACE;
    loop {
        sleep(Duration::from_secs(10)).await;
        look(cluster, laws)?;
        let failed: Vec<String> = {
            let laws = laws.lock().unwrap();
            let over = laws.aftermath().is_ok();
            if over && cluster.with(|state| state.all(Kind::Plan).all(is_over)) {
                return Ok(());
            }
            let failed = laws.nodes.iter().filter(|(_, node)| {
                let facts = &node.facts;
                facts.retry.as_deref() != Some("*")
                    && facts.records.values().any(|record| record.reason.is_some())
            });
            failed.map(|(name, _)| name.clone()).collect()
        };
        for node in failed {
            people.retry(&node, "*");
        }
        people.start_machines();
        if cluster.clock().now() > limit {
            let plans: Vec<Value> = cluster.with(|state| state.all(Kind::Plan).cloned().collect());
            let left = laws.lock().unwrap().aftermath();
            return Err(format!("the roll-outs do not end: {left:?}: {plans:#?}"));
        }
    }
}

/// Something happens to a controller.
fn shake(control: &Control, people: &mut People) {
    let process = control.process();
    let say = |what: &'static str| {
        control.weather.count(what);
        control
            .cluster
            .with(|state| state.tell(&format!("{what}: {}", control.number)));
    };
    match people.roll(4) {
        0 => {
            say("controller killed");
            process.dies();
        }
        1 => {
            say("controller stopped");
            control.stop.notify_waiters();
        }
        2 => {
            say("controller cut off, and its lease lost");
            process.is_cut_off_for(Duration::from_secs(35 + people.roll(60)));
        }
        _ => {
            say("controller cut off for a while");
            process.is_cut_off_for(Duration::from_millis(500 + people.roll(25_000)));
        }
    }
}

fn is_over(plan: &Value) -> bool {
    let conditions = plan["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Complete" && one["status"] == "True")
        && plan["status"]["observedGeneration"] == plan["metadata"]["generation"]
}

/// What many storms came to.
#[derive(Default)]
struct Sums {
    tally: Tally,
    played: u64,
    /// Why the laws did not hold, by seed.
    broken: BTreeMap<u64, String>,
}

impl Sums {
    fn add(&mut self, seed: u64, played: Result<Played, String>) {
        self.played += 1;
        match played {
            Ok(Played {
                tally,
                upgrades,
                nexts,
                reboots,
                requests,
            }) => {
                let requests = u64::try_from(requests).unwrap();
                let more = [
                    ("(upgrades)", upgrades),
                    ("(reboots)", reboots),
                    ("(began as next)", nexts),
                    ("(requests)", requests),
                ];
                for (kind, count) in tally.into_iter().chain(more) {
                    *self.tally.entry(kind).or_default() += count;
                }
            }
            Err(why) => {
                println!(
                    "broken: {}",
                    why[why.rfind("\nREFIT_SEED").unwrap_or_default()..].trim()
                );
                self.broken.insert(seed, why);
            }
        }
    }

    fn tell(&self, began: std::time::Instant) {
        let faults: u64 = self
            .tally
            .iter()
            .filter(|(kind, _)| !kind.starts_with('('))
            .map(|(_, count)| count)
            .sum();
        println!(
            "{} storms with {faults} faults in {:.1?}, broken: {:?}",
            self.played,
            began.elapsed(),
            self.broken.keys()
        );
    }
}

#[test]
fn whatever_happens_the_laws_hold_and_the_roll_outs_end() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // One seed, or so many, or so many from one on.
    let first = number("REFIT_SEED");
    let count = number("REFIT_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let (next, end) = (AtomicU64::new(first.unwrap_or(0)), first.unwrap_or(0) + count);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let began = std::time::Instant::now();
    let sums = Mutex::new(Sums::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while sums.lock().unwrap().broken.len() < ENOUGH {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let played = play(seed);
                    let mut sums = sums.lock().unwrap();
                    sums.add(seed, played);
                    if sums.played.is_multiple_of(TOLD) {
                        sums.tell(began);
                    }
                }
            });
        }
    });
    let sums = sums.into_inner().unwrap();
    for (kind, count) in &sums.tally {
        println!("{count:>9} {kind}");
    }
    sums.tell(began);
    if let Some(why) = sums.broken.values().next() {
        panic!("{why}");
    }
    let missed: Vec<_> = FAULTS
        .iter()
        .filter(|kind| !sums.tally.contains_key(*kind))
        .collect();
    assert!(count < 100 || missed.is_empty(), "never met: {missed:?}");
}

/// Storms that found a mistake once, in refit or in a law, and that a run of the first seeds does not reach.
const FOUND_ONE: [u64; 5] = [7104, 8938, 9584, 10766, 14660];

#[test]
fn storms_that_found_a_mistake_once_find_none() {
    for seed in FOUND_ONE {
        if let Err(why) = play(seed) {
            panic!("{why}");
        }
    }
}

#[test]
fn a_storm_is_the_same_when_played_again() {
    let trace = || {
        let played = play(11);
        played.map(|played| (played.requests, played.tally, played.upgrades, played.reboots))
    };
    assert_eq!(trace(), trace());
}
