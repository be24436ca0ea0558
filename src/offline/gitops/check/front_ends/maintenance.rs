//! What is wrong with a `NodeMaintenance`.

use super::Maintained;
use crate::gitops::check::subject::Subject;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::Node;

const NODE: &str = "spec.nodeName";

impl Subject<'_> {
    pub(super) fn check_maintenance(&mut self, maintained: &mut Maintained) {
        if self.node("spec").is_none_or(Node::is_null) {
            let message = format!("spec is missing, and in it {NODE}, the name of a node");
            self.report(Rule::MissingField, "spec", message, None);
            return;
        }
        let Some(name) = self.node(NODE).and_then(Node::text) else {
            return;
        };
        if is_placeholder(name) {
            return;
        }
        if name.is_empty() {
            let message = format!("{NODE} is empty; it must be the name of a node");
            self.report(Rule::MissingField, NODE, message, None);
            return;
        }
        self.check_name(NODE);
        let line = self.source.position(self.object.node.offset()).line;
        let here = format!(
            "{} ({}:{line})",
            self.object.metadata("name").unwrap_or("without a name"),
            self.source.name
        );
        let known = maintained.entry(name.to_owned()).or_default();
        let roots = &self.source.roots;
        if let Some((first, _)) = known.iter().find(|(_, other)| other.may_share_cluster(roots)) {
            let message = format!(
                "NodeMaintenance {first} is for node {name} already, and a node has one at a time: the other one fails"
            );
            let hint = "remove one of the two".to_owned();
            self.report(Rule::DuplicateObject, NODE, message, Some(hint));
        } else {
            known.push((here, roots.clone()));
        }
    }
}
