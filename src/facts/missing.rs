//! Missing permissions of the controller.

use std::collections::BTreeMap;

/// What a Plan needs permissions of the controller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanNeed {
    /// What every Plan needs.
    RollOut,
    Reboots,
    Workloads,
    DrainChecks,
    Remediation,
    PodBlockers,
    DaemonSets,
}

impl PlanNeed {
    pub const ALL: [Self; 7] = [
        Self::RollOut,
        Self::Reboots,
        Self::Workloads,
        Self::DrainChecks,
        Self::Remediation,
        Self::PodBlockers,
        Self::DaemonSets,
    ];

    /// The field of a Plan that has this need.
    pub fn field(self) -> Option<&'static str> {
        Some(match self {
            Self::RollOut => return None,
            Self::Reboots => "spec.reboot",
            Self::Workloads => "spec.settle.workloads",
            Self::DrainChecks => "spec.drain.checkFirst",
            Self::Remediation => "spec.pauseRemediation",
            Self::PodBlockers => "spec.drain.blockedBy",
            Self::DaemonSets => "spec.settle.daemonSets",
        })
    }
}

/// The missing permissions for each need that was checked, each a verb and a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing(pub BTreeMap<PlanNeed, Vec<String>>);

impl Missing {
    /// The result of a check of all permissions, none of which is missing.
    pub fn nothing() -> Self {
        Self(PlanNeed::ALL.map(|need| (need, Vec::new())).into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.values().all(Vec::is_empty)
    }

    /// Whether all of these needs were checked.
    pub fn knows(&self, needs: impl IntoIterator<Item = PlanNeed>) -> bool {
        needs.into_iter().all(|need| self.0.contains_key(&need))
    }

    /// What is missing for these needs, as it follows "the controller may not".
    pub fn phrases(&self, needs: impl IntoIterator<Item = PlanNeed>) -> impl Iterator<Item = String> {
        needs.into_iter().flat_map(|need| {
            let what = self.0.get(&need).into_iter().flatten();
            what.map(move |what| match need.field() {
                Some(field) => format!("{what}, which {field} needs"),
                None => what.clone(),
            })
        })
    }
}
