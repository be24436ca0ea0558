//! The one loop over what watches say.

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Resource};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::metrics::Metrics;
use super::reports::Reports;
use refit_cluster::kube::permissions::{Need, may_all};
use refit_cluster::kube::watch::{Selection, Watch, WatchEvent};
use refit_cluster::kube::{Answer, brief};
use refit_facts::Watched;
use refit_facts::read::Unreadable;
use refit_facts::store::Change;

/// How long to wait before a permission that is missing is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// How long to wait after the question failed, or after a watch was refused that is permitted.
const RETRY: Duration = Duration::from_secs(5);

/// What all watches share.
#[derive(Clone)]
pub(super) struct Watches {
    pub(super) client: Client,
    /// Notified when the resource versions of the server went back, so that all known facts may be wrong.
    pub(super) restored: Arc<Notify>,
    /// Reports objects that cannot be read.
    pub(super) reports: Reports,
    /// Counts failures.
    pub(super) metrics: Metrics,
}

/// What is watched.
#[derive(Default)]
pub(super) struct Subject {
    pub(super) selection: Selection,
    /// As which resource it counts in the metrics, if it does.
    pub(super) resource: Option<&'static str>,
    /// What is asked for before the watch, so that under roles that lack it nothing is refused; system-upgrade-controller's
    /// do.
    pub(super) permission: Option<Permission>,
    /// Whether the cluster may not have the kind.
    pub(super) may_be_unknown: bool,
    /// Whether to list only, once.
    pub(super) once: bool,
    /// Set after the first message.
    pub(super) told: Option<watch::Sender<bool>>,
}

impl Subject {
    async fn send<M>(&self, messages: &mpsc::Sender<M>, message: Option<M>) {
        let Some(message) = message else { return };
        // Fails only if the receiver has ended, and then this task ends too.
        let _ = messages.send(message).await;
        if let Some(told) = &self.told {
            told.send_replace(true);
        }
    }
}

pub(super) struct Permission {
    pub(super) need: Need,
    pub(super) namespace: String,
    /// The one object that is watched.
    pub(super) name: Option<&'static str>,
}

/// What a watch says.
#[derive(Debug)]
pub(super) enum News<K> {
    Change(Change<K>),
    /// The server has accepted the watch.
    Watching,
    /// The permission is missing.
    NotPermitted,
    /// A request has failed, and why. The watch goes on.
    Failed(Answer, String),
}

impl Watches {
    /// Sends what follows from what a watch says. Ends only after a list that is all, or if that fails.
    pub(super) async fn follow<K, M>(
        &self,
        subject: Subject,
        messages: &mpsc::Sender<M>,
        mut message: impl FnMut(News<K>) -> Option<M>,
    ) where
        K: Watched + Resource<DynamicType = ()>,
    {
        let Some(Permission {
            need,
            namespace,
            name,
        }) = &subject.permission
        else {
            return self.watch(&subject, messages, &mut message).await;
        };
        loop {
            let (news, pause) = match may_all(&self.client, Some(namespace), need, *name).await {
                Ok(true) => {
                    self.watch(&subject, messages, &mut message).await;
                    (None, RETRY)
                }
                Ok(false) => (Some(News::NotPermitted), ASK_AGAIN),
                Err(error) => {
                    let why = format!("its permission cannot be checked: {}", brief(&error));
                    tracing::warn!(kind = %K::kind(&()), error = why, "cannot watch yet");
                    (Some(News::Failed(Answer::of(&error), why)), RETRY)
                }
            };
            subject.send(messages, news.and_then(&mut message)).await;
            sleep(pause).await;
        }
    }

    /// Returns if the watch is refused although its permission was asked for.
    async fn watch<K, M>(
        &self,
        subject: &Subject,
        messages: &mpsc::Sender<M>,
        message: &mut impl FnMut(News<K>) -> Option<M>,
    ) where
        K: Watched + Resource<DynamicType = ()>,
    {
        let mut watch = Watch::<K>::new(self.client.clone(), subject.selection.clone());
        loop {
            let mut is_last = false;
            let news = match watch.next().await {
                WatchEvent::Watching => News::Watching,
                WatchEvent::Change(change) => {
                    match &change {
                        Change::Object(object) => self.reports.report_ignored(object),
                        Change::Unreadable(unreadable) => self.skip::<K>(subject, unreadable),
                        Change::ListFinished(_) => is_last = subject.once,
                        _ => {}
                    }
                    News::Change(change)
                }
                WatchEvent::VersionsReset => {
                    self.restored.notify_one();
                    // The controller starts over, and drops this task together with all others of the leader.
                    return std::future::pending().await;
                }
                // The watch goes on, because the CRD may be installed later.
                WatchEvent::Failed(error) if subject.may_be_unknown && error.answer() == Answer::NotFound => {
                    News::Change(Change::Unknown)
                }
                WatchEvent::Failed(error) => {
                    let (answer, why) = (error.answer(), error.to_string());
                    tracing::warn!(
                        kind = %K::kind(&()),
                        selected = subject.selection.fields,
                        error = why,
                        "cannot list or watch; refit tries again"
                    );
                    if let Some(resource) = subject.resource {
                        self.metrics.watch_restarted(resource);
                    }
                    if answer == Answer::Forbidden && subject.permission.is_some() {
                        return;
                    }
                    is_last = subject.once;
                    News::Failed(answer, why)
                }
            };
            subject.send(messages, message(news)).await;
            if is_last {
                return;
            }
        }
    }

    /// Counts and reports an object that cannot be read.
    fn skip<K: Resource<DynamicType = ()>>(&self, subject: &Subject, unreadable: &Unreadable) {
        if let Some(resource) = subject.resource {
            self.metrics.unreadable(resource);
        }
        self.reports.report(&K::kind(&()), unreadable);
    }
}

