//! Permissions that refit uses and the accounts of system-upgrade-controller lack, by the rules of RBAC.
//!
//! What refit uses is `deploy/rbac.yaml`; other tests show that refit uses every rule of it.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Cluster, Finding, Severity};
use refit_api::names::JOB_SERVICE_ACCOUNT;
use refit_api::{Plan, Reason};

const SHIPPED: &str = include_str!("../../../deploy/rbac.yaml");
/// The account of the controller in the shipped roles.
const CONTROLLER: &str = "system-upgrade-controller";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub verb: String,
    pub group: String,
    /// With the subresource, as RBAC writes it: `plans/status`.
    pub resource: String,
    /// The only object that it is for.
    pub name: Option<String>,
    /// `None` for the whole cluster.
    pub namespace: Option<String>,
}

impl Permission {
    /// In RBAC's terms: `create jobs.batch in namespace system-upgrade`.
    fn phrase(&self) -> String {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let mut text = format!("{} {resource}", self.verb);
        if !self.group.is_empty() {
            text = format!("{text}.{}", self.group);
        }
        if !subresource.is_empty() {
            text = format!("{text}/{subresource}");
        }
        if let Some(name) = &self.name {
            text = format!("{text} {name}");
        }
        match &self.namespace {
            Some(namespace) => format!("{text} in namespace {namespace}"),
            None => text,
        }
    }
}

/// A permission that an account lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPermission {
    pub account: String,
    pub permission: Permission,
    /// The role of the account to which the permission can be added.
    role: Option<String>,
    severity: Severity,
    effect: String,
}

impl MissingPermission {
    pub fn finding(&self, namespace: &str) -> Finding {
        let to = self.role.as_ref().map_or_else(
            || "bind a role with it to the account".to_owned(),
            |role| format!("add it to {role}"),
        );
        let object = format!("ServiceAccount {namespace}/{}", self.account);
        let change = format!("it may not {}: {}", self.permission.phrase(), self.effect);
        Finding::new(self.severity, "missing-permission", object, change)
            .remedy(format!("apply deploy/rbac.yaml, or {to}"))
    }
}

/// The permissions that the accounts lack. Empty if there is no controller to take the account from.
pub fn missing(cluster: &Cluster) -> Vec<MissingPermission> {
    let mut found = Vec::new();
    let controller = cluster.account();
    if let Some(account) = &controller {
        let uses = |permission: &Permission| Some(of_controller(cluster, permission));
        look(cluster, account, CONTROLLER, &uses, &mut found);
    }
    let accounts: BTreeSet<&str> = cluster
        .plans
        .iter()
        .map(|plan| plan.spec.service_account_name.as_deref().unwrap_or("default"))
        .collect();
    for account in accounts {
        let plans: Vec<&Plan> = cluster
            .plans
            .iter()
            .filter(|plan| plan.spec.service_account_name.as_deref().unwrap_or("default") == account)
            .collect();
        look(
            cluster,
            account,
            JOB_SERVICE_ACCOUNT,
            &|permission| on_nodes(&plans, permission),
            &mut found,
        );
    }
    found
}

/// How urgent it is that an account lacks a permission, and what happens then. `None` if no Plan uses it.
type Effect<'a> = &'a dyn Fn(&Permission) -> Option<(Severity, String)>;

fn look(
    cluster: &Cluster,
    account: &str,
    shipped: &str,
    effect: Effect<'_>,
    found: &mut Vec<MissingPermission>,
) {
    for permission in shipped_permissions(cluster, shipped) {
        if rules(cluster, account, permission.namespace.as_deref()).any(|(_, rule)| grants(rule, &permission))
        {
            continue;
        }
        let Some((severity, effect)) = effect(&permission) else {
            continue;
        };
        let role = rules(cluster, account, permission.namespace.as_deref())
            .map(|(role, _)| role)
            .next_back();
        found.push(MissingPermission {
            account: account.to_owned(),
            role,
            permission,
            severity,
            effect,
        });
    }
}

