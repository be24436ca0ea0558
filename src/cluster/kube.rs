//! The Kubernetes API for this crate: a client with timeouts, facts extracted from objects, permission checks, and
//! short error messages. Decides nothing.
//!
//! `kube::` is the external crate everywhere except in paths that begin with `crate::`.

mod causes;
pub mod client;
mod error;
mod leadership;
pub mod pages;
pub mod permissions;
pub mod read;
pub mod served;
pub mod watch;

pub(crate) use error::should_reread;
pub use error::{Answer, Failure, brief, failure, is_too_large, is_unauthorized, would_prune};
pub use leadership::{LeaderState, Leadership, Renewal};
