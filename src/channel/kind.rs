//! Parses the URL of a channel. Pure.
//!
//! Credentials belong in a Secret: `github://` and `oci://` allow none in the URL.

use url::Url;

use super::error::ChannelError;
use super::hosts::is_loopback;

/// The host of `oci://docker.io/…`, and the host of Docker Hub's API.
const HUB: &str = "docker.io";
const HUB_REGISTRY: &str = "registry-1.docker.io";
const HUB_OFFICIAL: &str = "library/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A redirect whose Location ends in the version (S45, S46).
    Redirect(Url),
    /// The list of a channel server, and the ID of a channel. The server may still answer with a redirect.
    Listed(Url, String),
    Github(Github),
    Oci(Repository),
}

/// A repository on GitHub or GitHub Enterprise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Github {
    /// URL of the repository in the API; ends in `/`.
    pub(super) api: Url,
    /// Host as users write it, with its port. Tokens are looked up by it.
    host: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// Root URL of the registry's API.
    pub(super) root: Url,
    /// Host as users write it, with its port. Pull secrets are looked up by it.
    pub(super) host: String,
    pub(super) path: String,
}

impl Kind {
    /// Parses a channel. If the Plan has its own authorities, loopback hosts use TLS too.
    pub(super) fn parse(channel: &str, has_ca: bool) -> Result<Self, ChannelError> {
        let channel = channel.trim();
        let (scheme, rest) = channel.split_once("://").unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, transport) = scheme.split_once('+').unwrap_or((&scheme, ""));
        let transport = match transport {
            "" => None,
            "http" => Some("http"),
            "https" => Some("https"),
            _ => return Err(ChannelError::Scheme(format!("{scheme}+{transport}"))),
        };
        if lacks_scheme(channel) {
            return Err(ChannelError::NoScheme);
        }
        match scheme {
            "github" => Github::parse(rest, transport, has_ca).map(Self::Github),
            "oci" => Repository::parse(rest, transport, has_ca).map(Self::Oci),
            _ => plain(channel),
        }
    }
}

fn plain(channel: &str) -> Result<Kind, ChannelError> {
    let url = Url::parse(channel).map_err(|_| ChannelError::NotAUrl)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ChannelError::Scheme(url.scheme().to_owned()));
    }
    let id = url.fragment().map(|fragment| {
        percent_encoding::percent_decode_str(fragment)
            .decode_utf8_lossy()
            .into_owned()
    });
    Ok(match id {
        None => Kind::Redirect(url),
        // The error for an empty fragment names the channels of the list. A server that redirects has no list.
        Some(id) => Kind::Listed(url, id),
    })
}

/// Whether a URL has no scheme, as browsers show it: `update.k3s.io/v1-release/channels/stable`.
fn lacks_scheme(channel: &str) -> bool {
    let Some((host, path)) = channel.trim().split_once('/') else {
        return false;
    };
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_name =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let has_host = name == "localhost" || name.contains('.') && name.split('.').all(is_name);
    has_host && port.bytes().all(|b| b.is_ascii_digit()) && !path.starts_with('/') && !path.is_empty()
}

