//! Documents that kubectl refuses: no YAML, or a list of objects.

use crate::gitops::finding::{Finding, Levels};
use crate::gitops::rule::Rule;
use crate::gitops::source::Source;
use crate::gitops::yaml::Node;
use refit_api::names::GROUP;

/// The errors of YAML.
pub(super) fn check_documents(source: &Source, levels: &Levels) -> Vec<Finding> {
    let found = source.stream.errors.iter().filter_map(|error| {
        let message = format!("this is not YAML: {}", error.message);
        let hint = cause(source, error.offset, &error.message);
        finding(source, levels, Rule::YamlSyntax, error.offset, message, hint)
    });
    found.collect()
}

/// Documents that are lists of objects, one of which is a Plan.
pub(super) fn check_lists(source: &Source, levels: &Levels) -> Vec<Finding> {
    let is_plan = |item: &Node| {
        let version = item.get("apiVersion").and_then(Node::text);
        version.is_some_and(|version| version.starts_with(GROUP))
    };
    let documents = source.stream.documents.iter();
    let lists = documents.filter(|document| document.items().iter().any(is_plan));
    let found = lists.filter_map(|document| {
        let message = "the document is a list, which kubectl refuses; a Plan is an object".to_owned();
        let hint = "write each object as a document, with `---` between them, or the list as the items of a `kind: List`";
        finding(source, levels, Rule::NotAPlan, document.offset(), message, Some(hint))
    });
    found.collect()
}

fn finding(
    source: &Source,
    levels: &Levels,
    rule: Rule,
    offset: usize,
    message: String,
    hint: Option<&str>,
) -> Option<Finding> {
    Some(Finding {
        file: source.name.clone(),
        position: source.position(offset),
        rule,
        severity: levels.of(rule)?,
        plan: None,
        field: None,
        message,
        hint: hint.map(str::to_owned),
    })
}

/// What probably makes a document no YAML.
fn cause(source: &Source, offset: usize, message: &str) -> Option<&'static str> {
    let line = source.text.get(source.line_of(offset)).unwrap_or_default();
    let is_conflict = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    Some(if source.is_template() {
        "this looks like a template; render it first, as in `helm template … | refit validate -`"
    } else if line.contains('\t') {
        "the line has a tab; indent YAML with spaces"
    } else if source.text.lines().any(is_conflict) {
        "Git has left a merge conflict in the file; resolve it, and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`"
    } else if ["quoted scalar", "unclosed quote"]
        .iter()
        .any(|part| message.contains(part))
    {
        "a quote is opened and not closed; see the lines above"
    } else {
        return None;
    })
}
