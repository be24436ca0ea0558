//! Parses `spec.checks`.

use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use super::{Check, CheckRequest, CheckSpec, HttpCheck, PrometheusCheck};
use crate::invalid::{ErrorList, FieldPath, Invalid, at};
use crate::secret_ref::SecretRef;
use crate::selector::is_dns_label;
use refit_base::go::GoDuration;

/// Maximum number of checks, as in the schema. A Plan stored under another schema may have more.
const MAX_CHECKS: usize = 16;
/// Maximum length of a name.
const MAX_NAME_LEN: usize = 63;
/// Maximum length of a URL, and of a query: servers and proxies accept 8 KiB in all.
const MAX_TEXT_LEN: usize = 2_048;
/// Maximum number of consecutive passes.
const MAX_PASSES: i64 = 100;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::MAX;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Up to as long as a request to a channel: a slot of the lane of checks is taken for no longer.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_nanos(1)..=Duration::from_secs(30);

/// The parsed `spec.checks`.
///
/// # Errors
/// Fails with all that is wrong with them; `validate` has reported it.
pub(crate) fn parse(specs: &[CheckSpec]) -> Result<Vec<Check>, ErrorList> {
    let list = at("checks");
    list.at_most(specs, MAX_CHECKS, "checks")?;
    let mut errors = ErrorList::default();
    let mut checks = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let (check, name) = (list.index(index), &spec.name);
        checks.extend(errors.take(spec.parse(&check)));
        let first = specs[..index].iter().position(|other| other.name == *name);
        if let Some(first) = first.filter(|_| is_dns_label(name)) {
            let problem = format!("is {name:?}, as that of spec.checks[{first}]");
            errors.push(check.field("name").invalid(problem).hint("choose another name"));
        }
    }
    errors.finish(Some(checks))
}

impl CheckSpec {
    fn parse(&self, check: &FieldPath) -> Result<Check, ErrorList> {
        let mut errors = ErrorList::default();
        if !is_dns_label(&self.name) {
            errors.push(check.field("name").invalid(format_args!(
                "is {:?}: it must be 1 to {MAX_NAME_LEN} lower-case letters, digits and '-', with a letter or digit at each end",
                self.name
            )));
        }
        let request = match (&self.prometheus, &self.http) {
            (Some(_), Some(_)) => Err(check
                .invalid("has prometheus and http: it must have one of them")
                .hint("write two checks")
                .into()),
            (None, None) => Err(check
                .invalid("asks nothing: it must have prometheus or http")
                .hint("give it `prometheus` or `http`")
                .into()),
            (Some(prometheus), None) => prometheus.parse(&check.field("prometheus")),
            (None, Some(http)) => http.parse(&check.field("http")),
        };
        let request = errors.take(request);
        if let Some(request) = request.as_ref().filter(|_| self.secret_ref.is_some()) {
            errors.take(request.protects_credentials(check));
        }
        let mut secret = |field, secret: Option<&SecretRef>| {
            let field = check.field(field).field("name");
            secret.and_then(|secret| errors.take(field.secret(&secret.name)))
        };
        let credentials = secret("secretRef", self.secret_ref.as_ref());
        let ca = secret("caSecretRef", self.ca_secret_ref.as_ref());
        let (field, hint) = (check.field("interval"), "write a duration such as `30s` or `1m`");
        let interval = self
            .interval
            .as_deref()
            .map(|text| duration(&field, text, &INTERVALS, "at least 5s").map_err(|error| error.hint(hint)));
        let (field, hint) = (check.field("timeout"), "write a duration such as `10s`");
        let timeout = self.timeout.as_deref().map(|text| {
            duration(&field, text, &TIMEOUTS, "more than 0s, and at most 30s")
                .map_err(|error| error.hint(hint))
        });
        let (interval, timeout) = (
            interval.and_then(|it| errors.take(it)),
            timeout.and_then(|it| errors.take(it)),
        );
        let passes = self.passes.unwrap_or(1);
        let valid = u32::try_from(passes)
            .ok()
            .filter(|_| (1..=MAX_PASSES).contains(&passes));
        let passes = errors.take(valid.ok_or_else(|| {
            let problem = format!("is {passes}: it must be a number from 1 to {MAX_PASSES}");
            check.field("passes").invalid(problem)
        }));
        errors.finish(request.zip(passes).map(|(request, passes)| Check {
            name: self.name.clone(),
            request,
            secret: credentials,
            ca,
            interval: interval.unwrap_or(DEFAULT_INTERVAL),
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            passes,
        }))
    }
}

