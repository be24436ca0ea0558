//! Plans whose version a patch of Kustomize sets: a version in the Plan itself would have no effect.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;

use super::decide::{Channels, Decision, wanted};
use super::flags::Flags;
use super::report::{Outcome, Result};
use refit_offline::gitops::Source;
use refit_offline::gitops::kustomize::is_patch;
use refit_offline::gitops::overlay::SetTo;
use refit_offline::gitops::pin::{PatchedImage, PlanInFile, fixed_images};
use refit_offline::gitops::yaml::Step;

/// Removes patches that set neither a version nor a channel: the version of their Plan is elsewhere.
pub(super) fn remove_without_version(
    patches: &BTreeSet<PathBuf>,
    sources: &[Source],
    found: &mut [Vec<PlanInFile>],
    notes: &mut Vec<String>,
) {
    let of_patches = sources.iter().zip(found);
    for (source, plans) in of_patches.filter(|(source, _)| is_patch(patches, source)) {
        plans.retain(|plan| {
            let has_version = plan.version.is_some() || plan.other.is_some() || plan.channel.is_some();
            let fixed = fixed_images(source, plan).filter(|_| !has_version);
            notes.extend(fixed.map(|(line, image)| {
                format!(
                    "{}:{line}: this patch of Kustomize sets the image {image}, which refit does not change; change it with the \
                     version of its Plan",
                    source.name
                )
            }));
            has_version
        });
    }
}

/// Gives partial Plans, which are patches in files of their own, what they lack of the Plans that they patch: the channel,
/// the policy, the images, and what is installed.
pub(super) fn complete(sources: &[Source], found: &mut [Vec<PlanInFile>]) {
    let all = sources.iter().zip(found.iter().cloned());
    let all = all.flat_map(|(source, plans)| plans.into_iter().map(move |plan| (source, plan)));
    let patched: Vec<(&Source, PlanInFile)> = all.filter(|(_, plan)| !plan.patched.all.is_empty()).collect();
    for (source, plans) in sources.iter().zip(found) {
        for plan in plans {
            let is_by = |(_, of): &&(&Source, PlanInFile)| {
                let mut set = of.patched.all.iter().filter(|set| set.is_partial_plan);
                set.any(|set| set.file == source.name && set.line == plan.line)
            };
            let of: Vec<&(&Source, PlanInFile)> = patched.iter().filter(is_by).collect();
            complete_patch(plan, &of);
        }
    }
}

