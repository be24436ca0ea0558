//! Clients of the API server: one for what only a leader may do, one for the little that is allowed without leading.
//!
//! kube's default stack repeats a write that was refused with 429 up to 16 times, and waits for a response without
//! limit. This one sends a write once, limits the time of every request, sets a User-Agent, counts requests, and checks
//! the leadership immediately before a write is sent (see `guard`). It retries reads that an overloaded server refused.

mod guard;
mod requests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use percent_encoding::percent_decode_str;
use tower::retry::{Policy, Retry};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};
use url::Url;

pub use guard::{GuardedBody, NoAnswer, NotLeader};
pub use requests::{Call, Outcome, RequestCounts};

use super::causes::innermost;
use super::leadership::Leadership;
use guard::{Guard, Rules};
use refit_base::proxy::ProxyEnv;

/// Time limit of a request, until the end of its response.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a new connection. Less than that of a request, so that the error names the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a shared connection is pinged, and how long the response may take. A server that died is detected within
/// their sum. Shorter times would drop the connection to a server that is only short of CPU.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of retries of reads that an overloaded server refused: after 50 ms, doubling up to 5 s, or after Retry-After.
const READ_RETRIES: u32 = 6;
/// Seconds of a Retry-After that are waited for. A proxy that says an hour would stop the controller for so long.
const MAX_RETRY_AFTER: u64 = 30;

/// The `User-Agent` of all requests, which the API server's audit log shows.
pub const AGENT: &str = concat!("refit/", env!("CARGO_PKG_VERSION"));

