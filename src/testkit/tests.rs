//! Whole roll-outs of the real controller on a simulated cluster in virtual time.

mod definition;
mod engine;
mod faults;
mod load;
mod marks;
mod reboot_pod;
mod rng;
mod rollout;
mod simulation;
mod soak;
