//! Reads how many pods of a controller are ready whose pods were evicted.

use super::{Actor, Outcome, StepError, StepErrorKind, step_error};
use refit_api::Workload;
use refit_cluster::scale::Scale;
use refit_facts::{Text, WorkloadFacts};
use refit_rollout::StepEffect;

impl Actor {
    /// A controller that no longer exists wants no pods.
    pub(super) async fn read_workload(&self, workload: Text) -> Outcome {
        let Some(known) = Workload::parse(&workload) else {
            let message = format!("{workload:?} is not a controller of pods with namespace and name");
            return StepError::new(StepErrorKind::Refused, message).into();
        };
        let (ready, wanted) = match self.scales.read(&known).await {
            Ok(Scale::Of { ready, wanted }) => (ready, wanted),
            Ok(Scale::Gone) => (0, 0),
            Ok(Scale::Hidden) => {
                tracing::warn!(
                    "settle.workloads does not wait for {known}: this controller may not read it (deploy/overlays/read-workloads)"
                );
                (0, 0)
            }
            Err(error) => return step_error(&error).into(),
        };
        let seen = self.clock.now();
        let facts = WorkloadFacts {
            seen,
            ready,
            wanted,
            before: known.ready,
        };
        StepEffect::Workload(workload, facts).into()
    }
}
