//! The list of a channel server, as update.k3s.io and update.rke2.io serve it at `/v1-release/channels`.

use std::cmp::Reverse;

use serde::Deserialize;

use super::body::Body;
use super::error::ChannelError;
use super::items::{List, each};
use refit_base::names::shortened;
use refit_base::nearest::nearest;
use refit_base::version::tag::{check, munge};
use refit_base::version::{Version, quoted};

/// Maximum size of a list. Those of k3s and RKE2 have some ten kilobytes.
pub(super) const MAX_BODY: usize = 1 << 20;
/// Maximum number of channels in a list. That of k3s has some fifty.
const MAX_CHANNELS: usize = 2_000;
/// Maximum number of names in a message, which is written to status and events.
const SHOWN: usize = 8;

/// A channel (rancher/channelserver). Without a version it has no `latest`.
#[derive(Deserialize)]
struct Channel {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    latest: Option<String>,
}

/// The version of the channel with this ID.
pub(super) fn latest(body: &mut Body, id: &str) -> Result<String, ChannelError> {
    let mut channels: Vec<Channel> = Vec::new();
    each(body, List::Field("data"), "list of channels", |channel| {
        if channels.len() >= MAX_CHANNELS {
            return Err(ChannelError::TooManyChannels(MAX_CHANNELS));
        }
        channels.push(channel);
        Ok(())
    })?;
    let by_id = channels.iter().find(|channel| channel.id == id);
    let by_name = || {
        channels
            .iter()
            .find(|channel| channel.id.is_empty() && channel.name == id)
    };
    let Some(channel) = by_id.or_else(by_name) else {
        let ids = channels.iter().map(|channel| channel.id.as_str());
        let near = nearest(id, ids.filter(|id| !id.is_empty()));
        let known = known(&channels);
        if id.is_empty() {
            return Err(ChannelError::NoName(known));
        }
        return Err(ChannelError::NoChannel {
            name: quoted(id),
            near: near.map(quoted),
            known,
        });
    };
    let version = channel.latest.clone().unwrap_or_default();
    if version.is_empty() {
        return Err(ChannelError::NoVersion(quoted(id)));
    }
    check(&munge(&version))?;
    Ok(version)
}

/// Names of channels for a message: words such as `stable` first, then the newest minor versions.
fn known(channels: &[Channel]) -> String {
    let name = |channel: &Channel| {
        let names = [&channel.id, &channel.name];
        names.into_iter().find(|name| !name.is_empty()).cloned()
    };
    let mut names: Vec<_> = channels.iter().filter_map(name).collect();
    names.sort_by_key(|name| {
        let version: Option<Version> = name.parse().ok();
        (
            version.is_some(),
            Reverse(version.map(|version| version.sort_key())),
        )
    });
    if names.is_empty() {
        return "none".to_owned();
    }
    let plain = |name: &String| quoted(name).trim_matches('"').to_owned();
    shortened(&names.iter().map(plain).collect::<Vec<_>>(), SHOWN)
}
