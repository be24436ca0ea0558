//! Splits a selector into requirements with descriptions, so that messages can name the one that a node does not meet.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Selector;

/// A requirement of a selector.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// The label: `label gpu=yes`.
    label: String,
    /// Whether nodes must not have this label.
    excludes: bool,
    selector: Selector,
}

impl Requirement {
    /// Whether nodes must have this label, with any value or one of some.
    pub fn is_label(&self, key: &str) -> bool {
        !self.excludes && self.key == key
    }

    /// What a node must have: `the label gpu=yes`, `no label gpu`.
    pub fn text(&self) -> String {
        let article = if self.excludes { "no" } else { "the" };
        format!("{article} {}", self.label)
    }

    /// That none of so many nodes meets it.
    pub fn unmet(&self, nodes: usize) -> String {
        match (self.excludes, nodes) {
            (true, 1) => format!("the only node has the {}", self.label),
            (true, _) => format!("all {nodes} nodes have the {}", self.label),
            (false, 1) => format!("the only node does not have the {}", self.label),
            (false, _) => format!("none of {nodes} nodes has the {}", self.label),
        }
    }

    /// Whether an object meets it whose labels are looked up by `label`.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.selector.matches_by(label)
    }
}

/// The requirements of a selector, without invalid ones.
pub fn requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        let one = LabelSelector {
            match_labels: Some([(key.clone(), value.clone())].into()),
            match_expressions: None,
        };
        (key, format!("label {}", written(key, value)), false, one)
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
        let operator = expression.operator.as_str();
        let label = match (operator, values.as_slice()) {
            ("In" | "NotIn", [only]) => format!("label {key}={only}"),
            ("In" | "NotIn", values) => format!("label {key} with one of {}", values.join(", ")),
            _ => format!("label {key}"),
        };
        // A node without the label meets `NotIn`.
        (key, label, matches!(operator, "NotIn" | "DoesNotExist"), one)
    });
    let all = labels.chain(expressions);
    let read = all.filter_map(|(key, label, excludes, one)| {
        Some(Requirement {
            key: key.clone(),
            label,
            excludes,
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
                { "key": "size", "operator": "In", "values": ["big"] },
                { "key": "zone", "operator": "NotIn", "values": ["a"] },
                { "key": "rack", "operator": "NotIn", "values": ["1", "2"] },
                { "key": "arm", "operator": "Exists" },
                { "key": "old", "operator": "DoesNotExist" },
            ],
        }))
        .unwrap();
        let labels: BTreeMap<String, String> = [("zone", "a"), ("rack", "2"), ("gpu", "no"), ("old", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let failing: Vec<String> = requirements(&selector)
            .into_iter()
            .filter(|one| !one.matches(|key| labels.get(key).map(String::as_str)))
            .map(|one| format!("{}, {}", one.text(), found(&one.key, &labels)))
            .collect();
        assert_eq!(
            failing,
            [
                "the label gpu=yes, it has gpu=no",
                "the label role=\"\", it has no such label",
                "the label disk with one of ssd, \"\", it has no such label",
                "the label size=big, it has no such label",
                "no label zone=a, it has zone=a",
                "no label rack with one of 1, 2, it has rack=2",
                "the label arm, it has no such label",
                "no label old, it has old=\"\"",
            ]
        );
        let unmet = |nodes: usize| -> Vec<String> {
            let all = requirements(&selector).into_iter();
            all.filter(|one| ["gpu", "zone"].contains(&&*one.key))
                .map(|one| one.unmet(nodes))
                .collect()
        };
        assert_eq!(
            unmet(1),
            [
                "the only node does not have the label gpu=yes",
                "the only node has the label zone=a"
            ]
        );
        assert_eq!(
            unmet(2),
            [
                "none of 2 nodes has the label gpu=yes",
                "all 2 nodes have the label zone=a"
            ]
        );
    }
}
