//! refit upgrades the nodes of a Kubernetes cluster, a few at a time, as a `Plan` says.
//!
//! Data flows in this order: Plan → channel → version → hash → rollout → Job → node → evidence → label.
//! This package is the command line; its crates are in the folders of `src`, and `CONTRIBUTING.md` says what each is for.

#![forbid(unsafe_code)]

pub mod cli;
