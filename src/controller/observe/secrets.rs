//! Watches of single Secrets: of those that Plans have in their hash, each by its name. So a Role may name them, and the
//! controller learns of no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::Observer;
use crate::metrics::SECRETS;
use crate::watches::{Named, News, Subject, named};
use refit_cluster::kube::Answer;
use refit_cluster::kube::watch::Selection;
use refit_facts::Text;
use refit_facts::objects::{SlimSecret, version};
use refit_rollout::Observation;

/// Number of Secrets that are watched at the same time. API servers answer at most 100 requests of a connection at a time,
/// and the requests of roll-outs share it with the watches.
/// Source of the 100: `MaxConcurrentStreams` in apiserver's `secure_serving.go`.
const MAX_WATCHES: usize = 32;
/// Duration of a watch while others wait for its place. Each begins with a list, so that no change is missed.
const TURN: Duration = Duration::from_secs(5);

type Wanted = watch::Receiver<Arc<BTreeSet<Text>>>;

impl Observer {
    /// Watches the metadata of these Secrets: whether they exist, and when one changes.
    pub(crate) async fn secrets(self, mut wanted: Wanted) {
        let places = Arc::new(Semaphore::new(MAX_WATCHES));
        let mut watches = JoinSet::new();
        let mut running = BTreeMap::<Text, AbortHandle>::new();
        loop {
            let names = Arc::clone(&wanted.borrow_and_update());
            running.retain(|name, watch| {
                let is_wanted = names.contains(name);
                if !is_wanted {
                    watch.abort();
                }
                is_wanted
            });
            for name in &*names {
                running.entry(name.clone()).or_insert_with_key(|name| {
                    watches.spawn(
                        self.clone()
                            .secret(name.clone(), wanted.clone(), Arc::clone(&places)),
                    )
                });
            }
            tokio::select! {
                biased;
                changed = wanted.changed() => if changed.is_err() { return },
                Some(_) = watches.join_next() => {}
            }
        }
    }

    /// Watches a Secret, in turn with the others if there are many.
    async fn secret(self, name: Text, mut wanted: Wanted, places: Arc<Semaphore>) {
        let mut forbidden = false;
        while let Ok(_place) = places.acquire().await {
            let is_crowded = async {
                let _ = wanted.wait_for(|names| names.len() > MAX_WATCHES).await;
                tokio::time::sleep(TURN).await;
            };
            tokio::select! {
                biased;
                () = self.follow_secret(&name, &mut forbidden) => return,
                () = is_crowded => {}
            }
        }
    }

    async fn follow_secret(&self, name: &Text, refused: &mut bool) {
        let secret = Subject {
            selection: Selection {
                fields: Some(format!("metadata.name={name}")),
                // The content does not enter this process before a hash needs it.
                metadata_only: true,
                ..self.all::<SlimSecret>(true)
            },
            resource: Some(SECRETS),
            ..Subject::default()
        };
        let mut known = named::<SlimSecret>();
        let observe = |news| match news {
            News::Change(change) => match known(change)? {
                Named::There(secret) => Some(Observation::Secret(version(secret.meta()), name.clone())),
                Named::Absent(version) => Some(Observation::SecretAbsent(version, name.clone())),
                Named::Deleted => Some(Observation::SecretDeleted(name.clone())),
                Named::Unreadable(_) => None,
            },
            News::Watching if *refused => {
                *refused = false;
                Some(Observation::SecretForbidden(name.clone(), false))
            }
            News::Failed(Answer::Forbidden, _) if !*refused => {
                *refused = true;
                Some(Observation::SecretForbidden(name.clone(), true))
            }
            _ => None,
        };
        self.follow(secret, observe).await;
    }
}
