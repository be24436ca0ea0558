//! Waits until a controller has started, for tests that measure.

use serde_json::json;

use super::context::TestContext;
use super::controller::Controller;
use super::wait::SOON;

/// A Plan without nodes.
pub const WARM_UP: &str = "warm-up";

impl TestContext {
    /// Starts a controller, and waits until it works.
    pub async fn start_and_warm_up(&self) -> Controller {
        let controller = self.controller().start();
        self.wait_until_working(&controller).await;
        controller
    }

    /// Waits until a controller leads and has completed a Plan that was created, or edited, since.
    pub async fn wait_until_working(&self, controller: &Controller) {
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
