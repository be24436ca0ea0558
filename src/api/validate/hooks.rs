//! `before` and `after`.

use crate::hook::Hook;
use crate::invalid::{ErrorList, at};
use crate::plan::PlanSpec;
use crate::selector::{label_key_problems, label_value_problems};

pub(super) fn check(spec: &PlanSpec, errors: &mut ErrorList) {
    for hook in Hook::ALL {
        let (Some(of), name) = (hook.spec(spec), hook.as_str()) else {
            continue;
        };
        if spec.trigger.is_some() {
            let problem = "is set, and so is spec.trigger: nodes that request a reboot have no first and no last one, so \
                           remove one of them";
            errors.push(at(name).invalid(problem).hint("remove it"));
        }
        let field = format!("{name}.nodeSelector");
        for (key, value) in of.node_selector.iter().flatten() {
            let problems = [label_key_problems(key), label_value_problems(value)].concat();
            if !problems.is_empty() {
                let problem = format!(
                    "has {key:?}: {value:?}, which is not a label: {}",
                    problems.join("; ")
                );
                errors.push(at(&field).invalid(problem));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::plan::PlanSpec;
    use crate::validate::validate;

    fn errors(hooks: &serde_json::Value) -> String {
        let mut spec = json!({ "concurrency": 1, "upgrade": { "image": "x" }, "version": "v1" });
        spec.as_object_mut()
            .unwrap()
            .extend(hooks.as_object().unwrap().clone());
        let spec: PlanSpec = serde_json::from_value(spec).unwrap();
        validate("p", &spec)
            .err()
            .map(|errors| errors.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_hook_needs_labels_that_nodes_can_have_and_a_roll_out() {
        let hook = json!({ "image": "x", "nodeSelector": { "a/b": "c", "role": "" } });
        assert_eq!(errors(&json!({ "before": hook, "after": hook })), "");
        let wrong = json!({ "image": "x", "nodeSelector": { "a b": "c" } });
        let says = errors(&json!({ "after": wrong }));
        assert!(
            says.starts_with("spec.after.nodeSelector has \"a b\": \"c\", which is not a label: "),
            "{says}"
        );
        let says = errors(&json!({ "before": hook, "trigger": "RebootNeeded", "reboot": {} }));
        assert!(
            says.starts_with("spec.before is set, and so is spec.trigger: "),
            "{says}"
        );
    }
}
