//! The Plan as system-upgrade-controller's Go types serialize it (S41).
//!
//! Go omits a field that is `omitempty` and has the zero value of its type, whatever the user wrote: `force: false` is
//! omitted, but `deleteLocalData: false`, a pointer, is `false`. The tables below list these fields; any other field is
//! a pointer, or always written. refit's own fields stay as they are.

use serde_json::{Map, Value};

use refit_api::{Plan, PlanSpec};
use refit_base::go::GoDuration;

type Fields = &'static [(&'static str, Rule)];

/// How Go serializes a field.
#[derive(Clone, Copy)]
enum Rule {
    /// Omitted if it is `""`, `0`, `false`, `[]` or `{}`.
    Value,
    /// A list of structs, omitted if it is empty.
    List(Fields),
    /// A pointer to a struct: `{}` is not omitted.
    Struct(Fields),
    /// `metav1.Duration`: in Go's format, `90s` as `1m30s`.
    Duration,
    /// `resource.Quantity`: never omitted.
    Quantity,
}
use Rule::{Duration, List, Quantity, Struct};

const SPEC: Fields = &[
    ("concurrency", Rule::Value),
    ("nodeSelector", Struct(SELECTOR)),
    ("serviceAccountName", Rule::Value),
    ("channel", Rule::Value),
    ("version", Rule::Value),
    ("secrets", List(&[("ignoreUpdates", Rule::Value)])),
    ("tolerations", List(TOLERATION)),
    ("exclusive", Rule::Value),
    ("window", Struct(WINDOW)),
    ("prepare", Struct(CONTAINER)),
    ("upgrade", Struct(CONTAINER)),
    ("cordon", Rule::Value),
    ("drain", Struct(DRAIN)),
    ("imagePullSecrets", List(&[("name", Rule::Value)])),
    ("postCompleteDelay", Duration),
    ("priorityClassName", Rule::Value),
    ("postCompleteLabels", Rule::Value),
];
const CONTAINER: Fields = &[
    ("command", Rule::Value),
    ("args", Rule::Value),
    (
        "envs",
        List(&[("value", Rule::Value), ("valueFrom", Struct(ENV_SOURCE))]),
    ),
    (
        "envFrom",
        List(&[
            ("prefix", Rule::Value),
            ("configMapRef", Struct(NAMED)),
            ("secretRef", Struct(NAMED)),
        ]),
    ),
    ("volumes", Rule::Value),
    ("securityContext", Struct(SECURITY_CONTEXT)),
];
const ENV_SOURCE: Fields = &[
    ("fieldRef", Struct(&[("apiVersion", Rule::Value)])),
    (
        "resourceFieldRef",
        Struct(&[("containerName", Rule::Value), ("divisor", Quantity)]),
    ),
    ("configMapKeyRef", Struct(NAMED)),
    ("secretKeyRef", Struct(NAMED)),
];
const NAMED: Fields = &[("name", Rule::Value)];
const SECURITY_CONTEXT: Fields = &[
    (
        "capabilities",
        Struct(&[("add", Rule::Value), ("drop", Rule::Value)]),
    ),
    (
        "seLinuxOptions",
        Struct(&[
            ("user", Rule::Value),
            ("role", Rule::Value),
            ("type", Rule::Value),
            ("level", Rule::Value),
        ]),
    ),
];
const TOLERATION: Fields = &[
    ("key", Rule::Value),
    ("operator", Rule::Value),
    ("value", Rule::Value),
    ("effect", Rule::Value),
];
const SELECTOR: Fields = &[
    ("matchLabels", Rule::Value),
    ("matchExpressions", List(&[("values", Rule::Value)])),
];
const WINDOW: Fields = &[
    ("days", Rule::Value),
    ("startTime", Rule::Value),
    ("endTime", Rule::Value),
    ("timeZone", Rule::Value),
];
const DRAIN: Fields = &[
    ("force", Rule::Value),
    ("disableEviction", Rule::Value),
    ("skipWaitForDeleteTimeout", Rule::Value),
    ("podSelector", Struct(SELECTOR)),
];

/// The spec as Go serializes it.
pub(crate) fn go_spec(spec: &PlanSpec) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(spec) else {
        return Map::new(); // a spec is an object with string keys
    };
    go_struct(&mut fields, SPEC);
    fields
}

/// The Plan as Go serializes it to compute the hash: with the version of that hash.
pub(super) fn go_plan(plan: &Plan, latest_version: &str) -> Value {
    let mut document = Map::new();
    document.insert("apiVersion".into(), "upgrade.cattle.io/v1".into());
    document.insert("kind".into(), "Plan".into());
    document.insert(
        "metadata".into(),
        serde_json::to_value(&plan.metadata).unwrap_or_default(),
    );
    document.insert("spec".into(), go_spec(&plan.spec).into());
    let mut status = match plan.status.as_ref().map(serde_json::to_value) {
        Some(Ok(Value::Object(status))) => status,
        _ => Map::new(),
    };
    // system-upgrade-controller computes the hash after it has set the version and before it stores the status.
    status.insert("latestVersion".into(), latest_version.into());
    document.insert("status".into(), status.into());
    Value::Object(document)
}

fn go_struct(fields: &mut Map<String, Value>, rules: Fields) {
    for (name, rule) in rules {
        let Some(value) = fields.get_mut(*name) else {
            // `omitempty` has no effect on a struct (encoding/json), and a zero `resource.Quantity` is written as "0".
            if matches!(rule, Quantity) {
                fields.insert((*name).to_owned(), "0".into());
            }
            continue;
        };
        match rule {
            Struct(rules) => {
                if let Value::Object(fields) = value {
                    go_struct(fields, rules);
                }
            }
            List(rules) => {
                for element in value
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_object_mut)
                {
                    go_struct(element, rules);
                }
            }
            Duration => {
                if let Some(Ok(duration)) = value.as_str().map(str::parse::<GoDuration>) {
                    *value = duration.to_string().into();
                }
            }
            Rule::Value | Quantity => {}
        }
        if matches!(rule, Rule::Value | List(_)) && is_zero(value) {
            fields.remove(*name);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}
