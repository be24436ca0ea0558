//! The Deployment of system-upgrade-controller, its settings, and the definition of the Plan.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Cluster, Finding, Severity, count, names};
use refit_api::names::LABEL_CONTROLLER;
use refit_base::go::parse_bool;

/// The variable that each of the two controllers requires.
const NAME: &str = "SYSTEM_UPGRADE_CONTROLLER_NAME";
const LEADER_ELECT: &str = "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT";
const KUBECTL_IMAGE: &str = "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE";
/// Taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The container of a controller in a pod.
pub(super) fn container(pod: &PodSpec) -> Option<&Container> {
    let is_named = |container: &&Container| {
        container
            .env
            .iter()
            .flatten()
            .any(|variable| variable.name == NAME)
    };
    pod.containers.iter().find(is_named)
}

pub(super) fn check(cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let all: Vec<_> = cluster.controllers().collect();
    if all.is_empty() {
        found.push(
            Finding::new(
                Severity::Action,
                "no-controller",
                format!("Namespace {}", cluster.namespace),
                format!("no Deployment here has a container with the variable {NAME}, so permissions and settings cannot be compared"),
            )
            .remedy("name the namespace of system-upgrade-controller with --namespace (Rancher uses cattle-system), or ignore this if you have removed it"),
        );
    }
    if all.len() > 1 {
        let deployments: Vec<_> = all.iter().map(|(one, _)| title(one)).collect();
        found.push(
            Finding::new(
                Severity::Action,
                "two-controllers",
                format!("Namespace {}", cluster.namespace),
                format!(
                    "{} run controllers here, and each would handle every Plan of the namespace",
                    names(&deployments)
                ),
            )
            .remedy("keep one of them"),
        );
    }
    let environment = cluster.environment();
    for (deployment, pod) in &all {
        let mut one = Deployed {
            cluster,
            deployment,
            pod,
            environment: &environment,
            found: &mut found,
        };
        one.check();
    }
    other_controllers(cluster, &mut found);
    definition(cluster, &mut found);
    found
}

struct Deployed<'a> {
    cluster: &'a Cluster,
    deployment: &'a Deployment,
    pod: &'a PodSpec,
    environment: &'a BTreeMap<&'a str, &'a str>,
    found: &'a mut Vec<Finding>,
}

impl Deployed<'_> {
    fn add(&mut self, severity: Severity, rule: &'static str, change: impl Into<String>, remedy: &str) {
        let object = title(self.deployment);
        self.found
            .push(Finding::new(severity, rule, object, change).remedy(remedy));
    }

    fn check(&mut self) {
        self.check_image();
        self.check_replicas();
        self.check_toleration();
        self.check_settings();
        self.check_host_certificates();
        if let Some(owner) = owner(&self.deployment.metadata) {
            self.add(
                Severity::Change,
                "managed-elsewhere",
                format!("{owner} manages it, and would restore the image of system-upgrade-controller"),
                "change the image where the Deployment comes from",
            );
        }
    }

    fn check_image(&mut self) {
        let image = container(self.pod)
            .and_then(|container| container.image.as_deref())
            .unwrap_or_default();
        if is_refit(image) {
            let change = format!("its image is {image}: refit runs here already");
            self.add(Severity::Note, "already-refit", change, "");
            return;
        }
        let change = format!(
            "its image is {image}. refit replaces it, and cordons and drains nodes with that same image, so every node must be able to pull it"
        );
        let remedy =
            "publish refit's image in a registry that all nodes can reach before you change the Deployment";
        self.add(Severity::Note, "image", change, remedy);
    }

    fn check_replicas(&mut self) {
        let spec = &self.deployment.spec;
        let replicas = spec.replicas.unwrap_or(1);
        if replicas == 0 {
            self.add(
                Severity::Note,
                "stopped",
                "it has 0 replicas: nothing handles Plans now",
                "set replicas to 1 or 2 for refit",
            );
        }
        let strategy = spec
            .strategy
            .as_ref()
            .and_then(|strategy| strategy.type_.as_deref());
        // The API server's default, under which the new pod starts before the old one has ended.
        let overlaps = strategy.unwrap_or("RollingUpdate") == "RollingUpdate";
        if !self.elects_leader() && (overlaps || replicas > 1) {
            self.add(
                Severity::Action,
                "no-leader-election",
                format!("leader election is off, and two pods can run at once ({}, strategy {}): both controllers would start nodes during the switch", count(usize::try_from(replicas).unwrap_or_default(), "replica"), strategy.unwrap_or("RollingUpdate")),
                "set SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT to \"true\", or scale to 0 before you change the image",
            );
        }
    }

    fn elects_leader(&self) -> bool {
        let container = container(self.pod);
        let words = container
            .into_iter()
            .flat_map(|one| one.command.iter().chain(&one.args).flatten());
        let mut by_flag = words.filter_map(|word| word.trim_start_matches('-').strip_prefix("leader-elect"));
        let by_flag = by_flag
            .next_back()
            .map(|rest| parse_bool(rest.strip_prefix('=').unwrap_or("true")).unwrap_or_default());
        let by_variable = || {
            self.environment
                .get(LEADER_ELECT)
                .is_some_and(|value| parse_bool(value).unwrap_or_default())
        };
        by_flag.unwrap_or_else(by_variable)
    }

    /// refit releases a node only once it is Ready, so its own pod may have to start on a node that it cordoned.
    fn check_toleration(&mut self) {
        let tolerates = self.pod.tolerations.iter().flatten().any(|toleration| {
            let of_all = toleration.key.as_deref().unwrap_or_default().is_empty();
            of_all || toleration.key.as_deref() == Some(UNSCHEDULABLE)
        });
        let servers = self
            .cluster
            .nodes
            .iter()
            .filter(|node| is_control_plane(&node.metadata))
            .count();
        if !tolerates && servers == 1 {
            self.add(
                Severity::Action,
                "no-toleration",
                "the cluster has one control-plane node, and the pod does not tolerate a cordoned one: if it is recreated while that node is cordoned, nothing uncordons the node",
                "add the toleration of node.kubernetes.io/unschedulable that deploy/deployment.yaml has",
            );
        }
    }

    fn check_settings(&mut self) {
        if let Some(image) = self
            .environment
            .get(KUBECTL_IMAGE)
            .filter(|image| !image.is_empty())
        {
            let change =
                format!("{KUBECTL_IMAGE} is {image}, which refit ignores: it drains with its own image");
            self.add(
                Severity::Note,
                "kubectl-image",
                change,
                "remove the variable once you do not go back",
            );
        }
    }

    fn check_host_certificates(&mut self) {
        let mounted: Vec<&str> = self
            .pod
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| volume.host_path.as_ref())
            .map(|source| source.path.as_str())
            .filter(|path| path.starts_with("/etc/"))
            .collect();
        let polls = self
            .cluster
            .plans
            .iter()
            .any(|plan| plan.spec.channel.is_some() && plan.spec.version.is_none());
        if !mounted.is_empty() && polls {
            self.add(
                Severity::Note,
                "host-certificates",
                format!("it mounts {} of its node for root certificates, which refit does not read: it has the public ones built in", names(&mounted)),
                "if a channel has a certificate of a private authority, name its file with --ca-file, or use spec.channelCASecretRef",
            );
        }
    }
}

