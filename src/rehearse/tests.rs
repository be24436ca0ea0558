//! Whole roll-outs: the real controller, on a cluster in this process, in virtual time.

mod rollout;
mod storm;
