//! What the API server does with a Plan: types, required fields, bounds and unknown fields.
//!
//! The fields come from the CustomResourceDefinition, so a field that is added there is known here. The messages are
//! refit's own, because they also suggest what to write.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use regex::Regex;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Subject;
use super::instead::{self, Runs, Unit, has, instead, label_text, yaml};
use crate::api::crd;
use crate::gitops::Rule;
use crate::gitops::placeholder::{in_comment, is_placeholder, is_whole_placeholder, syntax};
use crate::gitops::yaml::{Entry, Kind, Node, Object, is_plain_bool};
use crate::nearest::nearest;

/// A spec to paste. It selects no node until someone labels one.
pub(super) const SPEC: &str = "{concurrency: 1, version: v1.33.4+k3s1, nodeSelector: {matchLabels: {k3s-upgrade: enabled}}, \
                               upgrade: {image: rancher/k3s-upgrade}}";

/// The schema of a Plan, with that of its metadata, which a CRD omits.
static PLAN: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let mut versions = crd::plans().spec.versions.into_iter();
    let mut plan = versions
        .find_map(|version| version.schema?.open_api_v3_schema)
        .unwrap_or_default();
    let metadata = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<ObjectMeta>();
    let metadata = serde_json::to_value(metadata).and_then(serde_json::from_value);
    let properties = plan.properties.get_or_insert_default();
    if let Ok(metadata) = metadata {
        properties.insert("metadata".to_owned(), metadata);
    }
    // The API server drops this field, so its content does not matter.
    properties.insert(
        "status".to_owned(),
        JSONSchemaProps {
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        },
    );
    plan
});

