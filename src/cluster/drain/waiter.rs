//! What all waits of a drain share: errors of the API server that they wait out, progress, and the end by the controller.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::event::Event;
use super::failure::Failure;
use super::lister::PodLister;
use super::publish::Publisher;
use super::tracker::MAX_OUTAGE;
use crate::clock::Clock;
use crate::kube::{Answer, brief};
use refit_api::{Cancelled, DrainNote};

pub(super) struct Waiter<'a> {
    pub(super) lister: &'a PodLister,
    pub(super) clock: &'a Clock,
    pub(super) report: &'a (dyn Fn(Event) + Send + Sync),
    pub(super) publisher: Option<Publisher>,
    /// Completes when the controller has cancelled the drain.
    pub(super) cancelled: BoxFuture<'static, ()>,
    pub(super) failing_since: Option<Instant>,
}

impl Waiter<'_> {
    /// What was read, or `None` after an error that may pass.
    ///
    /// # Errors
    /// Fails with the message of an error that lasts.
    pub(super) fn admit<T>(&mut self, read: Result<T, kube::Error>) -> Result<Option<T>, String> {
        match read {
            Ok(read) => {
                self.failing_since = None;
                Ok(Some(read))
            }
            Err(error) => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                // A 403 lasts until someone changes a role, so a retry would only delay the message. Any other error may
                // come from a restart of the API server.
                let is_final = Answer::of(&error) == Answer::Forbidden;
                if is_final || since.elapsed() >= MAX_OUTAGE {
                    return Err(brief(&error));
                }
                Ok(None)
            }
        }
    }

    /// Shows the progress on the Node.
    pub(super) fn show(&self, note: &DrainNote) {
        if let Some(publisher) = &self.publisher {
            publisher.show(note);
        }
    }

    /// Reports the progress of a drain with so many pods left.
    pub(super) fn report(&self, pending: usize, note: DrainNote) {
        (self.report)(Event::Progress {
            node: self.lister.node.clone(),
            pending,
            note,
        });
    }

    /// Lets some time pass.
    ///
    /// # Errors
    /// Fails if the controller cancels the drain.
    pub(super) async fn pause(&mut self, time: Duration) -> Result<(), Failure> {
        tokio::select! {
            biased; // so that a rehearsal is reproducible
            () = &mut self.cancelled => Err(Failure::new(Cancelled.to_string())),
            () = sleep(time) => Ok(()),
        }
    }

    /// Writes no more progress.
    pub(super) async fn stop(self) {
        if let Some(publisher) = self.publisher {
            publisher.stop().await;
        }
    }
}
