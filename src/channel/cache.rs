//! Pages with an entity tag, and rate limits, kept between polls. Both are bounded, and losing them costs only
//! requests.
//!
//! No credentials are kept: the key of a page contains a digest of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::header::{ETAG, LINK};
use jiff::Timestamp;
use tokio::time::Instant;
use url::Url;

use super::ChannelError;
use super::link::next_page;
use super::transport::Answer;
use refit_base::version::Release;

/// Maximum number of pages, and approximate maximum size of their versions in bytes.
const MAX_PAGES: usize = 512;
const MAX_BYTES: usize = 4 << 20;
/// Size of a release without its text.
const RELEASE: usize = 64;
/// Maximum length of an entity tag. A page with a longer one is not kept.
const MAX_ETAG: usize = 256;
/// Maximum number of rate limits.
const MAX_LIMITS: usize = 256;
/// Wait after a rate limit if the server names none, and the longest wait: GitHub renews its limits every hour.
const SHORT_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Digest of URL, credentials and authorities.
pub(super) type Key = [u8; 32];

pub(super) use refit_api::digest::digest as key;

pub(super) struct Page {
    etag: Option<String>,
    pub(super) releases: Vec<Release>,
    pub(super) next: Option<Url>,
    /// When the server last confirmed it.
    seen: Instant,
}

impl Page {
    pub(super) fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    pub(super) fn age(&self) -> Duration {
        self.seen.elapsed()
    }

    fn weight(&self) -> usize {
        let texts = self
            .releases
            .iter()
            .map(|release| release.version.len() + RELEASE);
        texts.sum::<usize>() + RELEASE
    }
}

#[derive(Default)]
pub(super) struct ResponseCache {
    pages: Mutex<Pages>,
    limits: Mutex<BTreeMap<Key, (Instant, Option<Timestamp>)>>,
}

#[derive(Default)]
struct Pages {
    /// With a number that grows with each use.
    kept: BTreeMap<Key, (u64, Arc<Page>)>,
    uses: u64,
    weight: usize,
}

impl ResponseCache {
    pub(super) fn page(&self, key: &Key) -> Option<Arc<Page>> {
        let mut pages = lock(&self.pages);
        pages.uses += 1;
        let now = pages.uses;
        let (last, page) = pages.kept.get_mut(key)?;
        *last = now;
        Some(Arc::clone(page))
    }

    /// Stores the page of a response with its releases, if it has a body, and returns whether it was unchanged.
    pub(super) fn store(
        &self,
        key: Key,
        known: Option<&Page>,
        answer: &Answer,
        releases: Option<Vec<Release>>,
    ) -> Result<(Arc<Page>, bool), ChannelError> {
        let page = match (known, releases) {
            (Some(known), _) if answer.status == StatusCode::NOT_MODIFIED => Page {
                etag: known.etag.clone(),
                releases: known.releases.clone(),
                // A 304 need not repeat `Link` (RFC 9110, 15.4.5).
                next: known.next.clone(),
                seen: Instant::now(),
            },
            (_, Some(releases)) => Page {
                etag: answer
                    .header(ETAG)
                    .filter(|etag| etag.len() <= MAX_ETAG)
                    .map(str::to_owned),
                releases,
                next: next_page(&answer.url, answer.headers.get_all(LINK))?,
                seen: Instant::now(),
            },
            _ => return Err(ChannelError::Unexpected(answer.line())),
        };
        let unchanged = answer.status == StatusCode::NOT_MODIFIED;
        let page = Arc::new(page);
        // Without an entity tag there is no `If-None-Match`, so the page would be sent again anyway.
        if page.etag.is_some() {
            lock(&self.pages).keep(key, &page);
        } else {
            lock(&self.pages).forget(&key);
        }
        Ok((page, unchanged))
    }

    /// The error of the current rate limit, if any.
    pub(super) fn limited(&self, key: &Key) -> Option<ChannelError> {
        let now = Instant::now();
        let mut limits = lock(&self.limits);
        limits.retain(|_, (lifted, _)| *lifted > now);
        let (_, until) = limits.get(key)?;
        Some(ChannelError::RateLimited { until: *until })
    }

    /// Stores the rate limit of a response.
    pub(super) fn limit(&self, key: Key, answer: &Answer) -> ChannelError {
        let (wait, until) = wait(answer);
        let mut limits = lock(&self.limits);
        // A limit that is not stored costs one request per poll, which the server refuses.
        if limits.len() < MAX_LIMITS {
            limits.insert(key, (Instant::now() + wait, until));
        }
        ChannelError::RateLimited { until }
    }
}

impl Pages {
    fn keep(&mut self, key: Key, page: &Arc<Page>) {
        self.forget(&key);
        self.uses += 1;
        self.weight += page.weight();
        self.kept.insert(key, (self.uses, Arc::clone(page)));
        while self.kept.len() > MAX_PAGES || self.weight > MAX_BYTES {
            let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                break;
            };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &Key) {
        if let Some((_, page)) = self.kept.remove(key) {
            self.weight -= page.weight();
        }
    }
}

/// Whether a response reports a rate limit (GitHub's REST API, "Rate limits"; RFC 6585).
pub(super) fn is_limit(answer: &Answer) -> bool {
    match answer.status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => {
            answer.header("x-ratelimit-remaining") == Some("0") || answer.headers.contains_key("retry-after")
        }
        _ => false,
    }
}

