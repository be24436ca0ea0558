//! `refit pin`: which version a Plan in a file gets, and the text with it.
//!
//! An edit counts only if the text that comes out, read again, is the same Plan with that version, and all else in the
//! file is what it was. Otherwise nothing is written, and it is said why.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::check::{Reference, is_placeholder};
use super::edit::ways;
use super::objects::{Object, objects};
use super::yaml::{Node, Step};
use super::{Source, edit::Edit};
use crate::api::{Plan, VersionPolicySpec};
use crate::channel::Offer;
use crate::channel::version::{self, Refused, munge};
use crate::version::Range;
use crate::version::policy::{self, Circumstances, Offered, Policy, choose};

const VERSION: &str = "version";
const CHANNEL: &str = "channel";

/// A Plan in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanAt {
    /// Which document, from 0.
    pub document: usize,
    /// The way to the Plan in it.
    pub path: Vec<Step>,
    /// Namespace and name.
    pub title: String,
    /// Name alone.
    pub name: String,
    /// The line of the version, or where it will be: that of the channel, or of the Plan.
    pub line: usize,
    /// `spec.channel`.
    pub channel: Option<String>,
    /// `spec.version`.
    pub version: Option<String>,
    /// `spec.versionPolicy`, or why it cannot be read.
    pub policy: Result<Policy, String>,
    /// What of the two somebody else fills in, as Flux does with `${VERSION}`.
    pub placeholder: Option<String>,
    /// Images, and where they are.
    pub images: Vec<(Vec<Step>, String)>,
}

/// The Plans in a file.
pub fn plans(source: &Source) -> Vec<PlanAt> {
    objects(&source.stream.documents)
        .iter()
        .filter(|object| object.is_plan())
        .map(|object| plan_at(source, object))
        .collect()
}

fn plan_at(source: &Source, object: &Object<'_>) -> PlanAt {
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
    PlanAt {
        document: object.document,
        path: object.path.clone(),
        title: object.title(),
        name: object.metadata("name").unwrap_or_default().to_owned(),
        line: source.place(place.offset()).line,
        placeholder: [VERSION, CHANNEL]
            .into_iter()
            .filter_map(text)
            .find(|text| is_placeholder(text)),
        policy: field("versionPolicy").map_or_else(|| Ok(Policy::default()), policy_of),
        channel: text(CHANNEL),
        version: text(VERSION),
        images: ["prepare", "upgrade"].into_iter().filter_map(image).collect(),
    }
}

fn policy_of(node: &Node) -> Result<Policy, String> {
    let spec: Option<VersionPolicySpec> = serde_json::from_value(node.to_json())
        .map_err(|error| format!("spec.versionPolicy cannot be read: {error}"))?;
    let policy = spec.map(|spec| spec.read()).transpose();
    policy
        .map(Option::unwrap_or_default)
        .map_err(|error| error.to_string())
}

/// What becomes of what a channel offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is there already, in whatever spelling.
    Same,
    /// It is taken, spelled so.
    Take(String),
    /// Nothing is taken, as somebody has asked for: why.
    Kept(String),
    /// It is not taken, and somebody has to look.
    Refused(Refusal),
}

/// Why a version is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is none, or nothing that the Plan would move to.
    #[error(transparent)]
    Version(#[from] Refused),
    /// It is older than what is there.
    #[error("{offered:?} is older than {current:?}; --allow-downgrade takes it")]
    Downgrade {
        /// What is there.
        current: String,
        /// What is offered.
        offered: String,
    },
    /// It cannot be compared with what is there, or with the range.
    #[error("{offered:?} cannot be compared: {why}")]
    Incomparable {
        /// What is offered.
        offered: String,
        /// Why not.
        why: String,
    },
}

/// Judges what a channel offers by the version that is there, as the controller does. What it proposes, whoever takes the file
/// approves.
pub fn judge(current: Option<&str>, offer: &Offer, policy: &Policy, now: Timestamp) -> Verdict {
    let policy = Policy {
        propose: false,
        ..policy.clone()
    };
    // What is there may be no version at all: then anything is better.
    let known = current.map(munge).filter(|known| version::check(known).is_ok());
    let circumstances = Circumstances {
        current: known.as_deref(),
        seen: &BTreeMap::new(),
        approved: None,
        withdrawn: None,
        polled: now,
        now,
    };
    let choice = choose(&policy, &Offered::from(offer), &circumstances);
    if let Some(take) = choice.take {
        if known.as_ref() == Some(&take) {
            return Verdict::Same;
        }
        let release = offer
            .releases
            .iter()
            .find(|release| munge(&release.version) == take);
        return Verdict::Take(spelled(
            current,
            release.map_or(&take, |release| &release.version),
        ));
    }
    let Some(held) = choice.held else {
        let why = "the channel offers nothing that could be taken";
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
        policy::Refusal::Variant | policy::Refusal::TooYoung { .. } | policy::Refusal::NotApproved => {
            Verdict::Kept(held.message)
        }
    }
}

