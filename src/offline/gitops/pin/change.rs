//! Changes of fields.

use std::fmt::Write as _;

use super::error::{PinError, PinErrorKind};
use super::plan::PinRequest;
use crate::gitops::edit::Edit;
use crate::gitops::source::Source;
use crate::gitops::yaml::Step;

/// A field to change, and the edits that might do it.
#[derive(Debug)]
pub(super) struct Change<'w> {
    pub(super) request: &'w PinRequest,
    pub(super) path: Vec<Step>,
    pub(super) value: String,
    /// The best one last, so that a failed edit can be popped.
    pub(super) candidates: Vec<Edit>,
    /// Why the first candidate failed.
    pub(super) why: Option<String>,
}

impl Change<'_> {
    pub(super) fn refused(&self, source: &Source, why: String) -> PinError {
        let field = self.path.get(self.request.plan.path.len()..).map(display);
        PinError {
            file: source.name.clone(),
            line: self.request.plan.line,
            plan: Some(self.request.plan.title.clone()),
            kind: Box::new(PinErrorKind::NoIsolatedEdit {
                field: field.unwrap_or_default(),
                value: self.value.clone(),
                why,
            }),
        }
    }
}

pub(super) fn display(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            // Writing to a String cannot fail.
            Step::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
            Step::Key(key) => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(key);
            }
        }
    }
    text
}
