//! The eviction subresource, which checks disruption budgets (`pkg/registry/core/pod/storage/eviction.go`).

use bytes::Bytes;

use super::route::Object as ApiRequest;
use super::write::deletion;
use super::{Reply, parse};
use crate::delete::DeleteOptions;
use crate::json::{Value, json, seconds};
use crate::pods::{has_ended, is_ready};
use crate::resources::Kind;
use crate::state::State;
use crate::status_error::StatusError;
use crate::store::object::text;
use crate::store::{Key, Object};
use crate::write::WriteTarget;

/// `Retry-After` for a budget whose status is not up to date.
const UNCOUNTED_RETRY_SECONDS: u32 = 10;

impl State {
    pub(super) fn serve_eviction(
        &mut self,
        request: &ApiRequest,
        body: &Bytes,
    ) -> Result<Reply, StatusError> {
        let eviction = parse(body)?;
        if text(&eviction, "/metadata/name") != request.name {
            return Err(StatusError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let key = request.key();
        let how = deletion(&eviction["deleteOptions"], request.is_dry_run());
        let Some(pod) = self.store.get(Kind::Pod, &key).cloned() else {
            return Err(StatusError::not_found(Kind::Pod, &request.name));
        };
        // A UID that does not match is a conflict (409) and not "not found", because the API server checks it as a
        // precondition of the deletion. The drain depends on that answer to notice a replaced pod.
        if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != pod.uid()) {
            return Err(StatusError::not_in_record(
                Kind::Pod,
                &request.name,
                "UID",
                uid,
                pod.uid(),
            ));
        }
        if !is_free(&pod) {
            let budgets = self.budgets.of_pod(&key.namespace, &pod);
            match budgets.as_slice() {
                [] => {}
                [budget] => self.consume_disruption(budget, &pod, how.dry_run)?,
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

    /// Decrements `disruptionsAllowed` of a budget.
    fn consume_disruption(&mut self, key: &Key, pod: &Object, dry_run: bool) -> Result<(), StatusError> {
        let Some(budget) = self.store.get(Kind::Budget, key).cloned() else {
            return Ok(());
        };
        let number = |field: &str| budget.value["status"][field].as_i64().unwrap_or_default();
        let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
        // A pod that is not ready gives the application nothing, so it may go while the budget is met without it (KEP-3017).
        if !is_ready(&pod.value) {
            let policy = budget.text("/spec/unhealthyPodEvictionPolicy");
            if policy == "AlwaysAllow" || healthy >= desired && desired > 0 {
                return Ok(());
            }
        }
        let name = &key.name;
        let generation = budget.value["metadata"]["generation"]
            .as_i64()
            .unwrap_or_default();
        // Until the disruption controller has counted, `disruptionsAllowed` is about another selector or limit.
        if number("observedGeneration") < generation {
            let cause = format!("The disruption budget {name} is still being processed by the server.");
            return Err(StatusError::budget(&cause, Some(UNCOUNTED_RETRY_SECONDS)));
        }
        if number("disruptionsAllowed") <= 0 {
            let cause = format!(
                "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
            );
            return Err(StatusError::budget(&cause, None));
        }
        let (left, now) = (number("disruptionsAllowed") - 1, seconds(self.now()));
        self.update(Kind::Budget, key, WriteTarget::Status, dry_run, |old| {
            let mut new = old.clone();
            new["status"]["disruptionsAllowed"] = left.into();
            // By this entry the disruption controller counts the pod as gone before it has seen the deletion.
            new["status"]["disruptedPods"][pod.meta("name")] = now.into();
            Ok(new)
        })?;
        Ok(())
    }

    /// Sets the condition of the pod, and deletes it.
    fn disrupt(&mut self, key: &Key, how: &DeleteOptions) -> Result<(), StatusError> {
        // Before the deletion (KEP-3329): a pod without a grace period is gone after it.
        self.add_disruption_target(key, "EvictionByEvictionAPI", "Eviction API: evicting", None)?;
        self.delete(Kind::Pod, key, how)?;
        Ok(())
    }
}

/// Pods that are pending, terminated or being deleted need no budget: their eviction disrupts nothing (`canIgnorePDB`).
fn is_free(pod: &Object) -> bool {
    has_ended(pod) || pod.text("/status/phase") == "Pending" || pod.is_being_deleted()
}

/// The server's response if several budgets select the pod.
fn two_budgets() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
        "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    })
}
