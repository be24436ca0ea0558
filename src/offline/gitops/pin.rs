//! `refit pin`: the version that a Plan in a file gets, and the text with that version.
//!
//! An edit is accepted only if the new text, parsed again, differs from the old one in nothing but the version of the
//! Plan. Otherwise nothing is written, and the error says why.

mod images;
mod rewrite;
mod shared;
mod written;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Source;
use super::kustomize::SetVersion;
use super::objects::{Object, objects};
use super::yaml::{Kind, Node, Step};
use refit_api::VersionPolicySpec;
use refit_base::version::policy::{Offered, Policy, PolicyInputs, choose};
use refit_base::version::tag::{Refused, munge};
use refit_base::version::{Range, Version, distribution_of, policy, tag};

pub use images::{KeptTag, images_to_run, kept_tags, versioned_images};
pub use rewrite::{PinError, PinErrorKind, repeated, rewrite};
pub use written::Other;
use written::Written;

const VERSION: &str = "version";
const CHANNEL: &str = "channel";

#[derive(Clone, Debug, PartialEq)]
pub struct PlanInFile {
    /// Index of the document in the file.
    pub document: usize,
    /// The path of the Plan within the document.
    pub path: Vec<Step>,
    /// Namespace and name.
    pub title: String,
    pub name: String,
    /// The line of the version, or where it will be inserted: that of the channel, or of the Plan.
    pub line: usize,
    pub channel: Option<String>,
    /// `spec.version`, if it is a version.
    pub version: Option<String>,
    /// YAML parses the version as a number, which the API server refuses.
    pub is_number: bool,
    /// A `spec.version` that is not a version, and is not replaced.
    pub other: Option<Other>,
    /// `spec.versionPolicy`, or why it is invalid.
    pub policy: Result<Policy, String>,
    /// The placeholder that the channel contains.
    pub channel_placeholder: Option<String>,
    /// SOPS protects the values of the file with a checksum.
    pub is_guarded_by_sops: bool,
    /// Images and their paths.
    pub images: Vec<(Vec<Step>, String)>,
    /// The distribution that `spec.upgrade.image` installs, judged by its name.
    pub distribution: Option<&'static str>,
    /// The versions that patches of Kustomize set, in place of the Plan's own.
    pub patched: Vec<SetVersion>,
}

pub fn plans(source: &Source) -> Vec<PlanInFile> {
    objects(&source.stream.documents)
        .iter()
        .filter(|object| object.is_plan())
        .map(|object| plan_in_file(source, object))
        .collect()
}

/// Why the version or channel of a Plan is invalid, so that it cannot be resolved.
pub fn wrong_version(source: &Source, object: &Object<'_>) -> Option<String> {
    let spec = object.node.get("spec");
    match written::version(source, spec) {
        Written::Version { text, is_number } => is_number.then(|| {
            format!(
                "spec.version is the number {text}, which the API server refuses; write \"{text}\" in quotes"
            )
        }),
        Written::Other(other) if other.is_resolvable => None,
        Written::Other(other) => Some(format!("spec.version is {}; {}", other.what, other.remedy)),
        Written::Absent => written::channel_placeholder(source, spec)
            .map(|channel| format!("spec.channel is {channel}; resolve the rendered file")),
    }
}

fn plan_in_file(source: &Source, object: &Object<'_>) -> PlanInFile {
    let spec = object.node.get("spec");
    let field = |name: &str| spec.and_then(|spec| spec.get(name));
    let text = |name: &str| {
        let text = field(name).and_then(Node::text).map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let place = field(VERSION).or(field(CHANNEL)).unwrap_or(object.node);
    let image = |container: &str| {
        let path = [
            object.path.as_slice(),
            &["spec".into(), container.into(), "image".into()],
        ]
        .concat();
        let image = field(container)?.get("image")?.text()?.to_owned();
        Some((path, image))
    };
    let (version, is_number, other) = match written::version(source, spec) {
        Written::Absent => (None, false, None),
        Written::Version { text, is_number } => (Some(text), is_number, None),
        Written::Other(other) => (None, false, Some(other)),
    };
    PlanInFile {
        document: object.document,
        path: object.path.clone(),
        title: object.title(),
        name: object.metadata("name").unwrap_or_default().to_owned(),
        line: source.position(place.offset()).line,
        channel_placeholder: written::channel_placeholder(source, spec),
        is_guarded_by_sops: is_guarded_by_sops(source),
        policy: field("versionPolicy").map_or_else(|| Ok(Policy::default()), policy_of),
        channel: text(CHANNEL),
        version,
        is_number,
        other,
        images: ["preflight", "prepare", "upgrade", "verify"]
            .into_iter()
            .filter_map(image)
            .collect(),
        distribution: image("upgrade").and_then(|(_, image)| distribution_of(&image)),
        patched: source
            .overlay(object)
            .map_or_else(Vec::new, |overlay| overlay.versions.clone()),
    }
}

/// Whether `sops` keeps a checksum of all values in the file: it covers all documents, and by default also values that
/// are not encrypted.
fn is_guarded_by_sops(source: &Source) -> bool {
    let mut all = source
        .stream
        .documents
        .iter()
        .filter_map(|document| document.get("sops"));
    all.any(|sops| {
        let encrypted_only = sops.get("mac_only_encrypted").map(|node| &node.kind);
        sops.get("mac").is_some() && !matches!(encrypted_only, Some(Kind::Bool(true)))
    })
}

fn policy_of(node: &Node) -> Result<Policy, String> {
    let spec: Option<VersionPolicySpec> = serde_json::from_value(node.to_json())
        .map_err(|error| format!("spec.versionPolicy cannot be read: {error}"))?;
    let policy = spec.map(|spec| spec.parse()).transpose();
    policy
        .map(Option::unwrap_or_default)
        .map_err(|error| error.to_string())
}

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
    distribution: Option<&str>,
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
        // Only status records when a version was first seen, and which one was withdrawn.
        seen: &BTreeMap::new(),
        approved: None,
        distribution,
        withdrawn: None,
        polled: now,
        now,
    };
    let choice = choose(&policy, offered, &inputs);
    if let Some(take) = choice.take {
        if known.as_ref() == Some(&take) {
            return Verdict::Same;
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
pub fn remark(current: &str, wanted: &str, distribution: Option<&str>) -> Option<String> {
    let (current, wanted) = (current.parse::<Version>().ok()?, wanted.parse::<Version>().ok()?);
    // `compare` fails for a date and a plain number. Smaller numbers are worth a warning even then.
    let is_back = wanted.compare(&current).is_ok_and(std::cmp::Ordering::is_lt)
        || wanted.compare_numbers(&current).is_lt();
    if is_back {
        return Some("a downgrade".to_owned());
    }
    // Other programs may skip minor versions: 22.04 is followed by 22.10.
    let is_kubernetes = distribution.is_some() || wanted.builder().is_some() || wanted.major() == 1;
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

/// A Plan, and the version to write.
#[derive(Clone, Debug, PartialEq)]
pub struct PinRequest {
    pub plan: PlanInFile,
    pub version: String,
    /// Change the tags of images that are the current version.
    pub images: bool,
    /// Digests by image with tag. Images of the Plan that follow its version get theirs.
    pub digests: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests;
