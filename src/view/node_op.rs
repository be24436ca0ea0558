//! `NodeOp` and `NodeOpUpgrade` objects, which are shown as Plans.

use kube::Client;
use kube::api::ListParams;
use serde_json::value::RawValue;

use super::explain::{explain_node, explain_plan};
use super::explanation::Explanation;
use super::plan::PlanOverview;
use super::read::{Snapshot, list};
use refit_facts::PlanFacts;
use refit_facts::objects::node_op::{AnyOp, GROUP, NodeOp, NodeOpUpgrade, OpKind, OpPhase};
use refit_facts::read::read;
use refit_formats::convert::op_plan;

/// The objects of a kind in all namespaces, by namespace and name.
///
/// # Errors
/// Fails if they cannot be listed.
pub async fn read_ops(client: &Client, kind: OpKind) -> Result<Vec<AnyOp>, kube::Error> {
    let items = list(client, &kind.path(), ListParams::default(), usize::MAX).await?;
    let op = |raw: &RawValue| -> Option<AnyOp> {
        match kind {
            OpKind::Op => read::<NodeOp>(raw).ok().map(Into::into),
            OpKind::Upgrade => read::<NodeOpUpgrade>(raw).ok().map(Into::into),
        }
    };
    let mut ops: Vec<_> = items.iter().filter_map(|raw| op(raw)).collect();
    ops.sort_by_key(AnyOp::title);
    Ok(ops)
}

/// The Plans of the objects of this kind and name; one at most in each namespace of theirs.
pub fn plans_of<'a>(snapshot: &'a Snapshot, kind: OpKind, name: &str) -> Vec<&'a PlanFacts> {
    let is_it = |plan: &&PlanFacts| {
        let mut words = op_plan::owner(plan)
            .into_iter()
            .flat_map(|owner| owner.split([' ', '/']));
        words.next() == Some(kind.name()) && words.nth(1) == Some(name)
    };
    snapshot.plans.iter().filter(is_it).collect()
}

/// Why the Plan of an object is blocked.
pub fn explain_plan_of_op(view: &PlanOverview<'_>, node: Option<&str>) -> Explanation {
    let mut explanation = match node {
        Some(node) => explain_node(view, node),
        None => explain_plan(view),
    };
    if let Some(owner) = op_plan::owner(view.plan) {
        explanation.verdict = format!("{owner}: {}", explanation.verdict);
    }
    explanation
}

/// Why an object has no Plan.
pub fn explain_op_without_plan(op: &AnyOp) -> Explanation {
    let title = op.title();
    let get = format!(
        "kubectl get {}.{GROUP} -n {} {} -o yaml",
        op.kind.plural(),
        op.namespace(),
        op.name()
    );
    let phase = &op.status.phase;
    let mut explanation = Explanation::new(String::new());
    if let Err(why) = op_plan::plan(&op.into(), op.namespace()) {
        explanation.verdict = format!("{title} is refused: it cannot become a Plan");
        explanation.link(title, why);
        explanation.set_remedy("correct the object", &[get]);
    } else if !phase.is_empty() {
        explanation.verdict = format!("{title} is {phase}, and has no Plan");
        explanation.held = *phase != OpPhase::Completed && *phase != OpPhase::Failed;
        explanation.link(
            title,
            "has begun under another controller, or its Plan was deleted: nothing runs twice",
        );
        explanation.set_remedy("create another object to run it again", &[get]);
    } else {
        explanation.verdict = format!("{title} waits: no controller has made a Plan of it");
        explanation.link(title, "has no status");
        explanation.set_remedy("run the controller with --enable=nodeops", &[get]);
    }
    explanation
}
