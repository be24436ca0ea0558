//! What a node is given: the Job, the pod that reboots it, their names, the digest that says whether the Job has to run, and
//! the image it runs.
//!
//! Pure: the same input gives the same bytes. No client, no clock, no environment and no file is read here; what the
//! controller knows of those comes in through [`JobSettings`]. It decides neither which node is started nor when.

pub mod digest;
pub mod image;
pub mod inputs;
pub mod name;
pub mod reboot;
pub mod render;
pub mod settings;

pub use reboot::{Errand, RebootInput, reboot_pod};
pub use render::{Findings, JobError, JobInput, NO_DIGESTS, NodeInput, PlanInput, Remark, check, render};
pub use settings::JobSettings;
