//! Rate limits of servers, kept until they end: a request before that is not sent.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, RETRY_AFTER};
use jiff::Timestamp;
use tokio::time::Instant;

use super::error::ChannelError;
use super::transport::{Answer, Key};

/// Maximum number of rate limits.
const MAX_LIMITS: usize = 256;
/// Wait after a rate limit if the server names none, and the longest wait: GitHub renews its limits every hour.
const SHORT_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// By server and credentials.
#[derive(Default)]
pub(super) struct RateLimits(Mutex<BTreeMap<Key, (Instant, ChannelError)>>);

impl RateLimits {
    /// Fails while a rate limit holds.
    pub(super) fn check(&self, key: &Key) -> Result<(), ChannelError> {
        let now = Instant::now();
        let mut limits = self.lock();
        limits.retain(|_, (lifted, _)| *lifted > now);
        limits.get(key).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// Stores the rate limit of a response. `remedy` is what raises it.
    pub(super) fn limit(&self, key: Key, answer: &Answer, remedy: Option<&'static str>) -> ChannelError {
        let (wait, until) = wait(answer);
        let error = ChannelError::RateLimited { until, remedy };
        let mut limits = self.lock();
        // A limit that is not stored costs one request per poll, which the server refuses.
        if limits.len() < MAX_LIMITS {
            limits.insert(key, (Instant::now() + wait, error.clone()));
        }
        error
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, (Instant, ChannelError)>> {
        // Safe after a panic: the content is consistent after each step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a response reports a rate limit (GitHub's REST API, "Rate limits"; RFC 6585).
pub(super) fn is_limit(answer: &Answer) -> bool {
    match answer.status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => {
            answer.header("x-ratelimit-remaining") == Some("0") || answer.headers.contains_key(RETRY_AFTER)
        }
        _ => false,
    }
}

/// How long to wait, and until when by the server's clock, if it has one.
fn wait(answer: &Answer) -> (Duration, Option<Timestamp>) {
    let seconds = |name: &str| answer.header(name)?.trim().parse::<i64>().ok();
    let now = answer
        .header(DATE)
        .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
        .map(|now| now.timestamp());
    let reset = seconds("x-ratelimit-reset").and_then(|reset| Timestamp::from_second(reset).ok());
    let left = match (seconds("retry-after"), reset, now) {
        (Some(after), ..) => Duration::from_secs(u64::try_from(after).unwrap_or_default()),
        (None, Some(reset), Some(now)) => Duration::try_from(reset.duration_since(now)).unwrap_or_default(),
        _ => SHORT_WAIT,
    };
    let left = left.clamp(Duration::from_secs(1), LONGEST_WAIT);
    (left, now.and_then(|now| now.checked_add(left).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName, Version};

    fn answer(code: u16, headers: &[(&'static str, &str)]) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        Answer {
            url: "https://r.example/".parse().unwrap(),
            status: StatusCode::from_u16(code).unwrap(),
            version: Version::HTTP_11,
            headers: headers.collect::<HeaderMap>(),
            length: 0,
        }
    }

    #[test]
    fn a_wait_is_read_off_by_the_servers_clock() {
        let date = ("date", "Sat, 21 Nov 2026 20:00:00 GMT");
        let none = None;
        for (headers, seconds, until) in [
            (
                &[date, ("x-ratelimit-reset", "1795291800")][..],
                600,
                Some("2026-11-21T20:10:00Z"),
            ),
            (
                &[date, ("x-ratelimit-reset", "1795291100")],
                1,
                Some("2026-11-21T20:00:01Z"),
            ),
            (
                &[date, ("x-ratelimit-reset", "1895291100")],
                3600,
                Some("2026-11-21T21:00:00Z"),
            ),
            (&[("x-ratelimit-reset", "1795291800")], 60, none),
            (
                &[date, ("retry-after", "7"), ("x-ratelimit-reset", "1795291800")],
                7,
                Some("2026-11-21T20:00:07Z"),
            ),
            (&[("retry-after", "-7")], 1, none),
            (&[("retry-after", "99999999")], 3600, none),
            (&[("retry-after", "soon")], 60, none),
            (
                &[date, ("x-ratelimit-reset", "99999999999999999")],
                60,
                Some("2026-11-21T20:01:00Z"),
            ),
            (&[], 60, none),
        ] {
            let until = until.map(|until| until.parse().unwrap());
            let expected = (Duration::from_secs(seconds), until);
            assert_eq!(wait(&answer(429, headers)), expected, "{headers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_expires() {
        let limits = RateLimits::default();
        assert_eq!(limits.check(&[0; 32]), Ok(()));
        let error = limits.limit([0; 32], &answer(429, &[("retry-after", "7")]), None);
        tokio::time::advance(Duration::from_millis(6900)).await;
        assert_eq!(limits.check(&[0; 32]), Err(error));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(limits.check(&[0; 32]), Ok(()));
    }
}