/// What the controller does without a permission.
fn of_controller(cluster: &Cluster, permission: &Permission) -> (Severity, String) {
    let specs = || cluster.plans.iter().map(|plan| &plan.spec);
    let note = |effect: &str| (Severity::Note, effect.to_owned());
    let action = |effect: &str| (Severity::Action, effect.to_owned());
    let would_wait = |what: &str| {
        note(&format!(
            "a Plan with {what} would wait with {}",
            Reason::MissingPermission
        ))
    };
    match (permission.resource.as_str(), permission.verb.as_str()) {
        ("pods", _) if permission.namespace.as_deref() == Some("kube-system") => note(
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
fn on_nodes(plans: &[&Plan], permission: &Permission) -> Option<(Severity, String)> {
    let drains = plans.iter().any(|plan| plan.spec.drain.is_some());
    let cordons = drains || plans.iter().any(|plan| plan.spec.cordon.unwrap_or_default());
    let prepares = plans.iter().any(|plan| plan.spec.prepare.is_some());
    let deletes = plans.iter().any(|plan| {
        plan.spec
            .drain
            .as_ref()
            .is_some_and(|drain| drain.disable_eviction.unwrap_or_default())
    });
    let fails = "every cordon and drain of these Plans fails before it changes the node";
    let (is_used, severity, effect) = match (permission.resource.as_str(), permission.verb.as_str()) {
        ("nodes", "get" | "patch") => (cordons, Severity::Action, fails),
        ("pods", "list") | ("pods/eviction" | "daemonsets", _) => (drains, Severity::Action, fails),
        ("pods", "delete") => (deletes, Severity::Action, fails),
        ("poddisruptionbudgets", _) => (
            drains,
            Severity::Note,
            "if two budgets cover one pod, the status does not name them",
        ),
        ("pods/status", _) => (
            drains,
            Severity::Note,
            "the status of the Plan does not name the pod that a drain waits for",
        ),
        ("plans", "get") | ("nodes", "list") => (
            prepares,
            Severity::Change,
            "a prepare that waits for another Plan, as k3s-upgrade and rke2-upgrade do, fails",
        ),
        // For kubectl on Windows nodes.
        _ => (false, Severity::Note, ""),
    };
    is_used.then(|| (severity, effect.to_owned()))
}

/// The permissions of an account in the shipped roles, for the namespace of the cluster.
fn shipped_permissions(cluster: &Cluster, account: &str) -> BTreeSet<Permission> {
    let mut shipped = Cluster {
        namespace: CONTROLLER_NAMESPACE.to_owned(),
        ..Cluster::default()
    };
    read_roles(&mut shipped);
    let mut found = BTreeSet::new();
    let add = |found: &mut BTreeSet<Permission>, rules: &[PolicyRule], namespace: Option<&str>| {
        for rule in rules {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        let names = rule.resource_names.clone().unwrap_or_default();
                        let names = if names.is_empty() {
                            vec![None]
                        } else {
                            names.into_iter().map(Some).collect()
                        };
                        for name in names {
                            // The Lease has the controller's name.
                            let name = name.map(|name| {
                                if name == CONTROLLER {
                                    cluster.controller.clone()
                                } else {
                                    name
                                }
                            });
                            found.insert(Permission {
                                verb: verb.clone(),
                                group: group.clone(),
                                resource: resource.clone(),
                                name,
                                namespace: namespace.map(|namespace| {
                                    let of_here = namespace == CONTROLLER_NAMESPACE;
                                    if of_here {
                                        cluster.namespace.clone()
                                    } else {
                                        namespace.to_owned()
                                    }
                                }),
                            });
                        }
                    }
                }
            }
        }
    };
    for binding in &shipped.cluster_role_bindings {
        if binds(binding.subjects.as_deref(), account, CONTROLLER_NAMESPACE) {
            let role = shipped
                .cluster_roles
                .iter()
                .find(|role| role.metadata.name.as_ref() == Some(&binding.role_ref.name));
            add(
                &mut found,
                role.and_then(|role| role.rules.as_deref()).unwrap_or_default(),
                None,
            );
        }
    }
    for binding in &shipped.role_bindings {
        if binds(binding.subjects.as_deref(), account, CONTROLLER_NAMESPACE) {
            let namespace = binding.metadata.namespace.as_deref();
            let role = shipped.roles.iter().find(|role| {
                role.metadata.name.as_ref() == Some(&binding.role_ref.name)
                    && role.metadata.namespace.as_deref() == namespace
            });
            add(
                &mut found,
                role.and_then(|role| role.rules.as_deref()).unwrap_or_default(),
                namespace,
            );
        }
    }
    found
}

/// Namespace of the shipped manifests.
const CONTROLLER_NAMESPACE: &str = "system-upgrade";

fn read_roles(cluster: &mut Cluster) {
    // A test shows that the file can be read.
    let objects: Vec<Value> = serde_saphyr::from_multiple(SHIPPED).unwrap_or_default();
    for object in objects {
        match object["kind"].as_str().unwrap_or_default() {
            "ClusterRole" => push(&mut cluster.cluster_roles, object),
            "ClusterRoleBinding" => push(&mut cluster.cluster_role_bindings, object),
            "Role" => push(&mut cluster.roles, object),
            "RoleBinding" => push(&mut cluster.role_bindings, object),
            _ => {}
        }
    }
}

