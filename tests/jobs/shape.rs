//! The Job as the API server keeps it: system-upgrade-controller's (S30–S39), as far as refit does not differ on purpose.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use kube::ResourceExt as _;
use kube::api::Api;
use refit_api::SentinelReport;
use refit_job::name::job_name;
use serde_json::{Value, json};

use crate::harness::{Harness, has_condition, hash, is_recorded};
use crate::scenario::Backend;
use crate::testenv::context::cluster::create;
use crate::testenv::kubelet::NodeSet;
use crate::testenv::wait::{self, SOON};
use crate::testenv::{kubeconfig, manifest};

scenarios! {
    both {
        a_windows_node_gets_host_processes_and_the_kubectl_image,
        a_finished_job_goes_when_its_ttl_is_over_and_its_node_stays_done,
    }
    real {
        the_job_of_a_plan_that_says_everything,
        the_job_of_a_plan_that_may_reboot_its_node,
        a_job_is_made_once_and_gets_its_ttl_when_its_result_is_recorded,
        the_upgrade_of_a_plan_that_rancher_writes_reads_its_node_with_its_own_account,
    }
}

/// A Plan that uses every field that ends up in a Job.
const FULL: &str = include_str!("full.yaml");

/// A Job, without what is another in each run.
fn stored_job(harness: &Harness, job: &Job, known: &[(String, &str)]) -> String {
    let mut job = serde_json::to_value(job).unwrap();
    job.as_object_mut().unwrap().remove("status");
    let metadata = job["metadata"].as_object_mut().unwrap();
    for field in [
        "creationTimestamp",
        "managedFields",
        "resourceVersion",
        "uid",
        "generation",
    ] {
        metadata.remove(field);
    }
    // The API server's own: it ties the pods to the Job.
    let own = ["controller-uid", "batch.kubernetes.io/controller-uid"];
    for labels in ["/spec/template/metadata/labels", "/spec/selector/matchLabels"] {
        if let Some(Value::Object(labels)) = job.pointer_mut(labels) {
            labels.retain(|key, _| !own.contains(&key.as_str()));
        }
    }
    let text = serde_saphyr::to_string(&job).unwrap();
    let text = known.iter().fold(text, |text, (is, name)| text.replace(is, name));
    text.replace(&harness.ctx.id, "WORLD")
}

fn pod(job: &Job) -> &PodSpec {
    job.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

fn container<'a>(job: &'a Job, name: &str) -> &'a Container {
    let pod = pod(job);
    let inits = pod.init_containers.iter().flatten();
    inits
        .chain(&pod.containers)
        .find(|container| container.name == name)
        .unwrap()
}

/// The Job of a Plan on the only node, however it stands.
async fn job(harness: &Harness, plan: &str) -> Job {
    harness.job_until(plan, "one", "is there", |_| true).await
}

async fn the_job_of_a_plan_that_says_everything() {
    let harness = Harness::new(["one"]).await;
    for (name, kind) in [
        ("plain", "Opaque"),
        ("not-watched", "Opaque"),
        ("with.dots", "Opaque"),
    ] {
        let secret = json!({ "metadata": { "name": name }, "type": kind, "data": { "config": "dGVzdA==" } });
        create(&harness.ctx.secrets(), secret).await;
    }
    let _controller = harness
        .ctx
        .controller()
        .env("REFIT_IMAGE", "example.com/refit:v9")
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7")
        .env("SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY", "Failed")
        .start();
    let plan = harness.ctx.plan(FULL).await;
    harness.upgrading("full", "one").await;
    let job = harness.job("full", "one").await;

    let plan_hash = hash(&harness.ctx.plans().get("full").await.unwrap());
    assert_eq!(job.name_any(), job_name("full", &harness.node("one"), &plan_hash));
    let node_uid = harness.get("one").await.uid().unwrap();
    // Hash and inputs depend on the Plan and its secrets alone, so they are the same in every run.
    let known = [
        (job.name_any(), "JOB"),
        (plan.uid().unwrap(), "PLAN-UID"),
        (node_uid, "NODE-UID"),
        (harness.kubelet.boot_id(&harness.node("one")).await, "BOOT-ID"),
    ];
    insta::assert_snapshot!(stored_job(&harness, &job, &known));

    // The pod bears the same labels (S30), and is called by names that others rely on (S70).
    let pods = harness.ctx.pods_with("upgrade.cattle.io/plan=full").await;
    let [pod] = &pods[..] else {
        panic!("{} pods", pods.len())
    };
    assert_eq!(pod.labels()["upgrade.cattle.io/node"], harness.node("one"));
    assert_eq!(
        pod.spec.as_ref().unwrap().node_name.as_deref(),
        Some(&*harness.node("one"))
    );
    assert_eq!(pod.spec.as_ref().unwrap().containers[0].name, "upgrade");
}

