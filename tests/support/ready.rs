//! A controller whose start is behind it: for tests that measure.

use serde_json::json;

use super::controller::Controller;
use super::wait::SOON;
use super::world::World;

/// A Plan that is for no node.
const WARM_UP: &str = "warm-up";

impl World {
    /// Starts a controller with the world's own setup, and waits until it works.
    pub async fn at_work(&self) -> Controller {
        let controller = self.controller().start();
        self.works(&controller).await;
        controller
    }

    /// Waits until a controller leads and has dealt with a Plan that was made, or edited, after it began to.
    pub async fn works(&self, controller: &Controller) {
        controller.leading().await;
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
            "metadata": { "name": WARM_UP },
            "spec": { "version": format!("v{}", controller.pid()), "upgrade": { "image": "i" } },
        });
        self.try_apply(plan)
            .await
            .unwrap_or_else(|error| panic!("{error:#}"));
        let dealt_with = self.plan_complete(WARM_UP, SOON).await;
        let version = dealt_with.status.and_then(|status| status.latest_version);
        assert_eq!(version, Some(format!("v{}", controller.pid())));
    }
}
