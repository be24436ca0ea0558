//! Which receivers refit notifies about roll-outs, and in which Alertmanagers it silences alerts of nodes that are
//! being upgraded: what follows from the state of the cluster, and what the requests contain. The controller sends
//! them.
//!
//! Nothing of this may hold up a roll-out: a mistake in the configuration is reported, and whatever else is valid is used.

mod body;
mod config;
mod notice;
mod silence;
mod template;

pub use body::{Body, Context, body};
pub use config::{Format, Mode, Problem, Receiver, SilenceRule, receivers, silence_rules};
pub use notice::{Notice, NoticeKind, Running, notices, running};
pub use silence::{KnownSilence, MAX_DURATION, Matcher, created_by, down, known_silences, silence};
pub use template::{Escape, Template};
