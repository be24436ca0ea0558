//! Plans as they lie in files: read with the place of everything, judged, and edited byte for byte.
//!
//! Nothing here prints, and nothing talks to a cluster. What a Plan means is asked of `api` and `job`, so that the
//! controller and the command line say the same in the same words; what is only suspicious is said here, by the closed
//! list of rules in [`rule`].

pub mod check;
pub mod edit;
pub mod finding;
pub mod input;
pub mod kustomize;
pub mod objects;
pub mod pin;
pub mod place;
pub mod rule;
pub mod source;
pub mod write;
pub mod yaml;

pub use finding::{Finding, Levels, Severity};
pub use rule::Rule;
pub use source::Source;
