//! Errors of channels.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::version::tag::Refused;

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
    #[error("the channel's URL has the scheme {0:?}; only http, https, github and oci are asked")]
    Scheme(String),
    #[error("the channel is no repository on GitHub such as github://k3s-io/k3s: {0}")]
    NotGithub(&'static str),
    #[error("the channel is no repository in a registry such as oci://docker.io/rancher/k3s-upgrade: {0}")]
    NotRegistry(&'static str),
    #[error("the image is no reference such as docker.io/rancher/k3s-upgrade:v1.33.4-k3s1: {0}")]
    NotAnImage(String),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The innermost cause: connection refused, no such host, an untrusted certificate.
    #[error("the channel cannot be asked: {0}")]
    Failed(String),
    /// system-upgrade-controller's message: `unexpected response: HTTP/1.1 404 Not Found`.
    #[error("unexpected response: {0}")]
    Unexpected(String),
    /// 401, or 403 without a rate limit.
    #[error("{} ({status})", if *.given { "the credentials are not accepted" } else { "credentials are asked for, and there are none" })]
    Denied {
        status: String,
        /// Whether credentials were sent.
        given: bool,
    },
    #[error("there is no such repository, or not for those who ask ({0})")]
    NoRepository(String),
    #[error("there is no such image ({0})")]
    NoImage(String),
    #[error("the rate limit is used up{}", .until.map_or(String::new(), |until| format!(", until {until}")))]
    RateLimited {
        /// When it ends, if the server said so.
        until: Option<Timestamp>,
    },
    #[error("the redirect ({0}) has no Location")]
    NoLocation(u16),
    #[error("the redirect's Location is not a URL")]
    BadLocation,
    #[error("the redirect's Location has a query: that is a login page or a search, not a version")]
    LocationWithQuery,
    #[error("the redirect leads back to the channel, not to a version")]
    Back,
    #[error("the answer is redirected again and again")]
    Redirects,
    #[error("the answer is redirected from https to http")]
    Insecure,
    #[error("the answer is an HTML page, not a version")]
    Html,
    #[error("the answer is no {0}")]
    NotJson(&'static str),
    #[error("the answer has more than {} MiB", .0 / (1 << 20))]
    TooLarge(usize),
    #[error("the pages of the answer have more than {} MiB", .0 / (1 << 20))]
    TooLargeInAll(usize),
    #[error("after {0} tags there are still more")]
    TooManyTags(usize),
    #[error("a page of the answer has more than {0} releases")]
    TooManyReleases(usize),
    #[error("the list has more than {0} channels")]
    TooManyChannels(usize),
    #[error("other channels with very many releases are being read; this one is read later")]
    Busy,
    #[error("{0} is none that --channel-host names")]
    HostNotAllowed(String),
    #[error(
        "{0} is link-local, or the metadata service of a cloud, which gives credentials to whoever asks: name it with --channel-host if it is a channel"
    )]
    Metadata(String),
    #[error("the next page of the answer is on another host, or one that was read before")]
    Paging,
    #[error("the registry asks for credentials in a way that is not known, or that would show them")]
    Challenge,
    #[error("the registry's token server gives no token")]
    NoToken,
    #[error("the registry gives no digest")]
    NoDigest,
    #[error("the channel server has no channel {name}{}it has {known}", .near.as_ref().map_or("; ".to_owned(), |near| format!("; did you mean {near}? ")))]
    NoChannel {
        /// The requested name.
        name: String,
        /// A similar name.
        near: Option<String>,
        /// The first known names.
        known: String,
    },
    #[error("the channel's URL names no channel behind its #; the server has {0}")]
    NoName(String),
    #[error(
        "the answer is a list of channels: name one of them behind a #, such as …/v1-release/channels#stable"
    )]
    List,
    #[error("channel {0} of the channel server has no version now")]
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
