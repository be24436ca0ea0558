//! A Job whose pod does not come.

use jiff::SignedDuration;

use super::build::{cluster, observe_job, status_of};
use refit_api::NodeProgress;
use refit_facts::JobFacts;
use refit_fixtures::{job, morning, node, plan, read};

#[test]
fn a_job_without_a_pod_for_half_a_minute_says_so_unless_it_has_had_one() {
    for (age, failures, parallelism, reason) in [
        (29, 0, 1, None),
        (30, 0, 1, Some("PodRefused")),
        (30, 1, 1, None),
        // As system-upgrade-controller creates Jobs.
        (30, 0, 0, None),
    ] {
        let mut cluster = cluster([node("a", "uid-a")], [plan("p")]);
        cluster.refresh(morning());
        let plan = read(plan("p"));
        let hash = cluster.plans[&plan.name].resolved.as_ref().unwrap().hash.clone();
        let facts = JobFacts {
            created: morning() - SignedDuration::from_secs(age),
            failures,
            parallelism,
            ..job("apply-p", &plan, &node("a", "uid-a"), &hash)
        };
        observe_job(&mut cluster, 2, facts);
        let status = status_of(&mut cluster, "p");
        let entry: &NodeProgress = &status.active.as_ref().unwrap()[0];
        assert_eq!(entry.reason.as_deref(), reason, "{age} {failures} {parallelism}");
        let names_events = |message: &str| message.contains("kubectl describe job -n system-upgrade apply-p");
        assert_eq!(
            entry.message.as_deref().is_some_and(names_events),
            reason.is_some()
        );
    }
}
