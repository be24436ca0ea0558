//! Names, labels and annotations: what Kubernetes takes, and what has no business in a file.

use super::{Subject, is_placeholder};
use crate::api::selector::{label_key_problems, label_value_problems};
use crate::gitops::Rule;
use crate::gitops::yaml::{Entry, Node};
use crate::job::name::is_dns_label;

/// The longest DNS subdomain.
const MAX_NAME: usize = 253;

/// Fields of the metadata that only the API server writes.
const OF_SERVER: [&str; 6] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
];

impl Subject<'_> {
    pub(super) fn check_metadata(&mut self, namespace: Option<&str>) {
        if !self.has("metadata.name") && !self.has("metadata.generateName") {
            let hint = "every Plan has a name: it is part of the label that marks a finished node".to_owned();
            self.tell(
                Rule::MissingField,
                "metadata.name",
                "metadata.name is missing".to_owned(),
                Some(hint),
            );
        }
        self.check_name("metadata.name");
        self.check_namespace(namespace);
        self.check_label_map("metadata.labels", "metadata.labels", true);
        self.check_label_map("metadata.annotations", "metadata.annotations", false);
        for field in OF_SERVER {
            let field = format!("metadata.{field}");
            if self.has(&field) {
                self.of_server(&field);
            }
        }
        if self
            .node("status")
            .and_then(Node::object)
            .is_some_and(|status| !status.entries.is_empty())
        {
            self.of_server("status");
        }
        for field in ["spec.serviceAccountName", "spec.priorityClassName"] {
            self.check_name(field);
        }
        for list in ["spec.secrets", "spec.imagePullSecrets"] {
            for index in 0..self.node(list).map_or(0, |list| list.items().len()) {
                self.check_name(&format!("{list}[{index}].name"));
            }
        }
    }

    fn of_server(&mut self, field: &str) {
        self.tell(
            Rule::ServerField,
            field,
            format!("{field} is written by the API server"),
            Some("remove it: it was left over from reading the Plan off a cluster".to_owned()),
        );
    }

    fn check_name(&mut self, field: &str) {
        let Some(name) = self.node(field).and_then(Node::text) else {
            return;
        };
        // An empty account or class is as good as none.
        let may_be_empty = matches!(field, "spec.serviceAccountName" | "spec.priorityClassName");
        if is_placeholder(name) || is_subdomain(name) || (name.is_empty() && may_be_empty) {
            return;
        }
        self.tell(
            Rule::BadName,
            field,
            format!(
                "{field} is {name:?}; it must be lower-case letters, digits, '-' and '.', with a letter or digit at each end \
                 and beside each '.', and at most {MAX_NAME} characters"
            ),
            None,
        );
    }

    fn check_namespace(&mut self, expected: Option<&str>) {
        const FIELD: &str = "metadata.namespace";
        let namespace = self
            .node(FIELD)
            .and_then(Node::text)
            .filter(|text| !text.is_empty());
        let Some(namespace) = namespace else {
            if !self.has(FIELD) {
                let hint = "Plans are carried out in the controller's namespace only, which is `system-upgrade` in most places";
                self.tell(
                    Rule::NoNamespace,
                    FIELD,
                    "the Plan has no metadata.namespace".to_owned(),
                    Some(hint.to_owned()),
                );
            }
            return;
        };
        if is_placeholder(namespace) {
            return;
        }
        if !is_dns_label(namespace) {
            let message = format!(
                "{FIELD} is {namespace:?}; it must be at most 63 lower-case letters, digits and '-', with a letter or digit at \
                 each end"
            );
            self.tell(Rule::BadName, FIELD, message, None);
        } else if let Some(expected) = expected.filter(|expected| *expected != namespace) {
            let message =
                format!("{FIELD} is {namespace:?}, and the controller looks after {expected:?} only");
            self.tell(Rule::OtherNamespace, FIELD, message, None);
        }
    }

    /// Keys of labels or annotations, and the values of labels.
    pub(super) fn check_label_map(&mut self, field: &str, path: &str, values: bool) {
        let Some(object) = self.node(field).and_then(Node::object) else {
            return;
        };
        for Entry { key, value, .. } in &object.entries {
            if let [problem, ..] = label_key_problems(&key.name).as_slice() {
                let message = format!("the key {:?} of {path}: {problem}", key.name);
                self.tell_at(Rule::BadLabel, key.span.start, Some(path), message, None);
            }
            let text = value.text().filter(|text| values && !is_placeholder(text));
            if let Some([problem, ..]) = text.map(label_value_problems).as_deref() {
                let message = format!(
                    "the value {:?} of {path}.{}: {problem}",
                    text.unwrap_or_default(),
                    key.name
                );
                self.tell_at(Rule::BadLabel, value.offset(), Some(path), message, None);
            }
        }
    }
}

/// Whether the text is a DNS subdomain (RFC 1123), as names of most objects are.
fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= MAX_NAME
        && text.split('.').map(str::as_bytes).all(|label| {
            label.first().is_some_and(|b| inner(*b))
                && label.last().is_some_and(|b| inner(*b))
                && label.iter().all(|b| inner(*b) || *b == b'-')
        })
}
