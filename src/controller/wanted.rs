//! What the loop tells the watches that it needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

use refit_facts::Text;

/// What is watched only while a Plan needs it.
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
    /// Nothing is wanted yet.
    pub fn none() -> (Self, Wishes) {
        let (pods, pods_wanted) = watch::channel(false);
        let (api_server, api_server_wanted) = watch::channel(false);
        let (secrets, secrets_wanted) = watch::channel(Arc::default());
        let wishes = Wishes {
            pods: pods_wanted,
            api_server: api_server_wanted,
            secrets: secrets_wanted,
        };
        (
            Self {
                pods,
                api_server,
                secrets,
            },
            wishes,
        )
    }
}
