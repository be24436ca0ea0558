//! The controller as a process: flags and environment, exit codes, output, resource usage.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::rollout::{RollOut, Shape, logs};
use crate::testenv::context::TestContext;
use crate::testenv::controller::{NAME, Setup};
use crate::testenv::faults::Rule;

const ONE_NODE: Shape = Shape {
    nodes: 1,
    concurrency: 1,
    run: Duration::from_millis(100),
};

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
