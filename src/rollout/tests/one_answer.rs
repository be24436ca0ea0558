//! Status and metrics say why nodes wait. The other answers are compared in the simulation.

use std::collections::BTreeMap;

use super::build::{cluster, status_of};
use super::taints::{taint, with_taints};
use crate::{decide, summary};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use refit_api::{NodePhase, OpenEnum, Reason};
use refit_facts::NodeFacts;
use refit_fixtures::{morning, node, plan_with};

#[test]
fn status_and_metrics_count_the_same_reasons_of_waiting_nodes() {
    let not_ready = |name: &str| NodeFacts {
        ready: false,
        ..node(name, name)
    };
    let tainted = |name: &str| with_taints(name, [taint("dedicated", None, "NoSchedule")]);
    let mut met = BTreeMap::new();
    // Each bit is a circumstance.
    for case in 0..32_u32 {
        let is = |bit: u32| case & (1 << bit) != 0;
        let mut nodes = vec![node("a", "a"), node("b", "b"), node("c", "c")];
        nodes.extend(is(0).then(|| not_ready("d")));
        nodes.extend(is(1).then(|| tainted("e")));
        let plan = plan_with("p", |spec| {
            spec.suspend = is(2).then_some(true);
            spec.concurrency = is(3).then_some(1);
            spec.max_concurrent = (!is(3)).then_some(IntOrString::Int(5));
            spec.max_unavailable = is(4).then_some(IntOrString::Int(1));
        });
        let mut cluster = cluster(nodes, [plan]);
        let status = status_of(&mut cluster, "p");
        let mut in_status = BTreeMap::<Reason, usize>::new();
        for entry in status.active.iter().flatten() {
            if entry.phase == NodePhase::Waiting {
                let reason = entry.reason.as_ref().and_then(OpenEnum::known).unwrap();
                *in_status.entry(reason).or_default() += 1;
            }
        }
        let decision = decide(&cluster, morning());
        let in_metrics = summary::waiting_by_reason(&cluster, "p", &decision.pictures["p"]);
        assert_eq!(in_metrics, in_status, "{case:05b}");
        met.extend(in_status);
    }
    let met: Vec<_> = met.into_keys().collect();
    for reason in [
        Reason::Suspended,
        Reason::NoSlot,
        Reason::NodeNotReady,
        Reason::TaintNotTolerated,
        Reason::MaxUnavailable,
    ] {
        assert!(met.contains(&reason), "{reason} is missing in {met:?}");
    }
}