/// How long to wait by the server's clock, and until when, if the server says so.
fn wait(answer: &Answer) -> (Duration, Option<Timestamp>) {
    let seconds = |name: &str| answer.header(name)?.trim().parse::<i64>().ok();
    if let Some(after) = seconds("retry-after") {
        let after = Duration::from_secs(u64::try_from(after).unwrap_or_default());
        return (after.clamp(Duration::from_secs(1), LONGEST_WAIT), None);
    }
    let reset = seconds("x-ratelimit-reset").and_then(|reset| Timestamp::from_second(reset).ok());
    let now = answer
        .header("date")
        .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
        .map(|now| now.timestamp());
    match (reset, now) {
        (Some(reset), Some(now)) => {
            let left = Duration::try_from(reset.duration_since(now)).unwrap_or_default();
            (left.clamp(Duration::from_secs(1), LONGEST_WAIT), Some(reset))
        }
        (reset, _) => (SHORT_WAIT, reset),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Safe after a panic: the content is consistent after each step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn releases(count: usize) -> Vec<Release> {
        let release = |number: usize| Release {
            version: format!("v{number:010}"),
            published: None,
        };
        (0..count).map(release).collect()
    }

    #[test]
    fn the_response_cache_is_bounded_and_evicts_the_least_recently_used_page() {
        let cache = ResponseCache::default();
        let tagged = answer(200, &[("etag", "\"1\"")]);
        let keep = |name: &str, count: usize| {
            cache
                .store(key([name]), None, &tagged, Some(releases(count)))
                .unwrap();
        };
        for number in 0..600 {
            keep(&number.to_string(), 1);
            assert!(cache.page(&key(["0"])).is_some(), "it is used again and again");
        }
        assert_eq!(lock(&cache.pages).kept.len(), MAX_PAGES);
        assert!(cache.page(&key(["1"])).is_none());
        assert!(cache.page(&key(["599"])).is_some());
        keep("large", 40_000);
        keep("larger", 45_000);
        let pages = lock(&cache.pages);
        assert!(pages.weight <= MAX_BYTES);
        assert!(pages.kept.contains_key(&key(["larger"])) && !pages.kept.contains_key(&key(["large"])));
        let weight: usize = pages.kept.values().map(|(_, page)| page.weight()).sum();
        assert_eq!(weight, pages.weight);
    }

    #[test]
    fn a_page_is_kept_only_with_an_entity_tag_and_never_what_was_no_success() {
        let cache = ResponseCache::default();
        let tagged = answer(200, &[("etag", "\"1\"")]);
        let (page, same) = cache.store(key(["a"]), None, &tagged, Some(releases(2))).unwrap();
        assert_eq!((page.releases.len(), same), (2, false));
        let unchanged = answer(304, &[]);
        let known = cache.page(&key(["a"]));
        let (page, same) = cache
            .store(key(["a"]), known.as_deref(), &unchanged, None)
            .unwrap();
        assert_eq!((page.releases.len(), page.etag(), same), (2, Some("\"1\""), true));
        // Without `If-None-Match` a 304 is an error.
        let error = cache.store(key(["b"]), None, &unchanged, None);
        assert_eq!(
            error.err(),
            Some(ChannelError::Unexpected("HTTP/1.1 304 Not Modified".to_owned()))
        );
        let failed = cache.store(key(["a"]), known.as_deref(), &answer(500, &[]), None);
        assert!(failed.is_err());
        assert!(cache.page(&key(["a"])).is_some(), "it may be right again");
        cache
            .store(key(["a"]), None, &answer(200, &[]), Some(releases(2)))
            .unwrap();
        assert!(cache.page(&key(["a"])).is_none());
    }

    #[test]
    fn a_cache_key_depends_on_each_of_its_parts() {
        assert_ne!(key(["a", "bc"]), key(["ab", "c"]));
        assert_ne!(key(["a", ""]), key(["a"]));
    }

    #[test]
    fn a_wait_is_read_off_by_the_servers_clock() {
        let date = ("date", "Sat, 21 Nov 2026 20:00:00 GMT");
        let at = |second: i64| Timestamp::from_second(second).ok();
        for (headers, seconds, until) in [
            (
                &[date, ("x-ratelimit-reset", "1795291800")][..],
                600,
                at(1_795_291_800),
            ),
            (&[date, ("x-ratelimit-reset", "1795291100")], 1, at(1_795_291_100)),
            (
                &[date, ("x-ratelimit-reset", "1895291100")],
                3600,
                at(1_895_291_100),
            ),
            (&[("x-ratelimit-reset", "1795291800")], 60, at(1_795_291_800)),
            (
                &[date, ("retry-after", "7"), ("x-ratelimit-reset", "1795291800")],
                7,
                None,
            ),
            (&[("retry-after", "-7")], 1, None),
            (&[("retry-after", "99999999")], 3600, None),
            (&[("retry-after", "soon")], 60, None),
            (&[date, ("x-ratelimit-reset", "99999999999999999")], 60, None),
            (&[], 60, None),
        ] {
            assert_eq!(
                wait(&answer(429, headers)),
                (Duration::from_secs(seconds), until),
                "{headers:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_expires() {
        let cache = ResponseCache::default();
        let key = key(["a"]);
        assert_eq!(cache.limited(&key), None);
        cache.limit(key, &answer(429, &[("retry-after", "7")]));
        tokio::time::advance(Duration::from_millis(6900)).await;
        assert_eq!(
            cache.limited(&key),
            Some(ChannelError::RateLimited { until: None })
        );
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(cache.limited(&key), None);
    }
}
