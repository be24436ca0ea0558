//! A cluster and its nodes: the client of the API server, cordons and drains, the commands that run on a node, and the clock.

#![forbid(unsafe_code)]

pub mod agent;
pub mod clock;
pub mod drain;
pub mod kube;
pub mod node;
pub mod node_fit;
pub mod scale;
