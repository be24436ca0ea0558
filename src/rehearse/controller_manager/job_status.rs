//! What a Job's status says, and how it is written.

use std::sync::Arc;

use jiff::Timestamp;

use crate::json::seconds;
use crate::json::{Value, json};
use crate::pods::{has_ended, is_ready};
use crate::store::Object;

/// How many pods of a Job are what.
#[derive(Clone, Debug, Default)]
pub(super) struct PodCounts {
    pub(super) active: i64,
    pub(super) ready: i64,
    pub(super) terminating: i64,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
}

impl PodCounts {
    /// Those that have been counted.
    pub(super) fn read(status: &Value) -> Self {
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        Self {
            succeeded: number("succeeded"),
            failed: number("failed"),
            ..Self::default()
        }
    }

    /// Those that are there.
    pub(super) fn count_pods(&mut self, pods: &[Arc<Object>]) {
        for pod in pods.iter().filter(|pod| !has_ended(pod)) {
            if pod.is_being_deleted() {
                self.terminating += 1;
            } else {
                self.active += 1;
                self.ready += i64::from(is_ready(&pod.value));
            }
        }
    }

    /// Lists the pods that are about to be counted, before their finalizers are removed: the counts do not include them yet.
    pub(super) fn write_uncounted(
        &self,
        status: &mut Value,
        succeeded: &[Arc<Object>],
        failed: &[Arc<Object>],
    ) {
        self.write_present(status);
        let uids = |pods: &[Arc<Object>]| pods.iter().map(|pod| Value::from(pod.uid())).collect::<Value>();
        let mut uncounted = json!({});
        for (field, pods) in [("succeeded", succeeded), ("failed", failed)] {
            if !pods.is_empty() {
                uncounted[field] = uids(pods);
            }
        }
        status["uncountedTerminatedPods"] = uncounted;
    }

    pub(super) fn write(&self, status: &mut Value) {
        self.write_present(status);
        status["uncountedTerminatedPods"] = json!({});
        set(status, "succeeded", self.succeeded);
        set(status, "failed", self.failed);
    }

    fn write_present(&self, status: &mut Value) {
        set(status, "active", self.active);
        // These are pointers in the API type, so a count of 0 is written, too.
        status["ready"] = self.ready.into();
        status["terminating"] = self.terminating.into();
    }
}

/// A count of 0 is not written.
fn set(status: &mut Value, field: &str, count: i64) {
    if count != 0 {
        status[field] = count.into();
    } else if let Some(status) = status.as_object_mut() {
        status.remove(field);
    }
}

/// Reason and message of a condition that holds.
pub(super) fn condition(status: &Value, type_: &str) -> Option<(String, String)> {
    let conditions = status["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|one| one["type"] == type_ && one["status"] == "True")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

/// A condition holds from now on.
pub(super) fn add(status: &mut Value, type_: &str, reason: &str, message: &str, now: Timestamp) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.push(json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastProbeTime": seconds(now), "lastTransitionTime": seconds(now),
    }));
    status["conditions"] = conditions.into();
}
