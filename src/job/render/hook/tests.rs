use super::*;
use crate::inputs::hook_inputs;
use crate::name::hook_job_name;
use crate::render::tests::{plan_input, settings, spec};
use k8s_openapi::api::core::v1::Container;

const PLAN: &str = "
concurrency: 1
hostAccess: Full
serviceAccountName: upgrades
tolerations: [{ key: node-role.kubernetes.io/control-plane, operator: Exists }]
upgrade: { image: rancher/k3s-upgrade }
";

fn job(hooks: &str) -> Job {
    let spec = spec(&format!("{PLAN}{hooks}"));
    let input = HookInput {
        plan: plan_input(&spec),
        hook: Hook::Before,
        name: "before-k3s",
        attempt: 1,
    };
    hook_job(&input, &settings()).unwrap().unwrap()
}

fn parts(job: &Job) -> (&PodSpec, &Container) {
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    (pod, &pod.containers[0])
}

#[test]
fn a_hook_runs_anywhere_without_privileges_or_the_host_and_has_the_version() {
    let job = job("before: { image: smoke }");
    let (pod, container) = parts(&job);
    assert_eq!(container.name, "before");
    assert_eq!(container.image.as_deref(), Some("smoke:v1"));
    assert_eq!((&pod.affinity, &pod.node_selector), (&None, &None));
    assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (None, None, None));
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, Some(false));
    assert!(
        pod.volumes
            .iter()
            .flatten()
            .all(|volume| volume.host_path.is_none())
    );
    let env = container.env.as_ref().unwrap();
    let version = env.iter().find(|one| one.name == names::ENV_PLAN_LATEST_VERSION);
    assert_eq!(version.unwrap().value.as_deref(), Some("v1"));
    // It does not start on a cordoned node.
    let keys: Vec<_> = pod
        .tolerations
        .iter()
        .flatten()
        .map(|one| one.key.as_deref())
        .collect();
    assert_eq!(keys, [Some("node-role.kubernetes.io/control-plane")]);
}

#[test]
fn a_hook_gets_the_node_and_the_host_that_it_asks_for() {
    let job = job("before:
  image: rancher/k3s-upgrade
  nodeSelector: { node-role.kubernetes.io/control-plane: \"true\" }
  hostAccess: Full
  volumes: [{ name: data, source: /var/lib/rancher, destination: /var/lib/rancher }]");
    let (pod, container) = parts(&job);
    assert_eq!(pod.host_network, Some(true));
    assert_eq!(pod.node_selector.as_ref().unwrap().len(), 1);
    let mounts = container.volume_mounts.as_ref().unwrap();
    for path in ["/host", "/var/lib/rancher"] {
        let mount = mounts.iter().find(|mount| mount.mount_path == path).unwrap();
        assert_eq!(mount.read_only, None, "a snapshot is written to the host");
    }
}

#[test]
fn system_upgrade_controller_does_not_take_the_job_for_its_own_and_refit_sees_its_pods() {
    let job = job("before: { image: smoke }");
    let labels = job.metadata.labels.as_ref().unwrap();
    assert_ne!(labels[names::LABEL_CONTROLLER], "system-upgrade-controller");
    assert_eq!(
        (
            labels[names::LABEL_HOOK].as_str(),
            labels[names::LABEL_PLAN].as_str()
        ),
        ("before", "k3s")
    );
    assert!(!labels.contains_key(names::LABEL_NODE));
    let template = job.spec.as_ref().unwrap().template.metadata.as_ref().unwrap();
    let of_pod = template.labels.as_ref().unwrap();
    assert_eq!(of_pod[names::LABEL_CONTROLLER], "system-upgrade-controller");
    assert_eq!(job.metadata.owner_references.as_ref().unwrap()[0].uid, "plan-uid");
}

#[test]
fn an_edit_of_a_hook_gives_another_job_and_neither_another_hash_nor_other_jobs_of_nodes() {
    let name = |hooks: &str, attempt| {
        let spec = spec(&format!("{PLAN}{hooks}"));
        let inputs = hook_inputs(&spec, Hook::Before, "v1").unwrap();
        hook_job_name(Hook::Before, ["k3s", "plan-uid"], "hash", &inputs, attempt)
    };
    let first = name("before: { image: smoke }", 1);
    assert!(first.starts_with("before-k3s-"), "{first}");
    assert_eq!(first, name("before: { image: smoke }\nafter: { image: x }", 1));
    assert_ne!(first, name("before: { image: smoke }", 2));
    assert_ne!(first, name("before: { image: smoke, args: [a] }", 1));
    let inputs = |hooks: &str| crate::inputs::inputs(&spec(&format!("{PLAN}{hooks}")), "v1");
    assert_eq!(inputs(""), inputs("before: { image: smoke }"));
    let hash = |hooks: &str| {
        let plan = refit_api::Plan::new("k3s", spec(&format!("{PLAN}{hooks}")));
        crate::digest::plan_hash(&plan, "v1", Vec::<String>::new())
    };
    assert_eq!(hash(""), hash("after: { image: smoke }"));
}
