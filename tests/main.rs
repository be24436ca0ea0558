//! All tests that need more than one module, in one program: one link instead of twenty, and one control
//! plane for all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::large_futures,
    reason = "a test fails by panicking, and speaks on standard error; clippy knows that of functions marked as tests only"
)]

mod support;

mod bench;
mod deploy;
mod docs;
mod examples;
mod faults;
mod jobs;
mod kubelet;
mod leader;
mod life;
mod permissions;
mod plan_hash;
mod plan_status;
mod plan_window;
mod process;
mod rings;
mod rollout;
mod scene;
mod schema;
mod soak;
mod tended;
mod testbed;
