//! User mistakes: each has a clear status, starts nothing, blocks no other Plan, and loses nothing when it is
//! corrected.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Node, Secret};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use refit::api::Plan;
use serde_json::{Value, json};

use crate::testenv::context::{TestContext, create, done};
use crate::testenv::faults::Rule;
use crate::testenv::history::History;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

/// Maximum delay until a Plan reports that it has become valid or invalid.
const AT_ONCE: Duration = Duration::from_secs(1);
const NOT_READY: &str = "False/NotReady/plan is not valid and resolved";
/// Arguments with which the controller starts.
const WHOLE: &str = "--name n --namespace ns";
const VALID: &str = "True/PlanIsValid/";

fn invalid(why: &str) -> String {
    format!("False/Error/{why}")
}

fn validate_failed(why: &str) -> String {
    format!("Warning ValidateFailed: Failed to validate plan: {why}")
}

/// Checks that a Plan has an event that begins like this.
async fn has_event(ctx: &TestContext, plan: &str, begins: &str) {
    let events = ctx.event_lines(plan).await;
    let is_there = events.iter().any(|event| event.starts_with(begins));
    assert!(is_there, "{plan}: no {begins:?} in {events:#?}");
}

#[tokio::test]
async fn a_plan_that_can_never_work_is_reported_before_any_node_is_touched() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let controller = ctx.start_and_warm_up().await;
    // `src/api/validate/tests.rs` has all mistakes; these are of each kind of field.
    let cases = [
        (
            "zone",
            json!({ "window": { "days": ["mo"], "startTime": "9:00", "endTime": "10:00", "timeZone": "Mars/Olympus" } }),
            "spec.window is invalid, unknown time zone Mars/Olympus",
        ),
        (
            "flags",
            json!({ "drain": { "deleteLocalData": true, "deleteEmptydirData": true } }),
            "spec.drain cannot specify both deleteEmptydirData and deleteLocalData",
        ),
        (
            "selector",
            json!({ "drain": { "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } } }),
            "\"Like\" is not a valid label selector operator",
        ),
        (
            "delay",
            json!({ "postCompleteDelay": "soon" }),
            "spec.postCompleteDelay is invalid, time: invalid duration \"soon\"",
        ),
        (
            "version",
            json!({ "version": "v1 beta" }),
            "spec.version cannot be an image tag and a label value: \"v1 beta\" must be at most 63 letters, digits, '-', '_', '.' or \
             '+', with a letter or digit at each end",
        ),
        (
            "limit",
            json!({ "maxConcurrent": "150%" }),
            "spec.maxConcurrent is \"150%\": it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\"",
        ),
        (
            "host",
            json!({ "hostAccess": "None", "reboot": { "when": "Always" } }),
            "spec.reboot.when is Always, and spec.hostAccess None keeps refit from the host: use Root or Full",
        ),
        (
            "settle",
            json!({ "settle": { "minReady": "30" } }),
            "spec.settle.minReady is invalid, time: missing unit in duration \"30\"",
        ),
    ];
    for (name, mistake, _) in &cases {
        let mut made = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name },
            "spec": { "version": "v1", "concurrency": 1, "nodeSelector": {}, "upgrade": { "image": "i" } },
        });
        for (field, value) in mistake.as_object().unwrap() {
            made["spec"][field] = value.clone();
        }
        ctx.try_apply(made)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
    for (name, _, why) in &cases {
        let plan = ctx.plan_condition(name, "Validated", "False", SOON).await;
        assert_eq!(says(&plan, "Validated"), invalid(why), "{name}");
        assert_eq!(says(&plan, "Complete"), NOT_READY, "{name}");
        assert_eq!(status(&plan).applying, None, "{name}");
        has_event(&ctx, name, &validate_failed(why)).await;
    }
    assert_eq!(ctx.requests().await.jobs_created(), []);

    // Corrected, each of them runs.
    for (name, mistake, _) in &cases {
        let mut right = mistake.clone();
        for (field, value) in right.as_object_mut().unwrap() {
            *value = if field == "version" {
                json!("v2")
            } else {
                Value::Null
            };
        }
        ctx.edit_plan(name, json!({ "spec": right })).await;
        nodes.succeed(name, &nodes.name("one")).await;
        let plan = ctx.plan_complete(name, SOON).await;
        assert_eq!(says(&plan, "Validated"), VALID, "{name}");
    }
    assert!(controller.is_running());
}

