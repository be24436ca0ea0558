//! Plans whose version a patch of Kustomize sets: a version in the Plan itself would have no effect.

use jiff::Timestamp;

use super::decide::{Channels, Decision, wanted};
use super::flags::Flags;
use super::report::{Outcome, Result};
use refit_offline::gitops::Source;
use refit_offline::gitops::pin::PlanInFile;

/// Gives partial Plans, which are patches in files of their own, the channel and the policy of the Plan that they patch.
pub(super) fn complete(sources: &[Source], found: &mut [Vec<PlanInFile>]) {
    let patched: Vec<PlanInFile> = found
        .iter()
        .flatten()
        .filter(|plan| !plan.patched.is_empty())
        .cloned()
        .collect();
    for (source, plans) in sources.iter().zip(found) {
        for plan in plans.iter_mut().filter(|plan| plan.channel.is_none()) {
            let is_by = |of: &&PlanInFile| {
                let mut set = of.patched.iter().filter(|set| set.is_partial_plan);
                set.any(|set| set.file == source.name && set.line == plan.line)
            };
            if let Some(of) = patched.iter().find(is_by) {
                plan.channel.clone_from(&of.channel);
                plan.channel_placeholder.clone_from(&of.channel_placeholder);
                plan.policy.clone_from(&of.policy);
                plan.installed = of.installed;
            }
        }
    }
}

/// What happens to a Plan whose version patches set: it stays as it is, and patches that refit does not edit and that
/// are outdated are an error.
pub(super) fn decide(
    flags: &Flags,
    source: &Source,
    plan: PlanInFile,
    channels: &Channels,
    now: Timestamp,
) -> Outcome {
    let mut outcome = Outcome::new(source, plan);
    let places: Vec<_> = outcome
        .plan
        .patched
        .iter()
        .map(|set| format!("{} ({})", set.place(), set.version))
        .collect();
    let mut outdated = Vec::new();
    for set in outcome.plan.patched.iter().filter(|set| !set.is_partial_plan) {
        let with_version = PlanInFile {
            version: Some(set.version.clone()),
            other: None,
            ..outcome.plan.clone()
        };
        match wanted(flags, &with_version, channels, now) {
            Decision::Take(version) => outdated.push(format!("write {version} in {}", set.place())),
            Decision::Fail(why) => outdated.push(format!("{}: {why}", set.place())),
            Decision::Same | Decision::Keep(..) => {}
        }
    }
    outcome.why = Some(format!(
        "a patch of Kustomize sets its version: {}",
        places.join(", ")
    ));
    if !outdated.is_empty() {
        outcome.result = Result::Failed;
        let why = format!(
            "a patch of Kustomize sets its version, and refit does not edit this patch: {}",
            outdated.join("; ")
        );
        outcome.why = Some(why);
    }
    outcome
}
