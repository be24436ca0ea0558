//! What the Secrets of Plans cost, and that what is remembered of them is what a look at all of them would find.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::build::{apply_effect, cluster, observe_plan};
use crate::plan::secrets::PlanSecrets;
use crate::{ClusterState, Observation, Query, Step, StepEffect, decide};
use refit_api::{Plan, SecretSpec};
use refit_facts::{PlanFacts, Text};
use refit_fixtures::{morning, node, plan_with, read};

fn naming(plan: &str, secrets: impl IntoIterator<Item = String>) -> Plan {
    let named = |name| SecretSpec {
        name,
        ..SecretSpec::default()
    };
    plan_with(plan, |spec| {
        spec.secrets = Some(secrets.into_iter().map(named).collect());
    })
}

/// A decision; returns the Secrets that it requests.
fn requested(cluster: &mut ClusterState) -> Vec<Text> {
    cluster.retain_hashed_secrets();
    cluster.refresh(morning());
    let steps = decide(cluster, morning()).steps;
    let reads = steps.into_iter().filter_map(|step| match step {
        Step::Query(Query::ReadSecret { name }) => Some(name),
        _ => None,
    });
    reads.collect()
}

fn looked_up(cluster: &ClusterState) -> usize {
    cluster.plans.values().map(|plan| plan.secrets.looked_up).sum()
}

#[test]
fn an_answer_about_one_of_ten_thousand_secrets_looks_up_those_of_its_plan_only() {
    let plans = (0..100).map(|plan| {
        let secrets = (0..100).map(move |number| format!("s{plan}-{number}"));
        naming(&format!("p{plan}"), secrets)
    });
    let mut cluster = cluster([node("a", "1")], plans);
    let first = requested(&mut cluster);
    assert!(first.len() <= 400, "{} requests at a time", first.len());
    assert_eq!(looked_up(&cluster), 10_000);
    let names = cluster.retain_hashed_secrets();
    assert_eq!(names.len(), 10_000);
    for name in ["s0-0", "s7-99", "s99-50"] {
        let before = looked_up(&cluster);
        apply_effect(&mut cluster, StepEffect::SecretMissing(name.into()));
        assert!(!requested(&mut cluster).contains(&name.into()));
        assert_eq!(looked_up(&cluster), before + 100, "{name}");
    }
    let before = looked_up(&cluster);
    for _ in 0..10 {
        // What a watch says again is no change.
        cluster.apply(Observation::SecretAbsent(7, "s7-99".into()));
        // Statuses are written, and Nodes change.
        let facts = read(naming("p3", (0..100).map(|number| format!("s3-{number}"))));
        observe_plan(&mut cluster, 0, facts);
        requested(&mut cluster);
    }
    assert_eq!(looked_up(&cluster), before);
    assert!(
        std::sync::Arc::ptr_eq(&names, &cluster.retain_hashed_secrets()),
        "the names are collected once"
    );
}

#[test]
fn a_plan_whose_secrets_cannot_be_read_leaves_the_reads_of_another_alone() {
    let many = naming("a", (0..100).map(|number| format!("s{number:02}")));
    let mut cluster = cluster([node("a", "1")], [many, naming("z", ["mine".to_owned()])]);
    for _ in 0..3 {
        let reads = requested(&mut cluster);
        assert_eq!(reads.len(), 5, "{reads:?}");
        assert!(reads.contains(&"mine".into()));
    }
    apply_effect(
        &mut cluster,
        StepEffect::Secret("mine".into(), 5, "hash".to_owned()),
    );
    requested(&mut cluster);
    assert!(cluster.plans["z"].resolved.is_some());
}

#[derive(Clone, Debug)]
enum Change {
    Plan {
        plan: usize,
        secrets: Vec<usize>,
        deleting: bool,
    },
    PlanDeleted(usize),
    Observed(usize, u64),
    Absent(usize, u64),
    Deleted(usize),
    Read(usize, u64),
    Missing(usize),
    Decision,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "../e", "F"];

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let (plan, secret, version) = (0..3_usize, 0..NAMES.len(), 1..9_u64);
    let change = prop_oneof![
        3 => (plan.clone(), vec(secret.clone(), 0..4), proptest::bool::weighted(0.1))
            .prop_map(|(plan, secrets, deleting)| Change::Plan { plan, secrets, deleting }),
        1 => plan.prop_map(Change::PlanDeleted),
        3 => (secret.clone(), version.clone()).prop_map(|(secret, version)| Change::Observed(secret, version)),
        1 => (secret.clone(), version.clone()).prop_map(|(secret, version)| Change::Absent(secret, version)),
        1 => secret.clone().prop_map(Change::Deleted),
        4 => (secret.clone(), version).prop_map(|(secret, version)| Change::Read(secret, version)),
        2 => secret.prop_map(Change::Missing),
        4 => Just(Change::Decision),
    ];
    vec(change, 0..60)
}

fn facts(round: usize, plan: usize, secrets: &[usize], deleting: bool) -> PlanFacts {
    let mut object = naming(
        &format!("p{plan}"),
        secrets.iter().map(|it| NAMES[*it].to_owned()),
    );
    object.metadata.uid = Some(format!("p{plan}-{round}"));
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(morning());
    object.metadata.deletion_timestamp = deleting.then_some(now);
    read(object)
}

proptest! {
    #[test]
    fn remembered_hashes_of_secrets_equal_those_computed_from_all_secrets(changes in changes()) {
        let mut cluster = cluster([], []);
        for (round, change) in changes.into_iter().enumerate() {
            let name = |secret: usize| Text::from(NAMES[secret]);
            match change {
                Change::Plan { plan, secrets, deleting } => {
                    observe_plan(&mut cluster, 0, facts(round, plan, &secrets, deleting));
                }
                Change::PlanDeleted(plan) => {
                    let plan = format!("p{plan}");
                    if let Some(uid) = cluster.plan(&plan).map(|facts| facts.uid.clone()) {
                        cluster.apply(Observation::PlanDeleted(plan.as_str().into(), uid));
                    }
                }
                Change::Observed(secret, version) => drop(cluster.apply(Observation::Secret(version, name(secret)))),
                Change::Absent(secret, version) => {
                    cluster.apply(Observation::SecretAbsent(version, name(secret)));
                }
                Change::Deleted(secret) => drop(cluster.apply(Observation::SecretDeleted(name(secret)))),
                Change::Read(secret, version) => {
                    let hash = format!("hash-{version}");
                    apply_effect(&mut cluster, StepEffect::Secret(name(secret), version, hash));
                }
                Change::Missing(secret) => {
                    apply_effect(&mut cluster, StepEffect::SecretMissing(name(secret)));
                }
                Change::Decision => {
                    requested(&mut cluster);
                    let live = cluster.plans.values().filter(|plan| !plan.facts.is_deleting());
                    let named = live.flat_map(|plan| PlanSecrets::of(plan.spec()).names().iter().cloned().collect::<Vec<_>>());
                    let named: BTreeSet<Text> = named.collect();
                    prop_assert_eq!(&*cluster.retain_hashed_secrets(), &named);
                    prop_assert!(cluster.world.secrets.table().iter().all(|(name, _)| named.contains(name)));
                    for plan in cluster.plans.values_mut().filter(|plan| !plan.facts.is_deleting()) {
                        let spec = plan.facts.object.spec.clone();
                        let anew = PlanSecrets::of(&spec).look_up(&spec, cluster.world.secrets.table()).clone();
                        prop_assert_eq!(plan.secrets.look_up(&spec, cluster.world.secrets.table()), &anew);
                    }
                }
            }
        }
    }
}
