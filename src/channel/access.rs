//! Credentials, certificate authorities and pull secrets for channels and registries, and how they are read from
//! Secrets.
//!
//! Their values are never printed: `Debug` shows only what is set, and errors name a Secret and its key.

use http::{HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::Secret;
use rustls::RootCertStore;
use url::Url;

pub use super::credentials::Credentials;
pub use super::docker_config::DockerConfig;
use super::docker_config::Login;
use super::kind::Repository;
use super::tls::{Identity, add_authorities};

/// Types of Secrets (Kubernetes, "Types of Secret").
const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

const TOKEN: &str = "token";
const USERNAME: &str = "username";
const PASSWORD: &str = "password";
const HEADER: &str = "header";
const VALUE: &str = "value";
const DOCKER_CONFIG: &str = ".dockerconfigjson";
const DOCKER_CFG: &str = ".dockercfg";
/// Where the token of a service account is not sent.
const TO_CHANNEL: &str = "a channel: create a secret with the channel's own credentials";
const CA: &str = "ca.crt";
const TLS_CERTIFICATE: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";
const URL: &str = "url";
/// Bytes of a URL. Servers accept 8,000 at most (RFC 9110, 4.1).
const MAX_URL: usize = 4 << 10;

/// Headers that belong to the connection, and `if-none-match`, which holds the entity tags of kept offers.
const NOT_OURS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "if-none-match",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Access to a channel. The default is anonymous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Credentials for the channel's own host only.
    pub credentials: Option<Credentials>,
    /// Client certificate, for checks only.
    pub identity: Option<Identity>,
    /// PEM of additional authorities to trust.
    pub ca: Option<String>,
    /// For registries: contents of pull secrets, in order of precedence.
    pub pull: Vec<DockerConfig>,
}

