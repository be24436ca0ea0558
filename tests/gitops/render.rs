//! `refit render`: the Job, offline by what is in the files, and on a real cluster the very Job that the controller makes.

use std::fs;
use std::path::Path;

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{command, folder, refit, stderr, stdout};
use crate::scene::Scene;
use crate::support::bed::Bed;
use crate::support::channel::ChannelServer;
use crate::support::world::cluster::create;

/// The vectors of S29 and S43 are about this one.
const PLAN: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: k3s-server, namespace: system-upgrade, labels: {team: a}}
spec:
  concurrency: 1
  version: v1.20.11+k3s1
  nodeSelector: {matchLabels: {k3s-upgrade: enabled}}
  serviceAccountName: system-upgrade
  drain: {force: true}
  upgrade: {image: rancher/k3s-upgrade}
";
const JOB: &str = "apply-k3s-server-on-node1-with-21c75c607087495cc7f2c945c5-43b87";

fn render(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = refit(dir, &[&["render"], arguments].concat());
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

fn written(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plan.yaml"), text).unwrap();
    dir
}

fn job(dir: &Path, arguments: &[&str]) -> Value {
    let (code, out, err) = render(dir, &[&["-o", "json", "plan.yaml"], arguments].concat());
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_job_is_made_offline_with_the_name_and_hash_that_the_controller_gives() {
    let dir = written(PLAN);
    let (code, out, err) = render(dir.path(), &["plan.yaml", "--node", "node1.example.com"]);
    assert_eq!(code, 0, "{err}");
    let from_yaml: Value = serde_saphyr::from_str(&out).unwrap();
    let job = job(dir.path(), &["--node", "node1.example.com"]);
    assert_eq!(from_yaml, job);
    assert_eq!(job["apiVersion"], "batch/v1");
    assert_eq!(job["kind"], "Job");
    assert_eq!(job["metadata"]["name"], JOB);
    assert_eq!(job["metadata"]["namespace"], "system-upgrade");
    assert_eq!(job["metadata"]["labels"]["team"], "a");
    assert_eq!(
        job["metadata"]["labels"]["plan.upgrade.cattle.io/k3s-server"],
        "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c"
    );
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "rancher/k3s-upgrade:v1.20.11-k3s1");
    assert_eq!(pod["initContainers"][0]["args"][1], "node1.example.com");
    assert!(
        err.contains("00000000-0000-0000-0000-000000000000"),
        "what is assumed is said: {err}"
    );
}

#[test]
fn settings_are_the_controllers_by_environment_and_by_its_config_map() {
    let dir = written(PLAN);
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "default-controller-env" },
        "data": { "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT": "99", "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS": "900" },
    });
    fs::write(dir.path().join("config.yaml"), config.to_string()).unwrap();
    let arguments = [
        "render",
        "-o=json",
        "--node=a",
        "--config=config.yaml",
        "--name=mine",
        "plan.yaml",
    ];
    let output = command(dir.path(), &arguments)
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7")
        .env("REFIT_IMAGE", "example.com/refit:v9")
        .output()
        .unwrap();
    let job: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(job["spec"]["backoffLimit"], 7, "the environment counts more");
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 900);
    assert_eq!(job["metadata"]["labels"]["upgrade.cattle.io/controller"], "mine");
    assert_eq!(
        job["spec"]["template"]["spec"]["initContainers"][0]["image"],
        "example.com/refit:v9"
    );
}

#[test]
fn a_node_that_is_given_is_held_against_the_selector_and_windows_is_another_thing() {
    let dir = written(PLAN);
    let node = |labels: Value| {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "node1", "uid": "node-uid", "labels": labels },
        });
        fs::write(dir.path().join("node.yaml"), node.to_string()).unwrap();
    };
    node(json!({ "kubernetes.io/hostname": "node1", "k3s-upgrade": "enabled", "kubernetes.io/os": "linux" }));
    let job = job(dir.path(), &["--node-file", "node.yaml"]);
    assert_eq!(job["metadata"]["annotations"]["refit.rs/node-uid"], "node-uid");
    assert_eq!(
        job["metadata"]["annotations"].get("refit.rs/unschedulable-before"),
        None
    );

    node(json!({ "kubernetes.io/hostname": "node1" }));
    let (code, out, err) = render(dir.path(), &["--node-file", "node.yaml", "plan.yaml"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("does not select node node1"), "{err}");
    let (code, ..) = render(
        dir.path(),
        &["--node=node1", "--label=k3s-upgrade=disabled", "plan.yaml"],
    );
    assert_eq!(code, 1);

    let (code, _, err) = render(dir.path(), &["--node=node1", "--os=windows", "plan.yaml"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required"),
        "{err}"
    );
    let output = command(
        dir.path(),
        &["render", "-o=json", "--node=node1", "--os=windows", "plan.yaml"],
    )
    .env(
        "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS",
        "example.com/kubectl:v1",
    )
    .output()
    .unwrap();
    let job: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        job["metadata"]["annotations"]["refit.rs/unschedulable-before"],
        "false"
    );
    assert_eq!(
        job["spec"]["template"]["spec"]["initContainers"][0]["image"],
        "example.com/kubectl:v1"
    );
}

