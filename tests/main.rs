//! The integration tests that need only Rust, in one program: commands as processes, scenarios on a simulated cluster,
//! documents and manifests. `cargo test` runs them; what needs a real control plane is in `tests/cluster.rs`.

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

/// Makes a test of each scenario in this process: `name::in_process`.
macro_rules! scenarios {
    (
        $(both { $($both:ident),+ $(,)? })?
        $(in_process { $($one:ident),+ $(,)? })?
        $(real { $($real:ident),+ $(,)? })?
    ) => {
        $($(mod $both {
            #[test]
            fn in_process() {
                crate::scenario::in_process(super::$both);
            }
        })+)?
        $($(mod $one {
            #[test]
            fn in_process() {
                crate::scenario::in_process(super::$one);
            }
        })+)?
        $($(#[allow(dead_code, reason = "tests/cluster.rs runs it")]
        mod $real {
            fn real() {
                crate::scenario::real(|_| super::$real());
            }
        })+)?
    };
}

#[allow(dead_code, reason = "tests/cluster.rs uses the rest")]
mod harness;
mod recording;
mod scenario;
#[allow(dead_code, reason = "tests/cluster.rs uses the rest")]
mod supervised;
mod testenv;
mod workdir;

mod channels {
    mod checks;
    mod github;
    mod limits;
    mod listed;
    mod oci;
    mod received;
    pub(crate) mod registry;
}
mod command_line;
mod deploy;
mod docs;
mod examples;
mod gitops;
mod glossary;
mod hooks;
mod hostile_input;
mod jobs {
    pub(crate) mod adoption;
    mod identity;
    mod neighbours;
    mod shape;
}
mod import_cycles;
mod journals;
mod layering;
mod lifecycle {
    mod change;
    mod failure;
    mod health;
    mod joining;
}
mod migrate;
mod monitoring {
    mod files;
    mod names;
}
mod node {
    mod folder;
}
mod reasons;
mod reboot;
mod rehearse;
mod rehearse_cli;
mod testenv_tests {
    mod binaries;
}
mod versions {
    mod registry;
    mod resolve;
}
