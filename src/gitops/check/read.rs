//! A Plan of a file for commands that need the object itself, such as `refit render`.

use serde_json::Value;

use super::Subject;
use crate::api::Plan;
use crate::gitops::objects::Object;
use crate::gitops::{Finding, Levels, Rule, Severity, Source};

pub struct ReadPlan {
    /// As the API server would store it, without placeholders in fields that are not text.
    pub plan: Plan,
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
        .partition(|found| found.severity == Severity::Error);
    let is_placeholder = |found: &Finding| found.rule == Rule::Placeholder;
    ReadPlan {
        plan,
        json,
        refused,
        placeholders: others.into_iter().filter(is_placeholder).collect(),
    }
}