async fn the_job_of_a_plan_that_may_reboot_its_node() {
    let harness = Harness::with(["one"], |set| set.steer("probe.run-delay", "never")).await;
    let controller = harness.ctx.controller();
    let _controller = controller.env("REFIT_IMAGE", "example.com/refit:v9").start();
    let spec = json!({
        "cordon": true,
        "hostAccess": "Root",
        "reboot": {"when": "IfRequired", "requiredFiles": ["/etc/reboot wanted"], "command": ["/sbin/reboot", "--force"]},
    });
    let plan = harness.plan_with("may-reboot", spec).await;
    let job = job(&harness, "may-reboot").await;
    let node = harness.node("one");
    let known = [
        (job.name_any(), "JOB"),
        (plan.uid().unwrap(), "PLAN-UID"),
        (harness.ctx.node(&node).await.uid().unwrap(), "NODE-UID"),
        (harness.kubelet.boot_id(&node).await, "BOOT-ID"),
        (
            hash(&harness.ctx.plans().get("may-reboot").await.unwrap()),
            "HASH",
        ),
    ];
    insta::assert_snapshot!(stored_job(&harness, &job, &known));
    // Its pod runs, and the sentinel says in which boot, and that nothing asks for another one.
    harness
        .kubelet
        .behaviour(&node, &[("probe.run-delay", "10ms")])
        .await;
    let message = wait::eventually("the sentinel has spoken", SOON, async || {
        let pods = harness.ctx.pods_with("upgrade.cattle.io/plan=may-reboot").await;
        let message = pods.iter().find_map(|pod| {
            let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
            let ended = statuses
                .iter()
                .find_map(|status| status.state.as_ref()?.terminated.as_ref())?;
            ended.message.clone()
        });
        message.ok_or_else(|| format!("{:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()))
    })
    .await;
    let report = SentinelReport::parse(&message).unwrap();
    assert_eq!(report.boot_id, harness.kubelet.boot_id(&node).await);
    assert!(!report.required);
    for container in ["probe", "upgrade", "sentinel"] {
        assert_eq!(harness.kubelet.runs(&node, container).await, 1, "{container}");
    }
}

/// With the variable of refit's own manifests, which is for their account alone.
async fn the_upgrade_of_a_plan_that_rancher_writes_reads_its_node_with_its_own_account() {
    let harness = Harness::held(["one"]).await;
    let (ctx, account) = (&harness.ctx, "system-agent-upgrader");
    let own = format!("{}-agent", ctx.id);
    let objects = json!([
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": ctx.namespace()}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": own},
         "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": own},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": own},
         "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": ctx.namespace()}]},
    ]);
    for object in objects.as_array().unwrap() {
        manifest::apply(&ctx.client, object).await.unwrap();
    }
    let _controller = ctx
        .controller()
        .env("REFIT_JOB_API_ACCESS", "PrepareOnly")
        .start();
    let upgrade = json!({"image": "example.com/rancher/system-agent", "envFrom": [{"secretRef": {"name": "of-the-agent", "optional": true}}]});
    harness
        .plan_with(
            "agent",
            json!({"serviceAccountName": account, "upgrade": upgrade}),
        )
        .await;
    let of_refit = json!({"serviceAccountName": "system-upgrade"});
    harness.plan_with("of-refit", of_refit).await;

    let pod_of = async |plan: &str| {
        harness.upgrading(plan, "one").await;
        let mut pods = ctx.pods_with(&format!("upgrade.cattle.io/plan={plan}")).await;
        pods.pop().unwrap()
    };
    let token_mount = |pod: &Pod| {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let mut mounts = container.volume_mounts.iter().flatten();
        let mount = mounts.find(|mount| mount.mount_path == "/var/run/secrets/kubernetes.io/serviceaccount");
        mount.map(|mount| mount.name.clone())
    };
    let pod = pod_of("agent").await;
    // The API server's own volume, as under system-upgrade-controller.
    let mount = token_mount(&pod).expect("no token is mounted");
    assert!(mount.starts_with("kube-api-access-"), "{mount}");
    let token = ctx.token_of(account, &pod).await;
    let path = ctx.write_kubeconfig("agent", &token);
    let client = kubeconfig::client(&path, "agent").await.unwrap();
    let node = harness.node("one");
    assert_eq!(
        Api::<Node>::all(client).get(&node).await.unwrap().name_any(),
        node
    );

    assert_eq!(token_mount(&pod_of("of-refit").await), None);
}

