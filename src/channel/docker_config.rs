//! Pull secrets: finds the login for a repository in a Docker configuration, as kubelets do. Pure.
//!
//! Credential helpers (`credsStore`, `credHelpers`) are ignored, and identity tokens (`identitytoken`) are refused.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use serde::Deserialize;

use super::credentials::Credentials;
use super::kind::Repository;
use refit_api::is_like;

/// Docker writes padding; users sometimes omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Names of Docker Hub.
const HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// The content of a pull secret, or of Docker's `config.json`. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DockerConfig {
    entries: Vec<(RegistryPath, Login)>,
}

/// The repositories to which an entry applies.
#[derive(Clone, PartialEq, Eq)]
struct RegistryPath {
    /// May contain `*`, and a port.
    host: String,
    path: String,
}

/// How to log in to a registry.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    None,
    /// Sent with every request.
    Header(Credentials),
    /// Exchanged for a token, or sent if the registry demands it.
    Basic(Credentials),
    /// An identity token, which refit cannot exchange for a token.
    Identity,
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
    /// Parses a `.dockerconfigjson`.
    ///
    /// # Errors
    /// Fails if it is malformed.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let file: File = serde_json::from_slice(text)
            .map_err(|_| "it is not JSON with an object \"auths\" of registries")?;
        Ok(Self::of(file.auths))
    }

    /// Parses a `.dockercfg`, the older format.
    ///
    /// # Errors
    /// Fails if it is malformed.
    pub fn parse_legacy(text: &[u8]) -> Result<Self, &'static str> {
        let entries = serde_json::from_slice(text).map_err(|_| "it is not a JSON object of registries")?;
        Ok(Self::of(entries))
    }

    fn of(auths: BTreeMap<String, Entry>) -> Self {
        let entries = auths.into_iter();
        let entries = entries.filter_map(|(name, entry)| Some((RegistryPath::parse(&name), entry.login()?)));
        let mut entries: Vec<_> = entries.collect();
        // The longest path takes precedence, and a name over a pattern.
        entries.sort_by_key(|(place, _)| (std::cmp::Reverse(place.path.len()), place.host.contains('*')));
        Self { entries }
    }

    pub(super) fn login(&self, repository: &Repository) -> Option<&Login> {
        let found = self.entries.iter().find(|(place, _)| place.has(repository));
        found.map(|(_, login)| login)
    }
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DockerConfig({} registries)", self.entries.len())
    }
}

impl RegistryPath {
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
            // `[::1]` contains colons, but no port.
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
                .all(|(pattern, part)| is_like(pattern, part))
            // As in kubelets, any prefix counts: `team` also has `teams/x` (pkg/credentialprovider/keyring.go,
            // `URLsMatch`).
            && repository.path.starts_with(&self.path)
    }
}

impl Entry {
    fn login(self) -> Option<Login> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(token) = given(self.registrytoken) {
            return Some(Login::Header(Credentials::Bearer(token)));
        }
        if given(self.identitytoken).is_some() {
            return Some(Login::Identity);
        }
        let pair = given(self.auth).and_then(|auth| {
            let bytes = BASE64.decode(auth.trim()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (username, password) = text.split_once(':')?;
            // Docker pads the encoded value with zeros.
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
    /// What distinguishes this login in a key.
    pub(super) fn parts(&self) -> Vec<String> {
        match self {
            Self::None | Self::Identity => Vec::new(),
            Self::Header(credentials) | Self::Basic(credentials) => credentials.parts(),
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
            Login::Identity => Some("identity".to_owned()),
            Login::Header(Credentials::Bearer(token)) => Some(format!("bearer {token}")),
            _ => panic!(),
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_more_time_than_its_length() {
        // With one try for each way to divide the text this takes longer than the universe has existed.
        let pattern = "a*".repeat(30_000);
        assert!(!is_like(&format!("{pattern}b"), &"a".repeat(30_000)));
        assert!(is_like(&pattern, &"a".repeat(30_000)));
        for (pattern, text, is_match) in [
            ("*", "", true),
            ("**", "x", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*b*", "abc", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "acb", false),
            ("", "", true),
            ("", "a", false),
            ("ä*", "äb", true),
        ] {
            assert_eq!(is_like(pattern, text), is_match, "{pattern} {text}");
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
            ("acr.test/x", Some("identity")),
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
    fn an_invalid_docker_configuration_is_reported_without_its_content() {
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
