//! What makes a node run the Plan, and run it again.

use crate::installs::OnDrift;
use crate::invalid::{ErrorList, Invalid, at};
use crate::plan::PlanSpec;
use crate::reboot::RebootWhen;

pub(super) fn check_trigger(spec: &PlanSpec, errors: &mut ErrorList) {
    let Some(trigger) = spec.trigger else { return };
    let (field, trigger) = (at("trigger"), trigger.as_str());
    if spec.reboot.is_none() {
        errors.push(field.invalid(format_args!(
            "is {trigger}, and spec.reboot is absent: write `reboot: {{}}`, or remove the trigger"
        )));
    } else if spec.reboot_when() != RebootWhen::Always {
        let when = spec.reboot_when().as_str();
        let problem = format!("is {trigger}, and spec.reboot.when is {when}: leave it out, or write Always");
        errors.push(field.invalid(problem));
    }
    // Waves end, and requests of nodes do not.
    if spec.waves.is_some() {
        errors.push(field.invalid(format_args!(
            "is {trigger}, and spec.waves is set: a Plan that nodes request again and again has no first and no last wave, so remove \
             one of them"
        )));
    }
    let settle = spec.settle_or_default();
    let waits = [
        ("kubeletVersion", settle.waits_for_kubelet_version()),
        ("osImage", settle.waits_for_os_image()),
    ];
    for (name, _) in waits.into_iter().filter(|(_, is_set)| *is_set) {
        errors.push(field.invalid(format_args!(
            "is {trigger}, and spec.settle.{name} is true: a reboot installs no version, so remove one of them"
        )));
    }
    let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if spec.upgrade_container().is_some() && !is_given(&spec.version) && !is_given(&spec.channel) {
        errors.push(at("upgrade").invalid(
            "is set, and neither spec.version nor spec.channel gives it a version: write one, such as `version: \"1\"`",
        ));
    }
}

pub(super) fn check_repeat(spec: &PlanSpec, errors: &mut ErrorList) {
    if spec.repeat.is_none() {
        return;
    }
    let field = at("repeat");
    if spec.trigger.is_some() {
        let problem = "is set, and so is spec.trigger: the Plan runs again whenever a node requests it, so remove one of them";
        errors.push(field.invalid(problem).hint("remove it"));
    }
    if spec.skips_at_version().is_some() {
        let problem = "is set, and spec.skipWhen marks nodes that have the version as done without a Job, so that no node would run \
                       the Plan again: remove one of them";
        errors.push(field.invalid(problem).hint("remove it"));
    }
}

pub(super) fn on_drift(spec: &PlanSpec) -> Result<(), Invalid> {
    if spec.on_drift == Some(OnDrift::Rerun) && !spec.installs_kubernetes() {
        return Err(at("onDrift").invalid(
            "is Rerun, and the Plan does not install Kubernetes, so that nothing shows that a node has drifted: set `installs: \
             Kubernetes` if it does, or remove onDrift",
        ));
    }
    Ok(())
}
