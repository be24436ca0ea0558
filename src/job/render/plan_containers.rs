//! The containers that a Plan defines.

use refit_api::{ContainerSpec, Hook, HookSpec, PlanSpec};

/// Name of the init container that looks at the node first.
pub const PREFLIGHT: &str = "preflight";
/// Name of the only container of the Job that verifies a node.
pub const VERIFY: &str = "verify";
pub(super) const PREPARE: &str = "prepare";
/// Name of the container that upgrades: the last init container if there is a [sentinel](super::SENTINEL), else the main container.
pub const UPGRADE: &str = "upgrade";

/// The containers that the Plan defines, and their names.
pub(super) fn of_plan(spec: &PlanSpec) -> impl Iterator<Item = (&'static str, &ContainerSpec)> {
    let preflight = spec.preflight.as_deref().map(|preflight| (PREFLIGHT, preflight));
    let prepare = spec.prepare.as_deref().map(|prepare| (PREPARE, prepare));
    let upgrade = spec.upgrade_container().map(|upgrade| (UPGRADE, upgrade));
    let verify = spec.verify.as_deref().map(|verify| (VERIFY, verify));
    preflight.into_iter().chain(prepare).chain(upgrade).chain(verify)
}

/// The containers that run once for each roll-out, and their names.
pub(super) fn of_hooks(spec: &PlanSpec) -> impl Iterator<Item = (&'static str, &HookSpec)> {
    let hooks = Hook::ALL.into_iter();
    hooks.filter_map(|hook| Some((hook.as_str(), hook.spec(spec)?)))
}

/// The Plan with the access to the host that a hook has, by which the functions for Jobs of nodes go.
pub(super) fn with_access(spec: &PlanSpec, hook: &HookSpec) -> PlanSpec {
    PlanSpec {
        host_access: Some(hook.host_access()),
        ..spec.clone()
    }
}
