//! Selectors that no node can match, and such as match every node.

use std::collections::{BTreeMap, BTreeSet};

use super::Subject;
use crate::api::names::{LABEL_HOSTNAME, LABEL_VALUE_DISABLED};
use crate::api::selector::Selector;
use crate::api::{Plan, names};
use crate::gitops::Rule;

/// What a selector asks of the label with one key.
#[derive(Default)]
struct Asked {
    present: bool,
    absent: bool,
    /// The values that it may have; any where nothing is said.
    allowed: Option<BTreeSet<String>>,
    denied: BTreeSet<String>,
}

impl Asked {
    fn one_of(&mut self, values: impl IntoIterator<Item = String>) {
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
                let message = "spec.nodeSelector is missing: the Plan selects no node".to_owned();
                let hint = "write `nodeSelector: {}` for all nodes, or say which ones".to_owned();
                self.tell(Rule::NoNodeSelector, FIELD, message, Some(hint));
            }
            return;
        };
        let Ok(read) = Selector::new(Some(selector)) else {
            return; // told already
        };
        if read.is_everything() {
            // What was refused for its type is not there any more.
            let is_empty = self.node(FIELD).is_some_and(|node| {
                let entries = node.object().map_or(&[][..], |object| &object.entries);
                entries.iter().all(|entry| {
                    entry.value.items().is_empty()
                        && entry.value.object().is_none_or(|o| o.entries.is_empty())
                })
            });
            if is_empty {
                let message =
                    "spec.nodeSelector selects every node, those of the control plane too".to_owned();
                self.tell(Rule::SelectsEveryNode, FIELD, message, None);
            }
            return;
        }
        let mut asked = BTreeMap::<&str, Asked>::new();
        // The controller adds these (S13, S49).
        asked.entry(LABEL_HOSTNAME).or_default().present = true;
        let own_label = format!(
            "{}{}",
            names::LABEL_PLAN_PREFIX,
            plan.metadata.name.as_deref().unwrap_or_default()
        );
        let denied = &mut asked.entry(&own_label).or_default().denied;
        denied.insert(LABEL_VALUE_DISABLED.to_owned());

        let mut told = BTreeSet::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            asked.entry(key).or_default().one_of([value.clone()]);
        }
        let impossible: Vec<_> = asked
            .iter()
            .filter(|(_, asked)| asked.is_impossible())
            .map(|(key, _)| (*key).to_owned())
            .collect();
        for key in impossible {
            told.insert(key.clone());
            self.never_matches("spec.nodeSelector.matchLabels", &key);
        }
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let one = asked.entry(&expression.key).or_default();
            let values = expression.values.clone().unwrap_or_default();
            match expression.operator.as_str() {
                "In" => one.one_of(values),
                "NotIn" => one.denied.extend(values),
                "Exists" => one.present = true,
                "DoesNotExist" => one.absent = true,
                _ => {}
            }
            if one.is_impossible() && told.insert(expression.key.clone()) {
                let field = format!("spec.nodeSelector.matchExpressions[{index}]");
                self.never_matches(&field, &expression.key);
            }
        }
    }

    fn never_matches(&mut self, field: &str, key: &str) {
        let message = if key == LABEL_HOSTNAME {
            format!("{field} asks for nodes without the label {key:?}, which every node of a Plan must have")
        } else {
            format!("{field}: no node can have a label {key:?} for which all of the selector holds")
        };
        let hint = "all conditions of a selector must hold at once".to_owned();
        self.tell(Rule::SelectorMatchesNothing, field, message, Some(hint));
    }
}
