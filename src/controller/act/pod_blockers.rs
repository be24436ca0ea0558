//! Lists the pods of a node for which it waits its turn.

use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::{Actor, StepResult, step_error};
use crate::api::{PodBlocker, names};
use crate::kube::objects::SlimPod;
use crate::rollout::facts::{NodeName, PlanName};
use crate::rollout::{PodLook, StepEffect};

impl Actor {
    pub(super) async fn list_pod_blockers(
        &self,
        plan: PlanName,
        node: NodeName,
        generation: i64,
        blockers: &[PodBlocker],
    ) -> StepResult {
        let mut found = None;
        for blocker in blockers {
            let api: Api<SlimPod> = match &blocker.namespace {
                Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                None => Api::all(self.client.clone()),
            };
            let params = ListParams::default()
                .fields(&format!("spec.nodeName={node}"))
                .labels(&blocker.selector.to_string());
            let pods = match api.list(&params).await {
                Ok(pods) => pods,
                Err(error) => return Err((Vec::new(), step_error(&error))),
            };
            // The pods of upgrades come and go with the Plans, and none of them waits for another one like this.
            let counts = |pod: &&SlimPod| !pod.has_ended() && !pod.labels().contains_key(names::LABEL_PLAN);
            let name = |pod: &SlimPod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            found = pods.iter().filter(counts).map(name).min();
            if found.is_some() {
                break;
            }
        }
        let look = PodLook {
            seen: self.clock.now(),
            generation,
            pod: found.map(|pod| pod.as_str().into()),
        };
        Ok(vec![StepEffect::PodLook(plan, node, look)])
    }
}
