//! The rules of the clients, over transports in memory (in paused time) and over real sockets on loopback.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::*;
use crate::clock::Clock;
use crate::kube::{Failure, LeaderState, Renewal, brief, failure};

const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"jobs.batch \"a\" not found","code":404}"#;

/// A server outside of this process.
fn network(server: ApiServer) -> Network {
    match server.endpoint {
        Endpoint::Network(network) => *network,
        Endpoint::Process(_) => panic!("it is in this process"),
    }
}

/// Requests that a transport in memory received: method, path and body.
type Sent = Arc<Mutex<Vec<String>>>;

/// A client over a transport that takes `delay` to connect, then reads the body, and answers with `status`.
fn handle(
    leadership: Option<Leadership>,
    delay: Duration,
    status: u16,
    body: &'static str,
) -> (Client, Sent, Arc<RequestCounts>) {
    let (sent, requests) = (Sent::default(), Arc::<RequestCounts>::default());
    let transport = {
        let sent = Arc::clone(&sent);
        tower::service_fn(move |request: Request<GuardedBody>| {
            let sent = Arc::clone(&sent);
            async move {
                sleep(delay).await;
                let (parts, sending) = request.into_parts();
                let bytes = sending.collect().await?.to_bytes();
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                sent.lock()
                    .unwrap()
                    .push(format!("{} {} {text}", parts.method, parts.uri));
                let answer = Body::from(body.as_bytes().to_vec());
                Ok::<_, BoxError>(Response::builder().status(status).body(answer)?)
            }
        })
    };
    let client = over_transport(transport, leadership, Arc::clone(&requests));
    (client, sent, requests)
}

/// A leadership that lapses after 30 s in paused time, the renew deadline, because it is never renewed.
fn lapsing_in_paused_time() -> Leadership {
    let clock = Clock::following_tokio("2026-01-02T03:04:05Z".parse().unwrap());
    let renewal = Renewal {
        at: tokio::time::Instant::now(),
        running: clock.running(),
        deadline: Duration::from_secs(30),
    };
    let (state, leader) = watch::channel(LeaderState::Leading(renewal));
    let leadership = Leadership::elected(leader, clock);
    // Kept until the leadership is over.
    let held = leadership.clone();
    tokio::spawn(async move {
        held.lost().await;
        drop(state);
    });
    leadership
}

fn counted(requests: &RequestCounts) -> Vec<String> {
    let snapshot = requests.snapshot();
    snapshot
        .iter()
        .map(|((call, outcome), n)| format!("{} {} {outcome} {n}", call.verb, call.resource))
        .collect()
}

