//! What a decision says: the steps to take now, and the picture of each Plan.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::later::requeue;
use super::picture::PlanPicture;
use super::step::Step;
use super::world::maintenances::ReservationDecisions;
use refit_facts::PlanName;

/// The steps to take now, why the other nodes wait, and the time of the next decision.
#[must_use = "a decision does nothing by itself"]
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// Steps, in no particular order.
    pub steps: Vec<Step>,
    /// When to decide again, if nothing happens before.
    pub requeue_at: Option<Timestamp>,
    /// Which nodes other objects than Plans may take.
    pub grants: ReservationDecisions,
    /// What was decided of each Plan, for status and metrics.
    pub pictures: BTreeMap<PlanName, PlanPicture>,
}

impl Decision {
    /// Whether nodes wait until the API server has another version.
    pub fn waits_for_api_server(&self) -> bool {
        let nodes = self.pictures.values().flat_map(|picture| picture.nodes.values());
        let is_api_server =
            |blocker: &Blocker| matches!(blocker, Blocker::ControlPlaneOlder { node: None, .. });
        nodes.into_iter().any(is_api_server)
    }

    pub(super) fn requeue(&mut self, at: impl Into<Option<Timestamp>>) {
        requeue(&mut self.requeue_at, at);
    }
}
