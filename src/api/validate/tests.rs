use serde_json::{Value, json};

use super::*;

fn told(spec: Value) -> String {
    told_of("plan", spec)
}

fn told_of(name: &str, mut spec: Value) -> String {
    spec["upgrade"] = json!({"image": "i"});
    let spec = serde_json::from_value(spec).unwrap();
    validate(name, &spec)
        .err()
        .map_or_else(|| "valid".to_owned(), |invalid| invalid.to_string())
}

#[test]
fn a_plan_with_the_least_or_with_everything_is_valid() {
    assert_eq!(validate("", &PlanSpec::default()), Ok(()));
    let everything = json!({
        "concurrency": -1, "maxConcurrent": "25%", "version": "v1.2.3+k3s1", "channel": "not a url",
        "drain": {"timeout": "60s", "deleteLocalData": false, "podSelector": {"matchLabels": {"a": "b"}}},
        "window": {"days": ["mo"], "startTime": "22:00", "endTime": "04:00", "timeZone": "Europe/Berlin"},
        "postCompleteDelay": "1h30m", "secrets": [{"name": "nowhere", "path": ""}],
    });
    assert_eq!(told(everything), "valid");
    assert_eq!(told(json!({"drain": {}, "version": ""})), "valid");
    assert_eq!(
        told(json!({"window": {"startTime": "8", "endTime": "9", "timeZone": "Local"}})),
        "valid"
    );
}

#[test]
fn both_delete_flags_are_one_too_many_whatever_they_say() {
    let text = "spec.drain cannot specify both deleteEmptydirData and deleteLocalData";
    assert_eq!(
        told(json!({"drain": {"deleteEmptydirData": true, "deleteLocalData": true}})),
        text
    );
    assert_eq!(
        told(json!({"drain": {"deleteEmptydirData": false, "deleteLocalData": false}})),
        text
    );
    assert_eq!(told(json!({"drain": {"deleteEmptydirData": true}})), "valid");
}

#[test]
fn a_pod_selector_that_is_none_is_told_in_kubernetes_words() {
    let selector = |operator: &str, values: Value| {
        told(json!({"drain": {"podSelector": {"matchExpressions": [
            {"key": "a", "operator": operator, "values": values}
        ]}}}))
    };
    assert_eq!(selector("NotIn", json!(["b"])), "valid");
    assert_eq!(
        selector("Like", json!(["b"])),
        "\"Like\" is not a valid label selector operator"
    );
    let no_values = selector("In", json!([]));
    assert!(no_values.starts_with("values: Invalid value: "), "{no_values}");
    assert_eq!(told(json!({"drain": {"podSelector": {}}})), "valid");
}

#[test]
fn a_window_is_told_with_what_is_wrong_in_it() {
    let window = |start: &str, zone: &str| {
        told(json!({"window": {"days": ["mo"], "startTime": start, "endTime": "9", "timeZone": zone}}))
    };
    assert_eq!(
        window("8:00pm", ""),
        "spec.window is invalid, Invalid time format: 8:00pm"
    );
    assert_eq!(
        window("8", "Mars/Phobos"),
        "spec.window is invalid, unknown time zone Mars/Phobos"
    );
    assert_eq!(
        told(json!({"window": {}})),
        "spec.window is invalid, Invalid time format: "
    );
}

#[test]
fn a_delay_is_a_go_duration_that_is_not_negative() {
    assert_eq!(
        told(json!({"postCompleteDelay": "-30s"})),
        "spec.postCompleteDelay is negative"
    );
    assert_eq!(told(json!({"postCompleteDelay": "-0s"})), "valid");
    assert_eq!(
        told(json!({"postCompleteDelay": "soon"})),
        "spec.postCompleteDelay is invalid, time: invalid duration \"soon\""
    );
    assert_eq!(
        told(json!({"postCompleteDelay": ""})),
        "spec.postCompleteDelay is invalid, time: invalid duration \"\""
    );
}

#[test]
fn a_drain_timeout_that_no_drain_would_take_is_told_before_every_job_fails_of_it() {
    assert_eq!(
        told(json!({"drain": {"timeout": "5 minutes"}})),
        "spec.drain.timeout is invalid, time: unknown unit \" minutes\" in duration \"5 minutes\""
    );
    assert_eq!(told(json!({"drain": {"timeout": 60_000_000_000_i64}})), "valid");
    assert_eq!(told(json!({"drain": {"timeout": "0"}})), "valid");
}

#[test]
fn a_plan_name_is_as_long_as_a_label_may_be() {
    assert_eq!(told_of(&"p".repeat(63), json!({})), "valid");
    assert_eq!(
        told_of(&"p".repeat(200), json!({})),
        "metadata.name has 200 characters, and the label that marks a finished node holds 63"
    );
}

