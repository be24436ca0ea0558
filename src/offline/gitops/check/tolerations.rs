//! Tolerations that the API server refuses in the pods of a Job.

use super::jobs::did_you_mean;
use super::subject::Subject;
use crate::gitops::rule::Rule;
use refit_api::PlanSpec;
use refit_api::selector::{label_key_problems, label_value_problems};

impl Subject<'_> {
    /// Reports what the API server refuses (`ValidateTolerations` in pkg/apis/core/validation/validation.go).
    pub(super) fn check_tolerations(&mut self, spec: &PlanSpec) {
        for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
            let (key, value) = (
                toleration.key.as_deref().unwrap_or_default(),
                toleration.value.as_deref().unwrap_or_default(),
            );
            let operator = toleration.operator.as_deref().unwrap_or_default();
            let effect = toleration.effect.as_deref().unwrap_or_default();
            let mut field = format!("spec.tolerations[{index}]");
            let mut hint = None;
            // `Lt` and `Gt` depend on a feature gate, `TaintTolerationComparisonOperators` (KEP-5471).
            let problem = if !matches!(operator, "" | "Equal" | "Exists" | "Lt" | "Gt") {
                hint = match operator {
                    "=" | "==" | "Is" | "In" => Some("did you mean `Equal`?".to_owned()),
                    _ => did_you_mean(operator, &["Exists", "Equal"]),
                };
                field.push_str(".operator");
                format!("its operator is {operator:?}; it must be Exists or Equal")
            } else if key.is_empty() && operator != "Exists" {
                if operator.is_empty() {
                    field.push_str(".operator");
                    hint = Some("add `operator: Exists`".to_owned());
                }
                "it has no key, so its operator must be Exists".to_owned()
            } else if operator == "Exists" && !value.is_empty() {
                field.push_str(".value");
                hint = Some("remove it".to_owned());
                format!("its operator is Exists, which takes no value ({value:?})")
            } else if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
                hint = did_you_mean(effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
                field.push_str(".effect");
                format!("its effect is {effect:?}; it must be NoSchedule, PreferNoSchedule or NoExecute")
            } else if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
                "it has tolerationSeconds, so its effect must be NoExecute".to_owned()
            } else if let Some(problem) = Some(key)
                .filter(|key| !key.is_empty())
                .and_then(|key| label_key_problems(key).into_iter().next())
            {
                if key == "*" {
                    hint = Some("leave out the key, with the operator Exists".to_owned());
                }
                format!("its key is {key:?}: {problem}")
            } else if let Some(problem) = label_value_problems(value).into_iter().next() {
                format!("its value is {value:?}: {problem}")
            } else {
                continue;
            };
            self.report(
                Rule::BadJob,
                &field,
                format!("spec.tolerations[{index}]: {problem}"),
                hint,
            );
        }
    }
}
