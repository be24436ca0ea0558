//! `spec.checks`: what must be well in the cluster before a node starts. The doc comments of the fields are what
//! `kubectl explain` prints.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::plan::{PlanSpec, SecretRef};
use super::validate::is_secret_name;
use refit_base::go::{DurationError, GoDuration};

/// Maximum number of checks, as in the schema. A Plan stored under another schema may have more.
const MAX_CHECKS: usize = 16;
/// Maximum length of a name.
const MAX_NAME_LEN: usize = 63;
/// Maximum length of a URL, and of a query: servers and proxies accept 8 KiB in all.
const MAX_TEXT_LEN: usize = 2_048;
/// Maximum number of consecutive passes.
const MAX_PASSES: i64 = 100;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const MIN_INTERVAL: Duration = Duration::from_secs(5);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// As for a request to a channel: a slot of the lane of checks is taken for no longer.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// A check against a server, which must pass for a node to start. Exactly one of `prometheus` and `http` must be set.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckSpec {
    /// Name of the check, for status and messages: lower-case letters, digits and `-`. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Asks a server with the HTTP API of Prometheus, such as Thanos, Mimir or `VictoriaMetrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusCheck>,
    /// Requests a URL. The check passes with a status from 200 to 299. Redirects are not followed, and do not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// Secret with the credentials for the server, in the Plan's namespace. Its keys are one of: `token` (bearer);
    /// `username` and `password` (basic); `header` and `value` (a header of that name); `tls.crt` and `tls.key` (a client
    /// certificate). If absent, refit uses no credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Secret with certificate authorities to trust for the server in addition to the public ones, as PEM under the key
    /// `ca.crt`, in the Plan's namespace. If absent, refit trusts only the public ones and those of `--ca-file`.
    #[serde(default, rename = "caSecretRef", skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretRef>,
    /// How often the check runs while its result is needed, as a Go duration of at least `5s`. Defaults to `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Time limit of a request, as a Go duration of at most `30s`. Defaults to `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Number of consecutive checks that must pass before a node starts, counted since another node last started, ended or
    /// failed. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest value that passes. If absent, there is no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// Why checks are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCheck {
    #[error("spec.checks has {0} checks: it must have at most {MAX_CHECKS}")]
    TooMany(usize),
    #[error(
        "spec.checks[{index}].name is {name:?}: it must be 1 to {MAX_NAME_LEN} lower-case letters, digits and '-', with a letter or \
         digit at each end"
    )]
    Name { index: usize, name: String },
    #[error("spec.checks[{index}].name is {name:?}, as that of spec.checks[{first}]")]
    NameTwice {
        index: usize,
        first: usize,
        name: String,
    },
    #[error("spec.checks[{0}] has prometheus and http: it must have one of them")]
    TwoRequests(usize),
    #[error("spec.checks[{0}] asks nothing: it must have prometheus or http")]
    NoRequest(usize),
    #[error("{field} is not a URL such as {example}")]
    Url { field: String, example: &'static str },
    #[error("{field} has credentials: put them into a secret, and name it in secretRef")]
    UrlCredentials { field: String },
    #[error("{field} has a query or a fragment: it must be the address of the server, without /api/v1/query")]
    UrlQuery { field: String },
    #[error(
        "spec.checks[{index}].{field} is plain http, which would expose the credentials of secretRef: use https"
    )]
    PlainHttp { index: usize, field: &'static str },
    #[error("{field} has {length} bytes: it must have at most {MAX_TEXT_LEN}")]
    TooLong { field: String, length: usize },
    #[error("spec.checks[{0}].prometheus.query is missing")]
    NoQuery(usize),
    #[error("spec.checks[{0}].prometheus has neither min nor max, so that any value would pass")]
    NoLimit(usize),
    #[error("spec.checks[{0}].prometheus.min is more than max, so that no value would pass")]
    NoRange(usize),
    #[error("spec.checks[{0}].http.contains is empty, which every body contains")]
    EmptyText(usize),
    #[error(
        "spec.checks[{index}].{field}.name is {name:?}: it must be the name of a secret in the Plan's namespace"
    )]
    Secret {
        index: usize,
        field: &'static str,
        name: String,
    },
    #[error("spec.checks[{index}].{field} is invalid, {error}")]
    Duration {
        index: usize,
        field: &'static str,
        error: DurationError,
    },
    #[error("spec.checks[{index}].interval is {value}: it must be at least {MIN_INTERVAL:?}")]
    Interval { index: usize, value: GoDuration },
    #[error("spec.checks[{index}].timeout is {value}: it must be more than 0s, and at most {MAX_TIMEOUT:?}")]
    Timeout { index: usize, value: GoDuration },
    #[error("spec.checks[{index}].passes is {value}: it must be a number from 1 to {MAX_PASSES}")]
    Passes { index: usize, value: i64 },
}

