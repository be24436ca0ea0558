//! What the loop tells the watches that it needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

use refit_facts::Text;

/// What is watched only while a Plan needs it; at first nothing.
#[derive(Default)]
pub struct Wanted {
    /// Whether to list pods, if they cannot be watched.
    pub pods: watch::Sender<bool>,
    /// Whether the version of the API server is of interest.
    pub api_server: watch::Sender<bool>,
    /// The Secrets that Plans have in their hash.
    pub secrets: watch::Sender<Arc<BTreeSet<Text>>>,
}

/// What the watches know of [`Wanted`].
pub struct Wishes {
    pub pods: watch::Receiver<bool>,
    pub api_server: watch::Receiver<bool>,
    pub secrets: watch::Receiver<Arc<BTreeSet<Text>>>,
}

impl Wanted {
    /// What the watches are to know of it.
    pub fn wishes(&self) -> Wishes {
        Wishes {
            pods: self.pods.subscribe(),
            api_server: self.api_server.subscribe(),
            secrets: self.secrets.subscribe(),
        }
    }
}
