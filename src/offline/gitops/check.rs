//! `refit validate`: everything that the API server and the controller would refuse, and what is suspicious.
//!
//! Documents → schema → names → the controller's validation → suspicious values. Each stage reads what the stage before
//! it could read of the Plan: a field of the wrong type is reported once, and then removed.

mod channel;
mod control_plane;
mod controller;
mod dependencies;
mod disagreement;
mod existence;
mod front_ends;
mod identity;
mod images;
mod instead;
mod jobs;
mod label_values;
mod limits;
mod metadata;
mod overlay;
mod path;
mod prepare;
mod read;
mod reboots;
mod schedule;
mod schema;
mod selector;
mod subject;
mod suspicious;
mod validity;
mod versions;
mod window;
mod zone;

use std::collections::{BTreeMap, BTreeSet};

pub use channel::Channel;
pub use existence::{ImageAtVersion, VersionedImages};
pub use front_ends::refused;
pub(in crate::gitops) use images::Reference;
pub use metadata::SERVER_FIELDS;
use prepare::Known;
pub use read::{ReadPlan, name_for, read_plan};
use subject::Subject;
use versions::Running;

use super::objects::{FrontEnd, Object, objects};
use super::yaml::Node;
use super::{Finding, Levels, Rule, Source};
use refit_api::Plan;
use refit_api::names::GROUP;

/// What `refit validate` checks beyond the files themselves.
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
    /// Number of `NodeOp` and `NodeOpUpgrade` objects that were checked.
    pub node_ops: usize,
    /// Number of `NodeMaintenance` objects that were checked.
    pub maintenances: usize,
    /// The channels of the Plans, for a caller that may query them.
    pub channels: Vec<Channel>,
    /// The images of the Plans that follow the version, for a caller that may ask their registries.
    pub images: Vec<VersionedImages>,
}

/// Checks all Plans in the files, and the other objects that refit handles.
pub fn check(sources: &[Source], options: &Options) -> Report {
    let mut report = Report::default();
    let mut names: BTreeMap<(String, String), String> = BTreeMap::new();
    let all: Vec<Vec<Object<'_>>> = sources
        .iter()
        .map(|source| objects(&source.stream.documents))
        .collect();
    // Nodes may follow the Plans that select them, so they are collected first.
    let nodes: Vec<_> = all.iter().flatten().filter_map(Running::read).collect();
    let scripts: Vec<_> = all.iter().flatten().flat_map(reboots::Script::read).collect();
    let mut found_in: Vec<Vec<Finding>> = Vec::new();
    let mut plans = Vec::new();
    let mut maintained = front_ends::Maintained::new();
    for (index, (source, objects)) in sources.iter().zip(&all).enumerate() {
        let mut found = Vec::new();
        check_readable(source, options, &mut found);
        check_lists(source, options, &mut found);
        for object in objects {
            let mut subject = Subject::new(source, object, &options.levels);
            if all.iter().flatten().any(|whole| object.is_patch_of(whole)) {
                subject.report_part_of_plan();
            } else if object.is_plan() {
                report.plans += 1;
                if let Some(plan) = subject.plan(options, &nodes) {
                    subject.check_reboots(&plan, &scripts);
                    report.images.extend(subject.versioned_images(&plan.spec));
                    plans.push((index, object, Known::new(&plan)));
                }
                subject.check_unique(&mut names);
                report.channels.extend(subject.channel());
            } else if let Some(kind) = object.front_end() {
                match kind {
                    FrontEnd::Op(_) => report.node_ops += 1,
                    FrontEnd::Maintenance(_) => report.maintenances += 1,
                }
                subject.check_front_end(kind, options, &nodes, &mut maintained);
            } else if limits::is_limits(object) {
                subject.check_limits();
            } else {
                subject.check_nearly_a_plan();
                subject.check_nearly_a_front_end();
            }
            found.extend(subject.finish());
        }
        found_in.push(found);
    }
    // `prepare` and `dependsOn` name other Plans, so they are checked once all Plans are known.
    let known: Vec<_> = plans.iter().map(|(.., known)| known.clone()).collect();
    let mut disagreeing = BTreeSet::new();
    for (place, (index, object, own)) in plans.into_iter().enumerate() {
        let mut subject = Subject::new(&sources[index], object, &options.levels);
        subject.check_prepare(&own, &known);
        subject.check_dependencies(&own, &known);
        // A Plan that disagrees has been reported; those after it need not agree with it.
        let before = known[..place].iter().enumerate();
        let before = before.filter(|(place, _)| !disagreeing.contains(place));
        if subject.check_disagreement(&own, before.map(|(_, known)| known), &nodes) {
            disagreeing.insert(place);
        }
        found_in[index].extend(subject.finish());
    }
    for mut found in found_in {
        found.sort_by_key(|found| (found.position, found.rule));
        // A Plan in an anchor is reported once, however many aliases refer to it.
        found.dedup_by(|a, b| {
            (a.position, a.rule, &a.field, &a.message) == (b.position, b.rule, &b.field, &b.message)
        });
        report.findings.append(&mut found);
    }
    report
}

