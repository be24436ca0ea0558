//! Registries (OCI distribution-spec 1.1): the tags of a repository, page by page, and the digest that a tag stands for.
//!
//! A client of our own: oci-client 0.18 reads one page and leaves out where the next one is, knows no entity tags, sets no
//! bound to what it reads, and tells the server's words in its errors. What it has beside, blobs and pushes, is not needed here.

pub(super) mod challenge;
pub(super) mod pull;

use std::collections::BTreeSet;

use http::header::WWW_AUTHENTICATE;
use http::{Method, StatusCode};
use oci_spec::distribution::Reference;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::access::{Access, Credentials};
use super::kind::Repository;
use super::memory::{Key, Page, is_limit, key};
use super::version::{check, munge};
use super::wire::{Answer, Auth, Request, fetch, read};
use super::{ChannelError, Http, Offer, Release};
use challenge::{Challenge, challenges};
use pull::Login;

/// How many tags are asked for at a time: the most that distribution's own registry gives.
const PER_PAGE: usize = 1000;
/// What is read of a repository at most. Tags are sorted by their letters, so some of them would be no use.
const MAX_PAGES: usize = 500;
const MAX_TAGS: usize = 50_000;
const MAX_BODY: usize = 8 << 20;
/// The largest manifest that registries must take (distribution-spec, "Pushing Manifests").
const MAX_MANIFEST: usize = 4 << 20;
const MAX_TOKEN: usize = 1 << 20;

/// An index first: it is the same for all architectures.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json";
const DIGEST: &str = "docker-content-digest";

#[derive(Deserialize)]
struct TagList {
    tags: Option<Vec<String>>,
}

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
        while let Some(url) = next.take() {
            if seen.len() >= MAX_PAGES || tags.len() > MAX_TAGS {
                return Err(ChannelError::TooManyTags(tags.len()));
            }
            if !seen.insert(url.clone()) {
                return Err(ChannelError::Paging);
            }
            let key = session.key(&url);
            let known = self.memory.page(&key);
            let etag = known.as_deref().and_then(Page::etag);
            let answer = session
                .ask(Method::GET, url, "application/json", etag, MAX_BODY)
                .await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Err(ChannelError::NoRepository(answer.line()));
            }
            let (page, _) = self.memory.settle(key, known.as_deref(), &answer, versions)?;
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
            Reference::try_from(image).map_err(|error| ChannelError::NotAnImage(error.to_string()))?;
        if let Some(digest) = image.digest() {
            return Ok(digest.to_owned());
        }
        let tag = image.tag().unwrap_or("latest");
        let repository = Repository::new(image.registry(), image.repository(), None, access.ca.is_some());
        let repository = repository.ok_or_else(|| ChannelError::NotAnImage("its host is none".to_owned()))?;
        // The channel's own credentials are for the channel's host, which need not be this one.
        let login = Login::for_pull(access, &repository);
        let mut session = Session::new(self, &repository, access, login)?;
        let url = session.url(&format!("manifests/{tag}"))?;
        for method in [Method::HEAD, Method::GET] {
            let answer = session
                .ask(method.clone(), url.clone(), MANIFESTS, None, MAX_MANIFEST)
                .await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Err(ChannelError::NoImage(answer.line()));
            }
            if !answer.status.is_success() {
                return Err(ChannelError::Unexpected(answer.line()));
            }
            let told = answer
                .header(DIGEST)
                .filter(|digest| is_digest(digest))
                .map(str::to_owned);
            if method == Method::HEAD {
                if let Some(told) = told {
                    return Ok(told);
                }
                // Registries need not tell it: the digest is that of the manifest.
                continue;
            }
            // A login page has a digest, too.
            answer.json::<serde::de::IgnoredAny>("manifest")?;
            let digest = format!("sha256:{}", hex::encode(Sha256::digest(&answer.body)));
            return match told {
                Some(told) if told.starts_with("sha256:") && told != digest => Err(ChannelError::NoDigest),
                told => Ok(told.unwrap_or(digest)),
            };
        }
        Err(ChannelError::NoDigest)
    }
}

