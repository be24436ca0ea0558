use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use refit_facts::objects::{Intern, SlimJob, SlimNode};
use refit_facts::{JobFacts, NodeFacts, PlanFacts};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::permissions::needed;
use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
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

fn merged(mut object: Value, changes: &Value) -> Value {
    merge(&mut object, changes);
    object
}

fn deployment(changes: &Value) -> Deployment {
    let object = json!({
        "metadata": { "name": "system-upgrade-controller", "namespace": "system-upgrade" },
        "spec": {
            "strategy": { "type": "Recreate" },
            "selector": {},
            "template": { "spec": {
                "serviceAccountName": "suc",
                "containers": [{
                    "name": "system-upgrade-controller",
                    "image": "rancher/system-upgrade-controller:v0.20.1",
                    "env": [{ "name": "SYSTEM_UPGRADE_CONTROLLER_NAME", "value": "system-upgrade-controller" }],
                    "envFrom": [{ "configMapRef": { "name": "default-controller-env" } }],
                }],
            } },
        },
    });
    read(merged(object, changes))
}

fn plan(name: &str, changes: &Value) -> PlanFacts {
    let object = json!({
        "metadata": { "name": name, "namespace": "system-upgrade" },
        "spec": {
            "concurrency": 1, "version": "v1.34.1", "nodeSelector": {}, "serviceAccountName": "system-upgrade",
            "upgrade": { "image": "rancher/k3s-upgrade" },
        },
        "status": { "latestVersion": "v1.34.1", "latestHash": "new" },
    });
    read(merged(object, changes))
}

fn node(name: &str, changes: &Value) -> NodeFacts {
    let object = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    read::<SlimNode>(merged(object, changes)).facts(&Intern::default())
}

fn server(name: &str) -> NodeFacts {
    let role = json!({ "node-role.kubernetes.io/control-plane": "true" });
    node(name, &json!({ "metadata": { "labels": role } }))
}

fn job(node: &str, changes: &Value) -> JobFacts {
    let object = json!({
        "metadata": {
            "name": format!("apply-p-on-{node}"), "namespace": "system-upgrade", "uid": "u", "creationTimestamp": "2026-03-01T00:00:00Z",
            "labels": {
                "upgrade.cattle.io/controller": CONTROLLER, "upgrade.cattle.io/plan": "p", "upgrade.cattle.io/node": node,
                "upgrade.cattle.io/version": "v1.34.1", "plan.upgrade.cattle.io/p": "new",
            },
        },
        "spec": { "template": {} },
    });
    read::<SlimJob>(merged(object, changes)).facts(&Intern::default(), 0)
}

const CONTROLLER: &str = "system-upgrade-controller";

/// A cluster of system-upgrade-controller's own manifests, with two nodes and nothing to do.
struct Cluster {
    plans: Vec<PlanFacts>,
    nodes: Vec<NodeFacts>,
    jobs: Vec<(&'static str, JobFacts)>,
    deployments: Vec<Deployment>,
    config_maps: Vec<ConfigMap>,
    definition: Option<ObjectMeta>,
    answers: BTreeMap<String, Result<String, String>>,
}

impl Default for Cluster {
    fn default() -> Self {
        let data = json!({ "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT": "true" });
        Self {
            plans: Vec::new(),
            nodes: vec![node("a", &json!({})), node("b", &json!({}))],
            jobs: Vec::new(),
            deployments: vec![deployment(&json!({}))],
            config_maps: vec![read(
                json!({ "metadata": { "name": "default-controller-env" }, "data": data }),
            )],
            definition: None,
            answers: BTreeMap::new(),
        }
    }
}

impl Cluster {
    fn with_plan(changes: &Value) -> Self {
        Self {
            plans: vec![plan("p", changes)],
            ..Self::default()
        }
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            namespace: "system-upgrade",
            controller: CONTROLLER,
            plans: self.plans.iter().collect(),
            nodes: self.nodes.iter().collect(),
            jobs: self
                .jobs
                .iter()
                .map(|(controller, job)| (*controller, job))
                .collect(),
            deployments: &self.deployments,
            config_maps: &self.config_maps,
            definition: self.definition.as_ref(),
            missing: Vec::new(),
            answers: self.answers.clone(),
        }
    }

