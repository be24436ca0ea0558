//! Documents that kubectl refuses: no YAML, or a list of objects.

use super::options::Options;
use crate::gitops::finding::Finding;
use crate::gitops::rule::Rule;
use crate::gitops::source::Source;
use crate::gitops::yaml::Node;
use refit_api::names::GROUP;

/// Reports the errors of YAML, and documents that are lists of objects, one of which is a Plan.
pub(super) fn check_documents(source: &Source, options: &Options, found: &mut Vec<Finding>) {
    let mut report = |rule, offset, message: String, hint: Option<&str>| {
        found.extend(options.levels.of(rule).map(|severity| Finding {
            file: source.name.clone(),
            position: source.position(offset),
            rule,
            severity,
            plan: None,
            field: None,
            message,
            hint: hint.map(str::to_owned),
        }));
    };
    for error in &source.stream.errors {
        let message = format!("this is not YAML: {}", error.message);
        let hint = cause(source, error.offset, &error.message);
        report(Rule::YamlSyntax, error.offset, message, hint);
    }
    let is_plan = |item: &Node| {
        let version = item.get("apiVersion").and_then(Node::text);
        version.is_some_and(|version| version.starts_with(GROUP))
    };
    for document in &source.stream.documents {
        if document.items().iter().any(is_plan) {
            let message = "the document is a list, which kubectl refuses; a Plan is an object".to_owned();
            let hint = "write each object as a document, with `---` between them, or the list as the items of a `kind: List`";
            report(Rule::NotAPlan, document.offset(), message, Some(hint));
        }
    }
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
