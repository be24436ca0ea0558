//! What the rules know of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use refit_facts::{JobFacts, NodeFacts, PlanFacts};

/// What was read of a cluster.
#[derive(Default)]
pub struct Reading<'a> {
    /// Namespace of system-upgrade-controller and of its Plans.
    pub namespace: &'a str,
    /// Name of system-upgrade-controller: label of its Jobs, name of its Lease.
    pub controller: &'a str,
    pub plans: Vec<&'a PlanFacts>,
    pub nodes: Vec<&'a NodeFacts>,
    /// Each with the name of its controller.
    pub jobs: Vec<(&'a str, &'a JobFacts)>,
    pub deployments: &'a [Deployment],
    pub config_maps: &'a [ConfigMap],
    /// Of the definition of the Plan.
    pub definition: Option<&'a ObjectMeta>,
    /// The permissions that an account lacks.
    pub missing: Vec<Permission>,
    /// The version or the error of each channel, if they were asked.
    pub answers: BTreeMap<String, Result<String, String>>,
}

/// A permission that an account needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    pub account: String,
    pub attributes: ResourceAttributes,
}

impl Permission {
    /// In RBAC's terms: `create jobs.batch in namespace system-upgrade`.
    pub(super) fn phrase(&self) -> String {
        let of = &self.attributes;
        let part = |sign: &str, text: &Option<String>| text.as_ref().map(|text| format!("{sign}{text}"));
        let parts = [
            part("", &of.verb),
            part(" ", &of.resource),
            part(".", &of.group),
            part("/", &of.subresource),
            part(" ", &of.name),
            part(" in namespace ", &of.namespace),
        ];
        parts.into_iter().flatten().collect()
    }
}
