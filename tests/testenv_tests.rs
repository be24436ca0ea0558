//! Tests of the test environment, on which all other tests rely.

mod audit;
mod binaries;
mod context;
mod faults;
mod journal;
pub(crate) mod lifetime;
