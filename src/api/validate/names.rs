//! Names: of the Plan, its version, its channel, other Plans, Secrets, and the labels of done nodes.

use crate::complete_label::expand;
use crate::invalid::{ErrorList, FieldPath, Invalid, at};
use crate::plan::{DependencySpec, PlanSpec};
use crate::selector::{is_subdomain, label_key_problems, label_value_problems};
use crate::text::{MAX_NAME, shorten};

/// Maximum length of a Plan's name, because it is the name part of the node label `plan.upgrade.cattle.io/<plan>`, and
/// a label value on Jobs.
pub const MAX_PLAN_NAME_LEN: usize = 63;
/// Maximum length of a channel in bytes. Status has a copy of it, and each decision compares it.
pub const MAX_CHANNEL: usize = 4 << 10;
/// Maximum number of Secrets of a Plan. The controller reads and watches each of them.
pub const MAX_SECRETS: usize = 100;
/// Maximum number of Plans in `dependsOn`, as in the schema. A Plan stored under another schema may name more.
const MAX_DEPENDENCIES: usize = 32;

pub(super) fn plan_name(name: &str) -> Result<(), Invalid> {
    if name.len() <= MAX_PLAN_NAME_LEN {
        return Ok(());
    }
    let problem = format!(
        "has {} characters, and the label that marks a finished node holds {MAX_PLAN_NAME_LEN}",
        name.len()
    );
    let field = FieldPath::root("metadata.name");
    Err(field.invalid(problem).hint("choose a shorter name"))
}

/// A version that is not a label value is no image tag either.
pub(super) fn version(spec: &PlanSpec) -> Result<(), Invalid> {
    match &spec.version {
        Some(version) if !label_value_problems(&version.replace('+', "-")).is_empty() => {
            Err(at("version").invalid(format_args!(
                "cannot be an image tag and a label value: {version:?} must be at most 63 letters, digits, '-', '_', '.' or '+', \
                 with a letter or digit at each end"
            )))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_channel(spec: &PlanSpec, errors: &mut ErrorList) {
    let bytes = spec.channel.as_ref().map_or(0, String::len);
    if bytes > MAX_CHANNEL {
        errors.push(at("channel").invalid(format_args!("has {bytes} bytes, and may have {MAX_CHANNEL}")));
    }
    let secrets = [
        ("channelSecretRef", &spec.channel_secret_ref),
        ("channelCASecretRef", &spec.channel_ca_secret_ref),
    ];
    for (field, secret) in secrets {
        if let Some(secret) = secret {
            errors.take(at(field).field("name").secret(&secret.name));
        }
    }
}

pub(super) fn check_dependencies(own: &str, spec: &PlanSpec, errors: &mut ErrorList) {
    let all = spec.depends_on.as_deref().unwrap_or_default();
    let list = at("dependsOn");
    if all.len() > MAX_DEPENDENCIES {
        let problem = format!(
            "names {} Plans: it must name at most {MAX_DEPENDENCIES}",
            all.len()
        );
        return errors.push(list.invalid(problem));
    }
    for (index, DependencySpec { name }) in all.iter().enumerate() {
        let field = list.index(index).field("name");
        if name.len() > MAX_PLAN_NAME_LEN || !is_subdomain(name) {
            let problem = format!("is {name:?}: it must be the name of a Plan in the same namespace");
            errors.push(field.invalid(problem));
        } else if name == own {
            let problem = "is this Plan, so that no node could ever start";
            errors.push(field.invalid(problem).hint("remove the item"));
        } else if let Some(first) = all[..index].iter().position(|other| other.name == *name) {
            let problem = format!("is {name:?}, as in spec.dependsOn[{first}]");
            errors.push(field.invalid(problem).hint("remove the item"));
        }
    }
}

/// The API server would refuse another label on each node that has been upgraded.
pub(super) fn check_complete_labels(spec: &PlanSpec, errors: &mut ErrorList) {
    let field = at("postCompleteLabels");
    for (key, value) in spec.post_complete_labels.iter().flatten() {
        let shown = shorten(key, MAX_NAME);
        if let Some(problem) = label_key_problems(key).into_iter().next() {
            let problem = format!("has the key {shown:?}, which is not one of a label: {problem}");
            errors.push(field.invalid(problem));
        }
        // One character each: the text may be too long with one version, and not with another one.
        if let Some(problem) = label_value_problems(&expand(value, "v", "a")).into_iter().next() {
            let value = shorten(value, MAX_NAME);
            let problem =
                format!("has the value {value:?} for {shown}, which is not one of a label: {problem}");
            errors.push(field.invalid(problem));
        }
    }
}

/// Whether a Plan names no more Secrets than the controller reads.
///
/// # Errors
/// Fails if it names more.
pub fn validate_secrets(spec: &PlanSpec) -> Result<(), ErrorList> {
    let mut errors = ErrorList::default();
    let counts = [
        ("secrets", spec.secrets.as_ref().map_or(0, Vec::len)),
        (
            "imagePullSecrets",
            spec.image_pull_secrets.as_ref().map_or(0, Vec::len),
        ),
    ];
    for (field, secrets) in counts.into_iter().filter(|(_, secrets)| *secrets > MAX_SECRETS) {
        errors.push(at(field).invalid(format_args!(
            "names {secrets} secrets: it must name at most {MAX_SECRETS}, so merge some, or mount them with spec.upgrade.volumes"
        )));
    }
    errors.finish(Some(()))
}
