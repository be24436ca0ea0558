//! Plans and Nodes for tests.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::api::{ContainerSpec, Plan, PlanSpec, RebootSpec, RebootWhen, names};
use crate::job::JobSettings;
use crate::rollout::facts::Text;
use crate::rollout::{Defaults, Labels, NodeFacts};

/// Namespace of the controller and its Plans.
pub(super) const NAMESPACE: &str = "system-upgrade";
/// Name of the controller.
pub(super) const CONTROLLER: &str = "refit";

/// A Thursday, nine in the morning.
pub(super) fn morning() -> Timestamp {
    "2026-01-01T09:00:00Z".parse().unwrap()
}

pub(super) fn defaults() -> Defaults {
    let mut job = JobSettings::new(CONTROLLER, "refit:test");
    job.kubectl_image_windows = "kubectl:windows".to_owned();
    Defaults {
        namespace: NAMESPACE.to_owned(),
        job,
        polling_interval: SignedDuration::from_mins(15),
        local_zone: jiff::tz::TimeZone::UTC,
    }
}

/// A Plan for all nodes that has version `v1`, cordons, and takes them one at a time.
pub(super) fn plan(name: &str) -> Plan {
    let spec = PlanSpec {
        concurrency: Some(1),
        node_selector: Some(LabelSelector::default()),
        service_account_name: Some("upgrades".to_owned()),
        version: Some("v1".to_owned()),
        cordon: Some(true),
        upgrade: ContainerSpec {
            image: "example.com/upgrade".to_owned(),
            ..ContainerSpec::default()
        },
        ..PlanSpec::default()
    };
    let mut plan = Plan::new(name, spec);
    plan.metadata.namespace = Some(NAMESPACE.to_owned());
    plan
}

/// A Plan as [`plan`], changed.
pub(super) fn plan_with(name: &str, change: impl FnOnce(&mut PlanSpec)) -> Plan {
    let mut plan = plan(name);
    change(&mut plan.spec);
    plan
}

pub(super) fn reboot(when: RebootWhen) -> RebootSpec {
    RebootSpec {
        when: Some(when),
        ..RebootSpec::default()
    }
}

/// A Node that is Ready.
pub(super) fn node(name: &str, uid: &str) -> NodeFacts {
    NodeFacts {
        name: name.into(),
        uid: uid.into(),
        labels: labels([(names::LABEL_HOSTNAME, name)]),
        ready: true,
        unschedulable: false,
        tainted: false,
        boot_id: "boot-1".into(),
        kubelet: "v0".into(),
        records: BTreeMap::new(),
        ledger: None,
        keep_cordoned: false,
        retry: None,
    }
}

pub(super) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    Labels::new(
        pairs
            .into_iter()
            .map(|(key, value)| (Text::from(key), Text::from(value))),
    )
}
