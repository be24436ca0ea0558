//! Two replicas of the real binary: one leads, one follows, and they never work at the same time (S6).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use refit_api::names;
use serde_json::json;

use crate::rollout::{RollOut, Shape, account, line};
use crate::testenv::audit::{Request, Requests};
use crate::testenv::context::TestContext;
use crate::testenv::controller::{Controller, NAME, Setup};
use crate::testenv::faults::Rule;
use crate::testenv::wait::{self, SOON};

/// A small roll-out that is always busy.
const SHAPE: Shape = Shape {
    nodes: 8,
    concurrency: 2,
    run: Duration::from_millis(1500),
};

/// Delay of the test's machine in addition to the Lease's times.
const SLACK: SignedDuration = SignedDuration::from_secs(4);

/// Of a Lease that passes to the other replica: short enough to wait for, and long enough that a busy machine does not
/// lose it.
const SHORT: [&str; 3] = ["20s", "15s", "500ms"];
/// The duration of [`SHORT`].
const SHORT_DURATION: SignedDuration = SignedDuration::from_secs(20);
/// A follower looks at least every 2.2 retry periods.
const LOOK: SignedDuration = SignedDuration::from_millis(1100);

/// Two replicas with different users in the audit log.
struct Replicas {
    rollout: RollOut,
    one: Setup,
    other: Setup,
}

impl Replicas {
    async fn new(times: [&str; 3]) -> Self {
        let rollout = RollOut::prepare(TestContext::new().await, SHAPE).await;
        let ctx = &rollout.ctx;
        let replica = async |name: &str| {
            let setup = ctx
                .controller()
                .replica(name)
                .kubeconfig(account(ctx, name).await);
            setup.lease_times(times)
        };
        let (one, other) = (replica("one").await, replica("other").await);
        Self { rollout, one, other }
    }

    /// One replica leads, the other follows, and the roll-out is in progress.
    async fn under_way(&self) -> (Controller, Controller) {
        let one = self.one.start();
        one.leading().await;
        let other = self.other.start();
        self.rollout.begin().await;
        self.rollout.under_way(1).await;
        // It has read the Lease at least once.
        let requests = async || self.requests("other").await;
        wait::until("the other follows", requests, |it| it.count("get", "leases") > 0).await;
        assert_eq!(holder(&self.rollout.ctx).await.as_deref(), Some("one"));
        (one, other)
    }

    async fn requests(&self, replica: &str) -> Requests {
        requests_of(&self.rollout.ctx, replica).await
    }

    async fn other_leads(&self, limit: Duration) {
        holder_is(&self.rollout.ctx, "other", limit).await;
    }

    /// The last write of the Lease by one replica, and the first by the other.
    async fn handover(&self) -> (Timestamp, Timestamp) {
        let (one, other) = (self.requests("one").await, self.requests("other").await);
        let last = lease_writes(&one).last().expect("one led").at;
        let first = lease_writes(&other).next().expect("the other leads").at;
        (last, first)
    }
}

async fn requests_of(ctx: &TestContext, replica: &str) -> Requests {
    let user = format!("{}:{replica}", ctx.namespace());
    ctx.requests().await.by(&user)
}

/// Checks that a replica wrote at most `most` times after a moment.
fn wrote_at_most(most: usize, requests: &Requests, after: Timestamp) {
    let late = writes(requests).into_iter().filter(|it| it.at > after);
    let late: Vec<_> = late.map(|it| line(&it)).collect();
    assert!(late.len() <= most, "the previous leader wrote: {late:#?}");
}

/// Writes to the cluster, except for the Lease.
fn writes(requests: &Requests) -> Vec<Request> {
    let counts = |request: &&Request| {
        request.code < 300 && !matches!(request.resource.as_str(), "leases" | "selfsubjectaccessreviews")
    };
    requests.writes().filter(counts).cloned().collect()
}

fn lease_writes(requests: &Requests) -> impl Iterator<Item = &Request> {
    requests
        .writes()
        .filter(|request| request.resource == "leases" && request.code < 300)
}

fn leases(ctx: &TestContext) -> Api<Lease> {
    Api::namespaced(ctx.client.clone(), ctx.namespace())
}

async fn lease(ctx: &TestContext) -> LeaseSpec {
    let lease = leases(ctx).get(NAME).await.expect("the Lease");
    lease.spec.unwrap_or_default()
}

