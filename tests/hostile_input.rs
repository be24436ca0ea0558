//! Whatever text a parser reads, it ends with a value or an error, and what it gives stays within its limits. 100 cases for
//! each parser, 1,000 in `.ci/run`, 100,000 in `just hostile` and `just soak`.

use k8s_openapi::api::coordination::v1::Lease;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::Config;
use refit_api::Workload;
use refit_api::drain::NodeDrain;
use refit_api::limits::Limits;
use refit_api::schedule::{Blackout, PlanWindow, Windows};
use refit_api::selector::Selector;
use refit_api::text::{MAX_MESSAGE, MAX_NAME};
use refit_api::window::Window;
use refit_api::{
    BlackoutSpec, Ledger, Plan, PlanSpec, RebootFault, RebootRequest, SentinelName, SentinelReport,
    TimeWindowSpec, WindowSpec,
};
use refit_base::go::GoDuration;
use refit_base::version::{Range, Version};
use refit_channel::access::DockerConfig;
use refit_channel::hosts::HostPattern;
use refit_facts::PlanFacts;
use refit_facts::objects::{Intern, SlimJob, SlimNode, SlimPod, SlimSecret};
use refit_facts::read::read;
use refit_facts::record::Record;
use refit_fixtures::pointers;
use refit_fixtures::repetitions::cases;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

fn config() -> Config {
    Config {
        cases: cases(1_000),
        // A failure is reproduced by its seed; the limits make inputs that are long to shrink.
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    }
}

/// Numbers and times at the ends of their types, and words that parsers know.
const WORDS: [&str; 44] = [
    "",
    " ",
    "0",
    "-0",
    "-1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1e999",
    "NaN",
    "Infinity",
    "0x7fffffffffffffff",
    "18446744073709551616",
    "9999-12-31T23:59:59Z",
    "-9999-01-01T00:00:00Z",
    "2026-13-45T99:99:99Z",
    "1970-01-01T00:00:00.000000001+24:00",
    "24:00",
    "23:59:60",
    "2562047h47m16.854775807s",
    "-2562047h47m16.854775808s",
    "1ns",
    "100%",
    "101%",
    "99999999999999999999%",
    "v1.33.4+k3s1",
    ">=1.30 <1.32 || ^1",
    "*",
    "**",
    "../..",
    "/",
    "//",
    "a/b/c/d",
    "null",
    "true",
    "{}",
    "[]",
    "[[[[",
    "{\"a\":",
    "\u{0}",
    "\u{1b}[2J",
    "\u{202e}",
    "𝕬",
    "\r\n",
];

/// Sizes at and past the limits of texts.
const SIZES: [usize; 11] = [1, 63, 64, 253, 254, 256, 257, 1_024, 1_025, 4_096, 4_097];

fn text() -> impl Strategy<Value = String> + Clone {
    let word = proptest::sample::select(&WORDS[..]).prop_map(str::to_owned);
    let repeated = (
        proptest::sample::select(&WORDS[1..]),
        proptest::sample::select(&SIZES[..]),
    )
        .prop_map(|(word, size)| word.repeat(size.div_ceil(word.len())));
    let nested = (
        proptest::sample::select(&["[", "{\"a\":", "(", "<", "\"", ",", "||", "*", ">=1"][..]),
        1..2_000_usize,
    )
        .prop_map(|(open, depth)| open.repeat(depth));
    let joined = vec(proptest::sample::select(&WORDS[..]), 0..6).prop_map(|words| words.join(","));
    let any = any::<String>();
    let control = vec(0_u8..0x20, 0..20).prop_map(|bytes| bytes.into_iter().map(char::from).collect());
    prop_oneof![4 => word, 1 => repeated, 1 => nested, 3 => joined, 4 => any, 1 => control].boxed()
}

