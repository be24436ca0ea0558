//! Reads why the API server refuses the pod of a Job: the Job controller writes it into an event for each attempt.

use k8s_openapi::api::core::v1::Event;
use kube::Resource as _;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;

use super::{Actor, Outcome, step_error};
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_cluster::kube::Answer;
use refit_cluster::kube::read::send;
use refit_facts::{JobName, JobUid};
use refit_rollout::{Refusal, StepEffect};

/// The Job controller's reason for a pod that the API server refuses (`pkg/controller/controller_utils.go`).
const REASON: &str = "FailedCreate";
/// Events that are read: the Job controller tries again ever more slowly, and its client counts in one event what is alike.
const PAGE: u32 = 50;

#[derive(Deserialize)]
struct EventList {
    items: Option<Vec<RefusalEvent>>,
}

/// What is read of an event. Anyone who may create events can give a Job one, with times that are none.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefusalEvent {
    last_timestamp: Option<String>,
    event_time: Option<String>,
    #[serde(default)]
    message: String,
}

impl RefusalEvent {
    /// The times of all events of one writer have one format, whose order is that of the text.
    fn time(&self) -> Option<&str> {
        self.last_timestamp.as_deref().or(self.event_time.as_deref())
    }
}

impl Actor {
    pub(super) async fn read_refusal(&self, job: JobName, uid: JobUid) -> Outcome {
        let params = ListParams::default()
            .fields(&format!("involvedObject.uid={uid},reason={REASON}"))
            .limit(PAGE);
        let request = Request::new(Event::url_path(&(), Some(&self.source.namespace))).list(&params);
        let events = match send::<EventList>(&self.client, request).await {
            Ok(list) => list.items.unwrap_or_default(),
            // The Role of a release before this one.
            Err(error) if Answer::of(&error) == Answer::Forbidden => Vec::new(),
            Err(error) => return step_error(&error).into(),
        };
        let last = events.iter().max_by(|a, b| a.time().cmp(&b.time()));
        let text = last.map(|event| words(&event.message, &job).as_str().into());
        let seen = self.clock.now();
        StepEffect::Refusal(uid, Refusal { seen, text }).into()
    }
}

/// The message without the random end of the pod's name, which differs at each attempt, and would be written into status each
/// time.
fn words(message: &str, job: &str) -> String {
    let message = shorten(message, MAX_MESSAGE);
    let Some((before, after)) = message.split_once(&format!("{job}-")) else {
        return message.into_owned();
    };
    let after = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    format!("{before}{job}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_attempts_to_create_a_pod_give_the_same_words() {
        let message = |pod: &str| {
            format!("Error creating: pods \"{pod}\" is forbidden: violates PodSecurity \"restricted:latest\"")
        };
        for pod in ["apply-p-on-a-x7k2p", "apply-p-on-a-bb4zq"] {
            assert_eq!(words(&message(pod), "apply-p-on-a"), message("apply-p-on-a"));
        }
        let other = "Error creating: admission webhook \"w\" denied the request";
        assert_eq!(words(other, "apply-p-on-a"), other);
    }
}
