//! The eviction subresource: disruption budgets are asked first (`pkg/registry/core/pod/storage/eviction.go`).

use bytes::Bytes;

use super::route::Object as Asked;
use super::writing::deletion;
use super::{Reply, parse};
use crate::rehearse::deletion::Deletion;
use crate::rehearse::fault::Fault;
use crate::rehearse::json::{Value, json};
use crate::rehearse::manager::budget::selects;
use crate::rehearse::resources::Kind;
use crate::rehearse::state::{State, is_over, seconds};
use crate::rehearse::store::object::text;
use crate::rehearse::store::{Key, Object};
use crate::rehearse::write::Part;

/// When a budget that is not counted yet may be asked again.
const UNCOUNTED_RETRY_SECONDS: u32 = 10;

impl State {
    pub(super) fn answer_eviction(&mut self, asked: &Asked, body: &Bytes) -> Result<Reply, Fault> {
        let eviction = parse(body)?;
        if text(&eviction, "/metadata/name") != asked.name {
            return Err(Fault::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let key = asked.key();
        let how = deletion(&eviction["deleteOptions"], asked.is_dry_run());
        let Some(pod) = self.store.get(Kind::Pod, &key).cloned() else {
            return Err(Fault::not_found(Kind::Pod, &asked.name));
        };
        if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != pod.uid()) {
            return Err(Fault::not_in_record(
                Kind::Pod,
                &asked.name,
                "UID",
                uid,
                pod.uid(),
            ));
        }
        if !is_free(&pod) {
            let budgets: Vec<Key> = self
                .store
                .in_namespace(Kind::Budget, &key.namespace)
                .filter(|budget| selects(budget, &pod))
                .map(|budget| budget.key())
                .collect();
            match budgets.as_slice() {
                [] => {}
                [budget] => self.spend(budget, &pod, how.dry_run)?,
                _ => return Ok(Reply::json(500, &two_budgets())),
            }
        }
        if !how.dry_run {
            self.disrupt(&key, &how)?;
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        });
        Ok(Reply::json(201, &status))
    }

    /// Takes one disruption from a budget, if it has any.
    fn spend(&mut self, key: &Key, pod: &Object, dry_run: bool) -> Result<(), Fault> {
        let Some(budget) = self.store.get(Kind::Budget, key).cloned() else {
            return Ok(());
        };
        let number = |field: &str| budget.value["status"][field].as_i64().unwrap_or_default();
        let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
        if !is_ready(pod) {
            let policy = budget.text("/spec/unhealthyPodEvictionPolicy");
            if policy == "AlwaysAllow" || healthy >= desired && desired > 0 {
                return Ok(());
            }
        }
        let name = &key.name;
        let generation = budget.value["metadata"]["generation"]
            .as_i64()
            .unwrap_or_default();
        if number("observedGeneration") < generation {
            let cause = format!("The disruption budget {name} is still being processed by the server.");
            return Err(Fault::budget(&cause, Some(UNCOUNTED_RETRY_SECONDS)));
        }
        if number("disruptionsAllowed") <= 0 {
            let cause = format!(
                "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
            );
            return Err(Fault::budget(&cause, None));
        }
        let (left, now) = (number("disruptionsAllowed") - 1, seconds(self.now()));
        self.update(Kind::Budget, key, Part::Status, dry_run, |old| {
            let mut new = old.clone();
            new["status"]["disruptionsAllowed"] = left.into();
            new["status"]["disruptedPods"][pod.meta("name")] = now.into();
            Ok(new)
        })?;
        Ok(())
    }

    /// Says why on the pod, and tells it to go.
    fn disrupt(&mut self, key: &Key, how: &Deletion) -> Result<(), Fault> {
        let now = seconds(self.now());
        self.update(Kind::Pod, key, Part::Status, false, |old| {
            let mut new = old.clone();
            let mut conditions = new["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "DisruptionTarget");
            conditions.push(json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
            }));
            new["status"]["conditions"] = conditions.into();
            Ok(new)
        })?;
        self.delete(Kind::Pod, key, how)?;
        Ok(())
    }
}

/// Pods that have not begun, have ended or are going are nobody's loss.
fn is_free(pod: &Object) -> bool {
    is_over(pod) || pod.text("/status/phase") == "Pending" || pod.is_leaving()
}

/// Whether the pod's Ready condition holds.
pub(in crate::rehearse) fn is_ready(pod: &Object) -> bool {
    let conditions = pod.value["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What an API server answers where no eviction could keep all budgets.
fn two_budgets() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
        "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    })
}
