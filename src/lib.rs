//! refit upgrades the nodes of a Kubernetes cluster, a few at a time, as a `Plan` says.
//!
//! The journey of the data is the order of the house: Plan → channel → version → hash → rollout → Job → node →
//! evidence → label.

#![forbid(unsafe_code)]

pub mod api;
pub mod channel;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod drain;
pub mod gitops;
pub mod job;
pub mod node;
pub mod proxy;
pub mod rehearse;
pub mod rollout;
pub mod telemetry;
pub mod version;
