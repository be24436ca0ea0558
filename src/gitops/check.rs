//! `refit validate`: everything that the API server and the controller would refuse, and what is suspicious.
//!
//! observe the documents → the schema → the names → what the controller says → what looks wrong. Each stage reads what
//! the one before could make of the Plan: a field of the wrong type is told once, and then left out.

mod controller;
mod images;
mod jobs;
mod metadata;
mod nearest;
mod schema;
mod selector;
mod suspicious;
mod window;

use std::collections::BTreeMap;

use serde_json::Value;

pub(in crate::gitops) use images::Reference;
pub use nearest::nearest;

use super::objects::{Object, objects};
use super::yaml::{Kind, Node, Step};
use super::{Finding, Levels, Rule, Source};
use crate::api::Plan;
use crate::api::names::GROUP;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the rules weigh.
    pub levels: Levels,
    /// The namespace in which the controller carries out Plans, where it is known.
    pub namespace: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of files and lines.
    pub findings: Vec<Finding>,
    /// How many Plans were looked at.
    pub plans: usize,
    /// The channels of Plans that follow one, to be asked by whoever may.
    pub channels: Vec<Channel>,
}

/// A channel that a Plan follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its URL.
    pub url: String,
    /// It is asked with a secret, which is on the cluster only.
    pub with_secret: bool,
    /// A finding that says that it cannot be reached, but for why; nothing when nobody wants to know.
    finding: Option<Finding>,
}

impl Channel {
    /// What is found when the channel gives no version, and why.
    pub fn unreachable(&self, why: &str) -> Option<Finding> {
        let mut finding = self.finding.clone()?;
        finding.message = format!("spec.channel gives no version: {why}");
        Some(finding)
    }
}

/// Looks at all Plans in the files.
pub fn check(sources: &[Source], options: &Options) -> Report {
    let mut report = Report::default();
    let mut names: BTreeMap<(String, String), String> = BTreeMap::new();
    for source in sources {
        let mut found = Vec::new();
        unreadable(source, options, &mut found);
        for object in objects(&source.stream.documents) {
            let mut subject = Subject::new(source, &object, &options.levels);
            if object.is_plan() {
                report.plans += 1;
                subject.plan(options);
                subject.known(&mut names);
                report.channels.extend(subject.channel());
            } else {
                subject.nearly_a_plan();
            }
            found.append(&mut subject.found);
        }
        found.sort_by_key(|found| (found.place, found.rule));
        // A Plan in an anchor is there once, however many aliases lead to it.
        found.dedup_by(|a, b| {
            (a.place, a.rule, &a.field, &a.message) == (b.place, b.rule, &b.field, &b.message)
        });
        report.findings.append(&mut found);
    }
    report
}

fn unreadable(source: &Source, options: &Options, found: &mut Vec<Finding>) {
    let Some(severity) = options.levels.of(Rule::YamlSyntax) else {
        return;
    };
    for error in &source.stream.errors {
        let line = source.text.get(source.line_of(error.offset)).unwrap_or_default();
        let is_template = source.text.contains("{{") && source.text.contains("}}");
        let hint = if is_template {
            Some("this looks like a template: render it first, as in `helm template … | refit validate -`")
        } else if line.contains('\t') {
            Some("there is a tab in the line; YAML is indented by blanks")
        } else {
            None
        };
        found.push(Finding {
            file: source.name.clone(),
            place: source.place(error.offset),
            rule: Rule::YamlSyntax,
            severity,
            plan: None,
            field: None,
            message: format!("this is not YAML: {}", error.message),
            hint: hint.map(str::to_owned),
        });
    }
}

/// An object that is looked at, and what is found in it.
struct Subject<'a> {
    source: &'a Source,
    object: &'a Object<'a>,
    levels: &'a Levels,
    found: Vec<Finding>,
}

impl<'a> Subject<'a> {
    fn new(source: &'a Source, object: &'a Object<'a>, levels: &'a Levels) -> Self {
        Self {
            source,
            object,
            levels,
            found: Vec::new(),
        }
    }

    fn plan(&mut self, options: &Options) {
        // What is repeated
        self.repeated();
        // What the API server takes, and what it makes of it
        let read = self.read_by_schema();
        // Names and labels
        self.check_metadata(options.namespace.as_deref());
        // The Plan, without what was refused
        let plan: Plan = match serde_json::from_value(read) {
            Ok(plan) => plan,
            Err(error) => {
                self.tell(
                    Rule::WrongType,
                    "spec",
                    format!("the Plan cannot be read: {error}"),
                    None,
                );
                return;
            }
        };
        // What the controller says of it
        self.check_as_controller(&plan);
        // What the API server says of its Jobs
        self.check_jobs(&plan);
        self.check_images(&plan.spec);
        // What is hardly meant
        self.check_selector(&plan);
        self.check_window(&plan.spec);
        self.check_suspicious(&plan);
    }

