//! Requests the eviction or deletion of a pod, once. The request carries the pod's UID, so that a later pod of the same
//! name is not affected.

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::Status;
use serde_json::{Value, json};

use super::lister::eviction;
use super::outcome::{EvictionOutcome, judge};
use super::pods::PodId;
use crate::kube::brief;
use refit_api::ForeignReason;

/// How pods are removed.
#[derive(Clone)]
pub(super) struct Evictor {
    pub(super) client: Client,
    /// `--disable-eviction`.
    pub(super) by_delete: bool,
    /// `--grace-period` in seconds. If absent, the pod's own.
    pub(super) grace_period: Option<u32>,
    /// `--dry-run=server`.
    pub(super) dry_run: bool,
}

impl Evictor {
    /// The same, but by deletion.
    pub(super) fn deleting(&self) -> Self {
        Self {
            by_delete: true,
            ..self.clone()
        }
    }

    /// Writes an event about a pod that could not be evicted in time, for whoever looks after it. It may be forbidden.
    pub(super) async fn announce(&self, pod: &PodId, message: &str, now: Timestamp) {
        let reason = ForeignReason::DrainTimeout;
        let event = json!({
            "metadata": { "generateName": format!("{}.", pod.name), "namespace": pod.namespace },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid,
            },
            "type": reason.severity().name(), "reason": reason.name(), "message": message, "count": 1,
            "firstTimestamp": format!("{now:.0}"), "lastTimestamp": format!("{now:.0}"),
            "source": { "component": "refit" },
        });
        let Ok(event) = serde_json::from_value::<CoreEvent>(event) else {
            return;
        };
        let events = Api::<CoreEvent>::namespaced(self.client.clone(), &pod.namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::debug!(
                pod = pod.path(),
                error = brief(&error),
                "cannot write an event about the pod"
            );
        }
    }

    /// Requests the eviction or deletion.
    pub(super) async fn ask(self, pod: PodId) -> (PodId, EvictionOutcome) {
        let answer = self.request(&pod).await;
        (pod, judge(answer))
    }

    async fn request(&self, pod: &PodId) -> Result<Status, kube::Error> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let options = self.delete_options(pod);
        // Sent by hand, because the eviction of kube's client loses these options: see [`eviction`].
        let (request, body) = if self.by_delete {
            (Request::delete(path), options)
        } else {
            (Request::post(format!("{path}/eviction")), eviction(pod, &options))
        };
        let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
        let request = request
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        let answer: Value = self.client.request(request).await?;
        // The response to a delete is the pod.
        Ok(match answer["kind"].as_str() {
            Some("Status") => serde_json::from_value(answer).map_err(kube::Error::SerdeError)?,
            _ => Status::success(),
        })
    }

    fn delete_options(&self, pod: &PodId) -> Value {
        let mut options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            // A StatefulSet recreates its pod under the same name, possibly healthy and on another node. kubectl
            // sends no UID and would evict that one.
            "preconditions": { "uid": pod.uid },
        });
        if let Some(seconds) = self.grace_period {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}
