//! The server over real sockets on loopback.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use kube::client::Body;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tower::BoxError;

use super::*;
use crate::lease::Progress;
use refit_cluster::kube::Leadership;
use refit_rollout::Kind;

fn serving(address: &str) -> Serving {
    Serving {
        address: address.parse().unwrap(),
        is_required: true,
        tls: None,
        secure: false,
    }
}

/// A client whose every request fails.
fn no_api_server() -> Client {
    let transport = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, BoxError>("nobody is there".into())
    });
    Client::new(transport, "default")
}

struct Served {
    address: SocketAddr,
    metrics: Metrics,
    progress: Progress,
    _task: JoinSet<()>,
}

async fn serve_with(serving: &Serving, client: Client) -> Served {
    let listener = Listener::bind(serving).await.unwrap().unwrap();
    let address = listener.address().unwrap();
    let progress = Progress::default();
    let metrics = Metrics::new(Arc::default(), progress.clone());
    let mut task = JoinSet::new();
    task.spawn(listener.serve(metrics.clone(), client, Duration::from_millis(100)));
    Served {
        address,
        metrics,
        progress,
        _task: task,
    }
}

async fn serve() -> Served {
    serve_with(&serving("127.0.0.1:0"), no_api_server()).await
}

/// Sends bytes, and reads to the end of the connection.
async fn send(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    exchange(&mut stream, request).await
}

async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8]) -> String {
    // The other end may have answered and closed before everything was sent.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    send(address, request.as_bytes()).await
}

fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("{answer:?}"))
}

#[tokio::test]
async fn a_controller_is_ready_when_it_follows_and_when_it_leads_and_has_listed_everything() {
    let served = serve().await;
    let ready = async || get(served.address, "/readyz").await;
    let starting = ready().await;
    assert_eq!(status(&starting), 503);
    assert!(starting.contains("waits for the API server"), "{starting}");
    let (state, follower) = watch::channel(refit_cluster::kube::LeaderState::Following);
    let clock = refit_cluster::clock::Clock::system();
    served
        .metrics
        .set_leadership(Leadership::elected(follower, clock));
    assert_eq!(status(&ready().await), 200, "a follower");
    drop(state);

    served.metrics.set_leadership(Leadership::always());
    assert_eq!(status(&ready().await), 503, "it has just begun to lead");
    let (listed, seen) = watch::channel(BTreeSet::from([Kind::Pod, Kind::Job, Kind::Plan]));
    let _reporter = served.metrics.reporter(seen);
    let missing = ready().await;
    assert_eq!(status(&missing), 503);
    assert!(missing.contains("not listed yet: nodes"), "{missing}");
    listed.send_if_modified(|listed| listed.insert(Kind::Node));
    assert_eq!(status(&ready().await), 200);
}

#[tokio::test]
async fn a_stuck_loop_is_not_live_and_one_that_waits_is() {
    let served = serve().await;
    assert_eq!(status(&get(served.address, "/livez").await), 200);
    served.progress.set_busy();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let stuck = get(served.address, "/livez").await;
    assert_eq!(status(&stuck), 503);
    assert!(stuck.contains("computed for"), "{stuck}");
    served.progress.set_idle();
    assert_eq!(status(&get(served.address, "/healthz").await), 200);
}