    #[track_caller]
    fn finds(&self, rule: &str) -> Finding {
        let found = check(&self.reading());
        let one = found.iter().find(|one| one.rule == rule);
        one.unwrap_or_else(|| panic!("no {rule} in {found:#?}")).clone()
    }

    #[track_caller]
    fn finds_not(&self, rule: &str) {
        let found = check(&self.reading());
        assert!(found.iter().all(|one| one.rule != rule), "{found:#?}");
    }
}

#[test]
fn a_cluster_of_its_own_manifests_without_work_has_no_finding() {
    assert_eq!(check(&Cluster::with_plan(&json!({})).reading()), []);
}

#[test]
fn a_permission_is_needed_if_refit_or_a_plan_uses_it() {
    let of = |spec: Value| {
        let cluster = Cluster::with_plan(&json!({ "spec": spec }));
        let mut reading = cluster.reading();
        reading.missing = needed(&reading);
        let found = check(&reading).into_iter();
        let found = found.filter(|one| one.rule == "missing-permission");
        found
            .map(|one| format!("{}: {}", one.object, one.change))
            .collect::<Vec<_>>()
    };
    let has = |found: &[String], account: &str, permission: &str| {
        found.contains(&format!(
            "ServiceAccount system-upgrade/{account}: it may not {permission}, which refit needs for these Plans"
        ))
    };
    let plain = of(json!({}));
    let lease = "update leases.coordination.k8s.io system-upgrade-controller in namespace system-upgrade";
    assert!(has(&plain, "suc", lease), "{plain:#?}");
    assert!(
        has(&plain, "suc", "create jobs.batch in namespace system-upgrade"),
        "{plain:#?}"
    );
    assert!(
        has(
            &plain,
            "suc",
            "patch plans.upgrade.cattle.io/status in namespace system-upgrade"
        ),
        "{plain:#?}"
    );
    let create_pods = "create pods in namespace system-upgrade";
    assert!(!has(&plain, "suc", create_pods), "{plain:#?}");
    let of_nodes = |found: &[String]| {
        let mut found = found.iter();
        found.any(|one| one.starts_with("ServiceAccount system-upgrade/system-upgrade: "))
    };
    assert!(
        !of_nodes(&plain),
        "a Plan without cordon and drain needs nothing on its nodes: {plain:#?}"
    );
    assert!(has(
        &of(json!({ "reboot": { "when": "Always" } })),
        "suc",
        create_pods
    ));
    let drains = of(json!({ "drain": {} }));
    for permission in ["create pods/eviction", "patch nodes"] {
        assert!(has(&drains, "system-upgrade", permission), "{drains:#?}");
    }
    assert!(!has(&drains, "system-upgrade", "delete pods"), "{drains:#?}");
}

#[test]
fn a_window_is_reported_with_what_it_means_overnight() {
    let window = |days: &[&str], start: &str, end: &str| {
        let window = json!({ "days": days, "startTime": start, "endTime": end, "timeZone": "UTC" });
        Cluster::with_plan(&json!({ "spec": { "window": window } }))
            .finds("window")
            .change
    };
    let overnight = window(&["sat"], "22:00", "04:00");
    assert!(
        overnight.contains("from 00:00 to 04:00:00 and from 22:00:00 to 24:00"),
        "{overnight}"
    );
    let week = ["mo", "tu", "we", "th", "fr", "sa", "su"];
    assert!(!window(&week, "22:00", "04:00").contains("overnight"));
    assert!(!window(&["sat"], "04:00", "22:00").contains("overnight"));
    Cluster::with_plan(&json!({})).finds_not("window");
}

#[test]
fn a_plan_that_only_refit_finds_invalid_needs_an_action_and_any_other_a_note() {
    let invalid = json!({ "spec": { "postCompleteDelay": "-30s" } });
    assert_eq!(
        Cluster::with_plan(&invalid).finds("invalid").severity,
        Severity::Action
    );
    let condition = json!({ "type": "Validated", "status": "False", "reason": "Error" });
    let known = merged(invalid, &json!({ "status": { "conditions": [condition] } }));
    assert_eq!(
        Cluster::with_plan(&known).finds("invalid").severity,
        Severity::Note
    );
    for spec in [
        json!({ "drain": { "timeout": "soon" } }),
        json!({ "version": "no version" }),
    ] {
        Cluster::with_plan(&json!({ "spec": spec })).finds("invalid");
    }
    let digest = json!({ "upgrade.cattle.io/digest": "spec.upgrade.args,".repeat(400) });
    Cluster::with_plan(&json!({ "metadata": { "annotations": digest } })).finds("invalid");
    let undecodable = Cluster::with_plan(&json!({ "spec": { "concurrency": "many" } }));
    assert_eq!(undecodable.finds("invalid").severity, Severity::Change);
    undecodable.finds_not("concurrency-zero");
}

