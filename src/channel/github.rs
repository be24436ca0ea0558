//! The releases of a repository on GitHub: from its API, drafts and prereleases aside; and where the API does not answer,
//! the one that the repository's pages call the latest.

use std::collections::BTreeSet;
use std::time::Duration;

use http::header::ACCEPT;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use url::Url;

use super::access::{Access, Credentials};
use super::kind::Github;
use super::memory::{Key, Page, is_limit, key};
use super::version::{check, munge};
use super::wire::{Answer, Auth, Request, fetch, hop, is_redirect, status_line};
use super::{ChannelError, Http, Offer, Release};

const ACCEPTED: &str = "application/vnd.github+json";
const API_VERSION: (&str, &str) = ("x-github-api-version", "2022-11-28");
/// The most that the API gives at a time.
const PER_PAGE: usize = 100;
/// How many pages are read. GitHub gives them from the newest on.
const MAX_PAGES: usize = 10;
/// A release of k3s takes about 50 kB, and most of it are its files.
const MAX_BODY: usize = 16 << 20;
/// How long later pages count as unchanged while the first one is, where each question counts towards a rate limit of 60
/// an hour. A new release changes the first page.
const UNCHANGED: Duration = Duration::from_secs(60 * 60);
/// How many redirects lead from a repository's old name to its latest release.
const MAX_HOPS: usize = 3;

/// A release, as the API has it ("List releases").
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

/// An error, and whether the repository's pages may answer in place of the API.
struct Trouble {
    error: ChannelError,
    passing: bool,
}

impl From<ChannelError> for Trouble {
    fn from(error: ChannelError) -> Self {
        let passing = matches!(
            error,
            ChannelError::TimedOut(_) | ChannelError::Failed(_) | ChannelError::RateLimited { .. }
        );
        Self { error, passing }
    }
}

impl Http {
    pub(super) async fn github(&self, github: &Github, access: &Access) -> Result<Offer, ChannelError> {
        let identity = identity(github, access);
        let trouble = match self.feed(github, access, &identity).await {
            Ok(offer) => return Ok(offer),
            Err(trouble) => trouble,
        };
        if !trouble.passing {
            return Err(trouble.error);
        }
        // What the pages say is worth less than why the API does not answer.
        let Ok(latest) = self.latest(github, access).await else {
            return Err(trouble.error);
        };
        let mut releases = self.remembered(github, &identity);
        if !releases.iter().any(|release| release.version == latest) {
            releases.extend(Offer::one(latest).releases);
        }
        let partial = format!(
            "GitHub's API does not answer ({}); the latest release is read off its page",
            trouble.error
        );
        Ok(Offer {
            releases,
            partial: Some(partial),
        })
    }

    /// All releases, by the API.
    async fn feed(&self, github: &Github, access: &Access, identity: &[String]) -> Result<Offer, Trouble> {
        let limits = key(identity
            .iter()
            .map(String::as_str)
            .chain([github.api.authority()]));
        if let Some(error) = self.memory.limited(&limits) {
            return Err(error.into());
        }
        let http = self.wire.clients(access.ca.as_deref())?.pages;
        let auth = access.credentials.as_ref();
        let auth = auth
            .map(|credentials| Auth::new(credentials, &github.api))
            .transpose()?;
        let mut next = Some(first_page(github)?);
        let (mut releases, mut seen) = (Vec::new(), BTreeSet::new());
        let (mut unchanged, mut partial) = (false, None);
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
            let known = self.memory.page(&page_key);
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
                    let answer = fetch(&http, self.timeout, &request).await?;
                    self.refused(&answer, limits, auth.is_some())?;
                    let (page, same) = self
                        .memory
                        .settle(page_key, known.as_deref(), &answer, published)?;
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
            let none = "the repository has no release that is no draft and no prerelease";
            return Err(ChannelError::NoRelease(none).into());
        }
        Ok(Offer {
            releases: once(releases),
            partial,
        })
    }

    /// Why an answer is none, where it is none.
    fn refused(&self, answer: &Answer, limits: Key, given: bool) -> Result<(), Trouble> {
        let status = answer.status;
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(());
        }
        if is_limit(answer) {
            return Err(self.memory.limit(limits, answer).into());
        }
        let line = answer.line();
        Err(match status {
            StatusCode::NOT_FOUND => ChannelError::NoRepository(line).into(),
            // GitHub does not forbid anybody to read what is public: something between does.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Trouble {
                error: ChannelError::Denied { status: line, given },
                passing: status == StatusCode::FORBIDDEN && !given,
            },
            _ => Trouble {
                error: ChannelError::Unexpected(line),
                passing: status.is_server_error(),
            },
        })
    }

    /// What the pages of the repository call its latest release. They are for everybody, and take no credentials.
    async fn latest(&self, github: &Github, access: &Access) -> Result<String, ChannelError> {
        let http = self.wire.clients(access.ca.as_deref())?.once;
        let asking = async {
            let mut url = join(&github.web, "releases/latest")?;
            for _ in 0..MAX_HOPS {
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

    /// What the API said before, as far as it is still known.
    fn remembered(&self, github: &Github, identity: &[String]) -> Vec<Release> {
        let mut releases: Vec<Release> = Vec::new();
        let mut next = first_page(github).ok();
        for _ in 0..MAX_PAGES {
            let page = next
                .take()
                .and_then(|url| self.memory.page(&page_key(identity, &url)));
            let Some(page) = page else { break };
            releases.extend(page.releases.iter().cloned());
            next.clone_from(&page.next);
        }
        once(releases)
    }
}

/// Each release once: one that is published between two pages moves others from the first to the second.
fn once(mut releases: Vec<Release>) -> Vec<Release> {
    releases.sort_by(|one, other| one.version.cmp(&other.version));
    releases.dedup_by(|one, other| one.version == other.version);
    releases
}

/// Who asks: nobody reads what was read with another's credentials, or off a server that another trusts.
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

/// The releases of a page that are for everybody, and can be an image tag and a label value.
fn published(answer: &Answer) -> Result<Vec<Release>, ChannelError> {
    let all: Vec<ApiRelease> = answer.json("list of releases")?;
    let fit = |release: &ApiRelease| {
        !release.draft && !release.prerelease && check(&munge(&release.tag_name)).is_ok()
    };
    let release = |release: ApiRelease| Release {
        version: release.tag_name,
        published: release.published_at,
    };
    Ok(all.into_iter().filter(fit).map(release).collect())
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