impl CheckSpec {
    fn read(&self, index: usize) -> Result<Check, BadCheck> {
        if !is_name(&self.name) {
            let name = self.name.clone();
            return Err(BadCheck::Name { index, name });
        }
        let request = match (&self.prometheus, &self.http) {
            (Some(_), Some(_)) => return Err(BadCheck::TwoRequests(index)),
            (None, None) => return Err(BadCheck::NoRequest(index)),
            (Some(prometheus), None) => prometheus.read(index)?,
            (None, Some(http)) => http.read(index)?,
        };
        let secret = secret(index, "secretRef", self.secret_ref.as_ref())?;
        let (url, field) = match &request {
            CheckRequest::Prometheus { url, .. } => (url, "prometheus.url"),
            CheckRequest::Http { url, .. } => (url, "http.url"),
        };
        if secret.is_some() && url.scheme() == "http" && !is_loopback(url) {
            return Err(BadCheck::PlainHttp { index, field });
        }
        let passes = self.passes.unwrap_or(1);
        Ok(Check {
            name: self.name.clone(),
            secret,
            ca: secret_of_ca(index, self.ca_secret_ref.as_ref())?,
            interval: self.interval(index)?,
            timeout: self.timeout(index)?,
            passes: u32::try_from(passes)
                .ok()
                .filter(|passes| (1..=MAX_PASSES).contains(&i64::from(*passes)))
                .ok_or(BadCheck::Passes { index, value: passes })?,
            request,
        })
    }

    fn interval(&self, index: usize) -> Result<Duration, BadCheck> {
        let Some(value) = duration(index, "interval", self.interval.as_deref())? else {
            return Ok(DEFAULT_INTERVAL);
        };
        let interval = positive(value).filter(|interval| *interval >= MIN_INTERVAL);
        interval.ok_or(BadCheck::Interval { index, value })
    }

    fn timeout(&self, index: usize) -> Result<Duration, BadCheck> {
        let Some(value) = duration(index, "timeout", self.timeout.as_deref())? else {
            return Ok(DEFAULT_TIMEOUT);
        };
        let timeout = positive(value).filter(|timeout| !timeout.is_zero() && *timeout <= MAX_TIMEOUT);
        timeout.ok_or(BadCheck::Timeout { index, value })
    }
}

impl PrometheusCheck {
    fn read(&self, index: usize) -> Result<CheckRequest, BadCheck> {
        let field = || format!("spec.checks[{index}].prometheus.url");
        let url = url(&self.url, field, "http://prometheus.monitoring:9090")?;
        if url.query().is_some() || url.fragment().is_some() || url.path().ends_with("/api/v1/query") {
            return Err(BadCheck::UrlQuery { field: field() });
        }
        if self.query.trim().is_empty() {
            return Err(BadCheck::NoQuery(index));
        }
        within_length(&self.query, || format!("spec.checks[{index}].prometheus.query"))?;
        match (self.min, self.max) {
            (None, None) => return Err(BadCheck::NoLimit(index)),
            // No number is NaN in JSON, but a text of YAML is.
            (min, max) if min.is_some_and(f64::is_nan) || max.is_some_and(f64::is_nan) => {
                return Err(BadCheck::NoRange(index));
            }
            (Some(min), Some(max)) if min > max => return Err(BadCheck::NoRange(index)),
            _ => {}
        }
        Ok(CheckRequest::Prometheus {
            url,
            query: self.query.clone(),
            min: self.min,
            max: self.max,
        })
    }
}

impl HttpCheck {
    fn read(&self, index: usize) -> Result<CheckRequest, BadCheck> {
        let field = || format!("spec.checks[{index}].http.url");
        let url = url(&self.url, field, "https://shop.example.com/healthz")?;
        if let Some(text) = &self.contains {
            if text.is_empty() {
                return Err(BadCheck::EmptyText(index));
            }
            within_length(text, || format!("spec.checks[{index}].http.contains"))?;
        }
        Ok(CheckRequest::Http {
            url,
            contains: self.contains.clone(),
        })
    }
}

