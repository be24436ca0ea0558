//! Asks the servers of `spec.checks`. Whatever goes wrong is an answer that does not pass: no answer, one that is too
//! large, or one that means nothing.
//!
//! The author of a Plan reads the answer in status, and the controller reaches servers that the author may not. So answers
//! have numbers and status lines, and no text of the server, except for the error of a Prometheus about its query.

use http::StatusCode;
use reqwest::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::Url;

use super::access::Access;
use super::credentials::Auth;
use super::error::ChannelError;
use super::transport::{HttpTransport, is_redirect, start, status_line};
use refit_api::text::shorten;
use refit_api::{Check, CheckAnswer, CheckRequest};

/// Maximum size of a response of Prometheus.
const MAX_RESPONSE: usize = 256 << 10;
/// The part of another body that is read.
const MAX_BODY: usize = 64 << 10;
/// Maximum number of samples. More are a query that was not aggregated.
const MAX_SAMPLES: usize = 1_000;
/// Maximum length of the error of a Prometheus.
const MAX_ERROR: usize = 200;

pub(super) async fn ask(transport: &HttpTransport, check: &Check, access: &Access) -> CheckAnswer {
    let asking = async {
        match &check.request {
            CheckRequest::Prometheus { url, query, min, max } => {
                prometheus(
                    transport,
                    check,
                    access,
                    url,
                    query,
                    Limits { min: *min, max: *max },
                )
                .await
            }
            CheckRequest::Http { url, contains } => http(transport, access, url, contains.as_deref()).await,
        }
    };
    let timeout = check.timeout;
    let answer = tokio::time::timeout(timeout, asking)
        .await
        .unwrap_or(Err(ChannelError::TimedOut(timeout)));
    answer.unwrap_or_else(|error| fails(error_text(&error)))
}

fn passes(message: String) -> CheckAnswer {
    CheckAnswer {
        passed: true,
        message,
    }
}

fn fails(message: impl Into<String>) -> CheckAnswer {
    CheckAnswer {
        passed: false,
        message: message.into(),
    }
}

fn error_text(error: &ChannelError) -> String {
    match error {
        ChannelError::Failed(cause) => format!("the request failed: {cause}"),
        error => error.to_string(),
    }
}

/// Sends a request with the credentials of the check.
async fn get(transport: &HttpTransport, access: &Access, url: &Url) -> Result<Response, ChannelError> {
    let clients = transport.clients_as(access.ca.as_deref(), access.identity.as_ref())?;
    clients.hosts.check(url)?;
    let mut request = clients.once.get(url.clone());
    if let Some(credentials) = &access.credentials {
        request = Auth::new(credentials, url)?.on(request, url);
    }
    request.send().await.map_err(|error| ChannelError::failed(&error))
}

/// The status line, if it is not a success.
fn refusal(response: &Response) -> Option<String> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let line = line(response);
    Some(match status {
        // A login page would answer 200.
        status if is_redirect(status) => format!("{line}: redirects are not followed; name the final URL"),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!("{line}: check secretRef"),
        _ => line,
    })
}

fn line(response: &Response) -> String {
    status_line(response.version(), response.status())
}

async fn http(
    transport: &HttpTransport,
    access: &Access,
    url: &Url,
    contains: Option<&str>,
) -> Result<CheckAnswer, ChannelError> {
    let mut response = get(transport, access, url).await?;
    if let Some(refusal) = refusal(&response) {
        return Ok(fails(refusal));
    }
    let line = line(&response);
    let Some(text) = contains else {
        return Ok(passes(line));
    };
    let (body, _) = start(&mut response, MAX_BODY).await?;
    let text = text.as_bytes();
    Ok(if body.windows(text.len()).any(|part| part == text) {
        passes(format!("{line}, with the text of contains"))
    } else {
        fails(format!(
            "{line}, and the body does not contain the text of contains"
        ))
    })
}

/// The values that pass.
#[derive(Clone, Copy, Debug)]
struct Limits {
    min: Option<f64>,
    max: Option<f64>,
}

