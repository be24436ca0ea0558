use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::permissions::missing;
use super::*;

const SUC_ROLES: &str = include_str!("../../../tests/fixtures/suc-rbac.yaml");

fn now() -> Timestamp {
    "2026-03-01T00:00:00Z".parse().unwrap()
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn deployment(changes: &Value) -> Deployment {
    let mut object = json!({
        "metadata": { "name": "system-upgrade-controller", "namespace": "system-upgrade" },
        "spec": {
            "strategy": { "type": "Recreate" },
            "selector": {},
            "template": { "spec": {
                "serviceAccountName": "system-upgrade",
                "containers": [{
                    "name": "system-upgrade-controller",
                    "image": "rancher/system-upgrade-controller:v0.20.1",
                    "env": [{ "name": "SYSTEM_UPGRADE_CONTROLLER_NAME", "value": "system-upgrade-controller" }],
                    "envFrom": [{ "configMapRef": { "name": "default-controller-env" } }],
                }],
            } },
        },
    });
    merge(&mut object, changes);
    read(object)
}

fn merge(object: &mut Value, changes: &Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(object.entry(name).or_insert(Value::Null), change);
            }
        }
        (object, change) => *object = change.clone(),
    }
}

fn plan(name: &str, changes: &Value) -> Plan {
    let mut object = json!({
        "metadata": { "name": name, "namespace": "system-upgrade" },
        "spec": {
            "concurrency": 1, "version": "v1.34.1", "nodeSelector": {}, "serviceAccountName": "system-upgrade",
            "upgrade": { "image": "rancher/k3s-upgrade" },
        },
        "status": { "latestVersion": "v1.34.1", "latestHash": "new" },
    });
    merge(&mut object, changes);
    read(object)
}

fn node(name: &str, changes: &Value) -> Node {
    let mut object = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    merge(&mut object, changes);
    read(object)
}

fn job(node: &str, changes: &Value) -> Job {
    let mut object = json!({
        "metadata": { "name": format!("apply-p-on-{node}"), "namespace": "system-upgrade", "labels": {
            "upgrade.cattle.io/controller": "system-upgrade-controller",
            "upgrade.cattle.io/plan": "p", "upgrade.cattle.io/node": node,
            "upgrade.cattle.io/version": "v1.34.1", "plan.upgrade.cattle.io/p": "new",
        } },
        "spec": { "template": {} },
    });
    merge(&mut object, changes);
    read(object)
}

/// A cluster of system-upgrade-controller's own manifests, with two nodes and nothing to do.
fn cluster() -> Cluster {
    let mut cluster = Cluster {
        namespace: "system-upgrade".to_owned(),
        controller: "system-upgrade-controller".to_owned(),
        deployments: vec![deployment(&json!({}))],
        nodes: vec![node("a", &json!({})), node("b", &json!({}))],
        ..Cluster::default()
    };
    let objects: Vec<Value> = serde_saphyr::from_multiple(SUC_ROLES).unwrap();
    for object in objects {
        match object["kind"].as_str().unwrap() {
            "ClusterRole" => cluster.cluster_roles.push(read(object)),
            "ClusterRoleBinding" => cluster.cluster_role_bindings.push(read(object)),
            "Role" => cluster.roles.push(read(object)),
            "RoleBinding" => cluster.role_bindings.push(read(object)),
            "ConfigMap" => cluster.config_maps.push(read(object)),
            "ServiceAccount" => {}
            other => panic!("{other}"),
        }
    }
    cluster
}

/// The findings above notes, as `severity rule object`.
fn urgent(cluster: &Cluster) -> Vec<String> {
    let found = check(cluster, now());
    let urgent = found.iter().filter(|one| one.severity < Severity::Note);
    urgent
        .map(|one| format!("{} {} {}", one.severity.word(), one.rule, one.object))
        .collect()
}

#[track_caller]
fn finds(cluster: &Cluster, rule: &str) -> Finding {
    let found = check(cluster, now());
    let one = found.iter().find(|one| one.rule == rule);
    one.unwrap_or_else(|| panic!("no {rule} in {found:#?}")).clone()
}

#[track_caller]
fn finds_not(cluster: &Cluster, rule: &str) {
    let found = check(cluster, now());
    assert!(found.iter().all(|one| one.rule != rule), "{found:#?}");
}

fn with_plan(changes: &Value) -> Cluster {
    Cluster {
        plans: vec![plan("p", changes)],
        ..cluster()
    }
}

