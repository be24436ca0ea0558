//! refit upgrades the nodes of a Kubernetes cluster, a few at a time, as a `Plan` says.
//!
//! Data flows in this order: Plan → channel → version → hash → rollout → Job → node → evidence → label.
//! `docs/design.md` lists which module may import which, and `tests/layering.rs` checks it.

#![forbid(unsafe_code)]

pub mod agent;
pub mod api;
pub mod channel;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod convert;
pub mod drain;
#[cfg(test)]
mod generated;
pub mod gitops;
pub mod go;
pub mod job;
pub mod kube;
pub mod migrate;
pub mod nearest;
pub mod node;
pub mod notify;
pub mod page;
pub mod proxy;
pub mod rehearse;
pub mod rollout;
pub mod telemetry;
pub mod version;
pub mod view;
