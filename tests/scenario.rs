//! Scenarios: written once, run in this process in virtual time and on a real control plane.
//!
//! ```ignore
//! scenarios! {
//!     both { nodes_are_upgraded_one_at_a_time }
//!     in_process { a_suspended_plan_starts_no_node }
//! }
//!
//! async fn nodes_are_upgraded_one_at_a_time(on: Backend) {
//!     let harness = on.harness(["one", "two"]).await;
//!     let _controller = harness.ctx.controller().start();
//!     …
//! ```
//!
//! `scenarios!` makes the tests of the program in which it stands. `tests/main.rs` runs those of `both` and of `in_process` in
//! process. `tests/cluster.rs` runs those of `both` on a real control plane: their subject is the API server, the Job controller
//! or the binary. The others need none, because the journals (`journals.rs`) show that the simulated cluster does what a real
//! one does; they run there in `just scenarios`. A third list, `real`, has tests beside these scenarios that only a real
//! control plane can run; they have no argument.

use crate::harness::{Harness, quick};
use crate::testenv::context::TestContext;
use crate::testenv::kubelet::NodeSet;
use crate::testenv::simulated::Simulated;

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A simulated cluster, with the controller as a task.
    InProcess,
    /// A control plane with fake kubelets, and the binary.
    Real,
}

impl Backend {
    pub(crate) async fn context(self) -> TestContext {
        match self {
            Self::InProcess => TestContext::simulated(Simulated::start(quick())).await,
            Self::Real => TestContext::new().await,
        }
    }

    /// Nodes of these names, each behind the id of the context ([`Harness::node`]).
    pub(crate) async fn harness<const N: usize>(self, nodes: [&str; N]) -> Harness {
        self.harness_with(nodes, |set| set).await
    }

    /// As [`Self::harness`], with nodes as `change` wants them.
    pub(crate) async fn harness_with<const N: usize>(
        self,
        nodes: [&str; N],
        change: impl FnOnce(NodeSet) -> NodeSet,
    ) -> Harness {
        Harness::on(self.context().await, nodes, change).await
    }

    /// As [`Self::harness`], with upgrades that run until [`Harness::release`].
    pub(crate) async fn held<const N: usize>(self, nodes: [&str; N]) -> Harness {
        self.harness_with(nodes, crate::harness::held).await
    }
}

/// Runs a scenario in virtual time.
#[allow(
    dead_code,
    reason = "two programs include this, and one runs scenarios in process, the other does not"
)]
pub(crate) fn in_process(scenario: impl AsyncFnOnce(Backend)) {
    let tasks = tokio::task::LocalSet::new();
    let scenario = tasks.run_until(scenario(Backend::InProcess));
    refit_rehearse::in_virtual_time(scenario).unwrap();
}

/// Runs a scenario on a real control plane.
#[allow(
    dead_code,
    reason = "two programs include this, and one runs scenarios in process, the other does not"
)]
pub(crate) fn real(scenario: impl AsyncFnOnce(Backend)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(scenario(Backend::Real));
}