/// Jobs in the namespace that belong to a controller of another name.
fn other_controllers(cluster: &Cluster, found: &mut Vec<Finding>) {
    let mut others: Vec<&str> = cluster
        .jobs
        .iter()
        .filter_map(|job| job.metadata.labels.as_ref()?.get(LABEL_CONTROLLER))
        .map(String::as_str)
        .filter(|name| *name != cluster.controller)
        .collect();
    others.sort_unstable();
    others.dedup();
    for name in others {
        found.push(
            Finding::new(
                Severity::Action,
                "other-controller",
                format!("Namespace {}", cluster.namespace),
                format!("a controller named {name} has Jobs here; refit leaves them alone, and both would handle every Plan"),
            )
            .remedy(format!("name that controller with --name {name} if it is the one to replace; otherwise move one of them to another namespace")),
        );
    }
}

fn definition(cluster: &Cluster, found: &mut Vec<Finding>) {
    let Some(definition) = &cluster.definition else {
        return;
    };
    if let Some(owner) = owner(&definition.metadata) {
        found.push(
            Finding::new(
                Severity::Change,
                "definition-managed-elsewhere",
                "CustomResourceDefinition plans.upgrade.cattle.io",
                format!("refit adds its fields to the definition when it starts, and {owner}, which manages it, would remove them"),
            )
            .remedy("put refit's crds/ in that place, and set REFIT_MANAGE_CRD=false"),
        );
    }
}

/// Who restores an object that a user changes.
fn owner(metadata: &ObjectMeta) -> Option<String> {
    let label = |name: &str| metadata.labels.as_ref()?.get(name).cloned();
    let annotation = |name: &str| metadata.annotations.as_ref()?.get(name).cloned();
    if let Some(name) = label("kustomize.toolkit.fluxcd.io/name") {
        return Some(format!("the Kustomization {name} of Flux"));
    }
    if let Some(name) = label("helm.toolkit.fluxcd.io/name") {
        return Some(format!("the HelmRelease {name} of Flux"));
    }
    if let Some(id) = annotation("argocd.argoproj.io/tracking-id") {
        return Some(format!("Argo CD ({id})"));
    }
    if let Some(id) = annotation("objectset.rio.cattle.io/id") {
        return Some(format!("Rancher or K3s ({id})"));
    }
    if label("app.kubernetes.io/managed-by").as_deref() == Some("Helm") {
        let release = annotation("meta.helm.sh/release-name").unwrap_or_default();
        return Some(format!("the Helm release {release}"));
    }
    None
}

/// Whether the last part of the image's name is refit.
fn is_refit(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split(':').next() == Some("refit")
}

pub(super) fn is_control_plane(metadata: &ObjectMeta) -> bool {
    const ROLES: [&str; 4] = ["control-plane", "controlplane", "master", "etcd"];
    let labels = metadata.labels.iter().flatten();
    let mut roles = labels.filter_map(|(name, _)| name.strip_prefix("node-role.kubernetes.io/"));
    roles.any(|role| ROLES.contains(&role))
}

fn title(deployment: &Deployment) -> String {
    let metadata = &deployment.metadata;
    format!(
        "Deployment {}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}