#[test]
fn differences_of_a_spec_are_reported() {
    let of = |spec: Value| Cluster::with_plan(&json!({ "spec": spec }));
    for concurrency in [json!(0), Value::Null] {
        of(json!({ "concurrency": concurrency })).finds("concurrency-zero");
    }
    of(json!({ "concurrency": 0, "maxConcurrent": 2 })).finds_not("concurrency-zero");
    of(json!({ "drain": { "timeout": 60_000_000_000_i64 } })).finds("works-now");
    of(json!({ "drain": { "timeout": 2_000_000_000 } })).finds_not("works-now");
    let volume = json!({ "name": "v", "source": "/a", "destination": "/b" });
    let prepare = json!({ "image": "i", "volumes": [volume] });
    of(json!({ "prepare": prepare })).finds("works-now");
    of(json!({ "prepare": prepare, "upgrade": { "volumes": [volume] } })).finds_not("works-now");
    let token = |spec: Value| {
        of(merged(
            json!({ "upgrade": { "image": "example.com/system-agent" } }),
            &spec,
        ))
    };
    assert!(token(json!({})).finds("token").remedy.contains("apiAccess: All"));
    token(json!({ "apiAccess": "All" })).finds_not("token");
    token(json!({ "serviceAccountName": "agent" })).finds_not("token");
    token(json!({ "upgrade": { "image": "mirror.example.com/rke2-upgrade" } })).finds_not("token");
}

#[test]
fn nodes_that_are_cordoned_not_ready_or_renamed_are_reported_unless_the_plan_is_done_with_them() {
    let with_node = |spec: &Value, changes: &Value| Cluster {
        nodes: vec![node("a", changes)],
        ..Cluster::with_plan(&json!({ "spec": spec }))
    };
    let (drains, cordoned) = (
        json!({ "drain": {} }),
        json!({ "spec": { "unschedulable": true } }),
    );
    let found = with_node(&drains, &cordoned).finds("cordoned-nodes");
    assert!(found.change.starts_with("a: "), "{found:?}");
    with_node(&json!({}), &cordoned).finds_not("cordoned-nodes");
    let mut under_way = with_node(&drains, &cordoned);
    under_way.jobs = vec![(CONTROLLER, job("a", &json!({})))];
    under_way.finds_not("cordoned-nodes");

    let down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    with_node(&json!({}), &down).finds("nodes-not-ready");
    let repairs = json!({ "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists" }] });
    with_node(&repairs, &down).finds_not("nodes-not-ready");

    let renamed = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "ip-10-0-0-1" } } });
    with_node(&json!({}), &renamed).finds("works-now");

    for label in ["new", "disabled"] {
        let over = json!({ "metadata": { "labels": { "plan.upgrade.cattle.io/p": label } } });
        let over = merged(merged(over, &cordoned), &down);
        assert_eq!(check(&with_node(&drains, &over).reading()), []);
    }
}

