mod all;

use serde_json::{Value, json};

use super::*;
use crate::NodeLimit;

/// What is wrong with a spec.
fn mistake(spec: Value) -> String {
    mistake_of("plan", spec)
}

fn mistake_of(name: &str, mut spec: Value) -> String {
    spec["upgrade"] = json!({"image": "i"});
    let spec = serde_json::from_value(spec).unwrap();
    let result = validate(name, &spec);
    result
        .err()
        .map_or_else(|| "valid".to_owned(), |invalid| invalid.to_string())
}

/// Checks lines of the form `spec => mistake`, with the spec in YAML.
#[track_caller]
fn check(lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (spec, expected) = line.split_once(" => ").expect(line);
        assert_eq!(
            mistake(serde_saphyr::from_str(spec).expect(line)),
            expected,
            "{spec}"
        );
    }
}

#[test]
fn a_plan_with_the_least_or_with_everything_is_valid() {
    assert_eq!(validate("", &PlanSpec::default()).err(), None);
    let everything = json!({
        "concurrency": -1, "maxConcurrent": "25%", "version": "v1.2.3+k3s1", "channel": "not a url",
        "drain": {"timeout": "60s", "deleteLocalData": false, "podSelector": {"matchLabels": {"a": "b"}}},
        "window": {"days": ["mo"], "startTime": "22:00", "endTime": "04:00", "timeZone": "Europe/Berlin"},
        "postCompleteDelay": "1h30m", "secrets": [{"name": "nowhere", "path": ""}],
    });
    assert_eq!(mistake(everything), "valid");
    check("{drain: {}, version: ''} => valid");
    check("window: {startTime: '8', endTime: '9', timeZone: Local} => valid");
}

#[test]
fn both_delete_flags_are_one_too_many_whatever_they_say() {
    check(
        "drain: {deleteEmptydirData: true, deleteLocalData: true} => spec.drain cannot specify both deleteEmptydirData and deleteLocalData
        drain: {deleteEmptydirData: false, deleteLocalData: false} => spec.drain cannot specify both deleteEmptydirData and deleteLocalData
        drain: {deleteEmptydirData: true} => valid",
    );
}

#[test]
fn an_invalid_pod_selector_is_reported_in_kubernetes_words() {
    let selector = |operator: &str, values: Value| {
        let expression = json!({"key": "a", "operator": operator, "values": values});
        mistake(json!({"drain": {"podSelector": {"matchExpressions": [expression]}}}))
    };
    assert_eq!(selector("NotIn", json!(["b"])), "valid");
    let unknown = selector("Like", json!(["b"]));
    assert_eq!(unknown, "\"Like\" is not a valid label selector operator");
    let no_values = selector("In", json!([]));
    assert!(no_values.starts_with("values: Invalid value: "), "{no_values}");
    check("drain: {podSelector: {}} => valid");
}

#[test]
fn a_window_is_reported_with_what_is_wrong_in_it() {
    check(
        "window: {days: [mo], startTime: '8:00pm', endTime: '9'} => spec.window is invalid, Invalid time format: 8:00pm
        window: {days: [mo], startTime: '8', endTime: '9', timeZone: Mars/Phobos} => spec.window is invalid, unknown time zone Mars/Phobos",
    );
    assert_eq!(
        mistake(json!({"window": {}})),
        "spec.window is invalid, Invalid time format: "
    );
}

#[test]
fn a_delay_is_a_go_duration_that_is_not_negative() {
    check(
        "postCompleteDelay: -30s => spec.postCompleteDelay is negative
        postCompleteDelay: -0s => valid
        postCompleteDelay: soon => spec.postCompleteDelay is invalid, time: invalid duration \"soon\"
        postCompleteDelay: '' => spec.postCompleteDelay is invalid, time: invalid duration \"\"",
    );
}