/// Changes the holder of the Lease, as a user.
async fn set_holder(ctx: &TestContext, name: &str) {
    let patch = Patch::Merge(json!({ "spec": { "holderIdentity": name } }));
    let patched = leases(ctx).patch(NAME, &PatchParams::default(), &patch).await;
    patched.expect("the Lease is patched");
}

async fn holder(ctx: &TestContext) -> Option<String> {
    lease(ctx).await.holder_identity
}

async fn holder_is(ctx: &TestContext, name: &str, limit: Duration) {
    let is_holder = |lease: &Lease| {
        let spec = lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_deref()) == Some(name)
    };
    wait::object(leases(ctx), NAME, &format!("is held by {name}"), limit, is_holder).await;
}

/// Waits until the process has ended because it lost its Lease.
async fn has_lost(leader: &Controller) {
    let status = leader.ended(SOON).await;
    assert_ne!(status.code(), Some(0), "{status}");
    let log = leader.log();
    assert!(
        log.contains("leaderelection lost for system-upgrade-controller"),
        "{log}"
    );
}

#[tokio::test]
async fn a_killed_leader_is_followed_when_its_lease_is_over_and_not_before() {
    // A follower counts from when it saw the last renewal.
    let limit = (SHORT_DURATION + LOOK + SLACK).unsigned_abs();
    wait::measures_below("the handover", limit, handover_after_kill).await;
}

/// Time between the last write of the Lease by a leader that is killed and the first by the other replica.
async fn handover_after_kill() -> Duration {
    let replicas = Replicas::new(SHORT).await;
    let (one, _other) = replicas.under_way().await;
    one.kill();
    replicas.other_leads(SOON).await;

    let (last, first) = replicas.handover().await;
    let wait = first.duration_since(last);
    assert!(wait >= SHORT_DURATION, "after {wait:#}");
    replicas.rollout.check_success().await;
    wait.unsigned_abs()
}

#[tokio::test]
async fn a_leader_that_is_terminated_releases_its_lease() {
    let limit = (LOOK + SLACK).unsigned_abs();
    wait::measures_below("the handover", limit, handover_after_termination).await;
}

/// Time between the last write of the Lease by a leader that is terminated and the first by the other replica.
async fn handover_after_termination() -> Duration {
    // Only a released Lease lets the other replica lead before the test times out.
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (one, other) = replicas.under_way().await;
    let status = one.terminate().await;
    assert_eq!(status.code(), Some(0), "{}", one.log());
    replicas.other_leads(SOON).await;
    let (last, first) = replicas.handover().await;

    // All its requests had ended before.
    wrote_at_most(0, &replicas.requests("one").await, last);
    replicas.rollout.check_success().await;
    assert_eq!(other.terminate().await.code(), Some(0));
    assert_eq!(holder(&replicas.rollout.ctx).await.as_deref(), Some(""));
    first.duration_since(last).unsigned_abs()
}

#[tokio::test]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_more_and_ends() {
    let replicas = Replicas::new(SHORT).await;
    let (one, _other) = replicas.under_way().await;
    one.freeze();
    replicas.other_leads(SOON).await;
    let (_, first) = replicas.handover().await;
    // The other replica has changed much of what the frozen one remembers.
    let of_other = async || writes(&replicas.requests("other").await);
    let has_patched_two = |done: &Vec<Request>| done.iter().filter(|it| it.resource == "nodes").count() >= 2;
    wait::until("the other goes on with the roll-out", of_other, has_patched_two).await;

    one.thaw();
    has_lost(&one).await;
    replicas.rollout.check_success().await;
    wrote_at_most(1, &replicas.requests("one").await, first);
}

#[tokio::test]
async fn a_follower_reads_and_writes_nothing_but_the_lease() {
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (_one, other) = replicas.under_way().await;
    replicas.rollout.check_success().await;
    assert!(other.is_running());
    let requests = replicas.requests("other").await;
    let tally = requests.tally();
    let asked: Vec<_> = tally
        .keys()
        .map(|(verb, resource, code)| format!("{verb} {resource} {code}"))
        .collect();
    // S4: the UID of kube-system, the CRD, the event `Starting`, and then the Lease.
    let expected = [
        "create events 201",
        "get customresourcedefinitions 200",
        "get leases 200",
        "get namespaces 200",
    ];
    assert_eq!(asked, expected);
    assert_eq!(requests.count("create", "events"), 1);
}

