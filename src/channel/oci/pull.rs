//! Pull secrets: which login a docker configuration has for a repository, as kubelets search it. Pure.
//!
//! Logins that a program on the host would have to be asked for (`credsStore`, `credHelpers`) are none here.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use serde::Deserialize;

use crate::channel::access::{Access, Credentials};
use crate::channel::kind::Repository;

/// docker writes padding; people leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Names of Docker Hub.
const HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// The content of a pull secret, or of docker's `config.json`. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DockerConfig {
    entries: Vec<(Place, Login)>,
}

/// For which repositories an entry is.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    /// With `*` in it, perhaps; and its port.
    host: String,
    path: String,
}

/// How a registry is told who asks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    None,
    /// Sent with every request.
    Header(Credentials),
    /// Given for a token, or sent where the registry wants it.
    Basic(Credentials),
    /// A refresh token, given for a token.
    Identity(String),
}

#[derive(Deserialize)]
struct File {
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl DockerConfig {
    /// Reads a `.dockerconfigjson`.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let file: File = serde_json::from_slice(text)
            .map_err(|_| "it is no JSON with an object \"auths\" of registries")?;
        Ok(Self::of(file.auths))
    }

    /// Reads a `.dockercfg`, the older form.
    ///
    /// # Errors
    /// It is none.
    pub fn parse_legacy(text: &[u8]) -> Result<Self, &'static str> {
        let entries = serde_json::from_slice(text).map_err(|_| "it is no JSON object of registries")?;
        Ok(Self::of(entries))
    }

    fn of(auths: BTreeMap<String, Entry>) -> Self {
        let entries = auths.into_iter();
        let entries = entries.filter_map(|(name, entry)| Some((Place::parse(&name), entry.login()?)));
        let mut entries: Vec<_> = entries.collect();
        // The longest path says most, and a name more than a pattern.
        entries.sort_by_key(|(place, _)| (std::cmp::Reverse(place.path.len()), place.host.contains('*')));
        Self { entries }
    }

    fn login(&self, repository: &Repository) -> Option<&Login> {
        let found = self.entries.iter().find(|(place, _)| place.has(repository));
        found.map(|(_, login)| login)
    }
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DockerConfig({} registries)", self.entries.len())
    }
}

impl Place {
    /// `https://index.docker.io/v1/`, `ghcr.io`, `*.example.com:5000/team`.
    fn parse(name: &str) -> Self {
        let name = name.trim();
        let name = name
            .strip_prefix("https://")
            .or_else(|| name.strip_prefix("http://"))
            .unwrap_or(name);
        let (host, path) = name.split_once('/').unwrap_or((name, ""));
        let path = path.trim_end_matches('/');
        let path = path
            .strip_prefix("v1")
            .or_else(|| path.strip_prefix("v2"))
            .filter(|rest| rest.is_empty())
            .unwrap_or(path);
        let host = host.to_ascii_lowercase();
        Self {
            host: if HUB.contains(&host.as_str()) {
                HUB[0].to_owned()
            } else {
                host
            },
            path: path.to_owned(),
        }
    }

    fn has(&self, repository: &Repository) -> bool {
        let port = |host: &str| {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
            // `[::1]` has colons, and no port.
            if port.ends_with(']') {
                (host.to_owned(), String::new())
            } else {
                (name.to_owned(), port.to_owned())
            }
        };
        let ((host, at), (wanted, port)) = (port(&self.host), port(&repository.host));
        let (parts, wanted): (Vec<_>, Vec<_>) = (host.split('.').collect(), wanted.split('.').collect());
        at == port
            && parts.len() == wanted.len()
            && parts
                .iter()
                .zip(&wanted)
                .all(|(pattern, part)| matches(pattern, part))
            && repository.path.starts_with(&self.path)
    }
}

/// Whether a part of a host's name is like a pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(before) else {
        return false;
    };
    let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.into_iter().any(|at| matches(after, &text[at..]))
}

