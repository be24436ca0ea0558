//! The controllers of the cluster: Jobs, ReplicaSets, `StatefulSets`, disruption budgets, nodes, definitions and the garbage collector. Each
//! looks at one object when something about it has changed, and writes what follows.

pub(super) mod backoff;
pub(super) mod budget;
mod collect;
mod job;
mod job_pods;
mod job_status;
mod node;
mod replica_set;
mod stateful_set;
#[cfg(test)]
mod tests;
