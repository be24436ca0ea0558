//! ReplicaSets: pods that are told to go are replaced at once.

use super::job::active;
use super::job_pods::pod_of;
use crate::rehearse::json::json;
use crate::rehearse::resources::Kind;
use crate::rehearse::server::evict::is_ready;
use crate::rehearse::state::State;
use crate::rehearse::store::Key;
use crate::rehearse::write::Part;

impl State {
    /// Looks at a ReplicaSet.
    pub(in crate::rehearse) fn sync_replica_set(&mut self, key: &Key) {
        let Some(set) = self.store.get(Kind::ReplicaSet, key).cloned() else {
            return;
        };
        if set.is_leaving() {
            return;
        }
        let owned = self
            .store
            .owned_by(set.uid())
            .filter(|(kind, _)| *kind == Kind::Pod);
        let pods: Vec<_> = owned
            .filter_map(|(kind, key)| self.store.get(*kind, key).cloned())
            .collect();
        let mut active = active(&pods);
        let wanted = set.value["spec"]["replicas"].as_u64().unwrap_or(1);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let ready = active.iter().filter(|pod| is_ready(pod)).count();
        let status = json!({
            "replicas": active.len(), "readyReplicas": ready, "availableReplicas": ready,
            "fullyLabeledReplicas": active.len(), "observedGeneration": set.value["metadata"]["generation"],
        });
        let _ = self.update(Kind::ReplicaSet, key, Part::Status, false, |old| {
            let mut new = old.clone();
            new["status"] = status;
            Ok(new)
        });
        if active.len() > wanted {
            // Those without a node go first, then those that are not ready, then the youngest.
            active.sort_by_key(|pod| {
                let bound = crate::rehearse::state::is_bound(pod);
                (
                    bound,
                    is_ready(pod),
                    std::cmp::Reverse(pod.meta("creationTimestamp").to_owned()),
                )
            });
            active.truncate(active.len() - wanted);
            self.delete_pods(&active);
            return;
        }
        let template = &set.value["spec"]["template"];
        let mut metadata = template["metadata"].clone();
        metadata["generateName"] = format!("{}-", set.meta("name")).into();
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.meta("name"), "uid": set.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let pod = pod_of(metadata, &template["spec"]);
        for _ in active.len()..wanted {
            if let Err(fault) = self.create(Kind::Pod, &key.namespace, pod.clone(), false) {
                tracing::warn!(set = &*key.name, why = fault.message, "a pod cannot be made");
                return;
            }
        }
    }
}