#[test]
fn a_cluster_of_its_own_manifests_without_work_has_notes_only() {
    assert_eq!(urgent(&with_plan(&json!({}))), Vec::<String>::new());
}

#[test]
fn the_shipped_roles_lack_nothing_and_those_of_system_upgrade_controller_only_what_plans_do_not_use() {
    let lacks = |cluster: &Cluster| {
        let found = missing(cluster);
        let found: Vec<_> = found.iter().map(|one| one.finding("system-upgrade")).collect();
        found
    };
    let mut shipped = with_plan(&json!({ "spec": { "drain": {}, "prepare": { "image": "i" } } }));
    shipped.cluster_roles.clear();
    shipped.cluster_role_bindings.clear();
    shipped.roles.clear();
    shipped.role_bindings.clear();
    let objects: Vec<Value> = serde_saphyr::from_multiple(include_str!("../../../deploy/rbac.yaml")).unwrap();
    for object in objects {
        match object["kind"].as_str().unwrap() {
            "ClusterRole" => shipped.cluster_roles.push(read(object)),
            "ClusterRoleBinding" => shipped.cluster_role_bindings.push(read(object)),
            "Role" => shipped.roles.push(read(object)),
            "RoleBinding" => shipped.role_bindings.push(read(object)),
            _ => {}
        }
    }
    let account =
        json!({ "spec": { "template": { "spec": { "serviceAccountName": "system-upgrade-controller" } } } });
    shipped.deployments = vec![deployment(&account)];
    assert_eq!(lacks(&shipped), []);
    let of_suc = lacks(&with_plan(&json!({ "spec": { "drain": {} } })));
    assert!(!of_suc.is_empty());
    for one in &of_suc {
        assert_eq!(one.severity, Severity::Note, "{one:#?}");
    }
    let reboots = lacks(&with_plan(&json!({ "spec": { "reboot": { "when": "Always" } } })));
    let create = reboots
        .iter()
        .find(|one| one.change.contains("create pods in namespace"))
        .unwrap();
    assert_eq!(create.severity, Severity::Action);
}

#[test]
fn a_role_that_lacks_a_verb_is_named_with_verb_resource_and_role() {
    let mut cluster = with_plan(&json!({}));
    for role in &mut cluster.roles {
        for rule in role.rules.iter_mut().flatten() {
            rule.verbs.retain(|verb| verb != "create");
        }
    }
    let found: Vec<Finding> = missing(&cluster)
        .iter()
        .map(|one| one.finding("system-upgrade"))
        .collect();
    let jobs = found
        .iter()
        .find(|one| one.change.contains("create jobs.batch"))
        .unwrap();
    assert_eq!(jobs.severity, Severity::Action);
    assert_eq!(jobs.object, "ServiceAccount system-upgrade/system-upgrade");
    assert!(
        jobs.remedy
            .contains("Role system-upgrade/system-upgrade-controller"),
        "{jobs:?}"
    );
}

