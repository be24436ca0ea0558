//! The init containers before the upgrade.

use k8s_openapi::api::core::v1::Container;

use super::containers::{self, DRAIN};
use super::plan_containers::PREFLIGHT;
use super::{drain, prepull};
use crate::error::JobError;
use crate::job_input::{NodeInput, PlanInput};
use crate::settings::JobSettings;

const CORDON: &str = "cordon";

/// The containers before the upgrade, in their order.
pub(super) fn containers(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
) -> Result<Vec<Container>, JobError> {
    let spec = plan.spec;
    let mut all = Vec::new();
    if spec.has_sentinel() {
        // It must fail before the node is touched.
        all.push(containers::probe(plan, node, settings)?);
    }
    if let Some(preflight) = &spec.preflight {
        all.push(containers::look(PREFLIGHT, preflight, plan, node, settings));
    }
    if let Some(prepare) = &spec.prepare {
        all.push(containers::prepare(prepare, plan, node, settings));
    }
    // A drain cordons the node itself, so `cordon` has no effect with it (S24).
    let disruption = match &spec.drain {
        Some(drain) => {
            let args = drain::drain_command(spec, drain, node.name, node.is_windows())?;
            Some((DRAIN, args))
        }
        None if spec.cordon.unwrap_or_default() => Some((CORDON, drain::cordon_args(node.name))),
        None => None,
    };
    if let Some((name, args)) = disruption {
        // Before the cordon: if the image cannot be pulled, the node stays as it was.
        if prepull::applies(spec, node) {
            all.extend(prepull::containers(plan, settings).into_iter().flatten());
        }
        all.push(containers::disruption(name, args, plan, node, settings));
    }
    Ok(all)
}
