//! Delays the events of a watch, and ends it early.

use std::time::Duration;

use anyhow::anyhow;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::json;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use super::EndWatches;
use crate::testenv::serve::Body;

/// How an open watch ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// The connection breaks.
    Cut,
    /// An event says that the resource version is too old, and the stream ends.
    Expired,
}

/// The body of a watch. Each event is delayed by `late`, until the watch is ended.
pub(super) fn watch(
    events: impl http_body::Body<Data = Bytes, Error: Into<anyhow::Error> + Send> + Send + Unpin + 'static,
    late: Duration,
    resource: String,
    watch_ends: broadcast::Receiver<EndWatches>,
) -> Body {
    let (due, arrived) = mpsc::unbounded_channel();
    // Reads events at once, and queues them with their times. The API server's frames may end within an event, but an
    // error event follows a complete one.
    tokio::spawn(async move {
        let mut events = events;
        let mut begun = Vec::new();
        loop {
            tokio::select! {
                () = due.closed() => break,
                frame = events.frame() => {
                    let Some(frame) = frame else { break };
                    let data = frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(Into::into);
                    let data = data.map(|data| whole_lines(&mut begun, &data)).transpose();
                    if let Some(data) = data && due.send((Instant::now() + late, data)).is_err() {
                        break;
                    }
                }
            }
        }
    });
    let state = Some((arrived, resource, watch_ends));
    let frames = futures::stream::unfold(state, |state| async {
        let (mut arrived, resource, mut watch_ends) = state?;
        let next = async {
            let (due, data) = arrived.recv().await?;
            tokio::time::sleep_until(due).await;
            Some(data.map(Frame::data))
        };
        tokio::select! {
            biased;
            end = next_end(&mut watch_ends, &resource) => Some((end.final_event(), None)),
            frame = next => Some((frame?, Some((arrived, resource, watch_ends)))),
        }
    });
    StreamBody::new(Box::pin(frames)).boxed_unsync()
}

/// The complete lines, if there are any; the rest remains in `begun`. Frames must not be empty: hyper's client closes a
/// connection after a hundred of them (`too_many_data_frames`, <https://github.com/hyperium/h2/pull/935>).
fn whole_lines(begun: &mut Vec<u8>, piece: &[u8]) -> Option<Bytes> {
    begun.extend_from_slice(piece);
    let end = begun.iter().rposition(|byte| *byte == b'\n')? + 1;
    Some(begun.drain(..end).collect::<Vec<_>>().into())
}

async fn next_end(watch_ends: &mut broadcast::Receiver<EndWatches>, resource: &str) -> WatchEnd {
    loop {
        match watch_ends.recv().await {
            Ok(order) if order.resource == resource => return order.end,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => (),
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl WatchEnd {
    fn final_event(self) -> anyhow::Result<Frame<Bytes>> {
        match self {
            Self::Cut => Err(anyhow!("watch cut by the test")),
            Self::Expired => {
                let event = json!({
                    "type": "ERROR",
                    "object": {
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "too old resource version", "reason": "Expired", "code": 410,
                    },
                });
                Ok(Frame::data(format!("{event}\n").into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_delays_of_events_overlap() {
        let late = Duration::from_secs(2);
        // One each second.
        let events = futures::stream::unfold(0, |number| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let event: anyhow::Result<_> = Ok(Frame::data(Bytes::from(format!("{number}\n"))));
            (number < 10).then_some((event, number + 1))
        });
        let (_ends, ended) = broadcast::channel(1);
        let started = Instant::now();
        let delayed = watch(StreamBody::new(Box::pin(events)), late, "plans".to_owned(), ended);
        let all = delayed.collect().await.unwrap().to_bytes();
        assert_eq!(all, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        assert_eq!(started.elapsed(), Duration::from_secs(10) + late);
    }

    #[test]
    fn an_event_in_pieces_continues_as_one() {
        let mut begun = Vec::new();
        assert_eq!(whole_lines(&mut begun, b"{\"one\""), None);
        assert_eq!(
            whole_lines(&mut begun, b":1}\n{\"two\":2}\n{").as_deref(),
            Some(&b"{\"one\":1}\n{\"two\":2}\n"[..])
        );
        assert_eq!(whole_lines(&mut begun, b"}\n").as_deref(), Some(&b"{}\n"[..]));
        assert!(begun.is_empty());
    }
}
