//! A field that a Plan does not have, and what its author meant.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Map, Value};

use super::{PLAN, below, integer, no_indices, schema_of};
use crate::gitops::Rule;
use crate::gitops::check::Subject;
use crate::gitops::check::instead::{self, Unit, has, instead, label_text, yaml};
use crate::gitops::yaml::{Entry, Kind, Node, Object};
use refit_base::nearest::nearest;

impl Subject<'_> {
    /// `value` in a requirement, as in a toleration: what is meant is `In` with that value.
    pub(super) fn value_of_a_requirement<'n>(
        &mut self,
        field: &str,
        object: &'n Object,
        key: usize,
    ) -> Option<&'n str> {
        let last = field.rsplit('.').next().unwrap_or_default();
        let entry = object.entry("value")?;
        let label = object.entry("key")?.value.text()?;
        if !last.starts_with("matchExpressions[")
            || object.entry("values").is_some()
            || object.entry("operator").is_some()
        {
            return None;
        }
        let one = |node: &Node| match &node.kind {
            Kind::Text(_) | Kind::Bool(_) | Kind::Number(_) => Some(label_text(node, self.written(node))),
            _ => None,
        };
        let values: Option<Vec<_>> = match &entry.value.kind {
            Kind::List(items) => items.iter().map(one).collect(),
            _ => one(&entry.value).map(|value| vec![value]),
        };
        let meant = serde_json::json!({ "key": label, "operator": "In", "values": values? });
        let message = format!("{field} has the field value; a requirement has an operator and values");
        let hint = format!("write `{}`", yaml(&meant));
        self.report_at(Rule::UnknownField, key, Some(field), message, Some(hint));
        self.renamed.insert(below(field, "operator"));
        Some(&entry.key.name)
    }

    /// Labels written in a selector as in a pod's `nodeSelector`, which are reported together.
    pub(super) fn labels_of_a_pod<'n>(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        object: &'n Object,
        key: usize,
    ) -> Vec<&'n str> {
        let is_selector = ["matchLabels", "matchExpressions"].iter().all(|name| {
            schema
                .properties
                .as_ref()
                .is_some_and(|properties| properties.contains_key(*name))
        });
        if !is_selector {
            return Vec::new();
        }
        let is_label = |entry: &&Entry| {
            schema_of(schema, &entry.key.name).is_none()
                && matches!(entry.value.kind, Kind::Text(_) | Kind::Bool(_) | Kind::Number(_))
        };
        let labels: Vec<_> = object.entries.iter().filter(is_label).collect();
        let Some(first) = labels.first() else {
            return Vec::new();
        };
        let mut whole = Map::new();
        let mut all = Map::new();
        for entry in &object.entries {
            if entry.key.name == "matchLabels" {
                all.extend(entry.value.to_json().as_object().cloned().unwrap_or_default());
            } else if !is_label(&entry) {
                whole.insert(entry.key.name.clone(), entry.value.to_json());
            }
        }
        all.extend(labels.iter().map(|entry| {
            let text = label_text(&entry.value, self.written(&entry.value));
            (entry.key.name.clone(), Value::from(text))
        }));
        whole.insert("matchLabels".to_owned(), Value::Object(all));
        let last = field.rsplit('.').next().unwrap_or_default();
        let message = format!(
            "{field} has the label {:?} as a field; labels belong below matchLabels",
            first.key.name
        );
        let hint = format!("write `{last}: {}`", yaml(&Value::Object(whole)));
        self.report_at(Rule::UnknownField, key, Some(field), message, Some(hint));
        labels.iter().map(|entry| entry.key.name.as_str()).collect()
    }

    pub(super) fn report_unknown(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        object: &Object,
        entry: &Entry,
    ) {
        let name = entry.key.name.as_str();
        // The name itself may have dots.
        let parent = field.strip_suffix(name).unwrap_or_default().trim_end_matches('.');
        if self.report_repeated_parent(parent, name, schema, entry) {
            return;
        }
        let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
        // `imagePullPolicy` is not an `image`, and `labels` are no `postCompleteLabels`.
        let near =
            nearest(name, names).filter(|near| name.len() <= 2 * near.len() && near.len() < 3 * name.len());
        let counterpart = counterpart(name, schema);
        let near = counterpart.or(near);
        // Of several places, first those that the Plan already has.
        let mut places: Vec<_> = places_of(if near.is_some() { name } else { elsewhere(name) })
            .into_iter()
            // `name` elsewhere never means the name of a Secret.
            .filter(|place| place != field && !place.contains("Ref."))
            .collect();
        if matches!(parent, "" | "spec") && near.is_none() && places.is_empty() && is_of_metadata(name) {
            places.push(below("metadata", name));
        }
        // The days of a window are when nodes may start, and those of a blackout when they may not.
        places.retain(|place| !parent.starts_with("spec.blackouts[") || !place.starts_with("spec.window"));
        places.sort_by_key(|place| !self.has(place.rsplit_once('.').map_or("", |(parent, _)| parent)));
        let rename = |near: &str| {
            if object.entry(near).is_some() {
                return format!("remove it; {near} is there already");
            }
            self.rename(&below(parent, near), schema_of(schema, near), &entry.value)
        };
        // The exact name in another place is more likely than a similar name in this place.
        let hint = match (near, places.first()) {
            _ if let Some(hint) = self.misplaced(parent, name, &entry.value) => hint,
            (Some(near), _) if near.eq_ignore_ascii_case(name) || counterpart.is_some() => rename(near),
            (_, Some(place)) if self.has(place) => format!("remove it; {place} is there already"),
            (_, Some(place)) => match self.in_absent_object(parent, place, &entry.value) {
                Some(entry) => format!("write `{entry}`"),
                None => format!("did you mean `{place}`?"),
            },
            (Some(near), None) => rename(near),
            (None, None)
                if parent.starts_with("spec.dependsOn[")
                    && ["apiVersion", "group", "kind", "namespace"].contains(&name) =>
            {
                "remove it; a Plan depends on Plans of its own namespace".to_owned()
            }
            (None, None) if parent.starts_with("spec.blackouts[") && name == "days" => {
                "remove it; leave these days out of spec.windows, a blackout has start and end".to_owned()
            }
            (None, None) if name == "imagePullPolicy" => {
                "remove it; SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY of the controller sets it for all Jobs"
                    .to_owned()
            }
            (None, None) => {
                let explain = if parent.is_empty() {
                    "plan".to_owned()
                } else {
                    format!("plan.{}", no_indices(parent))
                };
                format!("`kubectl explain {explain}` lists the fields that exist")
            }
        };
        let meant = near.map(|near| below(parent, near)).into_iter().chain(places);
        let written = meant.filter(|meant| {
            let name = meant.rsplit('.').next().unwrap_or_default();
            hint.contains(&format!("`{meant}`"))
                || hint.contains(&format!("`{name}`"))
                || hint.contains(&format!("`{name}: "))
                || hint.contains(&format!("{{{name}: "))
        });
        let written: Vec<_> = written.take(1).collect();
        // `matchLabels` beside an empty `nodeSelector`: the selector is not missing.
        let of_written = written.iter().filter_map(|meant| meant.rsplit_once('.'));
        let parents = of_written.map(|(parent, _)| parent.to_owned());
        let parents: Vec<_> = parents
            .filter(|parent| parent != "spec" && !self.has(parent))
            .collect();
        self.renamed.extend(written.into_iter().chain(parents));
        self.report_at(
            Rule::UnknownField,
            entry.key.span.start,
            Some(field),
            format!("a Plan has no field {field}"),
            Some(hint),
        );
    }

    /// A scalar in the object to which it belongs, where the Plan has no such object: `failure: {retries: 3}` for
    /// `retries: 3`.
    fn in_absent_object(&self, parent: &str, place: &str, node: &Node) -> Option<String> {
        let (object, name) = place.rsplit_once('.')?;
        let (above, last) = object.rsplit_once('.')?;
        if above != parent || self.node(object).is_some() {
            return None;
        }
        let mut schema = &*PLAN;
        for part in place.split('.') {
            schema = schema_of(schema, part)?;
        }
        let fits = match (schema.type_.as_deref(), &node.kind) {
            (Some("string"), Kind::Text(_)) | (Some("boolean"), Kind::Bool(_)) => true,
            (Some("integer"), _) => integer(node).is_some(),
            (None, Kind::Text(_) | Kind::Number(_)) => schema.minimum.is_some(),
            _ => false,
        };
        let mut value = serde_json::json!({ name: node.to_json() });
        // Only this policy has a budget.
        if place == "spec.failure.budget" {
            value["policy"] = "Stop".into();
        }
        fits.then(|| format!("{last}: {}", yaml(&value)))
    }

    /// What to do with a field that belongs neither to another name nor to another place.
    fn misplaced(&self, parent: &str, name: &str, node: &Node) -> Option<String> {
        let is = |value: bool| matches!(node.kind, Kind::Bool(own) if own == value);
        let hint = match name {
            _ if name.starts_with('$') => {
                "the file is a patch; name it in a kustomization.yaml, and validate what `kustomize build` prints"
            }
            "runAsRoot" if is(true) => "write `runAsUser: 0`",
            "runAsRoot" if is(false) => "write `runAsNonRoot: true`",
            "runAsRoot" => "remove it; runAsUser and runAsNonRoot set the user",
            "enabled" | "enable" if parent == "spec.drain" && is(true) => {
                "remove it; a Plan with spec.drain drains"
            }
            "enabled" | "enable" if parent == "spec.drain" => {
                "leave out spec.drain; a Plan without it does not drain"
            }
            "volumeMounts" => "move them to volumes, with name, source and destination of each",
            "nodeSelectorTerms" => {
                "use the matchExpressions of one term; a Plan selects nodes that meet all of them"
            }
            "tag" => {
                let image = self.node(&below(parent, "image")).and_then(Node::text)?;
                let tag = node.text()?;
                return Some(format!(
                    "put it behind the image, as in `{image}:{tag}`, or leave it out to use the version as the tag"
                ));
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// An environment variable as `NAME: value`, as in the files of Docker Compose.
    pub(super) fn variable_as_a_key<'n>(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        object: &'n Object,
        key: usize,
    ) -> Option<&'n str> {
        let is_item = no_indices(field).rsplit('.').next() == Some("envs");
        let [entry] = object.entries.as_slice() else {
            return None;
        };
        let value = match &entry.value.kind {
            Kind::Text(text) => text.clone(),
            Kind::Number(_) | Kind::Bool(_) => self.written(&entry.value).to_owned(),
            _ => return None,
        };
        let name = entry.key.name.as_str();
        if !is_item || has(schema, name) || near_field(name, schema) {
            return None;
        }
        let message = format!("{field} has the variable {name:?} as a field; a variable has name and value");
        let meant = yaml(&serde_json::json!({ "name": name, "value": value }));
        self.report_at(
            Rule::UnknownField,
            key,
            Some(field),
            message,
            Some(format!("write `{meant}`")),
        );
        self.renamed.insert(below(field, "name"));
        Some(name)
    }

    /// `spec` within `spec`: reported once, because all fields of the outer one are missing.
    fn report_repeated_parent(
        &mut self,
        parent: &str,
        name: &str,
        schema: &JSONSchemaProps,
        entry: &Entry,
    ) -> bool {
        let fields = entry.value.object().map_or(&[][..], |object| &object.entries);
        let is_field = |entry: &&Entry| has(schema, &entry.key.name);
        if parent.rsplit('.').next() != Some(name) || !fields.iter().any(|entry| is_field(&entry)) {
            return false;
        }
        let inner = fields.iter().filter(is_field);
        self.renamed
            .extend(inner.map(|entry| below(parent, &entry.key.name)));
        let field = below(parent, name);
        self.report_at(
            Rule::UnknownField,
            entry.key.span.start,
            Some(&field),
            format!("a Plan has no field {field}; its fields belong to {parent}"),
            Some("remove the line, and indent the lines below it less".to_owned()),
        );
        true
    }

    /// A hint to rename a field, with its value if that has to change too.
    fn rename(&self, field: &str, schema: Option<&JSONSchemaProps>, node: &Node) -> String {
        let name = field.rsplit('.').next().unwrap_or_default();
        let is_number = matches!(node.kind, Kind::Number(_));
        // `hostPath: {path: /x}`, as in a pod.
        if let Some([entry]) = node.object().map(|object| &object.entries[..])
            && let Some(path) = entry.value.text().filter(|_| entry.key.name == "path")
            && schema.is_some_and(|schema| schema.type_.as_deref() == Some("string"))
        {
            return format!("write `{name}: {}`", yaml(&path.into()));
        }
        let fits = schema.is_none_or(|schema| match schema.type_.as_deref() {
            Some("string") => node.text().is_some(),
            Some("integer") => integer(node).is_some(),
            Some("boolean") => matches!(node.kind, Kind::Bool(_)),
            Some("array") => matches!(node.kind, Kind::List(_)),
            Some("object") => node.object().is_some(),
            // A number of nanoseconds is never written on purpose.
            _ => !(is_number && Unit::of(field) == Unit::Duration),
        });
        let value = if fits {
            None
        } else if is_number && Unit::of(field) == Unit::Duration {
            instead::duration(self.written(node)).filter(|duration| instead::takes_duration(field, duration))
        } else {
            schema.and_then(|schema| instead(field, schema, node, self.written(node), self.runs(field)))
        };
        match value {
            Some(value) => format!("write `{name}: {value}`"),
            None => format!("did you mean `{name}`?"),
        }
    }
}

