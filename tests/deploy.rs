//! The manifests in `deploy/`: what they must contain for Plans written for system-upgrade-controller, and what they
//! must not. Other tests run the controller under their roles, and show that it uses every rule.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PodSpec, ServiceAccount, Toleration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Components that grant more than most installations need.
const COMPONENTS: [&str; 4] = ["manage-crd", "delete-pods", "agent", "node-conditions"];

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn read(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&std::fs::read_to_string(folder().join(file)).unwrap()).unwrap()
}

/// Every object of the manifests.
fn objects() -> Vec<Value> {
    resources()
        .iter()
        .filter(|file| !file.starts_with(".."))
        .flat_map(|file| read(file))
        .collect()
}

/// Every object of a component, which grants more.
fn component(name: &str) -> Vec<Value> {
    let folder = format!("overlays/{name}");
    let listed: Vec<String> =
        serde_json::from_value(read(&format!("{folder}/kustomization.yaml"))[0]["resources"].clone())
            .unwrap();
    listed
        .iter()
        .flat_map(|file| read(&format!("{folder}/{file}")))
        .collect()
}

fn resources() -> Vec<String> {
    serde_json::from_value(read("kustomization.yaml")[0]["resources"].clone()).unwrap()
}

fn kind(kind: &str) -> impl Iterator<Item = Value> {
    objects().into_iter().filter(move |object| object["kind"] == kind)
}

fn pod() -> PodSpec {
    let deployment: Deployment = serde_json::from_value(kind("Deployment").next().unwrap()).unwrap();
    deployment.spec.template.spec.unwrap()
}

/// Fails on a field that the type does not have, such as one at the wrong level.
fn reads_whole<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), object);
}

#[test]
fn every_file_is_listed_and_every_object_is_one_that_kubernetes_knows_whole() {
    let files: BTreeSet<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap())
        // The chart and components are in folders; refit.yaml has all objects in one file.
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|file| !["kustomization.yaml", "refit.yaml"].contains(&file.as_str()))
        .collect();
    let listed: BTreeSet<_> = resources().into_iter().filter(|file| file != "../crds").collect();
    assert_eq!(files, listed);
    let components = COMPONENTS.into_iter().flat_map(component);
    for object in objects().into_iter().chain(components) {
        match object["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => reads_whole::<ValidatingAdmissionPolicy>(&object),
            "ValidatingAdmissionPolicyBinding" => reads_whole::<ValidatingAdmissionPolicyBinding>(&object),
            "Namespace" => reads_whole::<Namespace>(&object),
            "ServiceAccount" => reads_whole::<ServiceAccount>(&object),
            "ConfigMap" => reads_whole::<ConfigMap>(&object),
            "Deployment" => reads_whole::<Deployment>(&object),
            "DaemonSet" => reads_whole::<DaemonSet>(&object),
            "PodDisruptionBudget" => reads_whole::<PodDisruptionBudget>(&object),
            "NetworkPolicy" => reads_whole::<NetworkPolicy>(&object),
            "ClusterRole" => reads_whole::<ClusterRole>(&object),
            "ClusterRoleBinding" => reads_whole::<ClusterRoleBinding>(&object),
            "Role" => reads_whole::<Role>(&object),
            "RoleBinding" => reads_whole::<RoleBinding>(&object),
            other => assert_eq!(other, "a kind that this test knows"),
        }
    }
}

