//! Reads how many pods are ready of a controller whose pods were evicted.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use kube::Resource;
use kube::api::Api;
use serde::de::DeserializeOwned;

use super::{Actor, Outcome, Told, Trouble, TroubleKind, trouble};
use crate::rollout::WorkloadFacts;
use crate::rollout::facts::Text;

impl Actor {
    /// One that is gone wants no pods.
    pub(super) async fn read_workload(&self, workload: Text) -> Outcome {
        let parts: Vec<_> = workload.split('/').collect();
        let counts = match parts[..] {
            ["ReplicaSet", namespace, name] => {
                let read = self.read::<ReplicaSet>(namespace, name).await;
                read.map(|it| it.map(|it| (it.status.and_then(|s| s.ready_replicas), it.spec.replicas)))
            }
            ["StatefulSet", namespace, name] => {
                let read = self.read::<StatefulSet>(namespace, name).await;
                read.map(|it| it.map(|it| (it.status.and_then(|s| s.ready_replicas), it.spec.replicas)))
            }
            _ => {
                let message = format!("{workload:?} is no ReplicaSet or StatefulSet with namespace and name");
                let kind = TroubleKind::Refused;
                return Err((Vec::new(), Trouble { message, kind }));
            }
        };
        let (ready, wanted) = match counts {
            // Without a number it is one.
            Ok(Some((ready, wanted))) => (ready.unwrap_or(0), wanted.unwrap_or(1)),
            Ok(None) => (0, 0),
            Err(error) => return Err((Vec::new(), trouble(&error))),
        };
        let seen = self.clock.now();
        Ok(vec![Told::Workload(
            workload,
            WorkloadFacts { seen, ready, wanted },
        )])
    }

    async fn read<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        Api::namespaced(self.client.clone(), namespace)
            .get_opt(name)
            .await
    }
}
