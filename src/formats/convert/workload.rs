//! What is read of a DaemonSet or a Deployment: which program it runs, with which flags, and on which nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, Debug)]
pub(super) struct Workload {
    spec: WorkloadSpec,
}

#[derive(Deserialize, Debug)]
struct WorkloadSpec {
    template: PodTemplateSpec,
}

/// A program whose flags can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Kured,
    FlatcarAgent,
    FlatcarOperator,
}

impl Program {
    /// By the command of a container, or by its image.
    fn of(container: &Container) -> Option<Self> {
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let program = container.command.iter().chain(&container.args).flatten().next();
        match program.map(|path| base(path)).as_deref() {
            Some("kured") => return Some(Self::Kured),
            Some("update-agent") => return Some(Self::FlatcarAgent),
            Some("update-operator") => return Some(Self::FlatcarOperator),
            _ => {}
        }
        let image = base(container.image.as_deref().unwrap_or_default());
        let image = image.split([':', '@']).next().unwrap_or_default();
        // Agent and operator of Flatcar have one image, so only the command distinguishes them.
        (image == "kured").then_some(Self::Kured)
    }
}

impl Workload {
    /// The known program that it runs, and the container of it.
    pub(super) fn program(&self) -> Option<(Program, &Container)> {
        let containers = &self.spec.template.spec.as_ref()?.containers;
        let mut known = containers.iter().filter_map(|one| Some((Program::of(one)?, one)));
        known.next()
    }

    /// The nodes that its pods may be on; all, if it does not say.
    pub(super) fn node_selector(&self) -> LabelSelector {
        let pod = self.spec.template.spec.as_ref();
        let labels = pod.and_then(|pod| pod.node_selector.clone());
        LabelSelector {
            match_labels: labels.filter(|labels| !labels.is_empty()),
            ..LabelSelector::default()
        }
    }

    /// Whether more than labels says on which nodes its pods may be.
    pub(super) fn has_affinity(&self) -> bool {
        let pod = self.spec.template.spec.as_ref();
        let affinity = pod.and_then(|pod| pod.affinity.as_ref());
        affinity.is_some_and(|affinity| affinity.node_affinity.is_some())
    }

    pub(super) fn tolerations(&self) -> Option<Vec<Toleration>> {
        let tolerations = self.spec.template.spec.as_ref()?.tolerations.clone();
        tolerations.filter(|tolerations| !tolerations.is_empty())
    }

    /// The path on the host of a path in a container, as far as a mount says so.
    pub(super) fn on_host(&self, container: &Container, path: &str) -> String {
        let volumes = self
            .spec
            .template
            .spec
            .iter()
            .flat_map(|pod| pod.volumes.iter().flatten());
        let hosts: BTreeMap<&str, &str> = volumes
            .filter_map(|volume| Some((volume.name.as_str(), volume.host_path.as_ref()?.path.as_str())))
            .collect();
        let mounts = container.volume_mounts.iter().flatten();
        let mut found = mounts
            .filter_map(|mount| {
                let rest = path.strip_prefix(mount.mount_path.trim_end_matches('/'))?;
                let host = hosts.get(mount.name.as_str())?;
                let is_below = rest.is_empty() || rest.starts_with('/');
                is_below.then(|| {
                    (
                        mount.mount_path.len(),
                        format!("{}{rest}", host.trim_end_matches('/')),
                    )
                })
            })
            .collect::<Vec<_>>();
        // The longest mount path wins: it is mounted over the others.
        found.sort();
        found.pop().map_or_else(|| path.to_owned(), |(_, path)| path)
    }
}

/// Whether an object that cannot be read is about one of the programs.
pub(super) fn is_mentioned(object: &Value) -> bool {
    let text = object.to_string();
    ["kured", "update-agent", "update-operator"]
        .iter()
        .any(|name| text.contains(name))
}

/// The words after the program's name.
pub(super) fn words(container: &Container) -> Vec<String> {
    let command = container.command.iter().flatten().skip(1);
    command.chain(container.args.iter().flatten()).cloned().collect()
}

/// The variables of a container that have a value in the object itself.
pub(super) fn environment(container: &Container) -> impl Iterator<Item = (&str, &str)> {
    let all = container.env.iter().flatten();
    all.filter_map(|variable| Some((variable.name.as_str(), variable.value.as_deref()?)))
}
