//! All tests that need more than one module, in one program: one link instead of twenty, and one control
//! plane for all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::large_futures,
    reason = "a test fails by panicking, speaks on standard error, and holds a cluster in its hands"
)]

mod support;

mod bench;
mod channels;
mod deploy;
mod docs;
mod examples;
mod faults;
mod jobs;
mod kubelet;
mod leader;
mod life;
<<<<<<< HEAD
mod plan_events;
=======
mod permissions;
>>>>>>> t4
mod plan_hash;
mod plan_status;
mod plan_window;
mod process;
mod rings;
mod rollout;
mod scene;
mod schema;
mod tended;
mod testbed;
