//! Plans in files, as far as their versions are concerned.

use std::collections::BTreeMap;

use super::written::{self, Other, Written};
use crate::gitops::objects::{Object, objects};
use crate::gitops::overlay::{Change, Changes, Field, SetTo};
use crate::gitops::source::Source;
use crate::gitops::yaml::{Kind, Node, Step};
use refit_api::{Installs, VersionPolicySpec};
use refit_base::version::policy::Policy;
use refit_base::version::{installed_by, installs_kubernetes};

pub(super) const VERSION: &str = "version";
pub(super) const CHANNEL: &str = "channel";

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
    /// Of a patch, the images of its Plans, which it does not set.
    pub patched_images: Vec<PatchedImage>,
    /// What `spec.upgrade.image` installs, judged by its name.
    pub installed: Option<&'static str>,
    /// Whether the version is that of Kubernetes, as far as `spec.installs` and the name of the image say.
    pub installs_kubernetes: bool,
    /// What patches of Kustomize make of the version.
    pub patched: Changes,
    /// The patch of Kustomize that deletes the Plan.
    pub deleted: Option<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchedImage {
    pub image: String,
    /// File and line.
    pub place: String,
}

impl PlanInFile {
    /// The Plan with this version instead of its own.
    #[must_use]
    pub fn with_version(&self, version: &str) -> Self {
        let (version, is_number, other) = parts(written::of_text(version));
        Self {
            version,
            is_number,
            other,
            ..self.clone()
        }
    }

    /// The line of a value of the Plan.
    pub fn line_of(&self, source: &Source, path: &[Step]) -> usize {
        let document = source.stream.documents.get(self.document);
        let node = document.and_then(|document| document.at(path));
        node.map_or(self.line, |node| source.position(node.offset()).line)
    }
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
    let change = source.change(object, Field::Version);
    let version = match change.map(|change| &change.to) {
        Some(SetTo::Text(text)) => written::of_text(text),
        Some(SetTo::Unknown) => written::other(
            change.map(written::of_elsewhere).unwrap_or_default(),
            "pass the output of `kustomize build`",
            false,
        ),
        Some(SetTo::Nothing) => Written::Absent,
        _ => written::version(source, object.node.get("spec")),
    };
    match version {
        Written::Version { text, is_number } => is_number.then(|| {
            format!(
                "spec.version is the number {text}, which the API server refuses; write \"{text}\" in quotes"
            )
        }),
        Written::Other(other) if other.is_resolvable => None,
        Written::Other(other) => Some(format!("spec.version is {}; {}", other.what, other.remedy)),
        Written::Absent => written::channel_placeholder(source, object)
            .map(|channel| format!("spec.channel is {channel}; resolve the rendered file")),
    }
}

/// The version, whether it is a number, and what else is there.
fn parts(written: Written) -> (Option<String>, bool, Option<Other>) {
    match written {
        Written::Absent => (None, false, None),
        Written::Version { text, is_number } => (Some(text), is_number, None),
        Written::Other(other) => (None, false, Some(other)),
    }
}

fn plan_in_file(source: &Source, object: &Object<'_>) -> PlanInFile {
    let spec = object.node.get("spec");
    let field = |name: &str| spec.and_then(|spec| spec.get(name));
    let changes = source.overlay(object).map(|overlay| &overlay.changes);
    // Overlays with different channels have no version in common. One that a patch removes may still say where it comes from.
    let patched_channel = changes.and_then(|changes| match &changes.get(&Field::Channel)?.common()?.to {
        SetTo::Text(channel) => Some(channel.as_str()),
        SetTo::NoText(_) | SetTo::Unknown | SetTo::Nothing => None,
    });
    let channel = patched_channel.or_else(|| field(CHANNEL).and_then(Node::text));
    let channel = channel.map(str::trim).filter(|channel| !channel.is_empty());
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
    let (version, is_number, other) = parts(written::version(source, spec));
    PlanInFile {
        document: object.document,
        path: object.path.clone(),
        title: object.title(),
        name: object.metadata("name").unwrap_or_default().to_owned(),
        line: source.position(place.offset()).line,
        channel_placeholder: written::channel_placeholder(source, object),
        is_guarded_by_sops: is_guarded_by_sops(source),
        policy: field("versionPolicy").map_or_else(|| Ok(Policy::default()), policy_of),
        channel: channel.map(str::to_owned),
        version,
        is_number,
        other,
        images: ["preflight", "prepare", "upgrade", "verify"]
            .into_iter()
            .filter_map(image)
            .collect(),
        patched_images: Vec::new(),
        installed: image("upgrade").and_then(|(_, image)| installed_by(&image)),
        installs_kubernetes: field("installs").and_then(Node::text).map_or_else(
            || image("upgrade").is_some_and(|(_, image)| installs_kubernetes(&image)),
            |installs| installs == Installs::Kubernetes.as_str(),
        ),
        patched: changes
            .and_then(|changes| changes.get(&Field::Version).cloned())
            .unwrap_or_default(),
        deleted: source.change(object, Field::Plan).cloned(),
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
