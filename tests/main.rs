//! All integration tests in one program: one link instead of twenty, and one control plane for all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::large_futures,
    clippy::too_many_lines,
    clippy::default_trait_access,
    clippy::similar_names,
    clippy::doc_markdown,
    clippy::unused_async,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::maybe_infinite_iter,
    clippy::type_complexity,
    reason = "a test fails by panicking, speaks on standard error, and holds a cluster in its hands"
)]

mod testenv;
#[macro_use]
mod scenario;

mod agent_bus;
mod agent_labels;
mod attacks;
mod bad_input;
mod bench;
mod careful;
mod channels;
mod chart;
mod checks;
mod dashboard;
mod definition;
mod deploy;
mod docs;
mod drain;
mod e2e;
mod examples;
mod faults;
mod gitops;
mod harness;
mod hostile_input;
mod jobs;
mod kubelet;
mod layering;
mod leader;
mod lifecycle;
mod maintenance;
mod migrate;
mod monitoring;
mod nmo_suite;
mod node;
mod node_account;
mod node_marks;
mod node_ops;
mod notify;
mod permissions;
mod plan_events;
mod plan_hash;
mod plan_status;
mod plan_window;
mod process;
mod reasons;
mod reboot;
mod recording;
mod rehearse;
mod rehearse_cli;
mod rehearse_real;
mod rollout;
mod schema;
mod soak;
mod steering;
mod suc_suite;
mod supervised;
mod testenv_tests;
mod versions;
mod workdir;