#[test]
fn a_drain_timeout_that_no_drain_accepts_is_reported_before_every_job_fails_of_it() {
    check(
        "drain: {timeout: 5 minutes} => spec.drain.timeout is invalid, time: unknown unit \" minutes\" in duration \"5 minutes\"
        drain: {timeout: 60000000000} => valid
        drain: {timeout: '0'} => valid
        drain: {settleDelay: 5 minutes} => spec.drain.settleDelay is invalid, time: unknown unit \" minutes\" in duration \"5 minutes\"
        drain: {settleDelay: -1s} => spec.drain.settleDelay is negative: it must be 0s or longer
        drain: {loadBalancerDelay: 1m} => spec.drain.loadBalancerDelay waits for load balancers, which see no change without spec.drain.excludeFromLoadBalancers: true
        drain: {loadBalancerDelay: 1m, excludeFromLoadBalancers: true} => valid
        drain: {afterTimeout: Delete} => spec.drain.afterTimeout is Delete, and the drain has no spec.drain.timeout after which that could happen
        drain: {afterTimeout: Continue, timeout: '0'} => spec.drain.afterTimeout is Continue, and the drain has no spec.drain.timeout after which that could happen
        drain: {afterTimeout: Continue, timeout: 5m} => valid
        drain: {order: [{matchLabels: {app: osd}}]} => valid
        drain: {order: [{}, {matchExpressions: [{key: a, operator: Like}]}]} => spec.drain.order[1] is invalid, \"Like\" is not a valid label selector operator",
    );
}

#[test]
fn a_plan_name_is_as_long_as_a_label_may_be() {
    assert_eq!(mistake_of(&"p".repeat(63), json!({})), "valid");
    assert_eq!(
        mistake_of(&"p".repeat(200), json!({})),
        "metadata.name has 200 characters, and the label that marks a finished node holds 63"
    );
}

#[test]
fn a_version_is_what_a_label_holds_once_its_plus_signs_are_dashes() {
    for version in ["v1.2.3+k3s1", "bionic", "2026.1_x", &"v".repeat(63)] {
        assert_eq!(mistake(json!({"version": version})), "valid", "{version}");
    }
    for version in ["v1 beta", "v1+", "-v1", "v1/2", "é", &"v".repeat(64), "v1\n"] {
        assert_eq!(
            mistake(json!({"version": version})),
            format!(
                "spec.version cannot be an image tag and a label value: {version:?} must be at most 63 letters, digits, \
                 '-', '_', '.' or '+', with a letter or digit at each end"
            )
        );
    }
}

#[test]
fn max_concurrent_is_a_number_from_1_on_or_a_share() {
    for limit in ["1", "2147483647", "1%", "25%", "100%"] {
        check(&format!("maxConcurrent: {limit} => valid"));
    }
    let invalid = r#"0;-1;"25";"0%";"101%";"1000%";"025%";"+25%";"-25%";"2.5%";" 25%";"%";"";"some""#;
    for limit in invalid.split(';') {
        check(&format!(
            "maxConcurrent: {limit} => spec.maxConcurrent is {limit}: it must be a number from 1 on, or a share of the nodes from \
             \"1%\" to \"100%\""
        ));
    }
}

#[test]
fn a_share_is_rounded_down_but_not_to_none() {
    let of = |limit: Value, selected| {
        NodeLimit::parse(&serde_json::from_value(limit).unwrap())
            .unwrap()
            .of(selected)
    };
    assert_eq!(of(json!("25%"), 40), 10);
    assert_eq!(of(json!("25%"), 43), 10);
    assert_eq!(of(json!("25%"), 3), 1);
    assert_eq!(of(json!("1%"), 0), 1);
    assert_eq!(of(json!("100%"), 7), 7);
    assert_eq!(of(json!("100%"), usize::MAX), usize::MAX / 100 * 100);
    assert_eq!(of(json!(5), 3), 5);
}

#[test]
fn mistakes_are_reported_in_system_upgrade_controller_s_order_and_then_in_that_of_the_fields() {
    let spec = json!({
        "drain": {
            "deleteEmptydirData": true, "deleteLocalData": true, "timeout": "soon",
            "podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
        },
        "window": {"days": ["mo"], "startTime": "8", "endTime": "24:00"},
        "postCompleteDelay": "-1s",
        "version": "v1 beta",
        "maxConcurrent": 0,
    });
    let all = mistake_of(&"p".repeat(64), spec);
    let firsts: Vec<_> = all
        .split("; ")
        .map(|text| text.split_inclusive(' ').take(2).collect::<String>())
        .collect();
    assert_eq!(
        firsts,
        [
            "spec.drain cannot ",
            "\"Like\" is ",
            "spec.window is ",
            "spec.postCompleteDelay is ",
            "metadata.name has ",
            "spec.maxConcurrent is ",
            "spec.version cannot ",
            "spec.drain.timeout is ",
        ]
    );
}

