//! What the API server does with an object: types, required fields, bounds and unknown fields. The messages are refit's own,
//! because they also suggest what to write.

mod tree;
mod unknown;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::path::below;
use super::subject::Subject;
use super::value::{Unit, meant, yaml_text};
use crate::gitops::placeholder::{in_comment, is_placeholder, is_whole_placeholder, syntax};
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Kind, Node, Step};
use refit_api::schema::{Path, Problem, Visitor, about, property, walk};
use refit_base::nearest::nearest;
use tree::{make_whole, remove};

/// What to say of a limit of nodes whose meaning is unclear.
pub(super) const ANY_LIMIT: &str = "write a number from 1 on, or a share such as `25%`";

/// A word as short as this is near to several others, such as the days of the week.
const SHORT: usize = 4;

impl Subject<'_> {
    /// The object as JSON, without the refused fields, which are reported.
    pub(super) fn read_by_schema(&mut self, schema: &'static JSONSchemaProps) -> Value {
        let node = self.object.node;
        let mut reader = Reader {
            subject: self,
            refused: Vec::new(),
        };
        walk(schema, node, &Path::Root, &mut reader);
        let refused = reader.refused;
        let mut read = node.to_json();
        make_whole(&mut read);
        // From the last one on, so that the items of a list keep their indices.
        for (way, is_text) in refused.iter().rev() {
            remove(&mut read, way, *is_text);
        }
        read
    }

    pub(super) fn report_placeholder(&mut self, field: &str, node: &Node) {
        let syntax = node.text().and_then(syntax).unwrap_or("which a program replaces");
        self.report_placeholder_at(field, node.offset(), &node.to_json().to_string(), syntax);
    }

    pub(super) fn report_placeholder_text(&mut self, field: &str, text: &str) {
        let syntax = syntax(text).unwrap_or("which a program replaces");
        let offset = self.offset(field);
        self.report_placeholder_at(field, offset, &Value::from(text).to_string(), syntax);
    }

    pub(super) fn report_placeholder_at(&mut self, field: &str, offset: usize, shown: &str, syntax: &str) {
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

    /// Reports the metadata that SOPS adds to the file, and removes when it decrypts the file.
    fn report_sops(&mut self, offset: usize) {
        let message = "sops is the metadata of SOPS; refit does not check encrypted values".to_owned();
        let hint =
            "validate the decrypted file, as in `sops decrypt plan.yaml | refit validate -`".to_owned();
        self.report_at(Rule::Placeholder, offset, Some("sops"), message, Some(hint));
    }

    fn report_null(&mut self, field: &str, node: &Node, offset: usize) {
        // Not reported: the result is the same without these fields.
        if field == "status" || field == "metadata.creationTimestamp" {
            return;
        }
        let maps = [
            ".matchLabels.",
            ".labels.",
            ".annotations.",
            ".postCompleteLabels.",
        ];
        // This is the one field whose mere presence has an effect.
        let hint = if maps.iter().any(|map| field.contains(map)) {
            // Without its label, a selector may select every node.
            "write `\"\"` for the empty value, or remove it"
        } else if field == "spec.drain" {
            "write `{}` to drain with the defaults, or remove it"
        } else {
            "remove it, or give it a value"
        };
        let is_empty = self.written(node).is_empty();
        let written = if is_empty { "empty" } else { "null" };
        let message = format!("{field} is {written}, which is the same as leaving it out");
        self.report_at(
            Rule::NullField,
            offset,
            Some(field),
            message,
            Some(hint.to_owned()),
        );
    }

    fn report_missing(&mut self, path: &Path<'_>, schema: &JSONSchemaProps, name: &str, object: &Node) {
        let entry = object.object().and_then(|object| object.entry(name));
        if entry.is_some_and(|entry| self.is_given(entry)) {
            return; // a comment has a tool set it
        }
        let field = below(&path.to_string(), name);
        let hint = if field == "spec.upgrade" && self.object.is_part_of_plan() {
            let first = "if this is a patch of Kustomize, validate what `kustomize build` prints";
            Some(format!(
                "{first}; otherwise the Plan needs {field} and spec.nodeSelector"
            ))
        } else if name == "operator" {
            Some("the operators are In, NotIn, Exists and DoesNotExist".to_owned())
        } else {
            property(schema, name).and_then(about)
        };
        let offset = entry.map_or_else(|| self.offset_at(&steps(path)), |entry| entry.key.span.start);
        let message = format!("{field} is missing");
        self.report_at(Rule::MissingField, offset, Some(&field), message, hint);
    }

    fn report_wrong_type(&mut self, path: &Path<'_>, schema: &JSONSchemaProps, node: &Node) {
        let found = match &node.kind {
            Kind::Null => "nothing".to_owned(),
            Kind::Bool(value) => format!("the bool {value}"),
            // As written, so that the author finds 1.30, which is 1.3 as a number.
            Kind::Number(number) => match self.written(node) {
                "" => format!("the number {number}"),
                written => format!("the number {written}"),
            },
            Kind::Text(_) => "text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "an object".to_owned(),
        };
        let field = path.to_string();
        let is_template = node.text().is_some_and(is_placeholder);
        let value = meant(&field, schema, node, self.written(node)).filter(|_| !is_template);
        let example = match field.rsplit('.').next() {
            Some("command" | "args") if node.text().is_some() => {
                Some("make it a list with one item per argument; a script also needs a shell as its command")
            }
            Some("concurrency") if node.text().is_some() => Some("a share belongs in spec.maxConcurrent"),
            _ => Unit::of(&field).example(),
        };
        let hint = match (value, example) {
            (Some(value), _) => Some(format!("write `{value}`")),
            (None, Some(example)) => Some(example.to_owned()),
            (None, None) => about(schema),
        };
        let name = if field.is_empty() { "the Plan" } else { &field };
        let message = format!("{name} must be {}, but is {found}", wanted(schema));
        let offset = self.offset_at(&steps(path));
        self.report_at(Rule::WrongType, offset, Some(&field), message, hint);
    }
}

