//! Plans for control-plane nodes: how many of them are down at once, and whether their taints keep the Jobs away.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::subject::Subject;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Entry, Node};
use refit_api::{NodeLimit, Plan, PlanSpec};
use refit_base::nearest::nearest;
use refit_base::version::distribution_of;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// The control-plane label before Kubernetes 1.20, removed in 1.24 (KEP-2067), by K3s and RKE2 in 1.34.
const MASTER: &str = "node-role.kubernetes.io/master";
const ETCD: &str = "node-role.kubernetes.io/etcd";
const ROLES: &str = "node-role.kubernetes.io/";
/// Roles that distributions set, and that look alike: RKE1 has `controlplane`.
const KNOWN_ROLES: [&str; 2] = ["control-plane", "controlplane"];
/// The taint that the K3s and RKE2 documentation recommends for servers.
const CRITICAL: &str = "CriticalAddonsOnly";

/// Which nodes a selector matches, by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    ControlPlane,
    Worker,
    /// The selector does not mention a role.
    Any,
}

impl Role {
    pub(super) fn of(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else {
            return Self::Any;
        };
        let is_role = |key: &str| matches!(key, CONTROL_PLANE | MASTER | ETCD);
        let labels = selector.match_labels.iter().flatten();
        if labels
            .clone()
            .any(|(key, value)| is_role(key) && value != "false")
        {
            return Self::ControlPlane;
        }
        let mut role = Self::Any;
        for expression in selector.match_expressions.iter().flatten() {
            if !is_role(&expression.key) {
                continue;
            }
            let mut values = expression.values.iter().flatten();
            match expression.operator.as_str() {
                "Exists" => return Self::ControlPlane,
                "In" if values.any(|value| value != "false") => return Self::ControlPlane,
                // Whether a node has etcd says nothing, since neither workers nor all servers do; nor does `master`,
                // which newer servers do not have.
                "NotIn" | "DoesNotExist" if expression.key != CONTROL_PLANE => {}
                "NotIn" if values.any(is_usual) => role = Self::Worker,
                "DoesNotExist" => role = Self::Worker,
                _ => {}
            }
        }
        role
    }
}

/// Whether distributions set roles to this value.
fn is_usual(value: &String) -> bool {
    value.is_empty() || value == "true"
}

