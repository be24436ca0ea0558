//! Lists the pods of DaemonSets on an upgraded node.

use kube::Resource as _;

use super::pod_blockers::path;
use super::{Actor, Outcome, step_error};
use refit_api::PodBlocker;
use refit_cluster::kube::pages::Pages;
use refit_facts::objects::SlimPod;
use refit_facts::{NodeName, PlanName};
use refit_rollout::{DaemonPods, StepEffect, UnreadyPod};

impl Actor {
    pub(super) async fn list_daemon_pods(
        &self,
        plan: PlanName,
        node: NodeName,
        generation: i64,
        which: &PodBlocker,
    ) -> Outcome {
        let mut pages = Pages::of_pods(&node, which.namespace.as_deref(), &which.selector.to_string());
        let mut unready: Option<UnreadyPod> = None;
        loop {
            let page = match pages.next::<SlimPod>(&self.client).await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => return step_error(&error).into(),
            };
            for pod in page {
                let leaves = pod.meta().deletion_timestamp.is_some();
                // One that has ended counts, too: its DaemonSet replaces it.
                let Some(daemon_set) = pod.daemon_set().filter(|_| leaves || !pod.is_ready()) else {
                    continue;
                };
                if let Some(unready) = &mut unready {
                    unready.more += 1;
                    continue;
                }
                unready = Some(UnreadyPod {
                    pod: path(&pod),
                    daemon_set: daemon_set.into(),
                    leaves,
                    more: 0,
                });
            }
        }
        let pods = DaemonPods {
            seen: self.clock.now(),
            generation,
            unready,
        };
        StepEffect::DaemonPods(plan, node, pods).into()
    }
}
