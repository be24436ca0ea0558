//! Registries (OCI distribution-spec 1.1): the tags of a repository, page by page, and the digest of a tag.
//!
//! A client of its own, because oci-client 0.18 reads one page without the link to the next, has no size limits, and includes
//! the server's text in errors. Its other features, blobs and pushes, are not needed.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use http::header::{HeaderValue, LINK, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, StatusCode};
use http_auth::{ChallengeParser, ChallengeRef};
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::Url;

use super::access::Access;
use super::body::{Body, Share};
use super::credentials::{Auth, Credentials};
use super::docker_config::Login;
use super::error::ChannelError;
use super::items::{List, each};
use super::kind::Repository;
use super::link::next_page;
use super::poller::Poller;
use super::rate_limit::is_limit;
use super::transport::{Answer, Clients, Key, Request, fetch};
use refit_api::digest::digest;
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

/// What raises the rate limit of a client without credentials.
const REMEDY: &str = "log in: spec.imagePullSecrets, or --registry-config on the command line";

impl Poller {
    /// The tags of a repository that can be versions.
    pub(super) async fn tags(&self, repository: &Repository, access: &Access) -> Result<Offer, ChannelError> {
        let mut session = Session::new(self, repository, access, access.login(repository))?;
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
            if !seen.insert(url.clone()) {
                return Err(ChannelError::Paging);
            }
            let wanted = Wanted {
                method: Method::GET,
                accept: "application/json",
                limit: MAX_BODY,
            };
            let share = share.clone();
            let parser = move |body: &mut Body| versions(body, &share);
            let (answer, page) = session.ask(url, &wanted, parser).await?;
            let page = page.ok_or_else(|| ChannelError::NoRepository(answer.line()))?;
            bytes += answer.length;
            next = next_page(&answer.url, answer.headers.get_all(LINK))?;
            tags.extend(page);
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

    pub(super) async fn digest(&self, image: &str, access: &Access) -> Result<String, ChannelError> {
        let image =
            ImageReference::parse(image).map_err(|error| ChannelError::NotAnImage(error.to_string()))?;
        if let Some(digest) = image.digest {
            return Ok(digest);
        }
        let tag = image.tag.as_deref().unwrap_or("latest");
        let repository = Repository::new(&image.host, &image.path, None, access.ca.is_some());
        let repository =
            repository.ok_or_else(|| ChannelError::NotAnImage("its host is invalid".to_owned()))?;
        let login = access.pull_login(&repository);
        let mut session = Session::new(self, &repository, access, login)?;
        let url = session.url(&format!("manifests/{tag}"))?;
        // HEAD first: Docker Hub counts a GET of a manifest as a pull, and limits the number of pulls.
        for method in [Method::HEAD, Method::GET] {
            let wanted = Wanted {
                method: method.clone(),
                accept: MANIFESTS,
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
            let digest = digest.ok_or_else(|| ChannelError::NoImage(answer.line()))?;
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
struct Wanted {
    method: Method,
    accept: &'static str,
    /// Maximum size of the body.
    limit: usize,
}

/// Requests for one repository, which share a token.
struct Session<'a> {
    poller: &'a Poller,
    clients: Clients,
    repository: &'a Repository,
    login: Login,
    auth: Option<Auth>,
    /// Of its rate limit.
    key: Key,
}

impl<'a> Session<'a> {
    fn new(
        poller: &'a Poller,
        repository: &'a Repository,
        access: &Access,
        login: Login,
    ) -> Result<Self, ChannelError> {
        let auth = match &login {
            Login::Header(credentials) => Some(Auth::new(credentials, &repository.root)?),
            Login::None | Login::Basic(_) | Login::Identity => None,
        };
        let mut identity = vec![repository.root.to_string(), access.ca.clone().unwrap_or_default()];
        identity.extend(login.parts());
        Ok(Self {
            clients: poller.transport.clients(access.ca.as_deref())?,
            poller,
            repository,
            login,
            auth,
            key: digest(identity.iter().map(String::as_str)),
        })
    }

    fn url(&self, rest: &str) -> Result<Url, ChannelError> {
        let path = format!("v2/{}/{rest}", self.repository.path);
        self.repository
            .root
            .join(&path)
            .map_err(|_| ChannelError::NotAUrl)
    }

    /// Sends a request, and authenticates if the registry demands it. 404 gives no value.
    async fn ask<T: Send + 'static>(
        &mut self,
        mut url: Url,
        wanted: &Wanted,
        parser: impl FnOnce(&mut Body) -> Result<T, ChannelError> + Clone + Send + 'static,
    ) -> Result<(Answer, Option<T>), ChannelError> {
        self.poller.limits.check(&self.key)?;
        let mut asked = BTreeSet::new();
        loop {
            let request = Request {
                method: wanted.method.clone(),
                url: &url,
                accept: wanted.accept,
                etag: None,
                auth: self.auth.as_ref(),
                header: None,
                limit: wanted.limit,
            };
            let fetching = fetch(&self.clients, self.poller.timeout, &request, parser.clone());
            let (answer, parsed) = fetching.await?;
            match answer.status {
                _ if parsed.is_some() => return Ok((answer, parsed)),
                StatusCode::NOT_FOUND => return Ok((answer, None)),
                // Once per host: after a second challenge the token was useless.
                StatusCode::UNAUTHORIZED if asked.insert(answer.url.authority().to_owned()) => {
                    self.auth = Some(self.authorize(&answer).await?);
                    url = answer.url;
                }
                _ if is_limit(&answer) => return Err(self.limit(&answer)),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied(answer.line())),
                _ => return Err(ChannelError::Unexpected(answer.line())),
            }
        }
    }

    fn limit(&self, answer: &Answer) -> ChannelError {
        let remedy = matches!(self.login, Login::None).then_some(REMEDY);
        self.poller.limits.limit(self.key, answer, remedy)
    }

    fn denied(&self, status: String) -> ChannelError {
        let given = !matches!(self.login, Login::None);
        ChannelError::Denied { status, given }
    }

    /// The authentication that the registry demands: a token from its token server, or a password.
    async fn authorize(&self, answer: &Answer) -> Result<Auth, ChannelError> {
        // Credentials are for the registry, not for a server to which it redirects.
        let is_home = answer.url.origin() == self.repository.root.origin();
        let login = if is_home { &self.login } else { &Login::None };
        match login {
            Login::Header(_) => return Err(self.denied(answer.line())),
            Login::Identity => return Err(ChannelError::IdentityToken),
            Login::None | Login::Basic(_) => {}
        }
        let asked = challenges(&answer.headers);
        let scheme = |name: &str| {
            let mut asked = asked.iter();
            asked.find(|challenge| challenge.scheme.eq_ignore_ascii_case(name))
        };
        if let Some(bearer) = scheme("bearer") {
            return self.token(bearer, answer, login).await;
        }
        match (scheme("basic"), login) {
            (Some(_), Login::Basic(credentials)) => Auth::new(credentials, &answer.url),
            (Some(_), _) => Err(self.denied(answer.line())),
            (None, _) => Err(ChannelError::Challenge),
        }
    }

    /// Requests a token (distribution's "Token Authentication Specification").
    async fn token(
        &self,
        challenge: &ChallengeRef<'_>,
        answer: &Answer,
        login: &Login,
    ) -> Result<Auth, ChannelError> {
        let realm = parameter(challenge, "realm").and_then(|realm| Url::parse(&realm).ok());
        let mut realm = realm
            .filter(|realm| matches!(realm.scheme(), "http" | "https"))
            .filter(|realm| realm.username().is_empty() && realm.password().is_none())
            // A password for a registry with TLS is never sent without TLS.
            .filter(|realm| realm.scheme() == "https" || answer.url.scheme() == "http")
            .ok_or(ChannelError::Challenge)?;
        // The repository may have another name where the registry redirects to.
        let is_home = answer.url.origin() == self.repository.root.origin();
        let scope = parameter(challenge, "scope").filter(|_| !is_home);
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.repository.path));
        let service = parameter(challenge, "service");
        realm
            .query_pairs_mut()
            .extend_pairs(service.map(|service| ("service", service)))
            .append_pair("scope", &scope);
        let auth = match login {
            Login::Basic(credentials) => Some(Auth::new(credentials, &realm)?),
            Login::None | Login::Header(_) | Login::Identity => None,
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
        let parser = |body: &mut Body| body.json(PhantomData::<TokenAnswer>, "token");
        let (response, token) = fetch(&self.clients, self.poller.timeout, &request, parser).await?;
        if is_limit(&response) {
            return Err(self.limit(&response));
        }
        if matches!(response.status.as_u16(), 400 | 401 | 403) {
            return Err(self.denied(response.line()));
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

/// All challenges of a response, in their order. A syntax error ends its header.
pub(super) fn challenges(headers: &HeaderMap) -> Vec<ChallengeRef<'_>> {
    let headers = headers.get_all(WWW_AUTHENTICATE).into_iter();
    let texts = headers.filter_map(|header| header.to_str().ok());
    texts
        .flat_map(|text| ChallengeParser::new(text).map_while(Result::ok))
        .collect()
}

fn parameter(challenge: &ChallengeRef<'_>, name: &str) -> Option<String> {
    let mut parameters = challenge.params.iter();
    let (_, value) = parameters.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.to_unescaped())
}

/// The tags of a page that can be versions.
fn versions(body: &mut Body, share: &Share) -> Result<Vec<String>, ChannelError> {
    let mut releases = Vec::new();
    each(body, List::Optional("tags"), "list of tags", |version: String| {
        if check(&munge(&version)).is_ok() {
            if releases.len() > MAX_TAGS {
                return Err(ChannelError::TooManyTags(MAX_TAGS));
            }
            share.take()?;
            releases.push(version);
        }
        Ok(())
    })?;
    Ok(releases)
}

/// Whether it is a digest of one of the two registered algorithms (image-spec, "Digests").
fn is_digest(text: &str) -> bool {
    let (algorithm, encoded) = text.split_once(':').unwrap_or_default();
    let length = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return false,
    };
    encoded.len() == length && encoded.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_stand_in_one_header_or_in_several() {
        for (headers, expected) in [
            (
                &[r#"Basic realm="x", Bearer realm="y",service="z""#][..],
                &[("Basic", "x"), ("Bearer", "y")][..],
            ),
            (
                &[r#"Basic realm="x""#, r#"Bearer realm="y", service="z""#],
                &[("Basic", "x"), ("Bearer", "y")],
            ),
            (
                &[r#"BASIC realm = "a \"b\", c" , charset=UTF-8"#],
                &[("BASIC", r#"a "b", c"#)],
            ),
            // What cannot be read ends its header.
            (&["NTLM abc==", "=", "", "Basic realm=x"], &[("Basic", "x")]),
        ] {
            let values = headers.iter().map(|text| HeaderValue::from_str(text).unwrap());
            let headers: HeaderMap = values.map(|value| (WWW_AUTHENTICATE, value)).collect();
            let found = challenges(&headers);
            let found: Vec<_> = found
                .iter()
                .filter_map(|one| Some((one.scheme, parameter(one, "realm")?)))
                .collect();
            let found: Vec<_> = found
                .iter()
                .map(|(scheme, realm)| (*scheme, realm.as_str()))
                .collect();
            assert_eq!(found, expected, "{headers:?}");
        }
    }
}
