//! The version and the hash of a Plan: from `version`, or from what the policy permits of the channel's offer (S15,
//! S40, S45–S48).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::plan::secrets::SecretHashes;
use refit_api::trigger::ON_REQUEST;
use refit_api::validate::MAX_CHANNEL;
use refit_api::{ChannelRef, ChannelStatus, ConditionType, PlanSpec, Reason, redacted};
use refit_base::version::policy::Choice;
use refit_base::version::tag::munge;
use refit_base::version::{Range, Version};
use refit_facts::{ChannelFacts, Hash, PlanFacts, Text};
use refit_job::digest;

/// A version, and the hash of the Plan at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) version: Text,
    pub(super) hash: Hash,
    /// The field that gave the version, as the reason of the condition `LatestResolved`.
    pub(super) source: Reason,
    /// The older version that the channel offers. The Plan keeps its version, and no node starts.
    pub(super) withdrawn: Option<Text>,
    /// Why the channel's last version was not taken.
    pub(super) refused: Option<String>,
    /// The range that does not include the version. No node starts.
    pub(super) out_of_range: Option<Text>,
}

impl Resolved {
    /// A version whose hash is not known yet.
    fn at(version: Text, source: Reason) -> Self {
        Self {
            version,
            hash: Hash::default(),
            source,
            withdrawn: None,
            refused: None,
            out_of_range: None,
        }
    }

    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.version == other.version && self.hash == other.hash
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Resolution {
    /// The channel must be polled first.
    #[default]
    Pending,
    /// Secrets that are part of the hash are being read. That takes a moment, so status does not report it.
    Reading,
    /// There is no version, for this reason.
    Failed(String),
    /// There is no version yet: the policy holds back the offer of the channel, for this reason.
    Held(String),
    /// Secrets that are part of the hash are missing, or too many; the message is that of S53.
    MissingSecrets(String),
    Resolved(Resolved),
}

impl Resolution {
    pub(super) fn resolved(&self) -> Option<&Resolved> {
        match self {
            Self::Resolved(resolved) => Some(resolved),
            Self::Pending | Self::Reading | Self::Failed(_) | Self::Held(_) | Self::MissingSecrets(_) => None,
        }
    }
}

/// The last hash of a Plan, because the fields that the annotation `upgrade.cattle.io/digest` names take milliseconds to
/// collect, and every decision needs the hash.
#[derive(Debug, Default)]
pub(super) struct HashCache {
    known: Option<(String, Vec<String>, Hash)>,
    /// Number of computations.
    #[cfg(test)]
    pub(super) computed: usize,
}

impl HashCache {
    /// Forgets the hash, because the Plan has changed.
    pub(super) fn clear(&mut self) {
        self.known = None;
    }

    fn get_or_compute(&mut self, plan: &PlanFacts, version: &str, secrets: &[String]) -> Hash {
        if let Some((of, with, hash)) = &self.known
            && of == version
            && *with == secrets
        {
            return hash.clone();
        }
        #[cfg(test)]
        {
            self.computed += 1;
        }
        let hash: Hash = digest::plan_hash(&plan.object, version, secrets).into();
        self.known = Some((version.to_owned(), secrets.to_vec(), hash.clone()));
        hash
    }
}

/// Message for a Plan with neither `version` nor `channel` (S54).
pub(super) const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";

/// Resolves a Plan from its channel, the version chosen from the channel's offer, and the range of its policy.
pub(super) fn resolve(
    plan: &PlanFacts,
    channel: Option<&ChannelRef>,
    choice: Option<&Choice>,
    range: Option<&Range>,
    secrets: &SecretHashes,
    channels: &BTreeMap<ChannelRef, ChannelFacts>,
    cache: &mut HashCache,
) -> Resolution {
    let spec = &plan.object.spec;
    let mut found = match (given(spec.version.as_deref()), channel) {
        (Some(version), _) => Resolved::at(munge(version).into(), Reason::Version),
        (None, Some(channel)) => match from_channel(plan, channel, choice, range, channels) {
            Ok(found) => found,
            Err(resolution) => return resolution,
        },
        // A Plan that only reboots nodes on request has no version of its own.
        (None, None) if spec.is_on_request() => Resolved::at(ON_REQUEST.into(), Reason::Trigger),
        (None, None) => return Resolution::Failed(UNRESOLVABLE.to_owned()),
    };
    let hashes = match secrets {
        SecretHashes::Missing(message) => return Resolution::MissingSecrets(message.clone()),
        SecretHashes::Unread(_) => return Resolution::Reading,
        SecretHashes::Read(hashes) => hashes,
    };
    let hash = cache.get_or_compute(plan, &found.version, hashes);
    // Also without `spec.repeat`: nodes that are done have the label of the last repetition.
    let repeat = plan.status().repeat.as_ref();
    found.hash = match repeat.and_then(|repeat| repeat.since.as_deref()) {
        Some(since) => digest::repeated_hash(&hash, since).into(),
        None => hash,
    };
    Resolution::Resolved(found)
}

fn from_channel(
    plan: &PlanFacts,
    channel: &ChannelRef,
    choice: Option<&Choice>,
    range: Option<&Range>,
    channels: &BTreeMap<ChannelRef, ChannelFacts>,
) -> Result<Resolved, Resolution> {
    let Some(known) = self::channel(plan, channel, channels) else {
        return Err(Resolution::Pending);
    };
    // The error may have been the withdrawal of the version: poll the channel first.
    if known.error.is_some() && !channels.contains_key(channel) {
        return Err(Resolution::Pending);
    }
    let current = current(plan).map(str::to_owned);
    let mut found = match choice {
        Some(choice) => {
            let Some(version) = choice.take.clone().or(current) else {
                let held = choice.held.as_ref().map(|held| held.message.clone());
                return Err(match (&choice.fault, held) {
                    (Some(fault), _) => Resolution::Failed(fault.clone()),
                    (None, Some(held)) => Resolution::Held(held),
                    (None, None) => Resolution::Failed("spec.versionPolicy cannot be read".to_owned()),
                });
            };
            let mut found = Resolved::at(version.into(), Reason::Channel);
            found.withdrawn = choice.withdrawn.as_deref().map(Text::from);
            found.refused.clone_from(&choice.fault);
            found
        }
        // The offer of the channel is not known: its last response counts until then.
        None => match (current, known.error) {
            (Some(version), _) => {
                let mut found = Resolved::at(version.into(), Reason::Channel);
                found.withdrawn = withdrawn(plan, Some(channel)).map(Text::from);
                found
            }
            (None, Some(error)) => return Err(Resolution::Failed(error)),
            (None, None) => return Err(Resolution::Pending),
        },
    };
    found.out_of_range = range
        .filter(|range| {
            let version = found.version.parse::<Version>();
            !version.is_ok_and(|version| range.may_have(&version))
        })
        .map(|range| range.text().into());
    Ok(found)
}

/// The current version of the Plan, by its stored status.
pub(super) fn current(plan: &PlanFacts) -> Option<&str> {
    let status = plan.status();
    given(status.latest_version.as_deref()).filter(|_| status.is_true(ConditionType::LatestResolved))
}

/// Version and hash from the stored status.
pub(super) fn stored(plan: &PlanFacts) -> Option<Resolved> {
    let status = plan.status();
    Some(Resolved {
        hash: given(status.latest_hash.as_deref())?.into(),
        ..Resolved::at(given(status.latest_version.as_deref())?.into(), Reason::Version)
    })
}

/// The last response of a Plan's channel: from this process, or from the status that an earlier one wrote.
pub(super) fn channel(
    plan: &PlanFacts,
    channel: &ChannelRef,
    channels: &BTreeMap<ChannelRef, ChannelFacts>,
) -> Option<ChannelFacts> {
    let known = channels.get(channel).cloned();
    known.or_else(|| {
        let stored = stored_channel(plan, channel)?;
        Some(ChannelFacts {
            polled: stored.last_polled.as_deref()?.parse().ok()?,
            failures: u32::from(stored.last_error.is_some()),
            offer: None,
            error: stored.last_error.clone(),
        })
    })
}

pub(super) fn stored_channel<'a>(plan: &'a PlanFacts, channel: &ChannelRef) -> Option<&'a ChannelStatus> {
    // The status may be from before an edit of the channel, and what another server offered does not count.
    let stored = plan.status().channel.as_ref()?;
    (stored.url.as_deref() == Some(&*redacted(&channel.url)) && stored.secrets == secrets_of(channel))
        .then_some(stored)
}

