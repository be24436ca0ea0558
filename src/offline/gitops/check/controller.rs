//! What the controller would say of a Plan's version and of its selection of nodes. For the rest of its spec, see
//! [`validity`](super::validity).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::{Value, json};

use super::subject::Subject;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Entry, Node};
use refit_api::selector::Selector;
use refit_api::{Plan, PlanSpec};
use refit_base::nearest::nearest;

/// S54's words for a Plan with neither `version` nor `channel`.
pub(super) const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";
impl Subject<'_> {
    pub(super) fn check_as_controller(&mut self, plan: &Plan) {
        self.check_validity(plan);
        self.check_version(&plan.spec);
        self.check_node_selector(&plan.spec);
    }

    fn check_version(&mut self, spec: &PlanSpec) {
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let is_refused = |field, read: &Option<String>| self.is_refused(field, read.as_ref());
        if is_refused("spec.version", &spec.version) || is_refused("spec.channel", &spec.channel) {
            return;
        }
        // A Plan with `trigger` may only reboot nodes, which needs no version.
        if !given(&spec.version) && !given(&spec.channel) && !spec.is_on_request() {
            let is_channel = self.has("spec.channel") && !self.has("spec.version");
            let field = if is_channel {
                "spec.channel"
            } else {
                "spec.version"
            };
            let hint = "give it a version such as `v1.33.4+k3s1`, or a channel such as \
                        `https://update.k3s.io/v1-release/channels/stable`"
                .to_owned();
            self.report(Rule::NoVersion, field, UNRESOLVABLE.to_owned(), Some(hint));
        }
        self.check_channel(spec);
    }

    /// Each part of the selector by itself, so that the mistake has its line.
    fn check_node_selector(&mut self, spec: &PlanSpec) {
        let Some(selector) = &spec.node_selector else {
            return;
        };
        let mut reported = false;
        let labels = self.node("spec.nodeSelector.matchLabels").and_then(Node::object);
        for Entry { key, value, .. } in labels.iter().flat_map(|labels| &labels.entries) {
            // A word stands for a placeholder in the Plan that was read.
            let Some(text) = value.text().filter(|text| !is_placeholder(text)) else {
                continue;
            };
            if is_placeholder(&key.name) {
                continue;
            }
            let one = json!({ "matchLabels": { key.name.clone(): text } });
            if let Some(error) = selector_error(one) {
                reported = true;
                let field = "spec.nodeSelector.matchLabels";
                self.report_at(
                    Rule::BadSelector,
                    key.span.start,
                    Some(field),
                    format!("{field}: {error}"),
                    None,
                );
            }
        }
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let values = format!("spec.nodeSelector.matchExpressions[{index}].values");
            let is_refused = expression.values.is_none() && self.has(&values);
            let operator = format!("spec.nodeSelector.matchExpressions[{index}].operator");
            let is_missing = expression.operator.is_empty() && !self.has(&operator);
            if expression.key.is_empty() || is_missing || is_refused {
                reported = true; // it is missing or has the wrong type, which the schema has said
            } else if let Some(error) = selector_error(json!({ "matchExpressions": [expression] })) {
                reported = true;
                let field = format!("spec.nodeSelector.matchExpressions[{index}]");
                let (place, hint) = expression_hint(&field, expression);
                let message = if place.ends_with(".values") {
                    format!("{place} {}", of_values(expression))
                } else {
                    format!("{field}: {error}")
                };
                self.report(Rule::BadSelector, &place, message, hint);
            }
        }
        if let Err(error) = Selector::new(Some(selector))
            && !reported
        {
            self.report(
                Rule::BadSelector,
                "spec.nodeSelector",
                format!("spec.nodeSelector: {error}"),
                None,
            );
        }
    }
}

pub(super) fn selector_error(selector: Value) -> Option<String> {
    let selector = serde_json::from_value(selector).ok()?;
    Selector::new(Some(&selector))
        .err()
        .map(|error| error.to_string())
}

fn of_values(expression: &LabelSelectorRequirement) -> String {
    let operator = &expression.operator;
    match expression.values.as_deref() {
        Some([_, ..]) => format!("has a value, and the operator {operator} takes none"),
        Some([]) => format!("is empty, and the operator {operator} needs at least one value"),
        None => format!("is missing, and the operator {operator} needs at least one value"),
    }
}

/// The field of a requirement that is wrong, and what was meant.
pub(super) fn expression_hint(
    field: &str,
    expression: &LabelSelectorRequirement,
) -> (String, Option<String>) {
    const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
    let values = expression.values.as_deref().unwrap_or_default();
    match expression.operator.as_str() {
        "Exists" | "DoesNotExist" if !values.is_empty() => (
            format!("{field}.values"),
            Some("remove it; the operator takes no values".to_owned()),
        ),
        "In" | "NotIn" if values.is_empty() => {
            let hint = "list the values that are meant".to_owned();
            (format!("{field}.values"), Some(hint))
        }
        operator if !OPERATORS.contains(&operator) => {
            let meant = match operator {
                "=" | "==" | "Equal" | "Equals" | "Is" => Some("In"),
                "!=" | "NotEqual" | "NotEquals" | "IsNot" => Some("NotIn"),
                "!" | "NotExists" | "NotExist" => Some("DoesNotExist"),
                _ => nearest(operator, OPERATORS),
            };
            let hint = meant.map_or_else(
                || "the operators are In, NotIn, Exists and DoesNotExist".to_owned(),
                |meant| format!("did you mean `{meant}`?"),
            );
            (format!("{field}.operator"), Some(hint))
        }
        _ => (field.to_owned(), None),
    }
}