/// Whether the name is a misspelling of a field: `Name`, `val`.
fn near_field(name: &str, schema: &JSONSchemaProps) -> bool {
    let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
    nearest(name, names).is_some()
}

/// The field of the same object that means what `name` means in other objects of Kubernetes.
fn counterpart(name: &str, schema: &JSONSchemaProps) -> Option<&'static str> {
    let is_name_only = schema.properties.as_ref().is_some_and(|all| all.len() == 1);
    let names_a_secret = has(schema, "path") || has(schema, "key") || is_name_only;
    let meant = match name {
        "secretName" | "secret" if names_a_secret => "name",
        "mountPath" if has(schema, "path") => "path",
        "mountPath" | "containerPath" | "target" => "destination",
        "hostPath" => "source",
        "activeDeadlineSeconds" => "jobActiveDeadlineSecs",
        "pause" | "paused" => "suspend",
        "minAge" => "minimumAge",
        "schedule" => "cron",
        "parallelism" | "maxParallel" | "maxParallelism" | "batchSize" => "concurrency",
        "entrypoint" | "entryPoint" => "command",
        "label" | "labelKey" if has(schema, "operator") => "key",
        "label" | "labelKey" | "key" => "topologyKey",
        "from" | "begin" | "since" | "startDate" | "startTime" => "start",
        "to" | "until" | "till" | "endDate" | "endTime" => "end",
        "retry" | "maxRetries" => "retries",
        "maxFailures" | "maxFailed" | "threshold" => "budget",
        "onFailure" | "action" => "policy",
        "plan" if is_name_only => "name",
        "semver" | "constraint" => "range",
        "if" | "policy" | "mode" | "enabled" => "when",
        _ => return None,
    };
    has(schema, meant).then_some(meant)
}

/// The name of a field of a Plan that means what `name` means in other objects of Kubernetes.
fn elsewhere(name: &str) -> &str {
    match name {
        "env" => "envs",
        "timezone" | "tz" => "timeZone",
        "maxFailures" | "maxFailed" => "budget",
        "retry" | "maxRetries" | "backoffLimit" => "retries",
        other => other,
    }
}

fn is_of_metadata(name: &str) -> bool {
    ["name", "namespace", "labels", "annotations"].contains(&name)
}

/// Other places in a Plan's spec with a field of that name, the shallowest first. Types of Kubernetes are not searched.
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
            if depth < 2 {
                collect(schema, &path, depth + 1, name, found);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(spec) = schema_of(&PLAN, "spec") {
        collect(spec, "spec", 0, name, &mut found);
    }
    // `upgrade` before the other containers, because nearly every Plan has `upgrade`.
    let others = [".prepare", ".preflight", ".verify"];
    let is_other = |path: &str| others.iter().any(|other| path.contains(other));
    found.sort_by_key(|(depth, path)| (*depth, is_other(path), path.clone()));
    found.into_iter().map(|(_, path)| path).collect()
}
