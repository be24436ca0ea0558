//! What objects say of a roll-out.

use crate::api::names::{ANNOTATION_NODE_NAME, LABEL_CONTROLLER, LABEL_PLAN};
use crate::rehearse::json::Value;
use crate::rehearse::store::Object;

/// The Plan that a `prepare` container waits for, as those of K3s and RKE2 do: `args: ["prepare", "<plan>"]`.
pub fn dependency(prepare: &Value) -> Option<String> {
    let args = prepare["args"].as_array()?;
    let has_command = prepare["command"]
        .as_array()
        .is_some_and(|command| !command.is_empty());
    match args.as_slice() {
        [first, plan, ..] if first == "prepare" && !has_command => plan.as_str().map(str::to_owned),
        _ => None,
    }
}

/// Whether a Plan says that nothing is left to do, and means its newest spec.
pub fn is_complete(plan: &Value) -> bool {
    let status = &plan["status"];
    let holds = |type_: &str| {
        let conditions = status["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == type_ && one["status"] == "True")
    };
    status["observedGeneration"] == plan["metadata"]["generation"] && holds("Complete") && holds("Validated")
}

pub(super) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// Plan and node of a Job of refit's.
pub(super) fn of_plan(job: &Object) -> Option<(String, String)> {
    job.label(LABEL_CONTROLLER)?;
    let node = job.value["metadata"]["annotations"][ANNOTATION_NODE_NAME].as_str()?;
    Some((job.label(LABEL_PLAN)?.to_owned(), node.to_owned()))
}

fn terminated<'o>(pod: &'o Object, container: &str) -> Option<&'o Value> {
    let status = &pod.value["status"];
    let all = status["initContainerStatuses"]
        .as_array()
        .into_iter()
        .chain(status["containerStatuses"].as_array())
        .flatten();
    let mut all = all.filter(|one| one["name"] == container);
    let ended = all.next()?["state"].get("terminated")?;
    (!ended.is_null()).then_some(ended)
}

pub(super) fn has_ended(pod: &Object, container: &str) -> bool {
    terminated(pod, container).is_some()
}

pub(super) fn has_succeeded(pod: &Object, container: &str) -> bool {
    terminated(pod, container).is_some_and(|ended| ended["exitCode"] == 0)
}

/// The value of a variable of a container.
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