#[tokio::test]
async fn metrics_are_open_metrics_whether_the_loop_answers_or_not() {
    let served = serve().await;
    let check = async || {
        let answer = get(served.address, "/metrics").await;
        assert_eq!(status(&answer), 200, "{answer}");
        let expected = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(answer.to_lowercase().contains(expected), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        assert!(answer.contains("\nrefit_build_info{version="), "{answer}");
        answer
    };
    assert!(check().await.contains("\nrefit_leader 0.0\n"));
    served.metrics.set_leadership(Leadership::always());
    let (_listed, seen) = watch::channel(BTreeSet::new());
    // Its loop computes, and reads no request.
    let _reporter = served.metrics.reporter(seen);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(check().await.contains("\nrefit_leader 1.0\n"));
}

#[tokio::test]
async fn other_paths_methods_and_heads_that_are_too_large_are_refused() {
    let served = serve().await;
    let not_found = get(served.address, "/debug/pprof").await;
    assert_eq!(status(&not_found), 404);
    assert!(not_found.contains("/metrics"), "{not_found}");
    let post = b"POST /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(status(&send(served.address, post).await), 405);
    let head = b"HEAD /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = send(served.address, head).await;
    assert!(status(&answer) == 200 && answer.ends_with("\r\n\r\n"), "{answer}");
    let large = format!(
        "GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(MAX_HEAD)
    );
    assert_eq!(status(&send(served.address, large.as_bytes()).await), 431);
    let many = format!("GET /livez HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(500));
    assert_eq!(status(&send(served.address, many.as_bytes()).await), 431);
    assert_eq!(
        status(&send(served.address, b"\x16\x03\x01 no HTTP\r\n\r\n").await),
        400
    );
    assert_eq!(status(&get(served.address, "/livez").await), 200);
}

/// Anyone who reaches the port can open connections and leave them; the kubelet's probe must be answered all the same.
#[tokio::test]
async fn idle_connections_keep_no_probe_from_its_answer() {
    // A server that waits for HEAD_TIMEOUT is late each time, and a busy machine is not.
    for _ in 0..5 {
        if the_oldest_idle_connection_is_closed().await {
            return;
        }
    }
    panic!("the first connection is still open");
}

/// Whether it is closed for newer ones, and not after `HEAD_TIMEOUT`. The probe is answered.
async fn the_oldest_idle_connection_is_closed() -> bool {
    let served = serve().await;
    let mut idle = Vec::new();
    for _ in 0..3 * MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost").await.unwrap();
        idle.push(stream);
    }
    assert_eq!(status(&get(served.address, "/livez").await), 200);
    let mut rest = Vec::new();
    let closed = timeout(Duration::from_secs(10), idle[0].read_to_end(&mut rest)).await;
    closed.is_ok()
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_unless_nobody_asked_for_it() {
    let taken = Listener::bind(&serving("127.0.0.1:0")).await.unwrap().unwrap();
    let address = taken.address().unwrap().to_string();
    let error = Listener::bind(&serving(&address))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains(&address) && error.contains("--metrics-bind-address") && error.contains("in use"),
        "{error}"
    );
    let by_default = Serving {
        is_required: false,
        ..serving(&address)
    };
    assert!(Listener::bind(&by_default).await.unwrap().is_none());
}

/// A certificate for `localhost` in two files. Returns its DER.
fn write_certificate(dir: &Path) -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(dir.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
    certificate.der().to_vec()
}

fn with_tls(dir: &Path) -> Serving {
    Serving {
        tls: Some((dir.join("tls.crt"), dir.join("tls.key"))),
        ..serving("127.0.0.1:0")
    }
}

/// Asks over TLS, trusting this certificate only.
async fn get_with_tls(address: SocketAddr, trusted: &[u8], request: &str) -> Result<String, io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(exchange(&mut stream, request.as_bytes()).await)
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_certificate_that_was_renewed_is_used_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let first = write_certificate(dir.path());
    let served = serve_with(&with_tls(dir.path()), no_api_server()).await;
    assert_eq!(
        status(&get_with_tls(served.address, &first, SCRAPE).await.unwrap()),
        200
    );
    assert_eq!(
        send(served.address, SCRAPE.as_bytes()).await.find("200 OK"),
        None,
        "no plain HTTP"
    );

    // In the middle of an update: the certificate of one pair, and the key of another.
    let second = write_certificate(dir.path());
    let key = std::fs::read(dir.path().join("tls.key")).unwrap();
    std::fs::write(dir.path().join("tls.key"), "garbage").unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(
        status(&get_with_tls(served.address, &first, SCRAPE).await.unwrap()),
        200
    );

    std::fs::write(dir.path().join("tls.key"), key).unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(
        status(&get_with_tls(served.address, &second, SCRAPE).await.unwrap()),
        200
    );
    assert!(
        get_with_tls(served.address, &first, SCRAPE).await.is_err(),
        "the old one"
    );
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_ends_the_program_with_the_name_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let error = async || {
        Listener::bind(&with_tls(dir.path()))
            .await
            .err()
            .unwrap()
            .to_string()
    };
    assert!(
        error().await.contains("tls.crt, cannot be read"),
        "{}",
        error().await
    );
    write_certificate(dir.path());
    let key = std::fs::read(dir.path().join("tls.key")).unwrap();
    write_certificate(dir.path());
    std::fs::write(dir.path().join("tls.key"), key).unwrap();
    assert!(error().await.contains("--metrics-key-file"), "{}", error().await);
    std::fs::write(dir.path().join("tls.crt"), "").unwrap();
    assert!(error().await.contains("--metrics-cert-file"), "{}", error().await);
}

