//! All tests that need more than one module, in one program: one link instead of twenty, and one control plane for all.

mod support;

mod deploy;
mod docs;
mod examples;
mod schema;
mod testbed;
