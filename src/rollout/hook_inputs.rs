//! What a Plan says about its hooks at a version.

use refit_api::{Hook, PlanSpec};
use refit_facts::Text;
use refit_job::inputs::hook_inputs;

/// Digests by which the names of the Jobs of hooks differ; `None` of a hook that the Plan does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HookInputs([Option<Text>; 2]);

impl HookInputs {
    pub(super) fn of(spec: &PlanSpec, version: &str) -> Self {
        let inputs = |hook| hook_inputs(spec, hook, version).map(Text::from);
        Self(Hook::ALL.map(inputs))
    }

    pub(super) fn get(&self, hook: Hook) -> Option<&Text> {
        self.0[hook as usize].as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}
