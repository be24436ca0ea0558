//! Scenarios over several decisions: the real controller on the simulated cluster, with one fault or one user action at
//! a chosen moment. The invariants of the simulation are checked on every change.

mod adoption;
mod cancel;
mod channel;
mod fail;
mod finish;
mod hostile;
mod interrupted;
mod jobs;
mod reboot;
mod requests;
mod scenario;
mod schema;
mod settle;
mod start;
mod status;
mod sweep;
