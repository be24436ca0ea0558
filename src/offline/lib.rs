//! What needs no controller: Plan files and their versions, and the differences from system-upgrade-controller.

#![forbid(unsafe_code)]

pub mod gitops;
pub mod migrate;
