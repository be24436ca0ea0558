//! What follows from the record of an upgrade that has succeeded.

use super::build::{cluster, decided, observe_job, pod, status_of};
use super::unreadable::failed;
use crate::{ClusterState, Observation, Step};
use refit_api::{ContainerSpec, Plan, RebootWhen};

use refit_facts::record::{Phase, Reboot, Record, Verification};
use refit_facts::{JobFacts, NodeFacts, PodFacts, PodStage, RebootPod, SentinelResult};
use refit_fixtures::{job, morning, plan_with, read, reboot};

/// A node with this record.
fn upgraded(plan: &Plan, change: impl FnOnce(&mut Record)) -> NodeFacts {
    let hash = status_of(&mut cluster([], [plan.clone()]), "p")
        .latest_hash
        .unwrap();
    let mut node = failed(1, &hash, "");
    let record = node.records.get_mut("p").unwrap();
    (record.phase, record.reason, record.message) = (Phase::Upgraded, None, None);
    change(record);
    node
}

fn steps(cluster: &mut ClusterState) -> Vec<Step> {
    decided(cluster, morning()).steps
}

#[test]
fn a_job_that_verified_an_upgrade_and_is_recorded_is_deleted_and_the_node_is_verified_again() {
    let plan = plan_with("p", |spec| {
        spec.verify = Some(Box::new(ContainerSpec {
            image: "example.com/verify".to_owned(),
            ..ContainerSpec::default()
        }));
    });
    let node = upgraded(&plan, |record| {
        record.verify = Some(Verification {
            since: morning(),
            passed: false,
        });
    });
    let mut cluster = cluster([node.clone()], [plan.clone()]);
    let name = steps(&mut cluster).into_iter().find_map(|step| match step {
        Step::CreateVerifyJob { job, .. } => Some(job),
        _ => None,
    });
    let name = name.unwrap();
    for (version, deleting) in [(2, false), (3, true)] {
        let facts = JobFacts {
            verifies: Some("u".into()),
            recorded: true,
            deleting,
            ..job(&name, &read(plan.clone()), &node, "hash")
        };
        observe_job(&mut cluster, version, facts);
        let steps = steps(&mut cluster);
        let deletes = |step: &Step| matches!(step, Step::DeleteJob { job, .. } if *job == name);
        assert_eq!(steps.iter().any(deletes), !deleting);
    }
}

#[test]
fn a_pod_that_knows_the_boot_is_kept_until_the_boot_is_recorded() {
    let plan = plan_with("p", |spec| spec.reboot = Some(reboot(RebootWhen::Always)));
    let node = upgraded(&plan, |record| {
        record.reboot = Some(Reboot {
            boot_id: None,
            since: morning(),
        });
    });
    let pod = PodFacts {
        stage: PodStage::Ended,
        sentinel_result: Some(SentinelResult::Success {
            boot_id: node.boot_id.clone(),
            required: true,
        }),
        reboot: Some(Box::new(RebootPod {
            owner_uid: "p-uid".into(),
            plan_uid: "p-uid".into(),
            node_uid: node.uid.clone(),
            service_account: "upgrades".into(),
            hash: node.records["p"].hash.clone(),
            boot_id: None,
            created: morning(),
            succeeded: true,
        })),
        ..pod("p", &node.name)
    };
    let mut cluster = cluster([node], [plan]);
    cluster.apply(Observation::Pod(2, Box::new(pod)));
    let steps = steps(&mut cluster);
    let has = |is: fn(&Step) -> bool| steps.iter().any(is);
    assert!(has(|step| matches!(step, Step::PatchNode { .. })), "{steps:?}");
    assert!(!has(|step| matches!(step, Step::DeletePod { .. })), "{steps:?}");
}

#[test]
fn the_workloads_of_the_record_are_waited_for_also_when_the_ledger_has_gone() {
    let plan = plan_with("p", |spec| {
        spec.settle.get_or_insert_default().workloads = Some(true);
    });
    let workload = || "Deployment/shop/web".to_owned();
    let node = upgraded(&plan, |record| record.workloads = vec![workload()]);
    let mut cluster = cluster([node], [plan]);
    let recorded = steps(&mut cluster).into_iter().find_map(|step| match step {
        Step::PatchNode { change, .. } => change.annotations.get(&Record::key("p"))?.clone(),
        _ => None,
    });
    let record = Record::parse(&recorded.unwrap()).unwrap();
    assert_eq!(
        (record.phase, record.workloads),
        (Phase::Recovering, vec![workload()])
    );
}