async fn a_windows_node_gets_host_processes_and_the_kubectl_image(on: Backend) {
    let windows = |set: NodeSet| {
        set.steer("run-delay", "never")
            .each(|_, node| "windows".clone_into(&mut node.os))
    };
    let harness = on.harness_with(["one"], windows).await;
    let container_of_plan = json!({ "image": "i:1", "securityContext": { "runAsUser": 5 } });
    let spec = json!({ "spec": { "cordon": true, "prepare": container_of_plan } });

    // Without the image nothing can cordon such a node, and status says what is missing (S63).
    let controller = harness.ctx.controller().start();
    harness.plan("windows", spec).await;
    let waits = harness.held_up("windows", "one", "SettingMissing").await;
    assert_eq!(
        waits.message.unwrap(),
        "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes"
    );
    assert!(harness.made().await.is_empty());

    controller.terminate().await;
    let setup = harness.ctx.controller();
    let _controller = setup
        .env(
            "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS",
            "example.com/kubectl:windows",
        )
        .start();
    let job = job(&harness, "windows").await;
    let host_process = json!({ "hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM" });
    for name in ["prepare", "cordon", "upgrade"] {
        let context = serde_json::to_value(&container(&job, name).security_context).unwrap();
        assert_eq!(context, json!({ "windowsOptions": host_process }), "{name}");
    }
    let cordon = container(&job, "cordon");
    assert_eq!(cordon.image.as_deref(), Some("example.com/kubectl:windows"));
    assert_eq!(cordon.args.as_deref().unwrap(), ["cordon", &harness.node("one")]);
    // kubectl keeps no ledger, so the Job remembers what the node was.
    assert_eq!(job.annotations()["refit.rs/unschedulable-before"], "false");
}

async fn a_job_is_made_once_and_gets_its_ttl_when_its_result_is_recorded() {
    let harness = Harness::held(["one"]).await;
    let _controller = harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "1234")
        .start();
    harness.plan("once", json!({})).await;
    harness.upgrading("once", "one").await;
    let running = harness.job("once", "one").await;
    assert_eq!(
        running.spec.as_ref().unwrap().parallelism,
        Some(1),
        "it is not made to stand still first"
    );
    assert_eq!(
        running.spec.as_ref().unwrap().ttl_seconds_after_finished,
        None,
        "its result could be lost"
    );
    assert_eq!(
        running.annotations()["upgrade.cattle.io/ttl-seconds-after-finished"],
        "1234"
    );
    assert!(running.metadata.managed_fields.is_some());

    harness.release("one").await;
    let plan_hash = harness.complete("once").await;
    let finished = harness.job_until("once", "one", "is recorded", is_recorded).await;
    assert!(has_condition(&finished, "Complete"));
    assert_eq!(
        finished.metadata.managed_fields, None,
        "nobody needs them any more"
    );
    let ttl = finished
        .spec
        .as_ref()
        .unwrap()
        .ttl_seconds_after_finished
        .unwrap();
    assert!(
        (1234..1234 + 60).contains(&ttl),
        "{ttl}: from when it is recorded"
    );

    harness.made_once_each([("one", &plan_hash)]).await;
    let requests = harness.ctx.controller_requests().await;
    assert_eq!(requests.count("delete", "jobs"), 0);
    // How often refit asks is counted in process (`src/testkit/tests/engine/requests.rs`).
    harness.expect_complete_events(["one"]).await;
}

async fn a_finished_job_goes_when_its_ttl_is_over_and_its_node_stays_done(on: Backend) {
    let harness = on.harness(["one"]).await;
    let controller = harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "0")
        .start();
    harness.plan("gone", json!({})).await;
    let plan_hash = harness.complete("gone").await;
    wait::until(
        "the Job is gone",
        async || harness.ctx.jobs_of("gone").await,
        Vec::is_empty,
    )
    .await;
    // Neither the loss of the Job nor a restart runs it again.
    controller.kill();
    let next = controller.start_again();
    next.leading().await;
    harness.edit("gone", json!({ "concurrency": 2 })).await;
    harness.complete("gone").await;
    harness.made_once_each([("one", &plan_hash)]).await;
}
