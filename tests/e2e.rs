//! Real nodes: kubelets, containerd and hosts that reboot (`tests/testenv/real.rs`). They need root and Debian, so `cargo
//! cluster` ignores them; `just e2e` runs them all, `.ci/run` some of them.
//!
//! Assertions about a host read the host itself: files that payloads wrote, boots that the supervisor counted.

mod deployed;
mod front_ends;
mod harness;
mod machines;
mod plans;
mod reboot;
mod remains;
