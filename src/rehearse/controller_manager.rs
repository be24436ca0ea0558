//! The controllers of the cluster: Jobs, ReplicaSets, `StatefulSets`, disruption budgets, nodes, CRDs and the garbage
//! collector. Each reconciles one object after a change that concerns it.

pub(super) mod backoff;
mod budget;
mod garbage_collector;
mod job;
mod job_pods;
mod job_status;
mod node;
pub(super) mod pod_counts;
mod replica_set;
pub(super) mod selected_pods;
mod stateful_set;
#[cfg(test)]
mod tests;
