//! The releases of a GitHub repository from its API, without drafts and prereleases. If the API does not answer, the
//! latest release from the repository's web page.

use std::collections::BTreeSet;
use std::time::Duration;

use http::header::ACCEPT;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use url::Url;

use super::access::{Access, Credentials};
use super::body::{Body, Share};
use super::cache::{Key, Page, is_limit, key};
use super::items::{List, each};
use super::kind::Github;
use super::transport::{Answer, Auth, Request, fetch, hop, is_redirect, status_line};
use super::{ChannelError, Http};
use refit_base::version::tag::{check, munge};
use refit_base::version::{Offer, Release};

const ACCEPTED: &str = "application/vnd.github+json";
const API_VERSION: (&str, &str) = ("x-github-api-version", "2022-11-28");
/// Maximum page size of the API.
const PER_PAGE: usize = 100;
/// Number of pages to read. GitHub lists the newest releases first.
const MAX_PAGES: usize = 10;
/// A release of k3s takes about 50 kB, mostly for its assets.
const MAX_BODY: usize = 16 << 20;
/// Maximum number of releases in a page, whatever the server thinks of [`PER_PAGE`].
const MAX_IN_PAGE: usize = 1_000;
/// How long later pages count as unchanged while the first is, if each request counts towards a limit of 60 an hour. A
/// new release changes the first page.
const UNCHANGED: Duration = Duration::from_secs(60 * 60);
/// Maximum number of redirects from a repository's old name to its latest release.
const MAX_HOPS: usize = 3;

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

/// An error, and whether the web page may be used instead.
struct ApiError {
    error: ChannelError,
    transient: bool,
}

impl From<ChannelError> for ApiError {
    fn from(error: ChannelError) -> Self {
        let transient = matches!(
            error,
            ChannelError::TimedOut(_) | ChannelError::Failed(_) | ChannelError::RateLimited { .. }
        );
        Self { error, transient }
    }
}

impl Http {
    pub(super) async fn github(&self, github: &Github, access: &Access) -> Result<Offer, ChannelError> {
        let identity = identity(github, access);
        let error = match self.feed(github, access, &identity).await {
            Ok(offer) => return Ok(offer),
            Err(error) => error,
        };
        // The API has answered, so the web page would only hide its answer, such as that a token has expired.
        if !error.transient {
            return Err(error.error);
        }
        // The error of the API is more useful than that of the web page.
        let Ok(latest) = self.latest(github, access).await else {
            return Err(error.error);
        };
        let mut releases = self.remembered(github, &identity);
        if !releases.iter().any(|release| release.version == latest) {
            releases.extend(Offer::one(latest).releases);
        }
        let partial = format!(
            "GitHub's API does not answer ({}); refit takes the latest release from the release page",
            error.error
        );
        Ok(Offer {
            releases,
            partial: Some(partial),
        })
    }

    /// All releases, from the API.
    async fn feed(&self, github: &Github, access: &Access, identity: &[String]) -> Result<Offer, ApiError> {
        let limits = key(identity
            .iter()
            .map(String::as_str)
            .chain([github.api.authority()]));
        if let Some(error) = self.cache.limited(&limits) {
            return Err(error.into());
        }
        let clients = self.transport.clients(access.ca.as_deref())?;
        let auth = access.credentials.as_ref();
        let auth = auth
            .map(|credentials| Auth::new(credentials, &github.api))
            .transpose()?;
        let mut next = Some(first_page(github)?);
        let (mut releases, mut seen) = (Vec::new(), BTreeSet::new());
        let (mut unchanged, mut partial) = (false, None);
        let share = self.reading.share();
        while let Some(url) = next.take() {
            if seen.len() >= MAX_PAGES {
                partial = Some(format!(
                    "only the newest {} releases are read",
                    MAX_PAGES * PER_PAGE
                ));
                break;
            }
            if !seen.insert(url.clone()) {
                return Err(ChannelError::Paging.into());
            }
            let page_key = page_key(identity, &url);
            let known = self.cache.page(&page_key);
            let still = |page: &Page| auth.is_none() && unchanged && page.age() < UNCHANGED;
            let page = match known {
                Some(page) if still(&page) => page,
                known => {
                    let request = Request {
                        method: Method::GET,
                        url: &url,
                        accept: ACCEPTED,
                        etag: known.as_deref().and_then(Page::etag),
                        auth: auth.as_ref(),
                        header: Some(API_VERSION),
                        limit: MAX_BODY,
                    };
                    let share = share.clone();
                    let parser = move |body: &mut Body| published(body, &share);
                    let (answer, releases) = fetch(&clients, self.timeout, &request, parser).await?;
                    self.refused(&answer, limits, auth.is_some())?;
                    let (page, same) = self.cache.store(page_key, known.as_deref(), &answer, releases)?;
                    if seen.len() == 1 {
                        unchanged = same;
                    }
                    page
                }
            };
            next.clone_from(&page.next);
            releases.extend(page.releases.iter().cloned());
        }
        if releases.is_empty() {
            let none = "the repository has no release other than drafts and prereleases";
            return Err(ChannelError::NoRelease(none).into());
        }
        Ok(Offer {
            releases: once(releases),
            partial,
        })
    }

