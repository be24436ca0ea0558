//! Versions that contradict each other: that of the image, the range of the Plan, the version that nodes run.

use std::cmp::Ordering;

use super::Subject;
use super::images::Reference;
use crate::api::selector::Selector;
use crate::api::{Plan, PlanSpec};
use crate::channel::redacted;
use crate::gitops::Rule;
use crate::gitops::objects::Object;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::yaml::{Node, Step};
use crate::version::{Range, Version, distribution_of};

use super::jobs::containers;

/// A node in the files, if its status has a kubelet version.
#[derive(Clone, Debug)]
pub(super) struct Running {
    name: String,
    labels: std::collections::BTreeMap<String, String>,
    version: Version,
}

impl Running {
    /// Reads an item of `kubectl get nodes -o yaml`; `None` for another object.
    pub(super) fn read(object: &Object<'_>) -> Option<Self> {
        if (object.api_version.as_str(), object.kind.as_str()) != ("v1", "Node") {
            return None;
        }
        let path = ["status", "nodeInfo", "kubeletVersion"].map(Step::from);
        let labels = object.node.get("metadata")?.get("labels").and_then(Node::object);
        let labels = labels.iter().flat_map(|labels| &labels.entries);
        Some(Self {
            name: object.metadata("name")?.to_owned(),
            labels: labels
                .filter_map(|entry| Some((entry.key.name.clone(), entry.value.text()?.to_owned())))
                .collect(),
            version: object.node.at(&path)?.text()?.parse().ok()?,
        })
    }
}

impl Subject<'_> {
    pub(super) fn check_versions(&mut self, plan: &Plan, nodes: &[Running]) {
        self.check_distribution(&plan.spec);
        self.check_range(&plan.spec);
        self.check_step(plan, nodes);
    }

    /// Reports a K3s image with an RKE2 version, the reverse, or an image of one of them with another distribution's
    /// version.
    fn check_distribution(&mut self, spec: &PlanSpec) {
        let given = |text: &Option<String>| {
            text.clone()
                .filter(|text| !text.is_empty() && !is_placeholder(text))
        };
        for (container, of) in containers(spec) {
            let Some(program) = distribution_of(&of.image) else {
                continue;
            };
            let (field, found) = if let Some(version) = given(&spec.version) {
                let Ok(parsed) = version.parse::<Version>() else {
                    continue;
                };
                match parsed.builder() {
                    Some(builder) if builder == program => continue,
                    Some(builder) => (
                        "spec.version",
                        format!("{version:?}, a version of {}", name_of(builder)),
                    ),
                    // A plain Kubernetes version has no K3s or RKE2 image.
                    None if parsed.is_semantic()
                        && !parsed.is_prerelease()
                        && !version.contains('+')
                        && Reference::read(&of.image).is_some_and(|image| image.is_name_only) =>
                    {
                        (
                            "spec.version",
                            format!("{version:?}, which has no build such as {}", build_of(program)),
                        )
                    }
                    None => continue,
                }
            } else if let Some(channel) = given(&spec.channel) {
                match distribution_of_channel(&channel) {
                    Some(other) if other != program => (
                        "spec.channel",
                        format!("{:?}, a channel of {}", redacted(&channel), name_of(other)),
                    ),
                    _ => continue,
                }
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
            self.report(Rule::OtherDistribution, field, message, Some(hint));
            return; // one finding for both containers
        }
    }

    fn check_range(&mut self, spec: &PlanSpec) {
        let range = spec
            .version_policy
            .as_ref()
            .and_then(|policy| policy.range.as_deref());
        let Some(range) = range.and_then(|range| range.parse::<Range>().ok()) else {
            return;
        };
        let version = spec.version.as_deref().unwrap_or_default();
        if let Ok(parsed) = version.parse::<Version>()
            && !range.may_have(&parsed)
        {
            let message = format!(
                "spec.version is {version:?}, outside spec.versionPolicy.range {:?}; a pinned version is used all the same",
                range.text()
            );
            let hint = "widen the range, or pin a version within it".to_owned();
            self.report(Rule::VersionOutsideRange, "spec.version", message, Some(hint));
        }
    }

    /// Compares the version in status, or on nodes in the same files, with the Plan's.
    fn check_step(&mut self, plan: &Plan, nodes: &[Running]) {
        let Some(to) = plan
            .spec
            .version
            .as_deref()
            .and_then(|version| version.parse::<Version>().ok())
        else {
            return;
        };
        let status = self.node("status.latestVersion").and_then(Node::text);
        let status = status.and_then(|version| version.parse::<Version>().ok());
        let selector = Selector::new(plan.spec.node_selector.as_ref()).ok();
        let selected = nodes.iter().filter(|node| {
            selector
                .as_ref()
                .is_some_and(|selector| selector.matches(&node.labels))
        });
        let mut from: Vec<(Version, String)> = selected
            .map(|node| {
                (
                    node.version.clone(),
                    format!("node {} runs {}", node.name, node.version.text()),
                )
            })
            .collect();
        from.extend(status.map(|version| {
            let text = format!("the Plan was at {} before", version.text());
            (version, text)
        }));
        let is_older = |from: &Version| to.compare(from) == Ok(Ordering::Less);
        let older = from.iter().find(|(from, _)| is_older(from));
        if let Some((_, what)) = older {
            let message = format!("spec.version is {:?}, a downgrade: {what}", to.text());
            let hint = "Kubernetes does not support downgrades; restore a backup of etcd instead".to_owned();
            self.report(Rule::Downgrade, "spec.version", message, Some(hint));
        }
        let skips = |from: &Version| !is_older(from) && to.minors_from(from).is_some_and(|minors| minors > 1);
        // Dates, and versions of programs other than Kubernetes, may skip minor versions.
        let is_kubernetes = to.builder().is_some()
            || containers(&plan.spec).any(|(_, of)| distribution_of(&of.image).is_some());
        if let Some((_, what)) = from.iter().find(|(from, _)| is_kubernetes && skips(from)) {
            let message = format!(
                "spec.version is {:?}, which skips a minor version: {what}",
                to.text()
            );
            let hint = "upgrade one minor version at a time; spec.versionPolicy.maxMinorSkip enforces that"
                .to_owned();
            self.report(Rule::MinorSkip, "spec.version", message, Some(hint));
        }
    }
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