#[test]
fn a_role_for_everything_and_a_group_of_accounts_count() {
    let mut cluster = with_plan(&json!({ "spec": { "drain": {} } }));
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    cluster.cluster_roles = vec![read(json!({ "metadata": { "name": "all" }, "rules": all }))];
    cluster.cluster_role_bindings = vec![read(json!({
        "metadata": { "name": "all" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all" },
        "subjects": [{ "kind": "Group", "name": "system:serviceaccounts:system-upgrade" }],
    }))];
    assert_eq!(missing(&cluster), []);
    cluster.namespace = "cattle-system".to_owned();
    assert!(!missing(&cluster).is_empty(), "the group is of another namespace");
}

#[test]
fn the_lease_and_its_permission_have_the_name_of_the_controller() {
    let mut cluster = with_plan(&json!({}));
    cluster.controller = "other".to_owned();
    let found: Vec<Finding> = missing(&cluster)
        .iter()
        .map(|one| one.finding("system-upgrade"))
        .collect();
    assert!(
        found
            .iter()
            .any(|one| one.change.contains("update leases.coordination.k8s.io other")),
        "{found:#?}"
    );
}

#[test]
fn a_window_is_reported_where_it_means_something_else() {
    let window = |days: &[&str], start: &str, end: &str, zone: &str| {
        with_plan(&json!({ "spec": { "window":
            { "days": days, "startTime": start, "endTime": end, "timeZone": zone } } }))
    };
    let overnight = window(&["sat"], "22:00", "04:00", "UTC");
    let found = finds(&overnight, "window-overnight");
    assert!(
        found
            .change
            .contains("from 00:00 to 04:00:00 and from 22:00:00 to 24:00"),
        "{found:?}"
    );
    finds(&overnight, "window-checked-per-node");
    finds_not(&overnight, "window-and-clock-change");
    let week = ["mo", "tu", "we", "th", "fr", "sa", "su"];
    finds_not(&window(&week, "22:00", "04:00", "UTC"), "window-overnight");
    finds_not(&window(&["sat"], "04:00", "22:00", "UTC"), "window-overnight");
    let skipped = finds(
        &window(&["sun"], "02:30", "06:00", "Europe/Berlin"),
        "window-and-clock-change",
    );
    assert!(skipped.change.contains("2026-03-29"), "{skipped:?}");
    finds_not(
        &window(&["sun"], "04:30", "06:00", "Europe/Berlin"),
        "window-and-clock-change",
    );
    finds_not(&with_plan(&json!({})), "window-checked-per-node");
}

#[test]
fn a_plan_that_only_refit_finds_invalid_needs_an_action_and_any_other_a_note() {
    let invalid = json!({ "spec": { "postCompleteDelay": "-30s" } });
    assert_eq!(finds(&with_plan(&invalid), "invalid").severity, Severity::Action);
    let known = json!({
        "spec": { "postCompleteDelay": "-30s" },
        "status": { "conditions": [{ "type": "Validated", "status": "False", "reason": "Error" }] },
    });
    assert_eq!(finds(&with_plan(&known), "invalid").severity, Severity::Note);
    for spec in [
        json!({ "drain": { "timeout": "soon" } }),
        json!({ "version": "no version" }),
    ] {
        finds(&with_plan(&json!({ "spec": spec })), "invalid");
    }
    let digest = "spec.upgrade.args,".repeat(400);
    finds(
        &with_plan(&json!({ "metadata": { "annotations": { "upgrade.cattle.io/digest": digest } } })),
        "invalid",
    );
    let long = Cluster {
        plans: vec![plan(&"p".repeat(64), &json!({}))],
        ..cluster()
    };
    finds(&long, "invalid");
}

#[test]
fn differences_of_a_spec_are_reported() {
    for concurrency in [json!(0), Value::Null] {
        finds(
            &with_plan(&json!({ "spec": { "concurrency": concurrency } })),
            "concurrency-zero",
        );
    }
    let timeout = |nanoseconds: i64| with_plan(&json!({ "spec": { "drain": { "timeout": nanoseconds } } }));
    finds(&timeout(60_000_000_000), "drain-timeout");
    finds_not(&timeout(2_000_000_000), "drain-timeout");
    let volume = json!({ "name": "v", "source": "/a", "destination": "/b" });
    let prepare = json!({ "image": "i", "volumes": [volume] });
    finds(
        &with_plan(&json!({ "spec": { "prepare": prepare } })),
        "prepare-volumes",
    );
    let both = json!({ "spec": { "prepare": prepare, "upgrade": { "volumes": [volume] } } });
    finds_not(&with_plan(&both), "prepare-volumes");
    let channel = |url: &str| with_plan(&json!({ "spec": { "version": null, "channel": url } }));
    finds(&channel("http://169.254.169.254/latest"), "channel-host");
    finds(
        &channel("http://user:secret@example.com/stable"),
        "channel-credentials",
    );
    let fine = channel("https://user:secret@example.com/stable");
    finds_not(&fine, "channel-credentials");
    finds_not(&fine, "channel-host");
    let mut forbids = with_plan(&json!({ "spec": { "upgrade": { "securityContext": {} } } }));
    finds_not(&forbids, "security-context");
    let data = json!({ "metadata": { "name": "default-controller-env" },
        "data": { "ALLOW_USER_DEFINED_SECURITY_CONTEXT": "false" } });
    forbids.config_maps = vec![read(data)];
    finds(&forbids, "security-context");
}

#[test]
fn nodes_that_are_cordoned_not_ready_or_renamed_are_reported_unless_the_plan_is_done_with_them() {
    let with_node = |spec: &Value, changes: &Value| Cluster {
        nodes: vec![node("a", changes)],
        ..with_plan(&json!({ "spec": spec }))
    };
    let cordoned = json!({ "spec": { "unschedulable": true } });
    let drains = json!({ "drain": {} });
    assert!(
        finds(&with_node(&drains, &cordoned), "cordoned-nodes")
            .change
            .starts_with("a: ")
    );
    finds_not(&with_node(&json!({}), &cordoned), "cordoned-nodes");
    let mut under_way = with_node(&drains, &cordoned);
    under_way.jobs = vec![job("a", &json!({}))];
    finds_not(&under_way, "cordoned-nodes");
    let held = json!({ "spec": { "unschedulable": true }, "metadata": { "annotations": { "refit.rs/cordon": "{}" } } });
    finds_not(&with_node(&drains, &held), "cordoned-nodes");

    let down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    finds(&with_node(&json!({}), &down), "nodes-not-ready");
    let repairs = json!({ "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists" }] });
    finds_not(&with_node(&repairs, &down), "nodes-not-ready");

    let renamed = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "ip-10-0-0-1" } } });
    finds(&with_node(&json!({}), &renamed), "host-names");

    for label in ["new", "disabled"] {
        let mut over = json!({ "metadata": { "labels": { "plan.upgrade.cattle.io/p": label } } });
        merge(&mut over, &cordoned);
        merge(&mut over, &down);
        assert_eq!(urgent(&with_node(&drains, &over)), Vec::<String>::new());
    }
}