/// The version in the spelling of the one that is there: with `-` for `+` where that is how it is written.
fn spelled(current: Option<&str>, offered: &str) -> String {
    match current {
        Some(current) if !current.contains('+') && has_build(current) => munge(offered),
        _ => offered.to_owned(),
    }
}

/// The version ends as a munged build does: `-k3s1`, `-rke2r2`.
fn has_build(version: &str) -> bool {
    version.rsplit_once('-').is_some_and(|(_, last)| is_build(last))
}

fn is_build(text: &str) -> bool {
    ["k3s", "rke2r"].iter().any(|name| {
        text.strip_prefix(name)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// A Plan that gets a version.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// The Plan.
    pub plan: PlanAt,
    /// The version.
    pub version: String,
    /// Move the tags of images that are the version of now.
    pub images: bool,
    /// Digests of images, by their names with tags: those of the Plan that follow its version get theirs.
    pub digests: BTreeMap<String, String>,
}

/// Why a text cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct PinError {
    /// The file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// What is in the way.
    pub problem: Box<Problem>,
}

/// What keeps a text from being changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A part of the file is not YAML.
    #[error("this is not YAML: {0}")]
    Syntax(String),
    /// A key is there twice in a Plan that is to be changed.
    #[error("the key {0:?} is there for the second time; which of the two counts depends on the reader")]
    Repeated(String),
    /// No edit leaves all else as it is.
    #[error(
        "Plan {plan:?} cannot get {field} {value:?} without a change to something else{why}; edit it by hand"
    )]
    NoWay {
        /// Namespace and name of the Plan.
        plan: String,
        /// The field.
        field: String,
        /// What it was to become.
        value: String,
        /// What it would change, where that is known.
        why: String,
    },
}

/// The text with the versions that are wanted, which is the text itself where they are there already.
///
/// # Errors
/// Nothing is changed then, though other Plans of the file could be.
pub fn rewrite(source: &Source, wants: &[Want]) -> Result<String, PinError> {
    let mut changed: Option<Source> = None;
    for want in wants {
        check_readable(changed.as_ref().unwrap_or(source), want)?;
        let mut values: Vec<_> = tags(want);
        let version = [want.plan.path.as_slice(), &["spec".into(), VERSION.into()]].concat();
        values.push((version, want.version.clone()));
        for (path, value) in values {
            let now = changed.as_ref().unwrap_or(source);
            changed = set(now, want, wants, &path, &value)?.or(changed);
        }
    }
    Ok(changed.map_or_else(|| source.text.clone(), |changed| changed.text))
}

fn check_readable(source: &Source, want: &Want) -> Result<(), PinError> {
    let failed = |offset: usize, problem: Problem| {
        Err(PinError {
            file: source.name.clone(),
            line: source.place(offset).line,
            problem: Box::new(problem),
        })
    };
    if let Some(error) = source.stream.errors.first() {
        return failed(error.offset, Problem::Syntax(error.message.clone()));
    }
    let document = source.stream.documents.get(want.plan.document);
    let repeated = document.map(Node::repeated).unwrap_or_default();
    match repeated.first() {
        Some(key) => failed(key.span.start, Problem::Repeated(key.name.clone())),
        None => Ok(()),
    }
}

/// Images that follow the version, and what they become.
fn tags(want: &Want) -> Vec<(Vec<Step>, String)> {
    let images = want.plan.images.iter();
    images
        .filter_map(|(path, image)| {
            let follower = follower(image, want.plan.version.as_deref(), &want.version)?;
            let digest = want.digests.get(&follower.tagged);
            let image = match digest {
                Some(digest) => format!("{}@{digest}", follower.tagged),
                // A digest is that of one version.
                None if want.images && follower.has_tag && !follower.has_digest => follower.tagged,
                None => return None,
            };
            Some((path.clone(), image))
        })
        .collect()
}

/// An image that follows the version of its Plan.
struct Follower {
    /// With the version that is wanted as its tag, and no digest.
    tagged: String,
    has_tag: bool,
    has_digest: bool,
}

/// Nothing for an image that has another tag than the version of now, or a digest and no tag.
fn follower(image: &str, now: Option<&str>, wanted: &str) -> Option<Follower> {
    let reference = Reference::read(image)?;
    let follows = match reference.tag {
        Some(tag) => Some(tag) == now.map(munge).as_deref(),
        None => reference.is_name_only,
    };
    follows.then(|| Follower {
        tagged: format!("{}:{}", reference.name, munge(wanted)),
        has_tag: reference.tag.is_some(),
        has_digest: image.contains('@'),
    })
}

