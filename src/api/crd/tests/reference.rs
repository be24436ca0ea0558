//! Generates `docs/plan.md`: every field of the Plan, from the doc comments of the types.

use std::fmt::Write as _;

use regex::Regex;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use super::super::{OWN_FIELDS, join_lines};
use crate::{PlanSpec, PlanStatus};

const INTRODUCTION: &str = "# The fields of a Plan

In short; `kubectl explain plan.spec.FIELD` says more, and so do the pages that field names link to. A field of spec is text unless its type follows its name; an absent one is none or false unless its text says otherwise. Times are
RFC 3339, durations Go's, such as `1h30m`, time zones IANA's, such as `Europe/Berlin` (`Local`: the controller's; by default UTC). Shares such as `10%` are of the selected nodes, rounded
down, at least 1. Secrets are in the Plan's namespace. *refit*: not in system-upgrade-controller's CRD, which drops such fields. Types of Kubernetes' own are in
[its reference](https://kubernetes.io/docs/reference/kubernetes-api/). Generated from the comments in `src/api` by `just generate`.
";

/// Pages and sections that say more about a field.
const PAGES: [(&str, &str); 35] = [
    ("spec.after", "rollouts.md#once-for-each-roll-out"),
    ("spec.apiAccess", "security.md#privileges"),
    ("spec.before", "rollouts.md#once-for-each-roll-out"),
    ("spec.blackouts", "rollouts.md#windows-and-blackouts"),
    ("spec.channel", "channels.md"),
    ("spec.channelCASecretRef", "channels.md#certificate-authorities"),
    ("spec.channelSecretRef", "channels.md#credentials"),
    ("spec.checks", "rollouts.md#checks"),
    (
        "spec.controlPlaneQuorum",
        "rollouts.md#the-control-plane-keeps-its-majority",
    ),
    ("spec.dependsOn", "rollouts.md#one-plan-after-another"),
    ("spec.drain", "drain.md"),
    ("spec.failure", "rollouts.md#failures"),
    ("spec.failure.policy", "rollouts.md#failures"),
    ("spec.installs", "versions.md#what-nodes-say"),
    (
        "spec.maxUnavailable",
        "operations.md#how-many-nodes-may-be-unavailable",
    ),
    ("spec.nodeInfo", "rollouts.md#nodes-that-need-nothing"),
    ("spec.onDrift", "versions.md#what-nodes-say"),
    ("spec.order", "rollouts.md#order"),
    ("spec.pauseRemediation", "rollouts.md#remediation-operators"),
    (
        "spec.preflight",
        "rollouts.md#checks-of-a-node-before-the-upgrade",
    ),
    ("spec.reboot", "reboot.md"),
    ("spec.repeat", "rollouts.md#repetitions"),
    ("spec.settle", "reboot.md#when-a-node-is-well"),
    ("spec.skipWhen", "rollouts.md#nodes-that-need-nothing"),
    ("spec.taintNewNodes", "rollouts.md#no-pods-before-the-plan"),
    ("spec.trigger", "reboot-requests.md"),
    ("spec.verify", "rollouts.md#checks-of-a-node-after-the-upgrade"),
    ("spec.versionPolicy", "versions.md#guards"),
    ("spec.waves", "rollouts.md#waves"),
    ("spec.windows", "rollouts.md#windows-and-blackouts"),
    ("spec.drain.afterTimeout", "drain.md#order-and-timeout"),
    ("spec.drain.blockedBy", "drain.md#pods-that-delay-a-node"),
    ("spec.drain.checkFirst", "drain.md#before-the-cordon"),
    ("spec.drain.order", "drain.md#order-and-timeout"),
    ("spec.drain.waitFor", "drain.md#pods-that-end-by-themselves"),
];

/// A type of the Plan, and its users: `prepare` and `upgrade` share one.
struct Section {
    type_: String,
    paths: Vec<String>,
}

/// The types of a part of the Plan, in the order of their first use.
struct Reference {
    root: Value,
    sections: Vec<Section>,
}

impl Reference {
    fn of<T: JsonSchema>(part: &str) -> Self {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        let mut reference = Self {
            root: schema.to_value(),
            sections: Vec::new(),
        };
        reference.visit("", part);
        reference
    }

    /// The schema of a type by name; the part itself has no name.
    fn schema(&self, type_: &str) -> &Value {
        if type_.is_empty() {
            &self.root
        } else {
            &self.root["$defs"][type_]
        }
    }

    fn visit(&mut self, type_: &str, path: &str) {
        match self.sections.iter_mut().find(|section| section.type_ == type_) {
            Some(section) => section.paths.push(path.to_owned()),
            None => self.sections.push(Section {
                type_: type_.to_owned(),
                paths: vec![path.to_owned()],
            }),
        }
        let fields = self.schema(type_)["properties"].as_object().cloned();
        for (name, schema) in fields.into_iter().flatten() {
            let (schema, list) = match schema["items"].as_object() {
                Some(_) => (schema["items"].clone(), "[]"),
                None => (schema, ""),
            };
            if let Some(type_) = self.own_type(&schema) {
                self.visit(&type_, &format!("{path}.{name}{list}"));
            }
        }
    }

    /// The name of refit's own type that a schema refers to, if it has fields.
    fn own_type(&self, schema: &Value) -> Option<String> {
        let name = reference(schema)?;
        self.schema(&name)["properties"]
            .is_object()
            .then_some(name)
            .filter(|name| !name.contains('.'))
    }

    /// The type of a field in words.
    fn type_of(&self, schema: &Value) -> String {
        if let Some(type_) = self.own_type(schema) {
            let section = self.sections.iter().find(|section| section.type_ == type_);
            return format!("[object](#{})", slug(&heading(section.unwrap())));
        }
        if let Some(name) = reference(schema) {
            return match name.rsplit_once('.') {
                Some((_, name)) => format!("`{name}`"),
                None => self.type_of(self.schema(&name)),
            };
        }
        let words = schema["enum"].as_array().into_iter().flatten();
        let words: Vec<_> = words
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect();
        if (1..6).contains(&words.len()) {
            return words.join(", ");
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return "integer or string".to_owned();
        }
        let or_null = schema["type"].as_array().and_then(|either| either.first());
        match or_null.unwrap_or(&schema["type"]).as_str() {
            Some("array") => match self.type_of(&schema["items"]) {
                type_ if type_ == "text" => "list".to_owned(),
                type_ if type_.starts_with("[object]") => type_.replacen("[object]", "[list]", 1),
                type_ => format!("list of {type_}"),
            },
            Some("object") if schema["additionalProperties"].is_object() => "map".to_owned(),
            Some("string") => "text".to_owned(),
            Some(type_) => type_.to_owned(),
            None => panic!("{schema}"),
        }
    }

    /// All types of a part. The field of a type says what it is, and its section what else there is to say.
    fn write(&self, out: &mut String) {
        for section in &self.sections {
            let _ = writeln!(out, "\n## {}\n", heading(section));
            if let Some((_, more)) = text(self.schema(&section.type_)).split_once(". ") {
                let _ = writeln!(out, "{more}\n");
            }
            self.list(section, out, |field| self.type_of(field), |_| String::new());
        }
    }

    /// The first section that has these fields, too, if there are several.
    fn shared(&self, section: &Section) -> Option<(&Section, Vec<&String>)> {
        let fields = self.schema(&section.type_)["properties"].as_object()?;
        let earlier = self
            .sections
            .iter()
            .take_while(|other| other.type_ != section.type_);
        let shared = earlier.map(|other| {
            let others = &self.schema(&other.type_)["properties"];
            let names = fields.iter().filter(|(name, field)| others[*name] == **field);
            (other, names.map(|(name, _)| name).collect::<Vec<_>>())
        });
        let mut shared = shared.filter(|(_, names)| names.len() > 2);
        shared.next()
    }

    /// The fields of a part, with those of its types by name only.
    fn write_in_short(&self, out: &mut String) {
        let section = &self.sections[0];
        let _ = writeln!(
            out,
            "\n## {}\n\n`kubectl explain plan.{0} --recursive` describes the fields in parentheses.\n",
            heading(section)
        );
        self.list(section, out, |_| "text".to_owned(), |field| self.names(field));
    }

    fn list(
        &self,
        section: &Section,
        out: &mut String,
        type_of: impl Fn(&Value) -> String,
        more: impl Fn(&Value) -> String,
    ) {
        let shared = self.shared(section);
        if let Some((other, names)) = &shared {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let other = heading(other);
            let _ = writeln!(out, "- {}: as in [{other}](#{})", names.join(", "), slug(&other));
        }
        let is_shared = |name| shared.as_ref().is_some_and(|(_, names)| names.contains(&name));
        let fields = self.schema(&section.type_)["properties"].as_object().unwrap();
        for (name, field) in fields.iter().filter(|(name, _)| !is_shared(*name)) {
            let is_own = OWN_FIELDS.contains(&[section.paths[0].as_str(), name]);
            let own = if is_own { " *refit*" } else { "" };
            let (mut type_, mut text) = (type_of(field), text(field));
            if let Some(rest) = without_duration(&text).filter(|_| type_ == "text") {
                (type_, text) = ("duration".to_owned(), rest);
            }
            let is_said = match type_.as_str() {
                "text" => true,
                "boolean" => text.starts_with("If true"),
                words => words.starts_with('`') && words.split(", ").all(|word| text.contains(word)),
            };
            let type_ = if is_said {
                String::new()
            } else {
                format!(", {type_}")
            };
            let path = format!("{}.{name}", section.paths[0]);
            let name = match PAGES.iter().find(|(of, _)| *of == path) {
                Some((_, page)) => format!("[`{name}`]({page})"),
                None => format!("`{name}`"),
            };
            let _ = writeln!(out, "- {name}{own}{type_}: {text}{}", more(field));
        }
    }

    /// The names of the fields of refit's own type, in parentheses.
    fn names(&self, field: &Value) -> String {
        let item = if field["items"].is_object() {
            &field["items"]
        } else {
            field
        };
        let Some(type_) = self.own_type(item) else {
            return String::new();
        };
        let fields = self.schema(&type_)["properties"].as_object().unwrap();
        let names: Vec<_> = fields
            .iter()
            .map(|(name, field)| format!("`{name}`{}", self.names(field)))
            .collect();
        format!(" ({})", names.join(", "))
    }
}

fn heading(section: &Section) -> String {
    section.paths.join(", ")
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ');
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn reference(schema: &Value) -> Option<String> {
    let or_null = schema["anyOf"].as_array().and_then(|either| either.first());
    let path = or_null.unwrap_or(schema)["$ref"].as_str()?;
    path.strip_prefix("#/$defs/").map(str::to_owned)
}

/// The first paragraph of a description, without what the introduction says of all fields.
fn text(schema: &Value) -> String {
    let text = join_lines(schema["description"].as_str().unwrap_or_default());
    let first = text.split("\n\n").next().unwrap_or_default();
    let mut first = first.replace('\n', " ");
    for said in [
        " (RFC 3339)",
        " Defaults to none.",
        " Defaults to false.",
        ", in the Plan's namespace",
        " (rounded down, at least 1)",
        ", or `Local` for that of the controller. Defaults to UTC",
        ", such as `Europe/Berlin`",
        " such as `Europe/Berlin`",
    ] {
        first = first.replace(said, "");
    }
    first
}

/// The text of a duration without its type.
fn without_duration(text: &str) -> Option<String> {
    let said = Regex::new(r", (?:as )?a Go duration(?: such as `[^`]*`)?").unwrap();
    said.is_match(text)
        .then(|| said.replace(text, "").replace(" of at ", ", at "))
}

pub(super) fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    Reference::of::<PlanSpec>("spec").write(&mut out);
    Reference::of::<PlanStatus>("status").write_in_short(&mut out);
    out
}
