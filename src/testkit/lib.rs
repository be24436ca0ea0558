//! What tests of whole roll-outs share: the invariants of a journal, and faults of requests. Its own tests are roll-outs of the real
//! controller on a simulated cluster.

#![forbid(unsafe_code)]

pub mod fault;
pub mod invariants;
#[cfg(test)]
mod tests;
