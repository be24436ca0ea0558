//! Versions that contradict each other: that of the image, the range of the Plan, the version that nodes run.

use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

use super::running::Running;
use super::subject::Subject;
use crate::gitops::placeholder::given;
use crate::gitops::reference::Reference;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::Node;
use refit_api::prepare::Prepare;
use refit_api::selector::Selector;
use refit_api::{Plan, PlanSpec, redacted};
use refit_base::version::tag::{check, munge};
use refit_base::version::{Version, distribution_of, kubelet_version};

use super::jobs::containers;

impl Subject<'_> {
    pub(super) fn check_versions(&mut self, plan: &Plan, nodes: &[&Running]) {
        let selector = Selector::new(plan.spec.node_selector.as_ref()).ok();
        let is_selected = |node: &Running| selector.as_ref().is_some_and(|it| it.matches(&node.labels));
        let selected: Vec<_> = nodes.iter().copied().filter(|node| is_selected(node)).collect();
        self.check_spelling(&plan.spec);
        self.check_distribution(&plan.spec);
        self.check_candidate(&plan.spec);
        self.check_nodes(&plan.spec, &selected);
        self.check_step(plan, &selected);
    }

    /// Reports a version of K3s or RKE2 whose spelling no tag of an image has.
    fn check_spelling(&mut self, spec: &PlanSpec) {
        let Some(version) = spec
            .version
            .as_deref()
            .filter(|version| check(&munge(version)).is_ok())
        else {
            return;
        };
        let becomes_tag = |image: &str| {
            distribution_of(image).is_some() && Reference::read(image).is_some_and(|image| image.is_name_only)
        };
        let hint = match release_of(version) {
            Some(release) if munge(&release) != munge(version) => format!("write `{release}`"),
            None if lacks_patch(version) => "it lacks the patch version, as v1.34.2+k3s1 has it".to_owned(),
            _ => return,
        };
        if containers(spec).any(|(_, of)| becomes_tag(&of.image)) {
            let message = format!("spec.version is {version:?}, and no release has that name");
            self.report(Rule::NoRelease, "spec.version", message, Some(hint));
        }
    }

    /// Reports a K3s image with an RKE2 version, the reverse, or an image of one of them with another distribution's
    /// version.
    fn check_distribution(&mut self, spec: &PlanSpec) {
        let channel = given(spec.channel.as_ref());
        let of_another_channel = |program: &str| {
            let channel = channel.as_deref()?;
            let other = distribution_of_channel(channel).filter(|other| *other != program)?;
            let what = format!("{:?}, a channel of {}", redacted(channel), name_of(other));
            Some(("spec.channel", what))
        };
        for (container, of) in containers(spec) {
            let Some(program) = distribution_of(&of.image) else {
                continue;
            };
            let (field, found) = if let Some(version) = given(spec.version.as_ref()) {
                let Ok(parsed) = version.parse::<Version>() else {
                    continue;
                };
                match parsed.builder() {
                    // `refit pin` asks the channel, and would never find a version.
                    Some(builder) if builder == program => match of_another_channel(program) {
                        Some(found) => found,
                        None => continue,
                    },
                    Some(builder) => (
                        "spec.version",
                        format!("{version:?}, a version of {}", name_of(builder)),
                    ),
                    // A plain Kubernetes version has no K3s or RKE2 image.
                    None if !parsed.is_prerelease()
                        && parsed.minor().is_some()
                        && release_of(&version).is_none()
                        && !version.contains(['+', '-'])
                        && Reference::read(&of.image).is_some_and(|image| image.is_name_only) =>
                    {
                        (
                            "spec.version",
                            format!("{version:?}, which has no build such as {}", build_of(program)),
                        )
                    }
                    None => continue,
                }
            } else if let Some(found) = of_another_channel(program) {
                found
            } else {
                continue;
            };
            let image = format!("spec.{container}.image");
            let message = format!(
                "{image} is {:?}, an image of {}, but {field} is {found}",
                of.image,
                name_of(program)
            );
            let hint = format!(
                "give the Plan a version of {} such as v1.33.4{}, or change the image",
                name_of(program),
                build_of(program)
            );
            self.report(Rule::NoRelease, field, message, Some(hint));
            return; // one finding for both containers
        }
    }

    /// Reports what waits for kubelets of a version that none of them reports.
    fn check_candidate(&mut self, spec: &PlanSpec) {
        let version = spec.version.as_deref().unwrap_or_default();
        let reported = kubelet_version(version);
        if reported == version {
            return;
        }
        let message = |what: &str| {
            format!(
                "{what} waits in vain for kubelets of version {version:?}: those of RKE2 report {reported:?}, without the \
                 release candidate"
            )
        };
        if let Some(Prepare::WaitsFor(plan)) = spec.prepare.as_deref().and_then(Prepare::of) {
            let hint = if spec.depends_on.iter().flatten().any(|other| other.name == plan) {
                "remove spec.prepare; spec.dependsOn waits for the Plan".to_owned()
            } else {
                format!("remove spec.prepare, and name {plan} in spec.dependsOn")
            };
            self.report(
                Rule::PreparePlan,
                "spec.prepare",
                message("spec.prepare"),
                Some(hint),
            );
        }
        let settle = spec.settle.as_ref();
        if settle.and_then(|settle| settle.kubelet_version) == Some(true) {
            let field = "spec.settle.kubeletVersion";
            let hint = "write `false`, until the Plan has a release".to_owned();
            self.report(Rule::PreparePlan, field, message(field), Some(hint));
        }
    }

    /// Compares the distribution of nodes in the same files with that of the image.
    fn check_nodes(&mut self, spec: &PlanSpec, selected: &[&Running]) {
        const FIELD: &str = "spec.upgrade.image";
        let image = spec.upgrade_image();
        let Some(program) = distribution_of(image) else {
            return;
        };
        // A version without a build may be of any distribution.
        let other = |node: &&&Running| node.version.builder().is_some_and(|builder| builder != program);
        let Some(node) = selected.iter().find(other) else {
            return;
        };
        let message = format!(
            "{FIELD} is {image:?}, an image of {}, but node {} runs {}",
            name_of(program),
            node.name,
            node.version.text()
        );
        let hint =
            "use the image and a version of the distribution that the nodes run, or select other nodes";
        self.report(Rule::NoRelease, FIELD, message, Some(hint.to_owned()));
    }

    /// Compares the version in status, or on nodes in the same files, with the Plan's.
    fn check_step(&mut self, plan: &Plan, selected: &[&Running]) {
        let version = plan.spec.version.as_deref().unwrap_or_default();
        // A release candidate of RKE2 installs the kubelet of the release.
        let reported = kubelet_version(version).parse::<Version>();
        let (Ok(to), Ok(reported)) = (version.parse::<Version>(), reported) else {
            return;
        };
        let status = self.node("status.latestVersion").and_then(Node::text);
        let status = status.and_then(|version| version.parse::<Version>().ok());
        // Other versions, as of Talos, or dates, are none of kubelets, and may skip minor versions.
        let is_kubernetes = to.builder().is_some() || plan.spec.installs_kubernetes();
        let comparable = if is_kubernetes { selected } else { &[] };
        let mut steps: Vec<(&Version, Version, String)> = comparable
            .iter()
            .map(|node| {
                (
                    &reported,
                    node.version.clone(),
                    format!("node {} runs {}", node.name, node.version.text()),
                )
            })
            .collect();
        steps.extend(status.map(|version| {
            let text = format!("the Plan was at {} before", version.text());
            (&to, version, text)
        }));
        let is_older = |to: &Version, from: &Version| to.compare(from) == Ok(Ordering::Less);
        let older = steps.iter().find(|(to, from, _)| is_older(to, from));
        if let Some((.., what)) = older {
            let message = format!("spec.version is {:?}, a downgrade: {what}", to.text());
            let hint = "Kubernetes does not support downgrades; restore a backup of etcd instead";
            let hint = is_kubernetes.then(|| hint.to_owned());
            self.report(Rule::VersionStep, "spec.version", message, hint);
        }
        let skips = |to: &Version, from: &Version| {
            !is_older(to, from) && to.minors_from(from).is_some_and(|minors| minors > 1)
        };
        let skipping = steps
            .iter()
            .find(|(to, from, _)| is_kubernetes && skips(to, from));
        if let Some((.., what)) = skipping {
            let message = format!(
                "spec.version is {:?}, which skips a minor version: {what}",
                to.text()
            );
            let hint = "upgrade one minor version at a time; spec.versionPolicy.maxMinorSkip enforces that"
                .to_owned();
            self.report(Rule::VersionStep, "spec.version", message, Some(hint));
        }
    }
}

