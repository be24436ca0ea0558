//! Writes the progress of a drain to its Node, where the controller reads it. It limits the rate, never delays the drain,
//! and stops if it lacks the permission. The last patch of the drain removes the note.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::plan_run::PlanRun;
use crate::kube::Answer;
use refit_api::ids::NodeUid;
use refit_api::{DrainNote, NodeDrain, names};
use refit_facts::objects::SlimNode;

/// Interval between writes. Status must show what a drain waits for within ten seconds.
const PAUSE: Duration = Duration::from_secs(4);

/// Most drains are over by then, and write nothing.
const FIRST: Duration = Duration::from_secs(1);
/// How long to wait for the answer to a write in flight, so that it does not come after the last patch of the drain.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Writes progress in the background until it is stopped or dropped.
pub(super) struct Publisher {
    notes: watch::Sender<Option<DrainNote>>,
    task: JoinHandle<()>,
    /// Locked while a write is in flight.
    writing: Arc<Mutex<()>>,
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Publisher {
    /// `None` if the drain runs for no Plan, or in no pod.
    pub(super) fn start(client: Client, node: &str, plan: &PlanRun) -> Option<Self> {
        let (notes, read) = watch::channel(None);
        let drain = NodeDrain {
            plan: plan.holder.plan.clone(),
            pod: plan.pod.clone()?,
            note: DrainNote::default(),
        };
        let node = (node.to_owned(), plan.node_uid.clone());
        let writing = Arc::<Mutex<()>>::default();
        Some(Self {
            notes,
            task: tokio::spawn(run(client, node, drain, read, Arc::clone(&writing))),
            writing,
        })
    }

    /// Sets the progress to write.
    pub(super) fn show(&self, note: &DrainNote) {
        self.notes.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(note);
            if is_new {
                *known = Some(note.clone());
            }
            is_new
        });
    }

    /// Writes nothing more.
    pub(super) async fn stop(self) {
        let idle = timeout(LAST_ANSWER, self.writing.lock()).await;
        self.task.abort();
        drop(idle);
    }
}

async fn run(
    client: Client,
    (name, uid): (String, NodeUid),
    drain: NodeDrain,
    mut notes: watch::Receiver<Option<DrainNote>>,
    writing: Arc<Mutex<()>>,
) {
    let api = Api::<SlimNode>::all(client);
    let uid = Some(uid).filter(|uid| !uid.is_empty());
    sleep(FIRST).await;
    while notes.changed().await.is_ok() {
        let due = Instant::now() + PAUSE;
        let Some(note) = notes.borrow_and_update().clone() else {
            continue;
        };
        let text = NodeDrain {
            note,
            ..drain.clone()
        }
        .to_text();
        let mut metadata = json!({ "annotations": { names::ANNOTATION_DRAIN: text } });
        // With the UID the API server refuses the patch if a Node of the same name has been created since.
        if let Some(uid) = &uid {
            metadata["uid"] = json!(uid);
        }
        // No resource version: only this drain sets the annotation, so a conflict with a write of the kubelet would
        // mean nothing.
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let guard = writing.lock().await;
        let written = api.patch(&name, &PatchParams::default(), &patch).await;
        drop(guard);
        match written {
            // Forbidden, or the node was deleted or replaced.
            Err(error)
                if matches!(
                    Answer::of(&error),
                    Answer::Forbidden | Answer::NotFound | Answer::Conflict | Answer::Invalid
                ) =>
            {
                return;
            }
            // The next progress supersedes this one.
            Ok(_) | Err(_) => {}
        }
        // A drain of many pods changes several times a second, and each write goes to every watcher of Nodes.
        sleep_until(due).await;
    }
}
