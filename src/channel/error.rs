//! Errors of channels.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use refit_api::image::ImageAnswer;
use refit_base::version::tag::Refused;

/// Why no channel can be polled.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("CA file {path:?} cannot be read")]
    CaFile {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("CA file {path:?} has no certificate")]
    NoCertificate { path: PathBuf },
    #[error("CA file {path:?} has a certificate that cannot be used")]
    BadCertificate { path: PathBuf, source: rustls::Error },
    #[error("the client certificate cannot be read")]
    ClientCertificate,
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be set up")]
    Http(#[source] reqwest::Error),
}

/// Why a channel gave no version. The text is written to status and events, so it is short. It contains neither the URL
/// nor the response, which may contain secrets, except for a version that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    #[error("the channel is not a URL such as https://update.k3s.io/v1-release/channels/stable")]
    NotAUrl,
    #[error("the channel has no scheme: write https:// in front of it")]
    NoScheme,
    #[error("the channel's URL has the scheme {0:?}; only http, https, github and oci are supported")]
    Scheme(String),
    #[error("the channel is not a GitHub repository such as github://k3s-io/k3s: {0}")]
    NotGithub(&'static str),
    #[error("the channel is not a repository of a registry such as oci://docker.io/rancher/k3s-upgrade: {0}")]
    NotRegistry(&'static str),
    #[error("the image is not a reference such as docker.io/rancher/k3s-upgrade:v1.33.4-k3s1: {0}")]
    NotAnImage(String),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The innermost cause: connection refused, no such host, an untrusted certificate.
    #[error("the request to the channel failed: {0}")]
    Failed(String),
    /// system-upgrade-controller's message: `unexpected response: HTTP/1.1 404 Not Found`.
    #[error("unexpected response: {0}")]
    Unexpected(String),
    /// 401, or 403 without a rate limit.
    #[error("{} ({status})", if *.given { "the server refused the credentials" } else { "the server requires credentials, and there are none" })]
    Denied {
        status: String,
        /// Whether credentials were sent.
        given: bool,
    },
    #[error("the repository does not exist, or these credentials cannot read it ({0})")]
    NoRepository(String),
    #[error("the image does not exist ({0})")]
    NoImage(String),
    #[error("the rate limit is exhausted{}{}", .until.map_or(String::new(), |until| format!("; next try at {until}")), .remedy.map_or(String::new(), |remedy| format!("; {remedy}")))]
    RateLimited {
        /// When it ends, if the server has a clock.
        until: Option<Timestamp>,
        /// What raises it.
        remedy: Option<&'static str>,
    },
    #[error("the redirect ({0}) has no Location")]
    NoLocation(u16),
    #[error("the redirect's Location is not a URL")]
    BadLocation,
    #[error("the redirect's Location has a query: that is a login page or a search, not a version")]
    LocationWithQuery,
    #[error("the redirect leads back to the channel, not to a version")]
    Back,
    #[error("the server redirects too often")]
    Redirects,
    #[error("the server redirects from https to http")]
    Insecure,
    #[error("the answer is an HTML page, not a version")]
    Html,
    #[error("the answer is not a {0}")]
    NotJson(&'static str),
    #[error("the answer has more than {} MiB", .0 / (1 << 20))]
    TooLarge(usize),
    #[error("the pages of the answer have more than {} MiB", .0 / (1 << 20))]
    TooLargeInAll(usize),
    #[error("the repository has more than {0} tags")]
    TooManyTags(usize),
    #[error("a page of the answer has more than {0} releases")]
    TooManyReleases(usize),
    #[error("the list has more than {0} channels")]
    TooManyChannels(usize),
    #[error("refit is reading other channels with very many releases; it reads this one later")]
    Busy,
    #[error("{0} is not a host that --channel-host allows")]
    HostNotAllowed(String),
    #[error(
        "{0} is link-local, or the metadata service of a cloud, which gives out credentials: allow it with --channel-host if it is a channel"
    )]
    Metadata(String),
    #[error("the next page of the answer is on another host, or one that was read before")]
    Paging,
    #[error(
        "the registry requires an authentication that refit does not support, or that would expose the credentials"
    )]
    Challenge,
    #[error(
        "the registry's login is an OAuth identity token, which refit does not support; write a user name and a password, or \"auth\" with both, or a \"registrytoken\""
    )]
    IdentityToken,
    #[error("the registry's token server returned no token")]
    NoToken,
    #[error("the registry returned no digest")]
    NoDigest,
    #[error("the channel server has no channel {name}{}it has {known}", .near.as_ref().map_or("; ".to_owned(), |near| format!("; did you mean {near}? ")))]
    NoChannel {
        name: String,
        /// A similar name.
        near: Option<String>,
        /// The first known names.
        known: String,
    },
    #[error("the channel's URL has no channel name after its #; the server has {0}")]
    NoName(String),
    #[error(
        "the answer is a list of channels: name one of them after a #, such as …/v1-release/channels#stable"
    )]
    List,
    #[error("channel {0} of the channel server has no version at present")]
    NoVersion(String),
    #[error("{0}")]
    NoRelease(&'static str),
    #[error("the credentials cannot be sent: {0}")]
    Credentials(&'static str),
    #[error("the certificate authorities cannot be used: {0}")]
    Authorities(&'static str),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ChannelError {
    /// What the error says about the image whose digest was asked for.
    pub fn about_image(self) -> ImageAnswer {
        match self {
            Self::NoImage(line) => ImageAnswer::Missing(line),
            // Without a right to read it, an image may be there: Docker Hub refuses (401) what does not exist, too.
            error => ImageAnswer::Unknown(error.to_string()),
        }
    }

    /// The error of sending a request. Contains only the innermost cause, because the outer ones name the URL, which
    /// may contain a password.
    pub(super) fn failed(error: &reqwest::Error) -> Self {
        let mut cause: &dyn StdError = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Self::Failed(if std::ptr::eq(cause, error) {
            "the request cannot be sent".to_owned()
        } else {
            cause.to_string()
        })
    }
}