/// The images of a Plan that follow its version, with the one that is wanted as their tag.
pub fn followers(plan: &PlanAt, wanted: &str) -> Vec<String> {
    let images = plan.images.iter();
    let tagged = images.filter_map(|(_, image)| follower(image, plan.version.as_deref(), wanted));
    tagged.map(|follower| follower.tagged).collect()
}

/// The source with a value set; nothing where it is there already.
fn set(
    source: &Source,
    want: &Want,
    wants: &[Want],
    path: &[Step],
    value: &str,
) -> Result<Option<Source>, PinError> {
    let document = source.stream.documents.get(want.plan.document);
    let (Some(document), Some((Step::Key(key), parent))) = (document, path.split_last()) else {
        return Ok(None);
    };
    // It may have come with an edit before: an alias leads to what another Plan says.
    if document.at(path).and_then(Node::text) == Some(value) {
        return Ok(None);
    }
    let node = document.at(parent);
    let mut why = String::new();
    for edit in node
        .map(|node| ways(source, node, key, value, CHANNEL))
        .unwrap_or_default()
    {
        match made(source, &edit, want, wants, path, value) {
            Ok(changed) => return Ok(Some(changed)),
            Err(other) if why.is_empty() => why = other,
            Err(_) => {}
        }
    }
    Err(PinError {
        file: source.name.clone(),
        line: want.plan.line,
        problem: Box::new(Problem::NoWay {
            plan: want.plan.title.clone(),
            field: key.clone(),
            value: value.to_owned(),
            why,
        }),
    })
}

/// The source with the edit made, if it then says what it said before but for the value.
fn made(
    source: &Source,
    edit: &Edit,
    want: &Want,
    wants: &[Want],
    path: &[Step],
    value: &str,
) -> Result<Source, String> {
    let text = edit.apply(&source.text).ok_or_else(String::new)?;
    let changed = source.with_text(text);
    if !changed.stream.errors.is_empty() || changed.stream.documents.len() != source.stream.documents.len() {
        return Err(String::new());
    }
    // An anchor may give several Plans their version, if all of them are to get it.
    let may_change: Vec<(usize, Vec<Step>)> = wants
        .iter()
        .filter(|other| munge(&other.version) == munge(&want.version))
        .flat_map(|other| {
            let version = [other.plan.path.as_slice(), &["spec".into(), VERSION.into()]].concat();
            let images = tags(other).into_iter().map(|(path, _)| path);
            images
                .chain([version])
                .map(|path| (other.plan.document, path))
                .collect::<Vec<_>>()
        })
        .filter(|(_, other)| other.last() == path.last())
        .collect();
    for (index, (old, new)) in source
        .stream
        .documents
        .iter()
        .zip(&changed.stream.documents)
        .enumerate()
    {
        let (mut expected, found) = (old.to_json(), new.to_json());
        for (_, path) in may_change.iter().filter(|(document, _)| *document == index) {
            if new.at(path).and_then(Node::text) == Some(value) {
                put(&mut expected, path, value);
            }
        }
        if index == want.plan.document {
            put(&mut expected, path, value);
        }
        if expected != found {
            let at = difference(&expected, &found, String::new());
            return Err(at.map(|at| format!(" ({at})")).unwrap_or_default());
        }
    }
    // The Plan itself, as the controller reads it.
    let read = |source: &Source| {
        let node = source
            .stream
            .documents
            .get(want.plan.document)?
            .at(&want.plan.path)?;
        Some(node.to_json())
    };
    let (old, new) = (read(source), read(&changed));
    let mut expected = old.ok_or_else(String::new)?;
    put(
        &mut expected,
        path.get(want.plan.path.len()..).unwrap_or_default(),
        value,
    );
    let plan = |json: Value| serde_json::from_value::<Plan>(json).map_err(|error| format!(" ({error})"));
    if plan(expected)? == plan(new.ok_or_else(String::new)?)? {
        Ok(changed)
    } else {
        Err(String::new())
    }
}

fn put(json: &mut Value, path: &[Step], value: &str) {
    let Some((Step::Key(key), way)) = path.split_last() else {
        return;
    };
    let parent = way.iter().try_fold(json, |json, step| match step {
        Step::Key(key) => json.get_mut(key),
        Step::Index(index) => json.get_mut(index),
    });
    if let Some(Value::Object(fields)) = parent {
        fields.insert(key.clone(), value.into());
    }
}

/// Where two values differ first.
fn difference(one: &Value, other: &Value, at: String) -> Option<String> {
    let below = |key: &str| {
        if at.is_empty() {
            key.to_owned()
        } else {
            format!("{at}.{key}")
        }
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.keys()
                .chain(other.keys())
                .find_map(|key| match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => difference(one, other, below(key)),
                    _ => Some(below(key)),
                })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(index, (one, other))| difference(one, other, format!("{at}[{index}]"))),
        _ => (one != other).then_some(at),
    }
}

#[cfg(test)]
mod tests;
