//! The integration tests that need more than Rust, in one program with one control plane for all: a real API server and the
//! controller as a process, Helm, Prometheus, kubectl. They are built with Go before the first run, in fifteen minutes.
//!
//! `cargo cluster` runs them; `cargo test` does not.

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

/// Makes a test of each scenario on a real control plane: `name::real`, which is ignored for those of `in_process`.
macro_rules! scenarios {
    (
        $(both { $($both:ident),+ $(,)? })?
        $(in_process { $($one:ident),+ $(,)? })?
        $(real { $($real:ident),+ $(,)? })?
    ) => {
        $($(mod $both {
            #[test]
            fn real() {
                crate::scenario::real(super::$both);
            }
        })+)?
        $($(mod $one {
            #[test]
            #[ignore = "runs in process; on a real control plane in `just scenarios`"]
            fn real() {
                crate::scenario::real(super::$one);
            }
        })+)?
        $($(mod $real {
            #[test]
            fn real() {
                crate::scenario::real(|_| super::$real());
            }
        })+)?
    };
}

mod harness;
mod recording;
mod scenario;
mod supervised;
mod testenv;
#[allow(dead_code, reason = "tests/main.rs uses the rest")]
mod workdir;

mod agent_bus;
mod agent_labels;
mod attacks;
mod bad_input;
mod bench;
mod channels;
mod chart;
mod checks;
mod dashboard;
mod definition;
mod despite;
mod drain;
mod e2e;
mod faults;
mod gitops {
    //! `refit validate` and `refit render` beside an API server, and beside kubectl.

    mod fixtures;
    mod kubectl;
    mod render_live;
    mod server;

    use fixtures::{files, folder, source};
}
mod hooks;
mod jobs {
    //! Jobs as a real API server stores them, how often they are created, and who owns them.

    pub(crate) mod adoption;
    mod chart;
    mod identity;
    mod neighbours;
    mod shape;
}
mod journals;
mod leader;
mod lifecycle {
    //! Upgrades of nodes from start to end, with interruptions.

    mod change;
    mod failure;
    mod health;
    mod joining;
    mod prepare;
    mod readme;
}
mod maintenance;
mod migrate {
    mod live;
}
mod monitoring;
mod nmo_suite;
mod node {
    mod namespaces;
}
mod node_account;
mod node_conditions;
mod node_marks;
mod node_ops;
mod notify;
mod permissions;
mod plan_events;
mod plan_hash;
mod plan_status;
mod process;
mod reboot;
mod rehearse {
    mod real;
    #[allow(
        dead_code,
        reason = "tests/main.rs plays the scenarios on a simulated cluster"
    )]
    mod scenario;
}
mod rehearse_real;
mod remediation;
mod rollout;
mod schema;
mod soak;
mod steering;
mod suc_suite;
mod testenv_tests {
    //! Tests of the test environment, on which all other tests rely.

    mod controlplane;
    mod faults;
    mod journal;
    pub(crate) mod lifetime;
}
mod versions;
