//! `StatefulSets`: a pod is created again under its name once it is gone. Volumes are not simulated.

use super::job_pods::pod_of;
use crate::json::{Value, json};
use crate::pods::is_ready;
use crate::resources::Kind;
use crate::state::State;
use crate::store::{Key, Object};

impl State {
    pub(crate) fn sync_stateful_set(&mut self, key: &Key) {
        let Some(set) = self.store.get(Kind::StatefulSet, key).cloned() else {
            return;
        };
        if set.is_being_deleted() {
            return;
        }
        let wanted = set.value["spec"]["replicas"].as_u64().unwrap_or(1);
        let in_turn = set.text("/spec/podManagementPolicy") != "Parallel";
        let (mut there, mut ready, mut missing) = (0_u64, 0_u64, Vec::new());
        for number in 0..wanted {
            let name = Key::new(&key.namespace, &format!("{}-{number}", key.name));
            // A pod that is being deleted still has the name, so its replacement waits until it is gone.
            let stands = if let Some(pod) = self.store.get(Kind::Pod, &name) {
                there += 1;
                ready += u64::from(is_ready(&pod.value) && !pod.is_being_deleted());
                is_ready(&pod.value)
            } else {
                missing.push(number);
                false
            };
            // With `OrderedReady`, the next pod waits until this one is Ready.
            if in_turn && !stands {
                break;
            }
        }
        let status = json!({
            "replicas": there, "readyReplicas": ready, "availableReplicas": ready,
            "observedGeneration": set.value["metadata"]["generation"],
        });
        self.write_status(Kind::StatefulSet, key, status);
        for number in missing {
            let made = self.create(Kind::Pod, &key.namespace, pod(&set, number), false);
            if let Err(status_error) = made {
                tracing::warn!(
                    set = &*key.name,
                    why = status_error.message,
                    "a pod cannot be created"
                );
                return;
            }
        }
    }
}

fn pod(set: &Object, number: u64) -> Value {
    let name = format!("{}-{number}", set.meta("name"));
    let mut pod = pod_of(set);
    let metadata = &mut pod["metadata"];
    metadata["name"] = name.clone().into();
    metadata["labels"]["statefulset.kubernetes.io/pod-name"] = name.into();
    metadata["labels"]["apps.kubernetes.io/pod-index"] = number.to_string().into();
    pod
}
