//! Two replicas of the real binary: who leads, who follows, and that never both work (S6).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::rollout::{RollOut, Shape, account, line};
use crate::support::audit::{Request, Requests};
use crate::support::controller::{Controller, NAME, Setup};
use crate::support::wait::{self, SOON};
use crate::support::world::World;

/// A small roll-out with something to do at any moment.
const SHAPE: Shape = Shape {
    nodes: 8,
    concurrency: 2,
    run: Duration::from_millis(1500),
};

/// What the test's machine may add to a time that the Lease's clocks make.
const SLACK: SignedDuration = SignedDuration::from_secs(4);

/// Two replicas that the audit log tells apart.
struct Replicas {
    rollout: RollOut,
    one: Setup,
    other: Setup,
}

impl Replicas {
    async fn new(times: [&str; 3]) -> Self {
        let rollout = RollOut::prepare(World::new().await, SHAPE).await;
        let world = &rollout.world;
        let replica = async |name: &str| {
            let setup = world
                .controller()
                .replica(name)
                .kubeconfig(account(world, name).await);
            [
                "CATTLE_ELECTION_LEASE_DURATION",
                "CATTLE_ELECTION_RENEW_DEADLINE",
                "CATTLE_ELECTION_RETRY_PERIOD",
            ]
            .into_iter()
            .zip(times)
            .fold(setup, |setup, (name, value)| setup.env(name, value))
        };
        let (one, other) = (replica("one").await, replica("other").await);
        Self { rollout, one, other }
    }

    /// One leads, the other follows, and the roll-out is under way.
    async fn under_way(&self) -> (Controller, Controller) {
        let one = self.one.start();
        one.leading().await;
        let other = self.other.start();
        self.rollout.begin().await;
        self.rollout.under_way(1).await;
        // It has looked at the Lease at least once.
        wait::eventually("the other follows", SOON, async || {
            let requests = self.requests("other").await;
            if requests.count("get", "leases") > 0 {
                Ok(())
            } else {
                Err(format!("{:?}", requests.tally()))
            }
        })
        .await;
        assert_eq!(holder(&self.rollout.world).await.as_deref(), Some("one"));
        (one, other)
    }

    async fn requests(&self, replica: &str) -> Requests {
        self.rollout
            .world
            .requests()
            .await
            .by(&format!("{}:{replica}", self.rollout.world.namespace()))
    }

    async fn other_leads(&self, limit: Duration) {
        holder_is(&self.rollout.world, "other", limit).await;
    }

    /// The last time that one wrote its Lease, and the first time that the other did.
    async fn handover(&self) -> (Timestamp, Timestamp) {
        let (one, other) = (self.requests("one").await, self.requests("other").await);
        let last = lease_writes(&one).last().expect("one led").at;
        let first = lease_writes(&other).next().expect("the other leads").at;
        (last, first)
    }
}

/// What changed the cluster, the Lease aside.
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

async fn lease(world: &World) -> LeaseSpec {
    let api = Api::<Lease>::namespaced(world.client.clone(), world.namespace());
    api.get(NAME).await.expect("the Lease").spec.unwrap_or_default()
}

async fn holder(world: &World) -> Option<String> {
    lease(world).await.holder_identity
}

async fn holder_is(world: &World, name: &str, limit: Duration) {
    let api = Api::<Lease>::namespaced(world.client.clone(), world.namespace());
    wait::object(api, NAME, &format!("is held by {name}"), limit, |lease| {
        lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref())
            == Some(name)
    })
    .await;
}

#[tokio::test]
async fn a_killed_leader_is_followed_when_its_lease_is_over_and_not_before() {
    let replicas = Replicas::new(["6s", "4s", "500ms"]).await;
    let (one, _other) = replicas.under_way().await;
    one.kill();
    replicas.other_leads(SOON).await;

    // A follower waits from when it saw the last renewal: at most 2.2 retry periods after that renewal.
    let (last, first) = replicas.handover().await;
    let wait = first.duration_since(last);
    let duration = SignedDuration::from_secs(6);
    assert!(wait >= duration, "after {wait:#}");
    assert!(
        wait < duration + SignedDuration::from_millis(1100) + SLACK,
        "after {wait:#}"
    );
    replicas.rollout.ends_well().await;
}