/// Why a Secret cannot be used. Names keys, but no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It has none of the keys.
    #[error(
        "secrets {0:?} has no credentials: it needs token, or username and password, or header and value, or {1}"
    )]
    Nothing(String, &'static str),
    /// It has keys of two methods.
    #[error("secrets {0:?} has both {1} and {2}: only one of them can be sent")]
    Both(String, &'static str, &'static str),
    #[error("secrets {0:?} has no key {1:?}, which belongs to {2}")]
    Missing(String, &'static str, &'static str),
    #[error("secrets {0:?}: {1} cannot be used: {2}")]
    Unusable(String, &'static str, &'static str),
    #[error("secrets {0:?} has no key \"ca.crt\"")]
    NoCa(String),
    #[error("secrets {0:?} has no key \"url\"")]
    NoUrl(String),
    /// Otherwise an author of Plans could have a token of any service account sent to a server of their own.
    #[error("secrets {0:?} is the token of a service account, which is not sent to {1}")]
    ServiceAccount(String, &'static str),
}

impl Access {
    /// The login for a channel: its own credentials, or those of the pull secrets.
    pub(super) fn login(&self, repository: &Repository) -> Login {
        match &self.credentials {
            Some(basic @ Credentials::Basic { .. }) => Login::Basic(basic.clone()),
            Some(other) => Login::Header(other.clone()),
            None => self.pull_login(repository),
        }
    }

    /// The login for an image: that of the pull secrets. The channel's credentials are for the channel's host, which may
    /// be another one.
    pub(super) fn pull_login(&self, repository: &Repository) -> Login {
        let logins = self.pull.iter().find_map(|config| config.login(repository));
        logins.cloned().unwrap_or(Login::None)
    }

    /// Reads the Secret of `spec.channelSecretRef`.
    ///
    /// # Errors
    /// Fails if it has no usable credentials.
    pub fn read_secret(&mut self, secret: &Secret) -> Result<(), AccessError> {
        let secret = Keys(secret);
        secret.refuse_service_account(TO_CHANNEL)?;
        let ways = [
            TOKEN,
            USERNAME,
            PASSWORD,
            HEADER,
            VALUE,
            DOCKER_CONFIG,
            DOCKER_CFG,
        ];
        let mut there = ways.into_iter().filter(|key| secret.has(key));
        let Some(first) = there.next() else {
            return Err(AccessError::Nothing(secret.name(), DOCKER_CONFIG));
        };
        let goes_with = |other: &&str| match first {
            USERNAME => *other == PASSWORD,
            HEADER => *other == VALUE,
            _ => false,
        };
        if let Some(other) = there.find(|other| !goes_with(other)) {
            return Err(AccessError::Both(secret.name(), first, other));
        }
        let credentials = match first {
            TOKEN => Credentials::Bearer(secret.text(TOKEN)?),
            USERNAME | PASSWORD => Credentials::Basic {
                username: secret.of_two(USERNAME, PASSWORD)?,
                password: secret.of_two(PASSWORD, USERNAME)?,
            },
            HEADER | VALUE => Credentials::Header {
                name: secret.header_name()?,
                value: secret.pair(VALUE, HEADER)?,
            },
            _ => {
                // In front of the pull secrets of the Plan: the first login that matches counts.
                self.pull.splice(..0, secret.docker_config()?);
                return Ok(());
            }
        };
        self.credentials = Some(credentials);
        Ok(())
    }

    /// Reads the Secret `secretRef` of a check.
    ///
    /// # Errors
    /// Fails if it has no usable credentials.
    pub fn read_check_secret(&mut self, secret: &Secret) -> Result<(), AccessError> {
        let keys = Keys(secret);
        keys.refuse_service_account("another server: create a secret with credentials of its own")?;
        if keys.has(TLS_CERTIFICATE) || keys.has(TLS_KEY) {
            let other = [TOKEN, USERNAME, HEADER].into_iter().find(|key| keys.has(key));
            if let Some(other) = other {
                return Err(AccessError::Both(keys.name(), TLS_CERTIFICATE, other));
            }
            self.identity = Some(keys.identity()?);
            return Ok(());
        }
        let mut access = Self::default();
        let read = access.read_secret(secret);
        // A pull secret is read without an error, but only registries can use it.
        if matches!(read, Err(AccessError::Nothing(..))) || read.is_ok() && access.credentials.is_none() {
            return Err(AccessError::Nothing(keys.name(), "tls.crt and tls.key"));
        }
        self.credentials = access.credentials;
        read
    }

    /// Reads the Secret of `spec.channelCASecretRef`, or `caSecretRef` of a check.
    ///
    /// # Errors
    /// Fails if it has no usable authorities.
    pub fn read_ca(&mut self, secret: &Secret) -> Result<(), AccessError> {
        let secret = Keys(secret);
        let bytes = secret.bytes(CA).ok_or_else(|| AccessError::NoCa(secret.name()))?;
        let bad = |why| AccessError::Unusable(secret.name(), CA, why);
        let pem = std::str::from_utf8(bytes).map_err(|_| bad("this is not PEM"))?;
        add_authorities(&mut RootCertStore::empty(), pem).map_err(bad)?;
        self.ca = Some(pem.to_owned());
        Ok(())
    }

    /// Reads the Secret of a receiver of notifications: its URL, and the credentials and authorities that it may have, too.
    ///
    /// # Errors
    /// Fails if it has no URL, or credentials or authorities that are not usable.
    pub fn read_receiver(secret: &Secret) -> Result<(Url, Self), AccessError> {
        let keys = Keys(secret);
        keys.refuse_service_account(TO_CHANNEL)?;
        let bad = |why| AccessError::Unusable(keys.name(), URL, why);
        let text = keys.bytes(URL).ok_or_else(|| AccessError::NoUrl(keys.name()))?;
        if text.len() > MAX_URL {
            return Err(bad("it is too long for a URL"));
        }
        let url = std::str::from_utf8(text)
            .ok()
            .and_then(|text| Url::parse(text.trim()).ok());
        let url = url
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| bad("it is not a URL that begins with https://"))?;
        let mut access = Self::default();
        if [TOKEN, USERNAME, PASSWORD, HEADER, VALUE]
            .into_iter()
            .any(|key| keys.has(key))
        {
            access.read_secret(secret)?;
        }
        if keys.has(CA) {
            access.read_ca(secret)?;
        }
        Ok((url, access))
    }

    /// Reads a Secret of `spec.imagePullSecrets`. Like kubelets, it ignores a Secret that is not a pull secret.
    ///
    /// # Errors
    /// Fails if a pull secret is invalid.
    pub fn read_pull_secret(&mut self, secret: &Secret) -> Result<(), AccessError> {
        let secret = Keys(secret);
        secret.refuse_service_account(TO_CHANNEL)?;
        self.pull.extend(secret.docker_config()?);
        Ok(())
    }
}

struct Keys<'a>(&'a Secret);

impl<'a> Keys<'a> {
    fn name(&self) -> String {
        self.0.metadata.name.clone().unwrap_or_default()
    }

    fn refuse_service_account(&self, receiver: &'static str) -> Result<(), AccessError> {
        if self.0.type_.as_deref() == Some(SERVICE_ACCOUNT_TOKEN) {
            return Err(AccessError::ServiceAccount(self.name(), receiver));
        }
        Ok(())
    }