#[tokio::test]
async fn a_plan_s_name_is_as_long_as_a_label_may_be() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let _controller = ctx.start_and_warm_up().await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}";
    let (fits, too_long, longest) = ("p".repeat(63), "p".repeat(64), "p".repeat(253));
    for name in [&fits, &too_long, &longest] {
        ctx.plan(&plan(name, spec)).await;
    }
    nodes.succeed(&fits, &node).await;
    let plan = ctx.plan_complete(&fits, SOON).await;
    let hash = status(&plan).latest_hash;
    assert_eq!(done(&ctx.node(&node).await, &fits), hash);
    for name in [&too_long, &longest] {
        let plan = ctx.plan_condition(name, "Validated", "False", SOON).await;
        let why = format!(
            "metadata.name has {} characters, and the label that marks a finished node holds 63",
            name.len()
        );
        assert_eq!(says(&plan, "Validated"), invalid(&why));
        has_event(&ctx, name, &validate_failed(&why)).await;
    }
    assert_eq!(ctx.requests().await.jobs_created().len(), 1);
}

#[tokio::test]
async fn a_missing_secret_is_reported_and_found_within_a_second() {
    let ctx = TestContext::new().await;
    let _controller = ctx.start_and_warm_up().await;
    let history = History::of(&ctx, "secretive").await;
    let spec = "{version: v1, upgrade: {image: i}, secrets: [{name: one, path: a}, {name: not.there, path: b}, \
                {name: ignored, path: c, ignoreUpdates: true}]}";
    ctx.plan(&plan("secretive", spec)).await;
    let missing = ctx.plan_condition("secretive", "Validated", "False", SOON).await;
    assert_eq!(
        says(&missing, "Validated"),
        invalid(r#"secrets "one" not found, secrets "not.there" not found"#)
    );
    assert_eq!(says(&missing, "Complete"), NOT_READY);
    assert_eq!(status(&missing).latest_hash, None);

    // The time until the Plan reports a Secret that was created or deleted.
    let said_after = async |since: Instant, wanted: &str| {
        let now = |plan: &Plan| says(plan, "Validated") == wanted;
        let seen = wait::eventually(wanted, SOON, async || {
            let last = history.states().pop().unwrap();
            if now(&last) {
                Ok(Instant::now())
            } else {
                Err(says(&last, "Validated"))
            }
        })
        .await;
        seen.saturating_duration_since(since)
    };
    let make = async |name: &str| {
        let secret = json!({ "metadata": { "name": name }, "data": { "a": "MQ==" } });
        create::<Secret>(&ctx.secrets(), secret).await;
        Instant::now()
    };
    let made = make("one").await;
    said_after(made, &invalid(r#"secrets "not.there" not found"#)).await;
    let made = make("not.there").await;
    let mut found = vec![said_after(made, VALID).await];
    let mut missed = Vec::new();
    let complete = ctx.plan_complete("secretive", SOON).await;
    let hash = status(&complete).latest_hash.unwrap();

    // Gone, and there again with the same content. A controller that waits is late each time, and a busy machine is not.
    let is_prompt = |took: &[Duration]| took.iter().any(|took| *took < AT_ONCE);
    while !(is_prompt(&found) && is_prompt(&missed)) {
        assert!(
            missed.len() < 10,
            "found after {found:?}, missed after {missed:?}"
        );
        ctx.secrets()
            .delete("one", &DeleteParams::default())
            .await
            .unwrap();
        missed.push(said_after(Instant::now(), &invalid(r#"secrets "one" not found"#)).await);
        let gone = ctx.plans().get("secretive").await.unwrap();
        assert_eq!(
            status(&gone).latest_hash.as_ref(),
            Some(&hash),
            "it is what nodes are done with"
        );
        let made = make("one").await;
        found.push(said_after(made, VALID).await);
    }
    let complete = ctx.plan_complete("secretive", SOON).await;
    assert_eq!(status(&complete).latest_hash, Some(hash));
    assert_eq!(history.said("LatestResolved"), ["True/Version/"]);
}

#[tokio::test]
async fn a_secret_that_was_made_a_moment_before_its_plan_is_found() {
    let ctx = TestContext::new().await;
    let faults = ctx.faults(4).await;
    let controller = ctx.controller().through(&faults).start();
    ctx.wait_until_working(&controller).await;
    // The watch of Secrets is slower than that of Plans.
    faults.add(Rule::on("watch", "secrets").late_events(Duration::from_secs(12)));
    faults.cut_watches("secrets");
    wait::until(
        "the watch is late from now on",
        async || faults.faults(),
        |it| *it > 0,
    )
    .await;
    let history = History::of(&ctx, "together").await;
    create::<Secret>(
        &ctx.secrets(),
        json!({ "metadata": { "name": "new" }, "data": { "a": "MQ==" } }),
    )
    .await;
    ctx.plan(&plan(
        "together",
        "{version: v1, upgrade: {image: i}, secrets: [{name: new, path: a}]}",
    ))
    .await;
    history
        .until("it is complete", SOON, |plan| {
            says(plan, "Complete").starts_with("True")
        })
        .await;
    assert_eq!(history.said("Validated"), [VALID]);
    assert_eq!(history.said("Complete").len(), 1);
    let took = history.answered_within();
    assert!(
        took < Duration::from_secs(10),
        "it did not wait for the watch, and took {took:?}"
    );
    assert_eq!(ctx.controller_requests().await.count("get", "secrets"), 1);

    // The late watch event changes nothing.
    let quiet = history.states().len();
    ctx.plan(&plan(
        "later",
        "{version: v1, upgrade: {image: i}, secrets: [{name: next, path: a}]}",
    ))
    .await;
    create::<Secret>(&ctx.secrets(), json!({ "metadata": { "name": "next" } })).await;
    ctx.plan_complete("later", SOON).await;
    assert_eq!(history.states().len(), quiet);
    let of_the_first = ctx.controller_requests().await.0;
    let of_the_first = of_the_first
        .iter()
        .filter(|it| it.resource == "secrets" && it.name == "new")
        .count();
    assert_eq!(of_the_first, 1, "it was read once");
}

#[tokio::test]
async fn a_secret_without_permission_to_read_it_is_reported() {
    let ctx = TestContext::new().await;
    let faults = ctx.faults(5).await;
    let controller = ctx.controller().through(&faults).start();
    ctx.wait_until_working(&controller).await;
    create::<Secret>(&ctx.secrets(), json!({ "metadata": { "name": "locked" } })).await;
    faults.add(Rule::on("get", "secrets").answer(403));
    ctx.plan(&plan(
        "curious",
        "{version: v1, upgrade: {image: i}, secrets: [{name: locked, path: a}]}",
    ))
    .await;
    let plan = ctx.plan_condition("curious", "Validated", "False", SOON).await;
    assert_eq!(
        says(&plan, "Validated"),
        invalid(r#"secrets "locked" cannot be read: forbidden by a rule of the test"#)
    );
    assert_eq!(says(&plan, "Complete"), NOT_READY);
    faults.clear_rules();
    ctx.plan_complete("curious", Duration::from_secs(60)).await;
}

#[tokio::test]
async fn plans_of_other_namespaces_are_ignored() {
    let ctx = TestContext::new().await;
    let elsewhere = ctx.beside().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}";
    elsewhere.plan(&plan("theirs", spec)).await;
    let _controller = ctx.start_and_warm_up().await;
    ctx.plan(&plan("ours", spec)).await;
    nodes.succeed("ours", &nodes.name("one")).await;
    ctx.plan_complete("ours", SOON).await;
    assert_eq!(elsewhere.plans().get("theirs").await.unwrap().status, None);
    let asked = ctx.controller_requests().await;
    let strange: Vec<_> = asked
        .0
        .iter()
        .filter(|it| it.namespace == elsewhere.namespace())
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
    assert!(asked.forbidden().is_empty(), "{:#?}", asked.forbidden());
}

#[test]
fn the_command_line_names_what_is_wrong_with_it_and_what_is_allowed() {
    // Arguments and environment, and what standard error must contain.
    for (line, variable, texts) in [
        ("", "", "--name is required, SYSTEM_UPGRADE_CONTROLLER_NAME"),
        (
            "--name n",
            "",
            "--namespace is required, SYSTEM_UPGRADE_CONTROLLER_NAMESPACE",
        ),
        (
            "controller --name 'a b' --namespace ns",
            "",
            "--name, \"a b\", 63",
        ),
        ("--name n --namespace NS", "", "--namespace, \"NS\", lower-case"),
        ("--lease-duration soon", "", "--lease-duration, soon, 45s"),
        ("--renew-deadline=-5s", "", "--renew-deadline, -5s, negative"),
        ("--threads 0", "", "--threads, 0, 1 to 1000"),
        (
            "--leader-elect=perhaps",
            "",
            "--leader-elect, perhaps, true or false",
        ),
        ("--log-format xml", "", "--log-format, xml, text, json"),
        ("--no-such-flag", "", "--no-such-flag"),
        ("no-such-command", "", "no-such-command"),
        (
            WHOLE,
            "CATTLE_ELECTION_RETRY_PERIOD=x",
            "CATTLE_ELECTION_RETRY_PERIOD, \"x\", 45s",
        ),
        (WHOLE, "CATTLE_ELECTION_RENEW_DEADLINE=60s", "renew deadline"),
        (
            WHOLE,
            "SYSTEM_UPGRADE_CONTROLLER_THREADS=many",
            "SYSTEM_UPGRADE_CONTROLLER_THREADS",
        ),
        (
            WHOLE,
            "SYSTEM_UPGRADE_CONTROLLER_DEBUG=very",
            "SYSTEM_UPGRADE_CONTROLLER_DEBUG",
        ),
        (
            WHOLE,
            "REFIT_LOG_FORMAT=xml",
            "REFIT_LOG_FORMAT, \"xml\", text or json",
        ),
        (WHOLE, "REFIT_LOG==loud=", "REFIT_LOG, =loud=, refit=debug"),
        (
            WHOLE,
            "REFIT_MANAGE_CRD=no way",
            "REFIT_MANAGE_CRD, \"no way\", true or false",
        ),
        (WHOLE, "HTTPS_PROXY=gopher://x", "HTTPS_PROXY"),
        (
            WHOLE,
            "SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG=/does/not/exist",
            "/does/not/exist",
        ),
    ] {
        let mut command = assert_cmd::Command::new(crate::testenv::controller::binary());
        command.env_clear().env("HOME", "/does/not/exist");
        command
            .args(shlex::split(line).unwrap())
            .envs(variable.split_once('='));
        let output = command.timeout(Duration::from_secs(60)).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // All but the missing file are mistakes in the arguments.
        let code = if variable.contains("KUBE_CONFIG") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{line} {variable}: {stderr}");
        assert!(
            output.stdout.is_empty(),
            "{line} {variable}: standard output is for data"
        );
        for text in texts.split(", ") {
            assert!(
                stderr.contains(text),
                "{line} {variable}: {text:?} is not in {stderr}"
            );
        }
    }
}

/// Go accepts times until the end of 9999, and any kubelet can write one on its own Node.
#[tokio::test]
async fn a_node_with_a_time_that_cannot_be_read_holds_up_nobody_and_is_named() {
    let ctx = TestContext::alone().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let odd = ctx.node_name("odd");
    let all = Api::<DynamicObject>::all_with(ctx.client.clone(), &ApiResource::erase::<Node>(&()));
    create(
        &all,
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": odd } }),
    )
    .await;
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Odd", "message": "odd",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "9999-12-31T23:59:59Z",
    });
    let patch = json!({ "status": { "conditions": [condition] } });
    all.patch_status(&odd, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();

    let controller = ctx.start_and_warm_up().await;
    ctx.plan(&plan(
        "healthy",
        "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}",
    ))
    .await;
    nodes.succeed("healthy", &node).await;
    controller
        .logs("lastTransitionTime of condition Ready is ignored", SOON)
        .await;
    let events = Api::<Event>::namespaced(ctx.client.clone(), "default");
    let of_it = ListParams::default().fields(&format!("involvedObject.name={odd},reason=ObjectUnreadable"));
    wait::eventually("an event names the node", SOON, async || {
        let events = events.list(&of_it).await.unwrap().items;
        events.into_iter().next().ok_or_else(|| controller.log())
    })
    .await;
    assert!(controller.terminate().await.success());

    // A restart works at once.
    let controller = ctx.start_and_warm_up().await;
    ctx.edit_plan("healthy", json!({ "spec": { "version": "v2" } }))
        .await;
    nodes.succeed("healthy", &node).await;
    ctx.plan_complete("healthy", SOON).await;
    assert!(controller.is_running());
    all.delete(&odd, &DeleteParams::default()).await.unwrap();
}
