//! The note on the Lease about which Plans have existed. No kubelet can write a Lease of this namespace, so it proves what
//! the annotations of nodes cannot.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::watch;

use refit_api::names;

/// The note, shared by the loop, which decides what it says, and the election, which writes it with the next renewal.
#[derive(Clone, Debug, Default)]
pub struct PlansNote {
    wanted: Arc<watch::Sender<Option<String>>>,
    stored: Arc<watch::Sender<Option<String>>>,
}

impl PlansNote {
    /// Has the note written at once, and again with each renewal.
    pub fn write(&self, note: String) {
        let note = Some(note);
        self.wanted.send_if_modified(|wanted| {
            let is_news = *wanted != note;
            *wanted = note;
            is_news
        });
    }

    /// The note that is stored, and its changes.
    pub fn stored(&self) -> watch::Receiver<Option<String>> {
        self.stored.subscribe()
    }

    pub(super) fn requests(&self) -> watch::Receiver<Option<String>> {
        self.wanted.subscribe()
    }

    /// The Lease was read, or written.
    pub(super) fn observe(&self, lease: &Lease) {
        let annotations = lease.metadata.annotations.as_ref();
        let note = annotations.and_then(|all| all.get(names::ANNOTATION_KNOWN_PLANS));
        self.stored.send_if_modified(|stored| {
            let is_news = stored.as_ref() != note;
            if is_news {
                *stored = note.cloned();
            }
            is_news
        });
    }

    /// Adds the note to a Lease that is about to be written.
    pub(super) fn add_to(&self, lease: &mut Lease) {
        if let Some(note) = &*self.wanted.borrow() {
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(names::ANNOTATION_KNOWN_PLANS.to_owned(), note.clone());
        }
    }
}