/// One pass over one repository: a token is asked for once.
struct Session<'a> {
    client: &'a Http,
    http: reqwest::Client,
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
            http: client.wire.clients(access.ca.as_deref())?.pages,
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

    /// What is known of a page, for these credentials.
    fn key(&self, url: &Url) -> Key {
        key(self.identity.iter().map(String::as_str).chain([url.as_str()]))
    }

    /// Asks, and says who asks when the registry wants to know. Successes, 304 and 404 are the caller's.
    async fn ask(
        &mut self,
        method: Method,
        mut url: Url,
        accept: &'static str,
        etag: Option<&str>,
        limit: usize,
    ) -> Result<Answer, ChannelError> {
        let limits = key(self.identity.iter().map(String::as_str));
        if let Some(error) = self.client.memory.limited(&limits) {
            return Err(error);
        }
        let mut asked = BTreeSet::new();
        loop {
            let request = Request {
                method: method.clone(),
                url: &url,
                accept,
                etag,
                auth: self.auth.as_ref(),
                header: None,
                limit,
            };
            let answer = fetch(&self.http, self.client.timeout, &request).await?;
            match answer.status {
                status if status.is_success() => return Ok(answer),
                StatusCode::NOT_MODIFIED | StatusCode::NOT_FOUND => return Ok(answer),
                // Once for each host: the second time, the token did not help.
                StatusCode::UNAUTHORIZED if asked.insert(answer.url.authority().to_owned()) => {
                    self.auth = Some(self.authorize(&answer, limits).await?);
                    url = answer.url;
                }
                _ if is_limit(&answer) => return Err(self.client.memory.limit(limits, &answer)),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied(answer.line())),
                _ => return Err(ChannelError::Unexpected(answer.line())),
            }
        }
    }

    fn denied(&self, status: String) -> ChannelError {
        let given = !matches!(self.login, Login::None);
        ChannelError::Denied { status, given }
    }

    /// What the registry asks for: a token from where it says, or a password.
    async fn authorize(&self, answer: &Answer, limits: Key) -> Result<Auth, ChannelError> {
        // What is ours is for the registry, not for whom it sends us to.
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

    /// The token dance (distribution's "Token Authentication Specification"; with an identity token, its form of OAuth 2).
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
            // A password that goes to a registry by TLS goes nowhere else without.
            .filter(|realm| realm.scheme() == "https" || answer.url.scheme() == "http")
            .ok_or(ChannelError::Challenge)?;
        let own = format!("repository:{}:pull", self.repository.path);
        // The repository may have another name there.
        let is_home = answer.url.origin() == self.repository.root.origin();
        let scope = challenge.parameter("scope").filter(|_| !is_home).unwrap_or(&own);
        let service = challenge.parameter("service");
        let told = if let Login::Identity(token) = login {
            let form = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token)
                .append_pair("client_id", "refit")
                .append_pair("scope", scope)
                .extend_pairs(service.map(|service| ("service", service)))
                .finish();
            let posting = async {
                let request = self
                    .http
                    .post(realm.clone())
                    .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form);
                let response = request
                    .send()
                    .await
                    .map_err(|error| ChannelError::failed(&error))?;
                read(realm.clone(), response, MAX_TOKEN).await
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
            fetch(&self.http, self.client.timeout, &request).await?
        };
        if is_limit(&told) {
            return Err(self.client.memory.limit(limits, &told));
        }
        match told.status {
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(self.denied(told.line()));
            }
            status if !status.is_success() => return Err(ChannelError::NoToken),
            _ => {}
        }
        let told: TokenAnswer = told.json("token")?;
        let token = told.token.or(told.access_token).filter(|token| !token.is_empty());
        let bearer = Credentials::Bearer(token.ok_or(ChannelError::NoToken)?);
        // The token is for who asked for it.
        Auth::new(&bearer, &answer.url).map_err(|_| ChannelError::NoToken)
    }
}

/// The tags of a page that can be versions.
fn versions(answer: &Answer) -> Result<Vec<Release>, ChannelError> {
    let list: TagList = answer.json("list of tags")?;
    let tags = list.tags.unwrap_or_default().into_iter();
    let release = |version| Release {
        version,
        published: None,
    };
    Ok(tags
        .filter(|tag| check(&munge(tag)).is_ok())
        .map(release)
        .collect())
}

/// A digest of one of the two algorithms that are registered (image-spec, "Digests").
pub(super) fn is_digest(text: &str) -> bool {
    let (algorithm, encoded) = text.split_once(':').unwrap_or_default();
    let length = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return false,
    };
    encoded.len() == length && encoded.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