impl CheckRequest {
    /// Fails if others could read the credentials that are sent with the request.
    fn protects_credentials(&self, check: &FieldPath) -> Result<(), Invalid> {
        let (url, field) = match self {
            Self::Prometheus { url, .. } => (url, "prometheus.url"),
            Self::Http { url, .. } => (url, "http.url"),
        };
        if url.scheme() != "http" || is_loopback(url) {
            return Ok(());
        }
        let problem = "is plain http, which would expose the credentials of secretRef: use https";
        let https = url.as_str().replacen("http://", "https://", 1);
        let hint = format!("write `{}`", https.trim_end_matches('/'));
        Err(check.field(field).invalid(problem).hint(hint))
    }
}

impl PrometheusCheck {
    fn parse(&self, prometheus: &FieldPath) -> Result<CheckRequest, ErrorList> {
        let (field, query) = (prometheus.field("url"), prometheus.field("query"));
        let mut errors = ErrorList::default();
        let url = errors.take(url(&self.url, &field, "http://prometheus.monitoring:9090"));
        let is_server = |url: &Url| {
            url.query().is_none() && url.fragment().is_none() && !url.path().ends_with("/api/v1/query")
        };
        if url.as_ref().is_some_and(|url| !is_server(url)) {
            let problem =
                "has a query or a fragment: it must be the address of the server, without /api/v1/query";
            let server = self.url.split(['?', '#']).next().unwrap_or_default();
            let hint = format!("write `{}`", server.trim_end_matches("/api/v1/query"));
            errors.push(field.invalid(problem).hint(hint));
        }
        if self.query.trim().is_empty() {
            errors.push(query.invalid("is missing").hint("add a query"));
        }
        errors.take(within_length(&self.query, &query));
        match (self.min, self.max) {
            (None, None) => errors.push(
                prometheus
                    .invalid("has neither min nor max, so that any value would pass")
                    .hint("give it `max` or `min`"),
            ),
            // No number is NaN in JSON, but a text of YAML is.
            (min, max)
                if min.is_some_and(f64::is_nan)
                    || max.is_some_and(f64::is_nan)
                    || min.zip(max).is_some_and(|(min, max)| min > max) =>
            {
                errors.push(
                    prometheus
                        .field("min")
                        .invalid("is more than max, so that no value would pass")
                        .hint("exchange the two, or remove one"),
                );
            }
            _ => {}
        }
        errors.finish(url.map(|url| CheckRequest::Prometheus {
            url,
            query: self.query.clone(),
            min: self.min,
            max: self.max,
        }))
    }
}

impl HttpCheck {
    fn parse(&self, http: &FieldPath) -> Result<CheckRequest, ErrorList> {
        let field = http.field("contains");
        let mut errors = ErrorList::default();
        let url = errors.take(url(
            &self.url,
            &http.field("url"),
            "https://shop.example.com/healthz",
        ));
        let contains = self.contains.clone();
        if contains.as_ref().is_some_and(String::is_empty) {
            errors.push(
                field
                    .invalid("is empty, which every body contains")
                    .hint("remove it"),
            );
        }
        errors.take(within_length(contains.as_deref().unwrap_or_default(), &field));
        errors.finish(url.map(|url| CheckRequest::Http { url, contains }))
    }
}

fn within_length(text: &str, field: &FieldPath) -> Result<(), Invalid> {
    match text.len() {
        length if length > MAX_TEXT_LEN => Err(field.invalid(format_args!(
            "has {length} bytes: it must have at most {MAX_TEXT_LEN}"
        ))),
        _ => Ok(()),
    }
}

fn url(text: &str, field: &FieldPath, example: &str) -> Result<Url, Invalid> {
    within_length(text, field)?;
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| {
        let hint = if text.is_empty() || text.contains("://") {
            format!("write a URL such as `{example}`")
        } else {
            format!("write `https://{text}`")
        };
        field
            .invalid(format_args!("is not a URL such as {example}"))
            .hint(hint)
    })?;
    // Status and messages name the URL, and everybody who reads Plans could read them.
    if !url.username().is_empty() || url.password().is_some() {
        let problem = "has credentials: put them into a secret, and name it in secretRef";
        let host = text.split_once('@').map_or(text, |(_, host)| host);
        let hint = format!("write `{}://{host}`", url.scheme());
        return Err(field.invalid(problem).hint(hint));
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

/// A duration within its limits, which `must` names.
fn duration(
    field: &FieldPath,
    text: &str,
    limits: &RangeInclusive<Duration>,
    must: &str,
) -> Result<Duration, Invalid> {
    let value: GoDuration = field.parse(text)?;
    let duration = u64::try_from(value.as_nanos()).ok().map(Duration::from_nanos);
    let duration = duration.filter(|duration| limits.contains(duration));
    duration.ok_or_else(|| field.invalid(format_args!("is {value}: it must be {must}")))
}
