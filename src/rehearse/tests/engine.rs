//! Scenarios over several decisions: the real controller on the simulated cluster, with one fault or one user action at
//! a chosen moment. The invariants of the simulation are checked on every change.

mod adoption;
mod cancel;
mod channel;
mod checks;
mod depends;
mod fail;
mod failure;
mod finish;
mod hostile;
mod hostile_kubelet;
mod interrupted;
mod jobs;
mod kindness;
mod limits;
mod maintenance;
mod node_info;
mod on_request;
mod order;
mod pod_blockers;
mod preflight;
mod quorum;
mod reboot;
mod recorded;
mod requests;
mod scenario;
mod schedule;
mod schema;
mod settle;
mod start;
mod status;
mod steer;
mod stuck;
mod sweep;
mod verify;
mod waves;