/// What a field takes, in words.
fn wanted(schema: &JSONSchemaProps) -> &'static str {
    match schema.type_.as_deref() {
        Some("object") => "an object",
        Some("array") => "a list",
        Some("string") => "text",
        Some("boolean") => "true or false",
        Some("integer") => "a whole number",
        Some(_) => "a number",
        None => "a number or text",
    }
}

/// Reports the problems of an object, and notes the ways to what the API server refuses or drops.
struct Reader<'r, 'a> {
    subject: &'r mut Subject<'a>,
    /// With each, whether it is text.
    refused: Vec<(Vec<Step>, bool)>,
}

impl<'a> Visitor<'static, &'a Node> for Reader<'_, 'a> {
    fn enters(&mut self, path: &Path<'_>, schema: &'static JSONSchemaProps, node: &'a Node) -> bool {
        let is_text = schema.type_.as_deref() == Some("string");
        let is_word = |text: &str| !text.trim().contains(char::is_whitespace);
        let is_of_scalar = !matches!(schema.type_.as_deref(), Some("object" | "array"));
        let is_replaced = !is_text
            && node.text().is_some_and(|text| {
                is_whole_placeholder(text) || is_of_scalar && is_placeholder(text) && is_word(text)
            });
        if is_replaced && schema.x_kubernetes_preserve_unknown_fields != Some(true) {
            self.subject.report_placeholder(&path.to_string(), node);
        } else if let (true, Path::Field(of, name)) = (node.is_null(), path) {
            let subject = &mut *self.subject;
            let object = subject.object.node.at(&steps(of)).and_then(Node::object);
            let Some(entry) = object.and_then(|object| object.entry(name)) else {
                return true;
            };
            let (field, at) = (path.to_string(), entry.key.span.start);
            match in_comment(subject.source, entry) {
                Some((comment, syntax)) => subject.report_placeholder_at(&field, at, &comment, syntax),
                // The API server drops nulls before it validates.
                None => subject.report_null(&field, node, at),
            }
        } else {
            return true;
        }
        self.refused.push((steps(path), is_text));
        false
    }

    fn found(
        &mut self,
        path: &Path<'_>,
        schema: &'static JSONSchemaProps,
        node: &'a Node,
        problem: Problem<'_>,
    ) {
        let subject = &mut *self.subject;
        let (field, shown) = (path.to_string(), node.to_json());
        let (message, hint) = match problem {
            Problem::NoAlternative => return,
            Problem::Missing(name) => return subject.report_missing(path, schema, name, node),
            Problem::Unknown(name) => {
                let entry = node.object().and_then(|object| object.entry(name));
                let Some(entry) = entry else { return };
                if field.is_empty() && name == "sops" && entry.value.get("mac").is_some() {
                    subject.report_sops(entry.key.span.start);
                } else {
                    subject.report_unknown(&field, schema, node, entry);
                }
                return self.refused.push((steps(&Path::Field(path, name)), false));
            }
            // Of empty windows the controller says more.
            Problem::TooFew(_) if field == "spec.windows" => return,
            Problem::TooFew(least) => {
                let items = node.items().len();
                let message = format!("{field} has {items} items; it needs at least {least}");
                (message, about(schema))
            }
            Problem::TooMany(most) => {
                let items = node.items().len();
                (
                    format!("{field} has {items} items; it may have at most {most}"),
                    None,
                )
            }
            Problem::Type(_) => {
                subject.report_wrong_type(path, schema, node);
                return self
                    .refused
                    .push((steps(path), schema.type_.as_deref() == Some("string")));
            }
            Problem::NotIn(allowed) => {
                let words: Vec<_> = allowed.iter().filter_map(|one| one.0.as_str()).collect();
                let text = node.text().unwrap_or_default();
                let near = nearest(text, words.iter().copied())
                    .filter(|near| text.len() > SHORT || near.eq_ignore_ascii_case(text));
                let message = format!("{field} is {shown}; it must be one of {}", words.join(", "));
                (
                    message,
                    near.map(|near| format!("did you mean `{}`?", yaml_text(near))),
                )
            }
            Problem::Outside(least, most) => {
                let is_limit = schema.x_kubernetes_int_or_string == Some(true);
                let hint = is_limit.then(|| ANY_LIMIT.to_owned()).or_else(|| about(schema));
                (
                    format!("{field} is {shown}; it must be from {least} to {most}"),
                    hint,
                )
            }
            Problem::Pattern(_) => {
                let message =
                    format!("{field} is {shown}, which does not have the form that the field requires");
                (message, about(schema))
            }
            Problem::TooLong(most) => {
                let message = format!("{field} has more than {most} characters");
                (message, None)
            }
        };
        let offset = subject.offset_at(&steps(path));
        subject.report_at(Rule::NotAllowed, offset, Some(&field), message, hint);
        // What is too long or too short can be read.
        if matches!(node.kind, Kind::Text(_) | Kind::Number(_)) {
            let is_text = schema.type_.as_deref() == Some("string");
            self.refused.push((steps(path), is_text));
        }
    }
}

fn steps(path: &Path<'_>) -> Vec<Step> {
    let steps = path.steps().into_iter();
    let step = |step| match step {
        refit_api::schema::Step::Field(name) => Step::Key(name),
        refit_api::schema::Step::Item(at) => Step::Index(at),
    };
    steps.map(step).collect()
}
