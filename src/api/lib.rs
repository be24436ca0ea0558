//! The Plan: spec, status, and the labels and annotations that refit reads and writes. Contains no I/O.

#![forbid(unsafe_code)]

pub mod access;
pub mod annotation;
pub mod approval;
pub mod channel_ref;
pub mod check;
pub mod complete_label;
pub mod crd;
pub mod digest;
pub mod drain;
pub mod exemption;
pub mod failure;
mod field_enum;
pub mod hook;
pub mod ids;
pub mod image;
mod installs;
pub mod invalid;
pub mod ledger;
pub mod limits;
pub mod names;
pub mod node_condition;
pub mod node_info;
pub mod node_limit;
pub mod node_mark;
pub mod notified;
mod object_ref;
pub mod open_enum;
pub mod order;
pub mod phase;
pub mod plan;
pub mod pod_blocker;
pub mod prepare;
pub mod reason;
pub mod reboot;
pub mod reboot_request;
mod redact;
pub mod remediation;
pub mod repeat;
pub mod schedule;
pub mod schema;
mod secret_ref;
pub mod selector;
pub mod sentinel;
pub mod settle;
pub mod status;
pub mod text;
pub mod trigger;
pub mod validate;
pub mod version_policy;
pub mod wait_for;
pub mod wave;
pub mod window;
pub mod workload;

pub use access::ApiAccess;
pub use channel_ref::ChannelRef;
pub use check::{Check, CheckAnswer, CheckRequest, CheckSpec, HttpCheck, PrometheusCheck};
pub use drain::{DrainNote, DrainWait, NodeDrain, RunningPod};
pub use failure::{FailurePolicy, FailureSpec};
pub use hook::{Hook, HookSpec, HookStatus};
pub use installs::{Installs, OnDrift};
pub use invalid::{ErrorList, FieldPath, Invalid};
pub use ledger::{Cancelled, Holder, Ledger};
pub use node_condition::{NodeConditionReason, NodeConditionType};
pub use node_info::{NodeInfo, NodeInfoSelector, NodeInfoSpec, SkipWhenSpec, VersionEvidence, is_like};
pub use node_limit::NodeLimit;
pub use node_mark::{MarkForm, NodeMark};
pub use notified::Notified;
pub use object_ref::ObjectRef;
pub use open_enum::OpenEnum;
pub use order::{ControlPlaneOrder, Criterion, OrderSpec};
pub use phase::{CheckPhase, ConditionType, HookPhase, NodePhase, PlanState, WavePhase};
pub use plan::{
    AfterTimeout, ContainerSpec, DependencySpec, DrainSpec, DrainTimeout, Plan, PlanSpec, SecretSpec,
    VolumeSpec,
};
pub use pod_blocker::{PodBlocker, PodBlockerSpec};
pub use reason::{ForeignReason, Reason, Severity};
pub use reboot::{HostAccess, RebootBy, RebootSpec, RebootWhen, SettleSpec};
pub use reboot_request::RebootRequest;
pub use redact::redacted;
pub use remediation::RemediationPause;
pub use repeat::{Repeat, RepeatSpec};
pub use schedule::{BlackoutSpec, WindowSpec};
pub use secret_ref::SecretRef;
pub use sentinel::{RebootFault, SentinelName, SentinelReport};
pub use settle::{ConditionStatus, DaemonSetsSpec, SettleConditionSpec, TaintName};
pub use status::{
    ChannelStatus, CheckStatus, DespiteStatus, ExpectedEnd, FirstSeen, NodeCounts, NodeProgress, Obstacle,
    Origin, PinnedImage, PinnedStatus, PlanCondition, PlanStatus, RepeatStatus, RollOut, VersionDiffers,
    WaveStatus,
};
pub use trigger::Trigger;
pub use version_policy::VersionPolicySpec;
pub use wait_for::{AfterWait, WaitFor, WaitForSpec};
pub use wave::{Wave, WaveNodes, WaveSpec};
pub use window::TimeWindowSpec;
pub use workload::Workload;
