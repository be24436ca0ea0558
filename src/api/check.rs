//! `spec.checks`: what must be well in the cluster before a node starts. The doc comments of the fields are what
//! `kubectl explain` prints.

mod parse;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

pub use parse::is_loopback;

use super::secret_ref::SecretRef;
pub(super) use parse::parse;

/// A check against a server, which must pass for a node to start. Exactly one of `prometheus` and `http` must be set.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckSpec {
    /// Name of the check, for status and messages: lower-case letters, digits and `-`. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Asks a server with the HTTP API of Prometheus, such as Thanos, Mimir or `VictoriaMetrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusCheck>,
    /// Requests a URL.
    ///
    /// The check passes with a status from 200 to 299. Redirects are not followed, and do not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// Secret with the credentials for the server, in the Plan's namespace. Its keys are one of: `token` (bearer);
    /// `username` and `password` (basic); `header` and `value`; `tls.crt` and `tls.key` (a client certificate).
    /// Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Secret with certificate authorities to trust for the server, as PEM under `ca.crt`, in the Plan's namespace.
    ///
    /// They are trusted besides the public ones and those of `--ca-file`.
    #[serde(rename = "caSecretRef", skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretRef>,
    /// How often the check runs while its result is needed, as a Go duration of at least `5s`. Defaults to `1m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Time limit of a request, as a Go duration of at most `30s`. Defaults to `10s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Number of consecutive checks that must pass before a node starts. Defaults to 1.
    ///
    /// Counted since another node last started, ended or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub passes: Option<i64>,
}

/// A query of Prometheus. Each sample of its result must be within the limits; at least one limit is required. A result
/// without samples does not pass.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusCheck {
    /// URL of the server, without `/api/v1/query`. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// `PromQL` expression that gives a scalar or an instant vector, such as
    /// `count(ALERTS{alertstate="firing"}) or vector(0)`. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// Smallest value that passes. If absent, there is no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest value that passes. If absent, there is no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// A request with the method GET.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpCheck {
    /// URL to request. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Text that the first 64 KiB of the body must contain. If absent, the body does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
}

/// A check, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub name: String,
    pub request: CheckRequest,
    /// Name of the Secret with the credentials.
    pub secret: Option<String>,
    /// Name of the Secret with certificate authorities.
    pub ca: Option<String>,
    pub interval: Duration,
    pub timeout: Duration,
    /// Required number of consecutive passes, at least 1.
    pub passes: u32,
}

/// `spec.checks[].prometheus` or `spec.checks[].http`, with a valid URL and valid limits.
#[derive(Clone, PartialEq)]
pub enum CheckRequest {
    Prometheus {
        url: Url,
        query: String,
        min: Option<f64>,
        max: Option<f64>,
    },
    Http {
        url: Url,
        contains: Option<String>,
    },
}

impl std::fmt::Debug for CheckRequest {
    /// The log shows it, and a URL may have credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Prometheus { .. } => "Prometheus(…)",
            Self::Http { .. } => "Http(…)",
        })
    }
}

/// Result of one request of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckAnswer {
    pub passed: bool,
    /// What the server answered, or why there is no answer.
    pub message: String,
}

#[cfg(test)]
mod tests;
