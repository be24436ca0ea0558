//! The pods that reboot nodes: made and deleted by name, and of no Job.

use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Resource, ResourceExt};

use super::{Actor, Outcome, Told, is_forbidden, stale, trouble, worth_a_look};
use crate::api::names;
use crate::controller::client::{Failure, failure};
use crate::controller::objects::{SlimPod, version};
use crate::controller::observe::Seen;
use crate::rollout::facts::Text;

/// How long a pod has to stop. It only sleeps, or has done what it was made for.
const GRACE_SECONDS: u32 = 1;

impl Actor {
    fn pods(&self) -> Api<SlimPod> {
        Api::namespaced(self.client.clone(), &self.source.namespace)
    }

    fn pod_seen(&self, pod: &SlimPod) -> Told {
        Told::Seen(Seen::Pod(version(pod.meta()), Box::new(pod.facts(&self.intern))))
    }

    /// The name is of no other Plan, node and hash: a pod that has it is the one that is meant.
    pub(super) async fn create_pod(&self, name: &Text, bodies: [Vec<u8>; 2]) -> Outcome {
        let [critical, plain] = bodies;
        let mut answer = self.post_pod(critical).await;
        // The class may be kept for other namespaces, by a quota.
        if answer.as_ref().is_err_and(is_forbidden) {
            answer = self.post_pod(plain).await;
        }
        let error = match answer {
            Ok(pod) => return Ok(vec![self.pod_seen(&pod)]),
            Err(error) => error,
        };
        let exists = matches!(&error, kube::Error::Api(status) if status.is_already_exists());
        if !exists && failure(&error) != Failure::Unknown {
            return Err((Vec::new(), trouble(&error)));
        }
        match self.pods().get_opt(name).await {
            Ok(Some(pod)) if pod.is_of(&self.source.controller) => Ok(vec![self.pod_seen(&pod)]),
            Ok(None) if exists => Err((Vec::new(), stale(&error))),
            Ok(_) => Err((Vec::new(), trouble(&error))),
            Err(again) => Err((Vec::new(), trouble(&again))),
        }
    }

    async fn post_pod(&self, body: Vec<u8>) -> Result<SlimPod, kube::Error> {
        let path = SlimPod::url_path(&(), Some(&self.source.namespace));
        let request = Request::new(path)
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request::<SlimPod>(request).await
    }

    /// It is gone when a watch says so: its node may be away.
    pub(super) async fn delete_pod(&self, name: &Text, uid: &Text) -> Outcome {
        let params = DeleteParams {
            grace_period_seconds: Some(GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        let Err(error) = self.pods().delete(name, &params).await else {
            return Ok(vec![Told::PodLeaving(name.clone(), uid.clone())]);
        };
        if !worth_a_look(&error) {
            return Err((Vec::new(), trouble(&error)));
        }
        let gone = Told::Seen(Seen::PodGone(name.clone(), uid.clone()));
        match self.pods().get_opt(name).await {
            Ok(Some(pod)) if pod.meta().uid.as_deref() == Some(&**uid) => {
                Err((vec![self.pod_seen(&pod)], trouble(&error)))
            }
            Ok(Some(other)) if other.is_of(&self.source.controller) => Ok(vec![gone, self.pod_seen(&other)]),
            Ok(_) => Ok(vec![gone]),
            Err(again) => Err((Vec::new(), trouble(&again))),
        }
    }
}

impl SlimPod {
    /// Whether the pod is of the controller of this name.
    fn is_of(&self, controller: &str) -> bool {
        self.labels()
            .get(names::LABEL_CONTROLLER)
            .is_some_and(|label| label == controller)
    }
}
