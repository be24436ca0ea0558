//! The taints of nodes. The scheduler places the pod of a Job, although its affinity names the node: with a taint that it
//! does not tolerate, the pod would wait until the deadline of its Job, and keep a slot.

use k8s_openapi::api::core::v1::Toleration;

use super::limit::{Limit, Turn, Verdict};
use crate::blocker::Blocker;
use crate::plan::DerivedPlan;
use refit_facts::{NodeFacts, Taint};

/// Taints that every pod tolerates for some minutes, unless it says otherwise: the admission plugin
/// `DefaultTolerationSeconds` adds that.
const TOLERATED_BY_DEFAULT: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The tolerations of a Plan's pods.
pub(crate) struct Tolerations(Vec<Toleration>);

impl<'a> Limit<'a> for Tolerations {
    fn admit(&mut self, turn: &mut Turn<'_, 'a>) -> Verdict {
        Verdict::skip_if(self.blocker(turn.node))
    }
}

impl Tolerations {
    pub(crate) fn of(plan: &DerivedPlan) -> Self {
        Self(refit_job::tolerations(plan.spec()))
    }

    pub(crate) fn blocker(&self, node: &NodeFacts) -> Option<Blocker> {
        let taints = node.taints.iter().flatten();
        let taints: Vec<_> = taints.filter(|taint| self.is_kept_off(taint)).cloned().collect();
        (!taints.is_empty()).then_some(Blocker::TaintNotTolerated { taints })
    }

    /// Whether one of them names the key of the taint.
    pub(super) fn name(&self, taint: &Taint) -> bool {
        self.0.iter().any(|it| it.key.as_ref() == Some(&taint.key))
    }

    fn is_kept_off(&self, taint: &Taint) -> bool {
        let by_default = taint.effect == "NoExecute" && TOLERATED_BY_DEFAULT.contains(&taint.key.as_str());
        let mut tolerations = self.0.iter();
        taint.keeps_pods_off()
            && !taint.is_of_new_node()
            && !by_default
            && !tolerations.any(|it| taint.is_tolerated_by(it))
    }
}