fn complete_patch(plan: &mut PlanInFile, of: &[&(&Source, PlanInFile)]) {
    let Some((_, first)) = of.first() else { return };
    let others = || of.iter().skip(1).map(|(_, other)| other);
    let differs = if plan.channel.is_none() && others().any(|other| other.channel != first.channel) {
        Some("channels")
    } else if others().any(|other| other.policy != first.policy) {
        Some("version policies")
    } else {
        None
    };
    if plan.channel.is_none() {
        let with_channel = of.iter().map(|(_, of)| of).find(|of| of.channel.is_some());
        let with_channel = with_channel.unwrap_or(first);
        plan.channel.clone_from(&with_channel.channel);
        plan.channel_placeholder
            .clone_from(&with_channel.channel_placeholder);
    }
    if let (Ok(own), Ok(base)) = (&mut plan.policy, &first.policy) {
        own.complete(base);
    } else if plan.policy.is_ok() {
        plan.policy.clone_from(&first.policy);
    }
    if let Some(differs) = differs {
        let names: Vec<&str> = of.iter().map(|(_, of)| of.title.as_str()).collect();
        plan.policy = Err(format!(
            "it is a patch of the Plans {}, whose {differs} differ; give each a patch of its own, or the version with --to",
            names.join(" and ")
        ));
    }
    let container = |path: &[Step]| path.iter().rev().nth(1).cloned();
    let own: Vec<_> = plan.images.iter().map(|(path, _)| container(path)).collect();
    for (source, of) in of {
        for (path, image) in of
            .images
            .iter()
            .filter(|(path, _)| !own.contains(&container(path)))
        {
            let line = of.line_of(source, path);
            plan.patched_images.push(PatchedImage {
                image: image.clone(),
                place: format!("{}:{line}", source.name),
            });
        }
    }
    plan.installed = of.iter().find_map(|(_, of)| of.installed);
    plan.installs_kubernetes = of.iter().any(|(_, of)| of.installs_kubernetes);
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
    let mut places = Vec::new();
    let mut outdated = Vec::new();
    for change in &outcome.plan.patched.all {
        let place = change.place();
        places.push(format!("{place} ({})", change.to));
        if change.is_partial_plan {
            continue;
        }
        let plan = match &change.to {
            SetTo::Text(version) => outcome.plan.with_version(version),
            SetTo::NoText(written) => {
                outdated.push(format!("{place} has {written}, which must be text"));
                continue;
            }
            // It may be the newest there.
            SetTo::Unknown if flags.to.is_none() => continue,
            SetTo::Unknown | SetTo::Nothing => outcome.plan.clone(),
        };
        match (wanted(flags, &plan, channels, now), &change.to) {
            (Decision::Same | Decision::Keep(..), _) => {}
            // Of the other overlays, the version has an effect.
            (Decision::Take(_), SetTo::Nothing) if outcome.plan.patched.is_partial => {}
            (Decision::Fail(why), _) => outdated.push(format!("{place}: {why}")),
            (Decision::Take(version), SetTo::Nothing) => {
                outdated.push(format!("{version} has no effect, since {place} removes it"));
            }
            (Decision::Take(version), SetTo::Unknown) => {
                outdated.push(format!("write {version} where {place} takes it from"));
            }
            (Decision::Take(version), _) => outdated.push(format!("write {version} in {place}")),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use refit_base::version::Range;
    use refit_offline::gitops::kustomize::attach;
    use refit_offline::gitops::pin::plans;

    use super::*;

    #[test]
    fn a_patch_gets_what_it_lacks_of_its_plan() {
        let plan = |spec: &str| {
            format!(
                "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: server}}\nspec: {spec}\n"
            )
        };
        let base = plan(
            "{channel: a, versionPolicy: {range: 1.34.x, maxMinorSkip: 1}, upgrade: {image: rancher/k3s-upgrade}}",
        );
        let kustomization = "resources: [base.yaml]\npatches: [{path: patch.yaml}]\n".to_owned();
        let image = &["rancher/k3s-upgrade"][..];
        for (patch, channel, limit, images) in [
            ("{version: v1.34.1+k3s1}", "a", 1, image),
            ("{version: v1.34.1+k3s1, channel: b}", "b", 1, image),
            (
                "{version: v1.34.1+k3s1, versionPolicy: {maxMinorSkip: 2}}",
                "a",
                2,
                image,
            ),
            ("{version: v1.34.1+k3s1, upgrade: {image: i}}", "a", 1, &[]),
        ] {
            let files = [
                ("base.yaml", base.clone()),
                ("kustomization.yaml", kustomization.clone()),
                ("patch.yaml", plan(patch)),
            ];
            let mut sources = files.map(|(name, text)| Source::new(name, Some(Path::new(name)), text));
            attach(&mut sources);
            let mut found = sources.each_ref().map(plans);
            complete(&sources, &mut found);
            let [_, _, of_patch] = found;
            let [patch] = of_patch.as_slice() else {
                panic!("{of_patch:?}")
            };
            let policy = patch.policy.as_ref().unwrap();
            assert_eq!(
                (patch.channel.as_deref(), policy.max_minor_skip),
                (Some(channel), Some(limit))
            );
            assert_eq!(policy.range.as_ref().map(Range::text), Some("1.34.x"));
            let places = patch.patched_images.iter().map(|of| (&*of.image, &*of.place));
            let expected = images.iter().map(|image| (*image, "base.yaml:4"));
            assert!(places.eq(expected), "{patch:?}");
        }
    }
}
