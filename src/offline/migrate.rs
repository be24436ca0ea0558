//! What changes when refit replaces system-upgrade-controller on a cluster: `refit migrate --check`.
//!
//! Pure: what was read of the cluster, and what others said of it, are arguments. Each rule compares what the cluster has with
//! a row of the deviations in `docs/compatibility.md`, as far as that can do harm.

mod controller;
mod job;
pub mod permissions;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use permissions::Permission;
pub use plan::channels;
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
    /// Name of the rule.
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
        object: impl Into<String>,
        change: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            rule: "",
            object: object.into(),
            change: change.into(),
            remedy: remedy.into(),
        }
    }
}

pub struct Rule {
    /// In kebab case.
    pub name: &'static str,
    /// What it finds, as in `docs/migrate.md`.
    pub finds: &'static str,
    check: fn(&Reading<'_>) -> Vec<Finding>,
}

const fn rule(name: &'static str, finds: &'static str, check: fn(&Reading<'_>) -> Vec<Finding>) -> Rule {
    Rule { name, finds, check }
}

#[rustfmt::skip]
pub const RULES: [Rule; 14] = [
    rule("no-controller", "no controller in the namespace", controller::none),
    rule("two-controllers", "two controllers that could work at the same time: two Deployments, two pods without leader election, or Jobs of another controller", controller::two),
    rule("no-toleration", "one control-plane node, and a pod that does not tolerate it when it is cordoned", controller::toleration),
    rule("managed-elsewhere", "Helm, Flux, Argo CD or Rancher would restore the Deployment or the CRD", controller::owners),
    rule("missing-permission", "a permission that refit uses for these Plans and an account lacks, as the API server says: verb and resource", permissions::missing),
    rule("invalid", "a Plan that refit refuses, or that cannot be decoded", plan::invalid),
    rule("concurrency-zero", "a Plan that starts no node", plan::concurrency),
    rule("window", "a window, which refit checks before each node; an overnight one belongs to other days", plan::window),
    rule("channel", "with `--online`: a channel that gives refit no version, or another than the Plan has", plan::channel),
    rule("works-now", "what system-upgrade-controller cannot carry out, and refit does: a `drain.timeout`, volumes of `prepare`, names of nodes", plan::works_now),
    rule("token", "a Plan whose `upgrade` may use the token of its account, which refit's manifests withhold", plan::token),
    rule("cordoned-nodes", "nodes that someone cordoned, and that system-upgrade-controller would uncordon", plan::cordoned),
    rule("nodes-not-ready", "nodes that refit does not start until they are Ready", plan::not_ready),
    rule("job", "a Job that refit adopts, that is of an earlier version, or that has failed", job::check),
];

/// All differences, the most urgent first.
pub fn check(reading: &Reading<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in RULES {
        let of_rule = (rule.check)(reading).into_iter();
        found.extend(of_rule.map(|finding| Finding {
            rule: rule.name,
            ..finding
        }));
    }
    // By urgency, then by rule and object, so that output is stable.
    found.sort_by(|a, b| (a.severity, a.rule, &a.object).cmp(&(b.severity, b.rule, &b.object)));
    found
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
