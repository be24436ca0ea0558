//! Elections over a Lease in memory, in paused time.

mod store;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::clock::Clock;
use store::{Faults, Link, Rng, Store};

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

fn candidate_with(store: &Arc<Store>, identity: &str, timing: LeaseTiming, clock: Clock) -> Candidate {
    let link = Link::new(store);
    let elector = Elector::new(link.client(), "kube-upgrade", NAME, identity, timing, clock);
    Candidate {
        link,
        leadership: elector.leadership(),
        election: elector.start(),
    }
}

fn candidate(store: &Arc<Store>, identity: &str) -> Candidate {
    candidate_with(
        store,
        identity,
        LeaseTiming::default(),
        Clock::following_tokio(epoch()),
    )
}

impl Candidate {
    /// How long it takes until this candidate leads.
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
    // One PUT every two seconds and no GET: what client-go and so system-upgrade-controller cost.
    assert_eq!(a.link.requests(), ["GET 1", "POST 1", "PUT 30"]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_takes_over_when_the_record_stood_still_for_the_lease_duration() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
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
    // However old it says it is: its clock may be wrong.
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
    for fault in [
        Faults {
            hang: true,
            ..Faults::default()
        },
        Faults {
            refuse: true,
            ..Faults::default()
        },
    ] {
        let store = Store::empty();
        let a = candidate(&store, "a");
        a.leads_after().await;
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
async fn a_short_outage_costs_nothing() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
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
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    sleep(secs(3)).await;
    // The answer takes 9 s, the request no time at all.
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
async fn a_leader_that_slept_with_the_machine_does_not_lead() {
    let store = Store::empty();
    let offset = Arc::new(std::sync::Mutex::new(SignedDuration::ZERO));
    let base = Clock::following_tokio(epoch());
    let clock = {
        let offset = Arc::clone(&offset);
        Clock::new(move || base.now() + *offset.lock().unwrap())
    };
    let a = candidate_with(&store, "a", LeaseTiming::default(), clock);
    a.leads_after().await;
    // Set back by NTP: nothing has happened.
    *offset.lock().unwrap() = SignedDuration::from_hours(-5);
    assert!(a.leadership.is_leader());
    sleep(secs(20)).await;
    assert!(a.leadership.is_leader());
    // The monotonic clock stood still meanwhile.
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
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    let b = candidate(&store, "b");
    sleep(secs(100)).await;
    a.election.release().await;
    assert!(!a.leadership.is_leader());
    assert_eq!(store.spec()["holderIdentity"], "");
    assert_eq!(store.spec()["leaseDurationSeconds"], 1);
    assert!(b.leads_after().await < secs(5));
    assert_eq!(store.spec()["leaseDurationSeconds"], 45);
    // What a has given back it does not take from b by giving back.
    assert_eq!(store.spec()["holderIdentity"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_stops_gives_nothing_back() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    let b = candidate(&store, "b");
    sleep(secs(10)).await;
    b.election.release().await;
    assert_eq!(store.spec()["holderIdentity"], "a");
    assert!(a.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_ends_the_leadership_and_gives_nothing_back() {
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
async fn a_renewal_under_way_does_not_stop_the_giving_back() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    // The next renewal is on its way for 1.5 s when the Lease is given back, and arrives between GET and PUT of that.
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
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    a.link.cut();
    drop(a.election);
    sleep(secs(1)).await;
    let again = candidate(&store, "a");
    assert_eq!(again.leads_after().await, Duration::ZERO);
    assert_eq!(store.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_identity_the_older_gives_way() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    let later = Clock::following_tokio(epoch() + SignedDuration::from_secs(1));
    let namesake = candidate_with(&store, "a", LeaseTiming::default(), later);
    namesake.leads_after().await;
    timeout(secs(3), a.leadership.lost()).await.expect("both lead");
    sleep(secs(600)).await;
    assert!(namesake.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_whoever_edits_the_leases_metadata() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
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

#[tokio::test(start_paused = true)]
async fn a_leader_makes_a_deleted_lease_again() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    store.delete();
    sleep(secs(60)).await;
    assert!(a.leadership.is_leader());
    assert_eq!(store.spec()["holderIdentity"], "a");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_is_known_again() {
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
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
    let store = Store::empty();
    let a = candidate(&store, "a");
    a.leads_after().await;
    store.put_spec(&json!({"holderIdentity": "thief", "leaseDurationSeconds": 45}));
    timeout(secs(3), a.leadership.lost()).await.expect("a goes on");
    assert_eq!(store.spec()["holderIdentity"], "thief");
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_by_years_change_nothing() {
    let store = Store::empty();
    let past = Clock::following_tokio("1970-01-01T00:00:00Z".parse().unwrap());
    let future = Clock::following_tokio("2199-12-31T00:00:00Z".parse().unwrap());
    let a = candidate_with(&store, "a", LeaseTiming::default(), past);
    a.leads_after().await;
    let b = candidate_with(&store, "b", LeaseTiming::default(), future);
    sleep(secs(3600)).await;
    assert!(a.leadership.is_leader() && !b.leadership.is_leader());
    a.link.cut();
    let waited = b.leads_after().await;
    assert!(waited > secs(40) && waited < secs(50), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_leads_before_the_api_answers() {
    let store = Store::empty();
    let link = Link::new(&store);
    link.cut();
    let elector = Elector::new(
        link.client(),
        "kube-upgrade",
        NAME,
        "a",
        LeaseTiming::default(),
        Clock::following_tokio(epoch()),
    );
    let leadership = elector.leadership();
    let _election = elector.start();
    sleep(secs(300)).await;
    assert!(!leadership.is_leader());
    link.set(Faults::default());
    timeout(secs(20), leadership.wait_until_leader()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_an_election_one_always_leads() {
    let leadership = Leadership::always();
    assert!(leadership.is_leader());
    leadership.wait_until_leader().await;
    assert!(timeout(secs(1_000_000), leadership.lost()).await.is_err());
}

#[test]
fn the_process_ends_with_client_gos_words() {
    let lost = LeaseLost {
        name: NAME.to_owned(),
    };
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
    let error = |timing: LeaseTiming| timing.validate().unwrap_err().to_string();
    assert_eq!(
        error(timing(30_000, 30_000, 2000)),
        "the lease duration (30s) must be more than the renew deadline (30s)"
    );
    assert_eq!(
        error(timing(45_000, 30_000, 25_000)),
        "the renew deadline (30s) must be more than 1.2 times the retry period (25s)"
    );
    assert_eq!(
        error(timing(45_000, 30_000, 0)),
        "the retry period must be more than 0"
    );
    assert_eq!(timing(1500, 1000, 100).lease_duration_seconds(), 2);
}

/// Three candidates, each behind a link of its own that delays, loses and refuses, stopped and started at random: at no
/// moment do two of them lead, and when the links are well again, one does.
#[tokio::test(start_paused = true)]
async fn never_do_two_lead_at_once() {
    let mut terms = 0;
    for seed in 0..20 {
        terms += rough_weather(seed).await;
    }
    assert!(
        terms > 60,
        "only {terms} terms: the weather was too fair to prove anything"
    );
}

async fn rough_weather(seed: u64) -> usize {
    let mut rng = Rng(seed);
    let store = Store::empty();
    let start = |name: &str, rng: &mut Rng| {
        let skew = SignedDuration::from_secs(i64::try_from(rng.below(200_000)).unwrap() - 100_000);
        candidate_with(
            &store,
            name,
            LeaseTiming::default(),
            Clock::following_tokio(epoch() + skew),
        )
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
        let i = usize::try_from(rng.below(3)).unwrap();
        match rng.below(1000) {
            0..10 => candidates[i].link.set(Faults::rough(&mut rng)),
            10..15 => candidates[i].link.set(Faults::default()),
            15 => {
                let stopped = std::mem::replace(&mut candidates[i], start(names[i], &mut rng));
                if rng.below(2) == 0 {
                    tokio::spawn(stopped.election.release());
                } else {
                    drop(stopped.election);
                }
            }
            _ => {}
        }
        // A process whose leadership is lost ends, and its pod comes back under another name.
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
    let leading = candidates
        .iter()
        .filter(|candidate| candidate.leadership.is_leader())
        .count();
    assert_eq!(leading, 1, "seed {seed}");
    terms
}
