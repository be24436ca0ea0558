//! Which Plans come of which objects. That these Plans are valid, and roll out, is tested in `tests/gitops/convert.rs`.

use serde_json::{Value, json};

use super::*;

fn written(yaml: &str) -> Written {
    let value: Value = serde_saphyr::from_str(yaml).unwrap();
    Written {
        api_version: value["apiVersion"].as_str().unwrap().to_owned(),
        kind: value["kind"].as_str().unwrap().to_owned(),
        value,
    }
}

fn converted(yaml: &str) -> (Value, Vec<String>) {
    let converted = convert(&written(yaml), "system-upgrade").unwrap().unwrap();
    (
        serde_json::to_value(&converted.plan).unwrap()["spec"].clone(),
        converted.notes.into_iter().map(|note| note.text).collect(),
    )
}

fn refused(yaml: &str) -> String {
    convert(&written(yaml), "system-upgrade").unwrap().unwrap_err()
}

fn kured(arguments: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: kured}}, spec: {{template: {{spec: {{
            containers: [{{name: kured, image: 'ghcr.io/kubereboot/kured:1.17', command: [/usr/bin/kured], args: {arguments}}}]}}}}}}}}"
    )
}

/// Fields of the Plan for kured with these arguments.
fn of_kured(arguments: &str, pointer: &str) -> Value {
    let (spec, _) = converted(&kured(arguments));
    spec.pointer(pointer).cloned().unwrap_or_default()
}

