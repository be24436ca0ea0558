//! Registries (OCI distribution-spec 1.1): the tags of a repository, page by page, and the digest of a tag.
//!
//! A client of its own, because oci-client 0.18 reads one page without the link to the next, has no entity tags and no
//! size limits, and includes the server's text in errors. Its other features, blobs and pushes, are not needed.

pub(super) mod challenge;
pub(super) mod pull;

use std::collections::BTreeSet;
use std::marker::PhantomData;

use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::Url;

use super::access::{Access, Credentials};
use super::body::{Body, Share};
use super::cache::{Key, Page, is_limit, key};
use super::items::{List, each};
use super::kind::Repository;
use super::transport::{Answer, Auth, Clients, Request, fetch, read, refuse_plain};
use super::{ChannelError, Http};
use challenge::{Challenge, challenges};
use pull::Login;
use refit_api::image::ImageReference;
use refit_base::version::tag::{check, munge};
use refit_base::version::{Offer, Release};

/// Page size: the maximum of distribution's own registry.
const PER_PAGE: usize = 1000;
/// Limits per repository. Tags are sorted alphabetically, so a part of them would be useless.
const MAX_PAGES: usize = 500;
const MAX_TAGS: usize = 20_000;
const MAX_BODY: usize = 8 << 20;
const MAX_BODIES: usize = 64 << 20;
/// The largest manifest that registries must accept (distribution-spec, "Pushing Manifests").
const MAX_MANIFEST: usize = 4 << 20;
/// Tokens have some kilobytes.
const MAX_TOKEN: usize = 256 << 10;

/// An index first, because it is the same for all architectures.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json";
const DIGEST: &str = "docker-content-digest";

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Http {
    /// The tags of a repository that can be versions.
    pub(super) async fn tags(&self, repository: &Repository, access: &Access) -> Result<Offer, ChannelError> {
        let login = Login::of(access, repository);
        let mut session = Session::new(self, repository, access, login)?;
        let mut next = Some(session.url(&format!("tags/list?n={PER_PAGE}"))?);
        let (mut tags, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let (share, mut bytes) = (self.reading.share(), 0);
        while let Some(url) = next.take() {
            if seen.len() >= MAX_PAGES || tags.len() > MAX_TAGS {
                return Err(ChannelError::TooManyTags(tags.len()));
            }
            if bytes > MAX_BODIES {
                return Err(ChannelError::TooLargeInAll(MAX_BODIES));
            }
            let key = session.key(&url);
            if !seen.insert(key) {
                return Err(ChannelError::Paging);
            }
            let known = self.cache.page(&key);
            let etag = known.as_deref().and_then(Page::etag);
            let wanted = Wanted {
                method: Method::GET,
                accept: "application/json",
                etag,
                limit: MAX_BODY,
            };
            let share = share.clone();
            let parser = move |body: &mut Body| versions(body, &share);
            let (answer, releases) = session.ask(url, &wanted, parser).await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Err(ChannelError::NoRepository(answer.line()));
            }
            bytes += answer.length;
            let (page, _) = self.cache.store(key, known.as_deref(), &answer, releases)?;
            next.clone_from(&page.next);
            tags.extend(page.releases.iter().map(|release| release.version.clone()));
        }
        if tags.is_empty() {
            return Err(ChannelError::NoRelease(
                "the repository has no tag that could be a version",
            ));
        }
        let release = |version| Release {
            version,
            published: None,
        };
        Ok(Offer {
            releases: tags.into_iter().map(release).collect(),
            partial: None,
        })
    }

    pub(super) async fn digest_of(&self, image: &str, access: &Access) -> Result<String, ChannelError> {
        let image =
            ImageReference::parse(image).map_err(|error| ChannelError::NotAnImage(error.to_string()))?;
        if let Some(digest) = image.digest {
            return Ok(digest);
        }
        let tag = image.tag.as_deref().unwrap_or("latest");
        let repository = Repository::new(&image.host, &image.path, None, access.ca.is_some());
        let repository =
            repository.ok_or_else(|| ChannelError::NotAnImage("its host is invalid".to_owned()))?;
        // The channel's credentials are for the channel's host, which may be another one.
        let login = Login::for_pull(access, &repository);
        let mut session = Session::new(self, &repository, access, login)?;
        let url = session.url(&format!("manifests/{tag}"))?;
        // HEAD first: Docker Hub counts a GET of a manifest as a pull, and limits the number of pulls.
        for method in [Method::HEAD, Method::GET] {
            let wanted = Wanted {
                method: method.clone(),
                accept: MANIFESTS,
                etag: None,
                limit: MAX_MANIFEST,
            };
            let is_head = method == Method::HEAD;
            let parser = move |body: &mut Body| {
                if is_head {
                    return Ok(None);
                }
                // A login page would have a digest, too.
                body.json(PhantomData::<IgnoredAny>, "manifest")?;
                Ok(Some(body.sha256()))
            };
            let (answer, digest) = session.ask(url.clone(), &wanted, parser).await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Err(ChannelError::NoImage(answer.line()));
            }
            let Some(digest) = digest else {
                return Err(ChannelError::Unexpected(answer.line()));
            };
            let from_header = answer
                .header(DIGEST)
                .filter(|digest| is_digest(digest))
                .map(str::to_owned);
            let Some(digest) = digest else {
                if let Some(from_header) = from_header {
                    return Ok(from_header);
                }
                // Registries need not send it: compute the digest of the manifest.
                continue;
            };
            let digest = format!("sha256:{digest}");
            return match from_header {
                Some(from_header) if from_header.starts_with("sha256:") && from_header != digest => {
                    Err(ChannelError::NoDigest)
                }
                from_header => Ok(from_header.unwrap_or(digest)),
            };
        }
        Err(ChannelError::NoDigest)
    }
}