/// The release of K3s or RKE2 that is meant: `v1.34.2+k3s1` for `1.34.2+K3S1`, `v1.34.2.k3s1` and the like.
pub(super) fn release_of(version: &str) -> Option<String> {
    static RELEASE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?i)^v*\.?(\d+\.\d+\.\d+)(-(?:alpha|beta|rc)\.?\d+)?(?:[ +._-]|%2B)*(k3s|rke2)[.-]?r?(\d*)$",
        )
        .ok()
    });
    let is_around = |c: char| c.is_whitespace() || "\"'`\u{2018}\u{2019}\u{201c}\u{201d},;.".contains(c);
    let found = RELEASE.as_ref()?.captures(version.trim_matches(is_around))?;
    let part = |index| found.get(index).map_or("", |part| part.as_str());
    let (numbers, before, build) = (part(1), part(2).to_lowercase(), part(4));
    let builder = match part(3).to_lowercase().as_str() {
        "rke2" => "rke2r",
        _ => "k3s",
    };
    let build = if build.is_empty() { "1" } else { build };
    Some(format!("v{numbers}{before}+{builder}{build}"))
}

/// Whether this is `v1.34+k3s1` or the like, which is a minor version with a build.
fn lacks_patch(version: &str) -> bool {
    static MINOR: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?i)^v?\d+\.\d+[+-](k3s|rke2r)\d+$").ok());
    MINOR.as_ref().is_some_and(|minor| minor.is_match(version))
}