    fn repeated(&mut self) {
        let repeated: Vec<_> = self
            .object
            .node
            .repeated()
            .iter()
            .map(|key| (key.span.start, key.name.clone()))
            .collect();
        for (offset, name) in repeated {
            self.tell_at(
                Rule::DuplicateKey,
                offset,
                None,
                format!("the key {name:?} is there for the second time"),
                Some("keep one of the two".to_owned()),
            );
        }
    }

    /// Whether a Plan of this name has been seen, in this file or another.
    fn known(&mut self, names: &mut BTreeMap<(String, String), String>) {
        let Some(name) = self.object.metadata("name") else {
            return;
        };
        let namespace = self.object.metadata("namespace").unwrap_or_default();
        let key = (namespace.to_owned(), name.to_owned());
        let place = self.source.place(self.offset("metadata.name"));
        let here = format!("{}:{}", self.source.name, place.line);
        if let Some(first) = names.get(&key) {
            let message = format!("Plan {:?} is already in {first}", self.object.title());
            let hint = "the one that is applied last wins; give one of them another name".to_owned();
            self.tell(Rule::DuplicatePlan, "metadata.name", message, Some(hint));
        } else {
            names.insert(key, here);
        }
    }

    /// The channel, where the Plan follows one.
    fn channel(&self) -> Option<Channel> {
        let text = |field: &str| {
            self.node(field)
                .and_then(Node::text)
                .filter(|text| !text.is_empty())
        };
        let url = text("spec.channel").filter(|url| !is_placeholder(url))?;
        if text("spec.version").is_some() {
            return None;
        }
        let hint = "without a version no node is started, and the next ones wait until the channel answers";
        Some(Channel {
            url: url.to_owned(),
            with_secret: self.has("spec.channelSecretRef") || self.has("spec.channelCASecretRef"),
            finding: self.finding(
                Rule::ChannelUnreachable,
                self.offset("spec.channel"),
                Some("spec.channel"),
                String::new(),
                Some(hint.to_owned()),
            ),
        })
    }

    /// An object that somebody must have meant to be a Plan.
    fn nearly_a_plan(&mut self) {
        let (version, kind) = (self.object.api_version.clone(), self.object.kind.clone());
        let wanted = format!("{GROUP}/{}", crate::api::crd::VERSION);
        let group = version.split('/').next().unwrap_or_default().to_owned();
        let has_spec = |field: &str| self.node("spec").is_some_and(|spec| spec.get(field).is_some());
        let looks_like_one = has_spec("upgrade") && (has_spec("nodeSelector") || has_spec("concurrency"));
        if group == GROUP && kind != "Plan" {
            let message = format!("kind is {kind:?}: {GROUP} has no other kind than Plan");
            self.tell(
                Rule::NotAPlan,
                "kind",
                message,
                Some("write `kind: Plan`".to_owned()),
            );
        } else if kind == "Plan"
            && version != wanted
            && (looks_like_one || group == GROUP || is_near(&group, GROUP))
        {
            let message = format!("apiVersion is {version:?}: a Plan's is {wanted:?}");
            let hint = format!("write `apiVersion: {wanted}`");
            self.tell(Rule::NotAPlan, "apiVersion", message, Some(hint));
        } else if looks_like_one && (kind.is_empty() || version.is_empty()) {
            let hint = format!("write `apiVersion: {wanted}` and `kind: Plan`");
            let message = "this looks like a Plan, and does not say so".to_owned();
            self.tell(Rule::NotAPlan, "spec", message, Some(hint));
        }
    }

    /// A finding about a field, at its value, or where the value should be.
    fn tell(&mut self, rule: Rule, field: &str, message: String, hint: Option<String>) {
        let offset = self.offset(field);
        self.tell_at(rule, offset, Some(field), message, hint);
    }

    fn tell_at(
        &mut self,
        rule: Rule,
        offset: usize,
        field: Option<&str>,
        message: String,
        hint: Option<String>,
    ) {
        self.found
            .extend(self.finding(rule, offset, field, message, hint));
    }

