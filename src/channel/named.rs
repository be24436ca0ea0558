//! A channel as Plans name it: its URL, and the secrets with which it is asked. Pure.
//!
//! Two Plans with the same one share its polls. Two with one URL and different secrets do not: what a secret opens is
//! for those alone who name it.

use std::sync::Arc;

use crate::api::PlanSpec;

/// A channel as Plans name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Named {
    /// `spec.channel`.
    pub url: Arc<str>,
    /// Name of `spec.channelSecretRef`.
    pub secret: Option<Arc<str>>,
    /// Name of `spec.channelCASecretRef`.
    pub ca: Option<Arc<str>>,
    /// Names of `spec.imagePullSecrets`, in their order: for registries only, and only where there is no `secret`.
    pub pull: Vec<Arc<str>>,
}

impl Named {
    /// A channel that is asked without secrets.
    pub fn open(url: &str) -> Self {
        Self {
            url: url.into(),
            secret: None,
            ca: None,
            pull: Vec::new(),
        }
    }

    /// The channel that a spec names, if it names one, whether or not it also has a version.
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
            pull: if super::is_registry(&url) && secret.is_none() {
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
