//! What is read, and what is wrong with it: exit code 2, with file, line or flag.

use super::{plan, rehearse, with_input, write};

/// A cluster of two nodes with two pods, as kubectl prints it.
const CLUSTER: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "uid": "11111111-1111-4111-8111-111111111111",
 "labels": {"kubernetes.io/hostname": "one"}}, "spec": {},
 "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-02-02T10:00:00Z"}],
 "nodeInfo": {"bootID": "1", "kubeletVersion": "v1.33.1"}}},
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "two", "uid": "22222222-2222-4222-8222-222222222222",
 "labels": {"kubernetes.io/hostname": "two"}}, "spec": {},
 "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-02-02T10:00:00Z"}],
 "nodeInfo": {"bootID": "2", "kubeletVersion": "v1.33.1"}}},
{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "shop", "uid": "web",
 "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true}]},
 "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
 "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}},
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop", "uid": "web-1",
 "labels": {"app": "web"}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
 "uid": "web", "controller": true}]},
 "spec": {"nodeName": "one", "restartPolicy": "Always", "containers": [{"name": "web", "image": "web"}]},
 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-2", "namespace": "shop", "uid": "web-2",
 "labels": {"app": "web"}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
 "uid": "web", "controller": true}]},
 "spec": {"nodeName": "two", "restartPolicy": "Always", "containers": [{"name": "web", "image": "web"}]},
 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "WEB2"}]}},
{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "shop", "uid": "pdb"},
 "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
]}"#;

/// What is told on standard error of a rehearsal that ends with 2.
fn refused(folder: &tempfile::TempDir, arguments: &[&str]) -> String {
    let ended = rehearse(folder.path(), arguments);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{}", ended.stderr);
    ended.stderr
}

#[test]
fn mistakes_in_files_have_their_place() {
    let folder = write(&[
        ("typo.yaml", &plan("a", "  cordn: true\n")),
        ("broken.yaml", "a: [\n"),
        ("empty.yaml", "kind: ConfigMap\n"),
        ("good.yaml", &plan("a", "")),
        ("twice.yaml", &plan("a", "")),
    ]);
    for (arguments, told) in [
        (&["none.yaml"][..], "error: none.yaml: no such file or folder"),
        (
            &["typo.yaml"],
            "error: typo.yaml:10:3: a Plan has no field spec.cordn",
        ),
        (&["broken.yaml"], "error: broken.yaml:"),
        (&["empty.yaml"], "error: there is no Plan in these files"),
        (
            &["good.yaml", "twice.yaml"],
            "error: twice.yaml:1: Plan system-upgrade/a is already in good.yaml:1",
        ),
        (
            &["good.yaml", "--plan", "b"],
            "error: --plan b: there is no such Plan in these files, only a",
        ),
        (
            &["good.yaml", "-n", "other"],
            "error: --namespace other: there is no Plan in it, only in system-upgrade",
        ),
        (
            &["good.yaml", "--config", "none.yaml"],
            "error: none.yaml: No such file or directory",
        ),
    ] {
        let error = refused(&folder, arguments);
        assert!(error.starts_with(told), "{arguments:?}: {error}");
    }
}

#[test]
fn mistakes_in_flags_say_what_is_allowed() {
    let folder = write(&[("plan.yaml", &plan("a", ""))]);
    for (arguments, told) in [
        (&["--nodes", "0"][..], "must be a number from 1 to 20000"),
        (&["--upgrade", "9m..4m"], "the range ends before it begins"),
        (
            &["--drain", "5"],
            "\"5\" is not a duration such as 90s, 5m or 1h30m",
        ),
        (&["--fail", "200%"], "\"200%\" is not a share from 1% to 100%"),
        (
            &["--fail", "nod-1"],
            "--fail nod-1: there is no such node; did you mean node-1?",
        ),
        (
            &["--start", "tomorrow"],
            "write a time such as 2026-03-06T22:00:00Z",
        ),
        (&["--nodes", "3", "--snapshot", "x"], "cannot be used with"),
        (&["--version", "v1", "--online"], "cannot be used with"),
        (&["--seed", "x"], "invalid digit"),
    ] {
        let error = refused(&folder, &[&["plan.yaml"], arguments].concat());
        assert!(error.contains(told), "{arguments:?}: {error}");
    }
    assert!(
        refused(&folder, &[]).contains("<PLAN>"),
        "a Plan or a snapshot is needed"
    );
}

#[test]
fn mistakes_in_snapshots_say_what_was_found() {
    let folder = write(&[
        ("plan.yaml", &plan("a", "")),
        ("pods.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n"),
        ("broken.json", "{\"a\":\n[}"),
    ]);
    let of = |name: &str| refused(&folder, &["plan.yaml", "--snapshot", name]);
    assert!(
        of("pods.yaml")
            .starts_with("error: pods.yaml: there is no Node in it, only 1 Pod; a snapshot is what")
    );
    assert!(of("broken.json").starts_with("error: broken.json:2: this is neither YAML nor JSON"));
    assert!(of("none.yaml").starts_with("error: none.yaml: No such file"));
    let error = refused(&folder, &["-", "--snapshot", "-"]);
    assert!(error.contains("cannot both come from standard input"), "{error}");
}

