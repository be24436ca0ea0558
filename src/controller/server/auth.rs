//! Who may read metrics: clients with a token of the cluster (`TokenReview`) that may get `/metrics`
//! (`SubjectAccessReview`), as with controller-runtime and kube-rbac-proxy.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use refit_cluster::kube::brief;

/// How long a verdict holds. A token that was revoked reads metrics so much longer.
const VALID_FOR: Duration = Duration::from_secs(10);
/// Verdicts that are remembered, by digests of tokens.
const REMEMBERED: usize = 64;
/// Tokens that are reviewed at a time; others are turned away meanwhile, so that a flood of them does not become one of
/// requests to the API server.
const REVIEWS: usize = 4;
/// Longest token. Those of Kubernetes have about a kibibyte.
const MAX_TOKEN: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// There is no token, or it is not one of this cluster.
    Unauthenticated,
    /// The account may not.
    Forbidden,
    /// The API server cannot be asked.
    Unknown(String),
}

type TokenDigest = [u8; 32];

pub(super) struct Authorizer {
    client: Client,
    known: Mutex<Vec<(TokenDigest, Instant, Verdict)>>,
    reviews: Semaphore,
}

impl Authorizer {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
            reviews: Semaphore::new(REVIEWS),
        }
    }

    pub(super) async fn ask(&self, headers: &HeaderMap) -> Verdict {
        let Some(token) = bearer(headers) else {
            return Verdict::Unauthenticated;
        };
        let digest: TokenDigest = Sha256::digest(token).into();
        if let Some(verdict) = self.remembered(&digest) {
            return verdict;
        }
        let Ok(_permit) = self.reviews.try_acquire() else {
            return Verdict::Unknown("too many tokens are being reviewed".to_owned());
        };
        match self.review(token).await {
            Ok(verdict) => {
                self.remember(digest, verdict.clone());
                verdict
            }
            Err(error) => Verdict::Unknown(brief(&error)),
        }
    }

    fn remembered(&self, digest: &TokenDigest) -> Option<Verdict> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, at, _)| at.elapsed() < VALID_FOR);
        let (.., verdict) = known.iter().find(|(known, ..)| known == digest)?;
        Some(verdict.clone())
    }

    fn remember(&self, digest: TokenDigest, verdict: Verdict) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push((digest, Instant::now(), verdict));
    }

    async fn review(&self, token: &str) -> Result<Verdict, kube::Error> {
        // Without `audiences`, only tokens for the API server itself are valid.
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let params = PostParams::default();
        let answer = Api::<TokenReview>::all(self.client.clone())
            .create(&params, &review)
            .await?;
        let status = answer.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unauthenticated);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some("/metrics".to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let answer = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&params, &review)
            .await?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed {
            Verdict::Allowed
        } else {
            Verdict::Forbidden
        })
    }
}

/// The token in the header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_token = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN;
    is_token.then_some(token)
}
