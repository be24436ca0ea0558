//! Objects other than Plans that refit handles: `NodeOp`, `NodeOpUpgrade` and `NodeMaintenance`.

mod maintenance;
mod node_op;

use std::collections::BTreeMap;

use super::definitions::of_front_end;
use super::options::Options;
use super::running::Running;
use super::subject::Subject;
use crate::gitops::finding::{Finding, Levels};
use crate::gitops::objects::{FrontEnd, Object};
use crate::gitops::roots::Roots;
use crate::gitops::rule::{Rule, Severity};
use crate::gitops::source::Source;
use refit_base::nearest::nearest;

/// Where the first `NodeMaintenance` for each node is, by the name of the node, and the cluster of its file.
pub(super) type Maintained = BTreeMap<String, Vec<(String, Roots)>>;

impl Subject<'_> {
    pub(super) fn check_front_end(
        &mut self,
        kind: FrontEnd,
        options: &Options,
        nodes: &[&Running],
        maintained: &mut Maintained,
    ) {
        self.check_repeated_keys();
        let before = self.found.len();
        if let Some(schema) = of_front_end(kind) {
            self.read_by_schema(schema);
        }
        let unreadable = [
            Rule::WrongType,
            Rule::MissingField,
            Rule::NotAllowed,
            Rule::Placeholder,
        ];
        let is_readable = !self.found[before..]
            .iter()
            .any(|found| unreadable.contains(&found.rule));
        if self.has("metadata.name") {
            self.check_name("metadata.name");
        } else if !self.has("metadata.generateName") {
            let message = "metadata.name is missing".to_owned();
            let hint = "add `name`, or `generateName` for `kubectl create`".to_owned();
            self.report(Rule::MissingField, "metadata.name", message, Some(hint));
        }
        match kind {
            FrontEnd::Op(_) if is_readable => self.check_node_op(options, nodes),
            FrontEnd::Op(_) => {}
            FrontEnd::Maintenance(_) => self.check_maintenance(maintained),
        }
    }

    /// Reports an object that was probably meant to be one of these kinds.
    pub(super) fn check_nearly_a_front_end(&mut self) {
        let (version, kind) = (&self.object.api_version, &self.object.kind);
        let group = version.split('/').next().unwrap_or_default();
        let of_group = FrontEnd::ALL.into_iter().filter(|it| it.group() == group);
        if self.object.node.get("$patch").is_some() {
            return;
        }
        if let Some(meant) = of_group.clone().find(|it| it.kind() == kind) {
            let message = format!(
                "apiVersion is {version:?}, but refit handles a {kind} of {:?} only",
                meant.api_version()
            );
            let hint = format!("write `apiVersion: {}`", meant.api_version());
            self.report(Rule::NotAPlan, "apiVersion", message, Some(hint));
        } else if let Some(meant) = nearest(kind, of_group.clone().map(FrontEnd::kind)) {
            let kinds: Vec<_> = of_group.map(FrontEnd::kind).collect();
            let message = format!(
                "kind is {kind:?}, but the kinds of {group} are {}",
                kinds.join(", ")
            );
            self.report(
                Rule::NotAPlan,
                "kind",
                message,
                Some(format!("write `kind: {meant}`")),
            );
        }
    }
}

/// What the API server or the controller would refuse of an object.
pub fn refused(source: &Source, object: &Object<'_>, kind: FrontEnd) -> Vec<Finding> {
    let options = Options {
        levels: Levels::default(),
        namespace: None,
    };
    let mut subject = Subject::new(source, object, &options.levels);
    subject.check_front_end(kind, &options, &[], &mut Maintained::new());
    let mut found = subject.finish();
    found.retain(|found| found.severity == Severity::Error);
    found.sort_by_key(|found| (found.position, found.rule));
    found
}
