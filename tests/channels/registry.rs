//! A registry that answers as distribution's own does (distribution-spec 1.1, "Token Authentication Specification"), with a
//! token server on another port.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Response};
use sha2::{Digest as _, Sha256};

use super::received::{ReceivedRequest, RequestLog, answer};
use crate::testenv::pki::Authority;
use crate::testenv::serve::{Body, Server};

pub(crate) const USER: &str = "puller";
pub(crate) const PASSWORD: &str = "pa:ss-s3cret";
const SERVICE: &str = "registry.example";

/// The credentials that the registry requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RegistryAuth {
    #[default]
    Open,
    /// A token, which needs no password.
    AnonymousToken,
    /// A token, which needs a password.
    Token,
    /// A password.
    Basic,
    /// This header.
    Header(&'static str, &'static str),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) auth: RegistryAuth,
    /// Of the only repository, `team/k3s`.
    pub(crate) tags: BTreeSet<String>,
    /// Tags of images that exist besides `v1.33.4-k3s1`.
    pub(crate) images: BTreeSet<String>,
    /// The most tags of a page.
    pub(crate) page: usize,
    /// The number of requests that a token is valid for.
    pub(crate) token_uses: Option<u32>,
    /// The answer to requests for the repository instead of its own.
    pub(crate) instead: Option<(u16, Vec<(&'static str, String)>, String)>,
    /// The realm of the challenge instead of the token server.
    pub(crate) realm: Option<String>,
    /// The answer of the token server instead of a token.
    pub(crate) token_answer: Option<(u16, String)>,
    /// Manifests have no header with their digest.
    pub(crate) no_digest: bool,
    pub(crate) tokens: Vec<(String, u32)>,
}

pub(crate) struct Registry {
    server: Server,
    tokens: Server,
    state: Arc<Mutex<State>>,
    /// The requests to the registry.
    pub(crate) log: RequestLog,
    /// The requests to the token server.
    pub(crate) token_log: RequestLog,
}

impl Registry {
    pub(crate) async fn start(state: State) -> Self {
        Self::serve(state, None).await
    }

    pub(crate) async fn start_tls(state: State, authority: &Authority) -> Self {
        Self::serve(state, Some(authority)).await
    }

    async fn serve(state: State, authority: Option<&Authority>) -> Self {
        let identity = authority.map(|authority| authority.server("registry", &["127.0.0.1"]).unwrap());
        let scheme = if identity.is_some() { "https" } else { "http" };
        let state = Arc::new(Mutex::new(state));
        let (log, token_log) = (RequestLog::default(), RequestLog::default());
        let tokens = {
            let (state, log) = (state.clone(), token_log.clone());
            let handler = move |request: http::Request<hyper::body::Incoming>| {
                let received = log.note(&request);
                let answer = lock(&state).token(&received);
                async move { Ok(answer) }
            };
            Server::start(identity.as_ref(), handler).await.unwrap()
        };
        let realm = format!("{scheme}://127.0.0.1:{}/token", tokens.port());
        let registry = {
            let (state, log) = (state.clone(), log.clone());
            let handler = move |request| {
                let received = log.note(&request);
                let answer = lock(&state).answer(&received, &realm);
                async move { Ok(answer) }
            };
            Server::start(identity.as_ref(), handler).await.unwrap()
        };
        Self {
            server: registry,
            tokens,
            state,
            log,
            token_log,
        }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    pub(crate) fn token_port(&self) -> u16 {
        self.tokens.port()
    }

    pub(crate) fn channel(&self) -> String {
        format!("oci://{}/team/k3s", self.host())
    }

    /// A pull secret for it.
    pub(crate) fn docker_config(&self) -> String {
        let auth = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        format!(r#"{{"auths": {{"{}": {{"auth": "{auth}"}}}}}}"#, self.host())
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn basic() -> String {
    format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

pub(crate) fn index() -> &'static str {
    r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#
}

pub(crate) fn index_digest() -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(index())))
}

impl State {
    fn token(&mut self, received: &ReceivedRequest) -> Response<Body> {
        if let Some((code, body)) = &self.token_answer {
            return answer(*code, &[], body.clone());
        }
        if received.query("service").as_deref() != Some(SERVICE)
            || received.query("scope").as_deref() != Some("repository:team/k3s:pull")
        {
            return answer(400, &[], r#"{"details":"wrong service or scope"}"#);
        }
        let known = match received.header("authorization") {
            None => self.auth == RegistryAuth::AnonymousToken,
            Some(given) => given == basic(),
        };
        if !known {
            return answer(
                401,
                &[],
                r#"{"details":"incorrect username or password: pa:ss-s3cret"}"#,
            );
        }
        let token = format!("token-s3cret-{}", self.tokens.len());
        self.tokens
            .push((token.clone(), self.token_uses.unwrap_or(u32::MAX)));
        // distribution's own server says `token`, others `access_token` (its "Token Authentication Specification").
        let name = if self.tokens.len().is_multiple_of(2) {
            "access_token"
        } else {
            "token"
        };
        answer(200, &[], format!(r#"{{"{name}":"{token}","expires_in":60}}"#))
    }

    fn answer(&mut self, received: &ReceivedRequest, realm: &str) -> Response<Body> {
        let given = received.header("authorization");
        let is_in = match self.auth {
            RegistryAuth::Open => true,
            RegistryAuth::Basic => given == Some(&basic()),
            RegistryAuth::Header(name, value) => received.header(name) == Some(value),
            RegistryAuth::Token | RegistryAuth::AnonymousToken => {
                let token = given.and_then(|given| given.strip_prefix("Bearer "));
                let token = self
                    .tokens
                    .iter_mut()
                    .find(|(known, _)| Some(known.as_str()) == token);
                token.is_some_and(|(_, uses)| {
                    let left = *uses > 0;
                    *uses = uses.saturating_sub(1);
                    left
                })
            }
        };
        if !is_in {
            let realm = self.realm.as_deref().unwrap_or(realm);
            let challenge = match self.auth {
                RegistryAuth::Basic => r#"Basic realm="Registry Realm""#.to_owned(),
                RegistryAuth::Header(..) => String::new(),
                _ => {
                    format!(r#"Bearer realm="{realm}",service="{SERVICE}",scope="repository:team/k3s:pull""#)
                }
            };
            let errors = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
            return answer(401, &[("www-authenticate", challenge)], errors);
        }
        if let Some((code, headers, body)) = &self.instead {
            return answer(*code, headers, body.clone());
        }
        match received.path() {
            "/v2/team/k3s/tags/list" => self.list(received),
            "/v2/team/k3s/manifests/v1.33.4-k3s1" => self.manifest(received),
            path if path
                .strip_prefix("/v2/team/k3s/manifests/")
                .is_some_and(|tag| self.images.contains(tag)) =>
            {
                self.manifest(received)
            }
            _ => answer(404, &[], r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#),
        }
    }

    /// "Listing Tags": sorted by their letters, those after `last`, at most `n`.
    fn list(&self, received: &ReceivedRequest) -> Response<Body> {
        let wanted = received.query("n").map_or(usize::MAX, |n| n.parse().unwrap());
        let n = wanted.min(if self.page == 0 { usize::MAX } else { self.page });
        let last = received.query("last").unwrap_or_default();
        let mut after = self.tags.iter().filter(|tag| **tag > last);
        let tags: Vec<_> = after.by_ref().take(n).collect();
        let body = serde_json::json!({ "name": "team/k3s", "tags": tags }).to_string();
        let mut headers = vec![("content-type", "application/json; charset=utf-8".to_owned())];
        if after.next().is_some() {
            let last = tags.last().unwrap();
            headers.push((
                "link",
                format!("</v2/team/k3s/tags/list?last={last}&n={n}>; rel=\"next\""),
            ));
        }
        answer(200, &headers, body)
    }

    fn manifest(&self, received: &ReceivedRequest) -> Response<Body> {
        let accepted = received.header("accept").unwrap_or_default();
        assert!(
            accepted.contains("application/vnd.oci.image.index.v1+json"),
            "{accepted}"
        );
        let mut headers = vec![(
            "content-type",
            "application/vnd.oci.image.index.v1+json".to_owned(),
        )];
        if !self.no_digest {
            headers.push(("docker-content-digest", index_digest()));
        }
        answer(
            200,
            &headers,
            if received.method == Method::HEAD {
                ""
            } else {
                index()
            },
        )
    }
}

/// This number of versions, and two tags that are none.
pub(super) fn tags(count: usize) -> BTreeSet<String> {
    let version = |number: usize| format!("v1.{}.{}-k3s1", number / 100, number % 100);
    let mut tags: BTreeSet<_> = (0..count).map(version).collect();
    tags.insert(format!("sha256-{}.sig", "0".repeat(64)));
    tags.insert("_latest".to_owned());
    tags
}
