//! A Job whose pod does not come.

use jiff::SignedDuration;

use super::build::{apply_effect, cluster, observe_job, status_of};
use crate::decide::decide;
use crate::memory::answers::Refusal;
use crate::observation::StepEffect;
use crate::step::{Query, Step};
use refit_api::NodeProgress;
use refit_facts::JobFacts;
use refit_fixtures::{job, morning, node, plan, read};

#[test]
fn the_events_of_a_job_without_a_pod_for_half_a_minute_are_read_unless_it_has_had_one() {
    for (age, failures, parallelism, is_read) in [
        (29, 0, 1, false),
        (30, 0, 1, true),
        (30, 1, 1, false),
        // As system-upgrade-controller creates Jobs.
        (30, 0, 0, false),
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
        let uid = facts.uid.clone();
        observe_job(&mut cluster, 2, facts);
        let steps = decide(&cluster, morning()).steps;
        let read =
            |step: &Step| matches!(step, Step::Query(Query::ReadRefusal { job, .. }) if **job == *"apply-p");
        assert_eq!(steps.iter().any(read), is_read, "{age} {failures} {parallelism}");
        let mut entry = || status_of(&mut cluster, "p").active.unwrap().swap_remove(0);
        assert_eq!(entry().reason, None, "nothing is known yet");
        if !is_read {
            continue;
        }
        let words = "Error creating: pods \"apply-p\" is forbidden: exceeded quota";
        for (text, says) in [
            (None, "kubectl describe job -n system-upgrade apply-p"),
            (Some(words.into()), words),
        ] {
            let seen = morning();
            apply_effect(
                &mut cluster,
                StepEffect::Refusal(uid.clone(), Refusal { seen, text }),
            );
            let entry: NodeProgress = status_of(&mut cluster, "p").active.unwrap().swap_remove(0);
            assert_eq!(entry.reason.as_deref(), Some("PodRefused"));
            assert!(entry.message.as_deref().unwrap().contains(says), "{entry:?}");
        }
        let again = decide(&cluster, morning());
        assert!(
            !again.steps.iter().any(read),
            "the answer holds for half a minute"
        );
    }
}
