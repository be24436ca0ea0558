//! Which server a client asks, and how, over real sockets on loopback.

use std::sync::atomic::AtomicBool;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A server outside of this process.
fn network(server: ApiServer) -> Network {
    match server.endpoint {
        Endpoint::Network(network) => *network,
        Endpoint::Process(_) => panic!("it is in this process"),
    }
}

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
