//! Lists the pods of a node for which it waits its turn, and finds out whether a drain of it would end.

use kube::{Client, ResourceExt as _};

use super::{Actor, Outcome, StepError, StepErrorKind, step_error};
use refit_api::{PodBlocker, names};
use refit_cluster::drain::flags::{OnNode, on_node};
use refit_cluster::drain::{Options, forecast};
use refit_cluster::kube::pages::Pages;
use refit_facts::objects::SlimPod;
use refit_facts::{NodeName, PlanName, Text};
use refit_rollout::{PodCheck, StepEffect};

impl Actor {
    pub(super) async fn list_pod_blockers(
        &self,
        (plan, node): (PlanName, NodeName),
        generation: i64,
        blockers: &[PodBlocker],
        drain: Option<&[String]>,
    ) -> Outcome {
        let mut found = None;
        for blocker in blockers {
            let selector = blocker.selector.to_string();
            let pods = Pages::of_pods(&node, blocker.namespace.as_deref(), &selector);
            found = match first_pod(&self.client, pods).await {
                Ok(pod) => pod,
                Err(error) => return step_error(&error).into(),
            };
            if found.is_some() {
                break;
            }
        }
        let mut finding = None;
        if let Some(args) = drain.filter(|_| found.is_none()) {
            // The same arguments, parsed by the same code, as in the container that would drain the node.
            let options = match on_node(args) {
                Ok(OnNode::Drain(_, options)) => options,
                Ok(OnNode::Cordon(_)) => Options::default(),
                Err(error) => {
                    return StepError::new(StepErrorKind::Refused, error.to_string()).into();
                }
            };
            finding = match forecast(&self.client, &node, &options, self.clock.now()).await {
                Ok(finding) => finding,
                Err(error) => return step_error(&error).into(),
            };
        }
        let check = PodCheck {
            seen: self.clock.now(),
            generation,
            pod: found,
            drain: finding,
        };
        StepEffect::PodCheck(plan, node, check).into()
    }
}

/// The first of the pods that keeps its node from being started.
async fn first_pod(client: &Client, mut pods: Pages) -> Result<Option<Text>, kube::Error> {
    // The pods of upgrades come and go with the Plans, and none of them waits for another one like this.
    let counts = |pod: &&SlimPod| !pod.has_ended() && !pod.labels().contains_key(names::LABEL_PLAN);
    while let Some(page) = pods.next::<SlimPod>(client).await? {
        if let Some(pod) = page.iter().find(counts) {
            return Ok(Some(path(pod)));
        }
    }
    Ok(None)
}

/// A pod, as `namespace/name`.
pub(super) fn path(pod: &SlimPod) -> Text {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    format!("{namespace}/{name}").as_str().into()
}
