//! Plans and Nodes for tests.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::api::{ContainerSpec, Plan, PlanSpec, RebootSpec, RebootWhen, names};
use crate::job::JobSettings;
use crate::rollout::facts::Text;
use crate::rollout::{
    ClusterState, Defaults, JobFacts, JobOutcome, Labels, Missing, NodeFacts, Observation, PlanFacts, Schema,
    StepEffect,
};

/// Namespace of the controller and its Plans.
pub(crate) const NAMESPACE: &str = "system-upgrade";
/// Name of the controller.
pub(crate) const CONTROLLER: &str = "refit";

/// A Thursday, nine in the morning.
pub(crate) fn morning() -> Timestamp {
    "2026-01-01T09:00:00Z".parse().unwrap()
}

pub(crate) fn defaults() -> Defaults {
    let mut job = JobSettings::new(CONTROLLER, "refit:test");
    job.kubectl_image_windows = "kubectl:windows".to_owned();
    Defaults {
        namespace: NAMESPACE.to_owned(),
        job,
        polling_interval: SignedDuration::from_mins(15),
        own_node: "own-node".into(),
        local_zone: jiff::tz::TimeZone::UTC,
        has_front_ends: false,
    }
}

/// A Plan that selects all nodes, has version `v1`, cordons, and takes one node at a time.
pub(crate) fn plan(name: &str) -> Plan {
    let spec = PlanSpec {
        concurrency: Some(1),
        node_selector: Some(LabelSelector::default()),
        service_account_name: Some("upgrades".to_owned()),
        version: Some("v1".to_owned()),
        cordon: Some(true),
        upgrade: Some(Box::new(ContainerSpec {
            image: "example.com/upgrade".to_owned(),
            ..ContainerSpec::default()
        })),
        ..PlanSpec::default()
    };
    let mut plan = Plan::new(name, spec);
    plan.metadata.namespace = Some(NAMESPACE.to_owned());
    plan
}

/// A [`plan`] with a changed spec.
pub(crate) fn plan_with(name: &str, change: impl FnOnce(&mut PlanSpec)) -> Plan {
    let mut plan = plan(name);
    change(&mut plan.spec);
    plan
}

pub(crate) fn reboot(when: RebootWhen) -> RebootSpec {
    RebootSpec {
        when: Some(when),
        ..RebootSpec::default()
    }
}

/// A Ready Node.
pub(crate) fn node(name: &str, uid: &str) -> NodeFacts {
    NodeFacts {
        name: name.into(),
        uid: uid.into(),
        labels: labels([(names::LABEL_HOSTNAME, name)]),
        ready: true,
        unschedulable: false,
        tainted: false,
        taints: Some(Vec::new()),
        boot_id: "boot-1".into(),
        kubelet: "v0".into(),
        os_image: "".into(),
        kernel: "".into(),
        architecture: "amd64".into(),
        records: BTreeMap::new(),
        ledger: None,
        labelled_jobs: None,
        keep_cordoned: false,
        retry: None,
        skip: None,
        reboot_request: None,
        drain: None,
    }
}

pub(crate) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    Labels::new(
        pairs
            .into_iter()
            .map(|(key, value)| (Text::from(key), Text::from(value))),
    )
}

pub(crate) fn read(plan: Plan) -> PlanFacts {
    let mut object = plan;
    let name = object.metadata.name.clone().unwrap_or_default();
    object.metadata.generation = Some(1);
    let uid = object
        .metadata
        .uid
        .get_or_insert_with(|| format!("{name}-uid"))
        .clone();
    PlanFacts {
        name: name.as_str().into(),
        uid: uid.as_str().into(),
        object,
        malformed: None,
    }
}

/// The state after all first lists: these nodes and Plans, the definition, and all permissions.
pub(crate) fn cluster(
    nodes: impl IntoIterator<Item = NodeFacts>,
    plans: impl IntoIterator<Item = Plan>,
) -> ClusterState {
    let mut cluster = ClusterState::new(defaults());
    cluster.apply(Observation::Schema(Schema::Current, "1".into()));
    cluster.apply(Observation::Limits(crate::rollout::GlobalLimits::Absent));
    let permissions = Missing {
        knows_reboots: true,
        knows_workloads: true,
        knows_pods: true,
        ..Missing::default()
    };
    apply_effect(&mut cluster, StepEffect::Permissions(permissions));
    for node in nodes {
        observe_node(&mut cluster, 1, node);
    }
    for plan in plans {
        observe_plan(&mut cluster, 1, read(plan));
    }
    cluster
}

/// A watch returns a Node in this version. Returns whether that is a change.
pub(crate) fn observe_node(cluster: &mut ClusterState, version: u64, facts: NodeFacts) -> bool {
    cluster.apply(Observation::Node(version, Box::new(facts)))
}

/// A watch returns a Job in this version.
pub(crate) fn observe_job(cluster: &mut ClusterState, version: u64, facts: JobFacts) -> bool {
    cluster.apply(Observation::Job(version, Box::new(facts)))
}

/// A watch returns a Plan in this version.
pub(crate) fn observe_plan(cluster: &mut ClusterState, version: u64, facts: PlanFacts) -> bool {
    cluster.apply(Observation::Plan(version, Box::new(facts)))
}

/// A request is sent and answered.
pub(crate) fn apply_effect(cluster: &mut ClusterState, effect: StepEffect) -> bool {
    cluster.apply_effect(effect, cluster.lists(), morning())
}

/// A Job of a Plan that runs on a node, as refit creates it.
pub(crate) fn job(name: &str, plan: &PlanFacts, node: &NodeFacts, hash: &str) -> JobFacts {
    JobFacts {
        name: name.into(),
        uid: format!("{name}-uid").as_str().into(),
        plan: plan.name.clone(),
        plan_uid: plan.uid.clone(),
        node: node.name.clone(),
        node_uid: Some(node.uid.clone()),
        hash: hash.into(),
        version: "v1".into(),
        inputs: None,
        attempt: 1,
        parallelism: 1,
        backoff_limit: 2,
        failures: 0,
        ttl: 900,
        recorded: false,
        deleting: false,
        outcome: JobOutcome::Running,
        created: morning(),
        unschedulable_before: None,
        disruptive: true,
        avoids_hosts: true,
        has_replacement_policy: true,
        sentinel: false,
        verify: false,
        verifies: None,
        boots: [].into(),
    }
}
