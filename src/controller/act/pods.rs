//! Reboot Pods, which belong to no Job: creation and deletion.

use kube::Resource;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::Request;

use super::{Actor, StepResult, should_reread, stale, step_error};
use refit_cluster::kube::{Answer, Failure, failure};
use refit_facts::objects::{SlimPod, version};
use refit_facts::{PodUid, Text};
use refit_rollout::{Observation, StepEffect};

/// Grace period of a pod, in seconds. It only sleeps, or has finished.
/// With 0 the API server would remove the pod before the kubelet has stopped it.
const GRACE_SECONDS: u32 = 1;

impl Actor {
    fn pods(&self) -> Api<SlimPod> {
        Api::namespaced(self.client.clone(), &self.source.namespace)
    }

    fn observed_pod(&self, pod: &SlimPod) -> StepEffect {
        StepEffect::Observed(Observation::Pod(
            version(pod.meta()),
            Box::new(pod.facts(&self.intern)),
        ))
    }

    /// The name is unique to the Plan, the node and the hash: an existing pod with the name is the wanted one, or another
    /// client has given one this name.
    pub(super) async fn create_pod(&self, name: &Text, bodies: [Vec<u8>; 2]) -> StepResult {
        let [critical, plain] = bodies;
        let mut answer = self.post_pod(critical).await;
        // A quota may reserve the priority class for other namespaces.
        if answer
            .as_ref()
            .is_err_and(|error| Answer::of(error) == Answer::Forbidden)
        {
            answer = self.post_pod(plain).await;
        }
        let error = match answer {
            Ok(pod) => return Ok(vec![self.observed_pod(&pod)]),
            Err(error) => error,
        };
        let exists = matches!(&error, kube::Error::Api(status) if status.is_already_exists());
        if !exists && failure(&error) != Failure::Unknown {
            return Err((Vec::new(), step_error(&error)));
        }
        match self.pods().get_opt(name).await {
            Ok(Some(pod)) if pod.is_of(&self.source.controller) => Ok(vec![self.observed_pod(&pod)]),
            Ok(Some(_)) => Ok(vec![StepEffect::PodNameTaken(name.clone())]),
            Ok(None) if exists => Err((Vec::new(), stale(&error))),
            Ok(None) => Err((Vec::new(), step_error(&error))),
            Err(again) => Err((Vec::new(), step_error(&again))),
        }
    }

    async fn post_pod(&self, body: Vec<u8>) -> Result<SlimPod, kube::Error> {
        let path = SlimPod::url_path(&(), Some(&self.source.namespace));
        let request = Request::new(path)
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request::<SlimPod>(request).await
    }

    /// The pod is gone once a watch says so, because its node may be down.
    pub(super) async fn delete_pod(&self, name: &Text, uid: &PodUid) -> StepResult {
        let params = DeleteParams {
            grace_period_seconds: Some(GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        let Err(error) = self.pods().delete(name, &params).await else {
            return Ok(vec![StepEffect::PodDeleting(name.clone(), uid.clone())]);
        };
        if !should_reread(&error) {
            return Err((Vec::new(), step_error(&error)));
        }
        let gone = StepEffect::Observed(Observation::PodDeleted(name.clone(), uid.clone()));
        match self.pods().get_opt(name).await {
            Ok(Some(pod)) if pod.meta().uid.as_deref() == Some(&**uid) => {
                Err((vec![self.observed_pod(&pod)], step_error(&error)))
            }
            Ok(Some(other)) if other.is_of(&self.source.controller) => {
                Ok(vec![gone, self.observed_pod(&other)])
            }
            Ok(_) => Ok(vec![gone]),
            Err(again) => Err((Vec::new(), step_error(&again))),
        }
    }
}
