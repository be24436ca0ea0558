//! Labels and annotations of a Node: those that the agent knows, and those that it changes. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// What to set, and with `None` to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Option<String>>,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// As a merge patch. It has the UID of the Node, because another machine may have taken the name.
    pub(super) fn patch(&self, uid: &str) -> Value {
        let mut metadata = json!(self);
        metadata["uid"] = json!(uid);
        json!({ "metadata": metadata })
    }

    pub(super) fn apply(&self, node: &mut Metadata) {
        for (changes, present) in [
            (&self.labels, &mut node.labels),
            (&self.annotations, &mut node.annotations),
        ] {
            for (key, value) in changes {
                match value {
                    Some(value) => present.insert(key.clone(), value.clone()),
                    None => present.remove(key),
                };
            }
        }
    }
}

/// The keys only: others write the values.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || self.labels.iter().chain(&self.annotations);
        let keys = |is_set: bool| -> Vec<&str> {
            let some = all().filter(|(_, value)| value.is_some() == is_set);
            some.map(|(key, _)| key.as_str()).collect()
        };
        let (set, removed) = (keys(true), keys(false));
        if !set.is_empty() {
            write!(f, "set {}", set.join(", "))?;
        }
        if !removed.is_empty() {
            let and = if set.is_empty() { "" } else { "; " };
            write!(f, "{and}removed {}", removed.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_patch_that_names_what_it_sets_and_removes_and_nothing_else() {
        let of = |pairs: &[(&str, Option<&str>)]| -> BTreeMap<String, Option<String>> {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
                .collect()
        };
        let change = Change {
            labels: of(&[("a", Some("1")), ("b", None)]),
            annotations: BTreeMap::new(),
        };
        assert_eq!(
            change.patch("u").to_string(),
            r#"{"metadata":{"labels":{"a":"1","b":null},"uid":"u"}}"#
        );
        assert_eq!(change.to_string(), "set a; removed b");
        let only = Change {
            labels: BTreeMap::new(),
            annotations: of(&[("c", None)]),
        };
        assert_eq!(only.to_string(), "removed c");
        let mut node = Metadata {
            labels: [("b", "2"), ("x", "3")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            annotations: BTreeMap::new(),
        };
        change.apply(&mut node);
        assert_eq!(
            node.labels.into_iter().collect::<Vec<_>>(),
            [("a", "1"), ("x", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }
}
