//! What changes when refit replaces system-upgrade-controller on a cluster: `refit migrate --check`.
//!
//! Pure: the objects of the cluster and the time are arguments. Each rule compares what the cluster has with a row of
//! the deviations in `docs/compatibility.md`.

mod controller;
mod job;
pub mod offers;
pub mod permissions;
mod plan;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PodSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;

use refit_api::Plan;

/// The objects that a check looks at.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Namespace of system-upgrade-controller and of its Plans.
    pub namespace: String,
    /// Name of system-upgrade-controller: label of its Jobs, name of its Lease.
    pub controller: String,
    pub deployments: Vec<Deployment>,
    pub config_maps: Vec<ConfigMap>,
    pub plans: Vec<Plan>,
    pub nodes: Vec<Node>,
    pub jobs: Vec<Job>,
    pub definition: Option<CustomResourceDefinition>,
    pub cluster_roles: Vec<ClusterRole>,
    pub cluster_role_bindings: Vec<ClusterRoleBinding>,
    pub roles: Vec<Role>,
    pub role_bindings: Vec<RoleBinding>,
    /// Objects that cannot be read, with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Do something before the switch: otherwise nodes wait, or two controllers work at once.
    Action,
    /// refit will do something else than system-upgrade-controller: decide whether that is wanted.
    Change,
    /// Nothing is to be done.
    Note,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Change => "change",
            Self::Note => "note",
        }
    }
}

/// A difference, in the three parts of a message: which object, what changes, what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Name of the rule, in kebab case.
    pub rule: &'static str,
    /// Kind, namespace and name: `Plan system-upgrade/server`.
    pub object: String,
    pub change: String,
    /// Empty if nothing is to be done.
    pub remedy: String,
}

impl Finding {
    fn new(
        severity: Severity,
        rule: &'static str,
        object: impl fmt::Display,
        change: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            rule,
            object: object.to_string(),
            change: change.into(),
            remedy: String::new(),
        }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl Cluster {
    /// Deployments of the namespace whose pods run system-upgrade-controller or refit.
    fn controllers(&self) -> impl Iterator<Item = (&Deployment, &PodSpec)> {
        self.deployments.iter().filter_map(|deployment| {
            let pod = deployment.spec.template.spec.as_ref()?;
            controller::container(pod).map(|_| (deployment, pod))
        })
    }

    /// The service account of the controller.
    pub fn account(&self) -> Option<String> {
        let (_, pod) = self.controllers().next()?;
        Some(
            pod.service_account_name
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
        )
    }

    /// The controller's environment: that of its `ConfigMap`s, then its own.
    fn environment(&self) -> BTreeMap<&str, &str> {
        let mut found = BTreeMap::new();
        let container = self
            .controllers()
            .next()
            .and_then(|(_, pod)| controller::container(pod));
        let Some(container) = container else {
            return found;
        };
        // As in a pod: a later source overrides an earlier one, and `env` overrides `envFrom` (`Container.envFrom`).
        for source in container.env_from.iter().flatten() {
            let name = source.config_map_ref.as_ref().map(|source| source.name.as_str());
            let map = self
                .config_maps
                .iter()
                .find(|map| map.metadata.name.as_deref() == name);
            let data = map.and_then(|map| map.data.as_ref()).into_iter().flatten();
            found.extend(data.map(|(name, value)| (name.as_str(), value.as_str())));
        }
        for variable in container.env.iter().flatten() {
            if let Some(value) = &variable.value {
                found.insert(&variable.name, value);
            }
        }
        found
    }
}

/// All differences but those of permissions, the most urgent first.
pub fn check(cluster: &Cluster, now: Timestamp) -> Vec<Finding> {
    let mut found = controller::check(cluster);
    for (object, why) in &cluster.unreadable {
        found.push(
            Finding::new(
                Severity::Change,
                "unreadable",
                object,
                format!("it cannot be read: {why}. system-upgrade-controller stops handling all Plans if it cannot decode one; refit skips this object only"),
            )
            .remedy("correct the field that the message names"),
        );
    }
    found.extend(plan::check(cluster, now));
    found.extend(job::check(cluster));
    sort(&mut found);
    found
}

/// Sorts by urgency, then by rule and object, so that output is stable.
pub fn sort(found: &mut [Finding]) {
    found.sort_by(|a, b| (a.severity, a.rule, &a.object).cmp(&(b.severity, b.rule, &b.object)));
}

/// Some of the names, and how many more there are: a list of 5,000 nodes cannot be read.
fn names<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(SHOWN);
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn count(number: usize, word: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {word}{plural}")
}