/// The distribution whose channel this is, judged by its URL.
fn distribution_of_channel(channel: &str) -> Option<&'static str> {
    let of_k3s = channel.contains("update.k3s.io")
        || channel.contains("k3s-io/k3s")
        || channel.contains("rancher/k3s-upgrade");
    let of_rke2 = channel.contains("update.rke2.io") || channel.contains("rancher/rke2");
    match (of_k3s, of_rke2) {
        (true, false) => Some("k3s"),
        (false, true) => Some("rke2"),
        _ => None,
    }
}

fn name_of(program: &str) -> &str {
    match program {
        "k3s" => "K3s",
        "rke2" => "RKE2",
        other => other,
    }
}

fn build_of(program: &str) -> &'static str {
    if program == "rke2" { "+rke2r1" } else { "+k3s1" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_known_however_its_version_is_misspelt() {
        for version in [
            "v1.34.2+k3s1",
            "1.34.2+k3s1",
            "V1.34.2+K3S1",
            "v1.34.2-k3s1",
            "v1.34.2.k3s1",
            "v1.34.2_k3s1",
            "v1.34.2k3s1",
            "v1.34.2+k3s",
            "v1.34.2%2Bk3s1",
            "v1.34.2 +k3s1",
            "v.1.34.2+k3s1",
            "vv1.34.2+k3s1",
        ] {
            assert_eq!(release_of(version).as_deref(), Some("v1.34.2+k3s1"), "{version}");
        }
        assert_eq!(
            release_of("1.34.2-rc1+rke2r3").as_deref(),
            Some("v1.34.2-rc1+rke2r3")
        );
        for version in [
            "v1.34.2",
            "v1.34+k3s1",
            "v1.34.2+k3s1-amd64",
            "latest",
            "22.04",
            "k3s1",
            ">=1.34.2+k3s1",
            "v1.34.2+k3s1, v1.34.3+k3s1",
            "https://update.k3s.io/v1-release/channels/stable",
        ] {
            assert_eq!(release_of(version), None, "{version}");
        }
    }
}
