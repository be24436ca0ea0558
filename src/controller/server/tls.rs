//! TLS by files, which are read again when they change: cert-manager and others renew them in place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The files are read at most so often, when a connection comes.
const REREAD_AFTER: Duration = Duration::from_secs(1);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("--metrics-cert-file or --metrics-key-file, {}, cannot be read: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("--metrics-cert-file, {}, has no PEM certificate that can be used: {why}", path.display())]
    Certificate { path: PathBuf, why: String },
    #[error("--metrics-key-file, {}, has no PEM private key that can be used: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("TLS for metrics cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

#[derive(Clone)]
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    files: Arc<Files>,
}

impl Tls {
    pub(super) fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = Arc::new(Files::read(cert, key)?);
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&files.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&files) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, files })
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.files.reread();
        self.acceptor.accept(stream).await
    }
}

#[derive(Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The bytes that were last looked at.
    texts: [Vec<u8>; 2],
    looked: Instant,
    current: Arc<CertifiedKey>,
}

impl Files {
    fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let texts = [bytes(cert)?, bytes(key)?];
        let current = Arc::new(parse(cert, key, &texts, &provider)?);
        Ok(Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            provider,
            state: Mutex::new(State {
                texts,
                looked: Instant::now(),
                current,
            }),
        })
    }

    /// Reads the files again if it is time. A pair that cannot be used, as in the middle of an update, leaves the one
    /// before.
    fn reread(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() < REREAD_AFTER {
            return;
        }
        state.looked = Instant::now();
        let read = bytes(&self.cert).and_then(|cert| Ok([cert, bytes(&self.key)?]));
        let parsed = read.and_then(|texts| {
            if texts == state.texts {
                return Ok(None);
            }
            let parsed = parse(&self.cert, &self.key, &texts, &self.provider);
            // Also after a failure, so that a pair that cannot be used is reported once, and not with each connection.
            state.texts = texts;
            parsed.map(Some)
        });
        match parsed {
            Ok(None) => {}
            Ok(Some(new)) => {
                tracing::info!(file = %self.cert.display(), "the certificate for metrics has changed");
                state.current = Arc::new(new);
            }
            Err(error) => tracing::warn!(%error, "the certificate for metrics stays as it was"),
        }
    }
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&state.current))
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::File {
        path: path.to_owned(),
        error,
    })
}

fn parse(
    cert: &Path,
    key: &Path,
    [cert_text, key_text]: &[Vec<u8>; 2],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let bad_cert = |why: String| TlsError::Certificate {
        path: cert.to_owned(),
        why,
    };
    let bad_key = |why: String| TlsError::Key {
        path: key.to_owned(),
        why,
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert_text)
        .collect::<Result<_, _>>()
        .map_err(|error| bad_cert(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad_cert("it has none".to_owned()));
    }
    let parsed = PrivateKeyDer::from_pem_slice(key_text).map_err(|error| bad_key(error.to_string()))?;
    // Also compares the two.
    CertifiedKey::from_der(chain, parsed, provider).map_err(|error| bad_key(error.to_string()))
}
