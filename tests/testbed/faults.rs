//! Each fault that the proxy can make, seen from the client that suffers it.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use refit::api::Plan;
use serde_json::json;

use crate::support::faults::{FaultProxy, Moment, Rule};
use crate::support::kubeconfig;
use crate::support::manifest::Manifests;
use crate::support::process::lives;
use crate::support::wait::SOON;
use crate::support::world::World;

/// A world, a proxy, and a client that goes through it as the controller's service account. Plans are all it
/// touches.
struct Trial {
    world: World,
    faults: FaultProxy,
    plans: Api<Plan>,
}

impl Trial {
    async fn new(seed: u64) -> Self {
        let world = World::with(Manifests::Suc).await;
        let faults = world.faults(seed).await;
        let client = client(&world, &faults).await;
        Self {
            plans: Api::namespaced(client, world.namespace()),
            world,
            faults,
        }
    }

    async fn create(&self, name: &str) -> kube::Result<Plan> {
        self.plans
            .create(
                &PostParams::default(),
                &Plan::new(name, serde_json::from_str("{}").unwrap()),
            )
            .await
    }

    /// Whether the API server has it, whatever the client was told.
    async fn exists(&self, name: &str) -> bool {
        self.world.plans().get_opt(name).await.unwrap().is_some()
    }

    async fn watch(&self) -> impl futures::Stream<Item = kube::Result<WatchEvent<Plan>>> + use<> {
        let from = self
            .plans
            .list(&ListParams::default())
            .await
            .unwrap()
            .metadata
            .resource_version
            .unwrap();
        self.plans
            .watch(&WatchParams::default(), &from)
            .await
            .unwrap()
            .boxed()
    }
}

/// A client that tries everything once.
async fn client(world: &World, faults: &FaultProxy) -> Client {
    let through = faults.kubeconfig_for(world.kubeconfig());
    let mut config = kubeconfig::load(&through, "trial").await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn code<T: std::fmt::Debug>(answer: kube::Result<T>) -> u16 {
    match answer.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("no answer of the API: {other}"),
    }
}

fn broken<T: std::fmt::Debug>(answer: kube::Result<T>) {
    let error = answer.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "an answer: {error}");
}

#[tokio::test]
async fn without_rules_everything_goes_through() {
    let trial = Trial::new(0).await;
    let mut events = pin!(trial.watch().await);
    trial.create("through").await.unwrap();
    assert!(
        matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(plan)) if plan.metadata.name.as_deref() == Some("through"))
    );
    trial
        .plans
        .delete("through", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert!(matches!(
        events.try_next().await.unwrap(),
        Some(WatchEvent::Deleted(_))
    ));
    assert!(!trial.exists("through").await);

    // The API server sees who asks, and with what.
    let requests = trial.world.controller_requests().await;
    assert_eq!(
        (
            requests.count("create", "plans"),
            requests.count("delete", "plans")
        ),
        (1, 1)
    );
    assert_eq!(requests.by("trial").0.len(), requests.0.len());
    assert_eq!(trial.faults.faults(), 0);
    assert_eq!(trial.faults.writes(), 2);
    let verbs: Vec<_> = trial
        .faults
        .history()
        .into_iter()
        .map(|passed| (passed.asked.verb, passed.code))
        .collect();
    let expected = [("list", 200), ("watch", 200), ("create", 201), ("delete", 200)];
    assert_eq!(verbs, expected.map(|(verb, code)| (verb.to_owned(), Some(code))));
}

#[tokio::test]
async fn http_2_goes_through_too() {
    let trial = Trial::new(0).await;
    let through = trial.faults.kubeconfig_for(trial.world.kubeconfig());
    let cluster = kubeconfig::cluster_of(&through).unwrap();
    let authority = std::fs::read(cluster.certificate_authority.unwrap()).unwrap();
    let http = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&authority).unwrap()])
        .no_proxy()
        .build()
        .unwrap();
    let answer = http
        .get(format!("{}/version", cluster.server.unwrap()))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    assert!(answer.text().await.unwrap().contains("gitVersion"));
}