/// What is known of an object that is watched by its name.
pub(super) enum Named<K> {
    There(K),
    /// It exists, and cannot be read.
    Unreadable(Unreadable),
    /// A list at this resource version did not contain it.
    Absent(u64),
    Deleted,
}

/// What a watch of one name says of the object.
pub(super) fn named<K>() -> impl FnMut(Change<K>) -> Option<Named<K>> {
    let mut is_found = false;
    move |change| {
        let (found, known) = match change {
            Change::ListStarted | Change::Unknown => (false, None),
            Change::Object(object) => (true, Some(Named::There(object))),
            Change::Unreadable(unreadable) => (true, Some(Named::Unreadable(unreadable))),
            Change::ListFinished(version) => (is_found, (!is_found).then_some(Named::Absent(version))),
            Change::Deleted { .. } => (false, Some(Named::Deleted)),
        };
        is_found = found;
        known
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::events::Source;
    use crate::lease::Progress;
    use crate::outbox::outbox;
    use refit_cluster::clock::Clock;
    use refit_cluster::kube::permissions::Scope;
    use refit_facts::objects::maintenance::{KubevirtMaintenance, Maintenance};

    fn watches(client: Client) -> Watches {
        let (outbox, _) = outbox();
        let source = Source {
            controller: "refit".to_owned(),
            node_name: "node".to_owned(),
            namespace: "system-upgrade".to_owned(),
        };
        Watches {
            client,
            restored: Arc::default(),
            reports: Reports::new(outbox, source, Clock::system()),
            metrics: Metrics::new(Arc::default(), Progress::default()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_permission_is_asked_for_before_the_watch_and_again_after_it_was_refused() {
        // Of two verbs, and again after the refusal, when it is gone.
        const GRANTED: usize = 2;
        let asked = Arc::new(AtomicUsize::new(0));
        let lists = Arc::new(AtomicUsize::new(0));
        let (counted, listed) = (Arc::clone(&asked), Arc::clone(&lists));
        let transport = tower::service_fn(move |request: Request<Body>| {
            let (code, answer) = if request.uri().path().ends_with("selfsubjectaccessreviews") {
                let allowed = counted.fetch_add(1, Ordering::Relaxed) < GRANTED;
                (201, json!({ "spec": {}, "status": { "allowed": allowed } }))
            } else {
                listed.fetch_add(1, Ordering::Relaxed);
                let status =
                    json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403 });
                (403, status)
            };
            async move {
                let response = Response::builder().status(code);
                Ok::<_, BoxError>(response.body(Body::from(answer.to_string().into_bytes()))?)
            }
        });
        let watches = watches(Client::new(transport, "default"));
        let (news, mut queue) = mpsc::channel::<News<ConfigMap>>(64);
        let subject = Subject {
            selection: Selection {
                path: ConfigMap::url_path(&(), Some("system-upgrade")),
                page: 1,
                ..Selection::default()
            },
            permission: Some(Permission {
                need: Need::new("", "configmaps", Scope::Namespace, &["list", "watch"]),
                namespace: "system-upgrade".to_owned(),
                name: None,
            }),
            ..Subject::default()
        };
        let start = tokio::time::Instant::now();
        tokio::spawn(async move { watches.follow(subject, &news, Some).await });
        assert!(matches!(
            queue.recv().await,
            Some(News::Change(Change::ListStarted))
        ));
        assert!(matches!(queue.recv().await, Some(News::NotPermitted)));
        assert_eq!(start.elapsed().as_secs(), RETRY.as_secs());
        assert_eq!(
            lists.load(Ordering::Relaxed),
            1,
            "a refused watch is not tried again"
        );
        assert!(matches!(queue.recv().await, Some(News::NotPermitted)));
        assert_eq!(start.elapsed().as_secs(), (RETRY + ASK_AGAIN).as_secs());
    }

    #[test]
    fn an_object_that_is_watched_by_its_name_is_there_or_not_once_a_list_has_ended() {
        let mut known = named::<u8>();
        assert!(known(Change::ListStarted).is_none());
        assert!(matches!(known(Change::ListFinished(7)), Some(Named::Absent(7))));
        assert!(matches!(known(Change::Object(1)), Some(Named::There(1))));
        assert!(known(Change::ListStarted).is_none());
        assert!(matches!(
            known(Change::Unreadable(Unreadable::default())),
            Some(Named::Unreadable(_))
        ));
        assert!(known(Change::ListFinished(8)).is_none(), "it exists");
    }

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
        let watches = watches(Client::new(transport, "default"));
        let (news, mut queue) = mpsc::channel::<News<KubevirtMaintenance>>(64);
        let subject = Subject {
            selection: Selection {
                path: KubevirtMaintenance::url_path(&(), None),
                page: 100,
                ..Selection::default()
            },
            may_be_unknown: true,
            ..Subject::default()
        };
        tokio::spawn(async move { watches.follow(subject, &news, Some).await });
        let mut last = tokio::time::Instant::now();
        let mut unknown = 0;
        while let Some(news) = queue.recv().await {
            let pause = last.elapsed();
            assert!(pause.as_secs() < 60, "{pause:?}");
            last = tokio::time::Instant::now();
            match news {
                News::Change(Change::Unknown) => unknown += 1,
                News::Change(Change::Object(object)) => {
                    assert_eq!(Maintenance::from(object).name(), "disk");
                    break;
                }
                News::Change(Change::ListStarted) => {}
                other => panic!("{other:?}, after {unknown} of a missing kind"),
            }
        }
        assert_eq!(unknown, MISSING);
    }
}
