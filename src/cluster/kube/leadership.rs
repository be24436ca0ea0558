//! Whether this process leads now, computed by the reader.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;

/// The last state of the election task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderState {
    /// Another process leads, or none yet.
    Following,
    /// This process leads, from before the request of its last renewal was sent.
    Leading(Renewal),
    /// The election is over for this process.
    Ended,
}

/// Time of the last renewal on two clocks that cannot be set. `Instant` stops while the machine is suspended,
/// and the other one does not. Leadership ends by whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub at: Instant,
    pub running: SignedDuration,
    pub deadline: Duration,
}

impl Renewal {
    /// Whether the deadline is in the future on both clocks.
    pub fn holds(&self, clock: &Clock) -> bool {
        let running = clock.running() - self.running;
        let deadline = SignedDuration::try_from(self.deadline).unwrap_or(SignedDuration::MAX);
        self.at.elapsed() < self.deadline && running < deadline
    }

    /// Its end on the monotonic clock.
    pub fn end(&self) -> Instant {
        self.at + self.deadline
    }
}

/// Tells whether this process leads. Cheap to clone and to query.
#[derive(Clone, Debug)]
pub struct Leadership(Election);

#[derive(Clone, Debug)]
enum Election {
    Unelected,
    Elected {
        state: watch::Receiver<LeaderState>,
        clock: Clock,
    },
}

impl Leadership {
    /// The leadership of a controller without leader election, which never ends.
    pub fn always() -> Self {
        Self(Election::Unelected)
    }

    pub fn elected(state: watch::Receiver<LeaderState>, clock: Clock) -> Self {
        Self(Election::Elected { state, clock })
    }

    /// Whether this process leads now. Query it before each write, not once.
    pub fn is_leader(&self) -> bool {
        match &self.0 {
            Election::Unelected => true,
            Election::Elected { state, clock } => match *state.borrow() {
                LeaderState::Leading(renewal) => renewal.holds(clock),
                LeaderState::Following | LeaderState::Ended => false,
            },
        }
    }

    /// Waits until this process leads. Never returns if the election ends before; see [`Self::lost`].
    pub async fn wait_until_leader(&self) {
        let Election::Elected { state, .. } = &self.0 else {
            return;
        };
        let mut state = state.clone();
        let leads = state
            .wait_for(|state| matches!(state, LeaderState::Leading(_)))
            .await
            .is_ok();
        if !leads {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process has lost the leadership, or its election has ended.
    pub async fn lost(&self) {
        let Election::Elected { state, clock } = &self.0 else {
            return std::future::pending().await;
        };
        let mut state = state.clone();
        loop {
            let now = *state.borrow_and_update();
            let changed = match now {
                LeaderState::Ended => return,
                LeaderState::Following => state.changed().await,
                LeaderState::Leading(renewal) if !renewal.holds(clock) => return,
                LeaderState::Leading(renewal) => {
                    tokio::select! {
                        biased;
                        changed = state.changed() => changed,
                        () = tokio::time::sleep_until(renewal.end()) => continue,
                    }
                }
            };
            if changed.is_err() {
                // The election task has ended. Its last state is valid until its deadline.
                if let LeaderState::Leading(renewal) = now {
                    tokio::time::sleep_until(renewal.end()).await;
                }
                return;
            }
        }
    }
}
