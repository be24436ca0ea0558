//! A field that an object does not have, and the one that its author meant.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::property;
use crate::gitops::check::definitions::of_field;
use crate::gitops::check::path::{below, is_within, no_indices};
use crate::gitops::check::subject::Subject;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Entry, Node};
use refit_api::Hook;
use refit_base::nearest::nearest;

/// Names in other objects of Kubernetes, and fields of a Plan that mean the same.
const OTHER_NAMES: [(&str, &str); 29] = [
    ("activeDeadlineSeconds", "jobActiveDeadlineSecs"),
    ("entrypoint", "command"),
    ("env", "envs"),
    ("endTime", "end"),
    ("from", "start"),
    ("hostPath", "source"),
    ("label", "key"),
    ("maxFailures", "budget"),
    ("maxRetries", "retries"),
    ("mode", "when"),
    ("mountPath", "destination"),
    ("mountPath", "path"),
    ("parallelism", "concurrency"),
    ("pause", "suspend"),
    ("paused", "suspend"),
    ("plan", "name"),
    ("podSelector", "selector"),
    ("policy", "when"),
    ("retry", "retries"),
    ("runAsRoot", "runAsUser"),
    ("schedule", "cron"),
    ("secret", "name"),
    ("secretName", "name"),
    ("selector", "podSelector"),
    ("semver", "range"),
    ("startTime", "start"),
    ("to", "end"),
    ("tz", "timeZone"),
    ("until", "end"),
];

impl Subject<'_> {
    /// Reports a field of the object at `parent`.
    pub(super) fn report_unknown(
        &mut self,
        parent: &str,
        schema: &JSONSchemaProps,
        object: &Node,
        entry: &Entry,
    ) {
        let name = entry.key.name.as_str();
        let field = below(parent, name);
        let other = other_name(name, schema);
        let near = other.or_else(|| near_name(name, schema));
        let mut places = if self.object.is_plan() && !is_entry_or_hook(parent) {
            places_of(name)
        } else {
            Vec::new()
        };
        places.retain(|place| *place != field);
        if matches!(parent, "" | "spec") && near.is_none() && places.is_empty() && is_of_metadata(name) {
            places.push(below("metadata", name));
        }
        // Of several places, first those that the Plan already has.
        places.sort_by_key(|place| !self.has(place.rsplit_once('.').map_or("", |(parent, _)| parent)));
        let is_here = other.is_some() || near.is_some_and(|near| near.eq_ignore_ascii_case(name));
        // The exact name in another place is more likely than a similar name in this place.
        let mut place = places.into_iter().next().filter(|_| !is_here);
        let is_of_windows = parent == "spec.window" && matches!(name, "cron" | "schedule" | "duration");
        if is_of_windows {
            place = None;
            let times = ["days", "startTime", "endTime"].map(|name| below(parent, name));
            let absent: Vec<_> = times.into_iter().filter(|field| !self.has(field)).collect();
            self.renamed.extend(absent);
        }
        let hint = match (near, &place) {
            _ if is_of_windows => "move it to spec.windows, whose items have cron and duration".to_owned(),
            (_, Some(place)) if self.has(place) => format!("remove it; {place} is there already"),
            (_, Some(place)) => format!("did you mean `{place}`?"),
            (Some(near), None) if object.get(near).is_some() => {
                format!("remove it; {near} is there already")
            }
            (Some(near), None) => format!("did you mean `{near}`?"),
            (None, None) if name.starts_with('$') => {
                "the file is a patch; name it in a kustomization.yaml, and validate what `kustomize build` prints"
                    .to_owned()
            }
            (None, None) if property(schema, "matchLabels").is_some() => {
                "labels belong below `matchLabels`".to_owned()
            }
            (None, None) => {
                let kind = self.object.kind.to_lowercase();
                let explained = below(&kind, &no_indices(parent));
                let explained = explained.trim_end_matches('.');
                format!("`kubectl explain {explained}` lists the fields that exist")
            }
        };
        // What is meant is not missing, nor is the object that has it.
        let meant = place.or_else(|| near.map(|near| below(parent, near)));
        if let Some(meant) = meant {
            let above = meant.rsplit_once('.').map(|(parent, _)| parent.to_owned());
            let above = above.filter(|parent| parent != "spec" && !self.has(parent));
            self.renamed.extend(above.into_iter().chain([meant]));
        }
        let message = format!("a {} has no field {field}", self.object.kind);
        self.report_at(
            Rule::UnknownField,
            entry.key.span.start,
            Some(&field),
            message,
            Some(hint),
        );
    }
}

/// Whether a field there belongs to one of several things, so that the field of that name of the whole Plan is not meant.
fn is_entry_or_hook(parent: &str) -> bool {
    let is_hook = |hook: Hook| is_within(parent, &format!("spec.{}", hook.as_str()));
    parent.contains('[') || Hook::ALL.into_iter().any(is_hook)
}

fn names(schema: &JSONSchemaProps) -> impl Iterator<Item = &str> {
    schema.properties.iter().flatten().map(|(name, _)| name.as_str())
}

/// The field of the same object that has another name elsewhere.
fn other_name<'s>(name: &str, schema: &'s JSONSchemaProps) -> Option<&'s str> {
    let mut own = OTHER_NAMES.iter().filter(|(other, _)| *other == name);
    own.find_map(|(_, own)| names(schema).find(|name| name == own))
}

/// The field of the same object whose name is near.
fn near_name<'s>(name: &str, schema: &'s JSONSchemaProps) -> Option<&'s str> {
    // `imagePullPolicy` is not an `image`, and `labels` are no `postCompleteLabels`.
    let is_near = |near: &&str| name.len() <= 2 * near.len() && near.len() < 3 * name.len();
    nearest(name, names(schema)).filter(is_near)
}

fn is_of_metadata(name: &str) -> bool {
    ["name", "namespace", "labels", "annotations"].contains(&name)
}

/// Places in a Plan's spec with a field of that name, the shallowest first. Types of Kubernetes are not searched.
fn places_of(name: &str) -> Vec<String> {
    fn collect(
        schema: &JSONSchemaProps,
        path: &str,
        depth: usize,
        name: &str,
        found: &mut Vec<(usize, String)>,
    ) {
        for (property, schema) in schema.properties.iter().flatten() {
            let path = below(path, property);
            if property == name {
                found.push((depth, path.clone()));
            }
            // `name` elsewhere never means the name of a Secret.
            if depth < 2 && !property.ends_with("Ref") {
                collect(schema, &path, depth + 1, name, found);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(spec) = of_field("spec") {
        collect(spec, "spec", 0, name, &mut found);
    }
    // `upgrade` before the other containers, because nearly every Plan has `upgrade`.
    let others = [".prepare", ".preflight", ".verify", ".before", ".after"];
    let is_other = |path: &str| others.iter().any(|other| path.contains(other));
    found.sort_by_key(|(depth, path)| (*depth, is_other(path), path.clone()));
    found.into_iter().map(|(_, path)| path).collect()
}
