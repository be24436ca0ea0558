//! TLS: the certificate authorities to trust, and client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::error::SetupError;

/// A client certificate with its private key. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// PEM.
    pub(super) chain: Vec<u8>,
    /// PEM.
    pub(super) key: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl Identity {
    /// Fails with whether the key is at fault, and why.
    pub(super) fn new(chain: &[u8], key: &[u8]) -> Result<Self, (bool, &'static str)> {
        let identity = Self {
            chain: chain.to_owned(),
            key: key.to_owned(),
        };
        if identity.certificates().is_none() {
            return Err((false, "it has no certificate as PEM"));
        }
        if PrivateKeyDer::from_pem_slice(key).is_err() {
            return Err((true, "it has no private key as PEM"));
        }
        Ok(identity)
    }

    fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.chain).collect();
        certificates.ok().filter(|certificates| !certificates.is_empty())
    }
}

pub(super) fn config(roots: RootCertStore, identity: Option<&Identity>) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match identity {
        None => tls.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(&identity.key);
            let key = key.map_err(|_| SetupError::ClientCertificate)?;
            let chain = identity.certificates().ok_or(SetupError::ClientCertificate)?;
            tls.with_client_auth_cert(chain, key)?
        }
    })
}

/// The public authorities, and those of these files (PEM).
pub(super) fn roots(ca_files: &[PathBuf]) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    for path in ca_files {
        let certificates = certificates(path)?;
        if certificates.is_empty() {
            return Err(SetupError::NoCertificate { path: path.clone() });
        }
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|source| SetupError::BadCertificate {
                    path: path.clone(),
                    source,
                })?;
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|source| SetupError::CaFile {
            path: path.to_owned(),
            source,
        })
}

pub(super) fn add_authorities(roots: &mut RootCertStore, pem: &str) -> Result<(), &'static str> {
    let mut any = false;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| "this is not PEM")?;
        roots
            .add(certificate)
            .map_err(|_| "a certificate cannot serve as a trust anchor")?;
        any = true;
    }
    if any {
        Ok(())
    } else {
        Err("there is no certificate")
    }
}