/// How to find the API server (S2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiSource {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: URL of the API server. Alone it means no credentials; with `--kubeconfig` it replaces the server's
    /// URL.
    pub master: Option<String>,
    /// `--context`: context of the kubeconfig, instead of the current one.
    pub context: Option<String>,
    /// Whether this process runs in a pod (`KUBERNETES_SERVICE_HOST` is set). Without the two flags it then uses the
    /// pod's service account, otherwise `$KUBECONFIG` or `~/.kube/config`.
    pub in_cluster: bool,
    /// `--as` and `--as-group`: whom to impersonate.
    pub impersonate: Option<String>,
    pub impersonate_groups: Vec<String>,
    /// `--request-timeout`, instead of [`REQUEST_TIMEOUT`].
    pub request_timeout: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("--master {url:?} is not a URL such as https://10.0.0.1:6443")]
    Master { url: String },
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    #[error("there is no kubeconfig {path}: name one with --kubeconfig or KUBECONFIG, as for kubectl")]
    NoKubeconfig { path: String },
    #[error("the kubeconfig {path} cannot be read: {why}")]
    UnreadKubeconfig { path: String, why: std::io::Error },
    #[error("context {name:?} does not exist in the kubeconfig; {}", known_contexts(.known))]
    NoContext { name: String, known: Vec<String> },
    #[error("the kubeconfig has no current context: choose one with --context; {}", known_contexts(.known))]
    NoCurrentContext { known: Vec<String> },
    #[error("the service account of the pod cannot be used")]
    InCluster(#[source] kube::config::InClusterError),
    #[error("credentials or certificates for the API server cannot be used")]
    Credentials(#[source] Box<kube::Error>),
    #[error("the API server's TLS name {name:?} is not a host name")]
    TlsName { name: String },
    #[error("the proxy for the API server has the scheme {scheme:?}; only http is supported there")]
    ProxyScheme { scheme: String },
}

fn known_contexts(known: &[String]) -> String {
    match known {
        [] => "it has none".to_owned(),
        all => format!("there are {}", all.join(", ")),
    }
}

/// No connection: which server, and what else the kubeconfig has.
#[derive(Debug, thiserror::Error)]
#[error("{server} cannot be reached: {}", innermost(.source))]
pub struct Unreachable {
    server: Arc<str>,
    source: hyper_util::client::legacy::Error,
}

/// An API server that was found but not connected to yet.
#[derive(Clone)]
pub struct ApiServer {
    endpoint: Endpoint,
    timeout: Duration,
    requests: Arc<RequestCounts>,
}

type AnyBody = UnsyncBoxBody<bytes::Bytes, BoxError>;

#[derive(Clone)]
enum Endpoint {
    Network(Box<Network>),
    Process(BoxCloneSyncService<Request<GuardedBody>, Response<AnyBody>, BoxError>),
}

/// The context, and the others that the kubeconfig has.
type Contexts = (String, Vec<String>);

#[derive(Clone)]
struct Network {
    config: Config,
    proxy: Option<Url>,
    contexts: Option<Contexts>,
}

impl ApiServer {
    /// Reads the address of the API server and the credentials.
    ///
    /// # Errors
    /// Fails if the kubeconfig or the service account is missing or invalid.
    pub async fn find(source: &ApiSource, proxies: &ProxyEnv) -> Result<Self, ClientError> {
        let (mut config, kubeconfig_proxy, contexts) = match source {
            ApiSource {
                kubeconfig: None,
                master: None,
                context: None,
                in_cluster: true,
                ..
            } => (Config::incluster().map_err(ClientError::InCluster)?, None, None),
            ApiSource {
                kubeconfig: None,
                master: Some(url),
                ..
            } => (Config::new(server(url)?), None, None),
            ApiSource {
                kubeconfig,
                master,
                context,
                ..
            } => from_kubeconfig(kubeconfig.as_ref(), master.as_deref(), context.as_deref()).await?,
        };
        config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        config.auth_info.impersonate.clone_from(&source.impersonate);
        let groups = Some(source.impersonate_groups.clone());
        config.auth_info.impersonate_groups = groups.filter(|groups| !groups.is_empty());
        // kube matches NO_PROXY against the proxy's own URL, and uses no proxy in a pod. The latter is right, because
        // the address from the pod's environment is that of a service.
        // Only `Config::incluster` sets `root_cert_file`.
        let proxy = if config.root_cert_file.is_some() {
            None
        } else {
            let url = Url::parse(&config.cluster_url.to_string()).ok();
            kubeconfig_proxy.or_else(|| proxies.proxy_for(url.as_ref()?).cloned())
        };
        config.proxy_url = None;
        Ok(Self {
            endpoint: Endpoint::Network(Box::new(Network {
                config,
                proxy,
                contexts,
            })),
            timeout: source.request_timeout.unwrap_or(REQUEST_TIMEOUT),
            requests: Arc::default(),
        })
    }

    /// An API server in this process. Its clients follow the same rules as for a real one.
    pub fn in_process<S, B>(transport: S) -> Self
    where
        S: Service<Request<GuardedBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: HttpBody<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let transport = transport
            .map_response(|answer: Response<B>| answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            .map_err(Into::into);
        Self {
            endpoint: Endpoint::Process(BoxCloneSyncService::new(transport)),
            timeout: REQUEST_TIMEOUT,
            requests: Arc::default(),
        }
    }

    /// The client for everything that is allowed without leading: the Lease, the CRD, the first Event, permission
    /// checks. It has its own connection, so that renewals of the Lease do not queue behind the requests of a roll-out,
    /// and uses HTTP/1.1: a request without a response closes its connection, and the next one opens another.
    ///
    /// # Errors
    /// Fails if the credentials or certificates cannot be used.
    pub fn unguarded(&self) -> Result<Client, ClientError> {
        self.client(None, Protocol::Http1)
    }

    /// The client for work on a node, which needs no leadership. It sends each write once, over one HTTP/2 connection.
    ///
    /// # Errors
    /// Fails if the credentials or certificates cannot be used.
    pub fn on_node(&self) -> Result<Client, ClientError> {
        self.client(None, Protocol::Http2)
    }

    /// The client for everything else. It writes only while `leadership` holds, over one HTTP/2 connection: 100
    /// concurrent writes take half the time and CPU of HTTP/1.1, and a tenth of the sockets.
    ///
    /// # Errors
    /// Fails if the credentials or certificates cannot be used.
    pub fn guarded(&self, leadership: Leadership) -> Result<Client, ClientError> {
        self.client(Some(leadership), Protocol::Http2)
    }

    /// The number of requests of all clients of this server.
    pub fn requests(&self) -> &Arc<RequestCounts> {
        &self.requests
    }

    /// The server's URL for the log, without credentials.
    pub fn url(&self) -> String {
        let Endpoint::Network(network) = &self.endpoint else {
            return "in this process".to_owned();
        };
        network.url()
    }

    fn client(&self, leadership: Option<Leadership>, protocol: Protocol) -> Result<Client, ClientError> {
        let requests = Arc::clone(&self.requests);
        match &self.endpoint {
            Endpoint::Network(network) => network.client(
                Rules {
                    leadership,
                    timeout: self.timeout,
                    requests,
                },
                protocol,
            ),
            Endpoint::Process(transport) => Ok(over_transport(transport.clone(), leadership, requests)),
        }
    }
}

impl Network {
    fn url(&self) -> String {
        let uri = &self.config.cluster_url;
        format!(
            "{}://{}",
            uri.scheme_str().unwrap_or("http"),
            uri.authority().map_or("", |a| host_of(a.as_str()))
        )
    }

    /// How an error names it.
    fn title(&self) -> String {
        let contexts = match &self.contexts {
            None => String::new(),
            Some((context, others)) if others.is_empty() => format!(" (context {context})"),
            Some((context, others)) => format!(" (context {context}; there are also {})", others.join(", ")),
        };
        format!("the API server {}{contexts}", self.url())
    }

    fn client(&self, rules: Rules, protocol: Protocol) -> Result<Client, ClientError> {
        let mut tcp = HttpConnector::new();
        // `HttpsConnector` passes https URIs to this connector, which by default accepts only http.
        tcp.enforce_http(false);
        // Nagle's algorithm (RFC 896) would hold a small request back until the server has acknowledged the one before.
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // HTTP/1.1 has no pings, so TCP probes find out that the peer of an idle connection is gone. The interval is
        // that of client-go (transport/cache.go).
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        match &self.proxy {
            None => self.over(self.tls(tcp, protocol)?, rules),
            Some(proxy) if proxy.scheme() == "http" => {
                let tunnel = tunnel(proxy, tcp).ok_or_else(|| ClientError::ProxyScheme {
                    scheme: proxy.scheme().to_owned(),
                })?;
                self.over(self.tls(tunnel, protocol)?, rules)
            }
            Some(proxy) => Err(ClientError::ProxyScheme {
                scheme: proxy.scheme().to_owned(),
            }),
        }
    }

    fn tls<C>(&self, connector: C, protocol: Protocol) -> Result<HttpsConnector<C>, ClientError> {
        let tls = self
            .config
            .rustls_client_config()
            .map_err(|error| ClientError::Credentials(Box::new(error)))?;
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = &self.config.tls_server_name {
            let name = name
                .clone()
                .try_into()
                .map_err(|_| ClientError::TlsName { name: name.clone() })?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        Ok(match protocol {
            Protocol::Http1 => builder.enable_http1().wrap_connector(connector),
            // Both versions by ALPN: a proxy in front of the API server may only speak HTTP/1.1.
            Protocol::Http2 => builder.enable_all_versions().wrap_connector(connector),
        })
    }

    fn over<C>(&self, connector: C, rules: Rules) -> Result<Client, ClientError>
    where
        C: Connect + Clone + Send + Sync + 'static,
    {
        let transport = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            // Otherwise hyper pings only while a request is open, and the first one after a pause would meet a dead
            // connection.
            .http2_keep_alive_while_idle(true)
            .build(connector);
        let server: Arc<str> = self.title().into();
        let transport = transport.map_err(move |source| -> BoxError {
            if source.is_connect() {
                let server = Arc::clone(&server);
                Unreachable { server, source }.into()
            } else {
                source.into()
            }
        });
        let credentials = |error| ClientError::Credentials(Box::new(error));
        let auth = self.config.auth_layer().map_err(credentials)?;
        let headers = self.config.extra_headers_layer().map_err(credentials)?;
        let service = ServiceBuilder::new()
            .layer(self.config.base_uri_layer())
            // Outside of the layer with the credentials, so that a retry carries a token that was renewed meanwhile.
            .layer_fn(|inner| Retry::new(RetryReads::new(), inner))
            .option_layer(auth)
            .layer(headers)
            .service(Guard::new(transport, rules));
        Ok(Client::new(service, self.config.default_namespace.clone()))
    }
}

#[derive(Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
}

/// A client over another transport, such as an API server in this process, with the same rules: retries of reads,
/// timeouts, leader check, counting. Without `leadership` it may always write.
pub fn over_transport<S, B>(
    transport: S,
    leadership: Option<Leadership>,
    requests: Arc<RequestCounts>,
) -> Client
where
    S: Service<Request<GuardedBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let rules = Rules {
        leadership,
        timeout: REQUEST_TIMEOUT,
        requests,
    };
    Client::new(
        Retry::new(RetryReads::new(), Guard::new(transport, rules)),
        "default",
    )
}