#[test]
fn secrets_in_the_files_count_towards_the_hash_as_on_a_cluster() {
    // S43: version bionic, this account, and a Secret whose hash is 2tg9fbfm4c.
    let text = "apiVersion: v1
kind: Secret
metadata: {name: test, namespace: system-upgrade}
stringData: {config: test}
---
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: bionic, namespace: system-upgrade}
spec:
  version: bionic
  serviceAccountName: system-upgrade
  secrets: [{name: test, path: /a}]
  upgrade: {image: ubuntu}
";
    let dir = written(text);
    let hash = |job: &Value| job["metadata"]["labels"]["plan.upgrade.cattle.io/bionic"].clone();
    let rendered = job(dir.path(), &["--node=a"]);
    assert_eq!(
        hash(&rendered),
        "95450d71b15c26e5794af5b4d6cd1daf20a090727be74570816c5eba"
    );
    let dir = written(text.split_once("---\n").unwrap().1);
    let (code, out, err) = render(dir.path(), &["--node=a", "-o=json", "plan.yaml"]);
    assert_eq!(code, 0);
    assert_ne!(hash(&serde_json::from_str(&out).unwrap()), hash(&rendered));
    assert!(err.contains("Secret test is not known"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_is_the_one_given_the_plans_own_or_what_the_channel_says() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.34.1+k3s1").fails("/gone", 404);
    let version = |job: &Value| job["metadata"]["labels"]["upgrade.cattle.io/version"].clone();
    let following = |path: &str| {
        PLAN.replace(
            "version: v1.20.11+k3s1",
            &format!("channel: {}", server.url(path)),
        )
    };
    let dir = written(&following("/stable"));
    assert_eq!(version(&job(dir.path(), &["--node=a"])), "v1.34.1-k3s1");
    assert_eq!(
        version(&job(dir.path(), &["--node=a", "--version=v1.30.0+k3s1"])),
        "v1.30.0-k3s1"
    );
    assert_eq!(
        server.asked("/stable").len(),
        1,
        "nobody is asked for what is given"
    );
    // What the Plan's policy does not let the controller take is not rendered either.
    let dir = written(&format!(
        "{}  versionPolicy: {{range: <1.34}}\n",
        following("/stable")
    ));
    let (code, out, err) = render(dir.path(), &["--node=a", "plan.yaml"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(
        err.contains("v1.34.1+k3s1 is not in the range <1.34; --version gives"),
        "{err}"
    );

    let dir = written(&following("/gone"));
    let (code, _, err) = render(dir.path(), &["--node=a", "plan.yaml"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("404 Not Found") && err.contains("--version gives one"),
        "{err}"
    );
}

#[test]
fn what_would_be_refused_is_not_rendered_and_one_plan_can_be_chosen() {
    let dir = written(&PLAN.replace("concurrency: 1", "concurrency: one"));
    let (code, out, err) = render(dir.path(), &["--node=a", "plan.yaml"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("plan.yaml:5:16: spec.concurrency is text, and must be a whole number [wrong-type]"),
        "{err}"
    );
    let dir = written(&format!(
        "{PLAN}---\n{}",
        PLAN.replace("name: k3s-server", "name: other")
    ));
    let both: Value = job(dir.path(), &["--node=a"]);
    assert_eq!(both["items"].as_array().unwrap().len(), 2);
    let one = job(dir.path(), &["--node=a", "--plan=other"]);
    assert_eq!(one["metadata"]["labels"]["upgrade.cattle.io/plan"], "other");
    assert_eq!(render(dir.path(), &["--node=a", "--plan=none", "plan.yaml"]).0, 2);
}

/// What is in `expected` is in `found`; the API server may have added to it.
fn holds(found: &Value, expected: &Value, at: &str, wrong: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, expected) in expected {
                let found = found.get(key).unwrap_or(&Value::Null);
                holds(found, expected, &format!("{at}.{key}"), wrong);
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                holds(found, expected, &format!("{at}[{index}]"), wrong);
            }
        }
        _ if found == expected => {}
        _ => wrong.push(format!("{at}: {found} instead of {expected}")),
    }
}

#[test]
fn the_pod_that_reboots_the_node_follows_the_job_of_a_plan_that_may_reboot() {
    let with = |reboot: &str| format!("{PLAN}  reboot: {reboot}\n");
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: node1, uid: uid-of-the-node, labels: {k3s-upgrade: enabled, kubernetes.io/hostname: node1}}\nstatus:\n  nodeInfo: {bootID: \
                boot-1, architecture: amd64, containerRuntimeVersion: x, kernelVersion: x, kubeProxyVersion: x, \
                kubeletVersion: v1, machineID: x, operatingSystem: linux, osImage: x, systemUUID: x}\n";
    for reboot in [
        "{when: Always, timeout: 7m, command: [halt]}",
        "{when: IfRequired, timeout: 7m, command: [halt]}",
    ] {
        let dir = written(&with(reboot));
        fs::write(dir.path().join("node.yaml"), node).unwrap();
        let list = job(dir.path(), &["--node-file", "node.yaml"]);
        let kinds: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["kind"])
            .collect();
        assert_eq!(kinds, ["Job", "Pod"], "{list:#}");
        let pod = &list["items"][1];
        assert_eq!(pod["spec"]["nodeName"], "node1", "{pod:#}");
        assert_eq!(pod["spec"]["activeDeadlineSeconds"], 420);
        let args = pod["spec"]["containers"][0]["args"].to_string();
        assert!(
            args.contains("--boot-id=boot-1") && args.contains("halt"),
            "{args}"
        );

        let (code, out, err) = render(dir.path(), &["plan.yaml", "--node", "node1"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.matches("\nkind: ").count(), 2, "{out}");
        assert!(err.contains("the boot of the node"), "{err}");
    }
    let dir = written(&with("{when: Never}"));
    assert_eq!(job(dir.path(), &["--node", "node1"])["kind"], "Job");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rendered_live_is_the_job_that_the_controller_makes() {
    let scene = Scene::new(["one"]).await;
    let secret = json!({ "metadata": { "name": "watched" }, "stringData": { "config": "first" } });
    create(&scene.world.secrets(), secret).await;
    let _controller = scene
        .world
        .controller()
        .env("REFIT_IMAGE", "example.com/refit:v9")
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7")
        .start();
    let spec = json!({
        "secrets": [{ "name": "watched", "path": "/run/watched" }], "cordon": true, "jobActiveDeadlineSecs": 300,
    });
    scene
        .plan(
            "rendered",
            json!({ "spec": spec, "metadata": { "labels": { "team": "a" } } }),
        )
        .await;
    let made = scene.job_until("rendered", "one", "is there", |_| true).await;

    // The Plan as it would be in a repository.
    let mut plan = serde_json::to_value(scene.world.plans().get("rendered").await.unwrap()).unwrap();
    plan.as_object_mut().unwrap().remove("status");
    plan["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| ["name", "namespace", "labels"].contains(&key.as_str()));
    let dir = written(&plan.to_string());
    let (node, controller) = (
        scene.node("one"),
        made.labels()["upgrade.cattle.io/controller"].clone(),
    );
    let output = command(
        dir.path(),
        &[
            "render",
            "-o=json",
            "--live",
            "plan.yaml",
            "--node",
            &node,
            "--name",
            &controller,
        ],
    )
    // What the tests' controllers are set by.
    .arg("--config")
    .arg(folder("").join("../../deploy/config.yaml"))
    .arg("--kubeconfig")
    .arg(Bed::shared().await.kubeconfig())
    .env("REFIT_IMAGE", "example.com/refit:v9")
    .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7")
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rendered: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let mut wrong = Vec::new();
    holds(
        &serde_json::to_value(&made).unwrap(),
        &rendered,
        "job",
        &mut wrong,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(stderr(&output), "", "nothing had to be assumed");
}
