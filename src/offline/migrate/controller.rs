//! The Deployment of system-upgrade-controller, its settings, and the definition of the Plan.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::finding::{Finding, Severity, names};
use super::reading::Reading;
use refit_base::go::parse_bool;

/// The variable that each of the two controllers requires.
const NAME: &str = "SYSTEM_UPGRADE_CONTROLLER_NAME";
const LEADER_ELECT: &str = "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT";
/// Taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A Deployment whose pods run one of the two controllers.
struct Deployed<'a> {
    deployment: &'a Deployment,
    pod: &'a PodSpec,
    container: &'a Container,
}

fn deployed<'a>(reading: &'a Reading<'_>) -> Vec<Deployed<'a>> {
    let is_named = |container: &&Container| container.env.iter().flatten().any(|one| one.name == NAME);
    let found = reading.deployments.iter().filter_map(|deployment| {
        let pod = deployment.spec.template.spec.as_ref()?;
        let container = pod.containers.iter().find(is_named)?;
        Some(Deployed {
            deployment,
            pod,
            container,
        })
    });
    found.collect()
}

/// The service account of the controller.
pub(super) fn account(reading: &Reading<'_>) -> Option<String> {
    let found = deployed(reading);
    let account = found.first()?.pod.service_account_name.clone();
    Some(account.unwrap_or_else(|| "default".to_owned()))
}

pub(super) fn none(reading: &Reading<'_>) -> Vec<Finding> {
    if !deployed(reading).is_empty() {
        return Vec::new();
    }
    vec![Finding::new(
        Severity::Action,
        format!("Namespace {}", reading.namespace),
        format!(
            "no Deployment here has a container with the variable {NAME}, so permissions and settings cannot be compared"
        ),
        "name the namespace of system-upgrade-controller with --namespace (Rancher uses cattle-system), or ignore this if you have removed it",
    )]
}

pub(super) fn two(reading: &Reading<'_>) -> Vec<Finding> {
    let (all, here) = (deployed(reading), format!("Namespace {}", reading.namespace));
    let mut found = Vec::new();
    if all.len() > 1 {
        let titles: Vec<_> = all.iter().map(Deployed::title).collect();
        let change = format!(
            "{} run controllers here, and each would handle every Plan of the namespace",
            names(&titles)
        );
        found.push(Finding::new(Severity::Action, &here, change, "keep one of them"));
    }
    let others: BTreeSet<&str> = reading.jobs.iter().map(|(controller, _)| *controller).collect();
    for name in others.into_iter().filter(|name| *name != reading.controller) {
        let change = format!(
            "a controller named {name} has Jobs here; refit leaves them alone, and both would handle every Plan"
        );
        let remedy = format!(
            "name that controller with --name {name} if it is the one to replace; otherwise move one of them to another namespace"
        );
        found.push(Finding::new(Severity::Action, &here, change, remedy));
    }
    for one in all {
        let spec = &one.deployment.spec;
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        // The API server's default, under which the new pod starts before the old one has ended.
        let strategy = strategy
            .and_then(|strategy| strategy.type_.as_deref())
            .unwrap_or("RollingUpdate");
        if !one.elects_leader(reading) && (strategy == "RollingUpdate" || replicas > 1) {
            let change = format!(
                "leader election is off, and two pods can run at once (replicas {replicas}, strategy {strategy}): both controllers would start nodes during the switch"
            );
            let remedy = format!("set {LEADER_ELECT} to \"true\", or scale to 0 before you change the image");
            found.push(Finding::new(Severity::Action, one.title(), change, remedy));
        }
    }
    found
}

