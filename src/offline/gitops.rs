//! Plans in files: parsed with source locations, validated, and edited byte for byte.
//!
//! Nothing here prints or talks to a cluster. `api` and `job` decide what a Plan means, so the controller and the
//! command line report the same errors in the same words. What is accepted but suspicious is found by the closed list
//! of rules in [`rule`].

pub mod check;
pub mod edit;
pub mod finding;
pub mod input;
pub mod kustomize;
pub mod objects;
pub mod overlay;
pub mod patch;
pub mod pin;
pub mod placeholder;
pub mod position;
mod reference;
pub mod roots;
pub mod rule;
pub mod source;
pub mod write;
pub mod yaml;

pub use finding::{Finding, Levels};
pub use rule::{Rule, Severity};
pub use source::Source;
