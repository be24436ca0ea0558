//! What is remembered between two polls: pages that have an entity tag, and rate limits. Both are bounded, and losing them
//! costs requests, nothing else.
//!
//! No credential is kept: what was read with one is found by a digest of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::header::{ETAG, LINK};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use url::Url;

use super::link::next_page;
use super::wire::Answer;
use super::{ChannelError, Release};

/// How many pages are kept, and how many bytes of versions, about.
const MAX_PAGES: usize = 512;
const MAX_BYTES: usize = 4 << 20;
/// What a release weighs beside its text.
const RELEASE: usize = 64;
/// How many rate limits are kept.
const MAX_LIMITS: usize = 256;
/// How long is waited where nobody says how long, and at most.
const SHORT_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Digest of what tells one question from another: URL, credentials, authorities.
pub(super) type Key = [u8; 32];

pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        // With their lengths, so that no two lists of parts are the same text.
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// A page of releases.
pub(super) struct Page {
    etag: Option<String>,
    pub(super) releases: Vec<Release>,
    pub(super) next: Option<Url>,
    /// When the server last said that it is so.
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
pub(super) struct Memory {
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

impl Memory {
    /// The page that was read before.
    pub(super) fn page(&self, key: &Key) -> Option<Arc<Page>> {
        let mut pages = lock(&self.pages);
        pages.uses += 1;
        let now = pages.uses;
        let (last, page) = pages.kept.get_mut(key)?;
        *last = now;
        Some(Arc::clone(page))
    }

    /// The page that an answer gives, and whether it is the one that was known.
    pub(super) fn settle(
        &self,
        key: Key,
        known: Option<&Page>,
        answer: &Answer,
        parse: impl FnOnce(&Answer) -> Result<Vec<Release>, ChannelError>,
    ) -> Result<(Arc<Page>, bool), ChannelError> {
        let page = match known {
            Some(known) if answer.status == StatusCode::NOT_MODIFIED => Page {
                etag: known.etag.clone(),
                releases: known.releases.clone(),
                next: known.next.clone(),
                seen: Instant::now(),
            },
            _ if answer.status.is_success() => Page {
                etag: answer.header(ETAG).map(str::to_owned),
                releases: parse(answer)?,
                next: next_page(&answer.url, answer.headers.get_all(LINK))?,
                seen: Instant::now(),
            },
            _ => return Err(ChannelError::Unexpected(answer.line())),
        };
        let unchanged = answer.status == StatusCode::NOT_MODIFIED;
        let page = Arc::new(page);
        if page.etag.is_some() {
            lock(&self.pages).keep(key, &page);
        } else {
            lock(&self.pages).forget(&key);
        }
        Ok((page, unchanged))
    }

    /// Until when nothing is to be asked, for the rate limit that was met.
    pub(super) fn limited(&self, key: &Key) -> Option<ChannelError> {
        let now = Instant::now();
        let mut limits = lock(&self.limits);
        limits.retain(|_, (lifted, _)| *lifted > now);
        let (_, until) = limits.get(key)?;
        Some(ChannelError::RateLimited { until: *until })
    }

    /// Keeps in mind that an answer speaks of a rate limit.
    pub(super) fn limit(&self, key: Key, answer: &Answer) -> ChannelError {
        let (wait, until) = wait(answer);
        let mut limits = lock(&self.limits);
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

/// Whether an answer is one of a rate limit (GitHub's REST API, "Rate limits"; RFC 6585).
pub(super) fn is_limit(answer: &Answer) -> bool {
    match answer.status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => {
            answer.header("x-ratelimit-remaining") == Some("0") || answer.headers.contains_key("retry-after")
        }
        _ => false,
    }
}

/// How long to wait, by the server's own clock; and until when, where it says that.
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
    // What is kept here is right after each step.
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
            body: Vec::new().into(),
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
    fn what_is_kept_has_a_bound_and_what_was_used_last_stays() {
        let memory = Memory::default();
        let tagged = answer(200, &[("etag", "\"1\"")]);
        let keep = |name: &str, count: usize| {
            memory
                .settle(key([name]), None, &tagged, |_| Ok(releases(count)))
                .unwrap();
        };
        for number in 0..600 {
            keep(&number.to_string(), 1);
            assert!(memory.page(&key(["0"])).is_some(), "it is used again and again");
        }
        assert_eq!(lock(&memory.pages).kept.len(), MAX_PAGES);
        assert!(memory.page(&key(["1"])).is_none());
        assert!(memory.page(&key(["599"])).is_some());
        keep("large", 40_000);
        keep("larger", 45_000);
        let pages = lock(&memory.pages);
        assert!(pages.weight <= MAX_BYTES);
        assert!(pages.kept.contains_key(&key(["larger"])) && !pages.kept.contains_key(&key(["large"])));
        let weight: usize = pages.kept.values().map(|(_, page)| page.weight()).sum();
        assert_eq!(weight, pages.weight);
    }

    #[test]
    fn a_page_is_kept_only_with_an_entity_tag_and_never_what_was_no_success() {
        let memory = Memory::default();
        let tagged = answer(200, &[("etag", "\"1\"")]);
        let (page, same) = memory
            .settle(key(["a"]), None, &tagged, |_| Ok(releases(2)))
            .unwrap();
        assert_eq!((page.releases.len(), same), (2, false));
        let unchanged = answer(304, &[]);
        let known = memory.page(&key(["a"]));
        let (page, same) = memory
            .settle(key(["a"]), known.as_deref(), &unchanged, |_| {
                panic!("there is nothing to read")
            })
            .unwrap();
        assert_eq!((page.releases.len(), page.etag(), same), (2, Some("\"1\""), true));
        // Nobody asked whether it had changed.
        let error = memory.settle(key(["b"]), None, &unchanged, |_| Ok(releases(2)));
        assert_eq!(
            error.err(),
            Some(ChannelError::Unexpected("HTTP/1.1 304 Not Modified".to_owned()))
        );
        let failed = memory.settle(key(["a"]), known.as_deref(), &answer(500, &[]), |_| {
            Ok(releases(2))
        });
        assert!(failed.is_err());
        assert!(memory.page(&key(["a"])).is_some(), "it may be right again");
        memory
            .settle(key(["a"]), None, &answer(200, &[]), |_| Ok(releases(2)))
            .unwrap();
        assert!(memory.page(&key(["a"])).is_none());
    }

    #[test]
    fn keys_are_told_apart_by_each_part() {
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
    async fn a_limit_ends() {
        let memory = Memory::default();
        let key = key(["a"]);
        assert_eq!(memory.limited(&key), None);
        memory.limit(key, &answer(429, &[("retry-after", "7")]));
        tokio::time::advance(Duration::from_millis(6900)).await;
        assert_eq!(
            memory.limited(&key),
            Some(ChannelError::RateLimited { until: None })
        );
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(memory.limited(&key), None);
    }
}
