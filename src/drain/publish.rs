//! Writes how far a drain has come onto its own pod, where the controller reads it. Not too often, and never so that the
//! drain waits for it; where that is not allowed, it is left be.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::OwnPod;
use crate::api::{DrainNote, names};
use crate::controller::objects::SlimPod;

/// How often news is written: who waits for what is to be in status within ten seconds.
const PAUSE: Duration = Duration::from_secs(4);

/// Writes notes in the background until it is dropped.
pub(super) struct Publisher {
    notes: watch::Sender<Option<DrainNote>>,
    task: JoinHandle<()>,
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Publisher {
    pub(super) fn start(client: Client, pod: OwnPod) -> Self {
        let (notes, read) = watch::channel(None);
        Self {
            notes,
            task: tokio::spawn(run(client, pod, read)),
        }
    }

    /// What is to be seen from now on.
    pub(super) fn show(&self, note: &DrainNote) {
        self.notes.send_if_modified(|known| {
            let news = known.as_ref() != Some(note);
            if news {
                *known = Some(note.clone());
            }
            news
        });
    }
}

async fn run(client: Client, pod: OwnPod, mut notes: watch::Receiver<Option<DrainNote>>) {
    let api = Api::<SlimPod>::namespaced(client, &pod.namespace);
    // The status subresource takes annotations too, and whoever may write it cannot change what the pod runs.
    let mut by_status = true;
    while notes.changed().await.is_ok() {
        let due = Instant::now() + PAUSE;
        let Some(text) = notes.borrow_and_update().as_ref().map(DrainNote::to_text) else {
            continue;
        };
        let patch = Patch::Merge(json!({ "metadata": {
            "uid": pod.uid,
            "annotations": { names::ANNOTATION_DRAIN: text },
        } }));
        loop {
            let params = PatchParams::default();
            let written = if by_status {
                api.patch_status(&pod.name, &params, &patch).await
            } else {
                api.patch(&pod.name, &params, &patch).await
            };
            match written {
                Err(kube::Error::Api(status)) if status.code == 403 && by_status => by_status = false,
                // Not allowed, or the pod is gone or another one.
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409 | 422) => return,
                // The next note says more than this one would.
                Ok(_) | Err(_) => break,
            }
        }
        sleep_until(due).await;
    }
}
