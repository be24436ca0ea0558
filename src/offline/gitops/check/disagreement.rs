//! Two Plans that install different versions of one distribution on the same nodes: each undoes what the other one did,
//! or waits for ever because the nodes are newer.

use super::prepare::Known;
use super::running::Running;
use super::selector::implies;
use super::subject::Subject;
use crate::gitops::rule::Rule;
use refit_api::selector::Selector;

impl Subject<'_> {
    /// Compares the Plan with others, and reports the first one that installs another version on the same nodes.
    pub(super) fn check_disagreement<'k>(
        &mut self,
        own: &Known,
        others: impl IntoIterator<Item = &'k Known>,
        nodes: &[&Running],
    ) -> bool {
        const FIELD: &str = "spec.version";
        for other in others {
            let is_other = own.is_beside(other) && other.name != own.name;
            if !is_other || own.is_suspended || other.is_suspended || !have_different_versions(own, other) {
                continue;
            }
            let Some(shared) = shared_nodes(own, other, nodes) else {
                continue;
            };
            let versions = [own, other].map(|plan| plan.version.as_deref().unwrap_or_default());
            let message = format!(
                "{FIELD} is {:?}, and that of Plan {:?} is {:?}, but {shared}",
                versions[0], other.name, versions[1]
            );
            let hint =
                "give both Plans the same version, or let the selector of one exclude the nodes of the other";
            self.report(Rule::PlansDisagree, FIELD, message, Some(hint.to_owned()));
            return true;
        }
        false
    }
}

/// Whether both install the same distribution, in different versions.
fn have_different_versions(own: &Known, other: &Known) -> bool {
    let releases = own.release.as_ref().zip(other.release.as_ref());
    own.program == other.program && releases.is_some_and(|(mine, theirs)| mine != theirs)
}

/// Which nodes both Plans select, if that is certain: by the nodes in the files, or because the selector of one of them
/// implies that of the other.
fn shared_nodes(own: &Known, other: &Known, nodes: &[&Running]) -> Option<String> {
    let (mine, theirs) = (own.selector.as_ref()?, other.selector.as_ref()?);
    if !nodes.is_empty() {
        let (mine, theirs) = (Selector::new(Some(mine)).ok()?, Selector::new(Some(theirs)).ok()?);
        let shared = nodes
            .iter()
            .find(|node| mine.matches(&node.labels) && theirs.matches(&node.labels))?;
        return Some(format!("both select node {}", shared.name));
    }
    match (implies(mine, theirs), implies(theirs, mine)) {
        (true, true) => Some("both select the same nodes".to_owned()),
        (true, false) => Some("that one selects each node that this one selects".to_owned()),
        (false, true) => Some("this one selects each node that that one selects".to_owned()),
        (false, false) => None,
    }
}
