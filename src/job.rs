//! What a node is given: the Job, its names, the digest that says whether it has to run, and the image it runs.
//!
//! Pure: the same input gives the same bytes. No client, no clock, no environment and no file is read here; what the
//! controller knows of those comes in through [`JobSettings`]. It decides neither which node is started nor when.

pub mod digest;
pub mod image;
pub mod inputs;
pub mod name;
pub mod render;
pub mod settings;

pub use render::{Findings, JobError, JobInput, NodeInput, PlanInput, Remark, check, render};
pub use settings::JobSettings;
