//! Which version a Plan is at, and its hash: from `version`, or from what it takes of what the channel offers (S15, S40,
//! S45–S48).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::conditions::{LATEST_RESOLVED, find};
use super::facts::{ChannelFacts, PlanFacts, SecretFacts, Text};
use super::plan::PlanView;
use super::world::Table;
use crate::api::validate::Invalid;
use crate::api::{ChannelStatus, PlanSpec};
use crate::channel::Named;
use crate::channel::version::munge;
use crate::job::digest;
use crate::version::Version;

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
    /// The range that the version is not in: no node is begun with for it.
    pub(super) out_of_range: Option<Text>,
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
    /// There is none yet: the policy holds back what the channel offers, and why.
    Held(String),
    /// Secrets that take part in the hash are missing, in S53's words.
    MissingSecrets(String),
    /// There is.
    Resolved(Resolved),
}

impl Resolution {
    pub(super) fn resolved(&self) -> Option<&Resolved> {
        match self {
            Self::Resolved(resolved) => Some(resolved),
            Self::Pending | Self::Reading(_) | Self::Failed(_) | Self::Held(_) | Self::MissingSecrets(_) => {
                None
            }
        }
    }
}

/// S54's words for a Plan with neither `version` nor `channel`.
pub(super) const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";

pub(super) fn resolve(
    view: &PlanView,
    secrets: &Table<SecretFacts>,
    channels: &BTreeMap<Named, ChannelFacts>,
) -> Resolution {
    let plan = &view.facts;
    let spec = &plan.object.spec;
    let found = match (given(spec.version.as_deref()), &view.channel) {
        (Some(version), _) => Found::at(munge(version), Source::Version),
        (None, Some(channel)) => match from_channel(view, channel, channels) {
            Ok(found) => found,
            Err(resolution) => return resolution,
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
    let hash = digest::plan_hash(&plan.object, &found.version, hashes).into();
    Resolution::Resolved(Resolved {
        version: found.version.into(),
        hash,
        source: found.source,
        withdrawn: found.withdrawn.map(Text::from),
        refused: found.refused,
        out_of_range: found.out_of_range,
    })
}

/// A version, before its hash is known.
struct Found {
    version: String,
    source: Source,
    withdrawn: Option<String>,
    refused: Option<String>,
    out_of_range: Option<Text>,
}

impl Found {
    fn at(version: String, source: Source) -> Self {
        Self {
            version,
            source,
            withdrawn: None,
            refused: None,
            out_of_range: None,
        }
    }
}

fn from_channel(
    view: &PlanView,
    channel: &Named,
    channels: &BTreeMap<Named, ChannelFacts>,
) -> Result<Found, Resolution> {
    let plan = &view.facts;
    let Some(known) = self::channel(plan, channel, channels) else {
        return Err(Resolution::Pending);
    };
    // The error may have been that the version was withdrawn: the channel is asked first.
    if known.error.is_some() && !channels.contains_key(channel) {
        return Err(Resolution::Pending);
    }
    let current = current(plan).map(str::to_owned);
    let mut found = match &view.choice {
        Some(choice) => {
            let Some(version) = choice.take.clone().or(current) else {
                let held = choice.held.as_ref().map(|held| held.message.clone());
                return Err(match (&choice.fault, held) {
                    (Some(fault), _) => Resolution::Failed(fault.clone()),
                    (None, Some(held)) => Resolution::Held(held),
                    (None, None) => Resolution::Failed("spec.versionPolicy cannot be read".to_owned()),
                });
            };
            let mut found = Found::at(version, Source::Channel);
            found.withdrawn.clone_from(&choice.withdrawn);
            found.refused.clone_from(&choice.fault);
            found
        }
        // What the channel offers is not known: what it said last counts until it is.
        None => match (current, known.error) {
            (Some(version), _) => {
                let mut found = Found::at(version, Source::Channel);
                found.withdrawn = told(plan, channel).and_then(|told| told.withdrawn.clone());
                found
            }
            (None, Some(error)) => return Err(Resolution::Failed(error)),
            (None, None) => return Err(Resolution::Pending),
        },
    };
    let range = view.policy.as_ref().and_then(|policy| policy.range.as_ref());
    found.out_of_range = range
        .filter(|range| {
            let version = found.version.parse::<Version>();
            !version.is_ok_and(|version| range.may_have(&version))
        })
        .map(|range| range.text().into());
    Ok(found)
}

/// The version that the Plan is at, as far as it has been told to be.
pub(super) fn current(plan: &PlanFacts) -> Option<&str> {
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
        out_of_range: None,
    })
}

/// What the channel of a Plan said, as far as is known: by this process, or by an earlier one that wrote it into status.
pub(super) fn channel(
    plan: &PlanFacts,
    channel: &Named,
    channels: &BTreeMap<Named, ChannelFacts>,
) -> Option<ChannelFacts> {
    let known = channels.get(channel).cloned();
    known.or_else(|| {
        let told = told(plan, channel)?;
        Some(ChannelFacts {
            polled: told.last_polled.as_deref()?.parse().ok()?,
            failures: u32::from(told.last_error.is_some()),
            offer: None,
            error: told.last_error.clone(),
        })
    })
}

/// What status has of this very channel.
pub(super) fn told<'a>(plan: &'a PlanFacts, channel: &Named) -> Option<&'a ChannelStatus> {
    let told = plan.status().channel.as_ref()?;
    (told.url.as_deref() == Some(&*channel.url) && told.secrets == secrets_of(channel)).then_some(told)
}

/// The secrets with which a channel is asked, as status names them.
pub(super) fn secrets_of(channel: &Named) -> Option<String> {
    let names: Vec<&str> = channel
        .secret
        .iter()
        .chain(&channel.ca)
        .chain(&channel.pull)
        .map(|name| &**name)
        .collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// What the channel gave when it last gave something older, as status has it.
pub(super) fn withdrawn<'a>(plan: &'a PlanFacts, channel: Option<&Named>) -> Option<&'a str> {
    told(plan, channel?)?.withdrawn.as_deref()
}

/// When versions of the channel were seen first, as status has it. Keys are as tags hold them.
pub(super) fn seen(plan: &PlanFacts, channel: Option<&Named>) -> BTreeMap<String, Timestamp> {
    let told = channel.and_then(|channel| told(plan, channel));
    told.map(ChannelStatus::first_seen).unwrap_or_default()
}

/// The channel that decides the version of a Plan.
pub(super) fn channel_of(spec: &PlanSpec) -> Option<Named> {
    match given(spec.version.as_deref()) {
        Some(_) => None,
        None => Named::of(spec),
    }
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