#[test]
fn fields_of_the_annotation_of_a_node_op_are_in_its_plan_and_mistakes_are_errors() {
    let op = |annotation: &str| {
        format!(
            "{{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {{name: op, annotations: {{refit.rs/plan-spec: '{annotation}'}}}},
                spec: {{command: [\"true\"], concurrency: 3}}}}"
        )
    };
    let (spec, _) = converted(&op(r#"{"maxUnavailable": "10%", "concurrency": 1}"#));
    assert_eq!(
        (&spec["maxUnavailable"], &spec["concurrency"]),
        (&json!("10%"), &json!(1))
    );
    let why = refused(&op(r#"{"maxUnavailabel": 1}"#));
    assert_eq!(
        why,
        "annotation refit.rs/plan-spec: a Plan has no field spec.maxUnavailabel"
    );
}

#[test]
fn kured_without_flags_becomes_a_plan_for_all_nodes_that_reboots_one_at_a_time() {
    let (spec, notes) = converted(&kured("[]"));
    let expected = json!({
        "trigger": "RebootNeeded", "concurrency": 1, "nodeSelector": {}, "serviceAccountName": "system-upgrade",
        "jobActiveDeadlineSecs": 0, "drain": { "force": true }, "reboot": {}
    });
    assert_eq!(spec, expected);
    assert_eq!(
        notes,
        [
            "`refit agent` (deploy/overlays/agent) must run on these nodes: it says which of them need a reboot."
        ]
    );
}

#[test]
fn drains_and_windows_of_kured_become_fields() {
    for (arguments, pointer, expected) in [
        ("[--concurrency=3]", "/concurrency", json!(3)),
        ("[--drain-timeout=10m]", "/drain/timeout", json!("10m0s")),
        ("[--drain-timeout=10m]", "/jobActiveDeadlineSecs", json!(900)),
        ("[--drain-grace-period, '30']", "/drain/gracePeriod", json!(30)),
        ("[--drain-grace-period=-1]", "/drain/gracePeriod", Value::Null),
        (
            "[--skip-wait-for-delete-timeout=60]",
            "/drain/skipWaitForDeleteTimeout",
            json!(60),
        ),
        (
            "['--drain-pod-selector=a=b,c!=d,!e,f in (g,h)']",
            "/drain/podSelector",
            json!({
                "matchLabels": { "a": "b" },
                "matchExpressions": [
                    { "key": "c", "operator": "NotIn", "values": ["d"] },
                    { "key": "e", "operator": "DoesNotExist" },
                    { "key": "f", "operator": "In", "values": ["g", "h"] },
                ],
            }),
        ),
        (
            "[--blocking-pod-selector=a=b, '--blocking-pod-selector=c in (d,e)']",
            "/drain/blockedBy",
            json!([
                { "selector": { "matchLabels": { "a": "b" } } },
                { "selector": { "matchExpressions": [{ "key": "c", "operator": "In", "values": ["d", "e"] }] } },
            ]),
        ),
        (
            "[--prefer-no-schedule-taint=kured]",
            "/drain/avoidPendingNodes",
            json!(true),
        ),
        (
            "['--reboot-days=Mon,fri', --start-time=10pm, --end-time=02:00, --time-zone=Europe/Berlin]",
            "/windows",
            json!([
                { "days": ["mon", "fri"], "startTime": "10pm", "endTime": "02:00", "timeZone": "Europe/Berlin" },
            ]),
        ),
        (
            "[--start-time=22:00]",
            "/windows/0/days",
            json!(["su", "mo", "tu", "we", "th", "fr", "sa"]),
        ),
        ("[--start-time=22:00]", "/windows/0/endTime", json!("23:59:59")),
        ("[--time-zone=Europe/Berlin]", "/windows", Value::Null),
    ] {
        assert_eq!(of_kured(arguments, pointer), expected, "{arguments} {pointer}");
    }
}

#[test]
fn flags_of_kured_about_the_reboot_become_fields() {
    for (arguments, pointer, expected) in [
        ("[--lock-release-delay=5m]", "/postCompleteDelay", json!("5m0s")),
        ("[--lock-ttl=1h]", "/reboot/timeout", json!("1h0m0s")),
        ("[--lock-ttl=0]", "/reboot/timeout", Value::Null),
        (
            "[--reboot-command=/bin/systemctl reboot]",
            "/reboot/command",
            Value::Null,
        ),
        (
            r#"['--reboot-command=/opt/reboot --why "a b"']"#,
            "/reboot/command",
            json!(["/opt/reboot", "--why", "a b"]),
        ),
        (
            "[--post-reboot-node-labels=a=b, '--post-reboot-node-labels=c=$x']",
            "/postCompleteLabels",
            json!({ "a": "b", "c": "$$x" }),
        ),
        (
            "[--prometheus-url=http://p]",
            "/checks/0/prometheus",
            json!({
                "url": "http://p", "query": "count(ALERTS != 0) or vector(0)", "max": 0.0,
            }),
        ),
        (
            r"['--prometheus-url=http://p', '--alert-filter-regexp=^(Reboot\.|Watch)', --alert-firing-only]",
            "/checks/0/prometheus/query",
            json!(
                r#"count(ALERTS{alertstate="firing", alertname!~".*(?:^(Reboot\\.|Watch)).*"} != 0) or vector(0)"#
            ),
        ),
        (
            "['--prometheus-url=http://p', '--alert-filter-regexp=Ceph', --alert-filter-match-only]",
            "/checks/0/prometheus/query",
            json!(r#"count(ALERTS{alertname=~".*(?:Ceph).*"} != 0) or vector(0)"#),
        ),
    ] {
        assert_eq!(of_kured(arguments, pointer), expected, "{arguments} {pointer}");
    }
}

#[test]
fn flags_of_kured_without_a_field_become_notes() {
    for (arguments, note) in [
        (
            "[--drain-delay=30s]",
            "--drain-delay was left out: a `prepare` container that waits",
        ),
        ("[--reboot-delay=30s]", "--reboot-delay was left out"),
        (
            "[--pre-reboot-node-labels=a=b]",
            "--pre-reboot-node-labels was left out",
        ),
        (
            "['--notify-url=slack://x']",
            "--notify-url was left out: the ConfigMap `refit`",
        ),
        (
            "[--force-reboot]",
            "--force-reboot was left out: a drain that fails never leads to a reboot.",
        ),
        ("[--reboot-method=signal]", "--reboot-method=signal was left out"),
        (
            "[--prefer-no-schedule-taint=mine]",
            "the taint mine is called pending.refit.rs/<plan>.",
        ),
        (
            "[--no-such-flag=1]",
            "--no-such-flag is not a flag of kured that refit knows",
        ),
        ("[word]", "the argument \"word\" is not a flag of kured"),
    ] {
        let (_, notes) = converted(&kured(arguments));
        assert!(
            notes.iter().any(|found| found.starts_with(note)),
            "{arguments}: {notes:#?}"
        );
    }
    let own = "[--metrics-port=1, --annotate-nodes, --ds-name=x, --lock-annotation=y, --log-format=json, --reboot-delay=0]";
    assert_eq!(converted(&kured(own)), converted(&kured("[]")));
}

#[test]
fn the_arguments_that_the_agent_needs_are_a_note() {
    for (arguments, expected) in [
        ("[--reboot-sentinel=/var/run/reboot-required]", ": it says"),
        (
            "[--reboot-sentinel=/opt/reboot]",
            ", with the arguments --file /opt/reboot: it says",
        ),
        ("[--period=1h]", ", with the arguments --period 1h0m0s: it says"),
        (
            "['--reboot-sentinel-command=/usr/bin/needed -q']",
            ", with the arguments --no-files --command '0:/usr/bin/needed -q': it says",
        ),
        (
            r#"['--reboot-sentinel-command=sh -c "! needs-restarting --reboothint"']"#,
            ", with the arguments --no-files --command '1:needs-restarting --reboothint': it says",
        ),
    ] {
        let (_, notes) = converted(&kured(arguments));
        assert!(notes[0].contains(expected), "{arguments}: {notes:#?}");
    }
    for shell in [
        r#"['--reboot-sentinel-command=sh -c "test -f /a || test -f /b"']"#,
        r#"['--reboot-sentinel-command=a "b c"']"#,
    ] {
        let (_, notes) = converted(&kured(shell));
        assert!(notes[1].contains("needs a shell"), "{shell}: {notes:#?}");
    }
}

#[test]
fn a_sentinel_of_kured_is_named_by_its_path_on_the_host() {
    let (_, notes) = converted(
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kured}, spec: {template: {spec: {
            volumes: [{name: s, hostPath: {path: /var/lib/updates/}}, {name: other, emptyDir: {}}],
            containers: [{name: kured, image: kured, args: [--reboot-sentinel=/sentinel/needed],
                volumeMounts: [{name: s, mountPath: /sentinel}, {name: other, mountPath: /sentinel/needed}]}]}}}}",
    );
    assert!(notes[0].contains("--file /var/lib/updates/needed"), "{notes:#?}");
}

#[test]
fn variables_of_kured_win_over_its_flags_and_add_to_its_lists() {
    let (spec, _) = converted(
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kured}, spec: {template: {spec: {
            nodeSelector: {kubernetes.io/os: linux},
            tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}],
            containers: [{name: kured, image: kured, command: [/usr/bin/kured, --concurrency=1, --post-reboot-node-labels=a=b],
                env: [{name: KURED_CONCURRENCY, value: '2'}, {name: KURED_POST_REBOOT_NODE_LABELS, value: c=d},
                      {name: KURED_NODE_ID, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}}}}",
    );
    assert_eq!(spec["concurrency"], 2);
    assert_eq!(spec["postCompleteLabels"], json!({ "a": "b", "c": "d" }));
    assert_eq!(
        spec["nodeSelector"],
        json!({ "matchLabels": { "kubernetes.io/os": "linux" } })
    );
    assert_eq!(spec["tolerations"][0]["effect"], "NoSchedule");
}

#[test]
fn a_value_that_means_nothing_to_kured_either_is_an_error_that_names_its_flag() {
    for (arguments, why) in [
        (
            "[--concurrency=two]",
            "--concurrency is \"two\": it must be an integer",
        ),
        (
            "[--drain-timeout=10]",
            "--drain-timeout: time: missing unit in duration \"10\"",
        ),
        (
            "[--reboot-days=someday]",
            "--reboot-days has \"someday\": it must be a day of the week such as \"mon\"",
        ),
        (
            "[--post-reboot-node-labels=a]",
            "--post-reboot-node-labels has \"a\": it must be KEY=VALUE",
        ),
        (
            "['--reboot-command=a \"b']",
            "--reboot-command is \"a \\\"b\": a quote is not closed",
        ),
    ] {
        assert_eq!(refused(&kured(arguments)), why);
    }
    for (selector, why) in [
        ("a>1", "the comparison of a cannot be written in an object"),
        ("a in b", "found 'b'"),
    ] {
        let error = refused(&kured(&format!("['--blocking-pod-selector={selector}']")));
        assert!(
            error.starts_with("--blocking-pod-selector is ") && error.contains(why),
            "{error}"
        );
    }
    let broken = refused("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kured}, spec: {}}");
    assert!(broken.contains("missing field `template`"), "{broken}");
}

const AGENT: &str = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: flatcar-linux-update-agent}, spec: {template: {spec: {
    tolerations: [{operator: Exists, effect: NoSchedule}],
    containers: [{name: agent, image: 'ghcr.io/flatcar/flatcar-linux-update-operator:v0.9.0', command: [/bin/update-agent],
        args: ARGS, env: [{name: UPDATE_AGENT_NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}}}}";
const OPERATOR: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: flatcar-linux-update-operator}, spec: {template: {spec: {
    containers: [{name: operator, image: 'ghcr.io/flatcar/flatcar-linux-update-operator:v0.9.0', command: [/bin/update-operator],
        args: ARGS, env: ENV}]}}}}";

#[test]
fn the_agent_of_the_flatcar_operator_says_how_nodes_are_drained() {
    let (spec, _) = converted(&AGENT.replace("ARGS", "[-force-drain, -grace-period=30]"));
    let expected = json!({
        "trigger": "RebootNeeded", "concurrency": 1, "maxUnavailable": 1, "nodeSelector": {}, "serviceAccountName": "system-upgrade",
        "tolerations": [{ "operator": "Exists", "effect": "NoSchedule" }], "jobActiveDeadlineSecs": 330,
        "drain": { "force": true, "timeout": "30s" }, "reboot": {}
    });
    assert_eq!(spec, expected);
    let (spec, _) = converted(&AGENT.replace("ARGS", "[]"));
    assert_eq!(spec["drain"], json!({ "timeout": "10m0s" }));
    assert_eq!(
        refused(&AGENT.replace("ARGS", "[-grace-period=1m]")),
        "-grace-period is \"1m\": it must be a number of seconds"
    );
}

#[test]
fn the_flatcar_operator_says_when_nodes_reboot() {
    let with = |args: &str, env: &str| OPERATOR.replace("ARGS", args).replace("ENV", env);
    let (spec, _) = converted(&with(
        "['-reboot-window-start=Thu 23:00', -reboot-window-length=1h30m]",
        "[]",
    ));
    assert_eq!(
        spec["windows"],
        json!([{ "cron": "0 23 * * thu", "duration": "1h30m" }])
    );
    let variables = "[{name: UPDATE_OPERATOR_REBOOT_WINDOW_START, value: '14:05'},
        {name: UPDATE_OPERATOR_REBOOT_WINDOW_LENGTH, value: 2h}, {name: TZ, value: Europe/Berlin}]";
    let (spec, _) = converted(&with("[--reboot-window-length=1h]", variables));
    assert_eq!(
        spec["windows"],
        json!([{ "cron": "5 14 * * *", "duration": "1h", "timeZone": "Europe/Berlin" }])
    );
    let (spec, notes) = converted(&with(
        "[-before-reboot-annotations=a, -after-reboot-annotations=b, -x=1]",
        "[]",
    ));
    assert_eq!(spec["windows"], Value::Null);
    for start in [
        "-before-reboot-annotations was left out",
        "-after-reboot-annotations was left out",
        "-x is not a flag",
    ] {
        assert!(notes.iter().any(|note| note.starts_with(start)), "{notes:#?}");
    }
    assert_eq!(
        refused(&with(
            "[-reboot-window-start=noon, -reboot-window-length=1h]",
            "[]"
        )),
        "-reboot-window-start is \"noon\": it must be a time such as \"14:00\" or \"Thu 23:00\""
    );
    assert_eq!(
        refused(&with("[-reboot-window-length=1h]", "[]")),
        "-reboot-window-start and -reboot-window-length need each other"
    );
}

/// The Plans of several objects, each with what it comes from, its spec and its notes.
fn joined(objects: &[&str]) -> Vec<(String, Value, Vec<String>)> {
    let of = |yaml: &&str| {
        let object = written(yaml);
        let name = object.value["metadata"]["name"].as_str().unwrap().to_owned();
        (name, convert(&object, "system-upgrade").unwrap().unwrap())
    };
    let plans = join_parts(objects.iter().map(of).collect());
    let plans = plans.into_iter().map(|(from, one)| {
        let plan = serde_json::to_value(&one.plan).unwrap();
        let name = plan["metadata"]["name"].as_str().unwrap();
        assert!(from == name || name == "flatcar-linux-update-operator", "{from}");
        let notes = one.notes.into_iter().map(|note| note.text).collect();
        (from, plan["spec"].clone(), notes)
    });
    plans.collect()
}

#[test]
fn agent_and_operator_of_flatcar_have_one_plan_with_the_settings_of_both() {
    let agent = AGENT.replace("ARGS", "[-force-drain, -grace-period=30]");
    let operator = OPERATOR
        .replace(
            "ARGS",
            "[-reboot-window-start=14:00, -reboot-window-length=1h, -x=1]",
        )
        .replace("ENV", "[]");
    let kured = kured("[]");
    let expected = json!({
        "trigger": "RebootNeeded", "concurrency": 1, "maxUnavailable": 1, "nodeSelector": {}, "serviceAccountName": "system-upgrade",
        "tolerations": [{ "operator": "Exists", "effect": "NoSchedule" }], "jobActiveDeadlineSecs": 330,
        "windows": [{ "cron": "0 14 * * *", "duration": "1h" }],
        "drain": { "force": true, "timeout": "30s" }, "reboot": {}
    });
    let names = "flatcar-linux-update-agent and flatcar-linux-update-operator";
    let reversed = "flatcar-linux-update-operator and flatcar-linux-update-agent";
    for (objects, name) in [
        ([agent.as_str(), &kured, &operator], names),
        ([&operator, &kured, &agent], reversed),
    ] {
        let plans = joined(&objects);
        let (from, spec, notes) = &plans[0];
        assert_eq!((plans.len(), from.as_str(), spec), (2, name, &expected));
        assert_eq!(plans[1].0, "kured");
        assert!(!notes.iter().any(|note| note.contains("keep one")), "{notes:#?}");
        for (start, count) in [
            ("locksmithd", 1),
            ("the agents may stay", 1),
            ("stop the operator", 1),
            ("-x is", 1),
        ] {
            let found = notes.iter().filter(|note| note.starts_with(start)).count();
            assert_eq!(found, count, "{start}: {notes:#?}");
        }
    }
}

#[test]
fn an_agent_of_flatcar_without_its_operator_or_of_which_there_are_two_keeps_its_own_plan() {
    let agent = AGENT.replace("ARGS", "[]");
    let operator = OPERATOR.replace("ARGS", "[]").replace("ENV", "[]");
    let elsewhere = operator.replace("metadata: {", "metadata: {namespace: other, ");
    for objects in [
        vec![agent.as_str()],
        vec![&operator],
        vec![&agent, &elsewhere],
        vec![&agent, &operator, &operator],
    ] {
        let plans = joined(&objects);
        assert_eq!(plans.len(), objects.len());
        for (_, _, notes) in plans {
            assert!(notes.iter().any(|note| note.contains("keep one")), "{notes:#?}");
        }
    }
}

#[test]
fn a_node_op_becomes_a_plan_with_its_limits_and_its_failures() {
    let (spec, _) = converted(
        "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: op}, spec: {
            command: [sh, -c, 'touch $HOST_DIR/a'], image: busybox, hostMountPath: /mnt/host, cordon: true, rebootOnSuccess: true,
            nodeSelector: {matchLabels: {kairos.io/managed: 'true'}}, concurrency: 2, stopOnFailure: true, uncordonOnFailure: true,
            drainOptions: {enabled: true, force: true, gracePeriodSeconds: 30, ignoreDaemonSets: false, timeoutSeconds: 90},
            imagePullSecrets: [{name: registry}], preflight: {command: [/look]}}}",
    );
    let expected = json!({
        "version": "1", "concurrency": 2, "nodeSelector": { "matchLabels": { "kairos.io/managed": "true" } },
        "order": [{ "controlPlane": "First" }], "failure": { "policy": "Stop", "uncordon": true },
        "serviceAccountName": "system-upgrade", "jobActiveDeadlineSecs": 0, "tolerations": [{ "operator": "Exists" }],
        "imagePullSecrets": [{ "name": "registry" }],
        "preflight": { "image": "busybox:latest", "command": ["/bin/sh", "-c",
            "\"$@\" || exit 1; [ ! -s /dev/termination-log ] || exit 77", "preflight", "/look"] },
        "upgrade": {
            "image": "busybox:latest", "command": ["sh", "-c", "touch $HOST_DIR/a"],
            "envs": [{ "name": "HOST_DIR", "value": "/mnt/host" }],
            "volumes": [{ "name": "host", "source": "/", "destination": "/mnt/host" }],
        },
        "drain": { "force": true, "gracePeriod": 30, "ignoreDaemonSets": false, "timeout": "1m30s" },
        "reboot": { "when": "Always" },
    });
    assert_eq!(spec, expected);
}

#[test]
fn a_node_op_takes_all_nodes_at_once_unless_it_says_otherwise_and_goes_on_after_failures() {
    let (spec, notes) = converted(
        "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {generateName: op-}, spec: {command: [a],
            image: 'r.example:5000/x', cordon: true, backoffLimit: 2, drainOptions: {enabled: false}}}",
    );
    assert_eq!(spec["maxConcurrent"], "100%");
    assert_eq!(spec["concurrency"], Value::Null);
    assert_eq!(spec["failure"], json!({ "policy": "Continue" }));
    assert_eq!(spec["upgrade"]["image"], "r.example:5000/x:latest");
    assert_eq!(
        (&spec["cordon"], &spec["drain"], &spec["reboot"]),
        (&json!(true), &Value::Null, &Value::Null)
    );
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("backoffLimit was left out")),
        "{notes:#?}"
    );
    assert_eq!(
        refused("{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: op}, spec: {}}"),
        "spec.command is absent: a NodeOp needs one"
    );
    let wrong = refused(
        "{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: op}, spec: {command: x}}",
    );
    assert!(wrong.contains("invalid type: string \"x\""), "{wrong}");
}

