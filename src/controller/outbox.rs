//! Events that could not be written at once. They wait here, apart from the steps: a status or a start must not wait for an
//! event, because a quota or a webhook for events would then stop the roll-out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use refit_base::backoff::Backoff;
use refit_cluster::kube::{Answer, Failure, brief, failure};

/// Events that wait. Later ones are dropped.
const CAPACITY: usize = 256;
/// First pause after a failure.
const INITIAL_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long to try one event: an event of an hour ago is of no use, and the ones after it wait.
const PATIENCE: Duration = Duration::from_secs(600);

/// The way into the queue.
#[derive(Clone, Debug)]
pub struct Outbox {
    queue: mpsc::Sender<CoreEvent>,
    dropped: Arc<AtomicU64>,
}

/// The other end, which writes the events.
pub struct EventWriter {
    queue: mpsc::Receiver<CoreEvent>,
    dropped: Arc<AtomicU64>,
}

pub fn outbox() -> (Outbox, EventWriter) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let dropped = Arc::<AtomicU64>::default();
    let outbox = Outbox {
        queue: sender,
        dropped: Arc::clone(&dropped),
    };
    let event_writer = EventWriter {
        queue: receiver,
        dropped,
    };
    (outbox, event_writer)
}

impl Outbox {
    /// Has an event written later, or drops it if too many wait.
    pub fn put(&self, event: CoreEvent) {
        if let Err(error) = self.queue.try_send(event) {
            drop_event(&self.dropped, &error.into_inner(), "too many events wait");
        }
    }

    /// Number of events that wait.
    pub fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Number of events that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The first few are logged, and then one each time that the number has doubled.
fn drop_event(dropped: &AtomicU64, event: &CoreEvent, why: &str) {
    let dropped = dropped.fetch_add(1, Ordering::Relaxed) + 1;
    if dropped <= 8 || dropped.is_power_of_two() {
        tracing::warn!(
            reason = event.reason,
            message = event.message,
            dropped,
            why,
            "an event is dropped"
        );
    }
}

impl EventWriter {
    /// Writes events in their order, until the other end is dropped.
    pub async fn run(mut self, client: Client) {
        while let Some(event) = self.queue.recv().await {
            let namespace = event.namespace().unwrap_or_default();
            let api = Api::<CoreEvent>::namespaced(client.clone(), &namespace);
            let (start, mut backoff) = (Instant::now(), Backoff::default());
            loop {
                let error = match api.create(&PostParams::default(), &event).await {
                    Ok(_) => break,
                    // An earlier attempt whose response was lost has written it.
                    Err(error) if Answer::of(&error) == Answer::Exists => break,
                    Err(error) => error,
                };
                let is_overload = Answer::of(&error) == Answer::Overload;
                // The same request would be refused again, and the events after it wait.
                if failure(&error) == Failure::Refused && !is_overload {
                    drop_event(&self.dropped, &event, &brief(&error));
                    break;
                }
                if start.elapsed() >= PATIENCE {
                    drop_event(&self.dropped, &event, &brief(&error));
                    break;
                }
                sleep(backoff.pause(INITIAL_PAUSE, MAX_PAUSE)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    fn event(name: &str) -> CoreEvent {
        CoreEvent {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            ..CoreEvent::default()
        }
    }

    /// A server that answers with these codes, the last one for ever, and the names of the events that it got.
    fn server(codes: &'static [u16]) -> (Client, Arc<Mutex<Vec<String>>>) {
        let got = Arc::<Mutex<Vec<String>>>::default();
        let known = Arc::clone(&got);
        let transport = tower::service_fn(move |request: Request<Body>| {
            let got = Arc::clone(&known);
            async move {
                let body = request.into_body().collect_bytes().await?;
                let event: serde_json::Value = serde_json::from_slice(&body)?;
                let turn = {
                    let mut got = got.lock().unwrap();
                    got.push(event["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                    got.len() - 1
                };
                let code = codes[turn.min(codes.len() - 1)];
                let body = match code {
                    201 => body.to_vec(),
                    code => format!(
                        r#"{{"kind":"Status","status":"Failure","code":{code},"message":"m","reason":"r"}}"#
                    )
                    .into_bytes(),
                };
                Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(body))?)
            }
        });
        (Client::new(transport, "default"), got)
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_tried_until_they_are_written_or_refused() {
        let (client, got) = server(&[500, 429, 201, 403, 409, 201]);
        let (outbox, event_writer) = outbox();
        for name in ["a", "b", "c", "d"] {
            outbox.put(event(name));
        }
        assert_eq!(outbox.waiting(), 4);
        let run = tokio::spawn(event_writer.run(client));
        sleep(Duration::from_secs(60)).await;
        // `b` and `c` are refused for good.
        assert_eq!(got.lock().unwrap()[..4], ["a", "a", "a", "b"]);
        assert_eq!(got.lock().unwrap().last().unwrap(), "d");
        assert_eq!(outbox.dropped(), 2);
        drop(outbox);
        run.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_and_what_is_dropped_is_counted() {
        let (client, got) = server(&[500]);
        let (outbox, event_writer) = outbox();
        for number in 0..CAPACITY + 100 {
            outbox.put(event(&number.to_string()));
        }
        assert_eq!((outbox.waiting(), outbox.dropped()), (CAPACITY, 100));
        // An event that is never written does not wait for ever.
        let run = tokio::spawn(event_writer.run(client));
        sleep(PATIENCE * 3).await;
        assert!(outbox.dropped() > 101, "{}", outbox.dropped());
        assert!(got.lock().unwrap().contains(&"1".to_owned()));
        run.abort();
    }
}