#[test]
fn a_version_is_what_a_label_holds_once_its_plus_signs_are_dashes() {
    for version in ["v1.2.3+k3s1", "bionic", "2026.1_x", &"v".repeat(63)] {
        assert_eq!(told(json!({"version": version})), "valid", "{version}");
    }
    for version in ["v1 beta", "v1+", "-v1", "v1/2", "é", &"v".repeat(64), "v1\n"] {
        assert_eq!(
            told(json!({"version": version})),
            format!(
                "spec.version cannot be an image tag and a label value: {version:?} must be at most 63 letters, digits, \
                 '-', '_', '.' or '+', with a letter or digit at each end"
            )
        );
    }
}

#[test]
fn max_concurrent_is_a_number_from_1_on_or_a_share() {
    for limit in [
        json!(1),
        json!(i32::MAX),
        json!("1%"),
        json!("25%"),
        json!("100%"),
    ] {
        assert_eq!(told(json!({"maxConcurrent": limit})), "valid", "{limit}");
    }
    let rest = "it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\"";
    for (limit, shown) in [
        (json!(0), "0"),
        (json!(-1), "-1"),
        (json!("25"), "\"25\""),
        (json!("0%"), "\"0%\""),
        (json!("101%"), "\"101%\""),
        (json!("1000%"), "\"1000%\""),
        (json!("025%"), "\"025%\""),
        (json!("+25%"), "\"+25%\""),
        (json!("-25%"), "\"-25%\""),
        (json!("2.5%"), "\"2.5%\""),
        (json!(" 25%"), "\" 25%\""),
        (json!("%"), "\"%\""),
        (json!(""), "\"\""),
        (json!("some"), "\"some\""),
    ] {
        assert_eq!(
            told(json!({"maxConcurrent": limit})),
            format!("spec.maxConcurrent is {shown}: {rest}")
        );
    }
}

