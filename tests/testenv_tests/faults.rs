//! The faults of the proxy, as its client sees them.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use refit_api::Plan;
use serde_json::json;

use crate::testenv::context::TestContext;
use crate::testenv::faults::{Effect, FaultProxy, Moment, Rule};
use crate::testenv::kubeconfig;
use crate::testenv::manifest::Manifests;
use crate::testenv::process::lives;
use crate::testenv::wait::{self, SOON};

/// A proxy, and a client that uses it as the controller's service account.
struct Trial {
    ctx: TestContext,
    faults: FaultProxy,
    plans: Api<Plan>,
}

impl Trial {
    async fn new(seed: u64) -> Self {
        let ctx = TestContext::with(Manifests::Suc).await;
        let faults = ctx.faults(seed).await;
        let client = client(&ctx, &faults).await;
        Self {
            plans: Api::namespaced(client, ctx.namespace()),
            ctx,
            faults,
        }
    }

    async fn create(&self, name: &str) -> kube::Result<Plan> {
        self.plans
            .create(
                &PostParams::default(),
                &Plan::new(
                    name,
                    serde_json::from_value(json!({ "upgrade": { "image": "i" } })).unwrap(),
                ),
            )
            .await
    }

    async fn exists(&self, name: &str) -> bool {
        self.ctx.plans().get_opt(name).await.unwrap().is_some()
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

/// A client without retries.
async fn client(ctx: &TestContext, faults: &FaultProxy) -> Client {
    let through = faults.kubeconfig_for(ctx.kubeconfig());
    let mut config = kubeconfig::load(&through, "trial").await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn without_rules_the_proxy_forwards_everything() {
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

    // The API server sees the client's credentials and User-Agent.
    let requests = trial.ctx.controller_requests().await;
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
        .map(|passed| (passed.api_request.verb, passed.code))
        .collect();
    let expected = [("list", 200), ("watch", 200), ("create", 201), ("delete", 200)];
    assert_eq!(verbs, expected.map(|(verb, code)| (verb.to_owned(), Some(code))));
}

#[tokio::test]
async fn the_proxy_speaks_http_2() {
    let trial = Trial::new(0).await;
    let through = trial.faults.kubeconfig_for(trial.ctx.kubeconfig());
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
async fn a_conflict_has_the_reason_that_kubernetes_gives() {
    let trial = Trial::new(0).await;
    trial.create("there").await.unwrap();
    trial.faults.add(Rule::on("*", "*").answer(409));
    let patch = Patch::Merge(json!({ "status": { "latestVersion": "v1" } }));
    let params = PatchParams::default();
    let refused = trial
        .plans
        .patch_status("there", &params, &patch)
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
}

#[tokio::test]
async fn each_effect_comes_before_or_after_the_write() {
    let trial = Trial::new(0).await;
    for (moment, exists) in [(Moment::Before, false), (Moment::After, true)] {
        let name = |what: &str| format!("{what}-{moment:?}").to_lowercase();
        let once = |effect| {
            trial
                .faults
                .add(Rule::on("create", "plans").once().effect(effect))
        };
        once(Effect::Answer(moment, 500));
        let answered = trial.create(&name("answered")).await.unwrap_err();
        assert!(matches!(&answered, kube::Error::Api(status) if status.code == 500));
        assert_eq!(trial.exists(&name("answered")).await, exists);
        once(Effect::Disconnect(moment));
        let broken = trial.create(&name("broken")).await.unwrap_err();
        assert!(!matches!(broken, kube::Error::Api(_)), "{broken}");
        assert_eq!(trial.exists(&name("broken")).await, exists);
        for effect in [Effect::Hang(moment), Effect::Delay(moment, 2 * SOON)] {
            once(effect);
            let name = name(if effect == Effect::Hang(moment) {
                "hung"
            } else {
                "late"
            });
            let has_effect = async {
                let faults = trial.faults.faults();
                wait::holds("the request arrives", async || trial.faults.faults() > faults).await;
                if exists {
                    wait::holds("it takes effect", async || trial.exists(&name).await).await;
                }
            };
            tokio::select! {
                answer = trial.create(&name) => panic!("{answer:?}"),
                () = has_effect => assert_eq!(trial.exists(&name).await, exists),
            }
        }
    }
}

#[tokio::test]
async fn another_client_overtakes_a_write() {
    let trial = Trial::new(0).await;
    let version = trial.create("overtaken").await.unwrap().metadata.resource_version;
    trial.faults.add(Rule::on("patch", "plans/status").overtake());
    let patch = Patch::Merge(
        json!({ "metadata": { "resourceVersion": version }, "status": { "latestVersion": "v1" } }),
    );
    let params = PatchParams::default();
    let refused = trial
        .plans
        .patch_status("overtaken", &params, &patch)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.is_conflict()),
        "{refused}"
    );
}

#[tokio::test]
async fn events_of_a_watch_come_late_and_in_order() {
    let late = Duration::from_secs(2);
    let trial = Trial::new(0).await;
    trial.faults.add(Rule::on("watch", "plans").late_events(late));
    let mut events = pin!(trial.watch().await);
    let names: Vec<_> = (0..10).map(|number| format!("number-{number}")).collect();
    let started = Instant::now();
    for name in &names {
        trial.create(name).await.unwrap();
    }
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
}

#[tokio::test]
async fn open_watches_of_a_resource_are_cut() {
    let trial = Trial::new(0).await;
    let mut events = pin!(trial.watch().await);
    trial.faults.cut_watches("nodes");
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
            .ctx
            .controller()
            .program("/bin/sleep")
            .arg("1000")
            .through(&trial.faults)
            .start();
        trial.faults.add(Rule::write().nth(3).kill(moment));
        trial.create("first").await.unwrap();
        trial.create("second").await.unwrap();
        assert!(lives(controller.pid()));
        trial.create("third").await.unwrap_err();
        assert!(!lives(controller.pid()));
        assert_eq!(trial.exists("third").await, effect);
        assert!(!controller.is_running());
    }
}
