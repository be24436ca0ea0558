//! Lists the pods of a node for which it waits its turn.

use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::{Actor, Outcome, step_error};
use refit_api::{PodBlocker, names};
use refit_facts::objects::SlimPod;
use refit_facts::{NodeName, PlanName};
use refit_rollout::{PodCheck, StepEffect};

/// Pods that are read at a time: a kubelet can create mirror pods of a megabyte each on its node, with any labels.
const PAGE: u32 = 8;

impl Actor {
    pub(super) async fn list_pod_blockers(
        &self,
        plan: PlanName,
        node: NodeName,
        generation: i64,
        blockers: &[PodBlocker],
    ) -> Outcome {
        let mut found = None;
        for blocker in blockers {
            let api: Api<SlimPod> = match &blocker.namespace {
                Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                None => Api::all(self.client.clone()),
            };
            let params = ListParams::default()
                .fields(&format!("spec.nodeName={node}"))
                .labels(&blocker.selector.to_string())
                .limit(PAGE);
            found = match first_pod(&api, params).await {
                Ok(pod) => pod,
                Err(error) => return step_error(&error).into(),
            };
            if found.is_some() {
                break;
            }
        }
        let check = PodCheck {
            seen: self.clock.now(),
            generation,
            pod: found.map(|pod| pod.as_str().into()),
        };
        StepEffect::PodCheck(plan, node, check).into()
    }
}

/// The first of the pods that keeps its node from being started.
async fn first_pod(api: &Api<SlimPod>, mut params: ListParams) -> Result<Option<String>, kube::Error> {
    // The pods of upgrades come and go with the Plans, and none of them waits for another one like this.
    let counts = |pod: &&SlimPod| !pod.has_ended() && !pod.labels().contains_key(names::LABEL_PLAN);
    loop {
        let page = api.list(&params).await?;
        if let Some(pod) = page.items.iter().find(counts) {
            let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            return Ok(Some(name));
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(None);
        }
    }
}
