//! Real nodes: kubelets, containerd and hosts that reboot (`support/real.rs`). They need root and Debian, so `cargo test`
//! shows these as ignored; `just e2e` runs them all, `.ci/run` a handful.
//!
//! What a test here claims about a host, the host itself says: files that payloads wrote, boots that the supervisor counted.

mod deployed;
mod machines;
mod node_side;
mod plans;
mod reboot;
mod remains;
mod stage;
