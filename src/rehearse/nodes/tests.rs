use std::collections::BTreeSet;

use super::*;
use refit_api::selector::Selector;

fn selector(yaml: &str) -> LabelSelector {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Names of the nodes that each selector selects.
fn selected(count: usize, selectors: &[&str]) -> (Generated, Vec<Vec<String>>) {
    let selectors: Vec<LabelSelector> = selectors.iter().map(|yaml| selector(yaml)).collect();
    let selector: Vec<PlanSelector<'_>> = selectors
        .iter()
        .map(|selector| PlanSelector {
            plan: "plan",
            selector: Some(selector),
            ..PlanSelector::default()
        })
        .collect();
    let generated = generate(count, &selector, None);
    assert_eq!(generated.nodes.len(), count);
    let names: BTreeSet<&str> = generated
        .nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names.len(), count, "each has a name of its own");
    let of = |selector: &LabelSelector| {
        let selector = Selector::new(Some(selector)).unwrap();
        let is_selected =
            |node: &&Value| selector.matches_by(|key| node["metadata"]["labels"].get(key)?.as_str());
        let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
        generated.nodes.iter().filter(is_selected).map(name).collect()
    };
    let all = selectors.iter().map(of).collect();
    (generated, all)
}

const SERVERS: &str = "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}, {key: \
                       k3s-upgrade, operator: Exists}, {key: k3s-upgrade, operator: NotIn, values: [enabled, 'false']}]";
const AGENTS: &str = "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}, {key: \
                      k3s-upgrade, operator: Exists}]";

#[test]
fn servers_and_agents_have_their_own_roles_and_opt_in_labels() {
    let (generated, all) = selected(12, &[SERVERS, AGENTS]);
    assert_eq!(all[0], ["control-1", "control-2", "control-3"]);
    assert_eq!(all[1].len(), 9);
    assert_eq!(
        generated.assumed,
        [
            "3 control-plane nodes and 9 workers in 3 zones, Linux, kubelet v1.33.5 (change it with --kubelet)",
            "control-plane nodes have the roles control-plane=\"true\", etcd=\"true\", master=\"true\"",
            "label k3s-upgrade=enabled on 9 nodes, which a Plan selects",
            "label k3s-upgrade=true on 3 nodes, which a Plan selects",
        ]
    );
}

const CONTROL: [&str; 3] = ["control-1", "control-2", "control-3"];

fn role(role: &str, operator: &str, values: &str) -> String {
    format!(
        "matchExpressions: [{{key: node-role.kubernetes.io/{role}, operator: {operator}, values: [{values}]}}]"
    )
}

/// Each pair selects all servers and all agents, whatever the value of the role.
#[test]
fn roles_with_a_value_tell_servers_from_agents() {
    for key in ["control-plane", "master", "etcd"] {
        for value in ["'true'", "''", "'yes'"] {
            let (servers, agents) = (role(key, "In", value), role(key, "NotIn", value));
            for (first, second) in [(&servers, &agents), (&agents, &servers)] {
                let (_, all) = selected(12, &[first, second]);
                let (of_servers, of_agents) = if first == &servers { (0, 1) } else { (1, 0) };
                assert_eq!(all[of_servers], CONTROL, "{first} {second}");
                assert_eq!(all[of_agents].len(), 9, "{first} {second}: {all:?}");
                assert!(
                    all[of_agents].iter().all(|node| node.starts_with("node-")),
                    "{all:?}"
                );
            }
            let (_, all) = selected(12, &[&agents]);
            assert_eq!(all[0].len(), 9, "{agents} alone: {all:?}");
        }
    }
    let (_, all) = selected(
        12,
        &[
            &role("control-plane", "In", "'true', ''"),
            &role("worker", "In", "worker"),
        ],
    );
    assert_eq!(all[0], CONTROL);
    assert_eq!(all[1].len(), 9, "{all:?}");
    let (_, all) = selected(
        12,
        &[
            "matchLabels: {node-role.kubernetes.io/worker: 'true'}",
            &role("worker", "NotIn", "'true'"),
        ],
    );
    assert_eq!(
        (all[0].len(), all[1].as_slice()),
        (9, &CONTROL.map(str::to_owned)[..])
    );
}

