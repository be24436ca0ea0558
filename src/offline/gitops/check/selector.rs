//! Selectors that match no node, and those that match every node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::control_plane::several_at_once;
use super::running::Running;
use super::subject::Subject;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::Kind;
use refit_api::names::{LABEL_HOSTNAME, LABEL_VALUE_DISABLED};
use refit_api::selector::{LabelConstraint, Selector, constraints, explain};
use refit_api::{Plan, names};
use refit_base::nearest::nearest;

/// Whether all labels that meet `narrow` meet `wide` too.
pub(super) fn implies(narrow: &LabelSelector, wide: &LabelSelector) -> bool {
    let (narrow, any) = (constraints(narrow), LabelConstraint::default());
    constraints(wide)
        .iter()
        .all(|(key, one)| is_implied(one, narrow.get(key).unwrap_or(&any)))
}

/// Whether each label that meets `other`, and each absence that does, meets `one` too.
fn is_implied(one: &LabelConstraint, other: &LabelConstraint) -> bool {
    if one.present && !other.present {
        return false;
    }
    match &other.allowed {
        _ if other.absent => true,
        Some(values) => values
            .iter()
            .filter(|value| other.permits(value))
            .all(|value| one.permits(value)),
        None => !one.absent && one.allowed.is_none() && one.denied.is_subset(&other.denied),
    }
}

impl Subject<'_> {
    pub(super) fn check_selector(&mut self, plan: &Plan, nodes: &[&Running]) {
        const FIELD: &str = "spec.nodeSelector";
        let Some(selector) = &plan.spec.node_selector else {
            if !self.has(FIELD) {
                let message = "spec.nodeSelector is missing, so the Plan selects no node".to_owned();
                let hint = "add `nodeSelector: {}` to select all nodes, or select some of them".to_owned();
                self.report(Rule::SelectsNoNode, FIELD, message, Some(hint));
            }
            return;
        };
        let Ok(read) = Selector::new(Some(selector)) else {
            return; // the controller's validation has reported it
        };
        if read.is_everything() {
            // A field of the wrong type has been removed, so it only looks empty.
            let is_empty = self.node(FIELD).is_some_and(|node| {
                let entries = node.object().map_or(&[][..], |object| &object.entries);
                entries.iter().all(|entry| match &entry.value.kind {
                    Kind::Null => true,
                    Kind::List(items) => items.is_empty(),
                    Kind::Map(object) => object.entries.is_empty(),
                    _ => false,
                })
            });
            if is_empty && plan.spec.node_info.is_none() && !plan.spec.is_on_request() {
                let several = several_at_once(&plan.spec).map_or(String::new(), |(field, limit)| {
                    format!("; with {field} {limit}, several of those may be down at the same time")
                });
                let message =
                    format!("spec.nodeSelector selects every node, control-plane nodes included{several}");
                self.report(Rule::SelectsEveryNode, FIELD, message, None);
            }
            self.check_against_nodes(selector, &read, nodes);
            return;
        }
        let mut asked = BTreeMap::<&str, LabelConstraint>::new();
        // The controller adds these requirements (S13, S49).
        asked.entry(LABEL_HOSTNAME).or_default().present = true;
        let own_label = names::plan_label(plan.metadata.name.as_deref().unwrap_or_default());
        let denied = &mut asked.entry(&own_label).or_default().denied;
        denied.insert(LABEL_VALUE_DISABLED.to_owned());

        let mut reported = BTreeSet::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            asked.entry(key).or_default().require("In", vec![value.clone()]);
        }
        let impossible: Vec<_> = asked
            .iter()
            .filter(|(_, asked)| asked.is_impossible())
            .map(|(key, _)| (*key).to_owned())
            .collect();
        for key in impossible {
            reported.insert(key.clone());
            self.report_never_matches("spec.nodeSelector.matchLabels", &key);
        }
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let one = asked.entry(&expression.key).or_default();
            let values = expression.values.clone().unwrap_or_default();
            one.require(&expression.operator, values);
            if one.is_impossible() && reported.insert(expression.key.clone()) {
                let field = format!("spec.nodeSelector.matchExpressions[{index}]");
                self.report_never_matches(&field, &expression.key);
            }
        }
        if reported.is_empty() {
            self.check_against_nodes(selector, &read, nodes);
        }
    }

    /// Reports a selector that none of the nodes in the files meets.
    fn check_against_nodes(&mut self, selector: &LabelSelector, read: &Selector, nodes: &[&Running]) {
        const FIELD: &str = "spec.nodeSelector";
        // A placeholder may become the label of a node.
        let has_placeholder = self.found.iter().any(|found| {
            let is_in_selector = |field: &String| field.starts_with(FIELD);
            found.rule == Rule::Placeholder && found.field.as_ref().is_some_and(is_in_selector)
        });
        if nodes.is_empty() || has_placeholder || nodes.iter().any(|node| read.matches(&node.labels)) {
            return;
        }
        let requirements = explain::requirements(selector);
        let unmet = requirements.iter().find(|one| {
            !nodes
                .iter()
                .any(|node| one.matches(|key| node.labels.get(key).map(String::as_str)))
        });
        let why = unmet.map_or_else(
            || "none meets all of its requirements".to_owned(),
            |one| one.unmet(nodes.len()),
        );
        let message = format!("{FIELD} selects none of the nodes in these files: {why}");
        let keys: BTreeSet<&str> = nodes
            .iter()
            .flat_map(|node| node.labels.keys())
            .map(String::as_str)
            .collect();
        let near = unmet
            .filter(|one| !keys.contains(one.key.as_str()))
            .and_then(|one| nearest(&one.key, keys.iter().copied()));
        let hint = match near {
            Some(near) => format!("the nodes have the label {near}; is that the one?"),
            None => "correct the selector, or label the nodes; until then the Plan does nothing".to_owned(),
        };
        self.report(Rule::SelectsNoNode, FIELD, message, Some(hint));
    }

    fn report_never_matches(&mut self, field: &str, key: &str) {
        let message = if key == LABEL_HOSTNAME {
            format!(
                "{field} selects nodes without the label {key:?}, but a Plan selects only nodes that have it"
            )
        } else {
            format!("{field}: no value of the label {key:?} meets all conditions of the selector")
        };
        let hint = "a node must meet all conditions of a selector at once".to_owned();
        self.report(Rule::SelectsNoNode, field, message, Some(hint));
    }
}
