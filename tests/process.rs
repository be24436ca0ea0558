//! The controller as a process: what it is told by flags and environment, how it ends, what it says and what it costs.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::rollout::{PLAN, RollOut, Shape, logs};
use crate::support::controller::{Controller, NAME, Setup};
use crate::support::faults::Rule;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

const ONE_NODE: Shape = Shape {
    nodes: 1,
    concurrency: 1,
    run: Duration::from_millis(100),
};

/// The Job of the one node, once there is one.
async fn job(rollout: &RollOut) -> Value {
    let job: Job = wait::eventually("there is a Job", SOON, async || {
        let mut jobs = rollout.world.jobs_of(PLAN).await;
        jobs.pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    serde_json::to_value(job).expect("a Job is JSON")
}

/// Without what the manifests say about Jobs.
fn bare(world: &World) -> Setup {
    let told = [
        "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS",
        "SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT",
        "SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY",
        "SYSTEM_UPGRADE_JOB_PRIVILEGED",
        "SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH",
    ];
    told.into_iter().fold(world.controller(), Setup::without_env)
}

/// What of a Job the environment decides.
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
async fn what_the_environment_says_about_jobs_is_in_them() {
    let mut rollout = RollOut::prepare(World::new().await, ONE_NODE).await;
    rollout.spec["upgrade"]["securityContext"] = json!({ "runAsUser": 7 });
    rollout.spec["jobActiveDeadlineSecs"] = json!(5_000);
    let controller = bare(&rollout.world)
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
    // Every SUC installation sets it.
    assert_eq!(
        controller
            .log()
            .matches("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE has no effect")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_variable_about_jobs_that_cannot_be_read_is_told_and_its_default_is_used() {
    let rollout = RollOut::prepare(World::new().await, ONE_NODE).await;
    let bad = [
        ("SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS", "ten minutes"),
        ("SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX", "1e3"),
        ("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "99999999999"),
        ("SYSTEM_UPGRADE_JOB_PRIVILEGED", "yes"),
        ("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "-"),
        ("ALLOW_USER_DEFINED_SECURITY_CONTEXT", "on"),
        ("SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", "often"),
    ];
    let setup = bad
        .into_iter()
        .fold(bare(&rollout.world), |setup, (name, value)| {
            setup.env(name, value)
        });
    let controller = setup.start();
    rollout.begin().await;
    let got = decided(&job(&rollout).await);
    let image = got["own image"].as_str().unwrap_or_default().to_owned();
    assert!(image.contains("refit:"), "{image}");
    let expected = json!({
        "deadline": 600,
        "backoff": 2,
        "replacement": "TerminatingOrFailed",
        "ttl": "900",
        "pull": "IfNotPresent",
        "privileged": true,
        "user": null,
        "own image": image,
    });
    assert_eq!(got, expected);
    let log = controller.log();
    for (name, _) in bad {
        assert_eq!(
            log.matches(&format!("failed to parse ${name}: ")).count(),
            1,
            "{name} in\n{log}"
        );
    }
}

#[tokio::test]
async fn a_program_that_is_not_told_what_it_needs_says_so_and_ends_with_2() {
    let world = World::new().await;
    let said = async |setup: Setup, expected: &str| {
        let controller = setup.start();
        let status = controller.ended(SOON).await;
        let log = controller.log();
        assert_eq!(status.code(), Some(2), "{log}");
        assert!(log.contains(expected), "{expected:?} is not in\n{log}");
    };
    let setup = |name: &str| world.controller().replica(name);
    said(
        setup("no-name").without_env("SYSTEM_UPGRADE_CONTROLLER_NAME"),
        "--name is required",
    )
    .await;
    said(
        setup("no-namespace").without_env("SYSTEM_UPGRADE_CONTROLLER_NAMESPACE"),
        "--namespace is required",
    )
    .await;
    said(
        setup("threads").env("SYSTEM_UPGRADE_CONTROLLER_THREADS", "many"),
        "SYSTEM_UPGRADE_CONTROLLER_THREADS",
    )
    .await;
    said(
        setup("debug").env("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "very"),
        "SYSTEM_UPGRADE_CONTROLLER_DEBUG",
    )
    .await;
    said(
        setup("times").env("CATTLE_ELECTION_RENEW_DEADLINE", "60s"),
        "renew deadline",
    )
    .await;
    said(setup("flag").arg("--no-such-flag"), "--no-such-flag").await;
}

#[tokio::test]
async fn flags_count_before_the_environment_with_and_without_the_subcommand() {
    for (at, command) in [None, Some("controller")].into_iter().enumerate() {
        let rollout = RollOut::prepare(World::new().await, ONE_NODE).await;
        let world = &rollout.world;
        let setup = world
            .controller()
            .env("SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", "somewhere-else")
            .env("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "another-machine")
            .env(
                "SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG_OF_A_TEST",
                "unknown variables are nobody's business",
            )
            .env("SYSTEM_UPGRADE_CONTROLLER_MASTER_URL", "https://127.0.0.1:1");
        let setup = command.into_iter().fold(setup, Setup::arg);
        let file = std::fs::read_to_string(world.kubeconfig()).expect("the kubeconfig");
        let file: Value = serde_json::from_str(&file).expect("JSON");
        let server = file["clusters"][0]["cluster"]["server"]
            .as_str()
            .expect("a server")
            .to_owned();
        let machine = format!("{}-machine", world.id);
        let args = [
            "--namespace",
            world.namespace(),
            "--node-name",
            &machine,
            // As Go's flags may be written.
            "-leader-elect=false",
            "--master",
            &server,
        ];
        let controller = args.into_iter().fold(setup, Setup::arg).start();
        rollout.begin().await;
        rollout.ends_well().await;
        assert!(controller.is_running());
        let leases = world.requests().await.by(&world.user()).0;
        assert!(
            leases.iter().all(|request| request.resource != "leases"),
            "{at}: there is an election"
        );

        // S63: about the node it runs on, in `default`.
        let about = ListParams::default().fields(&format!("involvedObject.name={machine}"));
        let events = Api::<Event>::namespaced(world.client.clone(), "default")
            .list(&about)
            .await
            .expect("events");
        let told: Vec<_> = events
            .items
            .iter()
            .map(|event| event.reason.clone().unwrap_or_default())
            .collect();
        assert_eq!(told, ["Started"], "without an election nothing is said of one");
        let message = events.items[0].message.clone().unwrap_or_default();
        assert!(
            message.ends_with(&format!("running as {}/{NAME}", world.namespace())),
            "{message}"
        );
        let source = events.items[0].source.clone().unwrap_or_default();
        assert_eq!(
            (source.component.as_deref(), source.host.as_deref()),
            (Some(NAME), Some(&*machine))
        );
    }
}

#[tokio::test]
async fn a_controller_that_is_told_to_end_ends_what_it_has_begun() {
    let shape = Shape {
        nodes: 24,
        concurrency: 24,
        run: Duration::from_millis(500),
    };
    let rollout = RollOut::prepare(World::new().await, shape).await;
    let faults = rollout.world.faults(0).await;
    let controller = rollout.world.controller().through(&faults).start();
    controller.leading().await;
    // Each answer takes a moment, so that many writes are under way.
    faults.add(Rule::on("patch", "nodes").late(Duration::from_millis(700)));
    rollout.begin().await;
    let under_way = || {
        let history = faults.history();
        history
            .iter()
            .filter(|passed| passed.asked.verb == "patch" && passed.asked.resource == "nodes")
            .count()
    };
    wait::eventually("nodes are being written", SOON, async || match under_way() {
        0..5 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    let started = std::time::Instant::now();
    let status = controller.terminate().await;
    let took = started.elapsed();
    assert_eq!(status.code(), Some(0), "{}", controller.log());
    assert!(took < Duration::from_secs(9), "{took:?}");
    let log = controller.log();
    assert!(!log.contains("some requests got no answer"), "{log}");
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
        rollout.world.client.clone(),
        rollout.world.namespace(),
    );
    let spec = leases
        .get(NAME)
        .await
        .expect("the Lease")
        .spec
        .unwrap_or_default();
    assert_eq!(
        spec.holder_identity.as_deref(),
        Some(""),
        "the Lease is given back"
    );

    faults.heal();
    let again = controller.start_again();
    rollout.ends_well().await;
    modest(&again);
}

/// The budgets are the bench's; this is a roll-out of some nodes, in a program that is not optimised, whose own pages are
/// most of its memory.
fn modest(controller: &Controller) {
    let (Some(peak), Some(program)) = (controller.peak_memory(), controller.program_memory()) else {
        return;
    };
    let data = peak.saturating_sub(program);
    assert!(data <= 32 << 20, "{} MiB", data >> 20);
}

#[tokio::test]
async fn a_log_in_json_is_json_line_by_line() {
    let shape = Shape { nodes: 3, ..ONE_NODE };
    let rollout = RollOut::prepare(World::new().await, shape).await;
    let faults = rollout.world.faults(0).await;
    faults.add(Rule::write().every(4).answer(500));
    let setup = rollout.world.controller().through(&faults);
    let controller = setup
        .env("REFIT_LOG_FORMAT", "json")
        .env("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "true")
        .start();
    rollout.begin().await;
    rollout.ends_well().await;
    assert_eq!(controller.terminate().await.code(), Some(0));
    let [(_, log)] = <[_; 1]>::try_from(logs(&rollout.world)).expect("one log");
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
        assert!(
            lines.iter().any(|line| line["level"] == level),
            "nothing at {level} in\n{log}"
        );
    }
}