#[tokio::test]
async fn a_leader_that_is_told_to_end_gives_its_lease_back() {
    // Nothing but a Lease that was given back lets the other lead before the test has given up.
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (one, other) = replicas.under_way().await;
    let status = one.terminate().await;
    assert_eq!(status.code(), Some(0), "{}", one.log());
    replicas.other_leads(SOON).await;
    let (last, first) = replicas.handover().await;
    let wait = first.duration_since(last);
    assert!(wait < SignedDuration::from_millis(1100) + SLACK, "after {wait:#}");

    // All that it had begun was over before that.
    let late: Vec<_> = writes(&replicas.requests("one").await)
        .into_iter()
        .filter(|it| it.at > last)
        .collect();
    assert!(late.is_empty(), "{:?}", late.iter().map(line).collect::<Vec<_>>());
    replicas.rollout.ends_well().await;
    assert_eq!(other.terminate().await.code(), Some(0));
    assert_eq!(holder(&replicas.rollout.world).await.as_deref(), Some(""));
}

#[tokio::test]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_more_and_ends() {
    let replicas = Replicas::new(["6s", "4s", "500ms"]).await;
    let (one, _other) = replicas.under_way().await;
    one.freeze();
    replicas.other_leads(SOON).await;
    let (_, first) = replicas.handover().await;
    // The other has changed much of what the frozen one knows.
    wait::eventually("the other goes on with the roll-out", SOON, async || {
        let done = writes(&replicas.requests("other").await);
        if done.iter().filter(|it| it.resource == "nodes").count() >= 2 {
            Ok(())
        } else {
            Err(format!("{}", done.len()))
        }
    })
    .await;

    one.thaw();
    let status = one.ended(SOON).await;
    assert_ne!(status.code(), Some(0), "{status}");
    assert!(
        one.log()
            .contains("leaderelection lost for system-upgrade-controller"),
        "{}",
        one.log()
    );
    replicas.rollout.ends_well().await;
    let late: Vec<_> = writes(&replicas.requests("one").await)
        .into_iter()
        .filter(|it| it.at > first)
        .collect();
    assert!(
        late.len() <= 1,
        "the deposed leader wrote: {:#?}",
        late.iter().map(line).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_follower_reads_and_writes_nothing_but_the_lease() {
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (_one, other) = replicas.under_way().await;
    replicas.rollout.ends_well().await;
    assert!(other.is_running());
    let requests = replicas.requests("other").await;
    let tally = requests.tally();
    let asked: Vec<_> = tally
        .keys()
        .map(|(verb, resource, code)| format!("{verb} {resource} {code}"))
        .collect();
    // S4: the UID of kube-system, the definition, the event `Starting`, and then the Lease.
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
async fn a_leader_whose_lease_a_person_gives_away_ends() {
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let (one, other) = replicas.under_way().await;
    other.kill();
    let world = &replicas.rollout.world;
    let leases = Api::<Lease>::namespaced(world.client.clone(), world.namespace());
    let given = json!({ "spec": { "holderIdentity": "somebody-else" } });
    leases
        .patch(NAME, &PatchParams::default(), &Patch::Merge(given))
        .await
        .expect("the Lease is given away");
    let status = one.ended(SOON).await;
    assert_ne!(status.code(), Some(0), "{status}");
    assert!(
        one.log()
            .contains("leaderelection lost for system-upgrade-controller"),
        "{}",
        one.log()
    );
    assert_eq!(
        holder(world).await.as_deref(),
        Some("somebody-else"),
        "and it stays given away"
    );
    // Given back by that person, the roll-out goes on where it was.
    let free = json!({ "spec": { "holderIdentity": "" } });
    leases
        .patch(NAME, &PatchParams::default(), &Patch::Merge(free))
        .await
        .expect("the Lease is given back");
    let _again = one.start_again();
    replicas.rollout.ends_well().await;
}

#[tokio::test]
async fn a_lease_that_a_person_deletes_is_made_again_by_its_holder() {
    let replicas = Replicas::new(["600s", "300s", "500ms"]).await;
    let one = replicas.one.start();
    one.leading().await;
    let world = &replicas.rollout.world;
    let leases = Api::<Lease>::namespaced(world.client.clone(), world.namespace());
    let before = leases.get(NAME).await.expect("the Lease");
    leases
        .delete(NAME, &kube::api::DeleteParams::default())
        .await
        .expect("the Lease is deleted");
    wait::eventually(
        "there is another Lease of the same holder",
        SOON,
        async || match leases.get_opt(NAME).await {
            Ok(Some(lease)) if lease.metadata.uid != before.metadata.uid => Ok(lease),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
    holder_is(world, "one", SOON).await;
    assert!(one.is_running());
}

#[tokio::test]
async fn a_leader_that_cannot_renew_ends_before_anybody_else_leads() {
    let rollout = RollOut::prepare(World::new().await, SHAPE).await;
    let world = &rollout.world;
    let faults = world.faults(0).await;
    let setup = world
        .controller()
        .replica("one")
        .kubeconfig(account(world, "one").await)
        .through(&faults);
    let one = setup.start();
    one.leading().await;
    let other = world
        .controller()
        .replica("other")
        .kubeconfig(account(world, "other").await)
        .start();
    rollout.begin().await;
    rollout.under_way(1).await;
    // Nothing but the Lease: all else goes through, and it could go on for ever.
    faults.add(crate::support::faults::Rule::on("*", "leases").hang());
    let status = one.ended(SOON).await;
    assert_ne!(status.code(), Some(0), "{status}");
    assert!(
        one.log()
            .contains("leaderelection lost for system-upgrade-controller"),
        "{}",
        one.log()
    );
    holder_is(world, "other", SOON).await;
    let requests = world.requests().await;
    let by = |name: &str| requests.by(&format!("{}:{name}", world.namespace()));
    let first = lease_writes(&by("other")).next().expect("the other leads").at;
    let late: Vec<_> = writes(&by("one"))
        .into_iter()
        .filter(|it| it.at > first)
        .collect();
    assert!(late.is_empty(), "{:?}", late.iter().map(line).collect::<Vec<_>>());
    rollout.ends_well().await;
    assert!(other.is_running());
}

#[tokio::test]
async fn without_other_times_the_lease_is_system_upgrade_controllers() {
    let world = World::new().await;
    let times = [
        "CATTLE_ELECTION_LEASE_DURATION",
        "CATTLE_ELECTION_RENEW_DEADLINE",
        "CATTLE_ELECTION_RETRY_PERIOD",
    ];
    let setup = times.into_iter().fold(world.controller(), Setup::without_env);
    let controller = setup.start();
    controller.leading().await;
    let first = lease(&world).await;
    assert_eq!(first.lease_duration_seconds, Some(45));
    let machine = hostname::get()
        .expect("a host name")
        .into_string()
        .expect("a host name in UTF-8");
    assert_eq!(
        first.holder_identity,
        Some(machine),
        "the host name, which in a pod is the pod's"
    );
    assert_eq!(first.lease_transitions, Some(0));

    // Renewed every two seconds, and with nothing else changed.
    let leases = Api::<Lease>::namespaced(world.client.clone(), world.namespace());
    let renewed = wait::object(leases, NAME, "is renewed", SOON, |lease| {
        lease
            .spec
            .as_ref()
            .is_some_and(|spec| spec.renew_time > first.renew_time)
    })
    .await;
    let renewed = renewed.spec.expect("a record");
    let pause = |spec: &LeaseSpec| spec.renew_time.as_ref().expect("a time").0;
    let pause = pause(&renewed).duration_since(pause(&first));
    assert!(
        pause >= SignedDuration::from_secs(2) && pause < SignedDuration::from_secs(2) + SLACK,
        "{pause:#}"
    );
    assert_eq!(
        renewed,
        LeaseSpec {
            renew_time: renewed.renew_time.clone(),
            ..first
        }
    );
}
