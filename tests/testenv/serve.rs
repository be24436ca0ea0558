//! HTTP servers on loopback, for the fault proxy and channels.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::pki::Identity;

/// A body of whatever kind. An error in it breaks the connection.
pub type Body = UnsyncBoxBody<Bytes, anyhow::Error>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Dropping it stops the server and breaks its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: AbortHandle,
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1, with TLS if there is a certificate. An `Err` of the handler breaks
    /// the connection, or the stream of HTTP/2.
    pub async fn start<F, A>(tls: Option<&Identity>, handler: F) -> Result<Self>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<Response<Body>>> + Send + 'static,
    {
        let tls = tls.map(acceptor).transpose()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let accept = async move {
            // Connections end with the task that owns them.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        let (tls, handler) = (tls.clone(), handler.clone());
                        connections.spawn(async move {
                            match tls {
                                Some(tls) => {
                                    // A client that does not trust the certificate reports that itself.
                                    if let Ok(stream) = tls.accept(stream).await {
                                        connection(stream, handler).await;
                                    }
                                }
                                None => connection(stream, handler).await,
                            }
                        });
                    }
                    Some(_) = connections.join_next() => (),
                }
            }
        };
        Ok(Self {
            address,
            task: tokio::spawn(accept).abort_handle(),
        })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection<S, F, A>(stream: S, handler: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<Response<Body>>> + Send + 'static,
{
    let service = service_fn(handler);
    // Errors are what tests ask for here.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// TLS that offers HTTP/2 and HTTP/1.1, as the API server does.
fn acceptor(identity: &Identity) -> Result<TlsAcceptor> {
    let (chain, key) = identity.tls()?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
