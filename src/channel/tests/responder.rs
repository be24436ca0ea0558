//! A server with scripted responses, byte for byte, that records its requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub(super) struct Responder {
    pub(super) address: SocketAddr,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Script {
    answer: String,
    /// Text to repeat after the response without an end.
    pour: Option<(String, Duration)>,
    hang: bool,
    /// Whether each response links to another page.
    pages: bool,
    tunnel_to: Option<SocketAddr>,
    seen: String,
}

impl Responder {
    pub(super) async fn start(answer: &str) -> Self {
        Self::with(
            Script {
                answer: answer.to_owned(),
                ..Script::default()
            },
            None,
        )
        .await
    }

    /// An HTTP proxy whose tunnels all end at `target`.
    pub(super) async fn tunnel_to(target: SocketAddr) -> Self {
        let answer = "HTTP/1.1 200 Connection established\r\n\r\n".to_owned();
        Self::with(
            Script {
                answer,
                tunnel_to: Some(target),
                ..Script::default()
            },
            None,
        )
        .await
    }

    async fn with(script: Script, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&script);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, script).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, script).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            script,
            task,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn seen(&self) -> String {
        self.script.lock().unwrap().seen.clone()
    }

    pub(super) fn answer_with(&self, answer: &str) {
        answer.clone_into(&mut self.script.lock().unwrap().answer);
    }

    pub(super) fn pour(&self, text: &str, every: Duration) {
        self.script.lock().unwrap().pour = Some((text.to_owned(), every));
    }

    pub(super) fn pages(&self) {
        self.script.lock().unwrap().pages = true;
    }

    pub(super) fn hang(&self) {
        self.script.lock().unwrap().hang = true;
    }

    /// Stops the server; later connections are refused.
    pub(super) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Sends one response, or none, or an endless one.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: Arc<Mutex<Script>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let request = String::from_utf8(request).unwrap();
    let mut script = {
        let mut script = script.lock().unwrap();
        script.seen.push_str(&request);
        script.clone()
    };
    if script.pages {
        let number = script.seen.matches("GET ").count();
        let is_list = request.contains("/tags/list");
        let body = if is_list {
            r#"{"tags":["v1"]}"#
        } else {
            r#"[{"tag_name":"v1"}]"#
        };
        script.answer = format!(
            "HTTP/1.1 200 OK\r\nLink: <?page={number}>; rel=next\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
    }
    if script.hang {
        std::future::pending::<()>().await;
    }
    // The client may have closed the connection.
    let _ = stream.write_all(script.answer.as_bytes()).await;
    let _ = stream.flush().await;
    if let Some(target) = script.tunnel_to {
        let mut target = TcpStream::connect(target).await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut target).await;
    }
    while let Some((text, every)) = &script.pour {
        if stream.write_all(text.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        tokio::time::sleep(*every).await;
    }
    let _ = stream.shutdown().await;
}

/// A TLS server for `localhost` and `channel.invalid`, and its certificate as PEM.
pub(super) async fn tls_responder(answer: &str) -> (Responder, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertifiedIssuer::self_signed(authority, key).unwrap();
    let names = ["localhost", "channel.invalid"].map(str::to_owned);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let script = Script {
        answer: answer.to_owned(),
        ..Script::default()
    };
    let responder = Responder::with(script, Some(TlsAcceptor::from(Arc::new(tls)))).await;
    (responder, authority.pem())
}
