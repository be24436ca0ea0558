//! Permissions that refit uses and the accounts of system-upgrade-controller lack. The API server says which these are.
//!
//! What refit uses is `deploy/rbac.yaml`; other tests show that refit uses every rule of it.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize as _;
use serde_json::Value;

use super::controller;
use super::finding::{Finding, Severity};
use super::reading::{Permission, Reading};
use refit_api::PlanSpec;
use refit_api::names::JOB_SERVICE_ACCOUNT;

const SHIPPED: &str = include_str!("../../../deploy/rbac.yaml");
/// The account of the controller in the shipped roles, and their namespace.
const CONTROLLER: &str = "system-upgrade-controller";
const NAMESPACE: &str = "system-upgrade";

pub(super) fn missing(reading: &Reading<'_>) -> Vec<Finding> {
    let finding = |missing: &Permission| {
        Finding::new(
            Severity::Action,
            format!("ServiceAccount {}/{}", reading.namespace, missing.account),
            format!(
                "it may not {}, which refit needs for these Plans",
                missing.phrase()
            ),
            "apply deploy/rbac.yaml, or bind a role with the permission to the account",
        )
    };
    reading.missing.iter().map(finding).collect()
}

/// The permissions that refit uses for these Plans. Without a controller its account is unknown.
pub fn needed(reading: &Reading<'_>) -> Vec<Permission> {
    let mut by_account: BTreeMap<&str, Vec<&PlanSpec>> = BTreeMap::new();
    for plan in &reading.plans {
        let spec = &plan.object.spec;
        let account = spec.service_account_name.as_deref().unwrap_or("default");
        by_account.entry(account).or_default().push(spec);
    }
    let mut found = Vec::new();
    if let Some(account) = controller::account(reading) {
        let specs: Vec<_> = by_account.values().flatten().copied().collect();
        let all = shipped(reading, CONTROLLER, &account).into_iter();
        found.extend(all.filter(|one| is_of_controller(&specs, &one.attributes)));
    }
    for (account, specs) in by_account {
        let all = shipped(reading, JOB_SERVICE_ACCOUNT, account).into_iter();
        found.extend(all.filter(|one| is_on_nodes(&specs, &one.attributes)));
    }
    found
}

/// Whether the controller needs a permission for these Plans. Without the others refit says less, or does without.
fn is_of_controller(specs: &[&PlanSpec], of: &ResourceAttributes) -> bool {
    let mut specs = specs.iter();
    match (text(of.resource.as_ref()), text(of.verb.as_ref())) {
        ("pods", _) if of.namespace.as_deref() == Some("kube-system") => false,
        ("events", "list") | ("pods", "watch") | ("configmaps", _) => false,
        ("pods", "create" | "delete" | "get") => specs.any(|spec| spec.reboot.is_some()),
        ("replicasets" | "statefulsets", _) => {
            specs.any(|spec| spec.settle.as_ref().and_then(|settle| settle.workloads) == Some(true))
        }
        ("secrets", _) => specs.any(|spec| spec.secrets.iter().flatten().next().is_some()),
        _ => true,
    }
}

/// Whether a Job of these Plans needs a permission on its node: without it a cordon, a drain, or a `prepare` that waits for
/// another Plan fails.
fn is_on_nodes(specs: &[&PlanSpec], of: &ResourceAttributes) -> bool {
    let drains = || specs.iter().filter_map(|spec| spec.drain.as_ref());
    let cordons = || specs.iter().any(|spec| spec.cordon.unwrap_or_default());
    match (
        text(of.resource.as_ref()),
        text(of.subresource.as_ref()),
        text(of.verb.as_ref()),
    ) {
        ("nodes", _, "get" | "patch") => cordons() || drains().next().is_some(),
        ("pods", "", "list") | ("pods", "eviction", _) | ("daemonsets", ..) => drains().next().is_some(),
        ("pods", "", "delete") => drains().any(|drain| drain.disable_eviction.unwrap_or_default()),
        ("plans", _, "get") | ("nodes", _, "list") => specs.iter().any(|spec| spec.prepare.is_some()),
        // For messages, and for kubectl on Windows nodes.
        _ => false,
    }
}

fn text(text: Option<&String>) -> &str {
    text.map(String::as_str).unwrap_or_default()
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