#[test]
fn roles_have_the_values_of_the_distribution() {
    let servers = selector("matchLabels: {node-role.kubernetes.io/control-plane: 'true'}");
    let agents =
        selector("matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]");
    let label = |generated: &Generated, node: usize, role: &str| {
        let label =
            generated.nodes[node]["metadata"]["labels"].get(&format!("node-role.kubernetes.io/{role}"));
        label.and_then(Value::as_str).map(str::to_owned)
    };
    let roles = |image: &'static str, version: Option<&'static str>| {
        let selector = [&servers, &agents].map(|selector| PlanSelector {
            plan: "plan",
            selector: Some(selector),
            image,
            version,
            ..PlanSelector::default()
        });
        let generated = generate(7, &selector, None);
        let of_control = ["control-plane", "etcd", "master"].map(|role| label(&generated, 0, role));
        assert_eq!(
            label(&generated, 6, "worker"),
            None,
            "agents have no role by themselves"
        );
        let kubelet = generated.nodes[0]["status"]["nodeInfo"]["kubeletVersion"].as_str();
        (of_control, kubelet.unwrap().to_owned())
    };
    let is_true = || Some("true".to_owned());
    let servers_of_rancher = [is_true(), is_true(), is_true()];
    let newer_servers_of_rancher = [is_true(), is_true(), None];
    assert_eq!(
        roles("rancher/k3s-upgrade", Some("v1.34.1+k3s1")),
        (servers_of_rancher.clone(), "v1.33.5+k3s1".to_owned())
    );
    assert_eq!(
        roles(
            "registry.example.com/rancher/rke2-upgrade:v1.33.4-rke2r1",
            Some("v1.33.4+rke2r1")
        ),
        (servers_of_rancher.clone(), "v1.32.0+rke2r1".to_owned())
    );
    assert_eq!(
        roles("example.com/any", Some("v1.36.2-k3s1")),
        (newer_servers_of_rancher, "v1.35.0+k3s1".to_owned())
    );
    assert_eq!(
        roles("example.com/kubeadm-upgrade", Some("v1.34.0")).0,
        [Some(String::new()), None, None],
        "what kubeadm does not give, no node has"
    );
    // Servers with `true` are none of Talos.
    for image in [
        "ghcr.io/siderolabs/installer:v1.11.5",
        "mirror.example:5000/siderolabs/talosctl:v1.11.5",
        "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.11.5",
    ] {
        assert_eq!(
            roles(image, Some("v1.34.1")).0,
            [Some(String::new()), None, None],
            "{image}"
        );
    }
}

#[test]
fn the_role_master_is_on_the_nodes_of_versions_that_set_it() {
    let servers = selector("matchLabels: {node-role.kubernetes.io/master: 'true'}");
    let of_kubeadm = selector("matchExpressions: [{key: node-role.kubernetes.io/master, operator: Exists}]");
    let agents = selector(
        "matchExpressions: [{key: node-role.kubernetes.io/master, operator: NotIn, values: ['true']}]",
    );
    let count = |image, version, kubelet| {
        let servers = if image == "a/kubeadm-upgrade" {
            &of_kubeadm
        } else {
            &servers
        };
        let selectors = [servers, &agents].map(|selector| PlanSelector {
            plan: "plan",
            selector: Some(selector),
            image,
            version: Some(version),
            ..PlanSelector::default()
        });
        let generated = generate(12, &selectors, kubelet);
        let selected = |selector: &LabelSelector| {
            let selector = Selector::new(Some(selector)).unwrap();
            let is_selected =
                |node: &&Value| selector.matches_by(|key| node["metadata"]["labels"].get(key)?.as_str());
            generated.nodes.iter().filter(is_selected).count()
        };
        (
            [selected(servers), selected(&agents)],
            generated.assumed[1].clone(),
        )
    };
    for (image, version, kubelet, expected) in [
        (
            "rancher/k3s-upgrade",
            "v1.35.3+k3s1",
            Some("v1.35.1+k3s1"),
            [0, 12],
        ),
        ("rancher/k3s-upgrade", "v1.35.3+k3s1", None, [0, 12]),
        (
            "rancher/k3s-upgrade",
            "v1.34.3+k3s1",
            Some("v1.33.9+k3s1"),
            [3, 9],
        ),
        ("rancher/k3s-upgrade", "v1.34.3+k3s1", None, [3, 9]),
        (
            "rancher/rke2-upgrade",
            "v1.34.3+rke2r1",
            Some("v1.34.1+rke2r1"),
            [0, 12],
        ),
        ("rancher/rke2-upgrade", "v1.33.3+rke2r1", None, [3, 9]),
        ("a/kubeadm-upgrade", "v1.33.3", None, [0, 12]),
        ("a/kubeadm-upgrade", "v1.23.3", Some("v1.23.1"), [3, 12]),
        // What patches the system of a node says nothing of its distribution, but its version does.
        ("ubuntu", "24.04", Some("v1.33.4+rke2r1"), [3, 9]),
        ("ubuntu", "24.04", Some("v1.34.4+rke2r1"), [0, 12]),
        ("ubuntu", "24.04", Some("v1.34.4"), [0, 12]),
    ] {
        let (found, assumed) = count(image, version, kubelet);
        assert_eq!(found, expected, "{image} {version} {kubelet:?}: {assumed}");
    }
    assert_eq!(
        count("rancher/k3s-upgrade", "v1.35.3+k3s1", None).1,
        "control-plane nodes have the roles control-plane=\"true\", etcd=\"true\", as K3s has it; K3s does not set the role \
         master from 1.34 on"
    );
}