/// A request to a registry.
struct Wanted<'a> {
    method: Method,
    accept: &'static str,
    etag: Option<&'a str>,
    /// Maximum size of the body.
    limit: usize,
}

/// Requests for one repository, which share a token.
struct Session<'a> {
    client: &'a Http,
    clients: Clients,
    repository: &'a Repository,
    login: Login,
    auth: Option<Auth>,
    identity: Vec<String>,
}

impl<'a> Session<'a> {
    fn new(
        client: &'a Http,
        repository: &'a Repository,
        access: &Access,
        login: Login,
    ) -> Result<Self, ChannelError> {
        let auth = match &login {
            Login::Header(credentials) => Some(Auth::new(credentials, &repository.root)?),
            Login::None | Login::Basic(_) | Login::Identity(_) => None,
        };
        let mut identity = vec![repository.root.to_string(), access.ca.clone().unwrap_or_default()];
        identity.extend(login.parts());
        Ok(Self {
            clients: client.transport.clients(access.ca.as_deref())?,
            client,
            repository,
            login,
            auth,
            identity,
        })
    }

    fn url(&self, rest: &str) -> Result<Url, ChannelError> {
        let path = format!("v2/{}/{rest}", self.repository.path);
        self.repository
            .root
            .join(&path)
            .map_err(|_| ChannelError::NotAUrl)
    }

    /// Cache key of a page with these credentials.
    fn key(&self, url: &Url) -> Key {
        key(self.identity.iter().map(String::as_str).chain([url.as_str()]))
    }

