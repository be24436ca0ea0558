//! Whether a version that a channel offers is written.

use std::collections::BTreeMap;

use jiff::Timestamp;

use refit_base::version::policy::{Offered, Policy, PolicyInputs, choose};
use refit_base::version::tag::{Refused, munge};
use refit_base::version::{Range, Version, policy, tag};

/// The decision about a version that a channel offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The Plan has this version, perhaps in another spelling.
    Same,
    /// Write the version in this spelling.
    Take(String),
    /// Keep the version, as the policy requests, for this reason.
    Kept(String),
    /// The version cannot be taken; a person has to decide.
    Refused(Refusal),
}

/// Why a version is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not a version, or the policy refuses it.
    #[error(transparent)]
    Version(#[from] Refused),
    /// It is older than the current version.
    #[error("{offered:?} is older than {current:?}; --allow-downgrade takes it")]
    Downgrade { current: String, offered: String },
    /// It cannot be compared with the current version, or with the range.
    #[error("{why}; correct its channel, or change the version by hand")]
    Incomparable { offered: String, why: String },
}

/// Decides about an offered version as the controller would. `versionPolicy.propose` does not hold it back, because the
/// review of the file is the approval.
pub fn decide_version(
    current: Option<&str>,
    installed: Option<&str>,
    offered: &Offered,
    policy: &Policy,
    now: Timestamp,
) -> Verdict {
    let policy = Policy {
        propose: false,
        ..policy.clone()
    };
    // Any version is better than a value that is not a version.
    let known = current.map(munge).filter(|known| tag::check(known).is_ok());
    let inputs = PolicyInputs {
        current: known.as_deref(),
        oldest: None,
        oldest_follower: None,
        // Only status records when a version was first seen, and which one was withdrawn.
        seen: &BTreeMap::new(),
        approved: None,
        installed,
        withdrawn: None,
        polled: now,
        now,
    };
    let choice = choose(&policy, offered, &inputs);
    if let Some(take) = choice.take {
        if known.as_ref() == Some(&take) {
            return Verdict::Same;
        }
        if let Some(refusal) = current.and_then(|current| skip(current, &take, &policy)) {
            let version = offered.released(&take).unwrap_or(&take);
            return Verdict::Kept(refusal.sentence(version, &policy, current));
        }
        return Verdict::Take(in_spelling_of(current, offered.released(&take).unwrap_or(&take)));
    }
    let Some(held) = choice.held else {
        let why = "the channel offers no version that the Plan accepts";
        return Verdict::Kept(choice.fault.unwrap_or_else(|| why.to_owned()));
    };
    let offered = held.version;
    let range = policy.range.as_ref().map_or("", Range::text);
    match held.refusal {
        policy::Refusal::Accident(refused) => Verdict::Refused(refused.into()),
        policy::Refusal::Older => Verdict::Refused(Refusal::Downgrade {
            current: current.unwrap_or_default().to_owned(),
            offered,
        }),
        policy::Refusal::Incomparable(why) => Verdict::Refused(Refusal::Incomparable { offered, why }),
        policy::Refusal::OutOfRange => Verdict::Kept(format!("{offered} is not in the range {range}")),
        policy::Refusal::Prerelease => Verdict::Kept(format!(
            "{offered} is a prerelease; a range that names one of the same release takes it"
        )),
        policy::Refusal::TooYoung { published: false, .. } => Verdict::Kept(format!(
            "{offered} may be too young for spec.versionPolicy.minimumAge: its channel does not say when it was released; --to \
             takes it"
        )),
        policy::Refusal::Variant
        | policy::Refusal::MinorSkip { .. }
        | policy::Refusal::TooYoung { .. }
        | policy::Refusal::NotApproved => Verdict::Kept(held.message),
    }
}

/// Whether the version skips minor versions of the current one. The controller leaves that to each node if a channel gives
/// one version. In a file it would be the version of all nodes.
fn skip(current: &str, version: &str, policy: &Policy) -> Option<policy::Refusal> {
    let limit = policy.max_minor_skip?;
    let (current, version): (Version, Version) = (current.parse().ok()?, version.parse().ok()?);
    let skip = version.minors_from(&current)?;
    (skip > limit && version > current).then(|| policy::Refusal::MinorSkip {
        from: current.text().to_owned(),
        node: String::new(),
        skip,
    })
}

/// The offered version in the spelling of the current one: with `-` for `+` where the file has that, and with `+` where
/// the file has that and the registry, whose tags cannot contain it, does not.
fn in_spelling_of(current: Option<&str>, offered: &str) -> String {
    match current {
        Some(current) if !current.contains('+') && has_build(current) => munge(offered),
        Some(current) if current.contains('+') && !offered.contains('+') && has_build(offered) => {
            let (release, build) = offered.rsplit_once('-').unwrap_or((offered, ""));
            format!("{release}+{build}")
        }
        _ => offered.to_owned(),
    }
}

/// Whether the version ends like a munged build: `-k3s1`, `-rke2r2`.
fn has_build(version: &str) -> bool {
    version.rsplit_once('-').is_some_and(|(_, last)| is_build(last))
}

fn is_build(text: &str) -> bool {
    ["k3s", "rke2r"].iter().any(|name| {
        text.strip_prefix(name)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// A warning about the move from one version to another: skipped minor versions, or a downgrade.
pub fn remark(current: &str, wanted: &str, installed: Option<&str>) -> Option<String> {
    let (current, wanted) = (current.parse::<Version>().ok()?, wanted.parse::<Version>().ok()?);
    // `compare` fails for a date and a plain number. Smaller numbers are worth a warning even then.
    let is_back = wanted.compare(&current).is_ok_and(std::cmp::Ordering::is_lt)
        || wanted.compare_numbers(&current).is_lt();
    if is_back {
        return Some("a downgrade".to_owned());
    }
    // Other programs may skip minor versions: 22.04 is followed by 22.10.
    let is_kubernetes = installed.is_some() || wanted.builder().is_some() || wanted.major() == 1;
    let (first, last) = (current.minor()? + 1, wanted.minor()?.checked_sub(1)?);
    let major = wanted.major();
    if !is_kubernetes || current.minors_from(&wanted)? < 2 {
        return None;
    }
    Some(if first == last {
        format!("skips minor version {major}.{first}")
    } else {
        format!("skips minor versions {major}.{first} to {major}.{last}")
    })
}
