//! ReplicaSets: a pod that is being deleted is replaced at once.

use std::sync::Arc;

use super::job::active;
use super::job_pods::pod_of;
use crate::json::json;
use crate::pods::{is_bound, is_ready};
use crate::resources::Kind;
use crate::state::State;
use crate::store::{Key, Object};

impl State {
    pub(crate) fn sync_replica_set(&mut self, key: &Key) {
        let Some(set) = self.store.get(Kind::ReplicaSet, key).cloned() else {
            return;
        };
        if set.is_being_deleted() {
            return;
        }
        let pods = self.replicas.of(set.uid());
        let wanted = set.value["spec"]["replicas"].as_u64().unwrap_or(1);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let status = json!({
            "replicas": pods.active, "readyReplicas": pods.ready, "availableReplicas": pods.ready,
            "fullyLabeledReplicas": pods.active, "observedGeneration": set.value["metadata"]["generation"],
        });
        self.write_status(Kind::ReplicaSet, key, status);
        if pods.active > wanted {
            let mut active = self.active_pods(set.uid());
            // Deleted first: pods without a node, then unready pods, then the youngest.
            active.sort_by_key(|pod| {
                let bound = is_bound(pod);
                (
                    bound,
                    is_ready(&pod.value),
                    std::cmp::Reverse(pod.meta("creationTimestamp").to_owned()),
                )
            });
            active.truncate(active.len() - wanted);
            self.delete_pods(&active);
            return;
        }
        let mut pod = pod_of(&set);
        pod["metadata"]["generateName"] = format!("{}-", set.meta("name")).into();
        for _ in pods.active..wanted {
            if let Err(status_error) = self.create(Kind::Pod, &key.namespace, pod.clone(), false) {
                tracing::warn!(
                    set = &*key.name,
                    why = status_error.message,
                    "a pod cannot be created"
                );
                return;
            }
        }
    }

    fn active_pods(&self, set: &str) -> Vec<Arc<Object>> {
        let owned = self.store.owned_by(set).filter(|(kind, _)| *kind == Kind::Pod);
        let pods: Vec<_> = owned
            .filter_map(|(kind, key)| self.store.get(*kind, key).cloned())
            .collect();
        active(&pods)
    }
}
