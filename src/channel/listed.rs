//! The list of a channel server's channels, as update.k3s.io and update.rke2.io give it at `/v1-release/channels`.

use serde::Deserialize;

use super::version::{check, munge, quoted};
use super::wire::Answer;
use super::{ChannelError, Release};

/// How much is read of a list. Those of k3s and RKE2 have some ten kilobytes.
pub(super) const MAX_BODY: usize = 1 << 20;
/// How many letters a name may be off for it to be what was meant.
const NEAR: usize = 2;

#[derive(Deserialize)]
struct Channels {
    data: Vec<Channel>,
}

/// A channel (rancher/channelserver). One without a version has no `latest`.
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
pub(super) fn latest(answer: &Answer, id: &str) -> Result<Vec<Release>, ChannelError> {
    let channels: Channels = answer.json("list of channels")?;
    let channels = channels.data;
    let by_id = channels.iter().find(|channel| channel.id == id);
    let by_name = || {
        channels
            .iter()
            .find(|channel| channel.id.is_empty() && channel.name == id)
    };
    let Some(channel) = by_id.or_else(by_name) else {
        let near = channels
            .iter()
            .map(|channel| (strsim::damerau_levenshtein(&channel.id, id), &channel.id))
            .filter(|(distance, _)| *distance <= NEAR)
            .min();
        return Err(ChannelError::NoChannel(
            quoted(id),
            near.map(|(_, near)| quoted(near)),
        ));
    };
    let version = channel.latest.clone().unwrap_or_default();
    if version.is_empty() {
        return Err(ChannelError::NoVersion(quoted(id)));
    }
    check(&munge(&version))?;
    Ok(vec![Release {
        version,
        published: None,
    }])
}