#[test]
fn plans_that_share_nodes_and_plans_that_endanger_etcd_are_reported() {
    let cluster = Cluster {
        plans: vec![
            plan("p", &json!({ "spec": { "drain": {} } })),
            plan("q", &json!({ "spec": { "cordon": true } })),
        ],
        ..cluster()
    };
    assert!(finds(&cluster, "shared-nodes").change.contains("it and q "));
    let server = |name: &str| {
        node(
            name,
            &json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "true" } } }),
        )
    };
    let servers = |concurrency: i64| Cluster {
        nodes: vec![server("a"), server("b"), server("c")],
        ..with_plan(&json!({ "spec": { "concurrency": concurrency } }))
    };
    finds(&servers(2), "quorum");
    finds_not(&servers(1), "quorum");
}

#[test]
fn a_plan_whose_payload_may_use_its_token_is_reported_unless_it_says_what_it_needs() {
    let account = |account: &str, more: &Value| {
        let mut changes = json!({ "spec": {
            "serviceAccountName": account, "upgrade": { "image": "registry.example.com/rancher/system-agent" },
        } });
        merge(&mut changes, &json!({ "spec": more }));
        let mut cluster = with_plan(&changes);
        cluster.cluster_role_bindings.push(read(json!({
            "metadata": { "name": "agent" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agent" },
            "subjects": [{ "kind": "ServiceAccount", "name": "agent", "namespace": "system-upgrade" }],
        })));
        cluster
    };
    let own = finds(&account("system-upgrade", &json!({})), "token");
    assert_eq!(own.severity, Severity::Change);
    assert!(
        own.change.contains("rancher/system-agent") && own.remedy.contains("apiAccess: All"),
        "{own:?}"
    );
    let other = finds(&account("agent", &json!({})), "token");
    assert_eq!(other.severity, Severity::Note);
    assert!(other.change.contains("ServiceAccount agent"), "{other:?}");
    finds_not(&account("without-a-role", &json!({})), "token");
    finds_not(&account("agent", &json!({ "apiAccess": "All" })), "token");
    finds_not(
        &account(
            "agent",
            &json!({ "upgrade": { "image": "mirror.example.com/rke2-upgrade" } }),
        ),
        "token",
    );
}

#[test]
fn each_state_of_a_job_is_reported() {
    let state = |changes: &Value| Cluster {
        jobs: vec![job("a", changes)],
        ..with_plan(&json!({}))
    };
    let finished =
        |condition: &str| json!({ "status": { "conditions": [{ "type": condition, "status": "True" }] } });
    assert_eq!(finds(&state(&json!({})), "job-running").severity, Severity::Note);
    finds(&state(&json!({ "spec": { "parallelism": 0 } })), "job-paused");
    finds(&state(&json!({ "spec": { "suspend": true } })), "job-paused");
    let failed = finds(&state(&finished("Failed")), "job-failed");
    assert!(
        failed.remedy.contains("kubectl annotate node a refit.rs/retry=p"),
        "{failed:?}"
    );
    finds(&state(&finished("Complete")), "job-succeeded");
    let mut labelled = state(&finished("Complete"));
    labelled.nodes = vec![node(
        "a",
        &json!({ "metadata": { "labels": { "plan.upgrade.cattle.io/p": "new" } } }),
    )];
    finds_not(&labelled, "job-succeeded");
    let outdated = json!({ "metadata": { "labels": { "upgrade.cattle.io/version": "v1.33.0" } } });
    finds(&state(&outdated), "job-outdated");
    finds(
        &Cluster {
            nodes: Vec::new(),
            ..state(&json!({}))
        },
        "job-without-node",
    );
    finds(
        &Cluster {
            plans: Vec::new(),
            ..state(&json!({}))
        },
        "job-without-plan",
    );
    let other = json!({ "metadata": { "labels": { "upgrade.cattle.io/controller": "another" } } });
    assert!(
        finds(&state(&other), "other-controller")
            .remedy
            .contains("--name another")
    );
}

#[test]
fn the_deployment_is_compared() {
    let of = |changes: &Value| Cluster {
        deployments: vec![deployment(changes)],
        ..with_plan(&json!({}))
    };
    finds(
        &Cluster {
            deployments: Vec::new(),
            ..cluster()
        },
        "no-controller",
    );
    finds(
        &Cluster {
            deployments: vec![deployment(&json!({})), deployment(&json!({}))],
            ..cluster()
        },
        "two-controllers",
    );
    let image = json!({ "spec": { "template": { "spec": { "containers": [{
        "name": "c", "image": "registry.example.com:5000/refit:v0.1.0@sha256:00",
        "env": [{ "name": "SYSTEM_UPGRADE_CONTROLLER_NAME", "value": "n" }],
    }] } } } });
    finds(&of(&image), "already-refit");
    finds(&of(&json!({})), "image");
    finds(&of(&json!({ "spec": { "replicas": 0 } })), "stopped");
    let rolling = json!({ "spec": { "strategy": { "type": "RollingUpdate" } } });
    finds_not(&of(&rolling), "no-leader-election");
    let mut without = of(&rolling);
    without.config_maps.clear();
    finds(&without, "no-leader-election");
    without.deployments = vec![deployment(&json!({}))];
    finds_not(&without, "no-leader-election");
    finds(&of(&json!({})), "kubectl-image");
    for (owner, changes) in [
        (
            "the Helm release suc",
            json!({ "labels": { "app.kubernetes.io/managed-by": "Helm" }, "annotations": { "meta.helm.sh/release-name": "suc" } }),
        ),
        (
            "the Kustomization apps of Flux",
            json!({ "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" } }),
        ),
        (
            "Rancher or K3s (x)",
            json!({ "annotations": { "objectset.rio.cattle.io/id": "x" } }),
        ),
    ] {
        let found = finds(&of(&json!({ "metadata": changes })), "managed-elsewhere");
        assert!(found.change.starts_with(owner), "{found:?}");
    }
    let mut single = cluster();
    finds_not(&single, "no-toleration");
    single.nodes = vec![node(
        "a",
        &json!({ "metadata": { "labels": { "node-role.kubernetes.io/etcd": "true" } } }),
    )];
    finds(&single, "no-toleration");
    let tolerates =
        json!({ "spec": { "template": { "spec": { "tolerations": [{ "operator": "Exists" }] } } } });
    single.deployments = vec![deployment(&tolerates)];
    finds_not(&single, "no-toleration");
    let mounts = json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "v", "hostPath": { "path": "/etc/ssl" } }] } } } });
    let mut mounted = of(&mounts);
    finds_not(&mounted, "host-certificates");
    mounted.plans = vec![plan(
        "p",
        &json!({ "spec": { "version": null, "channel": "https://example.com" } }),
    )];
    finds(&mounted, "host-certificates");
}

#[test]
fn a_channel_that_gives_refit_another_version_is_reported() {
    let cluster = with_plan(&json!({ "spec": { "version": null, "channel": "https://example.com/stable" } }));
    assert_eq!(
        offers::channels(&cluster),
        [String::from("https://example.com/stable")].into()
    );
    let of = |answer: Result<&str, &str>| {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        offers::check(
            &cluster,
            &[("https://example.com/stable".to_owned(), answer)].into(),
        )
    };
    assert_eq!(of(Ok("v1.34.1")), []);
    assert_eq!(of(Ok("v1.35.0"))[0].severity, Severity::Change);
    assert_eq!(of(Err("HTTP status 404"))[0].severity, Severity::Action);
}

#[test]
fn an_object_that_cannot_be_read_is_reported() {
    let cluster = Cluster {
        unreadable: vec![("Plan system-upgrade/x".to_owned(), "why".to_owned())],
        ..cluster()
    };
    assert_eq!(finds(&cluster, "unreadable").object, "Plan system-upgrade/x");
}
