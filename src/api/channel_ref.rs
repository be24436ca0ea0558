//! Identifies a channel: its URL, and the names of its Secrets. Pure.
//!
//! Plans with the same reference share its polls. Plans with the same URL but different Secrets do not, because only
//! Plans that name a Secret may see what it gives access to.

use std::fmt;
use std::sync::Arc;

use crate::plan::PlanSpec;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelRef {
    pub url: Arc<str>,
    /// Name of `spec.channelSecretRef`.
    pub secret: Option<Arc<str>>,
    /// Name of `spec.channelCASecretRef`.
    pub ca: Option<Arc<str>>,
    /// Names of `spec.imagePullSecrets`, in their order: for registries without `secret` only.
    pub pull: Vec<Arc<str>>,
}

impl fmt::Debug for ChannelRef {
    /// The log shows it, so it has no credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelRef")
            .field("url", &super::redacted(&self.url))
            .field("secret", &self.secret)
            .field("ca", &self.ca)
            .field("pull", &self.pull)
            .finish()
    }
}

impl ChannelRef {
    /// A channel without Secrets.
    pub fn open(url: &str) -> Self {
        Self {
            url: url.into(),
            secret: None,
            ca: None,
            pull: Vec::new(),
        }
    }

    /// The channel that a spec names, even if it also has a version.
    pub fn of(spec: &PlanSpec) -> Option<Self> {
        let given = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Arc::from);
        let name = |name: &str| Some(name).filter(|name| !name.is_empty()).map(Arc::from);
        let url: Arc<str> = given(&spec.channel)?;
        let secret = spec
            .channel_secret_ref
            .as_ref()
            .and_then(|secret| name(&secret.name));
        let pull = spec.image_pull_secrets.iter().flatten();
        let pull = pull.filter_map(|secret| name(&secret.name)).collect();
        Some(Self {
            pull: if is_registry(&url) && secret.is_none() {
                pull
            } else {
                Vec::new()
            },
            secret,
            ca: spec
                .channel_ca_secret_ref
                .as_ref()
                .and_then(|secret| name(&secret.name)),
            url,
        })
    }
}

/// Whether a channel is a repository in a registry: only registries have pull secrets.
fn is_registry(url: &str) -> bool {
    let scheme = url.trim().split_once("://").map_or("", |(scheme, _)| scheme);
    let scheme = scheme.split_once('+').map_or(scheme, |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("oci")
}