    fn bytes(&self, key: &str) -> Option<&'a [u8]> {
        self.0.data.as_ref()?.get(key).map(|value| value.0.as_slice())
    }

    fn has(&self, key: &str) -> bool {
        self.bytes(key).is_some()
    }

    /// A value that a header can hold. Editors and files often leave a trailing newline, which is removed.
    fn text(&self, key: &'static str) -> Result<String, AccessError> {
        let bad = |why| AccessError::Unusable(self.name(), key, why);
        let text =
            std::str::from_utf8(self.bytes(key).unwrap_or_default()).map_err(|_| bad("it is not text"))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if HeaderValue::from_str(text).is_err() {
            return Err(bad("it has characters that no header can hold"));
        }
        Ok(text.to_owned())
    }

    /// One of two keys that are both required.
    fn pair(&self, key: &'static str, other: &'static str) -> Result<String, AccessError> {
        if self.has(key) {
            self.text(key)
        } else {
            Err(AccessError::Missing(self.name(), key, other))
        }
    }

    /// As `pair`, but Kubernetes allows one of the two to be missing.
    fn of_two(&self, key: &'static str, other: &'static str) -> Result<String, AccessError> {
        if !self.has(key) && self.0.type_.as_deref() == Some(BASIC_AUTH) {
            return Ok(String::new());
        }
        let text = self.pair(key, other)?;
        // The first colon ends the user name (RFC 7617, 2), so the server would see another one, and another password.
        if key == USERNAME && text.contains(':') {
            return Err(AccessError::Unusable(
                self.name(),
                key,
                "a user name cannot contain ':'",
            ));
        }
        Ok(text)
    }

    fn identity(&self) -> Result<Identity, AccessError> {
        let part = |key: &'static str, other: &'static str| {
            self.bytes(key)
                .ok_or_else(|| AccessError::Missing(self.name(), key, other))
        };
        let chain = part(TLS_CERTIFICATE, TLS_KEY)?;
        let private = part(TLS_KEY, TLS_CERTIFICATE)?;
        Identity::new(chain, private).map_err(|(key, why)| {
            let key = if key { TLS_KEY } else { TLS_CERTIFICATE };
            AccessError::Unusable(self.name(), key, why)
        })
    }

    fn header_name(&self) -> Result<String, AccessError> {
        let name = self.pair(HEADER, VALUE)?;
        let bad = |why| Err(AccessError::Unusable(self.name(), HEADER, why));
        match HeaderName::from_bytes(name.as_bytes()) {
            Err(_) => bad("it is not a header name such as PRIVATE-TOKEN"),
            Ok(header) if NOT_OURS.contains(&header.as_str()) => bad("refit sets this header itself"),
            Ok(_) => Ok(name),
        }
    }

    fn docker_config(&self) -> Result<Option<DockerConfig>, AccessError> {
        let (key, config) = match (self.bytes(DOCKER_CONFIG), self.bytes(DOCKER_CFG)) {
            (Some(text), _) => (DOCKER_CONFIG, DockerConfig::parse(text)),
            (None, Some(text)) => (DOCKER_CFG, DockerConfig::parse_legacy(text)),
            (None, None) => return Ok(None),
        };
        let config = config.map_err(|why| AccessError::Unusable(self.name(), key, why))?;
        Ok(Some(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn secret(kind: &str, data: &[(&str, &str)]) -> Secret {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString((*value).into())));
        let mut secret = Secret {
            data: Some(data.collect()),
            type_: Some(kind.to_owned()),
            ..Secret::default()
        };
        secret.metadata.name = Some("x".to_owned());
        secret
    }

    fn read(kind: &str, data: &[(&str, &str)]) -> Result<Access, String> {
        let mut access = Access::default();
        let read = access.read_secret(&secret(kind, data));
        read.map_err(|error| error.to_string()).map(|()| access)
    }

    fn credentials(data: &[(&str, &str)]) -> Option<Credentials> {
        read("Opaque", data).unwrap().credentials
    }

    #[test]
    fn a_secret_says_how_it_is_sent() {
        assert_eq!(
            credentials(&[("token", "t\r\n")]),
            Some(Credentials::Bearer("t".to_owned()))
        );
        let (username, password) = ("u".to_owned(), "p:w".to_owned());
        assert_eq!(
            credentials(&[("username", "u\n"), ("password", "p:w\n"), ("other", "")]),
            Some(Credentials::Basic { username, password })
        );
        let (name, value) = ("PRIVATE-TOKEN".to_owned(), "v".to_owned());
        assert_eq!(
            credentials(&[("header", "PRIVATE-TOKEN"), ("value", "v")]),
            Some(Credentials::Header { name, value })
        );
        let (username, password) = (String::new(), "p".to_owned());
        assert_eq!(
            read(BASIC_AUTH, &[("password", "p")]).unwrap().credentials,
            Some(Credentials::Basic { username, password })
        );
        let config = r#"{"auths": {"a.test": {"auth": "YTpi"}}}"#;
        let access = read("kubernetes.io/dockerconfigjson", &[(".dockerconfigjson", config)]).unwrap();
        assert_eq!((access.credentials, access.pull.len()), (None, 1));
    }

    #[test]
    fn a_secret_that_cannot_be_used_is_recognised_by_its_keys() {
        for (data, why) in [
            (
                &[][..],
                "secrets \"x\" has no credentials: it needs token, or username and password, or header and value, or .dockerconfigjson",
            ),
            (
                &[("Token", "s3cret")],
                "secrets \"x\" has no credentials: it needs token, or username and password, or header and value, or .dockerconfigjson",
            ),
            (
                &[("token", "\n")],
                "secrets \"x\": token cannot be used: it is empty",
            ),
            (
                &[("token", "s3cret\nx")],
                "secrets \"x\": token cannot be used: it has characters that no header can hold",
            ),
            (
                &[("token", "s3cret"), ("password", "p")],
                "secrets \"x\" has both token and password: only one of them can be sent",
            ),
            (
                &[("username", "s3cret")],
                "secrets \"x\" has no key \"password\", which belongs to username",
            ),
            (
                &[("password", "s3cret")],
                "secrets \"x\" has no key \"username\", which belongs to password",
            ),
            (
                &[("username", "s3:cret"), ("password", "p")],
                "secrets \"x\": username cannot be used: a user name cannot contain ':'",
            ),
            (
                &[("value", "s3cret")],
                "secrets \"x\" has no key \"header\", which belongs to value",
            ),
            (
                &[("header", "X")],
                "secrets \"x\" has no key \"value\", which belongs to header",
            ),
            (
                &[("header", "a b"), ("value", "s3cret")],
                "secrets \"x\": header cannot be used: it is not a header name such as PRIVATE-TOKEN",
            ),
            (
                &[("header", "Host"), ("value", "s3cret")],
                "secrets \"x\": header cannot be used: refit sets this header itself",
            ),
            (
                &[(".dockerconfigjson", "s3cret")],
                "secrets \"x\": .dockerconfigjson cannot be used: it is not JSON with an object \"auths\" of registries",
            ),
        ] {
            assert_eq!(read("Opaque", data).unwrap_err(), why);
        }
    }

    #[test]
    fn the_token_of_a_service_account_is_sent_nowhere() {
        let data = [("token", "s3cret"), ("ca.crt", ""), ("namespace", "x")];
        assert_eq!(
            read(SERVICE_ACCOUNT_TOKEN, &data).unwrap_err(),
            "secrets \"x\" is the token of a service account, which is not sent to a channel: create a secret with the channel's own credentials"
        );
        let config = [(".dockerconfigjson", r#"{"auths": {}}"#)];
        let pull = secret(SERVICE_ACCOUNT_TOKEN, &config);
        assert!(Access::default().read_pull_secret(&pull).is_err());
    }

    #[test]
    fn authorities_are_looked_at_before_they_are_used() {
        let read = |data: &[(&str, &str)]| {
            let mut access = Access::default();
            access.read_ca(&secret("Opaque", data)).unwrap_err().to_string()
        };
        assert_eq!(read(&[("tls.crt", "")]), "secrets \"x\" has no key \"ca.crt\"");
        assert_eq!(
            read(&[("ca.crt", "s3cret")]),
            "secrets \"x\": ca.crt cannot be used: there is no certificate"
        );
        let broken = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----";
        assert_eq!(
            read(&[("ca.crt", broken)]),
            "secrets \"x\": ca.crt cannot be used: a certificate cannot serve as a trust anchor"
        );
    }

    #[test]
    fn a_secret_that_is_no_pull_secret_is_skipped() {
        let mut access = Access::default();
        let read =
            |access: &mut Access, data: &[(&str, &str)]| access.read_pull_secret(&secret("Opaque", data));
        assert_eq!(read(&mut access, &[("token", "x")]), Ok(()));
        assert_eq!(access.pull, []);
        assert_eq!(
            read(&mut access, &[(".dockercfg", r#"{"a.test": {"auth": "YTpi"}}"#)]),
            Ok(())
        );
        assert_eq!(access.pull.len(), 1);
        assert!(read(&mut access, &[(".dockerconfigjson", "{")]).is_err());
    }

    #[test]
    fn nothing_is_shown() {
        let mut access = read("Opaque", &[("username", "s3cret"), ("password", "s3cret")]).unwrap();
        access.ca = Some("PEM".to_owned());
        access.pull.push(DockerConfig::default());
        assert_eq!(
            format!("{access:?}"),
            r#"Access { credentials: Some(Basic(…)), identity: None, ca: Some("PEM"), pull: [DockerConfig(0 registries)] }"#
        );
        for data in [
            &[("token", "s3cret")][..],
            &[("header", "X"), ("value", "s3cret")],
        ] {
            assert!(!format!("{:?}", read("Opaque", data).unwrap()).contains("s3cret"));
        }
    }
}
