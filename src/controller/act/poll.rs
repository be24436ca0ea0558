//! Asks a channel, with the secrets that its Plans name. They are read each time: what a Secret says is kept nowhere.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{Actor, Outcome, Told, Trouble, TroubleKind};
use crate::channel::Access;
use crate::channel::{Ask, Named, Offer};
use crate::rollout::facts::Text;

impl Actor {
    /// Asks a channel for all its Plans.
    pub(super) async fn ask_channel(
        &self,
        channel: Named,
        latest_version: Option<String>,
        asked_by: BTreeMap<Text, String>,
    ) -> Vec<Told> {
        let offer = self.poll(&channel, latest_version.as_deref()).await;
        vec![Told::Channel(channel, self.clock.now(), offer, asked_by)]
    }

    /// Asks a registry what the tag of a Plan's image stands for. Where it does not say, it is asked again after a pause.
    pub(super) async fn ask_digest(&self, plan: Text, hash: Text, image: String, access: &Named) -> Outcome {
        let kind = TroubleKind::Refused;
        match self.digest(&image, access).await {
            Ok(digest) => Ok(vec![Told::Digest(plan, hash, image, digest)]),
            Err(message) => Err((Vec::new(), Trouble { message, kind })),
        }
    }

    /// What a channel offers now, or why nothing, in words for status and events.
    async fn poll(&self, channel: &Named, latest_version: Option<&str>) -> Result<Offer, String> {
        let answer = match self.access(channel).await {
            Ok(access) => {
                let ask = Ask {
                    url: &channel.url,
                    latest_version,
                    access: &access,
                };
                self.channels.offer(ask).await.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        if let Err(error) = &answer {
            tracing::warn!(%error, "cannot resolve a channel");
        }
        answer
    }

    /// The digest that the tag of an image stands for now, or why nobody says.
    async fn digest(&self, image: &str, access: &Named) -> Result<String, String> {
        let access = self.access(access).await?;
        let digest = self.channels.digest(image, &access).await;
        digest.map_err(|error| error.to_string())
    }

    async fn access(&self, channel: &Named) -> Result<Access, String> {
        let mut access = Access::default();
        if let Some(name) = &channel.secret {
            let secret = self.needed("spec.channelSecretRef", name).await?;
            access
                .read_secret(&secret)
                .map_err(|error| format!("spec.channelSecretRef: {error}"))?;
        }
        if let Some(name) = &channel.ca {
            let secret = self.needed("spec.channelCASecretRef", name).await?;
            access
                .read_ca(&secret)
                .map_err(|error| format!("spec.channelCASecretRef: {error}"))?;
        }
        for name in &channel.pull {
            // A kubelet pulls without one that is missing, and so do we.
            if let Some(secret) = self.secret("spec.imagePullSecrets", name).await? {
                access
                    .read_pull_secret(&secret)
                    .map_err(|error| format!("spec.imagePullSecrets: {error}"))?;
            }
        }
        Ok(access)
    }

    async fn needed(&self, field: &str, name: &Text) -> Result<Secret, String> {
        let secret = self.secret(field, name).await?;
        secret.ok_or_else(|| format!("{field}: secrets {name:?} not found"))
    }

    async fn secret(&self, field: &str, name: &Text) -> Result<Option<Secret>, String> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.source.namespace);
        api.get_opt(name).await.map_err(|error| {
            let why = super::brief(&error);
            format!("{field}: secrets {name:?} cannot be read: {why}")
        })
    }
}