#[test]
fn nodes_for_etcd_alone_are_made_where_a_plan_is_for_them() {
    let etcd = "matchExpressions: [{key: node-role.kubernetes.io/etcd, operator: Exists}, {key: \
                node-role.kubernetes.io/control-plane, operator: DoesNotExist}]";
    let servers = "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: In, values: ['true']}, {key: \
                   node-role.kubernetes.io/etcd, operator: DoesNotExist}]";
    let agents = "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}, {key: \
                  node-role.kubernetes.io/etcd, operator: NotIn, values: ['true']}]";
    let (_, all) = selected(12, &[etcd, servers, agents]);
    assert_eq!(all[0], ["etcd-1", "etcd-2", "etcd-3"]);
    assert_eq!(all[1], CONTROL);
    assert_eq!(all[2].len(), 6);
}

#[test]
fn plans_with_exclusive_selectors_share_the_nodes() {
    let (_, all) = selected(
        12,
        &[
            "matchLabels: {patches: zypper}",
            "matchLabels: {patches: transactional}",
            "matchExpressions: [{key: patches, operator: DoesNotExist}]",
        ],
    );
    for nodes in &all {
        assert!(nodes.len() >= 3, "{all:?}");
    }
    let union: BTreeSet<&String> = all.iter().flatten().collect();
    assert_eq!(union.len(), 12, "{all:?}");
}

#[test]
fn a_plan_selects_all_nodes_that_it_can_select() {
    let (_, all) = selected(
        9,
        &[
            "matchLabels: {patches: zypper}",
            "matchLabels: {patches: transactional}",
            "matchLabels: {k3s-upgrade: enabled}",
        ],
    );
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [5, 4, 9]);
}

#[test]
fn nodes_have_the_names_and_zones_that_a_plan_asks_for() {
    let (generated, all) = selected(
        6,
        &[
            "matchLabels: {kubernetes.io/hostname: db-7}",
            "matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [eu-1a, eu-1b]}]",
            "matchExpressions: [{key: kubernetes.io/arch, operator: NotIn, values: [amd64]}]",
        ],
    );
    assert_eq!(all[0], ["db-7"]);
    assert!(!all[1].is_empty() && !all[2].is_empty(), "{all:?}");
    assert!(
        generated
            .assumed
            .contains(&"nodes have the names that Plans select: db-7".to_owned()),
        "{:?}",
        generated.assumed
    );
}

#[test]
fn roles_that_no_node_has_become_nodes_of_their_own() {
    let (_, all) = selected(
        9,
        &[
            "matchExpressions: [{key: node-role.kubernetes.io/etcd, operator: Exists}, {key: \
             node-role.kubernetes.io/control-plane, operator: DoesNotExist}]",
            "matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}, {key: \
             node-role.kubernetes.io/etcd, operator: DoesNotExist}]",
            "matchExpressions: [{key: node-role.kubernetes.io/gpu, operator: Exists}]",
        ],
    );
    assert!(all.iter().all(|nodes| !nodes.is_empty()), "{all:?}");
}

