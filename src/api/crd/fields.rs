//! What the derived schema says about the fields of a Plan: which are refit's own, and which affect a Job. No field of
//! refit is listed here, so a new one is included automatically.

use std::sync::LazyLock;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use super::{PLANS, nested, served_schema};
use crate::plan::{DrainSpec, PlanSpec};

/// Fields of system-upgrade-controller's Plan (S9). All others are refit's own.
pub(super) const SUC_FIELDS: [(&str, &[&str]); 3] = [
    (
        "spec",
        &[
            "channel",
            "concurrency",
            "cordon",
            "drain",
            "exclusive",
            "imagePullSecrets",
            "jobActiveDeadlineSecs",
            "nodeSelector",
            "postCompleteDelay",
            "postCompleteLabels",
            "prepare",
            "priorityClassName",
            "secrets",
            "serviceAccountName",
            "tolerations",
            "upgrade",
            "version",
            "window",
        ],
    ),
    (
        "spec.drain",
        &[
            "deleteEmptydirData",
            "deleteLocalData",
            "disableEviction",
            "force",
            "gracePeriod",
            "ignoreDaemonSets",
            "podSelector",
            "skipWaitForDeleteTimeout",
            "timeout",
        ],
    ),
    (
        "status",
        &["applying", "conditions", "latestHash", "latestVersion"],
    ),
];

/// Fields that refit adds to system-upgrade-controller's, by part and name. A part is a path, such as `spec.drain`.
///
/// A served CRD that lacks one of them prunes it, so a Plan would run without the restriction that it requested.
pub static OWN_FIELDS: LazyLock<Vec<[&'static str; 2]>> = LazyLock::new(|| {
    let schema = served_schema(&PLANS);
    let own = SUC_FIELDS.iter().flat_map(|(part, theirs)| {
        let fields = nested(schema, part).and_then(|schema| schema.properties.as_ref());
        let names = fields.into_iter().flatten().map(|(name, _)| name.as_str());
        let own = names.filter(|name| !theirs.contains(name));
        own.map(|name| [*part, name])
    });
    own.collect()
});

/// Marks a field that affects the pods of a Job, or its deadline. Kubernetes' schema type has no such key, so the mark
/// is not in the CRD.
pub(super) const MARK_IN_JOB: &str = "x-in-job";

/// Names of the marked fields of the spec, in their order.
pub static FIELDS_IN_JOB: LazyLock<Vec<String>> = LazyLock::new(|| marked::<PlanSpec>(true));

/// Names of the fields of `spec.drain` that are marked as not in the Job.
pub static DRAIN_FIELDS_NOT_IN_JOB: LazyLock<Vec<String>> = LazyLock::new(|| marked::<DrainSpec>(false));

fn marked<T: JsonSchema>(mark: bool) -> Vec<String> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let fields = schema.get("properties").and_then(Value::as_object);
    let marked = fields
        .into_iter()
        .flatten()
        .filter(|(_, field)| field.get(MARK_IN_JOB) == Some(&Value::Bool(mark)));
    marked.map(|(name, _)| name.clone()).collect()
}
