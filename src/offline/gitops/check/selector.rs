//! Selectors that match no node, and those that match every node.

use std::collections::{BTreeMap, BTreeSet};

use super::Subject;
use super::control_plane::several_at_once;
use crate::gitops::Rule;
use crate::gitops::yaml::Kind;
use refit_api::names::{LABEL_HOSTNAME, LABEL_VALUE_DISABLED};
use refit_api::selector::Selector;
use refit_api::{Plan, names};

/// What a selector requires of the label with one key.
#[derive(Default)]
struct LabelConstraint {
    present: bool,
    absent: bool,
    /// The allowed values; `None` allows any.
    allowed: Option<BTreeSet<String>>,
    denied: BTreeSet<String>,
}

impl LabelConstraint {
    fn restrict_to(&mut self, values: impl IntoIterator<Item = String>) {
        let values: BTreeSet<_> = values.into_iter().collect();
        self.present = true;
        self.allowed = Some(match self.allowed.take() {
            Some(allowed) => allowed.intersection(&values).cloned().collect(),
            None => values,
        });
    }

    fn is_impossible(&self) -> bool {
        let no_value = self
            .allowed
            .as_ref()
            .is_some_and(|allowed| allowed.iter().all(|value| self.denied.contains(value)));
        (self.present && self.absent) || no_value
    }
}

impl Subject<'_> {
    pub(super) fn check_selector(&mut self, plan: &Plan) {
        const FIELD: &str = "spec.nodeSelector";
        let Some(selector) = &plan.spec.node_selector else {
            if !self.has(FIELD) {
                let message = "spec.nodeSelector is missing, so the Plan selects no node".to_owned();
                let hint = "add `nodeSelector: {}` to select all nodes, or select some of them".to_owned();
                self.report(Rule::NoNodeSelector, FIELD, message, Some(hint));
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
            return;
        }
        let mut asked = BTreeMap::<&str, LabelConstraint>::new();
        // The controller adds these requirements (S13, S49).
        asked.entry(LABEL_HOSTNAME).or_default().present = true;
        let own_label = format!(
            "{}{}",
            names::LABEL_PLAN_PREFIX,
            plan.metadata.name.as_deref().unwrap_or_default()
        );
        let denied = &mut asked.entry(&own_label).or_default().denied;
        denied.insert(LABEL_VALUE_DISABLED.to_owned());

        let mut reported = BTreeSet::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            asked.entry(key).or_default().restrict_to([value.clone()]);
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
            match expression.operator.as_str() {
                "In" => one.restrict_to(values),
                "NotIn" => one.denied.extend(values),
                "Exists" => one.present = true,
                "DoesNotExist" => one.absent = true,
                _ => {}
            }
            if one.is_impossible() && reported.insert(expression.key.clone()) {
                let field = format!("spec.nodeSelector.matchExpressions[{index}]");
                self.report_never_matches(&field, &expression.key);
            }
        }
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
        self.report(Rule::SelectorMatchesNothing, field, message, Some(hint));
    }
}
