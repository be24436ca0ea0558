//! Writes the progress of a drain to its own pod, where the controller reads it. It limits the rate, never delays the
//! drain, and stops if it lacks the permission.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::OwnPod;
use crate::api::{DrainNote, names};
use crate::kube::objects::SlimPod;

/// Interval between writes. Status must show what a drain waits for within ten seconds.
const PAUSE: Duration = Duration::from_secs(4);

/// Writes progress in the background until it is dropped.
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

    /// Sets the progress to write.
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
    // The status subresource accepts annotations too, and permission to patch it does not allow changes to what the pod
    // runs.
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
                // Forbidden, or the pod was deleted or replaced.
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409 | 422) => return,
                // The next progress supersedes this one.
                Ok(_) | Err(_) => break,
            }
        }
        sleep_until(due).await;
    }
}
