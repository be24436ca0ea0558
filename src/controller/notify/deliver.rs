//! Sends notifications to one receiver, in their order, and tries each again until it is accepted, refused or too old.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::Shared;
use refit_api::Reason;
use refit_base::backoff::Backoff;
use refit_channel::WebhookRequest;
use refit_facts::{PlanName, PlanUid};
use refit_formats::notify::{Notice, Receiver, body};

/// First pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// How long to try: a notification older than an hour is of no use.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// Failures after which the receiver is reported.
const REPORTED_AFTER: u32 = 3;

/// A notification for one receiver.
pub(super) struct Item {
    pub(super) plan: PlanName,
    pub(super) uid: PlanUid,
    pub(super) notice: Notice,
    pub(super) mark: String,
    pub(super) queued: Instant,
}

pub(super) enum Outcome {
    Sent,
    /// Given up, and why.
    Dropped(String),
}

pub(super) struct Delivered {
    pub(super) item: Item,
    pub(super) receiver: String,
    pub(super) outcome: Outcome,
}

/// Why an attempt failed.
struct Attempt {
    why: String,
    /// Whether the receiver would refuse the same request again.
    is_final: bool,
    retry_after: Option<Duration>,
}

/// Sends what is queued, until the queue is closed.
pub(super) async fn work(
    shared: Shared,
    receiver: Arc<Receiver>,
    mut queue: mpsc::Receiver<Item>,
    results: mpsc::Sender<Delivered>,
) {
    // Of all items since the last one that was accepted, so that a receiver that is down is reported once.
    let mut failures = 0;
    while let Some(item) = queue.recv().await {
        let outcome = deliver(&shared, &receiver, &item, &mut failures).await;
        let delivered = Delivered {
            item,
            receiver: receiver.name.clone(),
            outcome,
        };
        if results.send(delivered).await.is_err() {
            return;
        }
    }
}

async fn deliver(shared: &Shared, receiver: &Receiver, item: &Item, failures: &mut u32) -> Outcome {
    let mut backoff = Backoff::default();
    loop {
        let failed = match attempt(shared, receiver, &item.notice).await {
            Ok(()) => {
                *failures = 0;
                return Outcome::Sent;
            }
            Err(failed) => failed,
        };
        *failures += 1;
        if failed.is_final || item.queued.elapsed() >= PATIENCE {
            return Outcome::Dropped(failed.why);
        }
        if *failures == REPORTED_AFTER {
            let message = format!(
                "receiver {} gets no notifications: {}; refit tries again for an hour",
                receiver.name, failed.why
            );
            shared.report(Reason::NotificationFailed, &message);
        } else {
            tracing::debug!(
                receiver = receiver.name,
                why = failed.why,
                "a notification is tried again"
            );
        }
        let wanted = failed.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        sleep(backoff.pause(FIRST_PAUSE, MAX_PAUSE).max(wanted)).await;
    }
}

async fn attempt(shared: &Shared, receiver: &Receiver, notice: &Notice) -> Result<(), Attempt> {
    let again = |why: String| Attempt {
        why,
        is_final: false,
        retry_after: None,
    };
    let (url, access) = shared.access(&receiver.secret).await.map_err(again)?;
    let body = body(receiver, notice, &shared.context);
    // The client's guard checks only requests to the API server.
    if !shared.leadership.is_leader() {
        return Err(again("this process does not lead any more".to_owned()));
    }
    let request = WebhookRequest {
        method: Method::POST,
        url,
        access: &access,
        content_type: Some(&body.content_type),
        headers: &body.headers,
        body: body.bytes,
        limit: 0,
        allow_plain_http: receiver.allow_plain_http,
    };
    let answer = shared
        .webhooks
        .send(request, shared.clock.now())
        .await
        .map_err(|error| again(error.to_string()))?;
    if answer.status.is_success() {
        return Ok(());
    }
    Err(Attempt {
        why: format!("the receiver answers {}", answer.status),
        is_final: is_final(answer.status),
        retry_after: answer.retry_after,
    })
}

/// Whether the status concerns this request, and not the receiver, its URL or its credentials, which a user may correct.
fn is_final(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}
