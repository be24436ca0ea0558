//! The Plan that does what a `NodeOp` or a `NodeOpUpgrade` asks for. Pure.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use refit_api::names;
use refit_facts::objects::node_op::{AnyOp, OpKind};
use refit_formats::convert::op_plan;
pub(super) use refit_formats::convert::op_plan::{ANNOTATION_OWNER, LABEL_OWNER};

/// Annotation of such a Plan: digest of the spec that its object has become. Other changes that users make in the Plan stay.
pub(super) const ANNOTATION_DIGEST: &str = "refit.rs/node-op-digest";
/// Finalizer of such a Plan: labels that it has left on nodes are removed before it goes.
pub(super) const FINALIZER: &str = "refit.rs/node-op";

const DIGEST_LENGTH: usize = 16;

/// Whether an edit of the object changes its Plan. kairos-operator acts on a `NodeOpUpgrade` once, as it was created:
/// an image that is edited later would upgrade all nodes again.
pub(super) fn follows_edits(op: &AnyOp) -> bool {
    op.kind == OpKind::Op
}

/// The Plan of the object, for server-side apply.
///
/// # Errors
/// Fails if the object, or its annotation, cannot become a Plan. The text says what to correct.
pub(super) fn plan(op: &AnyOp, namespace: &str) -> Result<Value, String> {
    let plan = op_plan::plan(&op.into(), namespace)?.plan;
    let spec = json!(plan.spec);
    let digest = Sha256::digest(spec.to_string());
    Ok(json!({
        "apiVersion": format!("{}/v1", names::GROUP),
        "kind": "Plan",
        "metadata": {
            "name": plan.metadata.name,
            "namespace": namespace,
            "labels": { LABEL_OWNER: op.uid() },
            "annotations": {
                ANNOTATION_OWNER: op.title(),
                ANNOTATION_DIGEST: &hex::encode(digest)[..DIGEST_LENGTH],
            },
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }))
}
