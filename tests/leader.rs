//! Two replicas of the real binary: one leads, one follows, and they never work at the same time (S6). How soon one follows
//! the other is measured in virtual time (`src/controller/lease/tests.rs`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt as _;
use kube::api::Api;
use refit_api::{NodePhase, Plan, names};
use serde_json::json;

use crate::harness::is_recorded;
use crate::rollout::{PLAN, RollOut, Shape, account, line};
use crate::testenv::audit::{Request, Requests};
use crate::testenv::context::TestContext;
use crate::testenv::controller::{Controller, NAME, Setup};
use crate::testenv::faults::Rule;
use crate::testenv::plan::status;
use crate::testenv::wait::{self, SOON};

/// A small roll-out that is always busy.
const SHAPE: Shape = Shape {
    nodes: 8,
    concurrency: 2,
    run: Duration::from_millis(1500),
};

/// Of a Lease that passes to the other replica: short enough to wait for, and long enough that a busy machine does not
/// lose it.
const SHORT: [&str; 3] = ["20s", "15s", "500ms"];
/// The duration of [`SHORT`].
const SHORT_DURATION: SignedDuration = SignedDuration::from_secs(20);

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

    /// How long upgrades take from now on, including those that run.
    async fn upgrades_take(&self, time: &str) {
        for node in self.rollout.ctx.my_nodes().await {
            let steering = [("run-delay", time)];
            self.rollout.kubelet.behaviour(&node.name_any(), &steering).await;
        }
    }

    /// Waits until the leader waits for upgrades that do not end: it has answered a later edit of the Plan, and the same
    /// nodes were in progress before and after that, with the results of all others recorded.
    async fn nothing_is_left_to_write(&self) {
        let ctx = &self.rollout.ctx;
        let mut before = Vec::new();
        for round in 0.. {
            let label = json!({ "postCompleteLabels": { "example.com/round": format!("r{round}") } });
            let edited = ctx.edit_plan(PLAN, json!({ "spec": label })).await;
            let answered = |plan: &Plan| {
                let status = status(plan);
                let active = status.active.unwrap_or_default();
                status.observed_generation == edited.metadata.generation
                    && active
                        .iter()
                        .filter(|node| node.phase == NodePhase::Upgrading)
                        .count()
                        == SHAPE.concurrency
            };
            let plan = ctx
                .plan_until(PLAN, "has all its slots in use", SOON, answered)
                .await;
            let jobs = ctx.jobs_of(PLAN).await;
            let open = jobs.iter().filter(|job| !is_recorded(job)).count();
            let applying = status(&plan).applying.unwrap_or_default();
            if open == SHAPE.concurrency && applying == before {
                return;
            }
            before = applying;
        }
    }

    async fn other_leads(&self) {
        holder_is(&self.rollout.ctx, "other", SOON).await;
    }

    /// When the API server received the last write of the Lease by one replica, and the first by the other.
    async fn handover(&self) -> (Timestamp, Timestamp) {
        let (one, other) = (self.requests("one").await, self.requests("other").await);
        let last = lease_writes(&one).last().expect("one led").received;
        let first = lease_writes(&other).next().expect("the other leads").received;
        (last, first)
    }
}

async fn requests_of(ctx: &TestContext, replica: &str) -> Requests {
    let user = format!("{}:{replica}", ctx.namespace());
    ctx.requests().await.by(&user)
}

/// Checks that the API server received no write of a replica after a moment. It may answer one later that it received
/// before.
fn wrote_nothing(requests: &Requests, after: Timestamp) {
    let late = writes(requests).into_iter().filter(|it| it.received > after);
    let late: Vec<_> = late.map(|it| line(&it)).collect();
    assert!(late.is_empty(), "the previous leader wrote: {late:#?}");
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
    let replicas = Replicas::new(SHORT).await;
    let (one, _other) = replicas.under_way().await;
    one.kill();
    replicas.other_leads().await;

    // A follower counts from when it saw the last renewal, and that is after the API server received it.
    let (last, first) = replicas.handover().await;
    let wait = first.duration_since(last);
    assert!(wait >= SHORT_DURATION, "after {wait:#}");
    replicas.rollout.check_success().await;
}