#[test]
fn a_job_is_reported_unless_it_has_succeeded_or_nothing_is_left_of_it() {
    let state = |changes: &Value| Cluster {
        jobs: vec![(CONTROLLER, job("a", changes))],
        ..Cluster::with_plan(&json!({}))
    };
    let finished = |condition: &str| {
        let condition =
            json!({ "type": condition, "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z" });
        json!({ "status": { "conditions": [condition] } })
    };
    let said = |changes: &Value| {
        let found = state(changes).finds("job");
        (found.severity, format!("{}; {}", found.change, found.remedy))
    };
    let (severity, text) = said(&json!({}));
    assert!(
        severity == Severity::Note && text.contains("refit adopts it"),
        "{text}"
    );
    let (severity, text) = said(&json!({ "spec": { "parallelism": 0 } }));
    assert!(
        severity == Severity::Note && text.contains("it is paused on a"),
        "{text}"
    );
    let (severity, text) =
        said(&json!({ "metadata": { "labels": { "upgrade.cattle.io/version": "v1.33.0" } } }));
    assert!(
        severity == Severity::Change && text.contains("it upgrades a to v1.33.0"),
        "{text}"
    );
    let (severity, text) = said(&finished("Failed"));
    assert!(
        severity == Severity::Change && text.contains("annotate node a refit.rs/retry=p"),
        "{text}"
    );
    state(&finished("Complete")).finds_not("job");
    let mut gone = state(&json!({}));
    gone.nodes.clear();
    gone.finds_not("job");
    gone = state(&json!({}));
    gone.plans.clear();
    gone.finds_not("job");
    let mut other = state(&json!({}));
    other.jobs[0].0 = "another";
    other.finds_not("job");
    assert!(other.finds("two-controllers").remedy.contains("--name another"));
}

#[test]
fn the_deployment_is_compared() {
    let of = |changes: &Value| Cluster {
        deployments: vec![deployment(changes)],
        ..Cluster::default()
    };
    let mut none = Cluster::default();
    none.deployments.clear();
    none.finds("no-controller");
    let mut two = Cluster::default();
    two.deployments.push(deployment(&json!({})));
    two.finds("two-controllers");

    let rolling = json!({ "spec": { "strategy": { "type": "RollingUpdate" } } });
    of(&rolling).finds_not("two-controllers");
    let mut without = of(&rolling);
    without.config_maps.clear();
    without.finds("two-controllers");
    let args = |flag: &str| {
        let env = json!([{ "name": "SYSTEM_UPGRADE_CONTROLLER_NAME", "value": "x" }]);
        let container = json!({ "name": "c", "args": [flag], "env": env });
        merged(
            rolling.clone(),
            &json!({ "spec": { "template": { "spec": { "containers": [container] } } } }),
        )
    };
    without.deployments = vec![deployment(&args("--leader-elect"))];
    without.finds_not("two-controllers");
    without.deployments = vec![deployment(&args("--leader-elect=false"))];
    without.finds("two-controllers");
    without.deployments = vec![deployment(&json!({}))];
    without.finds_not("two-controllers");

    for (owner, changes) in [
        (
            "Helm, with the release suc,",
            json!({ "annotations": { "meta.helm.sh/release-name": "suc" } }),
        ),
        (
            "Flux, with the Kustomization apps,",
            json!({ "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" } }),
        ),
        (
            "Rancher or K3s, as x,",
            json!({ "annotations": { "objectset.rio.cattle.io/id": "x" } }),
        ),
    ] {
        let found = of(&json!({ "metadata": changes })).finds("managed-elsewhere");
        assert!(found.change.starts_with(owner), "{found:?}");
        let definition = Cluster {
            definition: Some(read(changes)),
            ..Cluster::default()
        };
        let found = definition.finds("managed-elsewhere");
        assert!(found.object.starts_with("CustomResourceDefinition") && found.change.contains(owner));
    }
    let mut single = Cluster::default();
    single.finds_not("no-toleration");
    single.nodes = vec![server("a")];
    single.finds("no-toleration");
    let tolerations = json!([{ "operator": "Exists" }]);
    let tolerates = json!({ "spec": { "template": { "spec": { "tolerations": tolerations } } } });
    single.deployments = vec![deployment(&tolerates)];
    single.finds_not("no-toleration");
}

#[test]
fn a_channel_that_gives_refit_another_version_is_reported() {
    let url = "https://example.com/stable";
    let mut cluster = Cluster::with_plan(&json!({ "spec": { "version": null, "channel": url } }));
    assert_eq!(channels(&cluster.reading()), [url.to_owned()].into());
    cluster.finds_not("channel");
    let mut of = |answer: Result<&str, &str>| {
        let answer = answer.map(str::to_owned).map_err(str::to_owned);
        cluster.answers = [(url.to_owned(), answer)].into();
        let found = check(&cluster.reading());
        found.first().map(|one| (one.rule, one.severity))
    };
    assert_eq!(of(Ok("v1.34.1")), None);
    assert_eq!(of(Ok("v1.35.0")), Some(("channel", Severity::Change)));
    assert_eq!(of(Err("HTTP status 404")), Some(("channel", Severity::Action)));
}
