//! The HTTP server: `/livez`, `/readyz` and `/metrics` on one port.
//!
//! Any client that reaches the port can use it, so everything is bounded: connections, the size of a request's head,
//! and the time of each. When too many connections are open, the oldest one is closed: a probe of the kubelet then
//! still gets its answer, however many idle connections another pod keeps.

mod auth;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::metrics::{self, Metrics};
use auth::{Authorizer, Verdict};
use tls::Tls;
pub use tls::TlsError;

/// Connections at a time. Prometheus keeps one, a kubelet opens one for each probe.
const MAX_CONNECTIONS: usize = 64;
/// Bytes of a request's head, which hyper answers with 431 beyond that.
const MAX_HEAD: usize = 16 << 10;
/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the head of a request, also from the end of the one before. Prometheus scrapes every 15 to 60 seconds, and
/// opens another connection if this one is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time of a connection, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause after a connection could not be accepted, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

type Body = UnsyncBoxBody<Bytes, Infallible>;

const TEXT: &str = "text/plain; charset=utf-8";

/// `--metrics-bind-address`: where to listen, as `:8080`, `127.0.0.1:8080` or `[::1]:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// All addresses of the machine if absent.
    ip: Option<IpAddr>,
    port: u16,
}

impl BindAddress {
    pub const DEFAULT: Self = Self { ip: None, port: 8080 };

    async fn listen(&self) -> io::Result<TcpListener> {
        let on = async |ip: IpAddr| TcpListener::bind(SocketAddr::new(ip, self.port)).await;
        match self.ip {
            Some(ip) => on(ip).await,
            // On Linux this socket takes IPv4 too. A machine without IPv6 has none of it.
            None => match on(Ipv6Addr::UNSPECIFIED.into()).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    on(Ipv4Addr::UNSPECIFIED.into()).await
                }
                listener => listener,
            },
        }
    }
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error =
            || "must be an address and a port, such as :8080 or 127.0.0.1:8080, or 0 for none".to_owned();
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|_| error())?;
            return Ok(Self { ip: None, port });
        }
        let address: SocketAddr = text.parse().map_err(|_| error())?;
        Ok(Self {
            ip: Some(address.ip()),
            port: address.port(),
        })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => write!(f, "{}", SocketAddr::new(ip, self.port)),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// What to serve, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    pub address: BindAddress,
    /// Whether this address was configured. The default one is given up if another process has it.
    pub is_required: bool,
    /// Files of the certificate and of its key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether `/metrics` asks the API server who may read it.
    pub secure: bool,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "cannot listen on {address} for metrics and probes; set --metrics-bind-address to a free address, or to 0 for none: \
         {error}"
    )]
    Bind { address: BindAddress, error: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A port that is listened on, and not served yet.
pub struct Listener {
    socket: TcpListener,
    tls: Option<Tls>,
    secure: bool,
}

impl Listener {
    /// Takes the port. `None` if the default one is taken already.
    ///
    /// # Errors
    /// Fails if a configured address cannot be bound, or the certificate cannot be used.
    pub async fn bind(serving: &Serving) -> Result<Option<Self>, ServerError> {
        let tls = serving
            .tls
            .as_ref()
            .map(|(cert, key)| Tls::read(cert, key))
            .transpose()?;
        let address = serving.address.clone();
        let socket = match serving.address.listen().await {
            Ok(socket) => socket,
            // system-upgrade-controller needs no port. Where it ran on the host's network, as with hostNetwork, another
            // program may have this one, and nodes must be upgraded nevertheless.
            Err(error) if !serving.is_required => {
                tracing::warn!(
                    %address, %error,
                    "metrics and probes are off, because the default address is taken; --metrics-bind-address sets another"
                );
                return Ok(None);
            }
            Err(error) => return Err(ServerError::Bind { address, error }),
        };
        if let Ok(address) = socket.local_addr() {
            tracing::info!(%address, tls = tls.is_some(), "serving /livez, /readyz and /metrics");
        }
        Ok(Some(Self {
            socket,
            tls,
            secure: serving.secure,
        }))
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// Fails if the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until it is dropped. `client` asks who may read metrics; `live_limit` is how long the loop may compute.
    pub(super) async fn serve(self, metrics: Metrics, client: Client, live_limit: Duration) {
        let service = Arc::new(Service {
            metrics,
            authorizer: Authorizer::new(client),
            secure: self.secure,
            live_limit,
        });
        let mut connections = JoinSet::new();
        let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let (stream, _) = match self.socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            while connections.try_join_next().is_some() {}
            oldest_first.retain(|connection| !connection.is_finished());
            if oldest_first.len() >= MAX_CONNECTIONS
                && let Some(oldest) = oldest_first.pop_front()
            {
                oldest.abort();
            }
            let connection = connect(stream, self.tls.clone(), Arc::clone(&service));
            let limited = async {
                let _ = timeout(CONNECTION_TIMEOUT, connection).await;
            };
            oldest_first.push_back(connections.spawn(limited));
        }
    }
}

async fn connect(stream: TcpStream, tls: Option<Tls>, service: Arc<Service>) {
    // Answers are small, and nothing follows them.
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve_connection(stream, service).await,
        Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => serve_connection(stream, service).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => {}
        },
    }
}

async fn serve_connection<S>(stream: S, service: Arc<Service>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection broke off");
    }
}

struct Service {
    metrics: Metrics,
    authorizer: Authorizer,
    /// Whether metrics need a token.
    secure: bool,
    live_limit: Duration,
}

impl Service {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            // The names of Kubernetes, and those of controller-runtime.
            "/livez" | "/healthz" => probe(self.metrics.check_live(self.live_limit)),
            "/readyz" => probe(self.metrics.check_ready()),
            "/metrics" => self.scrape(request).await,
            _ => reply(StatusCode::NOT_FOUND, "there are /livez, /readyz and /metrics"),
        }
    }

    async fn scrape<B>(&self, request: &Request<B>) -> Response<Body> {
        if self.secure
            && let Err(refusal) = self.admit(request.headers()).await
        {
            return refusal;
        }
        match self.metrics.text().await {
            Ok(text) => {
                let mut response = Response::new(whole(text));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    async fn admit(&self, headers: &HeaderMap) -> Result<(), Response<Body>> {
        let refusal = match self.authorizer.ask(headers).await {
            Verdict::Allowed => return Ok(()),
            Verdict::Unauthenticated => {
                let mut response = reply(
                    StatusCode::UNAUTHORIZED,
                    "send a token of this cluster: Authorization: Bearer TOKEN",
                );
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
                response
            }
            Verdict::Forbidden => reply(
                StatusCode::FORBIDDEN,
                "this account may not get /metrics: it needs a ClusterRole with nonResourceURLs [/metrics] and verbs [get]",
            ),
            Verdict::Unknown(why) => reply(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("the API server cannot be asked who may get /metrics: {why}"),
            ),
        };
        Err(refusal)
    }
}

fn probe(checked: Result<(), String>) -> Response<Body> {
    match checked {
        Ok(()) => reply(StatusCode::OK, "ok"),
        Err(why) => reply(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

/// A body that is there at once.
fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

fn reply(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(whole(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
