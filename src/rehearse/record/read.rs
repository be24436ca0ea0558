//! Reads facts about a roll-out from objects.

use crate::json::Value;
use crate::pods::container_statuses;
use crate::store::Object;
use refit_api::ConditionType;
use refit_api::names::{ANNOTATION_NODE_NAME, LABEL_CONTROLLER, LABEL_PLAN};

/// Whether a Plan is complete at its current generation.
pub fn is_complete(plan: &Value) -> bool {
    let status = &plan["status"];
    let holds = |type_: ConditionType| {
        let conditions = status["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == type_.name() && one["status"] == "True")
    };
    status["observedGeneration"] == plan["metadata"]["generation"]
        && holds(ConditionType::Complete)
        && holds(ConditionType::Validated)
}

pub(super) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// Plan and node of a Job.
pub(super) fn of_plan(job: &Object) -> Option<(String, String)> {
    job.label(LABEL_CONTROLLER)?;
    let node = job.value["metadata"]["annotations"][ANNOTATION_NODE_NAME].as_str()?;
    Some((job.label(LABEL_PLAN)?.to_owned(), node.to_owned()))
}

fn terminated<'o>(pod: &'o Object, container: &str) -> Option<&'o Value> {
    let mut all = container_statuses(pod).filter(|one| one["name"] == container);
    let ended = all.next()?["state"].get("terminated")?;
    (!ended.is_null()).then_some(ended)
}

pub(super) fn has_ended(pod: &Object, container: &str) -> bool {
    terminated(pod, container).is_some()
}

pub(super) fn has_succeeded(pod: &Object, container: &str) -> bool {
    terminated(pod, container).is_some_and(|ended| ended["exitCode"] == 0)
}

/// The value of a container's variable.
pub(super) fn environment(pod: &Object, container: &str, variable: &str) -> Option<String> {
    let spec = &pod.value["spec"];
    let mut all = spec["initContainers"]
        .as_array()
        .into_iter()
        .chain(spec["containers"].as_array())
        .flatten();
    let container = all.find(|one| one["name"] == container)?;
    let variables = container["env"].as_array()?;
    let found = variables.iter().find(|one| one["name"] == variable)?;
    found["value"].as_str().map(str::to_owned)
}
