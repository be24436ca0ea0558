//! Which objects a reason is about: the end of a chain.

use super::explain::plan::{chain_of_dependency, chain_of_named_node};
use super::explanation::Explanation;
use super::plan::PlanOverview;
use super::unavailable::unavailability;
use refit_api::reason::Cause;
use refit_api::{ObjectRef, limits};

/// The links to the objects that a reason is about, for causes that name them.
pub(super) fn chain_of_objects(
    view: &PlanOverview<'_>,
    cause: Cause,
    node: Option<&str>,
    about: &[ObjectRef],
    explanation: &mut Explanation,
    depth: usize,
) {
    let namespace = view.plan.namespace();
    let nodes = ObjectRef::named(about, "Node").filter(|name| Some(*name) != node);
    match cause {
        Cause::NamedNodes => {
            for name in nodes {
                chain_of_named_node(view, name, explanation, depth);
            }
        }
        Cause::FailedNodes => {
            let failed = view.nodes.iter().filter(|node| node.is_failed());
            let failed: Vec<String> = failed
                .map(|node| node.name.clone())
                .take(ObjectRef::MAX)
                .collect();
            for name in failed.iter().filter(|name| Some(name.as_str()) != node) {
                chain_of_named_node(view, name, explanation, depth);
            }
        }
        Cause::Limits => {
            let object = format!("ConfigMap {namespace}/{}", limits::NAME);
            explanation.link(object, "limits all Plans of this controller");
            for name in nodes {
                let why = view.snapshot.node(name).and_then(unavailability);
                let says = why.map_or_else(|| "is being upgraded".to_owned(), |(says, _)| says);
                explanation.link(format!("Node {name}"), says);
            }
        }
        Cause::Plans => {
            for name in ObjectRef::named(about, "Plan") {
                chain_of_dependency(view, name, explanation, depth);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
