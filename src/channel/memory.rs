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