fn job(name: &str) -> Job {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_reads_and_does_not_write() {
    let leadership = lapsing_in_paused_time();
    let (client, sent, requests) = handle(Some(leadership.clone()), Duration::ZERO, 404, NOT_FOUND);
    let jobs = Api::<Job>::namespaced(client, "a");
    assert!(jobs.create(&PostParams::default(), &job("a")).await.is_err());
    leadership.lost().await;
    sent.lock().unwrap().clear();

    let (params, patch, all) = (
        PatchParams::default(),
        Patch::Merge(serde_json::json!({})),
        ListParams::default(),
    );
    let errors = [
        jobs.create(&PostParams::default(), &job("a")).await.unwrap_err(),
        jobs.patch("a", &params, &patch).await.unwrap_err(),
        jobs.patch_status("a", &params, &patch).await.unwrap_err(),
        jobs.delete("a", &DeleteParams::background()).await.unwrap_err(),
        jobs.delete_collection(&DeleteParams::default(), &all)
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(brief(&error), "this process does not lead, so it does not write");
        assert_eq!(failure(&error), Failure::NotSent);
    }
    assert!(jobs.get_opt("a").await.unwrap().is_none());
    assert_eq!(*sent.lock().unwrap(), ["GET /apis/batch/v1/namespaces/a/jobs/a "]);
    assert_eq!(
        counted(&requests),
        [
            "create jobs 404 1",
            "create jobs not_leader 1",
            "delete jobs not_leader 1",
            "deletecollection jobs not_leader 1",
            "get jobs 404 1",
            "patch jobs not_leader 1",
            "patch jobs/status not_leader 1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_connection_outlasts_the_leadership_is_not_sent() {
    let leadership = lapsing_in_paused_time();
    let (client, sent, requests) = handle(Some(leadership.clone()), Duration::from_secs(8), 404, NOT_FOUND);
    sleep(Duration::from_secs(25)).await;
    assert!(leadership.is_leader());
    let error = Api::<Job>::namespaced(client, "a")
        .create(&PostParams::default(), &job("a"))
        .await
        .unwrap_err();
    assert_eq!(failure(&error), Failure::NotSent);
    assert!(sent.lock().unwrap().is_empty());
    assert_eq!(counted(&requests), ["create jobs not_leader 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_unguarded_handle_writes_without_leading() {
    let (client, sent, _) = handle(None, Duration::ZERO, 404, NOT_FOUND);
    let _ = Api::<Job>::namespaced(client, "a")
        .delete("a", &DeleteParams::background())
        .await;
    assert_eq!(sent.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gets_no_answer_ends_after_ten_seconds() {
    let (client, _, requests) = handle(None, Duration::from_secs(3600), 404, NOT_FOUND);
    let jobs = Api::<Job>::namespaced(client, "a");
    let start = tokio::time::Instant::now();
    for error in [
        jobs.get("a").await.unwrap_err(),
        jobs.create(&PostParams::default(), &job("a")).await.unwrap_err(),
    ] {
        assert_eq!(brief(&error), "the API server did not answer within 10s");
        assert_eq!(failure(&error), Failure::Unknown);
    }
    assert!(jobs.watch(&WatchParams::default(), "0").await.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let timeouts = [
        "create jobs timeout 1",
        "get jobs timeout 1",
        "watch jobs timeout 1",
    ];
    assert_eq!(counted(&requests), timeouts);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_for_the_whole_answer_and_not_for_a_watch() {
    // Headers at once, then a line every six seconds.
    let transport = tower::service_fn(|_: Request<GuardedBody>| async {
        let lines = futures::stream::unfold(0, |n| async move {
            sleep(Duration::from_secs(6)).await;
            let line = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}\n";
            let frame = http_body::Frame::data(bytes::Bytes::from(line));
            (n < 5).then(|| (Ok::<_, BoxError>(frame), n + 1))
        });
        Ok::<_, BoxError>(Response::new(http_body_util::StreamBody::new(Box::pin(lines))))
    });
    let client = over_transport(transport, None, Arc::default());
    let jobs = Api::<Job>::namespaced(client, "a");
    let start = tokio::time::Instant::now();
    let error = jobs.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(brief(&error), "the API server did not answer within 10s");
    assert_eq!(start.elapsed(), Duration::from_secs(10));

    let events = jobs.watch(&WatchParams::default(), "0").await.unwrap();
    assert_eq!(futures::StreamExt::count(events).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_refused_for_load_is_retried_and_a_write_is_not() {
    let busy =
        r#"{"kind":"Status","status":"Failure","reason":"TooManyRequests","message":"slow down","code":429}"#;
    let (client, sent, _) = handle(None, Duration::ZERO, 429, busy);
    let jobs = Api::<Job>::namespaced(client, "a");
    assert!(jobs.list(&ListParams::default()).await.is_err());
    assert_eq!(sent.lock().unwrap().len(), 7);
    sent.lock().unwrap().clear();
    assert!(jobs.watch(&WatchParams::default(), "0").await.is_err());
    let error = jobs.create(&PostParams::default(), &job("a")).await.unwrap_err();
    assert_eq!(
        (brief(&error).as_str(), failure(&error)),
        ("slow down", Failure::Refused)
    );
    assert_eq!(sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn the_response_of_a_failing_server_leaves_the_outcome_of_a_write_open() {
    for (status, expected) in [
        (400, Failure::Refused),
        (403, Failure::Refused),
        (408, Failure::Unknown),
        (409, Failure::Refused),
        (422, Failure::Refused),
        (500, Failure::Unknown),
        (503, Failure::Unknown),
        (504, Failure::Unknown),
    ] {
        let (client, ..) = handle(None, Duration::ZERO, status, "bad gateway");
        let result = Api::<Job>::namespaced(client, "a")
            .create(&PostParams::default(), &job("a"))
            .await;
        assert_eq!(failure(&result.unwrap_err()), expected, "{status}");
    }
}

// The tests below use real sockets, and so real time.

async fn kubeconfig(server: &str, cluster: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- {{name: a, context: {{cluster: c, user: u, namespace: n}}}}\n\
         - {{name: b, context: {{cluster: d}}}}\nclusters:\n- {{name: d, cluster: {{server: 'http://wrong.example'}}}}\n\
         - {{name: c, cluster: {{server: '{server}'{cluster}}}}}\nusers:\n- {{name: u, user: {{token: s3cret}}}}\n"
    );
    tokio::fs::write(file.path(), text).await.unwrap();
    file
}

fn source(file: &tempfile::NamedTempFile) -> ApiSource {
    ApiSource {
        kubeconfig: Some(file.path().to_owned()),
        ..ApiSource::default()
    }
}

/// The server of a kubeconfig.
async fn server_of(file: &tempfile::NamedTempFile) -> ApiServer {
    ApiServer::find(&source(file), &ProxyEnv::default())
        .await
        .unwrap()
}

/// Creates a Job on the server with this address; returns the error, and the counted requests.
async fn fail_to_create(address: std::net::SocketAddr) -> (kube::Error, Vec<String>) {
    let server = server_of(&kubeconfig(&format!("http://{address}"), "").await).await;
    let jobs = Api::<Job>::default_namespaced(server.unguarded().unwrap());
    let error = jobs.create(&PostParams::default(), &job("a")).await.unwrap_err();
    (error, counted(server.requests()))
}

async fn get_config_map(client: Client) {
    Api::<ConfigMap>::default_namespaced(client)
        .get("x")
        .await
        .unwrap();
}

fn proxies(pairs: &[(&str, &str)]) -> ProxyEnv {
    let value = |name: &str| Some(pairs.iter().find(|(key, _)| *key == name)?.1.to_owned());
    ProxyEnv::read(value).unwrap()
}

/// A server that records its requests and answers each with 200 and `{}`.
async fn listen() -> (std::net::SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<String>>::default());
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&log)));
        }
    });
    (address, seen)
}

async fn answer(mut stream: TcpStream, seen: Arc<Mutex<String>>) {
    let mut buffer = vec![0; 8192];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let connect = text.starts_with("CONNECT");
        seen.lock().unwrap().push_str(&text);
        let answer = if connect {
            "HTTP/1.1 200 Connection established\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_request_carries_user_agent_and_token() {
    let (address, seen) = listen().await;
    let file = kubeconfig(&format!("http://{address}/base"), "").await;
    let server = server_of(&file).await;
    get_config_map(server.guarded(Leadership::always()).unwrap()).await;
    let seen = seen.lock().unwrap().to_lowercase();
    let agent = format!("\r\nuser-agent: refit/{}\r\n", env!("CARGO_PKG_VERSION"));
    for part in [
        "get /base/api/v1/namespaces/n/configmaps/x http/1.1\r\n",
        &agent,
        "\r\nauthorization: bearer s3cret\r\n",
    ] {
        assert!(seen.contains(part), "{part:?} in {seen}");
    }
    assert_eq!(counted(server.requests()), ["get configmaps 200 1"]);
}

#[tokio::test]
async fn master_takes_the_place_of_the_kubeconfigs_server() {
    let file = kubeconfig("https://wrong.example", "").await;
    let source = ApiSource {
        master: Some("https://10.0.0.1:6443".to_owned()),
        ..source(&file)
    };
    let server = ApiServer::find(&source, &ProxyEnv::default()).await.unwrap();
    assert_eq!(server.url(), "https://10.0.0.1:6443");
}

#[tokio::test]
async fn a_context_selects_its_server() {
    let file = kubeconfig("https://right.example", "").await;
    for (context, expected) in [
        (None, Some("https://right.example")),
        (Some("b"), Some("http://wrong.example")),
        (Some("unknown"), None),
    ] {
        let source = ApiSource {
            context: context.map(str::to_owned),
            in_cluster: true,
            ..source(&file)
        };
        let found = ApiServer::find(&source, &ProxyEnv::default()).await;
        let url = found.map(|server| server.url()).ok();
        assert_eq!(url.as_deref(), expected, "{context:?}");
    }
}

#[tokio::test]
async fn an_error_names_the_kubeconfig_the_context_and_those_that_there_are() {
    let file = kubeconfig("http://127.0.0.1:1", "").await;
    let find = async |source: ApiSource| ApiServer::find(&source, &ProxyEnv::default()).await;
    let missing = ApiSource {
        kubeconfig: Some("/nowhere/config".into()),
        ..ApiSource::default()
    };
    let staging = ApiSource {
        context: Some("staging".to_owned()),
        ..source(&file)
    };
    for (source, expected) in [
        (
            missing,
            "there is no kubeconfig /nowhere/config: name one with --kubeconfig or KUBECONFIG, as for kubectl",
        ),
        (
            staging,
            "context \"staging\" does not exist in the kubeconfig; there are a, b",
        ),
    ] {
        assert_eq!(find(source).await.err().unwrap().to_string(), expected);
    }
    let client = find(source(&file)).await.unwrap().on_node().unwrap();
    let error = Api::<ConfigMap>::default_namespaced(client)
        .get("x")
        .await
        .unwrap_err();
    let text = brief(&error);
    let start = "the API server http://127.0.0.1:1 (context a; there are also b) cannot be reached: Connection refused";
    assert!(text.starts_with(start), "{text}");
    assert_eq!(failure(&error), Failure::NotSent);
}

#[tokio::test]
async fn a_user_is_impersonated_with_groups() {
    let (address, seen) = listen().await;
    let file = kubeconfig(&format!("http://{address}"), "").await;
    let source = ApiSource {
        impersonate: Some("alice".to_owned()),
        impersonate_groups: vec!["ops".to_owned(), "dev".to_owned()],
        ..source(&file)
    };
    let server = ApiServer::find(&source, &ProxyEnv::default()).await.unwrap();
    get_config_map(server.unguarded().unwrap()).await;
    let seen = seen.lock().unwrap().to_lowercase();
    for header in [
        "impersonate-user: alice",
        "impersonate-group: ops",
        "impersonate-group: dev",
    ] {
        assert!(seen.contains(header), "{header}: {seen}");
    }
}

#[tokio::test]
async fn master_alone_gets_no_credentials() {
    let (address, seen) = listen().await;
    let source = ApiSource {
        master: Some(address.to_string()),
        in_cluster: true,
        ..ApiSource::default()
    };
    let server = ApiServer::find(&source, &ProxyEnv::default()).await.unwrap();
    assert_eq!(server.url(), format!("http://{address}"));
    get_config_map(server.unguarded().unwrap()).await;
    assert!(!seen.lock().unwrap().to_lowercase().contains("authorization"));
}

#[tokio::test]
async fn the_error_for_an_invalid_master_has_no_password() {
    let source = ApiSource {
        master: Some("https://u:s3cret@a b".to_owned()),
        ..ApiSource::default()
    };
    let found = ApiServer::find(&source, &ProxyEnv::default()).await;
    let expected = r#"--master "a b" is not a URL such as https://10.0.0.1:6443"#;
    assert_eq!(found.err().unwrap().to_string(), expected);
}

#[tokio::test]
async fn the_proxy_of_the_kubeconfig_goes_before_that_of_the_environment_and_no_proxy() {
    let environment = proxies(&[
        ("HTTPS_PROXY", "http://env.example:1"),
        ("NO_PROXY", "a,,direct.example"),
    ]);
    let proxy = async |server: &str, cluster: &str| {
        let file = kubeconfig(server, cluster).await;
        let server = ApiServer::find(&source(&file), &environment).await.unwrap();
        network(server).proxy.map(String::from)
    };
    let own = ", proxy-url: 'http://own.example:2'";
    for (server, cluster, expected) in [
        ("https://api.example", "", Some("http://env.example:1/")),
        ("https://direct.example", "", None),
        ("http://api.example", "", None),
        ("https://direct.example", own, Some("http://own.example:2/")),
    ] {
        assert_eq!(
            proxy(server, cluster).await.as_deref(),
            expected,
            "{server} {cluster}"
        );
    }
    let file = kubeconfig("https://api.example", ", proxy-url: 'socks5://own.example:2'").await;
    let server = ApiServer::find(&source(&file), &environment).await.unwrap();
    assert_eq!(
        server.unguarded().err().unwrap().to_string(),
        r#"the proxy for the API server has the scheme "socks5"; only http is supported there"#
    );
}

#[tokio::test]
async fn a_request_goes_through_the_proxy_with_its_password() {
    let (proxy, seen) = listen().await;
    let proxy = format!(", proxy-url: 'http://u:p%40ss@{proxy}'");
    let file = kubeconfig("http://api.invalid:6443", &proxy).await;
    let server = server_of(&file).await;
    get_config_map(server.unguarded().unwrap()).await;
    let seen = seen.lock().unwrap().clone();
    let (connect, request) = seen.split_once("\r\n\r\n").unwrap();
    assert!(
        connect.starts_with("CONNECT api.invalid:6443 HTTP/1.1\r\n"),
        "{connect}"
    );
    let password = "proxy-authorization: basic dtpwqhnz"; // u:p@ss
    assert!(connect.to_lowercase().contains(password), "{connect}");
    assert!(
        request.starts_with("GET /api/v1/namespaces/n/configmaps/x"),
        "{request}"
    );
}

#[tokio::test]
async fn a_connection_that_is_refused_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (error, counted) = fail_to_create(address).await;
    assert_eq!(failure(&error), Failure::NotSent);
    assert!(brief(&error).contains("refused"), "{}", brief(&error));
    assert_eq!(counted, ["create jobs failed 1"]);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_leaves_the_outcome_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let (error, _) = fail_to_create(address).await;
    assert_eq!(failure(&error), Failure::Unknown);
}

/// A connector whose connections are established once `open` is set.
#[derive(Clone)]
struct SlowConnector {
    open: watch::Receiver<bool>,
    connecting: Arc<AtomicBool>,
}

impl Service<Uri> for SlowConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = futures::future::BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let mut open = self.open.clone();
        self.connecting.store(true, Ordering::Release);
        Box::pin(async move {
            let address = uri.authority().unwrap().to_string();
            let stream = TcpStream::connect(address).await?;
            open.wait_for(|open| *open).await?;
            Ok(TokioIo::new(stream))
        })
    }
}

#[tokio::test]
async fn no_byte_of_a_write_is_sent_if_the_leadership_ends_while_connecting() {
    let (address, seen) = listen().await;
    let file = kubeconfig(&format!("http://{address}"), "").await;
    let server = server_of(&file).await;
    let clock = Clock::system();
    let mut renewal = Renewal {
        at: tokio::time::Instant::now(),
        running: clock.running(),
        deadline: Duration::from_secs(3600),
    };
    let (state, elected) = watch::channel(LeaderState::Leading(renewal));
    let leadership = Leadership::elected(elected, clock);
    let (open, opened) = watch::channel(false);
    let connector = SlowConnector {
        open: opened,
        connecting: Arc::default(),
    };
    let connecting = Arc::clone(&connector.connecting);
    let rules = Rules {
        leadership: Some(leadership.clone()),
        timeout: REQUEST_TIMEOUT,
        requests: Arc::default(),
    };
    let jobs = Api::<Job>::default_namespaced(network(server).over(connector, rules).unwrap());
    let writing = tokio::spawn(async move { jobs.create(&PostParams::default(), &job("a")).await });
    while !connecting.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    assert!(leadership.is_leader());
    renewal.deadline = Duration::ZERO;
    state.send_replace(LeaderState::Leading(renewal));
    leadership.lost().await;
    open.send_replace(true);
    let error = writing.await.unwrap().unwrap_err();
    assert_eq!(failure(&error), Failure::NotSent);
    let seen = seen.lock().unwrap().clone();
    assert!(!seen.contains("POST /apis/batch"), "{seen}");
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_does_not_show_in_the_error() {
    let secret = r#"{"metadata":{"name":"x"},"data":{"password":3}}"#;
    let (client, ..) = handle(None, Duration::ZERO, 200, secret);
    let error = Api::<Secret>::namespaced(client, "a").get("x").await.unwrap_err();
    assert!(!brief(&error).contains("password"), "{}", brief(&error));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_an_hour_is_waited_for_half_a_minute() {
    for after in ["3600", "18446744073709551615", "soon"] {
        let calls = Arc::new(AtomicU32::new(0));
        let transport = {
            let calls = Arc::clone(&calls);
            tower::service_fn(move |_: Request<GuardedBody>| {
                let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
                let answer = if first {
                    Response::builder()
                        .status(429)
                        .header("Retry-After", after)
                        .body(Body::empty())
                } else {
                    let list = r#"{"kind":"JobList","apiVersion":"batch/v1","metadata":{},"items":[]}"#;
                    Response::builder()
                        .status(200)
                        .body(Body::from(list.as_bytes().to_vec()))
                };
                async move { Ok::<_, BoxError>(answer?) }
            })
        };
        let client = over_transport(transport, None, Arc::default());
        let start = tokio::time::Instant::now();
        let jobs = Api::<Job>::namespaced(client, "a")
            .list(&ListParams::default())
            .await;
        assert!(jobs.is_ok(), "{after}: {jobs:?}");
        let took = start.elapsed();
        assert!(
            took <= Duration::from_secs(MAX_RETRY_AFTER + 1),
            "{after}: {took:?}"
        );
    }
}