/// Retries reads that an overloaded server refused. Never retries a write, nor a watch, which has its own back-off.
#[derive(Clone)]
struct RetryReads(RetryPolicy);

impl RetryReads {
    fn new() -> Self {
        let policy = RetryPolicy::new(
            Duration::from_millis(50),
            Duration::from_secs(5),
            READ_RETRIES,
            true,
        );
        Self(policy.unwrap_or_default())
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for RetryReads {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        if let Ok(response) = result
            && let Some(after) = response.headers().get(RETRY_AFTER)
            && after
                .to_str()
                .ok()
                .and_then(|it| it.parse::<u64>().ok())
                .is_some_and(|it| it > MAX_RETRY_AFTER)
        {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(MAX_RETRY_AFTER));
        }
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // tower retries only requests that it could clone.
        let read = request.method() == Method::GET && !requests::is_watch(request.uri());
        read.then(|| Policy::<_, Response<B>, BoxError>::clone_request(&mut self.0, request))
            .flatten()
    }
}

fn server(url: &str) -> Result<Uri, ClientError> {
    let parsed = Url::parse(url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // client-go accepts a URL without a scheme too.
    let text = if parsed.is_some() {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    let uri = text
        .parse::<Uri>()
        .ok()
        .filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    uri.ok_or_else(|| ClientError::Master {
        url: host_of(url).to_owned(),
    })
}

/// The part of a URL after user name and password.
fn host_of(url: &str) -> &str {
    // From the right, because a password that is not percent-encoded may contain `@`.
    url.rsplit_once('@').map_or(url, |(_, host)| host)
}

async fn from_kubeconfig(
    path: Option<&PathBuf>,
    master: Option<&str>,
    context: Option<&str>,
) -> Result<(Config, Option<Url>, Option<Contexts>), ClientError> {
    let mut kubeconfig = path
        .map_or_else(Kubeconfig::read, Kubeconfig::read_from)
        .map_err(unusable)?;
    if let Some(context) = context {
        kubeconfig.current_context = Some(context.to_owned());
    }
    let current = kubeconfig.current_context.clone().unwrap_or_default();
    let (chosen, others): (Vec<_>, Vec<_>) = kubeconfig
        .contexts
        .iter()
        .map(|context| context.name.clone())
        .partition(|name| *name == current);
    if chosen.is_empty() {
        return Err(match &*current {
            "" => ClientError::NoCurrentContext { known: others },
            name => ClientError::NoContext {
                name: name.to_owned(),
                known: others,
            },
        });
    }
    let cluster = kubeconfig
        .contexts
        .iter()
        .find(|context| context.name == current)
        .and_then(|context| context.context.as_ref())
        .map(|context| context.cluster.clone());
    let mut proxy = None;
    for named in &mut kubeconfig.clusters {
        let Some(settings) = named
            .cluster
            .as_mut()
            .filter(|_| Some(&named.name) == cluster.as_ref())
        else {
            continue;
        };
        if let Some(url) = master {
            settings.server = Some(server(url)?.to_string());
        }
        // Removed so that kube does not use it. The setting below keeps kube from reading the environment.
        proxy = settings.proxy_url.take().filter(|url| !url.is_empty());
        settings.proxy_url = Some("http://unused.invalid".to_owned());
    }
    let proxy = match proxy {
        Some(url) => Some(Url::parse(&url).map_err(|_| ClientError::ProxyScheme {
            scheme: String::new(),
        })?),
        None => None,
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(unusable)?;
    Ok((config, proxy, Some((current, others))))
}

fn unusable(error: KubeconfigError) -> ClientError {
    match error {
        KubeconfigError::ReadConfig(why, path) if why.kind() == std::io::ErrorKind::NotFound => {
            ClientError::NoKubeconfig {
                path: path.display().to_string(),
            }
        }
        KubeconfigError::ReadConfig(why, path) => ClientError::UnreadKubeconfig {
            path: path.display().to_string(),
            why,
        },
        error => ClientError::Kubeconfig(Box::new(error)),
    }
}

/// A connector through an HTTP proxy; `None` if the proxy's URL is unusable.
fn tunnel(proxy: &Url, connector: HttpConnector) -> Option<Tunnel<HttpConnector>> {
    let uri = format!("http://{}:{}", proxy.host_str()?, proxy.port_or_known_default()?)
        .parse()
        .ok()?;
    let tunnel = Tunnel::new(uri, connector);
    if proxy.username().is_empty() {
        return Some(tunnel);
    }
    // In a URL, user name and password are percent-encoded (RFC 3986, section 3.2.1); in the header not (RFC 7617).
    let mut pair: Vec<u8> = percent_decode_str(proxy.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(proxy.password().unwrap_or_default()));
    let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
    Some(tunnel.with_auth(HeaderValue::from_str(&basic).ok()?))
}
