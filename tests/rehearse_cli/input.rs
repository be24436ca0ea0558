//! Input and its errors: exit code 2, with file, line or flag.

use super::{plan, with_plan};
use crate::channels::registry::{Registry, State};
use crate::workdir::{Ran, Workdir};

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

/// A rehearsal that is refused because of its input.
#[track_caller]
fn refused(dir: &Workdir, arguments: &str) -> Ran {
    dir.run(&format!("rehearse {arguments}")).ends(2).prints("")
}

#[test]
fn mistakes_in_files_flags_and_snapshots_have_their_place_and_what_is_allowed() {
    let dir = Workdir::new([
        ("typo.yaml", &plan("a", "  cordn: true\n")),
        ("broken.yaml", "a: [\n"),
        ("empty.yaml", "kind: ConfigMap\n"),
        ("good.yaml", &plan("a", "")),
        ("twice.yaml", &plan("a", "")),
        ("pods.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n"),
        ("broken.json", "{\"a\":\n[}"),
    ]);
    let refusals = [
        "none.yaml",
        "typo.yaml",
        "broken.yaml",
        "empty.yaml",
        "good.yaml twice.yaml",
        "good.yaml --plan b",
        "good.yaml -n other",
        "good.yaml --config none.yaml",
        "good.yaml --nodes 0",
        "good.yaml --upgrade 9m..4m",
        "good.yaml --drain 5",
        "good.yaml --fail 200%",
        "good.yaml --fail nod-1",
        "good.yaml --start tomorrow",
        "good.yaml --nodes 3 --snapshot x",
        "good.yaml --version v1 --online",
        "good.yaml --seed x",
        "", // a Plan or a snapshot is needed
        "good.yaml --snapshot pods.yaml",
        "good.yaml --snapshot broken.json",
        "good.yaml --snapshot none.yaml",
        "- --snapshot -",
    ]
    .map(|arguments| format!("$ refit rehearse {arguments}\n{}", refused(&dir, arguments).err));
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn plans_come_from_standard_input_with_what_they_need() {
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: system-upgrade}\n";
    let text = plan("a", "  secrets: [{name: s, path: /s}]\n");
    let rehearse = |input: &str| {
        Workdir::new([])
            .run_with("rehearse - --nodes 3 -q", &[], input)
            .ends(0)
    };
    rehearse(&format!("{text}{secret}")).err_lacks("Secret");
    let assumed = "assumed: Secret system-upgrade/s exists and is empty";
    rehearse(&text).err_has(assumed);
    let two = format!("{text}---\n{}", plan("b", "  secrets: [{name: s, path: /s}]\n"));
    assert_eq!(rehearse(&two).err.matches(assumed).count(), 1);
}

#[test]
fn plans_of_several_namespaces_need_a_choice() {
    let other = plan("b", "").replace("namespace: system-upgrade", "namespace: other");
    let dir = Workdir::new([("plans.yaml", &format!("{}---\n{other}", plan("a", "")))]);
    let ran = refused(&dir, "plans.yaml").err_has("--namespace");
    ran.err_has("in 2 namespaces (other, system-upgrade)");
    let ran = dir
        .run("rehearse plans.yaml --namespace other --nodes 3 -o json")
        .ends(0);
    assert_eq!(ran.json()["plans"].as_array().unwrap().len(), 1);
    ran.err_has("Plan system-upgrade/a: skipped, it is not in the controller's namespace");
}

#[test]
fn a_version_that_a_tool_fills_in_is_assumed() {
    let text = plan("a", "").replace("version: v1.34.1", "version: ${VERSION}");
    let dir = Workdir::new([("plan.yaml", &text)]);
    let ran = dir
        .run("rehearse plan.yaml --nodes 3 --version v1.40.2 -o json")
        .ends(0);
    assert_eq!(ran.json()["plans"][0]["version"], "v1.40.2");
    ran.err_has("assumed: Plan a: version v1.40.2 replaces ${VERSION}");
}

