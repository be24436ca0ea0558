//! What front ends share: the watches of their objects, and events about them.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Client, Resource};
use tokio::sync::{Notify, mpsc};

use refit_api::ForeignReason;
use refit_api::digest::short_digest;
use refit_cluster::kube::Answer;
use refit_cluster::kube::watch::{Selection, Watch, WatchEvent};
use refit_facts::Watched;
use refit_rollout::Change;

/// Objects per page of a list.
const PAGE: u32 = 100;
/// Capacity of a queue of changes.
pub(super) const QUEUE: usize = 64;

/// What a watch needs.
pub(super) struct Watcher {
    pub(super) client: Client,
    /// Notified when the resource versions of the server went back.
    pub(super) restored: Arc<Notify>,
}

impl Watcher {
    /// Sends what happens to the objects of a kind, in a namespace or in all, until the receiver is gone. `message` also gets
    /// `None`, if they may not be listed or watched.
    pub(super) async fn run<K: Watched + Resource<DynamicType = ()>, T>(
        self,
        namespace: Option<String>,
        labels: Option<&str>,
        messages: mpsc::Sender<T>,
        message: impl Fn(Option<Change<K>>) -> Option<T>,
    ) {
        let kind = K::kind(&());
        let selection = Selection {
            path: K::url_path(&(), namespace.as_deref()),
            labels: labels.map(str::to_owned),
            page: PAGE,
            ..Selection::default()
        };
        let mut watch = Watch::<K>::new(self.client, selection);
        loop {
            let change = match watch.next().await {
                WatchEvent::ListStarted => Some(Change::ListStarted),
                WatchEvent::ListFinished => Some(Change::ListFinished),
                WatchEvent::Object(object) => Some(Change::Object(object)),
                WatchEvent::Deleted { name, uid } => Some(Change::Deleted { name, uid }),
                WatchEvent::Watching => continue,
                WatchEvent::Unreadable(unreadable) => {
                    tracing::error!(
                        kind = &*kind,
                        name = unreadable.name,
                        why = unreadable.why,
                        "an object cannot be read"
                    );
                    continue;
                }
                WatchEvent::VersionsReset => {
                    self.restored.notify_one();
                    // The controller drops this task together with all others of the leader.
                    return std::future::pending().await;
                }
                // The watch goes on, because the CRD may be installed later.
                WatchEvent::Failed(error) if error.answer() == Answer::NotFound => Some(Change::Unknown),
                WatchEvent::Failed(error) => {
                    tracing::warn!(
                        kind = &*kind,
                        error = error.to_string(),
                        "the watch ended unexpectedly"
                    );
                    if error.answer() != Answer::Forbidden {
                        continue;
                    }
                    None
                }
            };
            if let Some(message) = message(change)
                && messages.send(message).await.is_err()
            {
                return;
            }
        }
    }
}

/// An event about an object. One about an object without a namespace is in `default`.
pub(super) fn event(
    component: &str,
    regarding: ObjectReference,
    reason: ForeignReason,
    message: &str,
    now: Timestamp,
) -> Event {
    let name = regarding.name.iter().flat_map(|name| name.chars());
    let about: String = name.take(230).collect();
    // Two events about one object may be of one time.
    let unique = short_digest(&[reason.name(), message, &now.as_nanosecond().to_string()], 16);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{about}.{unique}")),
            namespace: regarding.namespace.clone().or_else(|| Some("default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: regarding,
        reason: Some(reason.name().to_owned()),
        message: Some(message.to_owned()),
        type_: Some(reason.severity().name().to_owned()),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use refit_facts::objects::maintenance::{KubevirtMaintenance, Maintenance};

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_is_installed_later_is_noticed_within_a_minute() {
        const MISSING: usize = 5;
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let transport = tower::service_fn(move |_: Request<Body>| {
            let before = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let (code, answer) = match before {
                    ..MISSING => {
                        let status = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 });
                        (404, status)
                    }
                    MISSING => {
                        let object =
                            json!({ "metadata": { "name": "disk", "uid": "u", "resourceVersion": "1" } });
                        let list = json!({ "metadata": { "resourceVersion": "1" }, "items": [object] });
                        (200, list)
                    }
                    _ => return std::future::pending().await,
                };
                let response = Response::builder().status(code);
                Ok::<_, BoxError>(
                    response
                        .body(Body::from(answer.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        let watcher = Watcher {
            client: Client::new(transport, "default"),
            restored: Arc::default(),
        };
        let (changes, mut queue) = mpsc::channel::<Change<KubevirtMaintenance>>(QUEUE);
        tokio::spawn(watcher.run(None, None, changes, |change| change));
        let mut last = tokio::time::Instant::now();
        let mut unknown = 0;
        while let Some(change) = queue.recv().await {
            let pause = last.elapsed();
            assert!(pause.as_secs() < 60, "{pause:?}");
            last = tokio::time::Instant::now();
            match change {
                Change::Unknown => unknown += 1,
                Change::Object(object) => {
                    assert_eq!(Maintenance::from(object).name(), "disk");
                    break;
                }
                Change::ListStarted => {}
                _ => panic!("another change, after {unknown} of a missing kind"),
            }
        }
        assert_eq!(unknown, MISSING);
    }
}
