//! Tests of single decisions: put facts into a [`ClusterState`](super::ClusterState), and check one result. Tests over
//! several decisions run the real engine (`src/testkit/tests`).

pub(crate) mod build;
mod complete;
mod decide;
mod differs;
mod hash;
mod hooks;
mod hostile;
mod images;
mod jobs;
mod joining;
mod lifecycle;
mod one_answer;
mod records;
mod repeat;
mod secrets;
mod speed;
mod state;
mod taints;
mod unreadable;
mod versions;
mod waits;
