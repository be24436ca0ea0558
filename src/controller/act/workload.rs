//! Reads how many pods of a controller are ready whose pods were evicted.

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use kube::Resource as _;
use kube::api::{GetParams, Request};
use serde::Deserialize;

use super::{Actor, Outcome, StepError, StepErrorKind, step_error};
use refit_cluster::kube::Answer;
use refit_facts::{Text, WorkloadFacts};
use refit_rollout::StepEffect;

/// The fields of a `ReplicaSet` or a `StatefulSet` that are read. Most of the rest is the template of its pods.
#[derive(Deserialize)]
struct Workload {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Spec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    ready_replicas: Option<i32>,
}

impl Actor {
    /// A controller that no longer exists wants no pods.
    pub(super) async fn read_workload(&self, workload: Text) -> Outcome {
        let parts: Vec<_> = workload.split('/').collect();
        let (path, name) = match parts[..] {
            ["ReplicaSet", namespace, name] => (ReplicaSet::url_path(&(), Some(namespace)), name),
            ["StatefulSet", namespace, name] => (StatefulSet::url_path(&(), Some(namespace)), name),
            _ => {
                let message =
                    format!("{workload:?} is not a ReplicaSet or StatefulSet with namespace and name");
                return StepError::new(StepErrorKind::Refused, message).into();
            }
        };
        let answer = match Request::new(path).get(name, &GetParams::default()) {
            Ok(request) => self.client.request::<Workload>(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        let (ready, wanted) = match answer {
            // `spec.replicas` defaults to one.
            // The API server omits `status.readyReplicas` if it is zero.
            Ok(it) => (
                it.status.ready_replicas.unwrap_or(0),
                it.spec.replicas.unwrap_or(1),
            ),
            Err(error) if Answer::of(&error) == Answer::NotFound => (0, 0),
            Err(error) => return step_error(&error).into(),
        };
        let seen = self.clock.now();
        StepEffect::Workload(workload, WorkloadFacts { seen, ready, wanted }).into()
    }
}