#[test]
fn plans_come_from_standard_input_with_what_they_need() {
    let folder = write(&[]);
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: system-upgrade}\n";
    let text = plan("a", "  secrets: [{name: s, path: /s}]\n");
    let ended = with_input(
        folder.path(),
        &["-", "--nodes", "3", "-q"],
        &format!("{text}{secret}"),
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("Secret"), "{}", ended.stderr);
    let ended = with_input(folder.path(), &["-", "--nodes", "3", "-q"], &text);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("assumed: Secret system-upgrade/s is there, and empty"),
        "{}",
        ended.stderr
    );
}

#[test]
fn plans_of_several_namespaces_need_a_choice() {
    let other = plan("b", "").replace("namespace: system-upgrade", "namespace: other");
    let folder = write(&[("plans.yaml", &format!("{}---\n{other}", plan("a", "")))]);
    let error = refused(&folder, &["plans.yaml"]);
    assert!(
        error.contains("in 2 namespaces (other, system-upgrade)") && error.contains("--namespace"),
        "{error}"
    );
    let ended = rehearse(
        folder.path(),
        &["plans.yaml", "--namespace", "other", "--nodes", "3", "-o", "json"],
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.json()["plans"].as_array().unwrap().len(), 1);
    assert!(
        ended
            .stderr
            .contains("Plan system-upgrade/a is not in the controller's namespace"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_version_that_somebody_else_fills_in_is_assumed() {
    let text = plan("a", "").replace("version: v1.34.1", "version: ${VERSION}");
    let folder = write(&[("plan.yaml", &text)]);
    let ended = rehearse(
        folder.path(),
        &["plan.yaml", "--nodes", "3", "--version", "v1.40.2", "-o", "json"],
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.json()["plans"][0]["version"], "v1.40.2");
    assert!(
        ended
            .stderr
            .contains("assumed: Plan a: version v1.40.2 for ${VERSION}"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_snapshot_goes_on_where_the_cluster_was() {
    let text = plan("a", "  drain: {}\n");
    let folder = write(&[
        ("plan.yaml", &text),
        ("ready.json", &CLUSTER.replace("WEB2", "True")),
        (
            "unready.json",
            &CLUSTER.replace("WEB2", "False").replace(
                r#""Ready", "status": "True"}]}}"#,
                r#""Ready", "status": "False"}]}}"#,
            ),
        ),
    ]);
    let run = |name: &str| rehearse(folder.path(), &["plan.yaml", "--snapshot", name, "-o", "json"]);
    let ended = run("ready.json");
    let report = ended.json();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(report["start"], "2026-02-02T10:00:00Z", "the newest time in it");
    assert_eq!(
        (&report["nodes"], &report["plans"][0]["done"]),
        (&2.into(), &2.into())
    );
    assert!(
        ended
            .stderr
            .contains("assumed: 2 nodes as they were at 2026-02-02T10:00:00Z"),
        "{}",
        ended.stderr
    );
    // Where no pod is ready, and none will be, the budget lets none of them go.
    let ended = run("unready.json");
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    assert!(
        ended
            .stderr
            .contains("assumed: 2 pods are not ready, which does not change"),
        "{}",
        ended.stderr
    );
    let line = ended.stderr.lines().last().unwrap();
    assert!(
        line.starts_with("would fail: Plan a failed on ") && line.contains("shop/web"),
        "{line}"
    );
}

#[test]
fn a_snapshot_with_plans_needs_no_files() {
    let on_cluster = r#",{"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "live",
 "namespace": "system-upgrade", "uid": "33333333-3333-4333-8333-333333333333", "generation": 4},
 "spec": {"concurrency": 1, "channel": "https://example.com/c", "nodeSelector": {}, "upgrade": {"image": "i"}},
 "status": {"latestVersion": "v1.33.9"}}
]}"#;
    let text = CLUSTER.replace("WEB2", "True").replace("\n]}", on_cluster);
    let folder = write(&[("cluster.json", &text), ("plan.yaml", &plan("a", ""))]);
    let ended = rehearse(folder.path(), &["--snapshot", "cluster.json", "-o", "json"]);
    let report = ended.json();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(report["plans"][0]["name"], "live");
    assert_eq!(
        report["plans"][0]["version"], "v1.33.9",
        "what the channel said last"
    );
    assert_eq!(report["turns"].as_array().unwrap().len(), 2);
    // The order follows from the UIDs, which are those of the cluster: another seed changes times and nothing else.
    let order = |seed: &str| -> Vec<String> {
        let report = rehearse(
            folder.path(),
            &["--snapshot", "cluster.json", "-o", "json", "--seed", seed],
        )
        .json();
        let turns = report["turns"].as_array().unwrap();
        turns
            .iter()
            .map(|turn| turn["node"].as_str().unwrap().to_owned())
            .collect()
    };
    for seed in ["2", "3", "4", "5"] {
        assert_eq!(order(seed), order("1"));
    }
    let ended = rehearse(
        folder.path(),
        &["plan.yaml", "--snapshot", "cluster.json", "-o", "json"],
    );
    let report = ended.json();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let plans: Vec<_> = report["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| {
            (
                plan["name"].as_str().unwrap(),
                plan["rehearsed"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        plans,
        [("a", true), ("live", false)],
        "what is on the cluster goes on beside it"
    );
}
