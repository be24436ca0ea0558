//! The turns of maintenances: what this process has last done for each object, and when it looks again.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::world::maintenances::{MaintenanceId, Maintenances};
use refit_api::OpenEnum;
use refit_facts::objects::maintenance::{Maintenance, MaintenancePhase, MaintenanceStatus};

/// What a turn is for.
#[derive(Clone, Debug, PartialEq)]
pub struct MaintenanceTask {
    pub object: Maintenance,
    /// Whether the node is its own, and not that of an older object.
    pub is_owner: bool,
    /// Whether it may take the node, and otherwise why not; `None` before a decision.
    pub grant: Option<Result<(), String>>,
}

/// What this process has written of an object. A watch may not have delivered it yet.
#[derive(Clone, Debug, PartialEq)]
pub struct MaintenanceProgress {
    pub status: MaintenanceStatus,
    /// Whether an event says that the maintenance has succeeded or failed.
    pub reported: Option<MaintenancePhase>,
    /// Whether an event says that it has ended.
    pub has_reported_end: bool,
}

impl MaintenanceProgress {
    /// What an earlier process has left.
    pub(crate) fn of(object: &Maintenance) -> Self {
        let reported = object.status.phase.as_ref().and_then(OpenEnum::known);
        Self {
            status: object.status.clone(),
            reported: reported.filter(|phase| *phase != MaintenancePhase::Running),
            has_reported_end: false,
        }
    }
}

#[derive(Debug)]
struct Turn {
    /// What the last turn was for. Something else is a reason for another one.
    task: MaintenanceTask,
    progress: MaintenanceProgress,
    /// When to look again, if nothing changes before.
    again: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeMap<MaintenanceId, Turn>);

/// When a turn is due.
pub(crate) enum Due {
    Now(Box<MaintenanceProgress>),
    At(Timestamp),
    WhenSomethingChanges,
}

impl Turns {
    pub(crate) fn due(&self, id: &MaintenanceId, task: &MaintenanceTask, now: Timestamp) -> Due {
        let turn = self.0.get(id);
        match turn.filter(|turn| turn.task.object.uid() == task.object.uid()) {
            None => Due::Now(Box::new(MaintenanceProgress::of(&task.object))),
            Some(turn) => match turn.again {
                again if turn.task != *task || again.is_some_and(|at| at <= now) => {
                    Due::Now(Box::new(turn.progress.clone()))
                }
                Some(at) => Due::At(at),
                None => Due::WhenSomethingChanges,
            },
        }
    }

    pub(crate) fn started(
        &mut self,
        id: &MaintenanceId,
        task: &MaintenanceTask,
        progress: &MaintenanceProgress,
    ) {
        let turn = Turn {
            task: task.clone(),
            progress: progress.clone(),
            again: None,
        };
        self.0.insert(id.clone(), turn);
    }

    pub(crate) fn ended(
        &mut self,
        id: &MaintenanceId,
        uid: &str,
        progress: MaintenanceProgress,
        again: Option<Timestamp>,
    ) {
        let turn = self.0.get_mut(id);
        if let Some(turn) = turn.filter(|turn| turn.task.object.uid() == uid) {
            (turn.progress, turn.again) = (progress, again);
        }
    }

    pub(crate) fn forget_absent(&mut self, objects: &Maintenances) {
        self.0.retain(|id, _| objects.get(id).is_some());
    }

    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp)) {
        let times = self.0.values_mut().filter_map(|turn| turn.again.as_mut());
        times.for_each(shift);
    }
}
