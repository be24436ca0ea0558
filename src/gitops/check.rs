//! `refit validate`: everything that the API server and the controller would refuse, and what is suspicious.
//!
//! Documents → schema → names → the controller's validation → suspicious values. Each stage reads what the stage before
//! it could read of the Plan: a field of the wrong type is reported once, and then removed.

mod control_plane;
mod controller;
mod images;
mod instead;
mod jobs;
mod metadata;
mod prepare;
mod schema;
mod selector;
mod suspicious;
mod versions;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(in crate::gitops) use images::Reference;
use prepare::Known;
use versions::Running;

use super::objects::{Object, objects};
use super::placeholder::{in_comment, is_placeholder};
use super::yaml::{self, Entry, Key, Kind, Node, Step, Style};
use super::{Finding, Levels, Rule, Source};
use crate::api::Plan;
use crate::api::names::GROUP;
use crate::nearest::nearest;
use crate::version::{Version, distribution_of};

/// What to check.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Severity of each rule.
    pub levels: Levels,
    /// The namespace whose Plans the controller runs, if known.
    pub namespace: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order of files and lines.
    pub findings: Vec<Finding>,
    /// Number of Plans that were checked.
    pub plans: usize,
    /// The channels of the Plans, for a caller that may query them.
    pub channels: Vec<Channel>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    pub url: String,
    /// The request needs a Secret, which exists only on the cluster.
    pub with_secret: bool,
    /// The distribution that the Plan's image installs.
    program: Option<&'static str>,
    /// The finding for an unreachable channel, without the cause. `None` if its rule is switched off.
    finding: Option<Finding>,
}

impl Channel {
    /// Why the Plan never takes this version.
    pub fn refusal(&self, version: &str) -> Option<String> {
        let program = self.program?;
        let version = version.parse::<Version>().ok()?;
        let builder = version.builder()?;
        (builder != program).then(|| {
            format!(
                "{} is a version of {builder}, and the image installs {program}",
                version.text()
            )
        })
    }

    /// The finding for a channel that gives no version.
    pub fn unreachable(&self, why: &str) -> Option<Finding> {
        let mut finding = self.finding.clone()?;
        finding.message = format!("spec.channel gives no version: {why}");
        Some(finding)
    }
}

/// Checks all Plans in the files.
pub fn check(sources: &[Source], options: &Options) -> Report {
    let mut report = Report::default();
    let mut names: BTreeMap<(String, String), String> = BTreeMap::new();
    let all: Vec<Vec<Object<'_>>> = sources
        .iter()
        .map(|source| objects(&source.stream.documents))
        .collect();
    let nodes: Vec<_> = all.iter().flatten().filter_map(Running::read).collect();
    let mut found_in: Vec<Vec<Finding>> = Vec::new();
    let mut plans = Vec::new();
    for (index, (source, objects)) in sources.iter().zip(&all).enumerate() {
        let mut found = Vec::new();
        check_readable(source, options, &mut found);
        for object in objects {
            let mut subject = Subject::new(source, object, &options.levels);
            if object.is_plan() {
                report.plans += 1;
                if let Some(plan) = subject.plan(options, &nodes) {
                    plans.push((index, object, Known::new(&plan)));
                }
                subject.check_unique(&mut names);
                report.channels.extend(subject.channel());
            } else {
                subject.check_nearly_a_plan();
            }
            found.extend(subject.finish());
        }
        found_in.push(found);
    }
    // `prepare` names other Plans, so it is checked once all Plans are known.
    let known: Vec<_> = plans.iter().map(|(.., known)| known.clone()).collect();
    for (index, object, own) in plans {
        let mut subject = Subject::new(&sources[index], object, &options.levels);
        subject.check_prepare(&own, &known);
        found_in[index].extend(subject.finish());
    }
    for mut found in found_in {
        found.sort_by_key(|found| (found.place, found.rule));
        // A Plan in an anchor is reported once, however many aliases refer to it.
        found.dedup_by(|a, b| {
            (a.place, a.rule, &a.field, &a.message) == (b.place, b.rule, &b.field, &b.message)
        });
        report.findings.append(&mut found);
    }
    report
}