impl Github {
    fn parse(rest: &str, transport: Option<&str>, has_ca: bool) -> Result<Self, ChannelError> {
        let bad = |why| Err(ChannelError::NotGithub(why));
        if rest.contains('@') {
            return bad("credentials belong in the Secret that spec.channelSecretRef names");
        }
        if rest.contains(['?', '#']) {
            return bad("it takes neither a query nor a fragment");
        }
        let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
        let (host, owner, repository) = match parts.as_slice() {
            [owner, repository] => ("github.com", *owner, *repository),
            [host, owner, repository] => (*host, *owner, *repository),
            _ => {
                return bad(
                    "write github://OWNER/REPOSITORY, or github://HOST/OWNER/REPOSITORY for GitHub Enterprise Server",
                );
            }
        };
        let is_name = |name: &str, longest: usize| {
            !matches!(name, "" | "." | "..")
                && name.len() <= longest
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        if !is_name(owner, 100) {
            return bad("the owner must consist of letters, digits, '-', '_' and '.'");
        }
        if !is_name(repository, 100) {
            return bad("the repository must consist of letters, digits, '-', '_' and '.'");
        }
        let Some(root) = root(host, transport, has_ca) else {
            return bad("the host is invalid");
        };
        let api = match root.host_str() {
            Some("github.com") => "https://api.github.com/".parse().ok(),
            Some(host) if host.ends_with(".ghe.com") => format!("https://api.{host}/").parse().ok(),
            _ => root.join("api/v3/").ok(),
        };
        let api = api.and_then(|api: Url| api.join(&format!("repos/{owner}/{repository}/")).ok());
        match (api, host_of(&root)) {
            (Some(api), Some(host)) => Ok(Self { api, host }),
            _ => bad("the host is invalid"),
        }
    }
}

impl Repository {
    fn parse(rest: &str, transport: Option<&str>, has_ca: bool) -> Result<Self, ChannelError> {
        let bad = |why| Err(ChannelError::NotRegistry(why));
        if rest.contains(['?', '#']) {
            return bad("it takes neither a query nor a fragment");
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.contains('@') {
            return bad("credentials belong in the Secret that spec.channelSecretRef names");
        }
        if path.contains([':', '@']) {
            return bad("it must have no tag and no digest, because refit lists the tags");
        }
        let path = path.trim_end_matches('/');
        if !is_repository(path) {
            return bad("the repository must consist of lower-case letters, digits, '.', '_', '-' and '/'");
        }
        Self::new(host, path, transport, has_ca).map_or_else(|| bad("the registry's host is invalid"), Ok)
    }

    /// A repository by the host as users write it, and its path.
    pub(super) fn new(host: &str, path: &str, transport: Option<&str>, has_ca: bool) -> Option<Self> {
        let is_hub = matches!(host, HUB | "index.docker.io" | HUB_REGISTRY);
        let root = root(if is_hub { HUB_REGISTRY } else { host }, transport, has_ca)?;
        let official = is_hub && !path.contains('/');
        Some(Self {
            root,
            host: if is_hub { HUB } else { host }.to_ascii_lowercase(),
            path: format!("{}{path}", if official { HUB_OFFICIAL } else { "" }),
        })
    }
}

/// The grammar of distribution-spec. It sets no maximum length, but says that many clients accept 255 characters.
fn is_repository(path: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    path.len() <= 255
        && path.split('/').all(|part| {
            edge(part.bytes().next())
                && edge(part.bytes().last())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
        })
}

/// The root URL of a host. Plain HTTP is used for loopback, as in containerd, and on request.
fn root(host: &str, transport: Option<&str>, has_ca: bool) -> Option<Url> {
    if host.is_empty() || host.contains(['@', '/', '\\', '?', '#', ' ']) {
        return None;
    }
    let secure: Url = format!("https://{host}/").parse().ok()?;
    let is_plain = match transport {
        Some(transport) => transport == "http",
        None => is_loopback(&secure) && !has_ca,
    };
    if is_plain {
        format!("http://{host}/").parse().ok()
    } else {
        Some(secure)
    }
}

/// Adds `https://` to a URL without a scheme, such as `update.k3s.io/v1-release/channels/stable`.
pub fn with_scheme(channel: &str) -> String {
    if lacks_scheme(channel) {
        format!("https://{}", channel.trim())
    } else {
        channel.to_owned()
    }
}

/// The URL whose error lists the names of a channel server, after its redirect gave this error: it has no such channel, or
/// the URL names none.
pub fn list_of(channel: &str, error: &ChannelError) -> Option<String> {
    let Ok(Kind::Redirect(mut url)) = Kind::parse(channel, false) else {
        return None;
    };
    let name = match error {
        ChannelError::List => String::new(),
        ChannelError::Unexpected(status) if status.contains(" 404 ") => {
            let segments = url.path_segments()?;
            let name = segments.rev().find(|segment| !segment.is_empty())?.to_owned();
            url.path_segments_mut().ok()?.pop_if_empty().pop();
            name
        }
        _ => return None,
    };
    url.set_fragment(Some(&name));
    Some(url.into())
}

/// The host to which a channel's credentials belong, with its port if it has one.
pub fn host(channel: &str) -> Option<String> {
    match Kind::parse(channel, false).ok()? {
        Kind::Redirect(url) | Kind::Listed(url, _) => host_of(&url),
        Kind::Github(github) => Some(github.host),
        Kind::Oci(repository) => Some(repository.host),
    }
}

fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let port = url.port().map(|port| format!(":{port}"));
    Some(format!("{host}{}", port.unwrap_or_default()))
}

/// Checks the URL of a channel.
///
/// # Errors
/// Fails if the URL is invalid or of no known kind.
pub fn check_url(channel: &str) -> Result<(), ChannelError> {
    Kind::parse(channel, false).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn github(channel: &str) -> Result<(String, String), String> {
        match Kind::parse(channel, false).map_err(|error| error.to_string())? {
            Kind::Github(github) => Ok((github.api.to_string(), github.host)),
            other => panic!("{other:?}"),
        }
    }

    fn oci(channel: &str) -> Result<(String, String, String), String> {
        match Kind::parse(channel, false).map_err(|error| error.to_string())? {
            Kind::Oci(oci) => Ok((oci.root.to_string(), oci.host, oci.path)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repository_on_github_has_an_api_and_a_host() {
        for (channel, api, host) in [
            (
                "github://k3s-io/k3s",
                "https://api.github.com/repos/k3s-io/k3s/",
                "github.com",
            ),
            (
                " GitHub://k3s-io/k3s/ ",
                "https://api.github.com/repos/k3s-io/k3s/",
                "github.com",
            ),
            (
                "github://github.com/a/b.c",
                "https://api.github.com/repos/a/b.c/",
                "github.com",
            ),
            (
                "github://acme.ghe.com/a/b",
                "https://api.acme.ghe.com/repos/a/b/",
                "acme.ghe.com",
            ),
            (
                "github://git.example:8443/a/b",
                "https://git.example:8443/api/v3/repos/a/b/",
                "git.example:8443",
            ),
            (
                "github://127.0.0.1:8080/a/b",
                "http://127.0.0.1:8080/api/v3/repos/a/b/",
                "127.0.0.1:8080",
            ),
            (
                "github+http://git.example/a/b",
                "http://git.example/api/v3/repos/a/b/",
                "git.example",
            ),
        ] {
            assert_eq!(
                github(channel),
                Ok((api.to_owned(), host.to_owned())),
                "{channel}"
            );
        }
        for channel in [
            "github://",
            "github://k3s",
            "github://a/b/c/d",
            "github:///b",
            "github://a/..",
            "github://a/b%2Fc",
            "github://a b/c",
            "github://a/b?c",
            "github://a/b#c",
            "github://token@git.example/a/b",
            "github://[/a/b",
        ] {
            let error = github(channel).unwrap_err();
            assert!(
                error.starts_with("the channel is not a GitHub repository such as"),
                "{channel}: {error}"
            );
            assert!(!error.contains("token"), "{error}");
        }
    }

    #[test]
    fn a_repository_in_a_registry_has_a_host_and_a_path() {
        for (channel, root, host, path) in [
            ("oci://ghcr.io/a/b/c", "https://ghcr.io/", "ghcr.io", "a/b/c"),
            (
                "oci://docker.io/rancher/k3s-upgrade",
                "https://registry-1.docker.io/",
                "docker.io",
                "rancher/k3s-upgrade",
            ),
            (
                "oci://index.docker.io/alpine/",
                "https://registry-1.docker.io/",
                "docker.io",
                "library/alpine",
            ),
            (
                "OCI://registry:5000/a__b",
                "https://registry:5000/",
                "registry:5000",
                "a__b",
            ),
            (
                "oci://localhost:5000/a",
                "http://localhost:5000/",
                "localhost:5000",
                "a",
            ),
            ("oci://[::1]:5000/a", "http://[::1]:5000/", "[::1]:5000", "a"),
            ("oci+http://r.example/a", "http://r.example/", "r.example", "a"),
            ("oci+https://localhost/a", "https://localhost/", "localhost", "a"),
        ] {
            let expected = (root.to_owned(), host.to_owned(), path.to_owned());
            assert_eq!(oci(channel), Ok(expected), "{channel}");
        }
        for channel in [
            "oci://",
            "oci://ghcr.io",
            "oci://ghcr.io/",
            "oci://ghcr.io/A",
            "oci://ghcr.io/a:v1",
            "oci://ghcr.io/a@sha256:00",
            "oci://ghcr.io/a//b",
            "oci://ghcr.io/../a",
            "oci://ghcr.io/a?n=1",
            "oci://user:s3cret@ghcr.io/a",
            "oci:///a",
        ] {
            let error = oci(channel).unwrap_err();
            assert!(
                error.starts_with("the channel is not a repository of a registry such as"),
                "{channel}: {error}"
            );
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_host_of_ones_own_is_asked_over_tls_where_it_has_authorities() {
        let Ok(Kind::Oci(oci)) = Kind::parse("oci://127.0.0.1:5000/a", true) else {
            panic!()
        };
        assert_eq!(oci.root.as_str(), "https://127.0.0.1:5000/");
    }

    #[test]
    fn a_fragment_names_a_channel_of_a_channel_server() {
        let url = |text: &str| Url::parse(text).unwrap();
        let listed = "https://update.k3s.io/v1-release/channels#v1%2E33";
        assert_eq!(
            Kind::parse(listed, false),
            Ok(Kind::Listed(url(listed), "v1.33".to_owned()))
        );
        let redirect = "https://update.k3s.io/v1-release/channels/stable";
        assert_eq!(Kind::parse(redirect, false), Ok(Kind::Redirect(url(redirect))));
        let unnamed = "http://a/b?c#";
        assert_eq!(
            Kind::parse(unnamed, false),
            Ok(Kind::Listed(url(unnamed), String::new()))
        );
        for bare in [
            "update.k3s.io/v1-release/channels/stable",
            " update.k3s.io/v1-release/channels#stable",
            "channels.example:8443/stable",
            "127.0.0.1:8080/stable",
            "localhost/stable",
        ] {
            assert_eq!(Kind::parse(bare, false), Err(ChannelError::NoScheme), "{bare}");
        }
        for other in [
            "./plans/k3s.yaml",
            "plans/k3s.yaml",
            "../a",
            "stable",
            "a.b//c",
            "host.yaml",
        ] {
            assert!(!lacks_scheme(other), "{other}");
        }
        assert_eq!(Kind::parse("stable", false), Err(ChannelError::NotAUrl));
        for (channel, scheme) in [
            ("ftp://a/b", "ftp"),
            ("oci+ssh://a/b", "oci+ssh"),
            ("git+https://a/b", "git+https"),
        ] {
            assert_eq!(
                Kind::parse(channel, false),
                Err(ChannelError::Scheme(scheme.to_owned()))
            );
        }
    }
}