impl Subject<'_> {
    /// The Plan as JSON, without the refused fields, which are reported.
    pub(super) fn read_by_schema(&mut self) -> Value {
        let node = self.object.node;
        let read = self.read("", &PLAN, node, node.offset());
        read.unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The value of a field, if the field accepts it. `key` is the offset of the field.
    fn read(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) -> Option<Value> {
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            return Some(node.to_json());
        }
        if schema.x_kubernetes_int_or_string == Some(true) {
            return self.read_scalar(field, schema, "a number or text", node, |node| match &node.kind {
                Kind::Text(_) => true,
                Kind::Number(_) => integer(node).is_some(),
                _ => false,
            });
        }
        match schema.type_.as_deref() {
            Some("object") => self.read_object(field, schema, node, key),
            Some("array") => self.read_list(field, schema, node, key),
            Some("string") => self.read_scalar(field, schema, "text", node, |node| node.text().is_some()),
            Some("boolean") => {
                let read = self.read_scalar(field, schema, "true or false", node, |node| {
                    matches!(node.kind, Kind::Bool(_))
                });
                self.check_bool(field, node);
                read
            }
            Some("integer") => {
                let number = integer(node);
                self.read_scalar(field, schema, "a whole number", node, |_| number.is_some())
                    .and(number)
                    .map(Value::from)
            }
            Some("number") => self.read_scalar(field, schema, "a number", node, |node| {
                matches!(node.kind, Kind::Number(_))
            }),
            _ => Some(node.to_json()),
        }
    }

    fn read_object(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        node: &Node,
        key: usize,
    ) -> Option<Value> {
        let Some(object) = node.object() else {
            if node.text().is_some_and(is_whole_placeholder) {
                self.report_placeholder(field, node);
                return None;
            }
            let hint = if matches!(node.kind, Kind::Bool(false)) {
                Some("remove it".to_owned())
            } else {
                self.write_instead(field, schema, node)
            };
            self.report_wrong_type(field, "an object", node, key, hint);
            return None;
        };
        let mut read = Map::new();
        let mut labels = self.labels_of_a_pod(field, schema, object, key);
        labels.extend(self.value_of_a_requirement(field, object, key));
        for entry in &object.entries {
            let path = below(field, &entry.key.name);
            let Some(schema) = schema_of(schema, &entry.key.name) else {
                if path == "sops" && entry.value.get("mac").is_some() {
                    self.report_sops(&path, entry);
                } else if !labels.contains(&entry.key.name.as_str()) {
                    self.report_unknown(&path, schema, object, entry);
                }
                continue;
            };
            let at = entry.key.span.start;
            if entry.value.is_null() {
                match in_comment(self.source, entry) {
                    Some((comment, syntax)) => self.report_placeholder_at(&path, at, &comment, syntax),
                    // The API server drops nulls before it validates.
                    None => self.report_null(&path, &entry.value, at),
                }
                continue;
            }
            let value = self.read(&path, schema, &entry.value, at);
            read.extend(value.map(|value| (entry.key.name.clone(), value)));
        }
        self.report_missing(field, schema, object, key);
        Some(Value::Object(read))
    }

    /// Reports the metadata that SOPS adds to the file, and removes when it decrypts the file.
    fn report_sops(&mut self, field: &str, entry: &Entry) {
        let message = "sops is the metadata of SOPS; refit does not check encrypted values".to_owned();
        let hint =
            "validate the decrypted file, as in `sops decrypt plan.yaml | refit validate -`".to_owned();
        self.report_at(
            Rule::Placeholder,
            entry.key.span.start,
            Some(field),
            message,
            Some(hint),
        );
    }

    fn report_missing(&mut self, field: &str, schema: &JSONSchemaProps, object: &Object, key: usize) {
        for name in schema.required.iter().flatten() {
            let entry = object.entry(name);
            if !entry.is_some_and(|entry| self.is_given(entry)) {
                let path = below(field, name);
                self.report_at(
                    Rule::MissingField,
                    entry.map_or(key, |entry| entry.key.span.start),
                    Some(&path),
                    format!("{path} is missing"),
                    self.line_for(&path, object)
                        .or_else(|| about(schema_of(schema, name))),
                );
            }
        }
    }

    fn report_null(&mut self, field: &str, node: &Node, key: usize) {
        // Not reported: the result is the same without these fields.
        if field == "status" || field == "metadata.creationTimestamp" {
            return;
        }
        // This is the one field whose mere presence has an effect.
        let hint = if field == "spec.drain" {
            "write `{}` to drain with the defaults, or remove it"
        } else {
            "remove it, or give it a value"
        };
        let written = if self.written(node).is_empty() {
            "empty"
        } else {
            "null"
        };
        self.report_at(
            Rule::NullField,
            key,
            Some(field),
            format!("{field} is {written}, which is the same as leaving it out"),
            Some(hint.to_owned()),
        );
    }

    /// A line to paste for a field that is missing from `object`.
    fn line_for(&self, field: &str, object: &Object) -> Option<String> {
        let text = |name: &str| object.entry(name).and_then(|entry| entry.value.text());
        let last = field.rsplit('.').next().unwrap_or_default();
        let image = || {
            let version = self.node("spec.version").and_then(Node::text).unwrap_or_default();
            let program = if version.contains("rke2") { "rke2" } else { "k3s" };
            format!("rancher/{program}-upgrade")
        };
        let value = match last {
            "spec" => SPEC.to_owned(),
            "upgrade" => format!("{{image: {}}}", image()),
            "image" => image(),
            "source" if text("destination").is_some() => yaml(&text("destination")?.into()),
            "destination" if text("source").is_some() => yaml(&text("source")?.into()),
            "path" if field.starts_with("spec.secrets") && text("name").is_some() => {
                yaml(&format!("/host/run/system-upgrade/secrets/{}", text("name")?).into())
            }
            "name" if text("path").is_some() || text("source").is_some() => {
                let path = text("path").or(text("source"))?.trim_end_matches('/');
                let name = path.rsplit('/').next()?.to_lowercase().replace(['.', '_'], "-");
                yaml(
                    &Some(name.trim_matches('-'))
                        .filter(|name| !name.is_empty())?
                        .into(),
                )
            }
            "operator" if object.entry("values").is_some() => "In".to_owned(),
            "operator" => "Exists".to_owned(),
            "type" if field.ends_with("seccompProfile.type") || field.ends_with("appArmorProfile.type") => {
                "RuntimeDefault".to_owned()
            }
            "fieldPath" => "spec.nodeName".to_owned(),
            "resource" => "limits.memory".to_owned(),
            _ => return example(field).map(|value| format!("add a line such as `{last}: {value}`")),
        };
        Some(format!("add `{last}: {value}`"))
    }

    /// The suggestion of `instead` as a hint.
    fn write_instead(&self, field: &str, schema: &JSONSchemaProps, node: &Node) -> Option<String> {
        // What a template becomes is unknown, and so are its words.
        if node
            .text()
            .is_some_and(|text| is_placeholder(&text.replace('$', "")))
        {
            return None;
        }
        let yaml = instead(field, schema, node, self.written(node), self.runs(field))?;
        Some(format!("write `{}`", self.with_unique_name(field, node, yaml)))
    }

    /// What runs the text of a list of arguments.
    fn runs(&self, field: &str) -> Runs {
        let Some((container, "args" | "arg")) = field.rsplit_once('.') else {
            return Runs::Line;
        };
        let command = self.node(&format!("{container}.command"));
        let last = command.and_then(|command| match &command.kind {
            Kind::Text(line) => line.split_whitespace().last(),
            _ => command.items().last().and_then(Node::text),
        });
        match last {
            Some(last) if instead::is_script_flag(last) => Runs::Script,
            Some(last) if instead::is_shell(last) => Runs::Shell,
            _ => Runs::Arguments,
        }
    }

    /// The volume of a hint with another name, if an earlier volume has that name.
    fn with_unique_name(&self, field: &str, node: &Node, yaml: String) -> String {
        let (Some((list, index)), Some(text)) = (field.rsplit_once('['), node.text()) else {
            return yaml;
        };
        let index = index.trim_end_matches(']').parse().unwrap_or_default();
        let name = |text: &str| Some(instead::volume(text)?["name"].as_str()?.to_owned());
        if let Some(own) = name(text).filter(|_| list.ends_with(".volumes")) {
            let items = self.node(list).map_or(&[][..], Node::items).iter().take(index);
            let mut names = items.filter_map(|item| match item.text() {
                Some(text) => name(text),
                None => item.get("name").and_then(Node::text).map(str::to_owned),
            });
            if names.any(|name| name == own) {
                return yaml.replacen(&format!("name: {own},"), &format!("name: {own}-{index},"), 1);
            }
        }
        yaml
    }

    /// `value` in a requirement, as in a toleration: what is meant is `In` with that value.
    fn value_of_a_requirement<'n>(&mut self, field: &str, object: &'n Object, key: usize) -> Option<&'n str> {
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
    fn labels_of_a_pod<'n>(
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

    fn report_unknown(&mut self, field: &str, schema: &JSONSchemaProps, object: &Object, entry: &Entry) {
        let name = entry.key.name.as_str();
        let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
        // `imagePullPolicy` is no `image`, and `labels` are no `postCompleteLabels`.
        let near =
            nearest(name, names).filter(|near| name.len() <= 2 * near.len() && near.len() < 3 * name.len());
        let near = counterpart(name, schema).or(near);
        // Of several places, first those that the Plan already has.
        let mut places: Vec<_> = places_of(if near.is_some() { name } else { elsewhere(name) })
            .into_iter()
            // The name of a Secret is what nobody means who writes `name` elsewhere.
            .filter(|place| place != field && !place.contains("Ref."))
            .collect();
        places.sort_by_key(|place| !self.has(place.rsplit_once('.').map_or("", |(parent, _)| parent)));
        let rename = |near: &str| {
            if object.entry(near).is_some() {
                return format!("remove it; {near} is there already");
            }
            let (parent, _) = field.rsplit_once('.').unwrap_or_default();
            self.rename(&below(parent, near), schema_of(schema, near), &entry.value)
        };
        // The exact name in another place is more likely than a similar name in this place.
        let hint = match (near, places.first()) {
            (Some(near), _) if near.eq_ignore_ascii_case(name) => rename(near),
            (_, Some(place)) if self.has(place) => format!("remove it; {place} is there already"),
            (_, Some(place)) => format!("did you mean `{place}`?"),
            (Some(near), None) => rename(near),
            (None, None) if name == "imagePullPolicy" => {
                "remove it; SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY of the controller sets it for all Jobs"
                    .to_owned()
            }
            (None, None) => {
                let parent = field.rsplit_once('.').map_or("", |(parent, _)| parent);
                let explain = if parent.is_empty() {
                    "plan".to_owned()
                } else {
                    format!("plan.{}", no_indices(parent))
                };
                format!("`kubectl explain {explain}` lists the fields that exist")
            }
        };
        let (parent, _) = field.rsplit_once('.').unwrap_or_default();
        let meant = near.map(|near| below(parent, near)).into_iter().chain(places);
        let written = meant.filter(|meant| {
            let name = meant.rsplit('.').next().unwrap_or_default();
            hint.contains(&format!("`{meant}`"))
                || hint.contains(&format!("`{name}`"))
                || hint.contains(&format!("`{name}: "))
        });
        self.renamed.extend(written.take(1));
        self.report_at(
            Rule::UnknownField,
            entry.key.span.start,
            Some(field),
            format!("a Plan has no field {field}"),
            Some(hint),
        );
    }

    fn read_list(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) -> Option<Value> {
        let Kind::List(items) = &node.kind else {
            if node.text().is_some_and(is_whole_placeholder) {
                self.report_placeholder(field, node);
                return None;
            }
            let hint = self.write_instead(field, schema, node);
            let is_arguments =
                node.text().is_some() && matches!(field, "spec.upgrade.args" | "spec.prepare.args");
            let hint = hint.or_else(|| {
                is_arguments.then(|| {
                    "make it a list with one item per argument; a script also needs a shell as its command".to_owned()
                })
            });
            self.report_wrong_type(field, "a list", node, key, hint);
            return None;
        };
        let least = usize::try_from(schema.min_items.unwrap_or_default()).unwrap_or_default();
        if items.len() < least {
            let message = format!("{field} has {} items; it needs at least {least}", items.len());
            self.report_at(Rule::NotAllowed, key, Some(field), message, about(Some(schema)));
        }
        let Some(JSONSchemaPropsOrArray::Schema(of_item)) = &schema.items else {
            return Some(node.to_json());
        };
        let mut read = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{field}[{index}]");
            let value = self.read(&path, of_item, item, item.offset());
            // The other items keep their indices, which the findings name.
            let refused = || (of_item.type_.as_deref() == Some("string")).then(|| Value::from(""));
            read.extend(value.or_else(refused));
        }
        Some(Value::Array(read))
    }

    fn read_scalar(
        &mut self,
        field: &str,
        schema: &JSONSchemaProps,
        wanted: &str,
        node: &Node,
        fits: impl Fn(&Node) -> bool,
    ) -> Option<Value> {
        let is_word = |text: &str| !text.trim().contains(char::is_whitespace);
        if node
            .text()
            .is_some_and(|text| is_whole_placeholder(text) || (is_placeholder(text) && is_word(text)))
            && schema.type_.as_deref() != Some("string")
        {
            self.report_placeholder(field, node);
            return None;
        }
        if !fits(node) {
            let hint = self.type_hint(field, schema, wanted, node);
            self.report_wrong_type(field, wanted, node, node.offset(), hint);
            return None;
        }
        let value = node.to_json();
        if let Some(allowed) = &schema.enum_
            && !allowed.iter().any(|one| one.0 == value)
        {
            let words: Vec<_> = allowed.iter().filter_map(|one| one.0.as_str()).collect();
            let text = value.as_str().unwrap_or_default();
            let days = instead::days(schema, text).filter(|days| days.len() > 1);
            let hint = match days {
                Some(days) => Some(format!("each item is one day: {}", days.join(", "))),
                None => instead::word(schema, text).map(|near| format!("did you mean `{near}`?")),
            };
            let message = format!("{field} is {value}; it must be one of {}", words.join(", "));
            self.report_at(Rule::NotAllowed, node.offset(), Some(field), message, hint);
            return None;
        }
        if let (Some(pattern), Some(text)) = (&schema.pattern, node.text())
            && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
        {
            let message =
                format!("{field} is {text:?}, which does not have the form that the field requires");
            self.report_at(
                Rule::NotAllowed,
                node.offset(),
                Some(field),
                message,
                about(Some(schema)),
            );
            return None;
        }
        if let Some(number) = integer(node) {
            let (least, most) = bounds(schema);
            if i128::from(number) < least || i128::from(number) > most {
                let message = format!("{field} is {number}; it must be from {least} to {most}");
                let is_limit = schema.x_kubernetes_int_or_string == Some(true);
                let hint = is_limit.then(|| instead::ANY_LIMIT.to_owned());
                self.report_at(
                    Rule::NotAllowed,
                    node.offset(),
                    Some(field),
                    message,
                    hint.or_else(|| about(Some(schema))),
                );
                return None;
            }
        }
        Some(value)
    }

    pub(super) fn report_placeholder(&mut self, field: &str, node: &Node) {
        let syntax = node.text().and_then(syntax).unwrap_or("which a program replaces");
        self.report_placeholder_at(field, node.offset(), &node.to_json().to_string(), syntax);
    }

    fn report_placeholder_at(&mut self, field: &str, offset: usize, shown: &str, syntax: &str) {
        let message =
            format!("{field} is the placeholder {shown} ({syntax}); refit does not check what it becomes");
        let hint = if shown.contains("${") {
            "validate the result, as in `kustomize build | flux envsubst | refit validate -`"
        } else {
            "validate the file that has the values"
        };
        self.report_at(
            Rule::Placeholder,
            offset,
            Some(field),
            message,
            Some(hint.to_owned()),
        );
    }

    fn report_wrong_type(
        &mut self,
        field: &str,
        wanted: &str,
        node: &Node,
        offset: usize,
        hint: Option<String>,
    ) {
        let found = match &node.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(value) => format!("the bool {value}"),
            Kind::Number(number) => format!("the number {number}"),
            Kind::Text(_) => "text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "an object".to_owned(),
        };
        let field = if field.is_empty() { "the Plan" } else { field };
        let message = format!("{field} must be {wanted}, but is {found}");
        self.report_at(Rule::WrongType, offset, Some(field), message, hint);
    }

    fn type_hint(&self, field: &str, schema: &JSONSchemaProps, wanted: &str, node: &Node) -> Option<String> {
        self.write_instead(field, schema, node).or_else(|| {
            let hint = match Unit::of(field) {
                Unit::Duration => "write a duration such as `30s`, `15m` or `1h30m`",
                Unit::Seconds => "write a number of seconds, such as `900`",
                Unit::Time => "write a time such as `\"22:00\"`",
                Unit::Mode => "write the mode as a number, such as `0400`",
                Unit::None if wanted == "true or false" => "write `true` or `false`",
                Unit::None => return None,
            };
            Some(hint.to_owned())
        })
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
            // Nobody writes a number of nanoseconds on purpose.
            _ => !(is_number && Unit::of(field) == Unit::Duration),
        });
        let value = if fits {
            None
        } else if is_number && Unit::of(field) == Unit::Duration {
            instead::duration(self.written(node))
        } else {
            schema.and_then(|schema| instead(field, schema, node, self.written(node), self.runs(field)))
        };
        match value {
            Some(value) => format!("write `{name}: {value}`"),
            None => format!("did you mean `{name}`?"),
        }
    }

    fn check_bool(&mut self, field: &str, node: &Node) {
        if matches!(node.kind, Kind::Bool(_)) && !is_plain_bool(self.written(node)) {
            let (written, node) = (self.written(node).to_owned(), node.to_json());
            self.report(
                Rule::PlainBool,
                field,
                format!("{field} is `{written}`, which is a bool in YAML 1.1 and text in YAML 1.2"),
                Some(format!("write `{node}`")),
            );
        }
    }
}