/// Whether a field begins in a column in which no line above it begins, although that line holds no object or list.
fn is_in_a_column_of_its_own(text: &str, line: std::ops::Range<usize>) -> bool {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let (above, own) = (&text[..line.start], &text[line]);
    let mut lines = above.lines().rev();
    let mut lines = lines.by_ref().filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let own = indent(own);
    let Some(before) = lines.next().filter(|_| own > 0) else {
        return false;
    };
    // A line that ends with one of these opens an object, a list or a block scalar, whose lines are indented further.
    let is_field = before.contains(": ") && !before.trim_end().ends_with([':', '|', '>']);
    is_field && indent(before) != own && !lines.any(|line| indent(line) == own)
}

/// Whether the first line that is not a comment begins with a space.
fn starts_indented(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && !line.starts_with("---")
    });
    lines.next().is_some_and(|line| line.starts_with(' '))
}

/// Whether a line is nearly the one between two documents: other dashes, or dashes behind spaces.
fn is_near_separator(line: &str) -> bool {
    let line = line.trim_end();
    let dashes = line.trim_start();
    dashes.len() > 1 && line != "---" && dashes.chars().all(|c| matches!(c, '-' | '–' | '—'))
}

/// A field whose colon has no space behind it, so that YAML reads its line as text: `concurrency:1`.
fn field_without_space(line: &str) -> Option<&str> {
    let (name, value) = line.trim_start_matches([' ', '-']).split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
    // `https://…` is a URL, and not a field without a space.
    (is_name && value.starts_with(|c: char| !c.is_whitespace() && c != '/')).then_some(name)
}

/// Whether a value, or one of those in braces or brackets, has a colon and a space in it without quotes.
fn has_colon_in_value(value: &str) -> bool {
    if value.contains(['"', '\'']) {
        return false;
    }
    let is_flow = value.starts_with(['{', '[']);
    let colons = |text: &str| text.matches(": ").count();
    let mut entries = value.split(|c| is_flow && "{}[],".contains(c));
    // In braces, each entry has one colon of its own, between its key and its value.
    entries.any(|entry| colons(entry) > usize::from(is_flow))
}

