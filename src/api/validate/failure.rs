//! What follows when a node fails.

use crate::failure::{FailurePolicy, MAX_RETRIES};
use crate::invalid::{ErrorList, at, written};
use crate::plan::PlanSpec;

pub(super) fn check(spec: &PlanSpec, errors: &mut ErrorList) {
    let Some(failure) = &spec.failure else { return };
    if let Some(budget) = &failure.budget {
        let field = at("failure.budget");
        if failure.budget().is_none() {
            errors.push(field.invalid(format_args!(
                "is {}: it must be a number from 0 on, or a share of the nodes from \"1%\" to \"100%\"",
                written(budget)
            )));
        }
        if failure.policy() != FailurePolicy::Stop {
            let problem = format!(
                "is set, and spec.failure.policy is {}, which has no budget: write `policy: Stop`, or remove the budget",
                failure.policy().as_str()
            );
            let hint = "remove it, or set spec.failure.policy to Stop";
            errors.push(field.invalid(problem).hint(hint));
        }
    }
    let retries = failure.retries.unwrap_or_default();
    if !(0..=MAX_RETRIES).contains(&retries) {
        let problem = format!("is {retries}: it must be a number from 0 to {MAX_RETRIES}");
        let hint = format!("write `{}`", failure.retries());
        errors.push(at("failure.retries").invalid(problem).hint(hint));
    }
    if failure.backoff.is_some() {
        let field = at("failure.backoff");
        errors.take(field.positive(failure.backoff()));
        if retries == 0 {
            let problem = "is set, and spec.failure.retries is 0 or absent: set it, or remove the backoff";
            let hint = "remove it, or set spec.failure.retries";
            errors.push(field.invalid(problem).hint(hint));
        }
    }
}
