//! The releases of a GitHub repository from its API, without drafts and prereleases.
//!
//! GitHub lists the newest releases first, so all pages are read only if the first one has another release than before:
//! without a token, each request counts towards 60 an hour.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use url::Url;

use super::access::Access;
use super::body::{Body, Share};
use super::credentials::Auth;
use super::error::ChannelError;
use super::items::{List, each};
use super::kept::{KeptOffer, etag};
use super::kind::Github;
use super::link::next_page;
use super::poller::Poller;
use super::rate_limit::is_limit;
use super::transport::{Answer, Key, Request, fetch};
use refit_api::digest::digest;
use refit_base::version::tag::{check, munge};
use refit_base::version::{Offer, Release};

const ACCEPTED: &str = "application/vnd.github+json";
const API_VERSION: (&str, &str) = ("x-github-api-version", "2022-11-28");
/// Maximum page size of the API.
const PER_PAGE: usize = 100;
/// Number of pages to read.
const MAX_PAGES: usize = 10;
/// A release of k3s takes about 50 kB, mostly for its assets.
const MAX_BODY: usize = 16 << 20;
/// Maximum number of releases in a page, whatever the server thinks of [`PER_PAGE`].
const MAX_IN_PAGE: usize = 1_000;
/// What raises the rate limit of a client without credentials.
const REMEDY: &str = "set a token: spec.channelSecretRef, or --token-file on the command line";

/// A release in the API ("List releases").
#[derive(Deserialize)]
struct ApiRelease {
    tag_name: String,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    prerelease: bool,
    #[serde(default)]
    published_at: Option<Timestamp>,
}

impl Poller {
    pub(super) async fn github(&self, github: &Github, access: &Access) -> Result<Offer, ChannelError> {
        let credentials = access.credentials.as_ref();
        // What one client may read is not given to another one.
        let mut identity = vec![github.api.to_string(), access.ca.clone().unwrap_or_default()];
        identity.extend(credentials.iter().flat_map(|credentials| credentials.parts()));
        let key = digest(identity.iter().map(String::as_str));
        self.limits.check(&key)?;
        let clients = self.transport.clients(access.ca.as_deref())?;
        let auth = credentials.map(|credentials| Auth::new(credentials, &github.api));
        let auth = auth.transpose()?;
        let known = self.kept.get(&key);
        let start = github.api.join(&format!("releases?per_page={PER_PAGE}"));
        let mut next = Some(start.map_err(|_| ChannelError::NotAUrl)?);
        let (mut releases, mut seen): (Vec<Release>, BTreeSet<Url>) = (Vec::new(), BTreeSet::new());
        let (mut first, mut partial) = (None, None);
        let share = self.reading.share();
        while let Some(url) = next.take() {
            if seen.len() >= MAX_PAGES {
                let most = MAX_PAGES * PER_PAGE;
                partial = Some(format!("only the newest {most} releases are read"));
                break;
            }
            if !seen.insert(url.clone()) {
                return Err(ChannelError::Paging);
            }
            let known = known.as_ref().filter(|_| first.is_none());
            let request = Request {
                method: Method::GET,
                url: &url,
                accept: ACCEPTED,
                etag: known.and_then(|known| known.etag.as_deref()),
                auth: auth.as_ref(),
                header: Some(API_VERSION),
                limit: MAX_BODY,
            };
            let share = share.clone();
            let parser = move |body: &mut Body| published(body, &share);
            let (answer, page) = fetch(&clients, self.timeout, &request, parser).await?;
            let page = match (page, known) {
                (Some(page), Some(known)) if page == known.first => return Ok(known.offer.clone()),
                (Some(page), _) => page,
                (None, Some(known)) if answer.status == StatusCode::NOT_MODIFIED => {
                    return Ok(known.offer.clone());
                }
                (None, _) => return Err(self.refusal(&answer, key, auth.is_some())),
            };
            next = next_page(&answer.url, answer.headers.get_all(http::header::LINK))?;
            releases.extend(page.iter().cloned());
            first.get_or_insert_with(|| (etag(&answer), page));
        }
        if releases.is_empty() {
            let none = "the repository has no release other than drafts and prereleases";
            return Err(ChannelError::NoRelease(none));
        }
        // A release that is published between two requests moves others to the next page.
        releases.sort_by(|one, other| one.version.cmp(&other.version));
        releases.dedup_by(|one, other| one.version == other.version);
        let offer = Offer { releases, partial };
        if let Some((etag, first)) = first {
            let offer = offer.clone();
            self.kept.keep(key, KeptOffer { etag, first, offer });
        }
        Ok(offer)
    }

    /// The error of a response that is no success. `given` is whether it had credentials.
    fn refusal(&self, answer: &Answer, key: Key, given: bool) -> ChannelError {
        if is_limit(answer) {
            return self.limits.limit(key, answer, (!given).then_some(REMEDY));
        }
        let status = answer.line();
        match answer.status {
            StatusCode::NOT_FOUND => ChannelError::NoRepository(status),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ChannelError::Denied { status, given },
            _ => ChannelError::Unexpected(status),
        }
    }
}

/// The releases of a page that are neither drafts nor prereleases, and can be an image tag and a label value.
fn published(body: &mut Body, share: &Share) -> Result<Vec<Release>, ChannelError> {
    let (mut count, mut releases) = (0, Vec::new());
    each(body, List::Root, "list of releases", |one: ApiRelease| {
        count += 1;
        if count > MAX_IN_PAGE {
            return Err(ChannelError::TooManyReleases(MAX_IN_PAGE));
        }
        if !one.draft && !one.prerelease && check(&munge(&one.tag_name)).is_ok() {
            share.take()?;
            releases.push(Release {
                version: one.tag_name,
                published: one.published_at,
            });
        }
        Ok(())
    })?;
    Ok(releases)
}
