//! Which version a Plan is at, and its hash: from `version`, or from what the channel said last (S15, S40, S45–S48).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::blocker::Blocker;
use super::conditions::{LATEST_RESOLVED, find};
use super::facts::{ChannelFacts, PlanFacts, SecretFacts, Text};
use super::world::Table;
use crate::api::validate::Invalid;
use crate::channel::version::{accept, is_behind};
use crate::job::digest;

/// Where a version came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Version,
    Channel,
}

/// A version and the hash of the Plan at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) version: Text,
    pub(super) hash: Text,
    pub(super) source: Source,
    /// What the channel gives, where that is older: the Plan stays where it is, and begins with no new node.
    pub(super) withdrawn: Option<Text>,
    /// Why the channel's last answer was not taken, though it was a version.
    pub(super) refused: Option<String>,
}

impl Resolved {
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.version == other.version && self.hash == other.hash
    }
}

/// What a Plan resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    /// The channel has to be asked first.
    Pending,
    /// A secret that takes part in the hash is being read. That takes a moment, in which nothing is said.
    Reading(Text),
    /// There is no version, and why.
    Failed(String),
    /// Secrets that take part in the hash are missing, in S53's words.
    MissingSecrets(String),
    /// There is.
    Resolved(Resolved),
}

impl Resolution {
    pub(super) fn resolved(&self) -> Option<&Resolved> {
        match self {
            Self::Resolved(resolved) => Some(resolved),
            Self::Pending | Self::Reading(_) | Self::Failed(_) | Self::MissingSecrets(_) => None,
        }
    }
}

/// S54's words for a Plan with neither `version` nor `channel`.
pub(super) const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";

pub(super) fn resolve(
    plan: &PlanFacts,
    secrets: &Table<SecretFacts>,
    channels: &BTreeMap<Text, ChannelFacts>,
) -> Resolution {
    let spec = &plan.object.spec;
    let (mut withdrawn, mut refused) = (None, None);
    let (version, source) = match (given(spec.version.as_deref()), given(spec.channel.as_deref())) {
        (Some(version), _) => (munge(version), Source::Version),
        (None, Some(url)) => match channel(plan, url, channels) {
            // The error may have been that the version was withdrawn: the channel is asked first.
            Some(ChannelFacts { error: Some(_), .. }) if !channels.contains_key(url) => {
                return Resolution::Pending;
            }
            Some(ChannelFacts {
                version: Some(offered),
                ..
            }) => {
                let current = current(plan).filter(|current| **current != *offered);
                let why = accept(current, &offered).err().map(|error| error.to_string());
                match current {
                    Some(current) if why.is_some() => {
                        refused = why;
                        (current.to_owned(), Source::Channel)
                    }
                    Some(current) if is_behind(current, &offered) => {
                        let (offered, current) = (offered, current.to_owned());
                        let blocker = Blocker::ChannelWithdrawn {
                            offered: offered.clone(),
                            current: current.clone(),
                        };
                        refused = Some(blocker.to_string());
                        withdrawn = Some(offered.into());
                        (current, Source::Channel)
                    }
                    _ => match why {
                        Some(why) => return Resolution::Failed(why),
                        None => (offered, Source::Channel),
                    },
                }
            }
            Some(ChannelFacts {
                error: Some(error), ..
            }) => return Resolution::Failed(error),
            _ => return Resolution::Pending,
        },
        (None, None) => return Resolution::Failed(UNRESOLVABLE.to_owned()),
    };
    let mut hashes = Vec::new();
    let mut missing = Vec::new();
    let mut unread = None;
    for name in digest::hashed_secrets(spec) {
        match secrets.get(name) {
            Some(SecretFacts::Hash(hash)) => hashes.push(hash),
            Some(SecretFacts::Unread) | None => unread = Some(name.into()),
            Some(SecretFacts::Missing) => missing.push(name.to_owned()),
        }
    }
    // All that are missing are named at once.
    if let Some(name) = unread {
        return Resolution::Reading(name);
    }
    if !missing.is_empty() {
        return Resolution::MissingSecrets(Invalid::SecretsMissing(missing).to_string());
    }
    let hash = digest::plan_hash(&plan.object, &version, hashes).into();
    Resolution::Resolved(Resolved {
        version: version.into(),
        hash,
        source,
        withdrawn,
        refused,
    })
}

/// The version that the Plan is at, as far as it has been told to be.
fn current(plan: &PlanFacts) -> Option<&str> {
    let status = plan.status();
    let resolved = find(&status.conditions, LATEST_RESOLVED).is_some_and(|c| c.status == "True");
    given(status.latest_version.as_deref()).filter(|_| resolved)
}

/// What status says that the Plan was at.
pub(super) fn stored(plan: &PlanFacts) -> Option<Resolved> {
    let status = plan.status();
    Some(Resolved {
        version: given(status.latest_version.as_deref())?.into(),
        hash: given(status.latest_hash.as_deref())?.into(),
        source: Source::Version,
        withdrawn: None,
        refused: None,
    })
}

/// A version as a tag and a label can hold it (S15).
fn munge(version: &str) -> String {
    version.replace('+', "-")
}

/// What the channel of a Plan said, as far as is known: by this process, or by an earlier one that wrote it into status.
pub(super) fn channel(
    plan: &PlanFacts,
    url: &str,
    channels: &BTreeMap<Text, ChannelFacts>,
) -> Option<ChannelFacts> {
    let told = told_before(plan, url);
    match (channels.get(url), told) {
        (Some(known), Some(told)) if known.version.is_none() => Some(ChannelFacts {
            version: told.version,
            ..known.clone()
        }),
        (Some(known), _) => Some(known.clone()),
        (None, told) => told,
    }
}

fn told_before(plan: &PlanFacts, url: &str) -> Option<ChannelFacts> {
    let told = plan
        .status()
        .channel
        .as_ref()
        .filter(|told| told.url.as_deref() == Some(url))?;
    Some(ChannelFacts {
        polled: told.last_polled.as_deref()?.parse().ok()?,
        failures: u32::from(told.last_error.is_some()),
        version: current(plan).map(str::to_owned),
        error: told.last_error.clone(),
    })
}

/// The channel that decides the version of a Plan.
pub(super) fn channel_url(plan: &PlanFacts) -> Option<&str> {
    let spec = &plan.object.spec;
    if given(spec.version.as_deref()).is_some() {
        return None;
    }
    given(spec.channel.as_deref())
}

/// First pause after a channel could not be used; it doubles with each failure in a row.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Longest pause after failures, the one that system-upgrade-controller ends at (S48).
const LAST_RETRY: SignedDuration = SignedDuration::from_mins(2);

/// When a channel is to be asked again. Answers are spread over a tenth of the interval, so that clusters that were
/// started together do not ask together; failures are tried again sooner.
pub(super) fn next_poll(
    url: &str,
    known: Option<&ChannelFacts>,
    interval: SignedDuration,
) -> Option<Timestamp> {
    let known = known?;
    let pause = if known.failures > 0 {
        let doubled = FIRST_RETRY.as_secs() << known.failures.saturating_sub(1).min(8);
        SignedDuration::from_secs(doubled.min(LAST_RETRY.as_secs())).min(interval)
    } else {
        let spread = u64::try_from(interval.as_millis() / 10).unwrap_or(0).max(1);
        let jitter = scatter(url, known.polled) % spread;
        interval + SignedDuration::from_millis(i64::try_from(jitter).unwrap_or(0))
    };
    known.polled.checked_add(pause).ok()
}

/// A number that differs from channel to channel and from poll to poll, and is the same whenever it is asked for.
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
