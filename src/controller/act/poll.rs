//! Polls channels with the Secrets that their Plans name. The Secrets are read each time, and not kept.

use std::collections::BTreeMap;
use std::fmt::Display;

use k8s_openapi::api::core::v1::Secret;

use super::{Actor, Outcome, StepError, StepErrorKind};
use refit_api::ChannelRef;
use refit_api::image::ImageAnswer;
use refit_api::names::is_secret_name;
use refit_api::validate::MAX_SECRETS;
use refit_base::version::Offer;
use refit_channel::{Access, ChannelError, ChannelRequest};
use refit_cluster::kube::read::get;
use refit_facts::{Hash, PlanName};
use refit_rollout::StepEffect;

impl Actor {
    /// Polls a channel for all its Plans.
    pub(super) async fn ask_channel(
        &self,
        channel: ChannelRef,
        latest_version: Option<String>,
        asked_by: BTreeMap<PlanName, String>,
    ) -> StepEffect {
        let offer = self.poll(&channel, latest_version.as_deref()).await;
        StepEffect::Channel(channel, self.clock.now(), offer, asked_by)
    }

    /// Asks the registry of an image. If Jobs run the digest, and the registry cannot be asked, retried after a delay.
    pub(super) async fn ask_image(
        &self,
        plan: PlanName,
        hash: Hash,
        image: String,
        access: &ChannelRef,
        pins: bool,
    ) -> Outcome {
        let answer = self.image(&image, access, pins).await;
        match answer {
            ImageAnswer::Unknown(message) if pins => {
                return StepError::new(StepErrorKind::Refused, message).into();
            }
            // Nodes may have another way to it: a mirror, a proxy, credentials of their own.
            ImageAnswer::Unknown(ref why) => {
                tracing::info!(%plan, image, why, "the registry does not say whether an image exists, so nodes may start");
            }
            ImageAnswer::Found(_) | ImageAnswer::Missing(_) => {}
        }
        StepEffect::Digest(plan, hash, image, answer).into()
    }

    /// The offer of a channel, or the error for status and events.
    async fn poll(&self, channel: &ChannelRef, latest_version: Option<&str>) -> Result<Offer, String> {
        match self.access(channel).await {
            Ok(access) => {
                let request = ChannelRequest {
                    url: &channel.url,
                    latest_version,
                    access: &access,
                };
                self.channels
                    .offer(request)
                    .await
                    .map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        }
    }

    async fn image(&self, image: &str, access: &ChannelRef, pins: bool) -> ImageAnswer {
        let digest = match self.access(access).await {
            Ok(access) if pins => self.channels.digest(image, &access).await,
            Ok(access) => self.channels.look_up(image, &access).await,
            Err(why) => return ImageAnswer::Unknown(why),
        };
        digest.map_or_else(ChannelError::about_image, ImageAnswer::Found)
    }

    async fn access(&self, channel: &ChannelRef) -> Result<Access, String> {
        let mut access = Access::default();
        if let Some(name) = &channel.secret {
            let secret = self.needed("spec.channelSecretRef", name).await?;
            said_of("spec.channelSecretRef", access.read_secret(&secret))?;
        }
        if let Some(name) = &channel.ca {
            let secret = self.needed("spec.channelCASecretRef", name).await?;
            said_of("spec.channelCASecretRef", access.read_ca(&secret))?;
        }
        for name in channel.pull.iter().take(MAX_SECRETS) {
            // Like a kubelet, refit pulls without a Secret that does not exist.
            if let Some(secret) = self.secret("spec.imagePullSecrets", name).await? {
                said_of("spec.imagePullSecrets", access.read_pull_secret(&secret))?;
            }
        }
        Ok(access)
    }

    pub(super) async fn needed(&self, field: &str, name: &str) -> Result<Secret, String> {
        let secret = self.secret(field, name).await?;
        secret.ok_or_else(|| format!("{field}: secrets {name:?} not found"))
    }

    async fn secret(&self, field: &str, name: &str) -> Result<Option<Secret>, String> {
        // The name becomes part of a path.
        if !is_secret_name(name) {
            return Ok(None);
        }
        let secret = get(&self.client, Some(&self.source.namespace), name).await;
        secret.map_err(|error| {
            let why = super::brief(&error);
            format!("{field}: secrets {name:?} cannot be read: {why}")
        })
    }
}

/// The error of a Secret, with the field that names it.
pub(super) fn said_of(field: &str, read: Result<(), impl Display>) -> Result<(), String> {
    read.map_err(|error| format!("{field}: {error}"))
}