fn check_readable(source: &Source, options: &Options, found: &mut Vec<Finding>) {
    let Some(severity) = options.levels.of(Rule::YamlSyntax) else {
        return;
    };
    for error in &source.stream.errors {
        let line = source.text.get(source.line_of(error.offset)).unwrap_or_default();
        let is_directive = |line: &str| line.starts_with('%');
        let hint = if source.is_template() {
            Some("this looks like a template; render it first, as in `helm template … | refit validate -`")
        } else if line.contains('\t') {
            Some("the line has a tab; indent YAML with spaces")
        } else if source.text.lines().any(is_directive) {
            Some("remove the line that begins with `%`; kubectl refuses directives")
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

/// An object, and the findings about it.
struct Subject<'a> {
    source: &'a Source,
    object: &'a Object<'a>,
    levels: &'a Levels,
    found: Vec<Finding>,
    /// Absent fields that a hint tells the reader to write, in place of an unknown field.
    renamed: BTreeSet<String>,
}

impl<'a> Subject<'a> {
    fn new(source: &'a Source, object: &'a Object<'a>, levels: &'a Levels) -> Self {
        Self {
            source,
            object,
            levels,
            found: Vec::new(),
            renamed: BTreeSet::new(),
        }
    }

    /// The findings, without those that follow from others.
    fn finish(mut self) -> Vec<Finding> {
        let mut found = std::mem::take(&mut self.found);
        // A misspelt field is not missing too.
        found.retain(|one| one.rule == Rule::UnknownField || !self.is_renamed(one));
        // An empty field neither.
        let reported: BTreeSet<_> = found
            .iter()
            .filter(|one| one.rule != Rule::NullField)
            .filter_map(|one| one.field.clone())
            .collect();
        let is_repeated = |one: &Finding| {
            let is_empty = |field| self.node(field).is_some_and(Node::is_null);
            if one.rule == Rule::UntaggedImage && is_empty("spec.version") {
                return true;
            }
            one.rule == Rule::NullField && one.field.as_ref().is_some_and(|field| reported.contains(field))
        };
        found.retain(|one| !is_repeated(one));
        let is_json = self.is_json();
        for one in &mut found {
            let Some(hint) = &mut one.hint else { continue };
            let is_null = |field: &String| self.node(field).is_some_and(Node::is_null);
            if one.field.as_ref().is_some_and(is_null)
                && let Some(line) = hint.strip_prefix("add ")
            {
                *hint = format!("write {line}");
            }
            if is_json {
                *hint = in_json(hint, one.rule);
            }
        }
        found
    }

    /// Whether the finding is about a field that is written under another name.
    fn is_renamed(&self, found: &Finding) -> bool {
        let others: &[&str] = match found.rule {
            Rule::NoVersion | Rule::UntaggedImage => &["spec.version", "spec.channel"],
            Rule::NoConcurrency => &["spec.maxConcurrent"],
            Rule::DrainWithoutServiceAccount => &["spec.serviceAccountName"],
            _ => &[],
        };
        let is_below = |meant: &String| {
            let rest = found.field.as_ref().and_then(|field| field.strip_prefix(meant));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        others.iter().any(|field| self.renamed.contains(*field)) || self.renamed.iter().any(is_below)
    }

    /// Whether the object is written in JSON.
    fn is_json(&self) -> bool {
        let node = self.object.node;
        let text = self.source.text.get(node.span.start..).unwrap_or_default();
        let inner = text.strip_prefix('{').unwrap_or_default();
        node.style == Style::Flow && inner.trim_start().starts_with('"')
    }

    /// Whether the field has a value that is not an object.
    fn is_no_object(&self, field: &str) -> bool {
        self.node(field)
            .is_some_and(|node| !node.is_null() && node.object().is_none())
    }

    /// Checks a Plan, and returns what could be read of it.
    fn plan(&mut self, options: &Options, nodes: &[Running]) -> Option<Plan> {
        self.check_repeated_keys();
        // What the API server accepts, and what it stores
        let read = self.read_by_schema();
        // Of one that is no object, the schema has said so.
        if !self.is_no_object("metadata") {
            self.check_metadata(options.namespace.as_deref());
        }
        if self.is_no_object("spec") {
            return None;
        }
        // The Plan, without the refused fields
        let plan: Plan = match serde_json::from_value(read) {
            Ok(plan) => plan,
            Err(error) => {
                self.report(
                    Rule::WrongType,
                    "spec",
                    format!("the Plan cannot be read: {error}"),
                    None,
                );
                return None;
            }
        };
        if !self.has("spec") {
            let line = format!("add `spec: {}`", schema::SPEC);
            self.report(
                Rule::NoVersion,
                "spec",
                format!(
                    "spec is missing, and the controller says: {}",
                    controller::UNRESOLVABLE
                ),
                Some(line),
            );
            return Some(plan);
        }
        self.check_as_controller(&plan);
        self.check_jobs(&plan);
        self.check_images(&plan.spec);
        self.check_selector(&plan);
        self.check_window(&plan.spec);
        self.check_suspicious(&plan);
        self.check_control_plane(&plan);
        self.check_versions(&plan, nodes);
        Some(plan)
    }

    fn check_repeated_keys(&mut self) {
        let merged = self.merged_objects();
        for offset in &merged {
            self.report_at(
                Rule::DuplicateKey,
                *offset,
                None,
                "a second object begins here without a line `---` above it".to_owned(),
                Some("put a line of three dashes above this one; kubectl sees one object, and the first is lost".to_owned()),
            );
        }
        let top = self
            .object
            .node
            .object()
            .map_or(&[][..], |object| &object.repeated);
        let is_reported =
            |offset: usize| !merged.is_empty() && top.iter().any(|key| key.span.start == offset);
        let repeated: Vec<_> = self
            .object
            .node
            .repeated()
            .iter()
            .filter(|key| !is_reported(key.span.start))
            .map(|key| (key.span.start, key.name.clone()))
            .collect();
        for (offset, name) in repeated {
            self.report_at(
                Rule::DuplicateKey,
                offset,
                None,
                format!("the key {name:?} appears twice in the same object"),
                Some("keep one of the two; kubectl takes the last".to_owned()),
            );
        }
    }

    /// Offsets of further objects that no `---` separates from the first: their identifying keys appear again.
    fn merged_objects(&self) -> Vec<usize> {
        let Some(object) = self.object.node.object() else {
            return Vec::new();
        };
        let mut begins = Vec::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for key in &object.repeated {
            if begins.is_empty() || !seen.insert(&key.name) {
                begins.push(key.span.start);
                seen = BTreeSet::from([key.name.as_str()]);
            }
        }
        // One repeated key is a typo, not a second object.
        let is_identity = |key: &&Key| matches!(key.name.as_str(), "apiVersion" | "kind" | "metadata");
        if object.repeated.iter().filter(is_identity).count() < 2 {
            begins.clear();
        }
        begins
    }

    /// Reports a Plan whose name an earlier Plan has, in this file or in another one.
    fn check_unique(&mut self, names: &mut BTreeMap<(String, String), String>) {
        let Some(name) = self.object.metadata("name") else {
            return;
        };
        let namespace = self.object.metadata("namespace").unwrap_or_default();
        let key = (namespace.to_owned(), name.to_owned());
        let place = self.source.place(self.offset("metadata.name"));
        let here = format!("{}:{}", self.source.name, place.line);
        if let Some(first) = names.get(&key) {
            let message = format!("Plan {:?} is defined in {first} already", self.object.title());
            let hint = "rename one of them; otherwise the one that is applied last wins".to_owned();
            self.report(Rule::DuplicatePlan, "metadata.name", message, Some(hint));
        } else {
            names.insert(key, here);
        }
    }

    fn channel(&self) -> Option<Channel> {
        let text = |field: &str| {
            self.node(field)
                .and_then(Node::text)
                .filter(|text| !text.is_empty())
        };
        let url = text("spec.channel").filter(|url| !is_placeholder(url))?;
        // A Plan with both keeps a channel for `refit pin`, which queries it to update the version.
        let hint = if text("spec.version").is_some() {
            "the Plan stays at its version: refit pin cannot tell whether there is a newer one"
        } else {
            "without a version no node is started, and the next ones wait until the channel answers"
        };
        Some(Channel {
            url: url.to_owned(),
            program: text("spec.upgrade.image").and_then(distribution_of),
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

    /// Reports an object that was probably meant to be a Plan.
    fn check_nearly_a_plan(&mut self) {
        let (version, kind) = (self.object.api_version.clone(), self.object.kind.clone());
        let wanted = format!("{GROUP}/{}", crate::api::crd::VERSION);
        let group = version.split('/').next().unwrap_or_default().to_owned();
        if self.source.text.contains(GROUP) && !self.merged_objects().is_empty() {
            self.check_repeated_keys();
        }
        let has_spec = |field: &str| self.node("spec").is_some_and(|spec| spec.get(field).is_some());
        let looks_like_one = has_spec("upgrade") && (has_spec("nodeSelector") || has_spec("concurrency"));
        if group == GROUP && kind != "Plan" {
            let (field, is, verb) = self.identity("kind");
            let message = format!("{is}, but the only kind in {GROUP} is Plan");
            let hint = format!("{verb} `kind: Plan`");
            self.report(Rule::NotAPlan, &field, message, Some(hint));
        } else if kind == "Plan"
            && version != wanted
            && (looks_like_one || group == GROUP || is_near(&group, GROUP))
        {
            let (field, is, verb) = self.identity("apiVersion");
            let message = format!("{is}, but that of a Plan is {wanted:?}");
            let hint = format!("{verb} `apiVersion: {wanted}`");
            self.report(Rule::NotAPlan, &field, message, Some(hint));
        } else if looks_like_one && (kind.is_empty() || version.is_empty()) {
            let lines = [("apiVersion", wanted.as_str(), &version), ("kind", "Plan", &kind)];
            let lines = lines.iter().filter(|(_, _, given)| given.is_empty());
            let lines: Vec<_> = lines
                .map(|(field, value, _)| format!("`{field}: {value}`"))
                .collect();
            let message = "this looks like a Plan, but its apiVersion or kind is missing".to_owned();
            self.report(
                Rule::NotAPlan,
                "spec",
                message,
                Some(format!("add {}", lines.join(" and "))),
            );
        }
    }

    /// The key to write for `apiVersion` or `kind`, what it is now, and whether to add or to replace it.
    fn identity(&self, field: &str) -> (String, String, &'static str) {
        const OTHERS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
        let object = self.object.node.object();
        if let Some(entry) = object.and_then(|object| object.entry(field)) {
            let is = match &entry.value.kind {
                Kind::Text(text) => format!("{text:?}"),
                Kind::Null => "empty".to_owned(),
                Kind::List(_) => "a list".to_owned(),
                Kind::Map(_) => "an object".to_owned(),
                _ => self.written(&entry.value).to_owned(),
            };
            return (field.to_owned(), format!("{field} is {is}"), "write");
        }
        let entries = object.map_or(&[][..], |object| &object.entries);
        let mut keys = entries.iter().map(|entry| entry.key.name.as_str());
        let misspelt = keys.find(|key| !OTHERS.contains(key) && nearest(key, [field]).is_some());
        misspelt.map_or_else(
            || (field.to_owned(), format!("{field} is missing"), "add"),
            |key| {
                let is = format!("{field} is misspelt as {key:?}");
                (key.to_owned(), is, "write")
            },
        )
    }

    /// A finding about a field, located at its value, or where the value should be.
    fn report(&mut self, rule: Rule, field: &str, message: String, hint: Option<String>) {
        let offset = self.offset(field);
        self.report_at(rule, offset, Some(field), message, hint);
    }

    fn report_at(
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

    /// The value of a field such as `spec.secrets[0].path`.
    fn node(&self, field: &str) -> Option<&'a Node> {
        self.object.node.at(&steps(field))
    }

    /// Whether the field is set and not null, or a comment says that a tool sets it.
    fn has(&self, field: &str) -> bool {
        let steps = steps(field);
        let Some((Step::Key(key), way)) = steps.split_last() else {
            return self.node(field).is_some_and(|node| !node.is_null());
        };
        let object = self.object.node.at(way).and_then(Node::object);
        let entry = object.and_then(|object| object.entry(key));
        entry.is_some_and(|entry| self.is_given(entry))
    }

    /// Whether the entry has a value, or a tool sets it.
    fn is_given(&self, entry: &Entry) -> bool {
        !entry.value.is_null() || in_comment(self.source, entry).is_some()
    }

    /// Location of a field: a scalar at its value; a list, an object or a null at its key; a missing field at its
    /// closest existing parent.
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

    /// The source text of a scalar.
    fn written(&self, node: &Node) -> &'a str {
        self.source.text.get(node.span.clone()).unwrap_or_default()
    }
}

/// Splits a path into steps. Keys with dots are not supported; none of the fields looked up here has one.
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

/// The YAML of a hint as JSON. The name of a field stays as it is.
fn in_json(hint: &str, rule: Rule) -> String {
    let is_value = ["write", "add"].iter().any(|verb| hint.starts_with(verb))
        || (hint.starts_with("did you mean") && rule != Rule::UnknownField);
    if !is_value {
        return hint.to_owned();
    }
    let json = |text: &str| {
        let stream = yaml::read(text);
        let value = stream
            .documents
            .first()
            .filter(|_| stream.errors.is_empty())?
            .to_json();
        let json = value.to_string();
        let is_entry = value.is_object() && !text.starts_with('{');
        Some(if is_entry {
            json.trim_start_matches('{').strip_suffix('}')?.to_owned()
        } else {
            json
        })
    };
    let parts = hint.split('`').enumerate();
    let parts: Vec<_> = parts
        .map(|(index, part)| {
            if index % 2 == 1 { json(part) } else { None }.unwrap_or_else(|| part.to_owned())
        })
        .collect();
    parts.join("`")
}

fn is_near(text: &str, wanted: &str) -> bool {
    text.len() <= wanted.len() + 12 && strsim::osa_distance(text, wanted) <= 3
}

/// The parent of a field in the JSON of a Plan, and the last step to the field.
fn parent_of<'j>(plan: &'j mut Value, field: &str) -> Option<(&'j mut Value, Step)> {
    let mut steps = steps(field);
    let last = steps.pop()?;
    let parent = steps.iter().try_fold(plan, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    });
    Some((parent?, last))
}

/// Removes a field from the JSON of a Plan; false if it is absent.
fn remove(plan: &mut Value, field: &str) -> bool {
    match parent_of(plan, field) {
        Some((Value::Object(fields), Step::Key(key))) => fields.remove(&key).is_some(),
        Some((Value::Array(items), Step::Index(index))) if index < items.len() => {
            items.remove(index);
            true
        }
        _ => false,
    }
}

/// Replaces a list item by another text; false if it is absent.
fn replace(plan: &mut Value, field: &str, text: &str) -> bool {
    match parent_of(plan, field) {
        Some((Value::Array(items), Step::Index(index))) if index < items.len() => {
            items[index] = text.into();
            true
        }
        _ => false,
    }
}

pub struct ReadPlan {
    /// As the API server would store it, without placeholders in fields that are not text.
    pub plan: Plan,
    /// The same Plan as JSON.
    pub json: Value,
    /// Errors that the API server or the controller would return.
    pub refused: Vec<Finding>,
    pub placeholders: Vec<Finding>,
}

/// Reads a Plan as the API server and the controller would.
pub fn read_plan(source: &Source, object: &Object<'_>) -> ReadPlan {
    let levels = Levels::default();
    let mut subject = Subject::new(source, object, &levels);
    subject.check_repeated_keys();
    let json = subject.read_by_schema();
    subject.check_metadata(None);
    let plan: Plan = match serde_json::from_value(json.clone()) {
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
    let mut found = subject.finish();
    found.sort_by_key(|found| (found.place, found.rule));
    let (refused, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| found.severity == super::Severity::Error);
    let is_placeholder = |found: &Finding| found.rule == Rule::Placeholder;
    ReadPlan {
        plan,
        json,
        refused,
        placeholders: others.into_iter().filter(is_placeholder).collect(),
    }
}
