//! The pod around the containers: where it runs, and the access that the Plan gives.

use k8s_openapi::api::core::v1::{
    Affinity, Container, LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PodAffinityTerm, PodAntiAffinity, PodSpec, Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::job_input::{NodeInput, PlanInput};
use refit_api::{HostAccess, PlanSpec, names};

/// A pod on the node, with the access that the Plan gives.
pub(super) fn on_node(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    main: Container,
    volumes: Vec<Volume>,
) -> PodSpec {
    PodSpec {
        affinity: Some(affinity(plan, node)),
        tolerations: Some(tolerations_on(node, plan.spec)),
        ..of_plan(plan, main, volumes)
    }
}

/// A pod on any node, with the access that the Plan gives.
pub(super) fn of_plan(plan: &PlanInput<'_>, main: Container, volumes: Vec<Volume>) -> PodSpec {
    let spec = plan.spec;
    let namespaces = (spec.host_access() == HostAccess::Full).then_some(true);
    PodSpec {
        // Otherwise the API server would mount a token into every container.
        automount_service_account_token: Some(false),
        containers: vec![main],
        // On the network of the host, `ClusterFirst` means the resolver of the node, which knows no Services (S33).
        dns_policy: namespaces.map(|_| "ClusterFirstWithHostNet".to_owned()),
        host_ipc: namespaces,
        host_network: namespaces,
        host_pid: namespaces,
        image_pull_secrets: pull_secrets(spec, &[]),
        priority_class_name: some_text(spec.priority_class_name.as_ref()),
        // A failed container fails its pod, so that `backoffLimit` counts it and the next pod starts with `prepare`
        // again (S33). A `podFailurePolicy` requires it, too (KEP-3329).
        restart_policy: Some("Never".to_owned()),
        service_account_name: some_text(spec.service_account_name.as_ref()),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

/// Binds the Job to this node by name, and keeps it off hosts with a pod of the same Plan, or of another exclusive
/// Plan, by the hostname label (S33).
fn affinity(plan: &PlanInput<'_>, node: &NodeInput<'_>) -> Affinity {
    let (key, value) = if plan.is_exclusive() {
        (names::LABEL_EXCLUSIVE, "true")
    } else {
        (names::LABEL_PLAN, plan.name)
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    // By name, not by the hostname label as in S33: a label may be another than the name of its node,
                    // and then the pod would never be scheduled, or be scheduled elsewhere.
                    match_fields: Some(vec![NodeSelectorRequirement {
                        key: names::FIELD_NODE_NAME.to_owned(),
                        operator: "In".to_owned(),
                        values: Some(vec![node.name.to_owned()]),
                    }]),
                    match_expressions: None,
                }],
            }),
            ..NodeAffinity::default()
        }),
        pod_anti_affinity: (!node.shares_hostname).then(|| PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![PodAffinityTerm {
                label_selector: Some(LabelSelector {
                    match_expressions: Some(vec![LabelSelectorRequirement {
                        key: key.to_owned(),
                        operator: "In".to_owned(),
                        values: Some(vec![value.to_owned()]),
                    }]),
                    match_labels: None,
                }),
                topology_key: names::LABEL_HOSTNAME.to_owned(),
                ..PodAffinityTerm::default()
            }]),
            ..PodAntiAffinity::default()
        }),
        pod_affinity: None,
    }
}

/// The toleration that admits the pod to a node that it has cordoned, then the Plan's (S18).
pub fn tolerations(spec: &PlanSpec) -> Vec<Toleration> {
    let cordoned = Toleration {
        key: Some("node.kubernetes.io/unschedulable".to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    };
    std::iter::once(cordoned)
        .chain(spec.tolerations.iter().flatten().cloned())
        .collect()
}

/// Those of [`tolerations`], and on a new node that of its taint. It is not a part of the digests of the Plan: a node that
/// gets the taint must not replace Jobs.
fn tolerations_on(node: &NodeInput<'_>, spec: &PlanSpec) -> Vec<Toleration> {
    let of_new_node = Toleration {
        key: Some(names::TAINT_NEW_NODE.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    };
    let mut all = tolerations(spec);
    all.extend(node.may_be_new.then_some(of_new_node));
    all
}

/// The Plan's, then those of refit's own image that are not among them.
pub(crate) fn pull_secrets(spec: &PlanSpec, own: &[String]) -> Option<Vec<LocalObjectReference>> {
    let mut secrets = spec.image_pull_secrets.clone().unwrap_or_default();
    for name in own {
        if !secrets.iter().any(|secret| secret.name == *name) {
            secrets.push(LocalObjectReference { name: name.clone() });
        }
    }
    Some(secrets).filter(|all| !all.is_empty())
}

/// In the Go types of system-upgrade-controller, an empty text is the same as none.
pub(crate) fn some_text(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}
