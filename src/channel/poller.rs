//! What all polls share. Each kind of channel has its own file with the rest.

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;

use super::body::ReadingLimit;
use super::error::ChannelError;
use super::kept::KeptOffers;
use super::rate_limit::RateLimits;
use super::transport::HttpTransport;

/// Time limit of a request, from the connection to the end of its response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of all requests of a poll together, for pages and tokens, in multiples of [`TIMEOUT`].
const MAX_REQUEST_TIMEOUTS: u32 = 4;

#[derive(Clone)]
pub(super) struct Poller {
    pub(super) transport: Arc<HttpTransport>,
    pub(super) kept: Arc<KeptOffers>,
    pub(super) limits: Arc<RateLimits>,
    pub(super) reading: ReadingLimit,
    /// UID of the namespace `kube-system`.
    pub(super) cluster_id: Option<HeaderValue>,
    pub(super) timeout: Duration,
}

impl Poller {
    pub(super) fn new(transport: HttpTransport, cluster_id: &str) -> Self {
        let cluster_id = Some(cluster_id).filter(|id| !id.is_empty());
        Self {
            transport: Arc::new(transport),
            kept: Arc::default(),
            limits: Arc::default(),
            reading: ReadingLimit::default(),
            cluster_id: cluster_id.and_then(|id| HeaderValue::from_str(id).ok()),
            timeout: TIMEOUT,
        }
    }

    /// All requests of a poll.
    pub(super) async fn poll<T>(
        &self,
        asking: impl Future<Output = Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        within(self.timeout * MAX_REQUEST_TIMEOUTS, Box::pin(asking)).await
    }
}

pub(super) async fn within<T>(
    timeout: Duration,
    asking: impl Future<Output = Result<T, ChannelError>>,
) -> Result<T, ChannelError> {
    tokio::time::timeout(timeout, asking)
        .await
        .unwrap_or(Err(ChannelError::TimedOut(timeout)))
}
