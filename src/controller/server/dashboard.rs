//! The page: its file, and its data as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};

use super::{Body, reply};
use crate::metrics::{Metrics, PAGE_INTERVAL};
use crate::timeline::Live;
use refit_formats::page;
use refit_formats::page::Row;

/// How often a viewer hears something while nothing changes: bars that last grow by as much.
const TICK: Duration = Duration::from_secs(5);

/// The page without data.
pub(super) fn file() -> Response<Body> {
    let mut response = reply(StatusCode::OK, "");
    *response.body_mut() = super::whole(page::live());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A policy in a file cannot forbid frames.
    let policy = format!("{}; frame-ancestors 'none'", page::content_security_policy());
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Whether a browser took this name for the machine itself. Any other name that leads to a loopback address belongs to a
/// web site that wants to read what only this machine may (DNS rebinding).
pub(super) fn is_local_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let Ok(authority) = host.parse::<http::uri::Authority>() else {
        return false;
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// The data of the page: everything at first, then what has changed, once a second.
pub(super) async fn events(metrics: Metrics) -> Response<Body> {
    let first = match metrics.roll_outs().await {
        Ok(live) => live,
        Err(why) => return reply(StatusCode::SERVICE_UNAVAILABLE, why),
    };
    let mut viewer = Viewer::default();
    let first = viewer.message(&first);
    let following = stream::unfold((metrics, viewer), async |(metrics, mut viewer)| {
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(PAGE_INTERVAL).await;
            waited += PAGE_INTERVAL;
            // The end of the stream has the page connect again, and then learn why there is nothing.
            let live = metrics.roll_outs().await.ok()?;
            if waited >= TICK || viewer.has_news(&live) {
                let message = viewer.message(&live);
                return Some((message, (metrics, viewer)));
            }
        }
    });
    let messages = stream::once(async { first });
    let mut response = reply(StatusCode::OK, "");
    *response.body_mut() = StreamBody::new(frames(messages, following)).boxed_unsync();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn frames(
    first: impl Stream<Item = String>,
    following: impl Stream<Item = String>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    use futures::StreamExt as _;
    first
        .chain(following)
        .map(|message| Ok(Frame::data(Bytes::from(message))))
}

/// What a viewer has been sent.
#[derive(Default)]
struct Viewer {
    revision: u64,
    generation: Option<u64>,
    plans: Value,
}

impl Viewer {
    fn has_news(&self, live: &Live) -> bool {
        self.generation != Some(live.generation)
            || live.rows.iter().any(|row| row.revision > self.revision)
            || json!(live.document.plans) != self.plans
    }

    /// The event with what the viewer lacks.
    fn message(&mut self, live: &Live) -> String {
        let is_reset = self.generation.replace(live.generation) != Some(live.generation);
        let seen = if is_reset { 0 } else { self.revision };
        let rows: Vec<&Row> = live
            .rows
            .iter()
            .map(|row| &**row)
            .filter(|row| row.revision > seen)
            .collect();
        self.revision = rows.iter().map(|row| row.revision).fold(seen, u64::max);
        let mut message = json!(live.document);
        self.plans = message["plans"].clone();
        message["rows"] = json!(rows);
        message["reset"] = json!(is_reset);
        format!("data: {message}\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_machine_itself_are_local() {
        let is_local = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_str(host).unwrap());
            is_local_host(&headers)
        };
        for host in [
            "localhost:8080",
            "LOCALHOST",
            "127.0.0.1:1",
            "127.8.8.8",
            "[::1]:8080",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "10.0.0.1",
            "127.0.0.1.nip.io",
            "[::2]",
        ] {
            assert!(!is_local(host), "{host}");
        }
        assert!(!is_local_host(&HeaderMap::new()));
    }
    fn live(rows: &[(&str, u64)], generation: u64) -> Live {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let row = |(node, revision): &(&str, u64)| {
            std::sync::Arc::new(Row {
                plan: "p".to_owned(),
                node: (*node).to_owned(),
                state: page::RowState::Applying,
                reason: None,
                message: None,
                spans: Vec::new(),
                revision: *revision,
            })
        };
        Live {
            document: page::Document::new(page::Source::Cluster, "t", now, now),
            rows: rows.iter().map(row).collect(),
            generation,
        }
    }

    /// The nodes in an event, and whether the viewer has to drop what it has.
    fn nodes(event: &str) -> (Vec<String>, bool) {
        let data = event
            .strip_prefix("data: ")
            .and_then(|rest| rest.strip_suffix("\n\n"));
        let data: Value = serde_json::from_str(data.unwrap()).unwrap();
        let rows = data["rows"].as_array().unwrap().iter();
        let nodes = rows.map(|row| row["node"].as_str().unwrap().to_owned());
        (nodes.collect(), data["reset"] == true)
    }

    #[test]
    fn a_viewer_gets_everything_once_and_then_what_has_changed() {
        let mut viewer = Viewer::default();
        let all = live(&[("a", 1), ("b", 2)], 0);
        assert!(viewer.has_news(&all));
        assert_eq!(
            nodes(&viewer.message(&all)),
            (vec!["a".to_owned(), "b".to_owned()], true)
        );
        assert!(!viewer.has_news(&all));
        let changed = live(&[("a", 3), ("b", 2)], 0);
        assert!(viewer.has_news(&changed));
        assert_eq!(nodes(&viewer.message(&changed)), (vec!["a".to_owned()], false));
        let fewer = live(&[("b", 2)], 1);
        assert!(viewer.has_news(&fewer));
        assert_eq!(nodes(&viewer.message(&fewer)), (vec!["b".to_owned()], true));
    }
}
