//! The version of the API server, which every client may read.

use std::time::Duration;

use tokio::sync::watch;

use super::Observer;
use refit_api::text::shorten;
use refit_cluster::kube::brief;
use refit_rollout::Observation;

/// Interval between two requests: a control plane is upgraded for minutes.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The interval while nodes wait for another version.
const WHILE_WANTED: Duration = Duration::from_secs(5);
/// Maximum length of a version, in bytes.
const MAX_VERSION: usize = 253;

impl Observer {
    /// Reports the version whenever it changes. What was known stays while the API server does not say it.
    pub(crate) async fn api_server(self, mut wanted: watch::Receiver<bool>) {
        let mut known = String::new();
        loop {
            match self.watches.client.apiserver_version().await {
                Ok(info) if info.git_version != known => {
                    let version = self.intern.text(&shorten(&info.git_version, MAX_VERSION));
                    known = info.git_version;
                    self.send(Observation::ApiServer(version)).await;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(
                    error = brief(&error),
                    "the version of the API server is not known"
                ),
            }
            let interval = if *wanted.borrow_and_update() {
                WHILE_WANTED
            } else {
                ASK_AGAIN
            };
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                Ok(()) = wanted.changed() => {}
            }
        }
    }
}