#[test]
fn the_image_is_that_of_this_version() {
    let images = &read("kustomization.yaml")[0]["images"];
    assert_eq!(images[0]["name"].as_str(), pod().containers[0].image.as_deref());
    assert_eq!(images[0]["newTag"], format!("v{}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn objects_that_unmodified_plans_and_manifests_name_exist() {
    let namespace: Namespace = serde_json::from_value(kind("Namespace").next().unwrap()).unwrap();
    assert_eq!(namespace.metadata.name.as_deref(), Some("system-upgrade"));
    let labels = namespace.metadata.labels.unwrap();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
    let accounts: BTreeSet<_> = kind("ServiceAccount")
        .map(|it| it["metadata"]["name"].to_string())
        .collect();
    assert_eq!(
        accounts,
        [r#""system-upgrade""#, r#""system-upgrade-controller""#]
            .map(str::to_owned)
            .into()
    );
    let config = kind("ConfigMap").next().unwrap();
    assert_eq!(config["metadata"]["name"], "default-controller-env");
    for name in config["data"].as_object().unwrap().keys() {
        let is_known = name.starts_with("SYSTEM_UPGRADE_") || name == "REFIT_JOB_API_ACCESS";
        assert!(is_known, "{name}");
    }
    let deployment = kind("Deployment").next().unwrap();
    let label = "/spec/template/metadata/labels/upgrade.cattle.io~1controller";
    assert_eq!(deployment.pointer(label).unwrap(), "system-upgrade-controller");
}

#[test]
fn the_service_account_of_jobs_has_none_of_the_controller_s_permissions() {
    let mut bound = BTreeSet::new();
    for binding in kind("ClusterRoleBinding").chain(kind("RoleBinding")) {
        let subjects: Vec<Subject> = serde_json::from_value(binding["subjects"].clone()).unwrap();
        let role = ["kind", "name"].map(|key| binding["roleRef"][key].as_str().unwrap());
        for subject in subjects {
            assert_eq!(subject.namespace.as_deref(), Some("system-upgrade"));
            bound.insert(format!("{}: {} {}", subject.name, role[0], role[1]));
        }
    }
    let expected = [
        "system-upgrade: ClusterRole system-upgrade-controller-drainer",
        "system-upgrade: Role system-upgrade",
        "system-upgrade-controller: ClusterRole system-upgrade-controller",
        "system-upgrade-controller: Role system-upgrade-controller",
        "system-upgrade-controller: Role system-upgrade-controller-etcd",
        "system-upgrade-controller: Role system-upgrade-controller-events",
    ];
    assert_eq!(bound, expected.map(str::to_owned).into());
    assert_eq!(
        pod().service_account_name.as_deref(),
        Some("system-upgrade-controller")
    );
}

#[test]
fn no_rbac_rule_has_a_wildcard() {
    let components = COMPONENTS.into_iter().flat_map(component);
    let more = components.filter(|object| object["kind"] == "ClusterRole");
    for role in kind("ClusterRole").chain(kind("Role")).chain(more) {
        for rule in role["rules"].as_array().unwrap() {
            assert!(!rule.to_string().contains('*'), "{rule}");
            let resources = rule["resources"].as_array().unwrap();
            let is_of_crds = resources.iter().any(|one| one == "customresourcedefinitions");
            if is_of_crds && rule["verbs"] != json!(["create"]) {
                assert_eq!(rule["resourceNames"], json!(["plans.upgrade.cattle.io"]));
            }
        }
    }
}

/// Whoever may create or change CRDs may have the API server send every Plan to a conversion webhook; whoever may delete
/// pods can stop any workload.
#[test]
fn only_components_allow_to_write_crds_and_to_delete_pods_of_others() {
    let of = |object: &Value| -> Vec<(String, String)> {
        let rules = object["rules"].as_array().unwrap().iter();
        let pairs = rules.flat_map(|rule| {
            let verbs = rule["verbs"].as_array().unwrap().iter();
            verbs.map(|verb| {
                let resource = rule["resources"][0].as_str().unwrap();
                (verb.as_str().unwrap().to_owned(), resource.to_owned())
            })
        });
        pairs.collect()
    };
    let pair = |verb: &str, resource: &str| (verb.to_owned(), resource.to_owned());
    for role in kind("ClusterRole") {
        for forbidden in [
            pair("create", "customresourcedefinitions"),
            pair("update", "customresourcedefinitions"),
            pair("delete", "pods"),
            pair("patch", "nodes/status"),
        ] {
            assert!(!of(&role).contains(&forbidden), "{role}");
        }
    }
    let of_component = |name: &str| of(&component(name)[0]);
    let crd = "customresourcedefinitions";
    assert_eq!(
        of_component("manage-crd"),
        [pair("create", crd), pair("update", crd)]
    );
    assert_eq!(
        of_component("delete-pods"),
        [pair("delete", "pods"), pair("create", "events")]
    );
    assert_eq!(of_component("node-conditions"), [pair("patch", "nodes/status")]);
    assert_eq!(
        of(&component("agent")[1]),
        [pair("get", "nodes"), pair("patch", "nodes")]
    );
}

#[test]
fn the_agent_s_pod_may_read_the_host_s_run_and_nothing_else() {
    let set = component("agent")
        .into_iter()
        .find(|object| object["kind"] == "DaemonSet");
    let set: DaemonSet = serde_json::from_value(set.unwrap()).unwrap();
    let pod = set.spec.template.spec.unwrap();
    assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (None, None, None));
    let context = pod.security_context.unwrap();
    let user = (context.run_as_non_root, context.run_as_user);
    assert_eq!(user, (Some(true), Some(65534)));
    let container = &pod.containers[0];
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    assert_eq!(
        context.capabilities.as_ref().unwrap().drop,
        Some(vec!["ALL".to_owned()])
    );
    let mounts = container.volume_mounts.as_ref().unwrap();
    let read_only: Vec<_> = mounts
        .iter()
        .map(|mount| (&*mount.mount_path, mount.read_only))
        .collect();
    assert_eq!(read_only, [("/host/run", Some(true))]);
    let volumes = pod.volumes.unwrap();
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes[0].host_path.as_ref().unwrap().path, "/run");
}

#[test]
fn the_agent_of_kairos_nodes_gets_a_flag_and_the_host_s_etc_and_nothing_else() {
    let patches = &read("overlays/agent-kairos/kustomization.yaml")[0]["patches"];
    let of = |kind: &str| {
        let mut all = patches.as_array().unwrap().iter();
        all.find(|patch| patch["target"]["kind"] == kind).unwrap()
    };
    assert_eq!(patches.as_array().unwrap().len(), 2);
    let operations: Value = serde_saphyr::from_str(of("DaemonSet")["patch"].as_str().unwrap()).unwrap();
    let pod = "/spec/template/spec";
    assert_eq!(
        operations,
        json!([
            { "op": "add", "path": format!("{pod}/containers/0/args/-"), "value": "--kairos-labels" },
            {
                "op": "add", "path": format!("{pod}/containers/0/volumeMounts/-"),
                "value": { "name": "etc", "mountPath": "/host/etc", "readOnly": true },
            },
            {
                "op": "add", "path": format!("{pod}/volumes/-"),
                "value": { "name": "etc", "hostPath": { "path": "/etc", "type": "Directory" } },
            },
        ])
    );
    // That they are the keys of the program is tested beside it.
    assert_eq!(of("ValidatingAdmissionPolicy")["path"], "admission.yaml");
}

#[test]
fn the_controller_s_pod_may_do_nothing_on_its_node() {
    let pod = pod();
    assert_eq!((pod.volumes, pod.host_network, pod.host_pid), (None, None, None));
    let context = pod.security_context.unwrap();
    let user = (context.run_as_non_root, context.run_as_user);
    assert_eq!(user, (Some(true), Some(65534)));
    assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
    let container = &pod.containers[0];
    // The image's entrypoint is the controller, and components add arguments.
    assert_eq!((&container.command, &container.args), (&None, &Some(Vec::new())));
    let context = container.security_context.clone().unwrap();
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    assert_eq!(context.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]));
}

