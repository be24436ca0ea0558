//! The test bed: a real control plane, and what a test needs to try a controller on it.
//!
//! ```ignore
//! #[tokio::test]
//! async fn nodes_go_one_at_a_time() {
//!     let world = World::new().await;              // namespace, roles, token; cleared up when dropped
//!     let kubelets = world.run_nodes(3).await;     // t-abc123-n0000 …; pods on them run and end
//!     let channel = ChannelServer::start().await;  // stands for the release channel
//!     channel.redirects("/stable", "https://example.com/v1.2.3");
//!     let controller = world.controller().start(); // the real binary, as its service account
//!     world.plan(&format!("…")).await;             // YAML; selects only nodes of this world
//!     world.plan_complete("k3os-latest", SOON).await;
//!     let requests = world.requests().await;       // from the API server's audit log
//!     assert_eq!(requests.most_jobs_at_once("k3os-latest"), 1);
//!     assert!(requests.by(&world.user()).forbidden().is_empty());
//! }
//! ```
//!
//! # What is shared and what is not
//! One control plane serves all tests of a process; the first test brings it up (seconds; once, when the
//! programs are not in the cache, about ten minutes of building, which is told on standard error). A test has
//! a [`world::World`] of its own: a random id that is its namespace, the beginning of its node names and the
//! label `test` by which its Plans select nodes. What would disturb others (API server stopped, CRD deleted)
//! is done in [`world::World::alone`], on a control plane that nobody else uses.
//!
//! Nothing that holds a connection is shared: a client lives on the runtime of its test.
//!
//! # Where things are
//! | to | look at |
//! |---|---|
//! | make and change Plans, nodes, Jobs; wait for them | [`world`] (`world/cluster.rs`), [`wait`] |
//! | register nodes, run their pods, reboot them | `world.run_nodes`, [`kubelet`] |
//! | register nodes whose pods end when the test says so | [`puppet`] |
//! | have real nodes: kubelet, containerd, a host that reboots | [`real`]; root and Debian, `just e2e` |
//! | see every state that a Plan had; compare Events | [`history`], [`told`] |
//! | start, freeze and kill the controller, read its log, memory and time | [`controller`] |
//! | count requests and Jobs | [`audit`] |
//! | 409, 429, lost answers, late watches, a kill at the n-th write | [`faults`] |
//! | be the release channel | [`channel`] |
//! | stop or freeze the API server | [`controlplane`], through `world.bed.control_plane()` |
//! | use SUC's roles instead of the shipped ones | [`manifest::Manifests::Suc`] with `World::with` |
//!
//! # An existing cluster
//! With `REFIT_TEST_KUBECONFIG` the shared control plane is the cluster of that file (a disposable one: the
//! CRD is written, and fake nodes are registered). It needs cluster administrator rights. Tests that must see
//! the audit log or take the API server away fail there with a sentence that says so, rather than pass
//! without having looked; `World::alone` brings up its own control plane even then.
//!
//! # When a test fails
//! The world is printed: Plans in full; Jobs, pods, nodes and events a line each; the end of every log. The
//! files stay in `$TMPDIR/refit-test-<uid>` (`REFIT_TEST_RUNS` moves it) until the next run begins.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and speaks on standard error"
)]
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "two programs include this, the tests and the demo, and each uses a part of it"
)]

pub mod audit;
pub mod bed;
pub mod binaries;
pub mod cgroup;
pub mod channel;
pub mod controller;
pub mod controlplane;
pub mod faults;
pub mod history;
pub mod image;
pub mod kubeconfig;
pub mod kubelet;
pub mod manifest;
pub mod names;
pub mod pki;
pub mod plan;
pub mod process;
pub mod puppet;
pub mod ready;
pub mod real;
pub mod serve;
pub mod terminal;
pub mod told;
pub mod wait;
pub mod world;