fn within_length(text: &str, field: impl Fn() -> String) -> Result<(), BadCheck> {
    if text.len() > MAX_TEXT_LEN {
        let length = text.len();
        return Err(BadCheck::TooLong {
            field: field(),
            length,
        });
    }
    Ok(())
}

fn url(text: &str, field: impl Fn() -> String, example: &'static str) -> Result<Url, BadCheck> {
    within_length(text, &field)?;
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else {
        return Err(BadCheck::Url {
            field: field(),
            example,
        });
    };
    // Status and messages name the URL, and everybody who reads Plans could read them.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BadCheck::UrlCredentials { field: field() });
    }
    Ok(url)
}

/// Whether the host of a URL is this one.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn secret(index: usize, field: &'static str, secret: Option<&SecretRef>) -> Result<Option<String>, BadCheck> {
    match secret {
        Some(SecretRef { name }) if !is_secret_name(name) => {
            let name = name.clone();
            Err(BadCheck::Secret { index, field, name })
        }
        secret => Ok(secret.map(|secret| secret.name.clone())),
    }
}

fn secret_of_ca(index: usize, ca: Option<&SecretRef>) -> Result<Option<String>, BadCheck> {
    secret(index, "caSecretRef", ca)
}

fn duration(index: usize, field: &'static str, text: Option<&str>) -> Result<Option<GoDuration>, BadCheck> {
    let parsed = text.map(str::parse::<GoDuration>).transpose();
    parsed.map_err(|error| BadCheck::Duration { index, field, error })
}

fn positive(duration: GoDuration) -> Option<Duration> {
    u64::try_from(duration.as_nanos()).ok().map(Duration::from_nanos)
}

fn is_name(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=MAX_NAME_LEN).contains(&name.len())
        && name.chars().all(|c| is_alphanumeric(c) || c == '-')
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
}