#[tokio::test]
async fn the_nth_request_is_answered_in_the_api_servers_place() {
    let trial = Trial::new(0).await;
    for answer in [409, 410, 429, 500] {
        trial
            .faults
            .add(Rule::on("create", "plans").nth(2).answer(answer));
        let name = |n: u8| format!("p{answer}-{n}");
        trial.create(&name(1)).await.unwrap();
        assert_eq!(code(trial.create(&name(2)).await), answer);
        trial.create(&name(3)).await.unwrap();
        assert!(!trial.exists(&name(2)).await);
        trial.faults.heal();
    }
    assert_eq!(trial.faults.faults(), 4);
}

#[tokio::test]
async fn every_nth_request_is_answered_in_the_api_servers_place() {
    let trial = Trial::new(0).await;
    trial
        .faults
        .add(Rule::on("get", "plans").every(3).times(2).answer(500));
    let mut failed = Vec::new();
    for n in 1..=10 {
        if trial.plans.get_opt("none").await.is_err() {
            failed.push(n);
        }
    }
    assert_eq!(failed, [3, 6]);
}

#[tokio::test]
async fn a_conflict_has_the_reason_that_kubernetes_gives() {
    let trial = Trial::new(0).await;
    trial.create("there").await.unwrap();
    trial
        .faults
        .add(Rule::on("patch", "plans/status").answer(409))
        .add(Rule::on("create", "plans").answer(409));
    let patch = Patch::Merge(json!({ "status": { "latestVersion": "v1" } }));
    let refused = trial
        .plans
        .patch_status("there", &PatchParams::default(), &patch)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.is_conflict()),
        "{refused}"
    );
    let refused = trial.create("other").await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.is_already_exists()),
        "{refused}"
    );
    // Another verb, and the same resource.
    trial.plans.get("there").await.unwrap();
}

#[tokio::test]
async fn a_request_hangs_for_as_long_as_the_client_waits() {
    let trial = Trial::new(0).await;
    trial
        .faults
        .add(Rule::on("create", "plans").named("").times(1).hang());
    let hung = tokio::time::timeout(Duration::from_millis(300), trial.create("never")).await;
    assert!(hung.is_err(), "{hung:?}");
    trial.create("next").await.unwrap();
    assert!(!trial.exists("never").await);
}

#[tokio::test]
async fn an_answer_is_lost_after_the_write_took_effect() {
    let trial = Trial::new(0).await;
    trial.faults.add(Rule::on("create", "plans").nth(1).lose_answer());
    broken(trial.create("lost").await);
    assert!(trial.exists("lost").await);
    assert_eq!(trial.faults.history()[0].code, Some(201));
}

#[tokio::test]
async fn a_connection_is_broken_before_the_write() {
    let trial = Trial::new(0).await;
    trial.faults.add(Rule::on("*", "plans").nth(1).refuse());
    broken(trial.create("refused").await);
    assert!(!trial.exists("refused").await);
}

