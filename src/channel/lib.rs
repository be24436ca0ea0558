//! Channels: URLs that offer releases.
//!
//! There are four kinds: a redirect to the version (S45, S46), the list of a channel server, the releases of a GitHub
//! repository, the tags of a repository in a registry. Responses are validated: an HTML page is not a version, and a
//! version must be both an image tag and a label value. When to poll, and which version a Plan takes, is decided
//! elsewhere; only [`accept`](refit_base::version::tag::accept) lists the moves that a Plan never makes.

#![forbid(unsafe_code)]

pub mod access;
mod answer;
mod body;
mod check;
mod client;
mod credentials;
mod docker_config;
mod error;
mod github;
pub mod hosts;
mod html;
mod items;
mod kept;
mod kind;
mod link;
mod listed;
mod oci;
mod poller;
mod rate_limit;
mod server;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
pub mod webhook;

pub use access::{Access, AccessError, Credentials, DockerConfig};
pub use client::{ChannelClient, ChannelRequest};
pub use error::{ChannelError, SetupError};
pub use hosts::{HostPattern, Hosts};
pub use kind::{check_url, host, list_of, with_scheme};
pub use webhook::{WebhookAnswer, WebhookError, WebhookRequest, Webhooks};