fn push<T: DeserializeOwned>(list: &mut Vec<T>, object: Value) {
    list.extend(serde_json::from_value(object));
}

/// The rules that apply to an account in a namespace, or in the whole cluster, each with the role that has it.
fn rules<'a>(
    cluster: &'a Cluster,
    account: &'a str,
    namespace: Option<&'a str>,
) -> impl DoubleEndedIterator<Item = (String, &'a PolicyRule)> {
    let cluster_role = |name: &str| -> Vec<(String, &'a PolicyRule)> {
        let role = cluster
            .cluster_roles
            .iter()
            .find(|role| role.metadata.name.as_deref() == Some(name));
        let rules = role
            .and_then(|role: &ClusterRole| role.rules.as_deref())
            .unwrap_or_default();
        rules
            .iter()
            .map(|rule| (format!("ClusterRole {name}"), rule))
            .collect()
    };
    let mut found = Vec::new();
    for binding in &cluster.cluster_role_bindings {
        let binding: &ClusterRoleBinding = binding;
        if binds(binding.subjects.as_deref(), account, &cluster.namespace) {
            found.extend(cluster_role(&binding.role_ref.name));
        }
    }
    for binding in &cluster.role_bindings {
        let binding: &RoleBinding = binding;
        let of = binding.metadata.namespace.as_deref();
        // A RoleBinding grants nothing outside of its namespace, even if it refers to a ClusterRole.
        if of != namespace
            || namespace.is_none()
            || !binds(binding.subjects.as_deref(), account, &cluster.namespace)
        {
            continue;
        }
        if binding.role_ref.kind == "ClusterRole" {
            found.extend(cluster_role(&binding.role_ref.name));
            continue;
        }
        let role = cluster.roles.iter().find(|role: &&Role| {
            role.metadata.name.as_ref() == Some(&binding.role_ref.name)
                && role.metadata.namespace.as_deref() == of
        });
        let rules = role.and_then(|role| role.rules.as_deref()).unwrap_or_default();
        let name = format!("Role {}/{}", of.unwrap_or_default(), binding.role_ref.name);
        found.extend(rules.iter().map(|rule| (name.clone(), rule)));
    }
    found.into_iter()
}

/// Whether a role is bound to the account itself, and not only to a group to which every service account belongs.
pub(super) fn has_role(cluster: &Cluster, account: &str) -> bool {
    let of_cluster = cluster
        .cluster_role_bindings
        .iter()
        .map(|binding| &binding.subjects);
    let of_namespaces = cluster.role_bindings.iter().map(|binding| &binding.subjects);
    of_cluster
        .chain(of_namespaces)
        .flat_map(|subjects| subjects.iter().flatten())
        .any(|subject| is_account(subject, account, &cluster.namespace))
}

fn is_account(subject: &Subject, account: &str, namespace: &str) -> bool {
    match subject.kind.as_str() {
        "ServiceAccount" => subject.name == account && subject.namespace.as_deref() == Some(namespace),
        "User" => subject.name == format!("system:serviceaccount:{namespace}:{account}"),
        _ => false,
    }
}

/// Whether one of the subjects is the account, or a group to which every service account belongs.
fn binds(subjects: Option<&[Subject]>, account: &str, namespace: &str) -> bool {
    let has_it = |subject: &Subject| {
        let name = subject.name.as_str();
        let is_group = name == "system:serviceaccounts"
            || name == "system:authenticated"
            || name == format!("system:serviceaccounts:{namespace}");
        is_account(subject, account, namespace) || (subject.kind == "Group" && is_group)
    };
    subjects.unwrap_or_default().iter().any(has_it)
}

/// Whether a rule grants a permission, as the authorizer of Kubernetes decides.
fn grants(rule: &PolicyRule, permission: &Permission) -> bool {
    let has = |list: Option<&Vec<String>>, item: &str| {
        list.into_iter().flatten().any(|one| one == "*" || one == item)
    };
    let resource = permission.resource.as_str();
    // `*/status` grants the subresource of every resource (`ResourceMatches` in
    // pkg/apis/rbac/v1/evaluation_helpers.go).
    let any_with_subresource = resource
        .split_once('/')
        .map(|(_, subresource)| format!("*/{subresource}"));
    let has_resource = has(rule.resources.as_ref(), resource)
        || any_with_subresource.is_some_and(|any| has(rule.resources.as_ref(), &any));
    let names = rule.resource_names.as_deref().unwrap_or_default();
    let has_name = names.is_empty() || permission.name.as_ref().is_some_and(|name| names.contains(name));
    has(Some(&rule.verbs), &permission.verb)
        && has(rule.api_groups.as_ref(), &permission.group)
        && has_resource
        && has_name
}