#[tokio::test]
async fn an_answer_comes_late() {
    let trial = Trial::new(0).await;
    trial
        .faults
        .add(Rule::on("get", "plans").late(Duration::from_millis(400)));
    let started = Instant::now();
    trial.plans.get_opt("none").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn events_of_a_watch_come_late_and_in_order() {
    let trial = Trial::new(0).await;
    let late = Duration::from_millis(700);
    trial.faults.add(Rule::on("watch", "plans").late_events(late));
    let mut events = pin!(trial.watch().await);
    let names: Vec<_> = (0..10).map(|number| format!("number-{number}")).collect();
    let started = Instant::now();
    for name in &names {
        trial.create(name).await.unwrap();
    }
    let created = Instant::now();
    // The server has them long since.
    assert_eq!(
        trial
            .plans
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        names.len()
    );
    for name in &names {
        let event = events.try_next().await.unwrap();
        let is_it = matches!(&event, Some(WatchEvent::Added(plan)) if plan.metadata.name.as_deref() == Some(name.as_str()));
        assert!(is_it, "{event:?}");
        assert!(started.elapsed() >= late);
    }
    // Each as late as the others, and not one after the other, which would be seven seconds.
    assert!(created.elapsed() < 5 * late, "{:?}", created.elapsed());
}

#[tokio::test]
async fn open_watches_of_a_resource_are_cut() {
    let trial = Trial::new(0).await;
    let mut events = pin!(trial.watch().await);
    trial.faults.cut_watches("nodes"); // somebody else's
    trial.create("before").await.unwrap();
    assert!(events.try_next().await.unwrap().is_some());
    trial.faults.cut_watches("plans");
    let end = tokio::time::timeout(SOON, events.try_next()).await.unwrap();
    assert!(matches!(end, Err(_) | Ok(None)), "{end:?}");
}

#[tokio::test]
async fn open_watches_of_a_resource_expire() {
    let trial = Trial::new(0).await;
    let mut events = pin!(trial.watch().await);
    trial.faults.expire_watches("plans");
    let event = tokio::time::timeout(SOON, events.try_next())
        .await
        .unwrap()
        .unwrap();
    assert!(
        matches!(&event, Some(WatchEvent::Error(status)) if status.code == 410),
        "{event:?}"
    );
    assert!(events.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn the_controller_is_killed_at_the_nth_write() {
    for (moment, effect) in [(Moment::Before, false), (Moment::After, true)] {
        let trial = Trial::new(0).await;
        let controller = trial
            .world
            .controller()
            .program("/bin/sleep")
            .arg("1000")
            .through(&trial.faults)
            .start();
        trial.faults.add(Rule::write().nth(3).kill(moment));
        trial.create("first").await.unwrap();
        trial.create("second").await.unwrap();
        assert!(lives(controller.pid()));
        broken(trial.create("third").await);
        assert!(!lives(controller.pid()));
        assert_eq!(trial.exists("third").await, effect);
        assert!(!controller.is_running());
    }
}

#[tokio::test]
async fn leases_events_and_reads_are_no_writes() {
    let trial = Trial::new(0).await;
    trial.faults.add(Rule::write().answer(500));
    let client = client(&trial.world, &trial.faults).await;
    let namespace = trial.world.namespace();
    let lease: Lease = serde_json::from_value(json!({ "metadata": { "name": "any" } })).unwrap();
    Api::namespaced(client.clone(), namespace)
        .create(&PostParams::default(), &lease)
        .await
        .unwrap();
    let event: Event = serde_json::from_value(json!({
        "metadata": { "name": "any" }, "involvedObject": { "namespace": namespace }, "type": "Normal",
    }))
    .unwrap();
    Api::namespaced(client.clone(), namespace)
        .create(&PostParams::default(), &event)
        .await
        .unwrap();
    Api::<Secret>::namespaced(client, namespace)
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(code(trial.create("a-write").await), 500);
    assert_eq!(trial.faults.writes(), 1);
}

#[tokio::test]
async fn chance_is_decided_by_the_seed() {
    let play = async |seed| {
        let trial = Trial::new(seed).await;
        trial.faults.add(Rule::on("get", "plans").chance(0.3).answer(500));
        let mut failed = Vec::new();
        for _ in 0..60 {
            failed.push(trial.plans.get_opt("none").await.is_err());
        }
        failed
    };
    let (one, same, other) = (play(1).await, play(1).await, play(2).await);
    assert_eq!(one, same);
    assert_ne!(one, other);
    let failures = one.iter().filter(|failed| **failed).count();
    assert!((8..=30).contains(&failures), "{failures} of 60 at 30 %");
}
