//! Plans, short to write and to read.

use refit_api::{Plan, PlanCondition, PlanStatus};

use super::context::find_condition;

/// A Plan as YAML: its name, and its spec in YAML's flow style.
pub fn plan(name: &str, spec: &str) -> String {
    format!("{{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {{name: {name}}}, spec: {spec}}}")
}

/// Status, empty where there is none.
pub fn status(plan: &Plan) -> PlanStatus {
    plan.status.clone().unwrap_or_default()
}

/// A condition as `status/reason/message`, empty where there is none.
pub fn says(plan: &Plan, condition: &str) -> String {
    find_condition(plan, condition).map(text).unwrap_or_default()
}

/// `status/reason/message` of a condition.
fn text(condition: &PlanCondition) -> String {
    let [reason, message] = [condition.reason.as_deref(), condition.message.as_deref()];
    format!(
        "{}/{}/{}",
        condition.status,
        reason.unwrap_or_default(),
        message.unwrap_or_default()
    )
}
