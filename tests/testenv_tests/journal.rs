//! The journal of a real cluster has what the invariants need.

use refit_rehearse::Kind;
use refit_rehearse::journal::{CLUSTER, JournalEvent};
use refit_testkit::invariants::Invariants;

use crate::faults::SMALL;
use crate::rollout::RollOut;
use crate::testenv::context::TestContext;

#[tokio::test]
async fn a_journal_without_the_ends_of_jobs_breaks_an_invariant() {
    let rollout = RollOut::prepare(TestContext::new().await, SMALL).await;
    let _controller = rollout.controller().start();
    rollout.begin().await;
    rollout.check_success().await;
    let mut entries = rollout.journal().await;
    entries
        .retain(|entry| !matches!(entry.what, JournalEvent::Change(Kind::Job, _)) || *entry.who != *CLUSTER);
    let mut invariants = Invariants::default();
    let observed = entries.iter().try_for_each(|entry| invariants.observe(entry));
    let broken = observed.expect_err("no Job has succeeded");
    assert!(broken.contains("is done without a Job"), "{broken}");
}