fn below(field: &str, name: &str) -> String {
    if field.is_empty() {
        name.to_owned()
    } else {
        format!("{field}.{name}")
    }
}

/// The field of the same object that means what `name` means in other objects of Kubernetes.
fn counterpart(name: &str, schema: &JSONSchemaProps) -> Option<&'static str> {
    let names_a_secret = has(schema, "path") || has(schema, "key");
    let meant = match name {
        "secretName" | "secret" if names_a_secret => "name",
        "mountPath" if has(schema, "path") => "path",
        "mountPath" | "containerPath" | "target" => "destination",
        "hostPath" => "source",
        "activeDeadlineSeconds" => "jobActiveDeadlineSecs",
        _ => return None,
    };
    has(schema, meant).then_some(meant)
}

/// The name of a field of a Plan that means what `name` means in other objects of Kubernetes.
fn elsewhere(name: &str) -> &str {
    match name {
        "env" => "envs",
        "timezone" | "tz" => "timeZone",
        other => other,
    }
}

/// An example of a required field, if nothing beside it says what it is.
fn example(field: &str) -> Option<&'static str> {
    let (parent, last) = field.rsplit_once('.')?;
    let of = no_indices(parent);
    let of = of.rsplit('.').next().unwrap_or_default();
    Some(match (of, last) {
        ("envs", "name") => "HTTP_PROXY",
        ("volumes", "name") => "config",
        ("volumes", "source" | "destination") => "/etc/rancher",
        ("secrets", "path") => "/run/system-upgrade/secrets/my-secret",
        ("secretKeyRef" | "configMapKeyRef", "key") => "token",
        ("matchExpressions", "key") => "node-role.kubernetes.io/worker",
        (_, "name") => "my-secret",
        _ => return None,
    })
}