#[tokio::test]
async fn a_leader_that_is_terminated_releases_its_lease() {
    // Only a released Lease lets the other replica lead before the test times out.
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (one, other) = replicas.under_way().await;
    let status = one.terminate().await;
    assert_eq!(status.code(), Some(0), "{}", one.log());
    replicas.other_leads().await;

    // All its requests had ended before it released the Lease.
    let (released, _) = replicas.handover().await;
    wrote_nothing(&replicas.requests("one").await, released);
    replicas.rollout.check_success().await;
    assert_eq!(other.terminate().await.code(), Some(0));
    assert_eq!(holder(&replicas.rollout.ctx).await.as_deref(), Some(""));
}

#[tokio::test]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_more_and_ends() {
    let replicas = Replicas::new(SHORT).await;
    let (one, _other) = replicas.under_way().await;
    // A request that is on its way when the process is frozen would arrive when it goes on.
    replicas.upgrades_take("never").await;
    replicas.nothing_is_left_to_write().await;
    one.freeze();
    replicas.other_leads().await;
    let (_, first) = replicas.handover().await;
    replicas.upgrades_take("100ms").await;
    // The other replica has changed much of what the frozen one remembers.
    let of_other = async || writes(&replicas.requests("other").await);
    let has_patched_two = |done: &Vec<Request>| done.iter().filter(|it| it.resource == "nodes").count() >= 2;
    wait::until("the other goes on with the roll-out", of_other, has_patched_two).await;

    one.thaw();
    has_lost(&one).await;
    replicas.rollout.check_success().await;
    wrote_nothing(&replicas.requests("one").await, first);
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
async fn a_leader_that_cannot_renew_ends_before_another_replica_leads() {
    // What it has sent before its deadline may be on its way through the proxy for the rest of its Lease.
    let times = ["35s", "15s", "500ms"];
    // Longer than its Lease.
    let shape = Shape {
        concurrency: 1,
        run: Duration::from_secs(5),
        ..SHAPE
    };
    let rollout = RollOut::prepare(TestContext::new().await, shape).await;
    let ctx = &rollout.ctx;
    let faults = ctx.faults(0).await;
    let setup = ctx
        .controller()
        .replica("one")
        .lease_times(times)
        .kubeconfig(account(ctx, "one").await)
        .through(&faults);
    let one = setup.start();
    one.leading().await;
    let other = ctx
        .controller()
        .replica("other")
        .lease_times(times)
        .kubeconfig(account(ctx, "other").await)
        .start();
    rollout.begin().await;
    rollout.under_way(1).await;
    // Only requests for the Lease fail.
    faults.add(Rule::on("*", "leases").hang());
    has_lost(&one).await;
    holder_is(ctx, "other", SOON).await;
    let requests = requests_of(ctx, "other").await;
    let first = lease_writes(&requests).next().expect("the other leads").received;
    wrote_nothing(&requests_of(ctx, "one").await, first);
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
    let first = noted.spec.expect("a record");
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

    // Renewed, without other changes, and not more often than every two seconds.
    let at = |spec: &LeaseSpec| spec.renew_time.as_ref().expect("a time").0;
    let is_renewed = |lease: &Lease| lease.spec.as_ref().is_some_and(|spec| at(spec) > at(&first));
    let renewed = wait::object(leases(&ctx), NAME, "is renewed", SOON, is_renewed).await;
    let renewed = renewed.spec.expect("a record");
    let pause = at(&renewed).duration_since(at(&first));
    assert!(pause >= SignedDuration::from_secs(2), "{pause:#}");
    let expected = LeaseSpec {
        renew_time: renewed.renew_time.clone(),
        ..first
    };
    assert_eq!(renewed, expected);
}
