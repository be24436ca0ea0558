//! Certificates and keys of a control plane: a CA, another one for the front proxy, and the key that signs service account
//! tokens. All keys are ECDSA on P-256, with which Kubernetes signs tokens as ES256.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = params(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server that is reached as one of `hosts`, which are addresses or names.
    pub fn server(&self, name: &str, hosts: &[&str]) -> Result<Identity> {
        let mut params = params(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*host).try_into()?),
            });
        }
        self.sign(params)
    }

    /// A client: Kubernetes takes `name` for the user and `group` for its group.
    pub fn client(&self, name: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = params(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

/// Valid from 1975 to 4096, the default of rcgen.
fn params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params
}

impl Identity {
    /// What a TLS server needs.
    pub fn tls(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        use rustls_pki_types::pem::PemObject as _;
        Ok((
            vec![CertificateDer::from_pem_slice(self.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(self.key.as_bytes())?,
        ))
    }
}

/// The files that the programs of a control plane read.
pub struct Pki {
    dir: PathBuf,
    authority: Authority,
}

impl Pki {
    /// `service_ip` is the first address of the service range, under which pods reach the API server.
    pub fn write(dir: PathBuf, service_ip: &str) -> Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let pki = Self {
            authority: Authority::new("refit-test")?,
            dir,
        };
        pki.file("ca.crt", pki.authority.pem())?;

        let hosts = [
            "127.0.0.1",
            service_ip,
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        pki.pair("apiserver", &pki.authority.server("kube-apiserver", &hosts)?)?;
        pki.pair(
            "kubelet-client",
            &pki.authority.client("kubelet-client", Some("system:masters"))?,
        )?;

        let front = Authority::new("refit-test-front-proxy")?;
        pki.file("front-proxy-ca.crt", front.pem())?;
        pki.pair("front-proxy-client", &front.client("front-proxy-client", None)?)?;

        let tokens = KeyPair::generate()?;
        pki.file("sa.key", &tokens.serialize_pem())?;
        pki.file("sa.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// Who signs clients and the API server.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Paths of the certificate and key of a client, which are made now.
    pub fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<(String, String)> {
        self.pair(file, &self.authority.client(user, group)?)?;
        Ok((
            self.path(&format!("{file}.crt")),
            self.path(&format!("{file}.key")),
        ))
    }

    /// The value of a flag that takes one of the files.
    pub fn path(&self, file: &str) -> String {
        self.dir.join(file).display().to_string()
    }

    fn pair(&self, name: &str, identity: &Identity) -> Result<()> {
        self.file(&format!("{name}.crt"), &identity.certificate)?;
        self.file(&format!("{name}.key"), &identity.key)
    }

    fn file(&self, name: &str, text: &str) -> Result<()> {
        write_private(&self.dir.join(name), text)
    }
}

/// Writes a file that only the owner can read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