async fn prometheus(
    transport: &HttpTransport,
    check: &Check,
    access: &Access,
    url: &Url,
    query: &str,
    limits: Limits,
) -> Result<CheckAnswer, ChannelError> {
    let mut url = url.clone();
    let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.query_pairs_mut()
        .append_pair("query", query)
        .append_pair("timeout", &format!("{}ms", check.timeout.as_millis()))
        // Thanos: an error instead of what a part of its stores has. Others ignore it.
        .append_pair("partial_response", "false");
    let mut response = get(transport, access, &url).await?;
    let refusal = refusal(&response);
    let (body, has_more) = start(&mut response, MAX_RESPONSE).await?;
    if let Some(refusal) = refusal {
        let error = error_of(&body).map_or_else(String::new, |error| format!(": {error}"));
        return Ok(fails(format!("{refusal}{error}")));
    }
    if has_more {
        return Ok(fails(format!(
            "the answer has more than {} KiB: aggregate the query",
            MAX_RESPONSE >> 10
        )));
    }
    Ok(judge(&body, limits))
}

/// A response of `/api/v1/query` (Prometheus, "HTTP API").
#[derive(Deserialize)]
struct Reply {
    status: String,
    data: Option<Data>,
    error: Option<String>,
    warnings: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Scalar((IgnoredAny, String)),
    Vector(Vec<Sample>),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct Sample {
    value: Option<(IgnoredAny, String)>,
}

/// What a Prometheus says of a query that it refuses.
fn error_of(body: &[u8]) -> Option<String> {
    let reply: Reply = serde_json::from_slice(body).ok()?;
    reply.error.map(|error| plain(&error))
}

/// A text of a server, for status.
fn plain(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    shorten(&text, MAX_ERROR).into_owned()
}

fn judge(body: &[u8], limits: Limits) -> CheckAnswer {
    let not_prometheus = || fails("the answer is not one of the HTTP API of Prometheus");
    let Ok(reply) = serde_json::from_slice::<Reply>(body) else {
        return not_prometheus();
    };
    if reply.status != "success" {
        let error = reply.error.as_deref().unwrap_or("it does not say why");
        return fails(format!("the query failed: {}", plain(error)));
    }
    // The result may lack what a part of the servers has.
    if let Some(warning) = reply.warnings.iter().flatten().next() {
        return fails(format!("the server answers with a warning: {}", plain(warning)));
    }
    let values: Option<Vec<String>> = match reply.data {
        Some(Data::Scalar((_, value))) => Some(vec![value]),
        Some(Data::Vector(samples)) => samples.into_iter().map(|sample| Some(sample.value?.1)).collect(),
        Some(Data::Matrix(_)) => return fails(not_instant("matrix")),
        Some(Data::String(_)) => return fails(not_instant("string")),
        None => return not_prometheus(),
    };
    let Some(values) = values else {
        return fails("the result has a sample without a value, such as a histogram");
    };
    let numbers: Result<Vec<f64>, _> = values.iter().map(|value| value.parse()).collect();
    match numbers {
        Ok(numbers) => judge_values(&numbers, limits),
        Err(_) => not_prometheus(),
    }
}

fn not_instant(kind: &str) -> String {
    format!("the query gives a {kind}: it must give a scalar or an instant vector")
}

fn judge_values(values: &[f64], limits: Limits) -> CheckAnswer {
    let Some(first) = values.first() else {
        return fails("the query returned no samples; add `or vector(0)` if that is good");
    };
    if values.len() > MAX_SAMPLES {
        return fails(format!(
            "the query returned more than {MAX_SAMPLES} samples: aggregate it"
        ));
    }
    let of = match values.len() {
        1 => String::new(),
        count => format!(" (one of {count} values)"),
    };
    for value in values {
        // NaN is neither more nor less than anything.
        let why = match limits {
            _ if value.is_nan() => " is not a number".to_owned(),
            Limits { min: Some(min), .. } if *value < min => format!(" is less than min, {}", number(min)),
            Limits { max: Some(max), .. } if *value > max => format!(" is more than max, {}", number(max)),
            _ => continue,
        };
        return fails(format!("{}{why}{of}", number(*value)));
    }
    let (least, most) = values.iter().fold((*first, *first), |(least, most), value| {
        (least.min(*value), most.max(*value))
    });
    passes(match values.len() {
        1 => number(*first),
        count => format!("{count} values from {} to {}", number(least), number(most)),
    })
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        format!("{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MOST_5: Limits = Limits {
        min: None,
        max: Some(5.0),
    };

    fn vector(values: &[&str]) -> String {
        let samples: Vec<_> = values
            .iter()
            .map(|value| format!(r#"{{"metric":{{"a":"b"}},"value":[1.5,"{value}"]}}"#))
            .collect();
        let samples = samples.join(",");
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{samples}]}}}}"#)
    }

    fn judged(body: &str, limits: Limits) -> (bool, String) {
        let answer = judge(body.as_bytes(), limits);
        (answer.passed, answer.message)
    }

    #[test]
    fn every_sample_must_be_within_the_limits() {
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"0.25"]}}"#;
        for (body, passed, message) in [
            (scalar.to_owned(), true, "0.25"),
            (vector(&["5"]), true, "5"),
            (vector(&["0", "1.5", "-1"]), true, "3 values from -1 to 1.5"),
            (vector(&["6"]), false, "6 is more than max, 5"),
            (
                vector(&["1", "7.5"]),
                false,
                "7.5 is more than max, 5 (one of 2 values)",
            ),
            (vector(&["+Inf"]), false, "inf is more than max, 5"),
            (vector(&["-Inf"]), true, "-inf"),
            (vector(&["1e300"]), false, "1e300 is more than max, 5"),
        ] {
            assert_eq!(judged(&body, AT_MOST_5), (passed, message.to_owned()), "{body}");
        }
        let at_least_3 = Limits {
            min: Some(3.0),
            max: None,
        };
        assert_eq!(
            judged(&vector(&["2"]), at_least_3),
            (false, "2 is less than min, 3".to_owned())
        );
    }

    #[test]
    fn an_answer_that_means_nothing_does_not_pass() {
        for (body, message) in [
            (vector(&[]), "the query returned no samples; add `or vector(0)` if that is good"),
            (vector(&["NaN"]), "NaN is not a number"),
            (vector(&["1", "NaN"]), "NaN is not a number (one of 2 values)"),
            (vector(&["many"]), "the answer is not one of the HTTP API of Prometheus"),
            (vector(&["1"; 1001]), "the query returned more than 1000 samples: aggregate it"),
            (String::new(), "the answer is not one of the HTTP API of Prometheus"),
            ("<html>0</html>".to_owned(), "the answer is not one of the HTTP API of Prometheus"),
            ("{}".to_owned(), "the answer is not one of the HTTP API of Prometheus"),
            (r#"{"status":"success"}"#.to_owned(), "the answer is not one of the HTTP API of Prometheus"),
            (
                r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.to_owned(),
                "the query gives a matrix: it must give a scalar or an instant vector",
            ),
            (
                r#"{"status":"success","data":{"resultType":"string","result":[1,"0"]}}"#.to_owned(),
                "the query gives a string: it must give a scalar or an instant vector",
            ),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}"#.to_owned(),
                "the result has a sample without a value, such as a histogram",
            ),
            (
                r#"{"status":"error","errorType":"timeout","error":"query\ntimed out"}"#.to_owned(),
                "the query failed: query timed out",
            ),
            (
                r#"{"status":"success","warnings":["store b is down"],"data":{"resultType":"scalar","result":[1,"0"]}}"#.to_owned(),
                "the server answers with a warning: store b is down",
            ),
        ] {
            assert_eq!(judged(&body, AT_MOST_5), (false, message.to_owned()), "{body}");
        }
    }
}
