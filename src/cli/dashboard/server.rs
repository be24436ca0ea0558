//! Serves the page on loopback: its file, and its data as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use refit_formats::page::{self, Document, Row};

/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What a viewer gets.
pub(super) struct Live {
    /// Everything but the rows.
    pub(super) document: Document,
    pub(super) rows: Vec<Arc<Row>>,
    /// Of the last change of a row.
    revision: u64,
    /// Changes when rows went away: a viewer then drops those that it has.
    generation: u64,
}

impl Live {
    /// The page after `last`: rows that have not changed keep their revision.
    pub(super) fn new(mut document: Document, last: Option<&Self>) -> Self {
        let key = |row: &Row| (row.plan.clone(), row.node.clone());
        let known = last.into_iter().flat_map(|last| &last.rows);
        let mut known: BTreeMap<_, &Arc<Row>> = known.map(|row| (key(row), row)).collect();
        let revision = last.map_or(0, |last| last.revision) + 1;
        let mut rows = Vec::new();
        for mut row in std::mem::take(&mut document.rows) {
            if let Some(old) = known.remove(&key(&row)) {
                row.revision = old.revision;
                if **old == row {
                    rows.push(Arc::clone(old));
                    continue;
                }
            }
            row.revision = revision;
            rows.push(Arc::new(row));
        }
        let generation = last.map_or(0, |last| last.generation);
        Self {
            document,
            rows,
            revision,
            generation: if known.is_empty() {
                generation
            } else {
                generation + 1
            },
        }
    }
}

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, live: watch::Receiver<Arc<Live>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let live = live.clone();
        let answer = service_fn(move |request| {
            let response = answer(&request, &live);
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answer);
        // One that breaks off concerns its browser alone.
        connections.spawn(async move { drop(connection.await) });
    }
}

fn answer<B>(request: &Request<B>, live: &watch::Receiver<Arc<Live>>) -> Response<Body> {
    if !is_local_host(request.headers()) {
        return reply(
            StatusCode::MISDIRECTED_REQUEST,
            "open the page as http://localhost: another name for this machine may be that of a web site\n",
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/" => file(),
        "/events" => events(live.clone()),
        _ => reply(StatusCode::NOT_FOUND, "the page is /\n"),
    }
}

/// Whether a browser took this name for the machine itself. Any other name that leads to a loopback address belongs to a
/// web site that wants to read what only this machine may (DNS rebinding).
fn is_local_host(headers: &HeaderMap) -> bool {
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

/// The page without data.
fn file() -> Response<Body> {
    let mut response = reply(StatusCode::OK, page::live());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A policy in a file cannot forbid frames.
    let policy = format!("{}; frame-ancestors 'none'", page::content_security_policy());
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// The data of the page: everything at first, then what has changed.
fn events(live: watch::Receiver<Arc<Live>>) -> Response<Body> {
    let mut response = reply(StatusCode::OK, "");
    let frames = messages(live).map(|message| Ok(Frame::data(Bytes::from(message))));
    *response.body_mut() = StreamBody::new(frames).boxed_unsync();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn messages(mut live: watch::Receiver<Arc<Live>>) -> impl Stream<Item = String> {
    // The first message is of what is there.
    live.mark_changed();
    stream::unfold((live, Viewer::default()), async |(mut live, mut viewer)| {
        live.changed().await.ok()?;
        let message = viewer.message(&live.borrow_and_update());
        Some((message, (live, viewer)))
    })
}

fn reply(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// What a viewer has been sent.
#[derive(Default)]
struct Viewer {
    revision: u64,
    generation: Option<u64>,
}

impl Viewer {
    /// The event with what the viewer lacks.
    fn message(&mut self, live: &Live) -> String {
        let is_reset = self.generation.replace(live.generation) != Some(live.generation);
        let seen = if is_reset { 0 } else { self.revision };
        let rows = live.rows.iter().filter(|row| row.revision > seen);
        let rows: Vec<&Row> = rows.map(|row| &**row).collect();
        self.revision = live.revision;
        let mut message = json!(live.document);
        message["rows"] = json!(rows);
        message["reset"] = json!(is_reset);
        format!("data: {message}\n\n")
    }
}

#[cfg(test)]
mod tests {
    use refit_formats::page::{RowState, Source};
    use serde_json::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

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

    fn live(rows: &[(&str, RowState)], last: Option<&Live>) -> Live {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let mut document = Document::new(Source::Cluster, "t", now, now);
        document.rows = rows
            .iter()
            .map(|(node, state)| Row {
                state: *state,
                ..Row::new("p", node)
            })
            .collect();
        Live::new(document, last)
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
        use RowState::{Applying, Done};
        let mut viewer = Viewer::default();
        let all = live(&[("a", Applying), ("b", Applying)], None);
        assert_eq!(
            nodes(&viewer.message(&all)),
            (vec!["a".to_owned(), "b".to_owned()], true)
        );
        let same = live(&[("a", Applying), ("b", Applying)], Some(&all));
        assert_eq!(nodes(&viewer.message(&same)), (vec![], false));
        let changed = live(&[("a", Done), ("b", Applying)], Some(&same));
        assert_eq!(nodes(&viewer.message(&changed)), (vec!["a".to_owned()], false));
        let fewer = live(&[("b", Applying)], Some(&changed));
        assert_eq!(nodes(&viewer.message(&fewer)), (vec!["b".to_owned()], true));
    }

    /// A server, what it serves, and a function that asks it.
    async fn served() -> (std::net::SocketAddr, watch::Sender<Arc<Live>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (publish, receiver) = watch::channel(Arc::new(live(&[("a", RowState::Applying)], None)));
        tokio::spawn(serve(listener, receiver));
        (address, publish)
    }

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{request}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn the_page_has_a_strict_policy_and_no_data() {
        let (address, _publish) = served().await;
        let page = ask(address, "GET / HTTP/1.1\r\nHost: localhost\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        assert!(
            page.contains("content-security-policy: default-src 'none'; script-src 'sha256-"),
            "{page}"
        );
        assert!(page.contains("frame-ancestors 'none'"), "{page}");
        assert!(
            page.contains("<script type=\"application/json\" id=\"data\">null</script>"),
            "{page}"
        );
    }

    #[tokio::test]
    async fn the_page_is_open_to_those_who_call_it_by_a_name_of_this_machine() {
        let (address, publish) = served().await;
        for path in ["/", "/events", "/other"] {
            let foreign = ask(address, &format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n")).await;
            assert!(foreign.starts_with("HTTP/1.1 421"), "{path}: {foreign}");
        }
        let post = ask(address, "POST /events HTTP/1.1\r\nHost: localhost\r\n").await;
        assert!(post.starts_with("HTTP/1.1 405"), "{post}");
        let other = ask(address, "GET /dashboard HTTP/1.1\r\nHost: localhost\r\n").await;
        assert!(other.starts_with("HTTP/1.1 404"), "{other}");
        // Without a follower the events end.
        drop(publish);
        let events = ask(address, "GET /events HTTP/1.1\r\nHost: 127.0.0.1:8090\r\n").await;
        assert!(events.contains("content-type: text/event-stream"), "{events}");
    }
}