impl PlanSpec {
    /// The parsed `spec.checks`.
    ///
    /// # Errors
    /// Fails with the first invalid check; `validate` has reported it.
    pub fn checks(&self) -> Result<Vec<Check>, BadCheck> {
        let specs = self.checks.as_deref().unwrap_or_default();
        if specs.len() > MAX_CHECKS {
            return Err(BadCheck::TooMany(specs.len()));
        }
        let mut checks: Vec<Check> = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            let check = spec.read(index)?;
            if let Some(first) = checks.iter().position(|other| other.name == check.name) {
                let name = check.name;
                return Err(BadCheck::NameTwice { index, first, name });
            }
            checks.push(check);
        }
        Ok(checks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prometheus(change: impl FnOnce(&mut PrometheusCheck)) -> CheckSpec {
        let mut request = PrometheusCheck {
            url: "http://prometheus.monitoring:9090".to_owned(),
            query: "vector(0)".to_owned(),
            min: None,
            max: Some(0.0),
        };
        change(&mut request);
        CheckSpec {
            name: "errors".to_owned(),
            prometheus: Some(request),
            ..CheckSpec::default()
        }
    }

    fn http(url: &str) -> CheckSpec {
        CheckSpec {
            name: "shop".to_owned(),
            http: Some(HttpCheck {
                url: url.to_owned(),
                contains: None,
            }),
            ..CheckSpec::default()
        }
    }

    fn read(checks: Vec<CheckSpec>) -> Result<Vec<Check>, String> {
        let spec = PlanSpec {
            checks: Some(checks),
            ..PlanSpec::default()
        };
        spec.checks().map_err(|error| error.to_string())
    }

    #[test]
    fn a_check_has_sane_defaults() {
        let checks = read(vec![prometheus(|_| {}), http("https://shop.example.com/healthz")]).unwrap();
        for check in &checks {
            assert_eq!(
                (check.interval, check.timeout, check.passes),
                (Duration::from_secs(60), Duration::from_secs(10), 1)
            );
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one case for each mistake")]
    fn a_check_that_could_pass_by_mistake_is_invalid() {
        let secret = || {
            Some(SecretRef {
                name: "prometheus".to_owned(),
            })
        };
        let both = CheckSpec {
            http: http("https://a.test").http,
            ..prometheus(|_| {})
        };
        let cases: [(CheckSpec, &str); 20] = [
            (
                CheckSpec {
                    name: "A b".to_owned(),
                    ..http("https://a.test")
                },
                "spec.checks[0].name is \"A b\": it must be 1 to 63 lower-case letters, digits and '-', with a letter or digit at each end",
            ),
            (
                both,
                "spec.checks[0] has prometheus and http: it must have one of them",
            ),
            (
                CheckSpec {
                    name: "x".to_owned(),
                    ..CheckSpec::default()
                },
                "spec.checks[0] asks nothing: it must have prometheus or http",
            ),
            (
                http("shop.example.com"),
                "spec.checks[0].http.url is not a URL such as https://shop.example.com/healthz",
            ),
            (
                http("ftp://a.test"),
                "spec.checks[0].http.url is not a URL such as https://shop.example.com/healthz",
            ),
            (
                http("https://u:p@a.test"),
                "spec.checks[0].http.url has credentials: put them into a secret, and name it in secretRef",
            ),
            (
                prometheus(|it| it.url = "http://a.test/api/v1/query".to_owned()),
                "spec.checks[0].prometheus.url has a query or a fragment: it must be the address of the server, without /api/v1/query",
            ),
            (
                prometheus(|it| it.query = " ".to_owned()),
                "spec.checks[0].prometheus.query is missing",
            ),
            (
                prometheus(|it| it.query = "x".repeat(2049)),
                "spec.checks[0].prometheus.query has 2049 bytes: it must have at most 2048",
            ),
            (
                prometheus(|it| it.max = None),
                "spec.checks[0].prometheus has neither min nor max, so that any value would pass",
            ),
            (
                prometheus(|it| it.min = Some(0.5)),
                "spec.checks[0].prometheus.min is more than max, so that no value would pass",
            ),
            (
                prometheus(|it| it.max = Some(f64::NAN)),
                "spec.checks[0].prometheus.min is more than max, so that no value would pass",
            ),
            (
                CheckSpec {
                    secret_ref: secret(),
                    ..prometheus(|_| {})
                },
                "spec.checks[0].prometheus.url is plain http, which would expose the credentials of secretRef: use https",
            ),
            (
                CheckSpec {
                    secret_ref: Some(SecretRef::default()),
                    ..http("https://a.test")
                },
                "spec.checks[0].secretRef.name is \"\": it must be the name of a secret in the Plan's namespace",
            ),
            (
                CheckSpec {
                    ca_secret_ref: Some(SecretRef {
                        name: "a/b".to_owned(),
                    }),
                    ..http("https://a.test")
                },
                "spec.checks[0].caSecretRef.name is \"a/b\": it must be the name of a secret in the Plan's namespace",
            ),
            (
                CheckSpec {
                    interval: Some("1".to_owned()),
                    ..http("https://a.test")
                },
                "spec.checks[0].interval is invalid, time: missing unit in duration \"1\"",
            ),
            (
                CheckSpec {
                    interval: Some("1s".to_owned()),
                    ..http("https://a.test")
                },
                "spec.checks[0].interval is 1s: it must be at least 5s",
            ),
            (
                CheckSpec {
                    timeout: Some("1m".to_owned()),
                    ..http("https://a.test")
                },
                "spec.checks[0].timeout is 1m0s: it must be more than 0s, and at most 30s",
            ),
            (
                CheckSpec {
                    timeout: Some("-1s".to_owned()),
                    ..http("https://a.test")
                },
                "spec.checks[0].timeout is -1s: it must be more than 0s, and at most 30s",
            ),
            (
                CheckSpec {
                    passes: Some(0),
                    ..http("https://a.test")
                },
                "spec.checks[0].passes is 0: it must be a number from 1 to 100",
            ),
        ];
        for (check, error) in cases {
            assert_eq!(read(vec![check]).unwrap_err(), error);
        }
        assert_eq!(
            read(vec![http("https://a.test"), http("https://b.test")]).unwrap_err(),
            "spec.checks[1].name is \"shop\", as that of spec.checks[0]"
        );
        assert_eq!(
            read(vec![http("https://a.test"); 17]).unwrap_err(),
            "spec.checks has 17 checks: it must have at most 16"
        );
        assert_eq!(
            read(vec![CheckSpec {
                http: Some(HttpCheck {
                    url: "https://a.test".to_owned(),
                    contains: Some(String::new())
                }),
                ..http("")
            }])
            .unwrap_err(),
            "spec.checks[0].http.contains is empty, which every body contains"
        );
        let local = CheckSpec {
            secret_ref: secret(),
            ..http("http://127.0.0.1:8080")
        };
        assert!(read(vec![local]).is_ok());
    }
}
