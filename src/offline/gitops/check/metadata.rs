//! Names, labels and annotations: what Kubernetes accepts, and what does not belong in a file.

use super::jobs::{ANY_HASH, version_of};
use super::label_values::is_filled_in;
use super::subject::Subject;
use super::value::yaml_text;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Entry, Node};
use refit_api::PlanSpec;
use refit_api::complete_label::expand;
use refit_api::selector::{self, is_dns_label, label_key_problems, label_value_problems};

/// Maximum length of a DNS subdomain.
const MAX_NAME: usize = 253;

/// Metadata fields that only the API server sets.
pub const SERVER_FIELDS: [&str; 6] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
];

impl Subject<'_> {
    pub(super) fn check_metadata(&mut self, namespace: Option<&str>) {
        if !self.has("metadata.name") {
            let hint = "the label that marks a finished node contains the name".to_owned();
            let message = if self.has("metadata.generateName") {
                "metadata.name is missing, and `kubectl apply` refuses generateName"
            } else {
                "metadata.name is missing"
            };
            self.report(
                Rule::MissingField,
                "metadata.name",
                message.to_owned(),
                Some(hint),
            );
        }
        self.check_name("metadata.name");
        self.check_namespace(namespace);
        self.check_label_map("metadata.labels", true);
        // The value of an annotation may be any text.
        self.check_label_map("metadata.annotations", false);
        for field in SERVER_FIELDS {
            let field = format!("metadata.{field}");
            if self.has(&field) {
                self.check_server_fields(&field);
            }
        }
        if self
            .node("status")
            .and_then(Node::object)
            .is_some_and(|status| !status.entries.is_empty())
        {
            self.check_server_fields("status");
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

    fn check_server_fields(&mut self, field: &str) {
        self.report(
            Rule::ServerField,
            field,
            format!("{field} is written by the API server"),
            Some(
                if matches!(field, "metadata.resourceVersion" | "metadata.uid") {
                    "remove it; `kubectl get` printed it, and the API server refuses the Plan unless its own value is the same"
                } else {
                    "remove it; `kubectl get` printed it, and the API server ignores it"
                }
                .to_owned(),
            ),
        );
    }

    pub(super) fn check_name(&mut self, field: &str) {
        let Some(name) = self.node(field).and_then(Node::text) else {
            return;
        };
        // An empty account or class means the default.
        let may_be_empty = matches!(field, "spec.serviceAccountName" | "spec.priorityClassName");
        if is_placeholder(name) || is_subdomain(name) || (name.is_empty() && may_be_empty) {
            return;
        }
        self.report(
            Rule::BadName,
            field,
            format!(
                "{field} is {name:?}; it must be lower-case letters, digits, '-' and '.', with a letter or digit at each end \
                 and next to each '.', and at most {MAX_NAME} characters"
            ),
            (field == "metadata.name").then(|| name_hint(name)).flatten(),
        );
    }

    fn check_namespace(&mut self, expected: Option<&str>) {
        const FIELD: &str = "metadata.namespace";
        let namespace = self
            .node(FIELD)
            .and_then(Node::text)
            .filter(|text| !text.is_empty());
        let Some(namespace) = namespace else { return };
        if is_placeholder(namespace) {
            return;
        }
        if !is_dns_label(namespace) {
            let message = format!(
                "{FIELD} is {namespace:?}; it must be at most 63 lower-case letters, digits and '-', with a letter or digit at \
                 each end"
            );
            self.report(Rule::BadName, FIELD, message, None);
        } else if let Some(expected) = expected.filter(|expected| *expected != namespace) {
            let message =
                format!("{FIELD} is {namespace:?}, but the controller handles only Plans in {expected:?}");
            self.report(
                Rule::OtherNamespace,
                FIELD,
                message,
                Some(format!("write `{expected}`")),
            );
        }
    }

    /// Checks the keys of labels or annotations, and with `values` the values too.
    pub(super) fn check_label_map(&mut self, path: &str, values: bool) {
        let Some(object) = self.node(path).and_then(Node::object) else {
            return;
        };
        for Entry { key, value, .. } in &object.entries {
            let problems = label_key_problems(&key.name);
            if let [problem, ..] = problems.as_slice()
                && !is_filled_in(path.rsplit('.').next().unwrap_or_default(), &key.name)
            {
                let message = format!("the key {:?} of {path}: {problem}", key.name);
                self.report_at(Rule::BadName, key.span.start, Some(path), message, None);
            }
            let text = value.text().filter(|text| values && !is_placeholder(text));
            if let Some([problem, ..]) = text.map(label_value_problems).as_deref() {
                let message = format!(
                    "the value {:?} of {path}.{}: {problem}",
                    text.unwrap_or_default(),
                    key.name
                );
                self.report_at(Rule::BadName, value.offset(), Some(path), message, None);
            }
        }
    }

    pub(super) fn check_post_complete_labels(&mut self, spec: &PlanSpec) {
        const FIELD: &str = "spec.postCompleteLabels";
        let version = version_of(spec);
        // The values are checked below, after their variables are replaced.
        self.check_label_map(FIELD, false);
        for (key, value) in spec.post_complete_labels.iter().flatten() {
            let filled_in = expand(value, &version, ANY_HASH);
            let Some(problem) = label_value_problems(&filled_in).into_iter().next() else {
                continue;
            };
            let entry = self.node(FIELD).and_then(|labels| labels.object()?.entry(key));
            let offset = entry.map_or(0, |entry| entry.value.offset());
            let hint = value
                .contains("$(")
                .then(|| "refit replaces only $(LATEST_VERSION) and $(LATEST_HASH)".to_owned());
            let message = format!("the value {value:?} of {FIELD}.{key}: {problem}");
            self.report_at(Rule::BadName, offset, Some(FIELD), message, hint);
        }
    }
}

fn name_hint(name: &str) -> Option<String> {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(plain).collect();
    let name = name.trim_matches(['-', '.']);
    is_subdomain(name).then(|| format!("write `{}`", yaml_text(name)))
}

/// Whether the text is a DNS subdomain (RFC 1123), as the names of most objects must be.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_NAME && selector::is_subdomain(text)
}
