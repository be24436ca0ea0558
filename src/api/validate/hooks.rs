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
            let problem = "is set, and so is spec.trigger: nodes that ask for a reboot have no first and no last one, so remove one of \
                           them";
            errors.push(at(name).invalid(problem).hint("remove it"));
        }
        let field = format!("{name}.nodeSelector");
        for (key, value) in of.node_selector.iter().flatten() {
            let problems = [label_key_problems(key), label_value_problems(value)].concat();
            if !problems.is_empty() {
                let problem = format!(
                    "has {key:?}: {value:?}, which is no label: {}",
                    problems.join("; ")
                );
                errors.push(at(&field).invalid(problem));
            }
        }
    }
}