impl Subject<'_> {
    pub(super) fn check_control_plane(&mut self, plan: &Plan) {
        let spec = &plan.spec;
        self.check_master_label(spec);
        self.check_misspelt_role();
        if Role::of(spec.node_selector.as_ref()) == Role::ControlPlane {
            self.check_control_plane_limit(spec);
            self.check_control_plane_tolerations(spec);
        }
    }

    fn check_control_plane_limit(&mut self, spec: &PlanSpec) {
        let Some((field, limit)) = several_at_once(spec) else {
            return;
        };
        let unavailable = spec.max_unavailable.as_ref().and_then(NodeLimit::parse);
        if unavailable == Some(NodeLimit::Nodes(1)) {
            return; // the second node does not start while the first is down
        }
        let message = format!(
            "{field} is {limit} for control-plane nodes: several of them may be down at the same time"
        );
        let name = field.trim_start_matches("spec.");
        let hint = format!("write `{name}: 1`; etcd stops when it loses the majority of its members");
        self.report(Rule::ControlPlaneConcurrency, field, message, Some(hint));
    }

    fn check_control_plane_tolerations(&mut self, spec: &PlanSpec) {
        let is_tolerated = spec.tolerations.iter().flatten().any(|toleration| {
            let effect = toleration.effect.as_deref().unwrap_or_default();
            match toleration.key.as_deref().unwrap_or_default() {
                // The usual taint has the effect NoSchedule, …
                "" | CONTROL_PLANE => matches!(effect, "" | "NoSchedule"),
                // … those of some K3s and RKE2 servers NoExecute.
                ETCD | CRITICAL => true,
                _ => false,
            }
        });
        // A field of the wrong type has been reported by the schema check.
        if is_tolerated || (spec.tolerations.is_none() && self.has("spec.tolerations")) {
            return;
        }
        let message =
            "the Plan selects control-plane nodes and tolerates no usual taint of theirs".to_owned();
        let hint = if self.has("spec.tolerations") {
            format!("tolerate {CONTROL_PLANE}:NoSchedule, if they have it; otherwise their Jobs never start")
        } else {
            "add `tolerations: [{operator: Exists}]`; on a tainted node the Job never starts without it"
                .to_owned()
        };
        self.report(
            Rule::NoControlPlaneToleration,
            "spec.tolerations",
            message,
            Some(hint),
        );
    }

    /// Reports a role that is nearly that of the control plane. No node has its label, so to select it selects nothing, and to
    /// exclude it excludes nothing.
    fn check_misspelt_role(&mut self) {
        const FIELD: &str = "spec.nodeSelector";
        let labels = self.node("spec.nodeSelector.matchLabels").and_then(Node::object);
        let labels = labels.iter().flat_map(|labels| &labels.entries);
        let labels = labels.map(|entry| (entry.key.span.start, entry.key.name.clone(), None));
        let expressions = self
            .node("spec.nodeSelector.matchExpressions")
            .map_or(&[][..], Node::items);
        let keys = expressions.iter().enumerate().filter_map(|(index, expression)| {
            let key = expression.get("key")?;
            let field = format!("{FIELD}.matchExpressions[{index}].key");
            Some((key.span.start, key.text()?.to_owned(), Some(field)))
        });
        let is_misspelt = |key: &str| {
            let role = key.strip_prefix(ROLES).unwrap_or_default();
            !KNOWN_ROLES.contains(&role) && nearest(role, [KNOWN_ROLES[0]]).is_some()
        };
        let all = labels.chain(keys);
        let misspelt: Vec<_> = all.filter(|(_, key, _)| is_misspelt(key)).collect();
        for (offset, key, field) in misspelt {
            let message = format!("no Kubernetes distribution sets the label {key:?}");
            let what = if field.is_some() {
                "write"
            } else {
                "rename the label to"
            };
            let hint = format!("{what} `{CONTROL_PLANE}`");
            let field = field.as_deref().unwrap_or(FIELD);
            self.report_at(Rule::SelectsNoNode, offset, Some(field), message, Some(hint));
        }
    }

    /// Reports the old label when it stands alone; beside the new one it supports old clusters.
    fn check_master_label(&mut self, spec: &PlanSpec) {
        const FIELD: &str = "spec.nodeSelector";
        let labels = self.node("spec.nodeSelector.matchLabels").and_then(Node::object);
        let labels: Vec<&Entry> = labels.iter().flat_map(|labels| &labels.entries).collect();
        let expressions = self
            .node("spec.nodeSelector.matchExpressions")
            .map_or(&[][..], Node::items);
        let text =
            |expression: &'_ Node, field: &str| expression.get(field).and_then(Node::text).map(str::to_owned);
        let has_key = |expression: &Node, key: &str| text(expression, "key").as_deref() == Some(key);
        let has_new = labels.iter().any(|entry| entry.key.name == CONTROL_PLANE)
            || expressions
                .iter()
                .any(|expression| has_key(expression, CONTROL_PLANE));
        if has_new {
            return;
        }
        let who = without_master(spec);
        let requires = format!("{FIELD} requires {MASTER:?}, which {who} do not set");
        if let Some(label) = labels.iter().find(|entry| entry.key.name == MASTER) {
            let hint = format!("rename the label to {CONTROL_PLANE}");
            self.report_at(
                Rule::MasterLabel,
                label.key.span.start,
                Some(FIELD),
                requires.clone(),
                Some(hint),
            );
        }
        for (index, expression) in expressions.iter().enumerate() {
            if !has_key(expression, MASTER) {
                continue;
            }
            let excludes = matches!(
                text(expression, "operator").as_deref(),
                Some("NotIn" | "DoesNotExist")
            );
            let (message, both) = if excludes {
                let message = format!(
                    "{FIELD} excludes {MASTER:?}, which {who} do not set, so it selects control-plane nodes"
                );
                (message, "exclude both labels")
            } else {
                (requires.clone(), "select by both labels")
            };
            let field = format!("{FIELD}.matchExpressions[{index}].key");
            let hint = format!("write `{CONTROL_PLANE}`, or {both}");
            self.report(Rule::MasterLabel, &field, message, Some(hint));
        }
    }
}

/// Which versions do not set the label `master` any more: KEP-2067, and k3s-io/k3s#12395 for K3s and RKE2.
fn without_master(spec: &PlanSpec) -> &'static str {
    match distribution_of(spec.upgrade_image()) {
        Some(_) => "K3s and RKE2 1.34 and later",
        None if spec.installs_kubernetes() => "Kubernetes 1.24 and later",
        None => "newer clusters (Kubernetes 1.24, K3s and RKE2 1.34)",
    }
}

/// The field that allows several nodes at a time, and its value.
pub(super) fn several_at_once(spec: &PlanSpec) -> Option<(&'static str, String)> {
    if let Some(limit) = &spec.max_concurrent {
        let is_one = matches!(NodeLimit::parse(limit), Some(NodeLimit::Nodes(1)) | None);
        let text = match limit {
            IntOrString::Int(nodes) => nodes.to_string(),
            IntOrString::String(share) => share.clone(),
        };
        return (!is_one).then_some(("spec.maxConcurrent", text));
    }
    let nodes = spec.concurrency.filter(|nodes| *nodes > 1)?;
    Some(("spec.concurrency", nodes.to_string()))
}
