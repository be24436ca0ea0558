//! With what a channel or a registry is asked: credentials, certificate authorities, pull secrets; and how these are read
//! off Secrets.
//!
//! Nothing here is ever shown: `Debug` tells what there is, not what it says, and errors name a Secret and its key, never
//! a value.

use std::fmt;

/// With what a channel is asked. The default is nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// For the channel's own host, and no other.
    pub credentials: Option<Credentials>,
    /// PEM of authorities to trust beside those that the client trusts anyway.
    pub ca: Option<String>,
    /// For registries: the contents of pull secrets, as `.dockerconfigjson` has them, the most important first.
    pub pull: Vec<String>,
}

/// How a request says who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// `Authorization: Bearer …`
    Bearer(String),
    /// `Authorization: Basic …`
    Basic {
        /// The user.
        username: String,
        /// The password, or a token in its place.
        password: String,
    },
    /// A header of any name.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("credentials", &self.credentials)
            .field("ca", &self.ca.is_some())
            .field("pull", &self.pull.len())
            .finish()
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