    /// Sends a request, and authenticates if the registry demands it. The caller handles success, 304 and 404.
    async fn ask<T: Send + 'static>(
        &mut self,
        mut url: Url,
        wanted: &Wanted<'_>,
        parser: impl FnOnce(&mut Body) -> Result<T, ChannelError> + Clone + Send + 'static,
    ) -> Result<(Answer, Option<T>), ChannelError> {
        let limits = key(self.identity.iter().map(String::as_str));
        if let Some(error) = self.client.cache.limited(&limits) {
            return Err(error);
        }
        let mut asked = BTreeSet::new();
        loop {
            let request = Request {
                method: wanted.method.clone(),
                url: &url,
                accept: wanted.accept,
                etag: wanted.etag,
                auth: self.auth.as_ref(),
                header: None,
                limit: wanted.limit,
            };
            let fetching = fetch(&self.clients, self.client.timeout, &request, parser.clone());
            let (answer, parsed) = fetching.await?;
            match answer.status {
                status if status.is_success() => return Ok((answer, parsed)),
                StatusCode::NOT_MODIFIED | StatusCode::NOT_FOUND => return Ok((answer, None)),
                // Once per host: after a second challenge the token was useless.
                StatusCode::UNAUTHORIZED if asked.insert(answer.url.authority().to_owned()) => {
                    self.auth = Some(self.authorize(&answer, limits).await?);
                    url = answer.url;
                }
                _ if is_limit(&answer) => return Err(self.client.cache.limit(limits, &answer)),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied(answer.line())),
                _ => return Err(ChannelError::Unexpected(answer.line())),
            }
        }
    }

    fn denied(&self, status: String) -> ChannelError {
        let given = !matches!(self.login, Login::None);
        ChannelError::Denied { status, given }
    }

    /// The authentication that the registry demands: a token from its token server, or a password.
    async fn authorize(&self, answer: &Answer, limits: Key) -> Result<Auth, ChannelError> {
        // Credentials are for the registry, not for a server to which it redirects.
        let is_home = answer.url.origin() == self.repository.root.origin();
        let login = if is_home { &self.login } else { &Login::None };
        let asked: Vec<Challenge> = challenges(answer.headers.get_all(WWW_AUTHENTICATE));
        let scheme = |name: &str| {
            asked
                .iter()
                .find(|challenge| challenge.scheme.eq_ignore_ascii_case(name))
        };
        if let Login::Header(_) = login {
            return Err(self.denied(answer.line()));
        }
        if let Some(bearer) = scheme("bearer") {
            return self.token(bearer, answer, login, limits).await;
        }
        match (scheme("basic"), login) {
            (Some(_), Login::Basic(credentials)) => Auth::new(credentials, &answer.url),
            (Some(_), _) => Err(self.denied(answer.line())),
            (None, _) => Err(ChannelError::Challenge),
        }
    }

    /// Requests a token (distribution's "Token Authentication Specification"; with an identity token, its OAuth 2
    /// variant).
    async fn token(
        &self,
        challenge: &Challenge,
        answer: &Answer,
        login: &Login,
        limits: Key,
    ) -> Result<Auth, ChannelError> {
        let realm = challenge
            .parameter("realm")
            .and_then(|realm| Url::parse(realm).ok());
        let mut realm = realm
            .filter(|realm| matches!(realm.scheme(), "http" | "https"))
            .filter(|realm| realm.username().is_empty() && realm.password().is_none())
            // A password for a registry with TLS is never sent without TLS.
            .filter(|realm| realm.scheme() == "https" || answer.url.scheme() == "http")
            .ok_or(ChannelError::Challenge)?;
        let own = format!("repository:{}:pull", self.repository.path);
        // The repository may have another name there.
        let is_home = answer.url.origin() == self.repository.root.origin();
        let scope = challenge.parameter("scope").filter(|_| !is_home).unwrap_or(&own);
        let service = challenge.parameter("service");
        let parser = |body: &mut Body| body.json(PhantomData::<TokenAnswer>, "token");
        let (response, token) = if let Login::Identity(token) = login {
            let form = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token)
                .append_pair("client_id", "refit")
                .append_pair("scope", scope)
                .extend_pairs(service.map(|service| ("service", service)))
                .finish();
            refuse_plain(&realm)?;
            self.clients.hosts.check(&realm)?;
            let posting = async {
                let request = self
                    .clients
                    .pages
                    .post(realm.clone())
                    .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form);
                let response = request
                    .send()
                    .await
                    .map_err(|error| ChannelError::failed(&error))?;
                read(realm.clone(), response, MAX_TOKEN, parser).await
            };
            tokio::time::timeout(self.client.timeout, posting)
                .await
                .unwrap_or(Err(ChannelError::TimedOut(self.client.timeout)))?
        } else {
            realm
                .query_pairs_mut()
                .extend_pairs(service.map(|service| ("service", service)))
                .append_pair("scope", scope);
            let auth = match login {
                Login::Basic(credentials) => Some(Auth::new(credentials, &realm)?),
                Login::None | Login::Header(_) | Login::Identity(_) => None,
            };
            let request = Request {
                method: Method::GET,
                url: &realm,
                accept: "application/json",
                etag: None,
                auth: auth.as_ref(),
                header: None,
                limit: MAX_TOKEN,
            };
            fetch(&self.clients, self.client.timeout, &request, parser).await?
        };
        if is_limit(&response) {
            return Err(self.client.cache.limit(limits, &response));
        }
        match response.status {
            // OAuth 2 reports a refresh token that is not valid with 400 (RFC 6749, 5.2).
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(self.denied(response.line()));
            }
            _ => {}
        }
        let token = token.and_then(|token| token.token.or(token.access_token));
        let token = token.filter(|token| !token.is_empty() && HeaderValue::from_str(token).is_ok());
        let bearer = Credentials::Bearer(token.ok_or(ChannelError::NoToken)?);
        // The token is valid only for the server that demanded it.
        match login {
            Login::None => Auth::anonymous(&bearer, &answer.url).map_err(|_| ChannelError::NoToken),
            _ => Auth::new(&bearer, &answer.url),
        }
    }
}

/// The tags of a page that can be versions.
fn versions(body: &mut Body, share: &Share) -> Result<Vec<Release>, ChannelError> {
    let mut releases = Vec::new();
    each(body, List::Optional("tags"), "list of tags", |version: String| {
        if check(&munge(&version)).is_ok() {
            if releases.len() > MAX_TAGS {
                return Err(ChannelError::TooManyTags(MAX_TAGS));
            }
            share.take()?;
            releases.push(Release {
                version,
                published: None,
            });
        }
        Ok(())
    })?;
    Ok(releases)
}

/// Whether it is a digest of one of the two registered algorithms (image-spec, "Digests").
pub(super) fn is_digest(text: &str) -> bool {
    let (algorithm, encoded) = text.split_once(':').unwrap_or_default();
    let length = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return false,
    };
    encoded.len() == length && encoded.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
