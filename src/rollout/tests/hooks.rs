//! The Jobs that run once for each roll-out.

use super::build::{cluster, observe_job, status_of};
use crate::{Step, decide};
use refit_api::{Hook, HookSpec, Plan, PlanStatus};
use refit_facts::{JobFacts, JobOutcome};
use refit_fixtures::{job, morning, node, plan_with, read};

fn with_before() -> Plan {
    plan_with("p", |spec| {
        let before: &mut HookSpec = spec.before.get_or_insert_default();
        before.container.image = "example.com/snapshot".to_owned();
    })
}

/// The name of the Job that the decision creates for a Plan with this status while this Job is there, and what status says
/// then.
fn decided(status: Option<PlanStatus>, there: Option<JobFacts>) -> (Option<String>, PlanStatus) {
    let mut plan = with_before();
    plan.status = status;
    let mut cluster = cluster([node("a", "n1")], [plan]);
    if let Some(job) = there {
        observe_job(&mut cluster, 2, job);
    }
    cluster.refresh(morning());
    let created = decide(&cluster, morning())
        .steps
        .iter()
        .find_map(|step| match step {
            Step::CreateHookJob { job, .. } => Some(job.to_string()),
            _ => None,
        });
    (created, status_of(&mut cluster, "p"))
}

#[test]
fn a_job_before_the_roll_out_is_created_once_status_has_the_hash_and_no_other_one_of_the_plan_runs() {
    let (created, status) = decided(None, None);
    assert_eq!(created, None, "status lacks the hash");
    let stored = || {
        let mut stored = status.clone();
        // So that the next decision writes a status, too.
        stored.progress = None;
        Some(stored)
    };
    let name = decided(stored(), None).0.unwrap();
    let hash = status.latest_hash.clone().unwrap();
    let before = |name: &str| JobFacts {
        hook: Some(Hook::Before.as_str().into()),
        ..job(name, &read(with_before()), &node("", ""), &hash)
    };
    let of_deleted = JobFacts {
        plan_uid: "earlier".into(),
        ..before("before-p-earlier")
    };
    assert_eq!(decided(stored(), Some(of_deleted)).0, None);
    // What it said was stored, and is lost: it runs again.
    for (recorded, succeeded) in [(false, true), (true, false)] {
        let ended = JobFacts {
            outcome: JobOutcome::Complete { at: morning() },
            recorded,
            ..before(&name)
        };
        let (created, status) = decided(stored(), Some(ended));
        assert_eq!(
            (created, Hook::Before.status(&status).is_some()),
            (None, succeeded)
        );
    }
}