#[test]
fn a_reboot_may_be_written_out_in_full() {
    check("reboot: {} => valid");
    check("{reboot: {when: Always}, settle: {}} => valid");
    let all = json!({
        "hostAccess": "Root",
        "reboot": {"when": "IfRequired", "requiredFiles": ["/run/a b", "/.x/..y"], "command": ["/usr/sbin/reboot", ""],
                   "timeout": "1ns"},
        "settle": {"minReady": "0s", "kubeletVersion": true, "workloads": true, "timeout": "1ns"},
    });
    assert_eq!(mistake(all), "valid");
}

#[test]
fn a_required_file_is_a_normalized_absolute_path() {
    let long = format!("/{}", "p".repeat(4095));
    let paths = ";/;run/x;/run/../etc;/run/./x;/run//x;/run/x/;/..;/a\0b;C:\\x";
    for path in paths.split(';').chain([long.as_str()]) {
        assert_eq!(
            mistake(json!({"reboot": {"when": "Never", "requiredFiles": ["/ok", path]}})),
            format!(
                "spec.reboot.requiredFiles[1] is {path:?}: it must be an absolute path on the host, such as \
                 \"/run/reboot-required\", without \".\", \"..\", \"//\" or a \"/\" at its end, and of at most 4095 characters"
            )
        );
    }
    check(
        "reboot: {when: IfRequired, requiredFiles: []} => spec.reboot.requiredFiles is empty, so nothing could require a reboot: leave it out for /run/reboot-required and /var/run/reboot-required, or name files",
    );
}

#[test]
fn a_command_has_a_program_that_can_be_found() {
    for program in ";.;..;sbin/reboot;./reboot;/;/sbin/../reboot;/sbin/reboot/".split(';') {
        assert_eq!(
            mistake(json!({"reboot": {"command": [program, "now"]}})),
            format!(
                "spec.reboot.command[0] is {program:?}: it must be the name of a program on the host, such as \"reboot\", or \
                 its absolute path"
            )
        );
    }
    check(
        r#"reboot: {command: []} => spec.reboot.command is empty: leave it out for `systemctl reboot` or `reboot`, or name a program
        reboot: {command: [reboot, "a\0b"]} => spec.reboot.command[1] has a NUL character, which no argument can have
        reboot: {command: [systemctl, reboot]} => valid
        reboot: {command: [/sbin/shutdown, -r, '+0', '']} => valid"#,
    );
}

#[test]
fn timeouts_are_positive_go_durations() {
    for part in ["reboot", "settle"] {
        check(&format!(
            "{part}: {{timeout: soon}} => spec.{part}.timeout is invalid, time: invalid duration \"soon\"
            {part}: {{timeout: 0s}} => spec.{part}.timeout is 0s: it must be more than 0s
            {part}: {{timeout: -1m}} => spec.{part}.timeout is -1m0s: it must be more than 0s"
        ));
    }
    check(
        "settle: {minReady: '10'} => spec.settle.minReady is invalid, time: missing unit in duration \"10\"
        settle: {minReady: -1s} => spec.settle.minReady is negative",
    );
}

#[test]
fn what_a_node_must_show_has_a_name_and_a_status() {
    check(
        r#"settle: {conditions: [{type: KernelDeadlock, status: "False"}, {type: example.com/Well, status: "True"}]} => valid
        settle: {conditions: [{status: "True"}]} => spec.settle.conditions[0].type is "": it must be the type of a condition, such as KernelDeadlock
        settle: {conditions: [{type: A}]} => spec.settle.conditions[0].status is missing
        settle: {conditions: [{type: A, status: "True"}, {type: A, status: "False"}]} => spec.settle.conditions[1].type is "A", as an earlier entry: remove one
        settle: {taintsGone: [node.cilium.io/agent-not-ready, "dedicated:NoExecute"]} => valid
        settle: {taintsGone: ["a:Never"]} => spec.settle.taintsGone[0] is invalid, "Never" is not an effect: it must be NoSchedule, PreferNoSchedule or NoExecute
        settle: {taintsGone: ["a=b:NoSchedule"]} => spec.settle.taintsGone[0] is invalid, a taint is named without its value, as `key` or `key:Effect`
        settle: {daemonSets: {}} => valid
        settle: {daemonSets: {selector: {matchLabels: {app: cilium}}}} => valid
        settle: {daemonSets: {namespace: A}} => spec.settle.daemonSets.namespace is "A": it must be the name of a namespace"#,
    );
}

