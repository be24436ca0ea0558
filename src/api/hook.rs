//! `spec.before` and `spec.after`: containers that run once for each roll-out. The doc comments of the fields are what
//! `kubectl explain` prints.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::OpenEnum;
use super::phase::HookPhase;
use super::plan::{ContainerSpec, PlanSpec};
use super::reboot::HostAccess;
use super::status::PlanStatus;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// `spec.before`.
    Before,
    /// `spec.after`.
    After,
}

impl Hook {
    pub const ALL: [Self; 2] = [Self::Before, Self::After];

    /// Its field, its container, and the start of the name of its Job.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.as_str() == name)
    }

    pub fn spec(self, plan: &PlanSpec) -> Option<&HookSpec> {
        match self {
            Self::Before => plan.before.as_deref(),
            Self::After => plan.after.as_deref(),
        }
    }

    pub fn status(self, plan: &PlanStatus) -> Option<&HookStatus> {
        match self {
            Self::Before => plan.before.as_deref(),
            Self::After => plan.after.as_deref(),
        }
    }
}

/// A container that runs once for each roll-out, in a Job of its own.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookSpec {
    #[serde(flatten)]
    pub container: ContainerSpec,
    /// Labels of the nodes on which the pod may run, as in a pod. Defaults to all nodes.
    ///
    /// The pod has the tolerations of the Plan, and does not start on a node that is cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// What the pod can access of the host, as `spec.hostAccess`. Defaults to `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_access: Option<HostAccess>,
}

impl HookSpec {
    pub fn host_access(&self) -> HostAccess {
        self.host_access.unwrap_or(HostAccess::None)
    }
}

/// How far `before` or `after` is.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// The `latestHash` of the roll-out.
    #[serde(default)]
    pub hash: String,
    /// `Running`, `Succeeded` or `Failed`.
    #[serde(default)]
    pub phase: OpenEnum<HookPhase>,
    /// When it entered the phase (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Name of the Job.
    #[serde(default)]
    pub job: String,
    /// Number of the attempt, from 1.
    #[serde(default)]
    pub attempt: i64,
    /// How often it was tried again without a person, as `failure.retries` says.
    #[serde(default, skip_serializing_if = "refit_base::is_zero")]
    pub retries: i64,
    /// What its pod waits for, or why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