#[test]
fn a_share_is_rounded_down_but_not_to_none() {
    let of = |limit: Value, selected| {
        MaxConcurrent::parse(&serde_json::from_value(limit).unwrap())
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
fn missing_secrets_are_told_all_at_once() {
    let missing = Invalid::SecretsMissing(vec!["x".to_owned(), "y".to_owned()]);
    assert_eq!(
        missing.to_string(),
        "secrets \"x\" not found, secrets \"y\" not found"
    );
}

#[test]
fn the_first_mistake_in_system_upgrade_controller_s_order_is_told() {
    let mut spec = json!({
        "drain": {
            "deleteEmptydirData": true, "deleteLocalData": true, "timeout": "soon",
            "podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]},
        },
        "window": {},
        "postCompleteDelay": "-1s",
        "version": "v1 beta",
        "maxConcurrent": 0,
    });
    let name = "p".repeat(64);
    let mut order = Vec::new();
    for next in [
        "/drain/deleteLocalData",
        "/drain/podSelector",
        "/window",
        "/postCompleteDelay",
        "/drain/timeout",
    ] {
        order.push(told_of(&name, spec.clone()));
        let (parent, field) = next.rsplit_once('/').unwrap();
        spec.pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(field);
    }
    order.push(told_of(&name, spec.clone()));
    order.push(told(spec.clone()));
    spec.as_object_mut().unwrap().remove("version");
    order.push(told(spec));
    let firsts: Vec<_> = order
        .iter()
        .map(|text| text.split_inclusive(' ').take(2).collect::<String>())
        .collect();
    assert_eq!(
        firsts,
        [
            "spec.drain cannot ",
            "\"Like\" is ",
            "spec.window is ",
            "spec.postCompleteDelay is ",
            "spec.drain.timeout is ",
            "metadata.name has ",
            "spec.version cannot ",
            "spec.maxConcurrent is ",
        ]
    );
}

#[test]
fn a_reboot_may_be_written_out_in_full() {
    assert_eq!(told(json!({"reboot": {}})), "valid");
    assert_eq!(told(json!({"reboot": {"when": "Always"}, "settle": {}})), "valid");
    let all = json!({
        "hostAccess": "Root",
        "reboot": {"when": "IfRequired", "requiredFiles": ["/run/a b", "/.x/..y"], "command": ["/usr/sbin/reboot", ""],
                   "timeout": "1ns"},
        "settle": {"minReady": "0s", "kubeletVersion": true, "workloads": true, "timeout": "1ns"},
    });
    assert_eq!(told(all), "valid");
}

#[test]
fn a_required_file_is_an_absolute_path_that_leads_where_it_says() {
    for path in [
        "",
        "/",
        "run/x",
        "/run/../etc",
        "/run/./x",
        "/run//x",
        "/run/x/",
        "/..",
        "/a\0b",
        "C:\\x",
        &format!("/{}", "p".repeat(4095)),
    ] {
        assert_eq!(
            told(json!({"reboot": {"when": "Never", "requiredFiles": ["/ok", path]}})),
            format!(
                "spec.reboot.requiredFiles[1] is {path:?}: it must be an absolute path on the host, such as \
                 \"/run/reboot-required\", without \".\", \"..\", \"//\" or a \"/\" at its end, and of at most 4095 characters"
            )
        );
    }
    assert_eq!(
        told(json!({"reboot": {"when": "IfRequired", "requiredFiles": []}})),
        "spec.reboot.requiredFiles is empty, so that nothing could require a reboot: leave it out for /run/reboot-required \
         and /var/run/reboot-required, or name files"
    );
}

#[test]
fn a_command_has_a_program_that_can_be_found() {
    assert_eq!(
        told(json!({"reboot": {"command": []}})),
        "spec.reboot.command is empty: leave it out for `systemctl reboot` or `reboot`, or name a program"
    );
    for program in [
        "",
        ".",
        "..",
        "sbin/reboot",
        "./reboot",
        "/",
        "/sbin/../reboot",
        "/sbin/reboot/",
    ] {
        assert_eq!(
            told(json!({"reboot": {"command": [program, "now"]}})),
            format!(
                "spec.reboot.command[0] is {program:?}: it must be the name of a program on the host, such as \"reboot\", or \
                 its absolute path"
            )
        );
    }
    assert_eq!(
        told(json!({"reboot": {"command": ["reboot", "a\0b"]}})),
        "spec.reboot.command[1] has a NUL character, which no argument can have"
    );
    for command in [
        json!(["systemctl", "reboot"]),
        json!(["/sbin/shutdown", "-r", "+0", ""]),
    ] {
        assert_eq!(told(json!({"reboot": {"command": command}})), "valid");
    }
}

#[test]
fn timeouts_are_go_durations_of_more_than_nothing() {
    for (part, field) in [("reboot", "timeout"), ("settle", "timeout")] {
        assert_eq!(
            told(json!({part: {field: "soon"}})),
            format!("spec.{part}.{field} is invalid, time: invalid duration \"soon\"")
        );
        for (value, shown) in [("0s", "0s"), ("-1m", "-1m0s")] {
            assert_eq!(
                told(json!({part: {field: value}})),
                format!("spec.{part}.{field} is {shown}: it must be more than 0s")
            );
        }
    }
    assert_eq!(
        told(json!({"settle": {"minReady": "10"}})),
        "spec.settle.minReady is invalid, time: missing unit in duration \"10\""
    );
    assert_eq!(
        told(json!({"settle": {"minReady": "-1s"}})),
        "spec.settle.minReady is negative"
    );
}

#[test]
fn no_node_is_waited_for_longer_than_the_wait_may_take() {
    let rest = "ends the wait for it after";
    assert_eq!(
        told(json!({"settle": {"minReady": "10m"}})),
        format!("spec.settle.minReady is 10m0s, and spec.settle.timeout {rest} 10m0s: it must be longer")
    );
    assert_eq!(
        told(json!({"settle": {"minReady": "9m"}, "reboot": {"when": "Always", "timeout": "5m"}})),
        format!("spec.settle.minReady is 9m0s, and spec.reboot.timeout {rest} 5m0s: it must be longer")
    );
    assert_eq!(
        told(json!({"reboot": {"when": "Always", "timeout": "5s"}})),
        format!("spec.settle.minReady is 10s, and spec.reboot.timeout {rest} 5s: it must be longer")
    );
    assert_eq!(
        told(json!({"settle": {"minReady": "9m"}, "reboot": {"timeout": "5m"}})),
        "valid"
    );
    assert_eq!(
        told(json!({"settle": {"minReady": "0s"}, "reboot": {"when": "Always", "timeout": "5s"}})),
        "valid"
    );
}

#[test]
fn a_reboot_needs_the_host() {
    assert_eq!(
        told(json!({"hostAccess": "None", "reboot": {"when": "IfRequired"}})),
        "spec.reboot.when is IfRequired, and spec.hostAccess None keeps refit from the host: use Root or Full"
    );
    assert_eq!(
        told(json!({"hostAccess": "None", "reboot": {"when": "Never"}})),
        "valid"
    );
    assert_eq!(told(json!({"hostAccess": "None"})), "valid");
    assert_eq!(
        told(json!({"hostAccess": "Root", "reboot": {"when": "Always"}})),
        "valid"
    );
}