    /// The error of a response, if it is one.
    fn refused(&self, answer: &Answer, limits: Key, given: bool) -> Result<(), ApiError> {
        let status = answer.status;
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(());
        }
        if is_limit(answer) {
            return Err(self.cache.limit(limits, answer).into());
        }
        let line = answer.line();
        Err(match status {
            StatusCode::NOT_FOUND => ChannelError::NoRepository(line).into(),
            // GitHub lets everyone read public repositories, so without credentials a 403 comes from a proxy.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ApiError {
                error: ChannelError::Denied { status: line, given },
                transient: status == StatusCode::FORBIDDEN && !given,
            },
            _ => ApiError {
                error: ChannelError::Unexpected(line),
                transient: status.is_server_error(),
            },
        })
    }

    /// The latest release from the repository's web page. The page is public, so no credentials are sent.
    async fn latest(&self, github: &Github, access: &Access) -> Result<String, ChannelError> {
        let clients = self.transport.clients(access.ca.as_deref())?;
        let http = &clients.once;
        let asking = async {
            let mut url = join(&github.web, "releases/latest")?;
            for _ in 0..MAX_HOPS {
                clients.hosts.check(&url)?;
                let request = http.get(url.clone()).header(ACCEPT, "*/*");
                let response = request
                    .send()
                    .await
                    .map_err(|error| ChannelError::failed(&error))?;
                if !is_redirect(response.status()) {
                    let line = status_line(response.version(), response.status());
                    return Err(ChannelError::Unexpected(line));
                }
                let next = hop(&url, &response)?;
                // A redirect to another host, such as that of a login page, names no release.
                if next.origin() != url.origin() {
                    return Err(ChannelError::BadLocation);
                }
                if let Some(tag) = tag(&next) {
                    check(&munge(&tag))?;
                    return Ok(tag);
                }
                url = next;
            }
            Err(ChannelError::Redirects)
        };
        tokio::time::timeout(self.timeout, asking)
            .await
            .unwrap_or(Err(ChannelError::TimedOut(self.timeout)))
    }

    /// Releases from earlier pages of the API, as far as they are cached.
    fn remembered(&self, github: &Github, identity: &[String]) -> Vec<Release> {
        let mut releases: Vec<Release> = Vec::new();
        let mut next = first_page(github).ok();
        for _ in 0..MAX_PAGES {
            let page = next
                .take()
                .and_then(|url| self.cache.page(&page_key(identity, &url)));
            let Some(page) = page else { break };
            releases.extend(page.releases.iter().cloned());
            next.clone_from(&page.next);
        }
        once(releases)
    }
}

/// Removes duplicates: a release that is published between two requests moves others to the next page.
fn once(mut releases: Vec<Release>) -> Vec<Release> {
    releases.sort_by(|one, other| one.version.cmp(&other.version));
    releases.dedup_by(|one, other| one.version == other.version);
    releases
}

/// Cache key of the requester: pages are not shared between different credentials or authorities.
fn identity(github: &Github, access: &Access) -> Vec<String> {
    let mut identity = vec![github.api.to_string(), access.ca.clone().unwrap_or_default()];
    identity.extend(
        access
            .credentials
            .as_ref()
            .map(Credentials::parts)
            .unwrap_or_default(),
    );
    identity
}

fn page_key(identity: &[String], url: &Url) -> Key {
    key(identity.iter().map(String::as_str).chain([url.as_str()]))
}

fn first_page(github: &Github) -> Result<Url, ChannelError> {
    join(&github.api, &format!("releases?per_page={PER_PAGE}"))
}

fn join(base: &Url, rest: &str) -> Result<Url, ChannelError> {
    base.join(rest).map_err(|_| ChannelError::NotAUrl)
}

/// The releases of a page that are neither drafts nor prereleases, and can be an image tag and a label value.
fn published(body: &mut Body, share: &Share) -> Result<Vec<Release>, ChannelError> {
    let fit = |release: &ApiRelease| {
        !release.draft && !release.prerelease && check(&munge(&release.tag_name)).is_ok()
    };
    let release = |release: ApiRelease| Release {
        version: release.tag_name,
        published: release.published_at,
    };
    let (mut count, mut releases) = (0, Vec::new());
    each(body, List::Root, "list of releases", |one: ApiRelease| {
        count += 1;
        if count > MAX_IN_PAGE {
            return Err(ChannelError::TooManyReleases(MAX_IN_PAGE));
        }
        if fit(&one) {
            share.take()?;
            releases.push(release(one));
        }
        Ok(())
    })?;
    Ok(releases)
}

/// The tag at the end of `/owner/repository/releases/tag/v1.2.3`.
fn tag(url: &Url) -> Option<String> {
    if url.query().is_some() {
        return None;
    }
    let segments: Vec<&str> = url.path_segments()?.collect();
    match segments.as_slice() {
        [_, _, "releases", "tag", tag] => {
            let tag = percent_encoding::percent_decode_str(tag).decode_utf8().ok()?;
            Some(tag.into_owned())
        }
        _ => None,
    }
}
