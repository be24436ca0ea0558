//! Plans that nodes request (`spec.trigger`). Such a Plan concerns a node from its request until the node is in another
//! boot, has settled, and has the label of a done node. The label shows a new controller that the work is over, as with
//! any Plan. It is removed when the request is void, so that the next request counts.

use refit_api::{PlanSpec, Reason};
use refit_facts::record::{Phase, Record};
use refit_facts::{NodeFacts, PlanFacts};

/// How a Plan on request sees its nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RebootNeeded {
    /// Whether it runs a container of the user, whose failure a person must inspect.
    has_upgrade: bool,
}

impl RebootNeeded {
    pub(super) fn of(spec: &PlanSpec) -> Option<Self> {
        let has_upgrade = spec.upgrade_container().is_some();
        spec.is_on_request().then_some(Self { has_upgrade })
    }

    /// Whether the Plan concerns the node. The record of a reboot in progress counts, because the request is void as soon as
    /// the node is in another boot.
    pub(super) fn concerns(self, plan: &PlanFacts, hash: &str, node: &NodeFacts) -> bool {
        let record = plan.record(node).filter(|record| *record.hash == *hash);
        node.needed_reboot().is_some() || record.is_some_and(|record| self.is_open(record))
    }

    /// Whether nothing is left to do after a Job that has only drained the node.
    pub(super) fn is_withdrawn(self, node: &NodeFacts) -> bool {
        !self.has_upgrade && node.needed_reboot().is_none()
    }

    fn is_open(self, record: &Record) -> bool {
        match record.phase {
            Phase::Upgraded => true,
            // What failed before the reboot no longer matters when the request is withdrawn; what failed after it does.
            Phase::Failed => {
                let after_reboot = [
                    Reason::NotReadyAfterReboot,
                    Reason::SettleTimedOut,
                    Reason::VerifyFailed,
                ];
                let is_after = |stored| after_reboot.iter().any(|reason| stored == reason);
                self.has_upgrade || record.reason.as_ref().is_some_and(is_after)
            }
            Phase::Retry | Phase::Recovering | Phase::Skipped => false,
        }
    }
}

/// Whether the label of a done node answers no request any more. A request that names no boot is answered until it is
/// withdrawn: an agent withdraws its request after the reboot, and before it requests another one.
pub(super) fn is_answered(plan: &PlanFacts, hash: &str, node: &NodeFacts) -> bool {
    let label = node.labels.of_plan(&plan.name);
    let is_open = node
        .needed_reboot()
        .is_some_and(|request| request.boot_id.is_none());
    label == Some(hash) && !is_open
}