#[tokio::test]
async fn a_leader_whose_lease_a_user_assigns_to_another_holder_ends() {
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (one, other) = replicas.under_way().await;
    other.kill();
    let ctx = &replicas.rollout.ctx;
    set_holder(ctx, "a-user").await;
    has_lost(&one).await;
    assert_eq!(holder(ctx).await.as_deref(), Some("a-user"));
    // After that user releases it, the roll-out continues.
    set_holder(ctx, "").await;
    let _again = one.start_again();
    replicas.rollout.check_success().await;
}

#[tokio::test]
async fn a_lease_that_a_user_deletes_is_created_again_by_its_holder() {
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let one = replicas.one.start();
    one.leading().await;
    let ctx = &replicas.rollout.ctx;
    let leases = leases(ctx);
    let before = leases.get(NAME).await.expect("the Lease");
    let deleted = leases.delete(NAME, &DeleteParams::default()).await;
    deleted.expect("the Lease is deleted");
    let now = async || leases.get_opt(NAME).await;
    wait::until(
        "there is another Lease of the same holder",
        now,
        |lease| matches!(lease, Ok(Some(lease)) if lease.metadata.uid != before.metadata.uid),
    )
    .await
    .expect("the Lease");
    holder_is(ctx, "one", SOON).await;
    assert!(one.is_running());
}

#[tokio::test]
async fn a_leader_that_cannot_renew_ends_before_another_replica_leads() {
    // Longer than its Lease.
    let shape = Shape {
        concurrency: 1,
        run: Duration::from_millis(2500),
        ..SHAPE
    };
    let rollout = RollOut::prepare(TestContext::new().await, shape).await;
    let ctx = &rollout.ctx;
    let faults = ctx.faults(0).await;
    let setup = ctx
        .controller()
        .replica("one")
        .lease_times(SHORT)
        .kubeconfig(account(ctx, "one").await)
        .through(&faults);
    let one = setup.start();
    one.leading().await;
    let other = ctx
        .controller()
        .replica("other")
        .lease_times(SHORT)
        .kubeconfig(account(ctx, "other").await)
        .start();
    rollout.begin().await;
    rollout.under_way(1).await;
    // Only requests for the Lease fail.
    faults.add(Rule::on("*", "leases").hang());
    has_lost(&one).await;
    holder_is(ctx, "other", SOON).await;
    let requests = requests_of(ctx, "other").await;
    let first = lease_writes(&requests).next().expect("the other leads").at;
    wrote_at_most(0, &requests_of(ctx, "one").await, first);
    rollout.check_success().await;
    assert!(other.is_running());
}

#[tokio::test]
async fn without_other_times_the_lease_is_system_upgrade_controllers() {
    let ctx = TestContext::new().await;
    let controller = ctx.controller().usual_lease_times().start();
    controller.leading().await;
    // The first renewal follows at once, with the note of the Plans that exist.
    let is_noted = |lease: &Lease| {
        let annotations = lease.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(names::ANNOTATION_KNOWN_PLANS))
    };
    let noted = wait::object(leases(&ctx), NAME, "has its note", SOON, is_noted).await;
    let mut last = noted.spec.expect("a record");
    let first = last.clone();
    assert_eq!(first.lease_duration_seconds, Some(45));
    let machine = rustix::system::uname()
        .nodename()
        .to_str()
        .expect("a host name in UTF-8")
        .to_owned();
    assert_eq!(
        first.holder_identity,
        Some(machine),
        "the host name, which in a pod is the pod's"
    );
    assert_eq!(first.lease_transitions, Some(0));

    // Renewed every two seconds, without other changes.
    let period = SignedDuration::from_secs(2);
    let at = |spec: &LeaseSpec| spec.renew_time.as_ref().expect("a time").0;
    let pause = async || {
        let is_renewed = |lease: &Lease| lease.spec.as_ref().is_some_and(|spec| at(spec) > at(&last));
        let renewed = wait::object(leases(&ctx), NAME, "is renewed", SOON, is_renewed).await;
        let renewed = renewed.spec.expect("a record");
        let pause = at(&renewed).duration_since(at(&last));
        assert!(pause >= period, "{pause:#}");
        let expected = LeaseSpec {
            renew_time: renewed.renew_time.clone(),
            ..first.clone()
        };
        assert_eq!(renewed, expected);
        last = renewed;
        pause.unsigned_abs()
    };
    wait::measures_below("a renewal", (period + SLACK).unsigned_abs(), pause).await;
}
