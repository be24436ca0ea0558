//! Elections over a Lease in memory, in paused time.

mod store;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use refit_cluster::clock::Clock;
use refit_cluster::kube::Leadership;
use store::{Faults, Link, Store};

const NAME: &str = "system-upgrade-controller";

fn epoch() -> Timestamp {
    "2026-01-02T03:04:05.123456789Z".parse().unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct Candidate {
    link: Link,
    leadership: Leadership,
    election: LeaseHandle,
}

fn candidate_with(store: &Arc<Store>, identity: &str, clock: Clock) -> Candidate {
    let link = Link::new(store);
    let elector = Elector::new(
        link.client(),
        "kube-upgrade",
        NAME,
        identity,
        LeaseTiming::default(),
        clock,
    );
    Candidate {
        link,
        leadership: elector.leadership(),
        election: elector.start(),
    }
}

fn candidate(store: &Arc<Store>, identity: &str) -> Candidate {
    let clock = Clock::following_tokio(epoch());
    candidate_with(store, identity, clock)
}

/// The leader `a` of a Lease.
async fn leader() -> (Arc<Store>, Candidate) {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    (store, a)
}

impl Candidate {
    /// Time until this candidate leads.
    async fn leads_after(&self) -> Duration {
        let start = Instant::now();
        timeout(secs(600), self.leadership.wait_until_leader())
            .await
            .expect("the candidate never leads");
        start.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn an_absent_lease_is_created_and_renewed() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    assert_eq!(a.leads_after().await, Duration::ZERO);
    assert_eq!(
        store.spec(),
        json!({
            "holderIdentity": "a",
            "leaseDurationSeconds": 45,
            "acquireTime": "2026-01-02T03:04:05.123456Z",
            "renewTime": "2026-01-02T03:04:05.123456Z",
            "leaseTransitions": 0,
        })
    );
    sleep(secs(61)).await;
    assert_eq!(store.spec()["renewTime"], "2026-01-02T03:05:05.123456Z");
    assert_eq!(store.spec()["acquireTime"], "2026-01-02T03:04:05.123456Z");
    assert!(a.leadership.is_leader());
    // One PUT every two seconds and no GET, as for client-go and system-upgrade-controller.
    assert_eq!(a.link.requests(), ["GET 1", "POST 1", "PUT 30"]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_takes_over_when_the_record_stood_still_for_the_lease_duration() {
    let (store, a) = leader().await;
    let b = candidate(&store, "b");
    sleep(secs(600)).await;
    assert!(a.leadership.is_leader() && !b.leadership.is_leader());

    let last_renewal = store.last_write();
    a.link.cut();
    b.leads_after().await;
    let waited = last_renewal.elapsed();
    // b may have seen the last renewal up to a jittered retry period after it was made.
    assert!(waited >= secs(45) && waited < secs(50), "{waited:?}");
    assert!(!a.leadership.is_leader());
    assert_eq!(store.spec()["holderIdentity"], "b");
    assert_eq!(store.spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn the_holders_own_lease_duration_counts() {
    let store = Store::holding(&json!({
        "holderIdentity": "other", "leaseDurationSeconds": 100, "leaseTransitions": 6,
        "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
    }));
    let a = candidate(&store, "a");
    // The age in the record does not matter, because its clock may be wrong.
    assert_eq!(a.leads_after().await, secs(100));
    assert_eq!(store.spec()["leaseTransitions"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_record_is_free() {
    let store = Store::holding(&json!({}));
    assert_eq!(candidate(&store, "a").leads_after().await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_api_leads_no_longer_than_the_renew_deadline() {
    for (hang, refuse) in [(true, false), (false, true)] {
        let fault = Faults {
            hang,
            refuse,
            ..Faults::default()
        };
        let (store, a) = leader().await;
        sleep(secs(21)).await;
        let last_renewal = store.last_write();
        a.link.set(fault);
        a.leadership.lost().await;
        assert_eq!(last_renewal.elapsed(), secs(30));
        assert!(!a.leadership.is_leader());
        a.link.set(Faults::default());
        sleep(secs(600)).await;
        assert!(!a.leadership.is_leader(), "leadership that has lapsed came back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_a_short_outage() {
    let (_, a) = leader().await;
    sleep(secs(11)).await;
    a.link.cut();
    sleep(secs(15)).await;
    assert!(a.leadership.is_leader());
    a.link.set(Faults::default());
    sleep(secs(600)).await;
    assert!(a.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_before_it_was_sent() {
    let (store, a) = leader().await;
    sleep(secs(3)).await;
    // The response takes 9 s, the request no time.
    a.link.set(Faults {
        answer_delay: secs(9),
        ..Faults::default()
    });
    sleep(secs(20)).await;
    a.link.cut();
    let sent = store.last_write();
    a.leadership.lost().await;
    assert!(sent.elapsed() <= secs(30), "{:?}", sent.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_machine_was_suspended_does_not_lead() {
    let store = Store::empty();
    let offset = Arc::new(std::sync::Mutex::new(SignedDuration::ZERO));
    let base = Clock::following_tokio(epoch());
    let clock = {
        let offset = Arc::clone(&offset);
        Clock::new(move || base.now() + *offset.lock().unwrap())
    };
    let a = candidate_with(&store, "a", clock);
    a.leads_after().await;
    // NTP has set the clock back.
    *offset.lock().unwrap() = SignedDuration::from_hours(-5);
    assert!(a.leadership.is_leader());
    sleep(secs(20)).await;
    assert!(a.leadership.is_leader());
    // The monotonic clock did not advance.
    *offset.lock().unwrap() = SignedDuration::from_hours(-5) + SignedDuration::from_secs(31);
    assert!(!a.leadership.is_leader());
    timeout(secs(3), a.leadership.lost())
        .await
        .expect("the process must end");
    assert_eq!(
        store.spec()["holderIdentity"],
        "a",
        "nothing was written any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_at_once() {
    let (store, a) = leader().await;
    let b = candidate(&store, "b");
    sleep(secs(100)).await;
    a.election.release().await;
    assert!(!a.leadership.is_leader());
    assert_eq!(store.spec()["holderIdentity"], "");
    assert_eq!(store.spec()["leaseDurationSeconds"], 1);
    assert!(b.leads_after().await < secs(1));
    assert_eq!(store.spec()["leaseDurationSeconds"], 45);
    // A lease that a has released is not taken from b when a releases it again.
    assert_eq!(store.spec()["holderIdentity"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_stops_releases_nothing() {
    let (store, a) = leader().await;
    let b = candidate(&store, "b");
    sleep(secs(10)).await;
    b.election.release().await;
    assert_eq!(store.spec()["holderIdentity"], "a");
    assert!(a.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_ends_the_leadership_without_a_release() {
    let store = Store::empty();
    let Candidate {
        leadership, election, ..
    } = candidate(&store, "a");
    leadership.wait_until_leader().await;
    drop(election);
    timeout(secs(1), leadership.lost()).await.unwrap();
    assert!(!leadership.is_leader());
    sleep(secs(5)).await;
    assert_eq!(store.spec()["holderIdentity"], "a");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_does_not_prevent_the_release() {
    let (store, a) = leader().await;
    // The next renewal is in flight for 1.5 s when the Lease is released, and arrives between GET and PUT of the
    // release.
    a.link.set(Faults {
        request_delay: Duration::from_millis(1500),
        ..Faults::default()
    });
    sleep(secs(3)).await;
    a.election.release().await;
    assert_eq!(store.spec()["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_finds_its_own_lease_and_leads_at_once() {
    let (store, a) = leader().await;
    a.link.cut();
    drop(a.election);
    sleep(secs(1)).await;
    let again = candidate(&store, "a");
    assert_eq!(again.leads_after().await, Duration::ZERO);
    assert_eq!(store.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_identity_the_older_gives_way() {
    let (store, a) = leader().await;
    let later = Clock::following_tokio(epoch() + SignedDuration::from_secs(1));
    let namesake = candidate_with(&store, "a", later);
    namesake.leads_after().await;
    timeout(secs(3), a.leadership.lost()).await.expect("both lead");
    sleep(secs(600)).await;
    assert!(namesake.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_edits_of_the_metadata_of_its_lease() {
    let (store, a) = leader().await;
    for _ in 0..20 {
        sleep(secs(3)).await;
        store.label();
        assert!(a.leadership.is_leader());
    }
    sleep(secs(40)).await;
    assert!(a.leadership.is_leader());
    assert_eq!(
        store.labels(),
        json!({"touched": "yes"}),
        "the renewal kept what is not ours"
    );
}

/// Go accepts this time.
const LATE: &str = "9999-12-31T23:59:59.000000Z";

#[tokio::test(start_paused = true)]
async fn a_time_that_cannot_be_read_neither_ends_a_leadership_nor_keeps_anybody_from_leading() {
    let (store, a) = leader().await;
    store.manage(json!({ "manager": "m", "operation": "Update", "time": LATE }));
    for _ in 0..20 {
        sleep(secs(3)).await;
        let mut spec = store.spec();
        spec["renewTime"] = json!(LATE);
        store.put_spec(&spec);
        assert!(a.leadership.is_leader());
    }
    sleep(secs(40)).await;
    assert!(a.leadership.is_leader());
    a.link.cut();
    store.put_spec(
        &json!({ "holderIdentity": "a", "leaseDurationSeconds": 45, "renewTime": LATE, "acquireTime": LATE }),
    );
    let b = candidate(&store, "b");
    assert!(b.leads_after().await < secs(60), "also after a restart");
}

#[tokio::test(start_paused = true)]
async fn odd_values_of_a_lease_keep_nobody_from_leading() {
    for spec in [
        json!({ "holderIdentity": "h".repeat(1 << 20), "leaseDurationSeconds": 1, "renewTime": LATE }),
        json!({ "holderIdentity": "a", "leaseDurationSeconds": -1, "leaseTransitions": i32::MAX }),
        json!({ "holderIdentity": "a", "leaseDurationSeconds": 0, "acquireTime": "0001-01-01T00:00:00.000000Z" }),
        json!({ "holderIdentity": "\u{0}\u{1b}[2J", "preferredHolder": "p", "strategy": "OldestEmulationVersion" }),
        json!({}),
    ] {
        let store = Store::holding(&spec);
        assert!(candidate(&store, "b").leads_after().await < secs(60), "{spec}");
        assert_eq!(store.spec()["holderIdentity"], "b");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_recreates_a_deleted_lease() {
    let (store, a) = leader().await;
    store.delete();
    sleep(secs(60)).await;
    assert!(a.leadership.is_leader());
    assert_eq!(store.spec()["holderIdentity"], "a");
}

#[tokio::test(start_paused = true)]
async fn a_leader_recognizes_its_renewal_whose_response_was_lost() {
    let (_, a) = leader().await;
    sleep(secs(1)).await;
    a.link.set(Faults {
        answer_delay: secs(3600),
        ..Faults::default()
    });
    sleep(secs(5)).await;
    a.link.set(Faults::default());
    sleep(secs(120)).await;
    assert!(a.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_gives_up_at_its_first_conflict() {
    let (store, a) = leader().await;
    store.put_spec(&json!({"holderIdentity": "thief", "leaseDurationSeconds": 45}));
    timeout(secs(3), a.leadership.lost()).await.expect("a goes on");
    assert_eq!(store.spec()["holderIdentity"], "thief");
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_years_change_nothing() {
    let store = Store::empty();
    let past = Clock::following_tokio("1970-01-01T00:00:00Z".parse().unwrap());
    let future = Clock::following_tokio("2199-12-31T00:00:00Z".parse().unwrap());
    let a = candidate_with(&store, "a", past);
    a.leads_after().await;
    let b = candidate_with(&store, "b", future);
    sleep(secs(3600)).await;
    assert!(a.leadership.is_leader() && !b.leadership.is_leader());
    a.link.cut();
    let waited = b.leads_after().await;
    assert!(waited > secs(40) && waited < secs(50), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn no_replica_leads_before_the_api_server_responds() {
    let store = Store::empty();
    let link = Link::new(&store);
    link.cut();
    let clock = Clock::following_tokio(epoch());
    let elector = Elector::new(
        link.client(),
        "kube-upgrade",
        NAME,
        "a",
        LeaseTiming::default(),
        clock,
    );
    let leadership = elector.leadership();
    let _election = elector.start();
    sleep(secs(300)).await;
    assert!(!leadership.is_leader());
    link.set(Faults::default());
    timeout(secs(20), leadership.wait_until_leader()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_an_election_a_process_always_leads() {
    let leadership = Leadership::always();
    assert!(leadership.is_leader());
    leadership.wait_until_leader().await;
    assert!(timeout(secs(1_000_000), leadership.lost()).await.is_err());
}

#[test]
fn the_error_for_a_lost_lease_is_that_of_client_go() {
    let lost = crate::Error::LeaseLost(NAME.to_owned());
    assert_eq!(
        lost.to_string(),
        "leaderelection lost for system-upgrade-controller"
    );
}

#[test]
fn times_that_let_two_lead_are_refused() {
    let timing = |lease_duration, renew_deadline, retry_period| LeaseTiming {
        lease_duration: Duration::from_millis(lease_duration),
        renew_deadline: Duration::from_millis(renew_deadline),
        retry_period: Duration::from_millis(retry_period),
    };
    assert_eq!(LeaseTiming::default().validate(), Ok(()));
    assert_eq!(timing(45_000, 30_000, 24_999).validate(), Ok(()));
    for (timing, error) in [
        (
            timing(30_000, 30_000, 2000),
            "the lease duration (30s) must be more than the renew deadline (30s)",
        ),
        (
            timing(45_000, 30_000, 25_000),
            "the renew deadline (30s) must be more than 1.2 times the retry period (25s)",
        ),
        (timing(45_000, 30_000, 0), "the retry period must be more than 0"),
    ] {
        assert_eq!(timing.validate().unwrap_err().to_string(), error);
    }
    assert_eq!(timing(1500, 1000, 100).lease_duration_seconds(), 2);
}

/// Three candidates, each with a link that delays, loses and refuses requests, are stopped and started at random. No
/// two ever lead at the same time, and one leads once the links work again.
#[tokio::test(start_paused = true)]
async fn never_do_two_lead_at_once() {
    let mut terms = 0;
    for seed in 0..20 {
        terms += random_faults(seed).await;
    }
    assert!(terms > 60, "only {terms} terms: too few faults to prove anything");
}

async fn random_faults(seed: u64) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let store = Store::empty();
    let start = |name: &str, rng: &mut fastrand::Rng| {
        let skew = SignedDuration::from_secs(rng.i64(-100_000..100_000));
        let clock = Clock::following_tokio(epoch() + skew);
        candidate_with(&store, name, clock)
    };
    let names = ["a", "b", "c"];
    let mut candidates: Vec<Candidate> = names.iter().map(|name| start(name, &mut rng)).collect();
    let (mut leader, mut terms) = (None, 0);
    for step in 0..12_000 {
        sleep(Duration::from_millis(100)).await;
        let leading: Vec<usize> = (0..3).filter(|i| candidates[*i].leadership.is_leader()).collect();
        assert!(leading.len() < 2, "seed {seed}: {leading:?} lead at step {step}");
        if leading.first().is_some_and(|now| leader != Some(*now)) {
            leader = leading.first().copied();
            terms += 1;
        }
        let i = rng.usize(..3);
        match rng.u64(..1000) {
            0..10 => candidates[i].link.set(Faults::random(&mut rng)),
            10..15 => candidates[i].link.set(Faults::default()),
            15 => {
                let stopped = std::mem::replace(&mut candidates[i], start(names[i], &mut rng));
                if rng.bool() {
                    tokio::spawn(stopped.election.release());
                } else {
                    drop(stopped.election);
                }
            }
            _ => {}
        }
        // A process that has lost the leadership ends, and its pod comes back under another name.
        for (i, candidate) in candidates.iter_mut().enumerate() {
            if futures::FutureExt::now_or_never(candidate.leadership.lost()).is_some() {
                *candidate = start(&format!("{}-{step}", names[i]), &mut rng);
            }
        }
    }
    for candidate in &candidates {
        candidate.link.set(Faults::default());
    }
    sleep(secs(120)).await;
    let leading = candidates.iter().filter(|one| one.leadership.is_leader());
    assert_eq!(leading.count(), 1, "seed {seed}");
    terms
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_ends_no_leadership() {
    let store = Store::empty();
    let step = Arc::new(std::sync::Mutex::new(SignedDuration::ZERO));
    let clock = {
        let step = Arc::clone(&step);
        Clock::following_tokio(epoch()).stepped(move || *step.lock().unwrap())
    };
    let a = candidate_with(&store, "a", clock);
    let b = candidate(&store, "b");
    a.leads_after().await;
    for hours in [1, -1, 24, -24] {
        *step.lock().unwrap() = SignedDuration::from_hours(hours);
        assert!(a.leadership.is_leader());
        sleep(secs(120)).await;
        assert!(a.leadership.is_leader() && !b.leadership.is_leader(), "{hours} h");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_loop_loses_the_lease_within_its_time() {
    let store = Store::empty();
    let link = Link::new(&store);
    let progress = Progress::default();
    let clock = Clock::following_tokio(epoch());
    let elector = Elector::new(
        link.client(),
        "kube-upgrade",
        NAME,
        "a",
        LeaseTiming::default(),
        clock,
    )
    .depending_on(progress.clone(), Arc::default());
    let leadership = elector.leadership();
    let _election = elector.start();
    leadership.wait_until_leader().await;
    // Long decisions with pauses between them are no reason.
    for _ in 0..20 {
        progress.set_busy();
        sleep(secs(20)).await;
        progress.set_idle();
        assert!(leadership.is_leader());
        sleep(secs(60)).await;
    }
    progress.set_busy();
    let start = Instant::now();
    leadership.lost().await;
    assert!(
        start.elapsed() <= LeaseTiming::default().lease_duration,
        "{:?}",
        start.elapsed()
    );
    let b = candidate(&store, "b");
    b.leads_after().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_an_older_version_than_before_tells_of_a_restore() {
    let store = Store::empty();
    let link = Link::new(&store);
    let restored = Arc::<tokio::sync::Notify>::default();
    let clock = Clock::following_tokio(epoch());
    let elector = Elector::new(
        link.client(),
        "kube-upgrade",
        NAME,
        "a",
        LeaseTiming::default(),
        clock,
    )
    .depending_on(Progress::default(), Arc::clone(&restored));
    let leadership = elector.leadership();
    let _election = elector.start();
    leadership.wait_until_leader().await;
    sleep(secs(100)).await;
    assert!(timeout(secs(1), restored.notified()).await.is_err());
    store.set_version(1);
    timeout(secs(10), restored.notified())
        .await
        .expect("nobody notices");
    assert!(leadership.is_leader(), "the Lease is still its own");
}