#[test]
fn a_selector_that_can_select_nothing_is_reported() {
    let yaml = "matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]";
    let (generated, all) = selected(3, &[yaml]);
    assert_eq!(all, [[""; 0]; 1]);
    assert_eq!(
        generated.assumed[2],
        "Plan plan selects no node at all: its spec.nodeSelector contradicts itself about a"
    );
    let none = PlanSelector {
        plan: "p",
        selector: None,
        ..PlanSelector::default()
    };
    assert_eq!(
        generate(3, &[none], None).assumed[2],
        "Plan p selects no node at all: it has no spec.nodeSelector"
    );
}

#[test]
fn any_number_of_nodes_has_a_control_plane_and_workers() {
    for (count, control) in [(1, 1), (2, 1), (3, 1), (6, 1), (7, 3), (5_000, 3)] {
        let (generated, _) = selected(count, &["{}"]);
        let is_control =
            |node: &&Value| node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_string();
        assert_eq!(
            generated.nodes.iter().filter(is_control).count(),
            control,
            "{count}"
        );
    }
}

#[test]
fn applications_grow_in_number_with_the_nodes() {
    let names: Vec<String> = (0..45).map(|number| format!("node-{number}")).collect();
    let all = workloads(&names, 30);
    let count = |kind: &str| all.iter().filter(|one| one["kind"] == kind).count();
    assert_eq!(count("ReplicaSet"), 1 + 3 * 3);
    assert_eq!(count("PodDisruptionBudget"), 1 + 3 * 2);
    assert_eq!((count("DaemonSet"), count("Pod")), (1, 45));
}

#[test]
fn control_plane_nodes_run_no_windows_and_have_no_role_of_other_nodes() {
    let windows = "matchLabels: {kubernetes.io/os: windows}";
    let linux = "matchLabels: {kubernetes.io/os: linux}";
    let not_linux = "matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [linux]}]";
    let is_control = |name: &String| name.starts_with("control");
    for first in [windows, not_linux] {
        let (_, all) = selected(12, &[first, linux]);
        assert!(!all[0].is_empty() && !all[0].iter().any(is_control), "{all:?}");
        assert!(all[1].iter().any(is_control), "{all:?}");
    }
    let ingress = "matchLabels: {node-role.kubernetes.io/ingress: ''}";
    let others = "matchExpressions: [{key: node-role.kubernetes.io/ingress, operator: DoesNotExist}]";
    let (_, all) = selected(12, &[ingress, others]);
    assert!(!all[0].is_empty() && !all[0].iter().any(is_control), "{all:?}");
    assert!(all[1].iter().any(is_control), "{all:?}");
}

#[test]
fn talos_sets_one_role_and_its_version_is_not_that_of_kubernetes() {
    let selector =
        selector("matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]");
    let plan = PlanSelector {
        plan: "talos",
        selector: Some(&selector),
        image: "ghcr.io/siderolabs/installer",
        version: Some("v1.9.0"),
        ..PlanSelector::default()
    };
    assert_eq!(
        generate(12, &[plan], None).assumed,
        [
            "3 control-plane nodes and 9 workers in 3 zones, Linux, kubelet v1.33.5 (change it with --kubelet)",
            "control-plane nodes have the roles control-plane=\"\", as Talos has it",
        ]
    );
    assert!(generate(1, &[], None).assumed[0].contains(" in 1 zone, "));
}

#[test]
fn a_control_plane_that_no_plan_upgrades_has_the_version_that_the_others_wait_for() {
    let agents = selector(AGENTS);
    let of = |selector, version| PlanSelector {
        plan: "agents",
        selector: Some(selector),
        image: "rancher/k3s-upgrade",
        version: Some(version),
        installs_kubernetes: true,
        ..PlanSelector::default()
    };
    let versions = |plans: &[PlanSelector<'_>], kubelet| {
        let nodes = generate(7, plans, kubelet).nodes;
        [0, 6].map(|index: usize| {
            nodes[index]["status"]["nodeInfo"]["kubeletVersion"]
                .as_str()
                .unwrap()
                .to_owned()
        })
    };
    assert_eq!(
        versions(&[of(&agents, "v1.34.1-k3s1")], None),
        ["v1.34.1+k3s1", "v1.33.5+k3s1"]
    );
    assert_eq!(
        versions(&[of(&agents, "v1.34.1+k3s1")], Some("v1.34.0+k3s1")),
        ["v1.34.0+k3s1"; 2]
    );
    let all = selector("{}");
    assert_eq!(
        versions(&[of(&agents, "v1.34.1+k3s1"), of(&all, "v1.34.1+k3s1")], None),
        ["v1.33.5+k3s1"; 2]
    );
}