/// Any JSON, with extreme numbers and hostile texts.
fn value() -> impl Strategy<Value = Value> + Clone {
    let number = prop_oneof![
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(i64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(u64::MAX)),
        Just(json!(1e308)),
        Just(json!(0.5)),
        any::<i64>().prop_map(|number| json!(number)),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number,
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            btree_map(text(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}

/// An object that is right but for up to four of its values.
fn broken(whole: Value) -> impl Strategy<Value = Value> {
    let edits = vec((proptest::sample::select(pointers(&whole)), value()), 0..5);
    edits.prop_map(move |edits| {
        let mut object = whole.clone();
        for (place, value) in edits {
            if let Some(at) = object.pointer_mut(&place) {
                *at = value;
            }
        }
        object
    })
}

fn metadata() -> Value {
    json!({
        "name": "n", "namespace": "system-upgrade", "uid": "u", "resourceVersion": "7", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "upgrade.cattle.io/controller": "c", "upgrade.cattle.io/plan": "p", "plan.upgrade.cattle.io/p": "h",
            "kubernetes.io/hostname": "n", "refit.rs/role": "reboot",
        },
        "annotations": {
            "refit.rs/cordon": ledger().to_string(), "plan.refit.rs/p": record().to_string(), "refit.rs/retry": "p,q",
            "refit.rs/drain": note().to_string(), "refit.rs/boot-ids": "a,b", "refit.rs/attempt": "2",
            "upgrade.cattle.io/digest": "spec.upgrade,spec.drain", "upgrade.cattle.io/ttl-seconds-after-finished": "900",
            "refit.rs/plan-uid": "u", "refit.rs/node-uid": "u", "refit.rs/boot-id": "b",
        },
        "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true }],
    })
}

fn ledger() -> Value {
    json!({ "before": false, "holders": [{
        "namespace": "n", "controller": "c", "plan": "p", "planUid": "u", "passed": true, "evicted": ["ReplicaSet/shop/web"],
    }] })
}

fn record() -> Value {
    json!({
        "namespace": "n", "planUid": "u", "nodeUid": "u", "hash": "h", "version": "v", "phase": "Failed", "attempt": 1,
        "jobUid": "j", "job": "j", "at": "2026-01-01T00:00:00Z", "reboot": { "bootId": "b", "since": "2026-01-01T00:00:00Z" },
        "workloads": ["StatefulSet/shop/db"], "reason": "NeverRebooted", "message": "m",
    })
}

fn note() -> Value {
    json!({ "plan": "p", "pod": "u", "evicted": 1, "total": 2, "more": 1, "waiting": [
        { "pod": "shop/web", "pdb": "web", "since": "2026-01-01T00:00:00Z", "why": "w" },
    ] })
}

fn reboot_request() -> Value {
    json!({ "bootID": "b", "since": "2026-01-01T00:00:00Z", "reasons": ["/run/reboot-required"], "packages": ["libc6"], "survived": 1 })
}

fn node() -> Value {
    json!({
        "metadata": metadata(),
        "spec": { "unschedulable": true, "taints": [{ "key": "node.kubernetes.io/not-ready" }] },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "nodeInfo": { "bootID": "b", "kubeletVersion": "v1.33.4" },
        },
    })
}

fn pod() -> Value {
    let state = json!({ "terminated": { "exitCode": 1, "message": "SentinelMissing: x" } });
    json!({
        "metadata": metadata(),
        "spec": { "nodeName": "n", "serviceAccountName": "s" },
        "status": {
            "phase": "Running", "conditions": [{ "type": "PodScheduled", "status": "False", "message": "m" }],
            "initContainerStatuses": [{ "name": "drain", "state": state, "lastState": {} }],
            "containerStatuses": [{ "name": "reboot", "state": { "waiting": { "reason": "r", "message": "m" } }, "lastState": state }],
        },
    })
}

fn job() -> Value {
    json!({
        "metadata": metadata(),
        "spec": { "parallelism": 1, "backoffLimit": 6, "template": { "spec": { "initContainers": [{ "name": "drain" }] } } },
        "status": {
            "failed": 1, "uncountedTerminatedPods": { "failed": ["u"] },
            "conditions": [{ "type": "Failed", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        },
    })
}

fn lease() -> Value {
    json!({
        "metadata": metadata(),
        "spec": {
            "holderIdentity": "h", "leaseDurationSeconds": 45, "leaseTransitions": 3, "strategy": "s", "preferredHolder": "p",
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}

fn blackouts() -> Value {
    json!([
        { "start": "12-24", "end": "01-02", "reason": "holidays", "timeZone": "UTC" },
        { "start": "2026-03-01", "end": "2026-03-02T10:00:00+01:00" },
    ])
}

/// A key of the `ConfigMap` `refit`, or any.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(&refit_api::limits::KEYS[..]).prop_map(str::to_owned),
        text()
    ]
}

fn plan() -> Value {
    json!({
        "metadata": metadata(),
        "spec": {
            "concurrency": 1, "maxConcurrent": "25%", "maxUnavailable": 1, "channel": "https://example.com", "version": "v1",
            "nodeSelector": { "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b"] }] },
            "window": { "days": ["mo"], "startTime": "22:00", "endTime": "04:00", "timeZone": "UTC" },
            "versionPolicy": { "range": ">=1.30", "minAge": "1h" }, "postCompleteDelay": "30s", "postCompleteLabels": { "a": "b" },
            "secrets": [{ "name": "s", "path": "/s" }], "drain": { "timeout": "5m", "gracePeriod": 1, "podSelector": {} },
            "prepare": { "image": "p", "envs": [{ "name": "A", "value": "b" }] },
            "upgrade": { "image": "i", "command": ["c"], "volumes": [{ "name": "v", "source": "/v", "destination": "/v" }] },
            "reboot": { "when": "Always", "timeout": "5m", "requiredFiles": ["/a"] }, "settle": { "minReady": "1m" },
            "apiAccess": "All", "hostAccess": "Full",
        },
        "status": {
            "latestVersion": "v1", "latestHash": "h", "applying": ["n"],
            "active": [{ "name": "n", "uid": "u", "phase": "Upgrading", "since": "2026-01-01T00:00:00Z", "attempt": 1 }],
        },
    })
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_node_is_read_or_named(object in broken(node())) {
        if let Ok(node) = read::<SlimNode>(&raw(&object)) {
            let facts = node.facts(&Intern::default());
            prop_assert!(facts.boot_id.len() <= MAX_NAME && facts.kubelet.len() <= MAX_NAME);
            for record in facts.records.values() {
                prop_assert!(record.message.as_deref().is_none_or(|text| text.len() <= MAX_MESSAGE));
                prop_assert!(record.workloads.iter().all(|workload| Workload::parse(workload).is_some()));
            }
        }
    }

    #[test]
    fn any_pod_is_read_or_named(object in broken(pod())) {
        if let Ok(pod) = read::<SlimPod>(&raw(&object)) {
            let facts = pod.facts(&Intern::default());
            prop_assert!(facts.waiting.is_none_or(|text| text.len() <= MAX_MESSAGE));
            prop_assert!(!facts.foreign || facts.sentinel_result.is_none() && facts.reboot.is_none());
        }
    }

    #[test]
    fn any_job_is_read_or_named(object in broken(job())) {
        if let Ok(job) = read::<SlimJob>(&raw(&object)) {
            prop_assert!(job.facts(&Intern::default(), 900).boots.len() <= 16);
        }
    }

    #[test]
    fn any_secret_is_read_or_named(object in broken(json!({ "metadata": metadata() }))) {
        let _ = read::<SlimSecret>(&raw(&object));
    }

    #[test]
    fn any_plan_is_read_validated_and_hashed(object in broken(plan())) {
        if let Ok(facts) = read::<PlanFacts>(&raw(&object)) {
            let spec = &facts.object.spec;
            let _ = refit_api::validate::validate(&facts.name, spec);
            let _ = refit_job::digest::check_fields(&facts.object);
            prop_assert_eq!(refit_job::inputs::inputs(spec, "v1").len(), 32);
        }
    }

    #[test]
    fn any_selector_is_parsed_or_refused(object in broken(plan()["spec"]["nodeSelector"].clone()), written in text()) {
        if let Ok(selector) = serde_json::from_value(object) {
            let _ = Selector::new(Some(&selector)).map(|selector| selector.to_string());
        }
        if let Ok(selector) = written.parse::<Selector>() {
            prop_assert!(selector.to_string().parse::<Selector>().is_ok());
        }
    }

    #[test]
    fn any_window_is_parsed_or_refused(spec in broken(plan()["spec"]["window"].clone()), second in any::<i64>()) {
        if let Ok(spec) = serde_json::from_value::<TimeWindowSpec>(spec)
            && let Ok(window) = Window::parse(&spec, &jiff::tz::TimeZone::UTC)
            && let Ok(now) = jiff::Timestamp::from_second(second % 253_402_300_799)
        {
            let opens = window.next_open(now);
            prop_assert!(opens.is_none_or(|opens| opens >= now));
        }
    }

    #[test]
    fn any_duration_is_parsed_or_refused(written in text()) {
        if let Ok(duration) = written.parse::<GoDuration>() {
            prop_assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration));
        }
    }

    #[test]
    fn any_version_and_range_are_parsed_or_refused(written in text(), other in text()) {
        let version = written.parse::<Version>();
        if let Ok(range) = other.parse::<Range>() {
            prop_assert!(other.len() <= 1_024);
            let _ = version.map(|version| range.has(&version));
        }
    }

    #[test]
    fn any_ledger_is_read_within_its_limits(object in broken(ledger()), written in text()) {
        for text in [object.to_string(), written] {
            if let Some(ledger) = Ledger::parse(&text) {
                prop_assert!(ledger.holders.len() <= 64);
                prop_assert!(ledger.holders.iter().flat_map(|holder| &holder.evicted).all(|workload| Workload::parse(workload).is_some()));
                prop_assert_eq!(Ledger::parse(&ledger.to_text()), Some(ledger));
            }
        }
    }

    #[test]
    fn any_record_is_read_within_its_limits(object in broken(record()), written in text()) {
        for text in [object.to_string(), written] {
            if let Some(record) = Record::parse(&text) {
                prop_assert!(record.job.len() <= MAX_NAME && record.hash.len() <= MAX_NAME);
                prop_assert_eq!(Record::parse(&record.to_text()), Some(record));
            }
        }
    }

    #[test]
    fn any_note_of_a_drain_is_read_within_its_limits(object in broken(note()), written in text()) {
        for text in [object.to_string(), written] {
            if let Some(drain) = NodeDrain::parse(&text) {
                prop_assert!(drain.note.waiting.len() <= 3 && drain.plan.len() <= MAX_NAME);
                prop_assert!(drain.note.to_string().len() < 8_192);
            }
        }
    }

    #[test]
    fn any_request_of_a_reboot_is_read_within_its_limits(object in broken(reboot_request()), written in text()) {
        for text in [object.to_string(), written] {
            if let Some(request) = RebootRequest::parse(&text) {
                prop_assert!(request.reasons.len() <= 32 && request.packages.len() <= 32);
                prop_assert!(request.to_string().len() < 8 * MAX_NAME);
                prop_assert_eq!(RebootRequest::parse(&request.to_text()), Some(request));
            }
        }
    }

    #[test]
    fn any_report_of_a_pod_is_read_or_refused(written in text(), object in value()) {
        for text in [written, object.to_string()] {
            let _ = SentinelReport::parse(&text);
            let _ = RebootFault::parse(&text);
            if let Ok(name) = text.parse::<SentinelName>() {
                prop_assert!(!name.to_string().contains('/'));
            }
        }
    }

    #[test]
    fn any_docker_config_is_read_or_refused(
        object in broken(json!({ "auths": { "a.example": { "auth": "YTpi", "username": "u", "password": "p" }, "*.*.b": {} } })),
        written in text(),
    ) {
        for text in [object.to_string(), written] {
            let _ = DockerConfig::parse(text.as_bytes());
            let _ = DockerConfig::parse_legacy(text.as_bytes());
        }
    }

    #[test]
    fn any_lease_is_read_or_refused(object in broken(lease())) {
        if let Ok(lease) = read::<Lease>(&raw(&object)) {
            prop_assert!(serde_json::to_vec(&lease).is_ok());
        }
    }

    #[test]
    fn any_limits_for_all_plans_are_read_or_refused(values in btree_map(key(), text(), 0..6), object in broken(blackouts())) {
        let mut data = values;
        for blackouts in [None, Some(object.to_string())] {
            if let Some(blackouts) = blackouts {
                data.insert("blackouts".to_owned(), blackouts);
            }
            match Limits::parse(&data, &jiff::tz::TimeZone::UTC) {
                Ok(limits) => {
                    prop_assert!(limits.freeze.is_none_or(|reason| reason.len() <= MAX_MESSAGE));
                    prop_assert!(limits.blackouts.iter().all(|one| one.reason.len() <= MAX_NAME));
                }
                Err(error) => prop_assert!(error.to_string().len() < 2_048, "{error}"),
            }
        }
    }

    #[test]
    fn any_schedule_is_parsed_or_refused(windows in broken(json!([{ "cron": "0 22 * * 1-5", "duration": "4h", "timeZone": "UTC" }])), blackouts in broken(blackouts()), second in any::<i64>()) {
        let now = jiff::Timestamp::from_second(second % 253_402_300_799).unwrap_or_default();
        for spec in serde_json::from_value::<Vec<WindowSpec>>(windows).into_iter().flatten() {
            if let Ok(window) = PlanWindow::parse(&spec, &jiff::tz::TimeZone::UTC) {
                let opens = Windows(vec![window]).next_open(now);
                prop_assert!(opens.is_none_or(|opens| opens >= now));
            }
        }
        for spec in serde_json::from_value::<Vec<BlackoutSpec>>(blackouts).into_iter().flatten() {
            if let Ok(blackout) = Blackout::parse(&spec, &jiff::tz::TimeZone::UTC) {
                let _ = blackout.current_or_next(now);
            }
        }
    }

    #[test]
    fn any_pattern_of_hosts_is_parsed_or_refused(written in text()) {
        let _ = written.parse::<HostPattern>();
    }

    #[test]
    fn any_yaml_is_read_or_refused(written in text(), object in broken(plan())) {
        let _ = serde_json::from_value::<PlanSpec>(object["spec"].clone());
        for text in [written.clone(), object.to_string(), format!("spec: {written}\n"), format!("a: &x [{written}]\nb: *x\n")] {
            let _ = serde_saphyr::from_str::<Plan>(&text);
        }
    }
}

/// The generators reach what they are for.
#[test]
fn the_generators_break_objects_and_leave_some_whole() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = broken(node());
    let (mut readable, mut unreadable) = (0, 0);
    for _ in 0..200 {
        let object = strategy.new_tree(&mut runner).unwrap().current();
        match read::<SlimNode>(&raw(&object)) {
            Ok(_) => readable += 1,
            Err(_) => unreadable += 1,
        }
    }
    assert!(
        readable > 20 && unreadable > 20,
        "{readable} read, {unreadable} not"
    );
    assert_eq!(pointers(&Value::Object(Map::new())), [""]);
}