/// Regression, seen on real nodes: with one control-plane node, a controller that was deleted while the node was
/// cordoned was never scheduled again.
#[test]
fn the_controller_can_be_scheduled_on_a_node_that_it_has_cordoned() {
    let cordoned = |toleration: &Toleration| {
        toleration.key.as_deref() == Some("node.kubernetes.io/unschedulable")
            && toleration.operator.as_deref() == Some("Exists")
            && toleration.effect.as_deref() == Some("NoSchedule")
    };
    assert!(pod().tolerations.unwrap().iter().any(cordoned));
}

/// A new pod must find room beside the old ones, which stay until it is Ready: also on a cluster of one node, and beside
/// system-upgrade-controller, whose anti-affinity keeps pods of its own name away.
#[test]
fn an_update_takes_no_controller_away_before_the_next_one_is_ready() {
    let deployment: Deployment = serde_json::from_value(kind("Deployment").next().unwrap()).unwrap();
    let strategy = deployment.spec.strategy.unwrap();
    assert_eq!(strategy.type_.as_deref(), Some("RollingUpdate"));
    let update = serde_json::to_value(strategy.rolling_update).unwrap();
    assert_eq!(update, json!({ "maxSurge": 1, "maxUnavailable": 0 }));
    let affinity = pod().affinity.unwrap().pod_anti_affinity.unwrap();
    assert_eq!(
        affinity.required_during_scheduling_ignored_during_execution,
        Some(Vec::new()),
        "empty, so that it replaces the rule of system-upgrade-controller"
    );
    let labels = deployment.spec.template.metadata.unwrap().labels.unwrap();
    assert_ne!(labels["app.kubernetes.io/name"], "system-upgrade-controller");
    // The label of the Deployment's selector is also on pods of Jobs.
    for (kind, path) in [
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        let object = self::kind(kind).next().unwrap();
        let selected = object.pointer(path).unwrap().as_object().unwrap();
        assert!(!selected.contains_key("upgrade.cattle.io/controller"), "{kind}");
        assert!(
            selected.iter().all(|(name, value)| labels[name] == *value),
            "{kind}"
        );
    }
}

#[test]
fn the_image_holds_the_program_its_link_and_nothing_else() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Containerfile");
    let text = std::fs::read_to_string(file).unwrap().replace("\\\n", " ");
    let (build, image) = text
        .split_once("\nFROM scratch\n")
        .expect("the last stage is empty");
    for step in [
        r#"install -D "target/$target/release/refit" /image/bin/refit"#,
        "ln -s refit /image/bin/system-upgrade-controller",
    ] {
        assert!(build.contains(step), "{build}");
    }
    let of = |instruction: &str| -> Vec<String> {
        let lines = image.lines().filter_map(|line| line.strip_prefix(instruction));
        lines.map(|rest| rest.trim().to_owned()).collect()
    };
    assert_eq!(of("COPY"), ["--from=build /image/ /"]);
    assert_eq!(of("USER"), ["65534:65534"]);
    assert_eq!(of("ENTRYPOINT"), [r#"["/bin/refit"]"#]);
    for more in ["FROM", "RUN", "ADD", "CMD", "ENV", "VOLUME", "EXPOSE"] {
        assert_eq!(of(more), [""; 0], "{more}");
    }
}
