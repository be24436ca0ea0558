//! A Plan of a file for commands that need the object itself, such as `refit render`.

use serde_json::Value;

use super::definitions::PLAN;
use super::existence::VersionedImages;
use super::subject::Subject;
use crate::gitops::finding::{Finding, Levels};
use crate::gitops::objects::Object;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::{Rule, Severity};
use crate::gitops::source::Source;
use refit_api::Plan;

/// The namespace of a Plan whose own is not known: that of the manifests of refit and of system-upgrade-controller.
const NAMESPACE: &str = "system-upgrade";

/// Longest name of a Plan, since it is part of a label.
const MAX_NAME: usize = 63;

pub struct ReadPlan {
    /// As the API server would store it, without placeholders in fields that are not text.
    pub plan: Plan,
    pub json: Value,
    /// Errors that the API server or the controller would return.
    pub refused: Vec<Finding>,
    /// Why the API server would refuse its Jobs.
    pub bad_jobs: Vec<Finding>,
    /// The images that follow the version, for a caller that may ask their registries.
    pub images: Option<VersionedImages>,
    pub placeholders: Vec<Finding>,
    /// What replaces placeholders in the metadata, a line each.
    pub assumed: Vec<String>,
}

/// Reads a Plan as the API server and the controller would.
pub fn read_plan(source: &Source, object: &Object<'_>) -> ReadPlan {
    let levels = Levels::default();
    let mut subject = Subject::new(source, object, &levels);
    subject.check_repeated_keys();
    let mut json = subject.read_by_schema(&PLAN);
    subject.apply_overlay(&mut json);
    let reported = subject.found.len();
    let words = subject.fill_label_values(&mut json);
    subject.found.truncate(reported); // what replaces them says it
    subject.check_metadata(None);
    let mut plan: Plan = match serde_json::from_value(json.clone()) {
        Ok(plan) => plan,
        Err(error) => {
            subject.report(
                Rule::WrongType,
                "spec",
                format!("the Plan cannot be read: {error}"),
                None,
            );
            Plan::default()
        }
    };
    subject.check_as_controller(&plan);
    let reported = subject.found.len();
    subject.check_jobs(&plan);
    let mut bad_jobs = subject.found.split_off(reported);
    let node = |found: &Finding| subject.node(found.field.as_deref()?);
    // The value of a placeholder may be right.
    let is_certain = |found: &Finding| !node(found).is_some_and(|node| has_placeholder(&node.to_json()));
    bad_jobs.retain(|found| found.rule == Rule::BadJob && is_certain(found));
    let images = subject.versioned_images(&plan.spec);
    let mut assumed = fill_metadata(&mut plan, &mut json);
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let replaced =
        |(field, word)| format!("Plan {name}: the value {word} replaces the placeholder in {field}");
    assumed.extend(words.into_iter().map(replaced));
    let mut found = subject.finish();
    found.sort_by_key(|found| (found.position, found.rule));
    let (refused, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| found.severity == Severity::Error);
    let has_placeholder = |found: &Finding| found.rule == Rule::Placeholder;
    ReadPlan {
        plan,
        json,
        refused,
        bad_jobs,
        images,
        placeholders: others.into_iter().filter(has_placeholder).collect(),
        assumed,
    }
}

fn has_placeholder(value: &Value) -> bool {
    match value {
        Value::String(text) => is_placeholder(text),
        Value::Array(items) => items.iter().any(has_placeholder),
        Value::Object(fields) => fields.values().any(has_placeholder),
        _ => false,
    }
}

/// Replaces placeholders in the metadata, so that the Plan can be worked with. An empty namespace is none, as for
/// kubectl.
fn fill_metadata(plan: &mut Plan, json: &mut Value) -> Vec<String> {
    let mut assumed = Vec::new();
    let title = plan.metadata.name.clone().unwrap_or_default();
    for (field, value) in [
        ("namespace", &mut plan.metadata.namespace),
        ("name", &mut plan.metadata.name),
    ] {
        let Some(text) = value.as_deref() else { continue };
        let meant = if is_placeholder(text) {
            let meant = if field == "namespace" {
                NAMESPACE.to_owned()
            } else {
                name_for(text)
            };
            assumed.push(format!(
                "Plan {title}: the {field} {meant} replaces the placeholder in metadata.{field}"
            ));
            Some(meant)
        } else if text.is_empty() {
            None
        } else {
            continue;
        };
        if let Some(metadata) = json["metadata"].as_object_mut() {
            match &meant {
                Some(meant) => metadata.insert(field.to_owned(), meant.as_str().into()),
                None => metadata.remove(field),
            };
        }
        *value = meant;
    }
    assumed
}

/// A name for an object whose name has a placeholder: `server-${CLUSTER}` becomes `server-cluster`. The same text
/// gives the same name, so that references to it stay right.
pub fn name_for(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let name = words.join("-").to_lowercase();
    let name = name.get(..MAX_NAME.min(name.len())).unwrap_or_default();
    match name.trim_end_matches('-') {
        "" => "plan".to_owned(),
        name => name.to_owned(),
    }
}