/// The names of the Secrets of a channel, as status stores them.
pub(super) fn secrets_of(channel: &ChannelRef) -> Option<String> {
    let names: Vec<&str> = channel
        .secret
        .iter()
        .chain(&channel.ca)
        .chain(&channel.pull)
        .map(|name| &**name)
        .collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The older version that the channel last offered, from the stored status.
pub(super) fn withdrawn<'a>(plan: &'a PlanFacts, channel: Option<&ChannelRef>) -> Option<&'a str> {
    stored_channel(plan, channel?)?.withdrawn.as_deref()
}

/// When versions of the channel were first seen, from the stored status. Keys are in the form of tags.
pub(super) fn first_seen(plan: &PlanFacts, channel: Option<&ChannelRef>) -> BTreeMap<String, Timestamp> {
    let stored = channel.and_then(|channel| stored_channel(plan, channel));
    stored.map(ChannelStatus::first_seen).unwrap_or_default()
}

/// The channel that gives a Plan its version, if `version` is not set.
pub(super) fn channel_of(spec: &PlanSpec) -> Option<ChannelRef> {
    match given(spec.version.as_deref()) {
        Some(_) => None,
        // A longer one is invalid, and would fill the status, too.
        None => ChannelRef::of(spec).filter(|channel| channel.url.len() <= MAX_CHANNEL),
    }
}

/// First delay after a failed poll; it doubles with each consecutive failure.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Longest delay after failed polls, as in system-upgrade-controller (S48).
const LAST_RETRY: SignedDuration = SignedDuration::from_mins(2);

/// When to poll a channel again. Polls are spread over a tenth of the interval, so that clusters that started together
/// do not poll together. Failed polls are retried earlier.
pub(super) fn next_poll(
    url: &str,
    known: Option<&ChannelFacts>,
    interval: SignedDuration,
) -> Option<Timestamp> {
    let known = known?;
    let pause = if known.failures > 0 {
        // At 8 the delay is beyond the longest one already, and a larger shift would overflow.
        let doubled = FIRST_RETRY.as_secs() << known.failures.saturating_sub(1).min(8);
        SignedDuration::from_secs(doubled.min(LAST_RETRY.as_secs())).min(interval)
    } else {
        let spread = u64::try_from(interval.as_millis() / 10).unwrap_or(0).max(1);
        let jitter = scatter(url, known.polled) % spread;
        interval + SignedDuration::from_millis(i64::try_from(jitter).unwrap_or(0))
    };
    known.polled.checked_add(pause).ok()
}

/// A pseudo-random number for a channel and a poll. It is reproducible, because decisions are deterministic.
fn scatter(url: &str, polled: Timestamp) -> u64 {
    let digest = Sha256::new()
        .chain_update(url)
        .chain_update(polled.as_nanosecond().to_be_bytes())
        .finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