impl Entry {
    fn login(self) -> Option<Login> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(token) = given(self.registrytoken) {
            return Some(Login::Header(Credentials::Bearer(token)));
        }
        if let Some(token) = given(self.identitytoken) {
            return Some(Login::Identity(token));
        }
        let pair = given(self.auth).and_then(|auth| {
            let bytes = BASE64.decode(auth.trim()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (username, password) = text.split_once(':')?;
            // docker pads what it encodes with zeros.
            Some((username.to_owned(), password.trim_end_matches('\0').to_owned()))
        });
        let (username, password) = match (pair, given(self.username), given(self.password)) {
            (Some(pair), _, _) => pair,
            (None, Some(username), Some(password)) => (username, password),
            _ => return None,
        };
        Some(Login::Basic(Credentials::Basic { username, password }))
    }
}

impl Login {
    /// For the channel itself: its own credentials, or else those of the pull secrets.
    pub(crate) fn of(access: &Access, repository: &Repository) -> Self {
        match &access.credentials {
            Some(basic @ Credentials::Basic { .. }) => Self::Basic(basic.clone()),
            Some(other) => Self::Header(other.clone()),
            None => Self::for_pull(access, repository),
        }
    }

    /// For an image: those of the pull secrets.
    pub(crate) fn for_pull(access: &Access, repository: &Repository) -> Self {
        let logins = access.pull.iter().find_map(|config| config.login(repository));
        logins.cloned().unwrap_or(Self::None)
    }

    /// What tells it from others.
    pub(crate) fn parts(&self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Header(credentials) | Self::Basic(credentials) => credentials.parts(),
            Self::Identity(token) => vec!["identity".to_owned(), token.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(config: &str, repository: &str) -> Option<String> {
        let config = DockerConfig::parse(config.as_bytes()).unwrap();
        let (host, path) = repository.split_once('/').unwrap();
        let repository = Repository::new(host, path, None, false).unwrap();
        match config.login(&repository)? {
            Login::Basic(Credentials::Basic { username, password }) => Some(format!("{username}:{password}")),
            Login::Identity(token) => Some(format!("identity {token}")),
            Login::Header(Credentials::Bearer(token)) => Some(format!("bearer {token}")),
            _ => panic!(),
        }
    }

    #[test]
    fn a_login_is_found_as_kubelets_find_it() {
        let config = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "ghcr.io": {"username": "git", "password": "pw"},
            "ghcr.io/team": {"auth": "dGVhbTpw"},
            "*.example.com:5000": {"auth": "c3RhcjpwOnc="},
            "eu.example.com:5000": {"auth": "ZXU6cA"},
            "a*c.test": {"auth": "YWM6cA=="},
            "http://plain.test/v2/": {"auth": "cGxhaW46cAAA"},
            "acr.test": {"auth": "MDA6", "identitytoken": "refresh"},
            "bearer.test": {"registrytoken": "tok"},
            "[::1]:5000": {"auth": "c2l4OnA="},
            "broken.test": {"auth": "%%%"},
            "empty.test": {}
        }, "credsStore": "desktop"}"#;
        for (repository, login) in [
            ("docker.io/rancher/k3s", Some("hub:pw")),
            ("registry-1.docker.io/alpine", Some("hub:pw")),
            ("ghcr.io/other/x", Some("git:pw")),
            ("ghcr.io/team/x", Some("team:p")),
            ("us.example.com:5000/x", Some("star:p:w")),
            ("eu.example.com:5000/x", Some("eu:p")),
            ("us.example.com/x", None),
            ("a.b.example.com:5000/x", None),
            ("abc.test/x", Some("ac:p")),
            ("ac.test/x", Some("ac:p")),
            ("abd.test/x", None),
            ("plain.test/x", Some("plain:p")),
            ("acr.test/x", Some("identity refresh")),
            ("bearer.test/x", Some("bearer tok")),
            ("[::1]:5000/x", Some("six:p")),
            ("[::1]/x", None),
            ("broken.test/x", None),
            ("empty.test/x", None),
            ("elsewhere.test/x", None),
        ] {
            assert_eq!(user(config, repository).as_deref(), login, "{repository}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_told_without_its_words() {
        for text in ["", "s3cret", "[]", "{}", r#"{"auths": "s3cret"}"#] {
            let error = DockerConfig::parse(text.as_bytes()).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(DockerConfig::parse_legacy(br#"{"ghcr.io": {"auth": "YTpi"}}"#).is_ok());
    }

    #[test]
    fn nothing_is_shown() {
        let config = DockerConfig::parse(br#"{"auths": {"a.test": {"auth": "YTpi"}}}"#).unwrap();
        assert_eq!(format!("{config:?}"), "DockerConfig(1 registries)");
    }
}
