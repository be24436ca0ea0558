//! Plans that are very large in one of their fields: a decision stays small and cheap, a status fits, and
//! another Plan starts its nodes.

use serde_json::{Map, Value, json};

use super::build::{cluster, observe_plan};
use crate::{ClusterState, Decision, Step, decide};
use refit_facts::PlanFacts;
use refit_fixtures::{morning, node, plan, pointers, read};

/// A quarter of what etcd stores, and more than any decision may have.
const LARGE: usize = 400_000;
const NODES: usize = 20;
/// A status beside a spec that fills the object cannot be stored. One of a Plan that is refused needs to name no more
/// than its reason.
const MAX_STATUS: usize = 64 << 10;
/// All steps and reports of a decision.
const MAX_DECISION: usize = 200_000;

/// A Plan that is valid, with most fields.
fn whole() -> Value {
    json!({
        "concurrency": 2, "maxConcurrent": "25%", "maxUnavailable": 5, "version": "v1", "serviceAccountName": "upgrades",
        "order": [{ "topologyKey": "zone" }], "failure": { "policy": "Continue" }, "jobActiveDeadlineSecs": 600,
        "nodeSelector": { "matchLabels": { "kubernetes.io/os": "linux" }, "matchExpressions": [
            { "key": "a", "operator": "NotIn", "values": ["b"] },
        ] },
        "waves": [{ "name": "first", "selector": { "matchLabels": { "canary": "true" } }, "soak": "30m" }, { "name": "rest" }],
        "versionPolicy": { "range": ">=1" }, "dependsOn": [{ "name": "healthy" }], "secrets": [{ "name": "s", "path": "/s" }],
        "tolerations": [{ "key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule" }],
        "window": { "days": ["th"], "startTime": "22:00", "endTime": "04:00", "timeZone": "UTC" },
        "windows": [{ "cron": "0 22 * * *", "duration": "4h", "timeZone": "UTC" }],
        "blackouts": [{ "start": "12-24", "end": "01-02", "reason": "holidays", "timeZone": "UTC" }],
        "prepare": { "image": "p", "envs": [{ "name": "A", "value": "b" }] },
        "upgrade": { "image": "i", "command": ["c"], "args": ["a"], "volumes": [{ "name": "v", "source": "/v", "destination": "/v" }] },
        "drain": { "timeout": 300_000_000_000_u64, "gracePeriod": 1, "podSelector": { "matchLabels": { "a": "b" } } },
        "imagePullSecrets": [{ "name": "s" }], "postCompleteDelay": "30s", "priorityClassName": "p",
        "postCompleteLabels": { "a": "b" }, "reboot": { "when": "IfRequired", "requiredFiles": ["/a"] }, "settle": { "minReady": "1m" },
    })
}

/// What an author may write instead of a value.
fn large(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(format!("{text}{}", "x".repeat(LARGE)).into()),
        Value::Array(items) => {
            let item = items.first()?;
            let count = LARGE / (item.to_string().len() + 1);
            Some(vec![item.clone(); count].into())
        }
        Value::Object(fields) if fields.len() == 1 && fields.values().all(Value::is_string) => {
            let fields: Map<_, _> = (0..LARGE / 20)
                .map(|number| (format!("k{number}"), "v".into()))
                .collect();
            Some(fields.into())
        }
        // A number of the right type at its end, or an object with a schema.
        Value::Number(_) => Some(i64::MAX.into()),
        Value::Object(_) | Value::Bool(_) | Value::Null => None,
    }
}

fn plan_of(spec: Value) -> Option<PlanFacts> {
    let mut evil = plan("evil");
    evil.spec = serde_json::from_value(spec).ok()?;
    Some(read(evil))
}

/// The second decision, when the first statuses are stored.
fn decided(cluster: &mut ClusterState) -> Decision {
    for round in 2..4 {
        cluster.refresh(morning());
        for step in decide(cluster, morning()).steps {
            if let Step::WriteStatus { plan, status, .. } = step {
                let mut facts = cluster.plan(&plan).unwrap().clone();
                facts.object.status = Some(*status);
                observe_plan(cluster, round, facts);
            }
        }
    }
    cluster.refresh(morning());
    decide(cluster, morning())
}

#[test]
fn a_plan_that_is_huge_in_any_of_its_fields_costs_no_other_plan_anything() {
    let (mut of_channel, spec) = (whole(), whole());
    of_channel["version"] = Value::Null;
    of_channel["channel"] = "https://example.com/stable".into();
    let mut tried = 0;
    for place in pointers(&spec) {
        costs_nothing(&spec, &place, &mut tried);
    }
    costs_nothing(&of_channel, "/channel", &mut tried);
    assert!(tried > 60, "{tried} fields");
}

fn costs_nothing(spec: &Value, place: &str, tried: &mut usize) {
    let mut spec = spec.clone();
    let at = spec.pointer_mut(place).unwrap();
    let Some(value) = large(at) else { return };
    *at = value;
    let Some(evil) = plan_of(spec) else { return };
    *tried += 1;
    let nodes = (0..NODES).map(|number| node(&format!("n{number:02}"), &format!("uid-{number}")));
    let mut cluster = cluster(nodes, []);
    observe_plan(&mut cluster, 1, evil);
    observe_plan(&mut cluster, 1, read(plan("healthy")));
    let decision = decided(&mut cluster);
    let starts = |step: &Step| matches!(step, Step::CreateJob { plan, .. } if &**plan == "healthy");
    assert!(decision.steps.iter().any(starts), "{place}: {decision:.2000?}");
    let status = cluster.plan("evil").unwrap().object.status.clone();
    let status = serde_json::to_string(&status).unwrap().len();
    assert!(status <= MAX_STATUS, "{place}: a status of {status} bytes");
    let size = format!("{decision:?}").len();
    assert!(size <= MAX_DECISION, "{place}: a decision of {size} bytes");
}
