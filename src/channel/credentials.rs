//! Credentials of requests. They are bound to an origin (scheme, host and port), and never sent to another one.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use url::{Origin, Url};

use super::error::ChannelError;
use super::hosts::is_loopback;

/// Credentials of a request. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// `Authorization: Bearer …`
    Bearer(String),
    /// `Authorization: Basic …`
    Basic {
        username: String,
        /// The password, or a token.
        password: String,
    },
    Header {
        name: String,
        value: String,
    },
}

impl Credentials {
    /// What distinguishes these credentials in a key.
    pub(super) fn parts(&self) -> Vec<String> {
        let parts = match self {
            Self::Bearer(token) => ["bearer", token, ""],
            Self::Basic { username, password } => ["basic", username, password],
            Self::Header { name, value } => ["header", name, value],
        };
        parts.map(str::to_owned).into()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer(…)",
            Self::Basic { .. } => "Basic(…)",
            Self::Header { .. } => "Header(…)",
        })
    }
}

/// Credentials as a header, for one origin.
#[derive(Clone)]
pub(super) struct Auth {
    origin: Origin,
    name: HeaderName,
    value: HeaderValue,
}

impl Auth {
    /// Fails for plain HTTP to another host, where everyone on the way could read them.
    pub(super) fn new(credentials: &Credentials, url: &Url) -> Result<Self, ChannelError> {
        refuse_plain(url)?;
        Self::anonymous(credentials, url)
    }

    /// Credentials that anyone gets, such as a registry's token for those who do not log in.
    pub(super) fn anonymous(credentials: &Credentials, url: &Url) -> Result<Self, ChannelError> {
        let (name, value) = match credentials {
            Credentials::Bearer(token) => (AUTHORIZATION, format!("Bearer {token}")),
            Credentials::Basic { username, password } => {
                if username.contains(':') {
                    return Err(ChannelError::Credentials("a user name cannot contain ':'"));
                }
                let pair = STANDARD.encode(format!("{username}:{password}"));
                (AUTHORIZATION, format!("Basic {pair}"))
            }
            Credentials::Header { name, value } => {
                let name = HeaderName::from_bytes(name.as_bytes());
                (
                    name.map_err(|_| ChannelError::Credentials("the header has an invalid name"))?,
                    value.clone(),
                )
            }
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| ChannelError::Credentials("they have characters that no header can hold"))?;
        // Keeps the value out of `Debug`, and out of the compression table of HTTP/2 (RFC 7541, 7.1.3).
        value.set_sensitive(true);
        Ok(Self {
            origin: url.origin(),
            name,
            value,
        })
    }

    /// Adds the credentials to a request to their origin.
    pub(super) fn on(&self, request: reqwest::RequestBuilder, url: &Url) -> reqwest::RequestBuilder {
        if self.is_for(url) {
            request.header(&self.name, &self.value)
        } else {
            request
        }
    }

    pub(super) fn is_for(&self, url: &Url) -> bool {
        self.origin == url.origin()
    }
}

/// Refuses to send credentials over plain HTTP, except on this host.
pub(super) fn refuse_plain(url: &Url) -> Result<(), ChannelError> {
    if url.scheme() == "http" && !is_loopback(url) {
        return Err(ChannelError::Credentials(
            "the URL is plain http, which would expose them; use https",
        ));
    }
    Ok(())
}
