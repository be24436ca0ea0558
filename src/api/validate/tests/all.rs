//! Of several independent mistakes each is reported once, at its field, in a fixed order.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;

/// A field, in the order of the errors: its path in the spec, an invalid value, and the path of the error where it is
/// another one.
const MISTAKES: &str = r#"
    drain.podSelector {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    window.days ["mo", "never"] window.days[1]
    window.timeZone "Mars/Phobos"
    window.startTime "25:00"
    window.endTime "x"
    postCompleteDelay "soon"
    maxConcurrent 0
    maxUnavailable "101%"
    order [{"controlPlane": "First"}, {}] order[1]
    waves [{"nodes": 1, "soak": "-1s"}] waves[0].soak
    checks [{"name": "a", "http": {"url": "a.test"}}] checks[0].http.url
    failure.retries -1
    failure.backoff "0s"
    nodeInfo.kubeletVersion "old"
    nodeInfo.osImage []
    nodeInfo.architecture ["amd64", ""] nodeInfo.architecture[1]
    channelSecretRef {"name": ""} channelSecretRef.name
    channelCASecretRef {"name": "A"} channelCASecretRef.name
    version "v1 beta"
    versionPolicy.range ">"
    versionPolicy.minimumAge "3d"
    versionPolicy.maxMinorSkip -1
    dependsOn [{"name": "other"}, {"name": "plan"}] dependsOn[1].name
    blackouts [{"start": "12-24", "end": "12-26"}, {"start": "12-24", "end": "soon"}] blackouts[1].end
    notBefore "soon"
    repeat.cron "0 0 30 2 *"
    repeat.timeZone "Mars/Phobos"
    drain.timeout "soon"
    drain.waitFor [{"podSelector": {"matchLabels": {"a": "b"}}, "timeout": "soon"}] drain.waitFor[0].timeout
    drain.blockedBy [{}] drain.blockedBy[0]
    postCompleteLabels {"a": "b c"}
    reboot.requiredFiles ["/a", "b"] reboot.requiredFiles[1]
    reboot.command ["a/b"] reboot.command[0]
    reboot.timeout "0s"
    settle.minReady "soon"
    settle.conditions [{"type": "Kernel Deadlock", "status": "False"}] settle.conditions[0].type
    settle.taintsGone ["a=b"] settle.taintsGone[0]
    settle.daemonSets {"namespace": "A"} settle.daemonSets.namespace
    settle.timeout "-1s"
    onDrift "Rerun"
"#;

/// The fields that a mistake needs beside it.
const VALID: &str = r#"
    window.startTime "22:00"
    window.endTime "04:00"
    failure.retries 1
    failure.backoff "1m"
    repeat.cron "0 3 * * *"
"#;

fn lines(table: &str) -> Vec<(&str, Value, &str)> {
    let rows = table.lines().map(str::trim).filter(|line| !line.is_empty());
    rows.map(|row| {
        let (field, rest) = row.split_once(' ').unwrap();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        let value = values.next().unwrap().unwrap();
        let path = rest[values.byte_offset()..].trim();
        (field, value, if path.is_empty() { field } else { path })
    })
    .collect()
}

fn set(spec: &mut Value, field: &str, value: Value) {
    let pointer = format!("/{}", field.replace('.', "/"));
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    if !parent.is_empty() && spec.pointer(parent).is_none() {
        spec[parent.trim_start_matches('/')] = json!({});
    }
    spec.pointer_mut(parent).unwrap()[name] = value;
}

proptest! {
    #[test]
    fn each_of_several_mistakes_is_reported_once_with_its_own_path(
        chosen in proptest::sample::subsequence((0..lines(MISTAKES).len()).collect::<Vec<_>>(), 1..6)
    ) {
        let (all, valid) = (lines(MISTAKES), lines(VALID));
        let mut spec = json!({ "upgrade": { "image": "i" } });
        let object = |field: &str| field.split('.').next().unwrap_or_default().to_owned();
        for (field, value, _) in &valid {
            if chosen.iter().any(|index| object(all[*index].0) == object(field)) {
                set(&mut spec, field, value.clone());
            }
        }
        for index in &chosen {
            set(&mut spec, all[*index].0, all[*index].1.clone());
        }
        let errors = validate("plan", &serde_json::from_value(spec).unwrap()).unwrap_err();
        let paths: Vec<_> = errors.iter().map(|error| error.path.to_string()).collect();
        let expected: Vec<_> = chosen.iter().map(|index| format!("spec.{}", all[*index].2)).collect();
        prop_assert_eq!(paths, expected, "{}", errors);
    }
}

#[test]
fn an_endless_list_of_mistakes_is_cut() {
    let spec = json!({ "reboot": { "requiredFiles": vec![""; 10_000] } });
    let errors = validate("plan", &serde_json::from_value(spec).unwrap()).unwrap_err();
    assert_eq!(errors.iter().count(), 100);
}
