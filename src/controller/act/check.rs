//! Asks the servers of checks, with the Secrets that they name. The Secrets are read each time, and not kept.

use super::Actor;
use super::poll::said_of;
use refit_api::{Check, CheckAnswer};
use refit_channel::Access;
use refit_facts::PlanName;
use refit_rollout::StepEffect;

impl Actor {
    /// Asks the server of a check. What goes wrong is an answer, too.
    pub(super) async fn ask_check(&self, plan: PlanName, check: Box<Check>) -> StepEffect {
        let asked = self.clock.now();
        let answer = match self.access_of_check(&check).await {
            Ok(access) => self.channels.check(&check, &access).await,
            Err(message) => CheckAnswer {
                passed: false,
                message,
            },
        };
        StepEffect::Check(plan, check, asked, answer)
    }

    async fn access_of_check(&self, check: &Check) -> Result<Access, String> {
        let mut access = Access::default();
        if let Some(name) = &check.secret {
            let secret = self.needed("secretRef", name).await?;
            said_of("secretRef", access.read_check_secret(&secret))?;
        }
        if let Some(name) = &check.ca {
            let secret = self.needed("caSecretRef", name).await?;
            said_of("caSecretRef", access.read_ca(&secret))?;
        }
        Ok(access)
    }
}
