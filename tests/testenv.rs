//! The test environment: a real control plane with simulated or real nodes, and the controller as a process.
//!
//! ```ignore
//! #[tokio::test]
//! async fn nodes_are_upgraded_one_at_a_time() {
//!     let ctx = TestContext::new().await;           // namespace, roles, token; deleted when dropped
//!     let kubelets = ctx.run_nodes(3).await;        // t-abc123-n0000 …, whose pods run and end
//!     let channel = ChannelServer::start().await;
//!     channel.redirects("/stable", "https://example.com/v1.2.3");
//!     let controller = ctx.controller().start();    // the real binary, with its service account
//!     ctx.plan(&format!("…")).await;                // YAML; selects only nodes of this context
//!     ctx.plan_complete("k3os-latest", SOON).await;
//!     let requests = ctx.requests().await;          // from the API server's audit log
//!     assert_eq!(requests.most_jobs_at_once("k3os-latest"), 1);
//!     assert!(requests.by(&ctx.user()).forbidden().is_empty());
//! }
//! ```
//!
//! # What tests share
//! All tests of a process share one control plane. The first test starts it in seconds; if its programs are not in the
//! cache, it builds them in about ten minutes, and reports the progress on standard error. Each test has a
//! [`context::TestContext`] with a random id, which is its namespace, the prefix of its nodes and their label `test`, by
//! which its Plans select them. Tests that disturb others (API server stopped, CRD deleted) use
//! [`context::TestContext::alone`], on a control plane of their own.
//!
//! Connections are not shared, because a client belongs to the runtime of its test.
//!
//! # Where to find what
//! | to | see |
//! |---|---|
//! | create and edit Plans, nodes and Jobs, and wait for them | [`context`] (`context/cluster.rs`), [`wait`] |
//! | register nodes, run their pods, reboot them | `TestContext::run_nodes`, [`kubelet`] |
//! | register nodes whose pods end when the test says so | [`manual_kubelet`] |
//! | have real nodes with kubelet, containerd and a host that reboots | [`real`]; root and Debian, `just e2e` |
//! | compare Events | [`events`] |
//! | check the invariants of the simulation | [`journal`] |
//! | start, freeze and kill the controller; its log, memory and CPU time | [`controller`] |
//! | count requests and Jobs | [`audit`] |
//! | inject faults into requests | [`faults`] |
//! | be the release channel | [`channel`] |
//! | ask the metrics and probes of a controller | `Setup::with_metrics`, [`web`] |
//! | stop or freeze the API server | [`controlplane`], through `ctx.test_env.control_plane()` |
//! | use SUC's roles instead of the shipped ones | [`manifest::Manifests::Suc`] with `TestContext::with` |
//!
//! # An existing cluster
//! With `REFIT_TEST_KUBECONFIG` the tests share that cluster. It must be disposable: tests replace the CRD and register
//! nodes. They need cluster administrator rights. Tests that need the audit log, or stop the API server, fail there and
//! say why; `TestContext::alone` starts a control plane of its own.
//!
//! # When a test fails
//! It prints its Plans; its Jobs, pods, nodes and events, a line each; and the end of each log. The files remain in
//! `$TMPDIR/refit-test-<uid>` (`REFIT_TEST_RUNS` moves it) until the next run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests panic to fail, and report on standard error"
)]
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "two programs include this, the tests and the demo, and each uses a part of it"
)]

pub mod audit;
pub mod binaries;
pub mod cgroup;
pub mod channel;
pub mod context;
pub mod controller;
pub mod controlplane;
pub mod environment;
pub mod events;
pub mod faults;
pub mod image;
pub mod journal;
pub mod kubeconfig;
pub mod kubelet;
pub mod manifest;
pub mod manual_kubelet;
pub mod names;
pub mod pki;
pub mod plan;
pub mod process;
pub mod real;
pub mod serve;
pub mod simulated;
pub mod terminal;
pub mod wait;
pub mod warm_up;
pub mod web;