    fn finding(
        &self,
        rule: Rule,
        offset: usize,
        field: Option<&str>,
        message: String,
        hint: Option<String>,
    ) -> Option<Finding> {
        Some(Finding {
            file: self.source.name.clone(),
            place: self.source.place(offset),
            rule,
            severity: self.levels.of(rule)?,
            plan: Some(self.object.title()),
            field: field.map(str::to_owned),
            message,
            hint,
        })
    }

    /// The value of a field, such as `spec.secrets[0].path`.
    fn node(&self, field: &str) -> Option<&'a Node> {
        self.object.node.at(&steps(field))
    }

    /// The field is there, and not null.
    fn has(&self, field: &str) -> bool {
        self.node(field).is_some_and(|node| !node.is_null())
    }

    /// Where a field is: a scalar where it stands; a list, an object or nothing at its key; what is not there where the
    /// last that is there begins.
    fn offset(&self, field: &str) -> usize {
        let mut node = self.object.node;
        let mut offset = node.offset();
        for step in steps(field) {
            let next = match &step {
                Step::Key(key) => node.object().and_then(|object| object.entry(key)).map(|entry| {
                    let is_scalar = !matches!(entry.value.kind, Kind::Null | Kind::List(_) | Kind::Map(_));
                    let at = if is_scalar {
                        entry.value.offset()
                    } else {
                        entry.key.span.start
                    };
                    (at, &entry.value)
                }),
                Step::Index(index) => node.items().get(*index).map(|item| (item.offset(), item)),
            };
            let Some((at, value)) = next else { break };
            (offset, node) = (at, value);
        }
        offset
    }

    /// What stands in the text for a scalar.
    fn written(&self, node: &Node) -> &'a str {
        self.source.text.get(node.span.clone()).unwrap_or_default()
    }
}

/// The steps to a field. Keys with dots cannot be said so; nothing that is looked up has any.
fn steps(field: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in field.split('.') {
        let mut pieces = part.split('[');
        steps.extend(pieces.next().filter(|key| !key.is_empty()).map(Step::from));
        let index = |piece: &str| piece.strip_suffix(']').and_then(|index| index.parse().ok());
        steps.extend(pieces.filter_map(index).map(Step::Index));
    }
    steps
}

/// The text has a part that somebody else fills in, as Flux does with `${VERSION}`.
pub(crate) fn is_placeholder(text: &str) -> bool {
    text.split("${").skip(1).any(|rest| rest.contains('}'))
}

fn is_near(text: &str, wanted: &str) -> bool {
    strsim::osa_distance(text, wanted) <= 3
}

/// What holds a field in the JSON of a Plan, and the last step to it.
fn holder<'j>(plan: &'j mut Value, field: &str) -> Option<(&'j mut Value, Step)> {
    let mut steps = steps(field);
    let last = steps.pop()?;
    let parent = steps.iter().try_fold(plan, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    });
    Some((parent?, last))
}

/// Takes a field out of the JSON of a Plan, if it is there.
fn remove(plan: &mut Value, field: &str) -> bool {
    match holder(plan, field) {
        Some((Value::Object(fields), Step::Key(key))) => fields.remove(&key).is_some(),
        Some((Value::Array(items), Step::Index(index))) if index < items.len() => {
            items.remove(index);
            true
        }
        _ => false,
    }
}

/// Puts another text in place of an item of a list, if it is there.
fn replace(plan: &mut Value, field: &str, text: &str) -> bool {
    match holder(plan, field) {
        Some((Value::Array(items), Step::Index(index))) if index < items.len() => {
            items[index] = text.into();
            true
        }
        _ => false,
    }
}

/// A Plan as the API server would store it, and what it and the controller would refuse about it.
pub fn read_plan(source: &Source, object: &Object<'_>) -> (Plan, Vec<Finding>) {
    let levels = Levels::default();
    let mut subject = Subject::new(source, object, &levels);
    subject.repeated();
    let read = subject.read_by_schema();
    subject.check_metadata(None);
    let plan: Plan = match serde_json::from_value(read) {
        Ok(plan) => plan,
        Err(error) => {
            subject.tell(
                Rule::WrongType,
                "spec",
                format!("the Plan cannot be read: {error}"),
                None,
            );
            Plan::default()
        }
    };
    subject.check_as_controller(&plan);
    let mut found = subject.found;
    found.retain(|found| found.severity == super::Severity::Error);
    found.sort_by_key(|found| (found.place, found.rule));
    (plan, found)
}