/// refit releases a node only once it is Ready, so its own pod may have to start on a node that it cordoned.
pub(super) fn toleration(reading: &Reading<'_>) -> Vec<Finding> {
    if reading
        .nodes
        .iter()
        .filter(|node| node.is_control_plane())
        .count()
        != 1
    {
        return Vec::new();
    }
    let mut all = deployed(reading);
    all.retain(|one| {
        let mut tolerations = one.pod.tolerations.iter().flatten();
        !tolerations.any(|toleration| matches!(toleration.key.as_deref(), None | Some("" | UNSCHEDULABLE)))
    });
    let finding = |one: &Deployed<'_>| {
        Finding::new(
            Severity::Action,
            one.title(),
            "the cluster has one control-plane node, and the pod does not tolerate a cordoned one: if it is recreated while that node is cordoned, nothing uncordons the node",
            "add the toleration of node.kubernetes.io/unschedulable that deploy/deployment.yaml has",
        )
    };
    all.iter().map(finding).collect()
}

pub(super) fn owners(reading: &Reading<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for one in deployed(reading) {
        if let Some(owner) = owner(&one.deployment.metadata) {
            let change =
                format!("{owner} manages it, and would restore the image of system-upgrade-controller");
            let remedy = "change the image where the Deployment comes from";
            found.push(Finding::new(Severity::Change, one.title(), change, remedy));
        }
    }
    if let Some(owner) = reading.definition.and_then(owner) {
        found.push(Finding::new(
            Severity::Change,
            "CustomResourceDefinition plans.upgrade.cattle.io",
            format!("refit adds its fields to the definition when it starts, and {owner} which manages it, would remove them"),
            "put refit's crds/ in that place, and set REFIT_MANAGE_CRD=false",
        ));
    }
    found
}

impl Deployed<'_> {
    fn title(&self) -> String {
        let metadata = &self.deployment.metadata;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!(
            "Deployment {}/{}",
            text(&metadata.namespace),
            text(&metadata.name)
        )
    }

    fn elects_leader(&self, reading: &Reading<'_>) -> bool {
        let words = self
            .container
            .command
            .iter()
            .chain(&self.container.args)
            .flatten();
        let mut flags = words.filter_map(|word| word.trim_start_matches('-').strip_prefix("leader-elect"));
        let by_flag = flags
            .next_back()
            .map(|rest| rest.strip_prefix('=').unwrap_or("true"));
        let value = by_flag.or_else(|| self.variable(reading, LEADER_ELECT));
        value.is_some_and(|value| parse_bool(value).unwrap_or_default())
    }

    /// A variable of its environment. `env` overrides `envFrom`, and a later source an earlier one (`Container.envFrom`).
    fn variable<'a>(&'a self, reading: &'a Reading<'_>, name: &str) -> Option<&'a str> {
        let own = self.container.env.iter().flatten();
        let own = own
            .filter(|one| one.name == name)
            .find_map(|one| one.value.as_ref());
        let of_maps = || {
            let mut sources = self.container.env_from.iter().flatten().rev();
            sources.find_map(|source| {
                let map = Some(&source.config_map_ref.as_ref()?.name);
                let mut maps = reading.config_maps.iter();
                let map = maps.find(|known| known.metadata.name.as_ref() == map)?;
                map.data.as_ref()?.get(name)
            })
        };
        own.or_else(of_maps).map(String::as_str)
    }
}

/// Labels and annotations of those who restore an object that a user changes.
const OWNERS: [(&str, &str); 5] = [
    ("kustomize.toolkit.fluxcd.io/name", "Flux, with the Kustomization"),
    ("helm.toolkit.fluxcd.io/name", "Flux, with the HelmRelease"),
    ("argocd.argoproj.io/tracking-id", "Argo CD, as"),
    ("objectset.rio.cattle.io/id", "Rancher or K3s, as"),
    ("meta.helm.sh/release-name", "Helm, with the release"),
];

fn owner(metadata: &ObjectMeta) -> Option<String> {
    let value = |name: &str| {
        let mut maps = metadata.labels.iter().chain(&metadata.annotations);
        maps.find_map(|map| map.get(name))
    };
    OWNERS
        .iter()
        .find_map(|(name, owner)| Some(format!("{owner} {},", value(name)?)))
}
