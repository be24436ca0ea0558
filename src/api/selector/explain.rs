//! Splits a selector into requirements with descriptions, so that messages can name the one that a node does not meet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Selector;

/// A requirement of a selector.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// Description: `the label gpu=yes`, `no label gpu`.
    pub text: String,
    selector: Selector,
}

impl Requirement {
    /// Whether these labels meet it.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

/// The requirements of a selector, without invalid ones.
pub fn requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        let one = LabelSelector {
            match_labels: Some([(key.clone(), value.clone())].into()),
            match_expressions: None,
        };
        (key, format!("the label {}", written(key, value)), one)
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let one = LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![expression.clone()]),
        };
        let key = &expression.key;
        let values: Vec<&str> = expression
            .values
            .iter()
            .flatten()
            .map(|value| shown(value))
            .collect();
        let values = values.join(", ");
        let text = match expression.operator.as_str() {
            "In" => format!("the label {key} with one of {values}"),
            "NotIn" => format!("the label {key} without one of {values}"),
            "DoesNotExist" => format!("no label {key}"),
            _ => format!("the label {key}"),
        };
        (key, text, one)
    });
    let all = labels.chain(expressions);
    let read = all.filter_map(|(key, text, one)| {
        Some(Requirement {
            key: key.clone(),
            text,
            selector: Selector::new(Some(&one)).ok()?,
        })
    });
    read.collect()
}

/// What a node has instead: `and the node has gpu=no`.
pub fn found(key: &str, labels: &BTreeMap<String, String>) -> String {
    match labels.get(key) {
        None => "it has no such label".to_owned(),
        Some(value) => format!("it has {}", written(key, value)),
    }
}

/// A label in kubectl's syntax, with quotes for an empty value.
fn written(key: &str, value: &str) -> String {
    format!("{key}={}", shown(value))
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_requirement_has_words_and_says_whether_labels_fulfil_it() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": { "gpu": "yes", "role": "" },
            "matchExpressions": [
                { "key": "disk", "operator": "In", "values": ["ssd", ""] },
                { "key": "zone", "operator": "NotIn", "values": ["a"] },
                { "key": "arm", "operator": "Exists" },
                { "key": "old", "operator": "DoesNotExist" },
            ],
        }))
        .unwrap();
        let labels: BTreeMap<String, String> = [("zone", "a"), ("gpu", "no"), ("old", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let failing: Vec<String> = requirements(&selector)
            .into_iter()
            .filter(|one| !one.matches(&labels))
            .map(|one| format!("{}, {}", one.text, found(&one.key, &labels)))
            .collect();
        assert_eq!(
            failing,
            [
                "the label gpu=yes, it has gpu=no",
                "the label role=\"\", it has no such label",
                "the label disk with one of ssd, \"\", it has no such label",
                "the label zone without one of a, it has zone=a",
                "the label arm, it has no such label",
                "no label old, it has old=\"\"",
            ]
        );
    }
}
