//! The controller as a process: flags and environment, exit codes, output, resource usage.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::rollout::{PLAN, RollOut, Shape, logs};
use crate::testenv::context::TestContext;
use crate::testenv::controller::{NAME, Setup};
use crate::testenv::faults::{ProxiedRequest, Rule};
use crate::testenv::wait::{self, SOON};

const ONE_NODE: Shape = Shape {
    nodes: 1,
    concurrency: 1,
    run: Duration::from_millis(100),
};

/// The Job of the one node, once there is one.
async fn job(rollout: &RollOut) -> Value {
    let job: Job = wait::eventually("there is a Job", SOON, async || {
        let mut jobs = rollout.ctx.jobs_of(PLAN).await;
        jobs.pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    serde_json::to_value(job).expect("a Job is JSON")
}

/// Without the manifests' settings of Jobs.
fn bare(ctx: &TestContext) -> Setup {
    let variables = [
        "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS",
        "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT",
        "SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY",
        "SYSTEM_UPGRADE_JOB_PRIVILEGED",
        "SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH",
    ];
    variables.into_iter().fold(ctx.controller(), Setup::without_env)
}

/// The fields of a Job that the environment determines.
fn decided(job: &Value) -> Value {
    let pod = &job["spec"]["template"]["spec"];
    json!({
        "deadline": job["spec"]["activeDeadlineSeconds"],
        "backoff": job["spec"]["backoffLimit"],
        "replacement": job["spec"]["podReplacementPolicy"],
        "ttl": job["metadata"]["annotations"]["upgrade.cattle.io/ttl-seconds-after-finished"],
        "pull": pod["containers"][0]["imagePullPolicy"],
        "privileged": pod["containers"][0]["securityContext"]["privileged"],
        "user": pod["containers"][0]["securityContext"]["runAsUser"],
        "own image": pod["initContainers"][0]["image"],
    })
}

#[tokio::test]
async fn job_settings_from_the_environment_are_in_the_jobs_and_invalid_ones_in_the_log() {
    let mut rollout = RollOut::prepare(TestContext::new().await, ONE_NODE).await;
    rollout.spec["upgrade"]["securityContext"] = json!({ "runAsUser": 7 });
    rollout.spec["jobActiveDeadlineSecs"] = json!(5_000);
    let controller = bare(&rollout.ctx)
        .env("SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS", "321")
        .env("SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX", "1000")
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "7")
        .env("SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY", "Never")
        .env("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE", "example.com/kubectl:v1")
        .env("SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY", "Failed")
        .env("SYSTEM_UPGRADE_JOB_PRIVILEGED", "F")
        .env("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "77")
        .env("ALLOW_USER_DEFINED_SECURITY_CONTEXT", "false")
        .env("REFIT_IMAGE", "example.com/refit:v9")
        .env("SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", "often")
        .start();
    rollout.begin().await;
    let expected = json!({
        "deadline": 1000,
        "backoff": 7,
        "replacement": "Failed",
        "ttl": "77",
        "pull": "Never",
        "privileged": false,
        "user": null,
        "own image": "example.com/refit:v9",
    });
    assert_eq!(decided(&job(&rollout).await), expected);
    let log = controller.log();
    for warning in [
        // Every installation of system-upgrade-controller sets it.
        "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE has no effect",
        "failed to parse $SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL: ",
    ] {
        assert_eq!(log.matches(warning).count(), 1, "{warning} in\n{log}");
    }
}

#[tokio::test]
async fn flags_take_precedence_over_the_environment_with_and_without_the_subcommand() {
    for command in [None, Some("controller")] {
        let rollout = RollOut::prepare(TestContext::new().await, ONE_NODE).await;
        let ctx = &rollout.ctx;
        let setup = ctx
            .controller()
            .env("SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", "somewhere-else")
            .env("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "another-machine")
            .env(
                "SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG_OF_A_TEST",
                "unknown variables are ignored",
            )
            .env("SYSTEM_UPGRADE_CONTROLLER_MASTER_URL", "https://127.0.0.1:1");
        let setup = command.into_iter().fold(setup, Setup::arg);
        let file = std::fs::read_to_string(ctx.kubeconfig()).expect("the kubeconfig");
        let file: Value = serde_json::from_str(&file).expect("JSON");
        let server = file["clusters"][0]["cluster"]["server"]
            .as_str()
            .expect("a server");
        let machine = format!("{}-machine", ctx.id);
        let args = [
            "--namespace",
            ctx.namespace(),
            "--node-name",
            &machine,
            // With one dash, as Go accepts flags.
            "-leader-elect=false",
            "--master",
            server,
        ];
        let controller = args.into_iter().fold(setup, Setup::arg).start();
        rollout.begin().await;
        rollout.check_success().await;
        assert!(controller.is_running());
        let requests = ctx.requests().await.by(&ctx.user()).0;
        let is_electing = requests.iter().any(|request| request.resource == "leases");
        assert!(!is_electing, "{command:?}");

        // S63: about the node it runs on, in `default`.
        let about = ListParams::default().fields(&format!("involvedObject.name={machine}"));
        let events = Api::<Event>::namespaced(ctx.client.clone(), "default");
        let events = events.list(&about).await.expect("events").items;
        let reasons: Vec<_> = events.iter().map(|event| event.reason.as_deref()).collect();
        // There is no event of an election.
        assert_eq!(reasons, [Some("Started")]);
        let message = events[0].message.clone().unwrap_or_default();
        let name = format!("running as {}/{NAME}", ctx.namespace());
        assert!(message.ends_with(&name), "{message}");
        let source = events[0].source.clone().unwrap_or_default();
        let source = (source.component.as_deref(), source.host.as_deref());
        assert_eq!(source, (Some(NAME), Some(&*machine)));
    }
}

/// That it takes less than the kubelet gives it is measured in virtual time (`src/testkit/tests/engine/deadlines.rs`).
#[tokio::test]
async fn a_terminated_controller_completes_its_requests() {
    let shape = Shape {
        nodes: 24,
        concurrency: 24,
        run: Duration::from_millis(500),
    };
    let rollout = RollOut::prepare(TestContext::new().await, shape).await;
    let faults = rollout.ctx.faults(0).await;
    let controller = rollout.ctx.controller().through(&faults).start();
    controller.leading().await;
    // Each request is delayed, so that many writes are in flight.
    faults.add(Rule::on("patch", "nodes").delay(Duration::from_millis(700)));
    rollout.begin().await;
    let in_flight = || {
        let requests = faults.history().into_iter();
        let is_open = |it: &ProxiedRequest| {
            it.code.is_none() && it.api_request.verb == "patch" && it.api_request.resource == "nodes"
        };
        requests.filter(is_open).count()
    };
    wait::until("nodes are being written", async || in_flight(), |it| *it >= 1).await;
    let status = controller.terminate().await;
    assert_eq!(status.code(), Some(0), "{}", controller.log());
    // On a machine that answers nothing for seconds it may give up, and says so.
    if !controller.log().contains("some requests got no answer") {
        assert_eq!(in_flight(), 0, "{:#?}", faults.history());
    }
    let leases = Api::<Lease>::namespaced(rollout.ctx.client.clone(), rollout.ctx.namespace());
    let spec = leases
        .get(NAME)
        .await
        .expect("the Lease")
        .spec
        .unwrap_or_default();
    assert_eq!(spec.holder_identity.as_deref(), Some(""), "the Lease is released");

    faults.clear_rules();
    let _again = controller.start_again();
    rollout.check_success().await;
}

#[tokio::test]
async fn a_log_in_json_is_json_line_by_line() {
    let shape = Shape { nodes: 3, ..ONE_NODE };
    let rollout = RollOut::prepare(TestContext::new().await, shape).await;
    let faults = rollout.ctx.faults(0).await;
    faults.add(Rule::write().every(4).answer(500));
    let setup = rollout.ctx.controller().through(&faults);
    let controller = setup
        .env("REFIT_LOG_FORMAT", "json")
        .env("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "true")
        .start();
    rollout.begin().await;
    rollout.check_success().await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    let [(_, log)] = <[_; 1]>::try_from(logs(&rollout.ctx)).expect("one log");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "no {field}: {line}");
        }
        line["timestamp"]
            .as_str()
            .and_then(|at| at.parse::<jiff::Timestamp>().ok())
            .expect("a time");
    }
    for level in ["DEBUG", "INFO", "WARN"] {
        let has_level = lines.iter().any(|line| line["level"] == level);
        assert!(has_level, "no line at {level} in\n{log}");
    }
}

/// Its memory has Secrets in it.
#[tokio::test]
async fn a_controller_leaves_no_core_file() {
    let ctx = TestContext::new().await;
    let controller = ctx.controller().start();
    controller.leading().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", controller.pid())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let fields: Vec<_> = core.split_whitespace().collect();
    assert_eq!(fields[4..6], ["0", "0"], "{core}");
}