#[test]
fn a_version_that_changes_nothing_is_named_and_one_of_nothing_that_the_plan_installs_is_refused() {
    let dir = with_plan("a", "");
    let ran = dir
        .run("rehearse plan.yaml --nodes 3 -q --version v1.40.2")
        .ends(0);
    ran.err_has("plan.yaml:1: Plan a has spec.version v1.34.1, which --version does not change\n");
    let text = plan("a", "").replace("  version: v1.34.1\n", "  channel: https://example.com/stable\n");
    dir.write(
        "plan.yaml",
        text.replace("example.com/upgrade", "rancher/k3s-upgrade"),
    );
    for version in ["foo", "1.36", "v1.36.1", "v1.36.1+rke2r1"] {
        refused(&dir, &format!("plan.yaml --nodes 3 --version {version}")).err_has(&format!(
            "--version {version}: Plan a installs k3s, whose versions are such as v1.34.1+k3s1"
        ));
    }
    dir.run("rehearse plan.yaml --nodes 3 -q --version v1.36.1-k3s1")
        .ends(0);
}

#[test]
fn a_snapshot_in_utf_16_or_a_budget_that_cannot_be_read_is_refused() {
    let dir = with_plan("a", "");
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n}}\n";
    let bytes: Vec<u8> = node.encode_utf16().flat_map(u16::to_le_bytes).collect();
    dir.write("nodes.yaml", bytes);
    refused(&dir, "plan.yaml --snapshot nodes.yaml")
        .err_has("nodes.yaml: the file is UTF-16; save it as UTF-8");
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b, labels: {tier: 1}}\n";
    dir.write("budget.yaml", budget);
    let why =
        "budget.yaml:1: PodDisruptionBudget b: metadata.labels.tier must be text, but is 1; write \"1\"";
    refused(&dir, "plan.yaml budget.yaml --nodes 1").err_has(why);
}

#[test]
fn an_assumed_version_is_of_the_distribution_of_its_plan() {
    for (image, version) in [
        ("rancher/k3s-upgrade", "v1.34.1-k3s1"),
        ("rancher/rke2-upgrade", "v1.34.1-rke2r1"),
        ("example.com/upgrade", "v1.34.1"),
    ] {
        let text = plan("a", "").replace("  version: v1.34.1\n", "  channel: https://example.com/stable\n");
        let dir = Workdir::new([("plan.yaml", &text.replace("example.com/upgrade", image))]);
        let ran = dir.run("rehearse plan.yaml --nodes 3 -o json").ends(0);
        assert_eq!(ran.json()["plans"][0]["version"], version, "{image}");
    }
}

/// Otherwise nodes of today would be newer than the version, and no version would be in the range.
#[test]
fn an_assumed_version_follows_the_name_of_the_channel_the_range_and_the_nodes() {
    let of = |name: &str, range: &str, arguments: &str| {
        let channel = format!("  channel: https://update.k3s.io/v1-release/channels/{name}\n");
        let text = plan("a", range).replace("  version: v1.34.1\n", &channel);
        let text = text
            .replace("example.com/upgrade", "rancher/k3s-upgrade")
            .replace(
                "{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}",
                "{key: kubernetes.io/hostname, operator: Exists}",
            );
        let dir = Workdir::new([("plan.yaml", &text), ("cluster.json", &newer_cluster())]);
        let ran = dir.run(&format!("rehearse plan.yaml -q {arguments}")).ends(0);
        let assumed = ran.err.lines().find(|line| line.contains("the channel"));
        let (_, version) = assumed.unwrap().split_once(" gives ").unwrap();
        version.split_once(" (").unwrap().0.to_owned()
    };
    let range = "  versionPolicy: {range: 1.36.x}\n";
    let admitted = ", which spec.versionPolicy.range admits";
    let has = ", which the newest kubelet has";
    for (name, range, arguments, version) in [
        ("stable", "", "", "v1.34.1+k3s1".to_owned()),
        ("v1.36", "", "", "v1.36.1+k3s1, as its name says".to_owned()),
        (
            "v1.36",
            "",
            "--kubelet v1.35.1+k3s1",
            "v1.36.1+k3s1, as its name says".to_owned(),
        ),
        ("stable", range, "", format!("v1.36.1+k3s1{admitted}")),
        (
            "stable",
            "",
            "--kubelet v1.35.4+k3s1",
            format!("v1.35.4+k3s1{has}"),
        ),
        (
            "stable",
            "",
            "--snapshot cluster.json",
            format!("v1.35.3+k3s1{has}"),
        ),
        (
            "stable",
            range,
            "--snapshot cluster.json",
            format!("v1.36.1+k3s1{admitted}"),
        ),
        (
            "v1.35",
            "",
            "--snapshot cluster.json",
            format!("v1.35.3+k3s1{has}"),
        ),
        ("v1.36", "", "--version v1.35.9+k3s1", "v1.35.9+k3s1".to_owned()),
    ] {
        assert_eq!(of(name, range, arguments), version, "{name} {range} {arguments}");
    }
}