#[test]
fn an_upgrade_of_kairos_runs_its_agent_drains_and_reboots() {
    let upgrade = |more: &str| {
        converted(&format!(
            "{{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOpUpgrade, metadata: {{name: up}}, spec: {{
                image: 'quay.io/kairos/opensuse:v3.4.2' {more}}}}}"
        ))
        .0
    };
    let script = |more: &str| {
        let spec = upgrade(more);
        let script = spec["upgrade"]["args"][0].as_str().unwrap().to_owned();
        script.lines().skip(3).map(str::to_owned).collect::<Vec<_>>()
    };
    let plain = upgrade("");
    assert_eq!(plain["version"], "v3.4.2");
    assert_eq!(plain["drain"], json!({}));
    assert_eq!(plain["reboot"], json!({ "when": "Always" }));
    assert_eq!(plain["preflight"]["image"], "quay.io/kairos/opensuse:v3.4.2");
    let excluded = "--exclude-path '/etc/hostname' --exclude-path '/etc/hosts'";
    let active = format!("kairos-agent upgrade --source dir:/ {excluded}");
    let recovery = format!("kairos-agent upgrade --recovery --source dir:/ {excluded}");
    assert_eq!(script(""), [active.as_str()]);
    assert_eq!(
        script(", upgradeRecovery: true"),
        [recovery.as_str(), active.as_str()]
    );
    assert_eq!(
        script(", upgradeRecovery: true, upgradeActive: false"),
        [recovery.as_str()]
    );
    assert_eq!(script(", upgradeActive: false"), [active.as_str()]);
    assert_eq!(
        script(r#", debug: true, excludePaths: ["/it's"]"#),
        [format!(
            r"kairos-agent --debug upgrade --source dir:/ {excluded} --exclude-path '/it'\''s'"
        )]
    );
    assert_eq!(upgrade(", upgradeActive: false")["reboot"], Value::Null);
    assert_eq!(upgrade(", force: true")["preflight"], Value::Null);
}

#[test]
fn objects_of_other_programs_are_none_of_its_business() {
    for other in [
        "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x}, spec: {template: {spec: {containers: [{name: x, image: 'r/proxy'}]}}}}",
        "{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: x}}",
        "{apiVersion: v1, kind: NodeOp, metadata: {name: x}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {replicas: 3}}",
    ] {
        assert!(convert(&written(other), "n").is_none(), "{other}");
    }
}
