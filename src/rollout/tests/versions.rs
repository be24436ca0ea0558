//! What the kubelets of nodes allow.

use super::build::{cluster, outcome, status_of};
use crate::Observation;
use refit_api::{ConditionType, DependencySpec, Installs, Plan, PlanSpec, VersionPolicySpec};
use refit_facts::NodeFacts;
use refit_fixtures::{labels, node, plan_with};

const K3S: &str = "rancher/k3s-upgrade";

type Change = fn(&mut PlanSpec);

/// A node with this kubelet; a server if it is named so.
fn with_kubelet(name: &str, kubelet: &str) -> NodeFacts {
    let mut node = node(name, &format!("uid-{name}"));
    node.kubelet = kubelet.into();
    if name.starts_with("server") {
        let role = ("node-role.kubernetes.io/control-plane", "true");
        node.labels = labels([("kubernetes.io/hostname", name), role]);
    }
    node
}

fn installs(image: &str, version: &str, change: impl FnOnce(&mut PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.upgrade.get_or_insert_default().image = image.to_owned();
        spec.version = Some(version.to_owned());
        spec.concurrency = Some(9);
        change(spec);
    })
}

fn keep(_: &mut PlanSpec) {}

fn of_something_else(spec: &mut PlanSpec) {
    spec.installs = Some(Installs::Other);
}

fn of_kubernetes(spec: &mut PlanSpec) {
    spec.installs = Some(Installs::Kubernetes);
}

fn allow_downgrade(spec: &mut PlanSpec) {
    spec.version_policy = Some(VersionPolicySpec {
        allow_downgrade: Some(true),
        ..VersionPolicySpec::default()
    });
}

#[test]
fn a_node_whose_kubelet_is_newer_starts_only_if_downgrades_are_allowed_and_the_plan_installs_kubernetes() {
    let newer = "agent NodeIsNewer: the node's kubelet has v1.34.1+k3s2, which is newer than ";
    let cases: [(&str, &str, Change, bool); 13] = [
        (K3S, "v1.34.1+k3s1", keep, false),
        (K3S, "v1.34.1-k3s1", keep, false),
        (K3S, "v1.33.9+k3s1", keep, false),
        (K3S, "v1.34.1-rc1+k3s2", keep, false),
        ("mirror.example.com/rke2-upgrade", "v1.33.4+rke2r1", keep, false),
        ("example.com/upgrade-kubeadm:v9", "v1.33.4", keep, false),
        (K3S, "v1.34.1+k3s2", keep, true),
        (K3S, "v1.34.2+k3s1", keep, true),
        // What cannot be compared is no evidence.
        (K3S, "edge", keep, true),
        (K3S, "v1.33.9+k3s1", allow_downgrade, true),
        (K3S, "v1.33.9+k3s1", of_something_else, true),
        ("example.com/os", "v1.33.9", keep, true),
        ("example.com/os", "v1.33.9", of_kubernetes, false),
    ];
    for (image, version, change, starts) in cases {
        let plan = installs(image, version, change);
        let (started, waiting) = outcome(&mut cluster([with_kubelet("agent", "v1.34.1+k3s2")], [plan]));
        assert_eq!(started == ["agent"], starts, "{image} {version}: {waiting:?}");
        if !starts {
            assert!(waiting[0].starts_with(newer), "{image} {version}: {waiting:?}");
        }
    }
}

#[test]
fn other_nodes_wait_for_the_oldest_part_of_the_control_plane() {
    let plan = || installs(K3S, "v1.34.1+k3s1", |_| {});
    let (old, new) = ("v1.33.4+k3s1", "v1.34.1+k3s1");
    let agent = || with_kubelet("agent", old);
    for (servers, api_server, older) in [
        (
            &[("server-1", new), ("server-2", old)][..],
            None,
            Some("control-plane node server-2 has v1.33.4+k3s1"),
        ),
        (&[("server-1", new), ("server-2", new)], None, None),
        (&[("server-1", "v1.35.0+k3s1")], None, None),
        (&[("server-1", "unknown")], None, None),
        (&[], Some(old), Some("the API server has v1.33.4+k3s1")),
        (&[], Some("v1.33.4"), Some("the API server has v1.33.4")),
        (&[], Some(new), None),
        (&[], Some("v1.36.2-eks-abcdef"), None),
        (&[], Some(""), None),
        (&[], None, None),
        // Behind a load balancer, another one has answered.
        (
            &[("server-1", new)],
            Some(old),
            Some("the API server has v1.33.4+k3s1"),
        ),
    ] {
        let nodes = servers.iter().map(|(name, kubelet)| with_kubelet(name, kubelet));
        let mut cluster = cluster(nodes.chain([agent()]), [plan()]);
        if let Some(version) = api_server {
            cluster.apply(Observation::ApiServer(version.into()));
        }
        let (started, waiting) = outcome(&mut cluster);
        assert_eq!(
            started.iter().any(|name| name == "agent"),
            older.is_none(),
            "{servers:?} {api_server:?}"
        );
        if let Some(older) = older {
            let expected = format!("agent ControlPlaneOlder: {older}, which is older than v1.34.1-k3s1");
            assert!(
                waiting.iter().any(|why| why.starts_with(&expected)),
                "{waiting:?}"
            );
        }
        // The control plane itself never waits for it.
        let is_due =
            |(name, has): &&(&str, &str)| *has == old && !started.iter().any(|started| started == name);
        assert_eq!(servers.iter().find(is_due), None, "{started:?}");
    }
}

#[test]
fn a_plan_that_does_not_install_kubernetes_does_not_wait_for_the_control_plane() {
    let plan = installs("example.com/os", "v1.34.1", |_| {});
    let nodes = [
        with_kubelet("server", "v1.33.4"),
        with_kubelet("agent", "v1.33.4"),
    ];
    let (mut started, _) = outcome(&mut cluster(nodes, [plan]));
    started.sort();
    assert_eq!(started, ["agent", "server"]);
}

#[test]
fn a_dependency_that_selects_no_node_is_not_complete() {
    let waits = installs(K3S, "v1.34.1+k3s1", |spec| {
        spec.depends_on = Some(vec![DependencySpec {
            name: "servers".to_owned(),
        }]);
    });
    let mut servers = installs(K3S, "v1.34.1+k3s1", |spec| {
        let selector = serde_json::json!({"matchLabels": {"node-role.kubernetes.io/master": "true"}});
        spec.node_selector = Some(serde_json::from_value(selector).unwrap());
    });
    servers.metadata.name = Some("servers".to_owned());
    servers.metadata.uid = Some("uid-servers".to_owned());
    let mut cluster = cluster([with_kubelet("agent", "v1.33.4+k3s1")], [waits, servers]);
    let status = status_of(&mut cluster, "p");
    assert_eq!(status.applying, None);
    let complete = status.condition(ConditionType::Complete).unwrap();
    assert_eq!(complete.reason.as_deref(), Some("DependencySelectsNothing"));
    let message = complete.message.as_deref().unwrap_or_default();
    assert!(
        message.starts_with("spec.dependsOn: Plan servers selects no node"),
        "{message}"
    );
}