/// An API server on which the token `good` is an account's that may get metrics, and `other` one's that may not. Returns
/// the kinds of the reviews, too.
fn reviewing() -> (Client, Arc<Mutex<Vec<Value>>>, Arc<AtomicUsize>) {
    let reviews = Arc::<Mutex<Vec<Value>>>::default();
    let down = Arc::<AtomicUsize>::default();
    let (seen, fails) = (Arc::clone(&reviews), Arc::clone(&down));
    let transport = tower::service_fn(move |request: Request<Body>| {
        let (seen, fails) = (Arc::clone(&seen), Arc::clone(&fails));
        async move {
            if fails.load(Ordering::Relaxed) > 0 {
                return Err::<Response<Body>, BoxError>("nobody is there".into());
            }
            let body = request.into_body().collect().await?.to_bytes();
            let mut review: Value = serde_json::from_slice(&body)?;
            seen.lock().unwrap().push(review.clone());
            review["status"] = match review["spec"]["token"].as_str() {
                Some(token @ ("good" | "other")) => json!({
                    "authenticated": true,
                    "user": { "username": token, "groups": ["g"], "extra": { "a": ["b"] } },
                }),
                Some(_) => json!({ "authenticated": false }),
                None => json!({ "allowed": review["spec"]["user"] == "good" }),
            };
            Ok(Response::new(Body::from(serde_json::to_vec(&review)?)))
        }
    });
    (Client::new(transport, "default"), reviews, down)
}

#[tokio::test]
async fn metrics_are_for_accounts_that_may_get_them_and_probes_are_for_everyone() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = write_certificate(dir.path());
    let (client, reviews, down) = reviewing();
    let secure = Serving {
        secure: true,
        ..with_tls(dir.path())
    };
    let served = serve_with(&secure, client).await;
    let ask = async |path: &str, header: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n");
        get_with_tls(served.address, &certificate, &request)
            .await
            .unwrap()
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let none = ask("/metrics", "").await;
    assert!(
        status(&none) == 401 && none.to_lowercase().contains("www-authenticate: bearer"),
        "{none}"
    );
    assert_eq!(
        status(&ask("/metrics", "Authorization: Basic Z29vZA==\r\n").await),
        401
    );
    assert_eq!(status(&ask("/metrics", &bearer(&"x".repeat(9_000))).await), 401);
    assert_eq!(reviews.lock().unwrap().len(), 0, "nothing to review");
    assert_eq!(status(&ask("/metrics", &bearer("good")).await), 200);
    assert_eq!(status(&ask("/livez", "").await), 200);
    {
        let reviews = reviews.lock().unwrap();
        let spec = &reviews[1]["spec"];
        assert_eq!(
            spec["nonResourceAttributes"],
            json!({ "path": "/metrics", "verb": "get" })
        );
        assert_eq!(
            (&spec["groups"], &spec["extra"]),
            (&json!(["g"]), &json!({ "a": ["b"] }))
        );
    }
    assert_eq!(status(&ask("/metrics", &bearer("good")).await), 200);
    assert_eq!(
        reviews.lock().unwrap().len(),
        2,
        "the verdict holds for some seconds"
    );
    let forbidden = ask("/metrics", &bearer("other")).await;
    assert!(
        status(&forbidden) == 403 && forbidden.contains("nonResourceURLs"),
        "{forbidden}"
    );
    assert_eq!(status(&ask("/metrics", &bearer("bad")).await), 401);
    down.store(1, Ordering::Relaxed);
    assert_eq!(status(&ask("/metrics", &bearer("new")).await), 503);
}