fn check_readable(source: &Source, options: &Options, found: &mut Vec<Finding>) {
    let Some(severity) = options.levels.of(Rule::YamlSyntax) else {
        return;
    };
    for error in &source.stream.errors {
        let line = source.text.get(source.line_of(error.offset)).unwrap_or_default();
        let is_directive = |line: &str| line.starts_with('%');
        // A no-break space is text, so that the line continues in the next one.
        let before = source.text[..source.line_of(error.offset).start]
            .lines()
            .next_back();
        let starts_with = |start: &str| source.text.trim_start().starts_with(start);
        let value = line.split_once(": ").map_or("", |(_, value)| value.trim_start());
        let is_conflict = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
        let without_space = [before, Some(line)]
            .into_iter()
            .flatten()
            .find_map(field_without_space)
            .map(|name| format!("put a space after the colon of `{name}:`"));
        let breaks = ['\u{2028}', '\u{2029}', '\u{85}'];
        let hint = if source.is_template() && source.has_terraform_directive() {
            Some("this looks like a template of Terraform; validate what `templatefile` renders")
        } else if value.starts_with('%') && source.has_terraform_directive() {
            Some(
                "this looks like a template of Terraform; validate what `templatefile` renders (in YAML, a value that begins with \
                 `%` needs quotes)",
            )
        } else if source.is_template() {
            Some("this looks like a template; render it first, as in `helm template … | refit validate -`")
        } else if line.contains('\t') {
            Some("the line has a tab; indent YAML with spaces")
        } else if line.contains('\u{a0}') || before.is_some_and(|line| line.contains('\u{a0}')) {
            Some("the line has a no-break space (U+00A0); indent YAML with spaces")
        } else if line.contains(breaks) || before.is_some_and(|line| line.contains(breaks)) {
            Some(
                "the line has an invisible line break (U+2028, U+2029 or U+0085), behind which YAML begins a new line; remove it",
            )
        } else if is_near_separator(line) || before.is_some_and(is_near_separator) {
            Some("a line between two documents has three dashes, `---`, and nothing before them")
        } else if source.text.lines().any(is_conflict) {
            Some(
                "Git has left a merge conflict in the file; resolve it, and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`",
            )
        } else if starts_with("<!DOCTYPE") || starts_with("<!doctype") || starts_with("<html") {
            Some("the file is a web page; download the manifest itself, such as the raw file of a repository")
        } else if starts_with("diff --git ") || (starts_with("--- ") && source.text.contains("\n+++ ")) {
            Some("the file is a diff; apply it with `git apply`, and give refit the files that it changes")
        } else if starts_with("#!")
            || starts_with("$ ")
            || source.text.lines().next().is_some_and(|line| line.contains("<<"))
        {
            Some("the file is a script or its output; keep only the lines of the manifest")
        } else if value.starts_with('%') || value.starts_with('@') || value.starts_with('`') {
            Some(
                "a value that begins with this character needs quotes; if it is a placeholder, fill it in first",
            )
        } else if source.text.lines().any(|line| line.starts_with("```")) {
            Some("the file is Markdown; keep only the lines between the two lines that begin with ```")
        } else if source.text.lines().any(is_directive) {
            Some("remove the line that begins with `%`; kubectl refuses directives")
        } else if error.message.contains("expected <document start>") && starts_indented(&source.text) {
            Some("the first line of the object is indented more than this one; indent its lines alike")
        } else if is_in_a_column_of_its_own(&source.text, source.line_of(error.offset)) {
            Some("no line above begins in this column; fields of one object are indented alike")
        } else if let Some(hint) = &without_space {
            Some(hint.as_str())
        } else if has_colon_in_value(value) {
            Some("put quotes around a value with a colon and a space in it")
        } else if ["quoted scalar", "unclosed quote"]
            .iter()
            .any(|part| error.message.contains(part))
        {
            Some("a quote is opened and not closed; see the lines above")
        } else {
            None
        };
        found.push(Finding {
            file: source.name.clone(),
            position: source.position(error.offset),
            rule: Rule::YamlSyntax,
            severity,
            plan: None,
            field: None,
            message: format!("this is not YAML: {}", error.message),
            hint: hint.map(str::to_owned),
        });
    }
}

/// Reports a document that is a list of objects, one of which is a Plan.
fn check_lists(source: &Source, options: &Options, found: &mut Vec<Finding>) {
    let Some(severity) = options.levels.of(Rule::NotAPlan) else {
        return;
    };
    let is_plan = |item: &Node| {
        let version = item.get("apiVersion").and_then(Node::text);
        version.is_some_and(|version| version.starts_with(GROUP))
    };
    for document in &source.stream.documents {
        if !document.items().iter().any(is_plan) {
            continue;
        }
        let hint = if source
            .text
            .get(document.span.clone())
            .is_some_and(|text| text.starts_with('['))
        {
            "write each object as a document, with `---` between them, or the list as the items of a `kind: List`"
        } else {
            "remove the dashes, indent the lines below them less, and put `---` between the objects"
        };
        found.push(Finding {
            file: source.name.clone(),
            position: source.position(document.offset()),
            rule: Rule::NotAPlan,
            severity,
            plan: None,
            field: None,
            message: "the document is a list, which kubectl refuses; a Plan is an object".to_owned(),
            hint: Some(hint.to_owned()),
        });
    }
}

impl Subject<'_> {
    /// Checks a Plan, and returns what could be read of it.
    fn plan(&mut self, options: &Options, nodes: &[Running]) -> Option<Plan> {
        self.check_repeated_keys();
        // What the API server accepts, and what it stores
        let mut read = self.read_by_schema();
        self.apply_overlay(&mut read);
        self.fill_label_values(&mut read);
        // Otherwise the schema has reported it.
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
        self.check_post_complete_labels(&plan.spec);
        self.check_as_controller(&plan);
        self.check_jobs(&plan);
        self.check_images(&plan.spec);
        self.check_selector(&plan, nodes);
        self.check_window(&plan.spec);
        self.check_suspicious(&plan);
        self.check_control_plane(&plan);
        self.check_versions(&plan, nodes);
        Some(plan)
    }
}