/// The schema of a field, or of the values of a map; `None` for an unknown field.
fn schema_of<'s>(schema: &'s JSONSchemaProps, name: &str) -> Option<&'s JSONSchemaProps> {
    let property = schema
        .properties
        .as_ref()
        .and_then(|properties| properties.get(name));
    property.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values),
        _ => None,
    })
}

/// The first sentence of the field's description in the CRD.
fn about(schema: Option<&JSONSchemaProps>) -> Option<String> {
    let text = schema?.description.as_deref()?;
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    Some(sentence.trim_end_matches('.').to_owned()).filter(|text| !text.is_empty())
}

/// The number if it is an integer. The API server also accepts an integer written as a fraction, such as `2.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a number without fraction, less than 2^53"
)]
fn integer(node: &Node) -> Option<i64> {
    let Kind::Number(number) = &node.kind else {
        return None;
    };
    number.as_i64().or_else(|| {
        let value = number.as_f64().filter(|_| number.is_f64())?;
        (value.trunc() == value && value.abs() < 9_007_199_254_740_992.0).then_some(value as i64)
    })
}

/// Minimum and maximum.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounds in the definition are whole numbers"
)]
fn bounds(schema: &JSONSchemaProps) -> (i128, i128) {
    let (least, most) = match schema.format.as_deref() {
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    (
        schema.minimum.map_or(least, |bound| bound as i128),
        schema.maximum.map_or(most, |bound| bound as i128),
    )
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
    // `upgrade` before `prepare`, because every Plan has `upgrade`.
    found.sort_by_key(|(depth, path)| (*depth, path.contains(".prepare"), path.clone()));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The path of a field without list indices.
pub(super) fn no_indices(field: &str) -> String {
    let without = |part: &str| part.split('[').next().unwrap_or_default().to_owned();
    field.split('.').map(without).collect::<Vec<_>>().join(".")
}

/// The problem with a path in the annotation `upgrade.cattle.io/digest`, and the intended path if it is clear. A path
/// goes through objects only and is not trimmed (S41).
pub(super) fn digest_problem(path: &str) -> Option<(String, String)> {
    if path.trim() != path {
        return Some((
            "spaces count, and no field begins or ends with one".to_owned(),
            path.trim().to_owned(),
        ));
    }
    let mut schema = &*PLAN;
    let mut way = String::new();
    for part in path.split('.') {
        if schema.type_.as_deref() == Some("array") {
            return Some((
                format!(
                    "{way} is a list, and a path cannot continue into a list; of {way} itself, the first item counts"
                ),
                way,
            ));
        }
        let Some(next) = schema_of(schema, part) else {
            let names = schema.properties.iter().flatten().map(|(name, _)| name.as_str());
            let near = nearest(part, names).map(|near| below(&way, near));
            return Some(("a Plan has no such field".to_owned(), near.unwrap_or_default()));
        };
        way = below(&way, part);
        schema = next;
    }
    None
}