#[test]
fn a_node_does_not_wait_for_what_refit_removes_once_it_is_done() {
    check(
        r#"settle: {conditions: [{type: Ready, status: "True"}, {type: DiskPressure, status: "False"}]} => valid
        settle: {conditions: [{type: Ready, status: "False"}]} => spec.settle.conditions[0].status is False, and only a Ready node is ever done: it must be True
        settle: {conditions: [{type: Drained, status: "False"}]} => spec.settle.conditions[0].type is Drained, a condition of a node in maintenance, which settling is a part of: remove the entry
        settle: {taintsGone: [a, "refit.rs/new-node:NoSchedule"]} => spec.settle.taintsGone[1] is "refit.rs/new-node:NoSchedule", and refit removes this taint when nodes are done: remove the entry
        settle: {taintsGone: [pending.refit.rs/p]} => spec.settle.taintsGone[0] is "pending.refit.rs/p", and refit removes this taint when nodes are done: remove the entry
        settle: {taintsGone: [node.kubernetes.io/unschedulable]} => valid
        {drain: {}, settle: {taintsGone: ["node.kubernetes.io/unschedulable:NoExecute"]}} => valid
        {cordon: true, settle: {taintsGone: [node.kubernetes.io/unschedulable]}} => spec.settle.taintsGone[0] is "node.kubernetes.io/unschedulable", and the node is uncordoned once it has settled: remove the entry
        {drain: {}, settle: {taintsGone: [node.kubernetes.io/unschedulable]}} => spec.settle.taintsGone[0] is "node.kubernetes.io/unschedulable", and the node is uncordoned once it has settled: remove the entry"#,
    );
}

#[test]
fn the_ready_time_is_shorter_than_the_timeout_of_its_wait() {
    check(
        "settle: {minReady: 10m} => spec.settle.minReady is 10m0s, and spec.settle.timeout ends the wait for it after 10m0s: it must be longer
        {settle: {minReady: 9m}, reboot: {when: Always, timeout: 5m}} => spec.settle.minReady is 9m0s, and spec.reboot.timeout ends the wait for it after 5m0s: it must be longer
        reboot: {when: Always, timeout: 5s} => spec.settle.minReady is 10s, and spec.reboot.timeout ends the wait for it after 5s: it must be longer
        {settle: {minReady: 9m}, reboot: {timeout: 5m}} => valid
        {settle: {minReady: 0s}, reboot: {when: Always, timeout: 5s}} => valid",
    );
}

#[test]
fn a_reboot_needs_the_host() {
    check(
        "{hostAccess: None, reboot: {when: IfRequired}} => spec.reboot.when is IfRequired, and spec.hostAccess None keeps refit from the host: use Root or Full
        {hostAccess: None, reboot: {when: Never}} => valid
        hostAccess: None => valid
        {hostAccess: Root, reboot: {when: Always}} => valid",
    );
}

#[test]
fn a_channel_longer_than_any_url_is_refused() {
    let of = |length: usize| mistake(json!({ "channel": "u".repeat(length) }));
    assert_eq!(of(4_096), "valid");
    assert_eq!(of(4_097), "spec.channel has 4097 bytes, and may have 4096");
}

#[test]
fn labels_that_no_node_can_have_are_refused_whatever_the_version() {
    check(
        r#"postCompleteLabels: {a.b/c: x-$(LATEST_VERSION), d: $(LATEST_HASH), e: ""} => valid
        postCompleteLabels: {/a: b} => spec.postCompleteLabels has the key "/a", which is not one of a label: prefix part must be non-empty"#,
    );
    for value in ["a b", "$(OTHER)", "$$(LATEST_VERSION)", "$(LATEST_VERSION)-"] {
        let found = mistake(json!({ "postCompleteLabels": { "a": value } }));
        let begins =
            format!("spec.postCompleteLabels has the value {value:?} for a, which is not one of a label: ");
        assert!(found.starts_with(&begins), "{found}");
    }
    let long = "v".repeat(64);
    let found = mistake(json!({ "postCompleteLabels": { "a": long } }));
    assert!(found.ends_with("must be no more than 63 bytes"), "{found}");
}