/// The cluster, with kubelets of which one is newer than the version that channels usually give.
fn newer_cluster() -> String {
    CLUSTER
        .replacen("v1.33.1", "v1.34.4+k3s1", 1)
        .replacen("v1.33.1", "v1.35.3+k3s1", 1)
}

#[test]
fn two_ranges_of_a_feed_get_a_version_each() {
    let of = |name: &str, range: &str| {
        plan(name, &format!("  versionPolicy: {{range: {range}}}\n"))
            .replace("  version: v1.34.1\n", "  channel: oci://example.com/upgrade\n")
    };
    let text = format!("{}---\n{}", of("a", "1.35.x"), of("b", "1.36.x"));
    let dir = Workdir::new([("plan.yaml", &text)]);
    let ran = dir.run("rehearse plan.yaml --nodes 3 -o json").ends(0);
    let plans = &ran.json()["plans"];
    assert_eq!(
        (&plans[0]["version"], &plans[1]["version"]),
        (&"v1.35.1".into(), &"v1.36.1".into())
    );
    ran.err_has("gives v1.35.1, which spec.versionPolicy.range admits and v1.36.1, which spec.versionPolicy.range admits (");
}

/// `refit validate` says the same.
#[test]
fn jobs_that_the_api_server_would_refuse_are_refused_with_their_place() {
    let privileged = plan("a", "").replace(
        "{image: example.com/upgrade}",
        "{image: example.com/upgrade, securityContext: {privileged: true, allowPrivilegeEscalation: false}}",
    );
    for text in [
        plan(
            "a",
            "  tolerations: [{key: a, operator: Exists, effect: noSchedule}]\n",
        ),
        plan("a", "  tolerations: [{operator: Equal, value: b}]\n"),
        privileged,
    ] {
        let dir = Workdir::new([("plan.yaml", &text)]);
        let found = dir.run("validate plan.yaml").ends(1).out;
        let found = found.lines().find(|line| line.contains("[bad-job]")).unwrap();
        let ran = refused(&dir, "plan.yaml");
        let found = format!("error: {}\n", found.replacen(": error:", ":", 1));
        assert_eq!(ran.err, found);
    }
    let filled_in = "  tolerations: [{key: a, operator: Exists, effect: '${EFFECT}'}]\n";
    with_plan("a", filled_in)
        .run("rehearse plan.yaml --nodes 3 -q")
        .ends(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_version_of_a_registry_is_rehearsed_and_a_missing_image_is_refused() {
    let tags = "latest v1.34.3-k3s1 v1.35.3-k3s1 v1.36.3-k3s1 v1.36.3-k3s1-arm64 v1.37.0-rc1-k3s1";
    let registry = Registry::start(State {
        tags: tags.split(' ').map(str::to_owned).collect(),
        ..State::default()
    })
    .await;
    let image = format!("{}/team/k3s", registry.host());
    let text = plan("a", "  installs: Kubernetes\n")
        .replace(
            "  version: v1.34.1\n",
            &format!("  channel: {}\n", registry.channel()),
        )
        .replace("example.com/upgrade", &format!("'{image}'"));
    let dir = Workdir::new([("plan.yaml", &text)]);
    let missing = "plan.yaml:9:20: the registry has no image";
    let ran = refused(&dir, "plan.yaml --online -q").err_has(missing);
    ran.err_has(&format!(
        "{image}:v1.36.3-k3s1 (HTTP/1.1 404 Not Found) [image-missing]"
    ));
    let settings = "kind: ConfigMap\napiVersion: v1\ndata: {REFIT_CHECK_IMAGES: 'false'}\n";
    dir.write("off.yaml", settings);
    dir.run("rehearse plan.yaml --online -q --config off.yaml")
        .ends(0);
    registry.set(|state| {
        state.images.insert("v1.36.3-k3s1".to_owned());
        state.images.insert("v1.34.3-k3s1".to_owned());
    });
    let ran = dir.run("rehearse plan.yaml --online -q").ends(0);
    let ran = ran.err_has("6 releases; the newest is v1.36.3-k3s1\n");
    ran.err_has("kubelet v1.35.0+k3s1").out_lacks("skips");
    // The nodes are older than the version that the range admits.
    dir.write("plan.yaml", text.clone() + "  versionPolicy: {range: 1.34.x}\n");
    let ran = dir.run("rehearse plan.yaml --online -q").ends(0);
    ran.err_has("kubelet v1.33.5+k3s1");
    registry.set(|state| {
        state.images.insert("v1.35.3-k3s1".to_owned());
    });
    let of_all = text.replace(
        "{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}",
        "{key: kubernetes.io/hostname, operator: Exists}",
    );
    dir.write("plan.yaml", of_all + "  versionPolicy: {maxMinorSkip: 1}\n");
    let ran = dir.run("rehearse plan.yaml --online -q --nodes 3 --kubelet v1.34.3+k3s1");
    let ran = ran.ends(0).out_has("done (v1.35.3-k3s1)");
    ran.out_has("done (v1.36.3-k3s1)");
}

#[test]
fn a_wave_that_soaks_without_a_node_is_remarked() {
    let waves = "  waves: [{name: canary, nodes: 1, soak: 10m}, {name: tenth, nodes: 10%, soak: 30m}, {name: rest}]\n";
    let dir = with_plan("a", waves);
    let ran = dir.run("rehearse plan.yaml --nodes 7 -q").ends(0);
    ran.out_has("\nPlan a: wave tenth soaks 30m without a node to upgrade\n")
        .out_lacks("wave canary soaks 10m without");
}

#[test]
fn a_snapshot_continues_where_the_cluster_was() {
    let dir = with_plan("a", "  drain: {}\n");
    dir.write("ready.json", CLUSTER.replace("WEB2", "True"));
    let ready = r#""Ready", "status": "True"}]}}"#;
    let none_is_ready = CLUSTER
        .replace("WEB2", "False")
        .replace(ready, &ready.replace("True", "False"));
    dir.write("unready.json", none_is_ready);
    let ran = dir
        .run("rehearse plan.yaml --snapshot ready.json -o json")
        .ends(0);
    let report = ran.json();
    // The newest time in the snapshot.
    assert_eq!(report["start"], "2026-02-02T10:00:00Z");
    assert_eq!(
        (&report["nodes"], &report["plans"][0]["done"]),
        (&2.into(), &2.into())
    );
    ran.err_has("assumed: 2 nodes as in the snapshot of 2026-02-02T10:00:00Z");
    // No pod is Ready or will be, so the budget allows no eviction.
    let ran = dir
        .run("rehearse plan.yaml --snapshot unready.json -o json")
        .ends(1);
    let ran = ran.err_has("assumed: 2 pods are not ready and stay so");
    let line = ran.err.lines().last().unwrap();
    let is_named = line.starts_with("would fail: Plan a failed on ") && line.contains("shop/web");
    assert!(is_named, "{line}");
}

#[test]
fn a_snapshot_with_plans_needs_no_files() {
    let on_cluster = r#",{"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "live",
 "namespace": "system-upgrade", "uid": "33333333-3333-4333-8333-333333333333", "generation": 4},
 "spec": {"concurrency": 1, "channel": "https://example.com/c", "nodeSelector": {}, "upgrade": {"image": "i"}},
 "status": {"latestVersion": "v1.33.9"}}
]}"#;
    let dir = with_plan("a", "");
    dir.write(
        "cluster.json",
        CLUSTER.replace("WEB2", "True").replace("\n]}", on_cluster),
    );
    let rehearse = |arguments: &str| {
        let line = format!("rehearse {arguments} --snapshot cluster.json -o json");
        dir.run(&line).ends(0).json()
    };
    let report = rehearse("");
    assert_eq!(report["plans"][0]["name"], "live");
    // The version that the channel gave last.
    assert_eq!(report["plans"][0]["version"], "v1.33.9");
    // The order follows from the cluster's UIDs; another seed changes only times.
    let order = |seed: u8| -> Vec<String> {
        let report = rehearse(&format!("--seed {seed}"));
        let turns = report["turns"].as_array().unwrap().iter();
        turns
            .map(|turn| turn["node"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = order(1);
    assert_eq!(first.len(), 2);
    for seed in 2..=5 {
        assert_eq!(order(seed), first);
    }
    let chosen = rehearse("--plan live");
    assert_eq!(chosen["plans"][0]["rehearsed"], true);
    dir.run("rehearse --plan lave --snapshot cluster.json")
        .ends(2)
        .err_has("there is no Plan \"lave\" in the snapshot; the Plans are system-upgrade/live");
    // The Plans of the cluster run beside those of the files.
    let report = rehearse("plan.yaml");
    let plans = report["plans"].as_array().unwrap().iter();
    let plans: Vec<_> = plans
        .map(|plan| (plan["name"].as_str().unwrap(), &plan["rehearsed"]))
        .collect();
    assert_eq!(plans, [("a", &true.into()), ("live", &false.into())]);
}

#[test]
fn nodes_that_are_no_snapshot_are_not_ignored_in_silence() {
    let dir = with_plan("a", "");
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
    dir.write("nodes.yaml", format!("{node}---\n{node}"));
    let ran = dir.run("rehearse plan.yaml nodes.yaml -q").ends(0);
    ran.err_has("nodes.yaml: its Nodes are not used; give them with --snapshot\n");
}

#[test]
fn a_null_field_is_dropped_and_placeholders_are_replaced_or_left_out() {
    for (from, to, note) in [
        ("", "  cordon: null\n", ""),
        ("", "  drain:\n", ""),
        (
            "",
            "  jobActiveDeadlineSecs: ${SECONDS}\n",
            "left out, spec.jobActiveDeadlineSecs is the placeholder",
        ),
        (
            "",
            "  suspend: #@ data.values.suspend\n",
            "left out, spec.suspend is the placeholder",
        ),
        (
            "concurrency: 2",
            "concurrency: ${N}",
            "assumed: Plan a: concurrency 1 replaces the placeholder in concurrency",
        ),
        (
            "concurrency: 2",
            "concurrency: #@ n",
            "assumed: Plan a: concurrency 1 replaces the placeholder in concurrency",
        ),
        (
            "concurrency: 2",
            "maxConcurrent: '{{ .Values.n }}'",
            "assumed: Plan a: concurrency 1 replaces the placeholder in maxConcurrent",
        ),
        (
            "version: v1.34.1",
            "version: #@ data.values.version",
            "version v1.34.1 replaces #@ data.values.version",
        ),
        (
            "version: v1.34.1",
            "version: <version>",
            "version v1.34.1 replaces <version>",
        ),
    ] {
        let text = match from {
            "" => plan("a", to),
            from => plan("a", "").replace(from, to),
        };
        assert!(text.contains(to), "{text}");
        let dir = Workdir::new([("plan.yaml", &text)]);
        dir.run("rehearse plan.yaml --nodes 2").ends(0).err_has(note);
    }
}

#[test]
fn plan_takes_a_name_with_its_namespace() {
    let dir = with_plan("a", "");
    for (name, code) in [("system-upgrade/a", 0), ("a", 0), ("other/a", 2)] {
        dir.run(&format!("rehearse plan.yaml --nodes 2 --plan {name}"))
            .ends(code);
    }
}
