//! Whether this process leads at this moment, worked out by whoever asks.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;

/// What the election task last made known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Somebody else leads, or nobody yet.
    Following,
    /// This process leads, counted from before the request of its last renewal left.
    Leading(Renewal),
    /// The election is over for this process.
    Ended,
}

/// When the Lease was renewed, on both clocks: the monotonic one cannot be set but stands still while the machine is
/// suspended, the wall clock does the opposite. Leadership ends by whichever is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Renewal {
    pub(super) at: Instant,
    pub(super) wall: Timestamp,
    pub(super) deadline: Duration,
}

impl Renewal {
    /// Whether the deadline has not passed on either clock. A wall clock that was set back says nothing.
    pub(super) fn holds(&self, clock: &Clock) -> bool {
        let wall = clock.now().duration_since(self.wall);
        let deadline = SignedDuration::try_from(self.deadline).unwrap_or(SignedDuration::MAX);
        self.at.elapsed() < self.deadline && wall < deadline
    }

    /// When it ends on the monotonic clock.
    pub(super) fn end(&self) -> Instant {
        self.at + self.deadline
    }
}

/// A handle that knows whether this process leads. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Unelected,
    Elected {
        standing: watch::Receiver<Standing>,
        clock: Clock,
    },
}

impl Leadership {
    /// Leadership of a controller that runs without leader election: from the start and for good.
    pub fn always() -> Self {
        Self(Kind::Unelected)
    }

    pub(super) fn elected(standing: watch::Receiver<Standing>, clock: Clock) -> Self {
        Self(Kind::Elected { standing, clock })
    }

    /// Whether this process leads now. Ask right before a write, not once at the start.
    pub fn is_leader(&self) -> bool {
        match &self.0 {
            Kind::Unelected => true,
            Kind::Elected { standing, clock } => match *standing.borrow() {
                Standing::Leading(renewal) => renewal.holds(clock),
                Standing::Following | Standing::Ended => false,
            },
        }
    }

    /// Waits until this process leads. Waits for ever when the election ends before that; see [`Self::lost`].
    pub async fn wait_until_leader(&self) {
        let Kind::Elected { standing, .. } = &self.0 else {
            return;
        };
        let mut standing = standing.clone();
        let leads = standing
            .wait_for(|standing| matches!(standing, Standing::Leading(_)))
            .await
            .is_ok();
        if !leads {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process has led and does so no more, or its election has ended.
    pub async fn lost(&self) {
        let Kind::Elected { standing, clock } = &self.0 else {
            return std::future::pending().await;
        };
        let mut standing = standing.clone();
        loop {
            let now = *standing.borrow_and_update();
            let changed = match now {
                Standing::Ended => return,
                Standing::Following => standing.changed().await,
                Standing::Leading(renewal) if !renewal.holds(clock) => return,
                Standing::Leading(renewal) => {
                    tokio::select! {
                        biased;
                        changed = standing.changed() => changed,
                        () = tokio::time::sleep_until(renewal.end()) => continue,
                    }
                }
            };
            if changed.is_err() {
                // The election task is gone. What it said last holds until its deadline, and no longer.
                if let Standing::Leading(renewal) = now {
                    tokio::time::sleep_until(renewal.end()).await;
                }
                return;
            }
        }
    }
}
