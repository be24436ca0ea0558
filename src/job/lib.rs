//! Builds what runs on a node: the Job, the reboot Pod, their names, and the digest that decides whether a Job has to
//! run.
//!
//! Pure: the same input gives the same bytes. It reads no client, clock, environment or file; [`JobSettings`] holds the
//! settings of the controller. It does not decide which node starts, or when.

#![forbid(unsafe_code)]

pub mod digest;
mod error;
pub mod inputs;
mod job_input;
pub mod name;
pub mod reboot;
pub mod render;
pub mod settings;

/// Reason of a Job that its `podFailurePolicy` has ended (`pkg/controller/job`).
pub const POD_FAILURE_POLICY: &str = "PodFailurePolicy";

pub use error::JobError;
pub use job_input::{JobInput, NO_DIGESTS, NodeInput, PlanInput};
pub use reboot::{RebootInput, RebootPodMode, reboot_pod};
pub use render::{
    Findings, HookInput, Remark, VerifyInput, check, hook_job, prepull_job, render, tolerations, verify_job,
};
pub use settings::JobSettings;
