//! Permissions that refit uses and the accounts of system-upgrade-controller lack. The API server says which these are.
//!
//! What refit uses is `deploy/rbac.yaml`; other tests show that refit uses every rule of it.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Finding, Reading, Severity, controller};
use refit_api::names::JOB_SERVICE_ACCOUNT;
use refit_api::{PlanSpec, Reason};

const SHIPPED: &str = include_str!("../../../deploy/rbac.yaml");
/// The account of the controller in the shipped roles, and their namespace.
const CONTROLLER: &str = "system-upgrade-controller";
const NAMESPACE: &str = "system-upgrade";

/// A permission that an account needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    pub account: String,
    pub attributes: ResourceAttributes,
    severity: Severity,
    /// What happens without it.
    effect: String,
}

impl Permission {
    /// In RBAC's terms: `create jobs.batch in namespace system-upgrade`.
    fn phrase(&self) -> String {
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

pub(super) fn missing(reading: &Reading<'_>) -> Vec<Finding> {
    let finding = |missing: &Permission| {
        Finding::new(
            missing.severity,
            format!("ServiceAccount {}/{}", reading.namespace, missing.account),
            format!("it may not {}: {}", missing.phrase(), missing.effect),
            "apply deploy/rbac.yaml, or bind a role with the permission to the account",
        )
    };
    reading.missing.iter().map(finding).collect()
}

/// The permissions that refit uses for these Plans. Without a controller its account is unknown.
pub fn needed(reading: &Reading<'_>) -> Vec<Permission> {
    let mut found = Vec::new();
    if let Some(account) = controller::account(reading) {
        let mut all = shipped(reading, CONTROLLER, &account);
        for permission in &mut all {
            (permission.severity, permission.effect) = of_controller(reading, permission);
        }
        found.extend(all);
    }
    let mut by_account: BTreeMap<&str, Vec<&PlanSpec>> = BTreeMap::new();
    for plan in &reading.plans {
        let spec = &plan.object.spec;
        let account = spec.service_account_name.as_deref().unwrap_or("default");
        by_account.entry(account).or_default().push(spec);
    }
    for (account, specs) in by_account {
        let all = shipped(reading, JOB_SERVICE_ACCOUNT, account).into_iter();
        found.extend(all.filter_map(|permission| {
            let (severity, effect) = on_nodes(&specs, &permission)?;
            Some(Permission {
                severity,
                effect,
                ..permission
            })
        }));
    }
    found
}

/// What the controller does without a permission.
fn of_controller(reading: &Reading<'_>, permission: &Permission) -> (Severity, String) {
    let specs = || reading.plans.iter().map(|plan| &plan.object.spec);
    let note = |effect: &str| (Severity::Note, effect.to_owned());
    let action = |effect: &str| (Severity::Action, effect.to_owned());
    let would_wait = |what: &str| {
        note(&format!(
            "a Plan with {what} would wait with {}",
            Reason::MissingPermission
        ))
    };
    let of = &permission.attributes;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match (text(&of.resource).as_str(), text(&of.verb).as_str()) {
        ("pods", _) if of.namespace.as_deref() == Some("kube-system") => note(
            "on clusters of kubeadm, the guard of the control plane counts Ready Nodes, and not members of etcd",
        ),
        ("events", "list") => {
            note("where the API server refuses the pod of a Job, status names the Job, and not the reason")
        }
        ("pods", "watch") => note("refit lists the pods of its Jobs every few seconds instead"),
        ("pods", "create" | "delete" | "get") if specs().all(|spec| spec.reboot.is_none()) => {
            would_wait("spec.reboot")
        }
        ("replicasets" | "statefulsets", _)
            if specs().all(|spec| spec.settle.as_ref().and_then(|settle| settle.workloads) != Some(true)) =>
        {
            would_wait("settle.workloads")
        }
        ("secrets", _) if specs().all(|spec| spec.secrets.iter().flatten().next().is_none()) => {
            would_wait("secrets")
        }
        ("configmaps", _) => note("limits for all Plans, in the ConfigMap refit, have no effect"),
        ("customresourcedefinitions", _) => action(
            "refit cannot add its fields to the definition of the Plan, and does not start without them",
        ),
        ("leases", _) => action("with leader election refit never leads"),
        _ => action("refit needs this for every roll-out"),
    }
}

/// What a Job does on a node without a permission.
fn on_nodes(specs: &[&PlanSpec], permission: &Permission) -> Option<(Severity, String)> {
    let drains = || specs.iter().filter_map(|spec| spec.drain.as_ref());
    let deletes = drains().any(|drain| drain.disable_eviction.unwrap_or_default());
    let drains = drains().next().is_some();
    let cordons = drains || specs.iter().any(|spec| spec.cordon.unwrap_or_default());
    let prepares = specs.iter().any(|spec| spec.prepare.is_some());
    let fails = "every cordon and drain of these Plans fails before it changes the node";
    let of = &permission.attributes;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (resource, subresource, verb) = (text(&of.resource), text(&of.subresource), text(&of.verb));
    let (is_used, severity, effect) = match (resource.as_str(), subresource.as_str(), verb.as_str()) {
        ("pods", "status", _) => (
            drains,
            Severity::Note,
            "the status of the Plan does not name the pod that a drain waits for",
        ),
        ("nodes", _, "get" | "patch") => (cordons, Severity::Action, fails),
        ("pods", _, "list") | ("pods", "eviction", _) | ("daemonsets", ..) => {
            (drains, Severity::Action, fails)
        }
        ("pods", _, "delete") => (deletes, Severity::Action, fails),
        ("poddisruptionbudgets", ..) => (
            drains,
            Severity::Note,
            "if two budgets cover one pod, the status does not name them",
        ),
        ("plans", _, "get") | ("nodes", _, "list") => (
            prepares,
            Severity::Change,
            "a prepare that waits for another Plan, as k3s-upgrade and rke2-upgrade do, fails",
        ),
        // For kubectl on Windows nodes.
        _ => (false, Severity::Note, ""),
    };
    is_used.then(|| (severity, effect.to_owned()))
}

/// The permissions of an account in the shipped roles, for an account and the namespace of the cluster.
fn shipped(reading: &Reading<'_>, of: &str, account: &str) -> Vec<Permission> {
    // A test shows that the file can be read.
    let objects: Vec<Value> = serde_saphyr::from_multiple(SHIPPED).unwrap_or_default();
    let bindings = objects
        .iter()
        .filter(|binding| binding["subjects"][0]["name"] == of);
    let mut found = Vec::new();
    for binding in bindings {
        let place = &binding["metadata"]["namespace"];
        let role = objects.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && role["metadata"]["namespace"] == *place
        });
        let namespace = place.as_str().map(|place| {
            if place == NAMESPACE {
                reading.namespace
            } else {
                place
            }
        });
        let rules = role
            .and_then(|role| role["rules"].as_array())
            .into_iter()
            .flatten();
        for rule in rules.filter_map(|rule| PolicyRule::deserialize(rule).ok()) {
            let names: Vec<_> = rule.resource_names.iter().flatten().map(Some).collect();
            let names = if names.is_empty() { vec![None] } else { names };
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let permission = |verb: &str, group: &str, resource: &str, name: Option<&String>| {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                // The Lease has the controller's name.
                let name = name.map(|name| {
                    if name == CONTROLLER {
                        reading.controller
                    } else {
                        name
                    }
                });
                Permission {
                    account: account.to_owned(),
                    attributes: ResourceAttributes {
                        group: text(group),
                        resource: text(resource),
                        subresource: text(subresource),
                        verb: text(verb),
                        name: name.and_then(text),
                        namespace: namespace.and_then(text),
                        ..ResourceAttributes::default()
                    },
                    severity: Severity::Note,
                    effect: String::new(),
                }
            };
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        found.extend(names.iter().map(|name| permission(verb, group, resource, *name)));
                    }
                }
            }
        }
    }
    found
}
