//! The faults of the proxy, as its client sees them.

use kube::Client;
use kube::api::{Api, PostParams};
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
}

/// A client without retries.
async fn client(ctx: &TestContext, faults: &FaultProxy) -> Client {
    let through = faults.kubeconfig_for(ctx.kubeconfig());
    let mut config = kubeconfig::load(&through, "trial").await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
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
