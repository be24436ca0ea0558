//! What users get wrong: each mistake has a clear status, nothing starts, nobody else is held up, and nothing is lost when
//! it is put right.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use refit::api::Plan;
use serde_json::{Value, json};

use crate::support::faults::Rule;
use crate::support::history::History;
use crate::support::plan::{plan, says, status};
use crate::support::wait::{self, SOON};
use crate::support::world::{World, create, done};

/// How soon a Plan says that it has become valid, or has ceased to be.
const AT_ONCE: Duration = Duration::from_secs(1);
const NOT_READY: &str = "False/NotReady/plan is not valid and resolved";
const VALID: &str = "True/PlanIsValid/";

fn invalid(why: &str) -> String {
    format!("False/Error/{why}")
}

#[tokio::test]
async fn what_can_never_work_is_told_before_any_node_is_touched() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let controller = world.at_work().await;
    let long = "v1.".to_owned() + &"0".repeat(61);
    let version = |text: &str| {
        format!(
            "spec.version cannot be an image tag and a label value: {text:?} must be at most 63 letters, digits, '-', \
             '_', '.' or '+', with a letter or digit at each end"
        )
    };
    let max = |limit: &str| {
        format!(
            "spec.maxConcurrent is {limit}: it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\""
        )
    };
    let window = |start: &str, zone: &str| json!({ "window": { "days": ["mo"], "startTime": start, "endTime": "10:00", "timeZone": zone } });
    let cases = [
        (
            "zone",
            window("9:00", "Mars/Olympus"),
            "spec.window is invalid, unknown time zone Mars/Olympus".to_owned(),
        ),
        (
            "start",
            window("25:00", "UTC"),
            "spec.window is invalid, Invalid time format: 25:00".to_owned(),
        ),
        (
            "no-times",
            json!({ "window": { "days": ["mo"] } }),
            "spec.window is invalid, Invalid time format: ".to_owned(),
        ),
        (
            "flags",
            json!({ "drain": { "deleteLocalData": true, "deleteEmptydirData": true } }),
            "spec.drain cannot specify both deleteEmptydirData and deleteLocalData".to_owned(),
        ),
        (
            "selector",
            json!({ "drain": { "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } } }),
            "\"Like\" is not a valid label selector operator".to_owned(),
        ),
        (
            "negative",
            json!({ "postCompleteDelay": "-1s" }),
            "spec.postCompleteDelay is negative".to_owned(),
        ),
        (
            "delay",
            json!({ "postCompleteDelay": "soon" }),
            "spec.postCompleteDelay is invalid, time: invalid duration \"soon\"".to_owned(),
        ),
        (
            "timeout",
            json!({ "drain": { "timeout": "five minutes" } }),
            "spec.drain.timeout is invalid, time: invalid duration \"five minutes\"".to_owned(),
        ),
        ("a-space", json!({ "version": "v1 beta" }), version("v1 beta")),
        ("a-slash", json!({ "version": "v1/beta" }), version("v1/beta")),
        ("a-dash", json!({ "version": "v1.2.3+" }), version("v1.2.3+")),
        ("too-long", json!({ "version": long }), version(&long)),
        (
            "a-word-at-a-time",
            json!({ "maxConcurrent": "many" }),
            max("\"many\""),
        ),
        ("a-text-at-a-time", json!({ "maxConcurrent": "2" }), max("\"2\"")),
        (
            "none-in-a-hundred",
            json!({ "maxConcurrent": "0%" }),
            max("\"0%\""),
        ),
        (
            "all-and-more",
            json!({ "maxConcurrent": "150%" }),
            max("\"150%\""),
        ),
        (
            "a-reboot-without-a-host",
            json!({ "hostAccess": "None", "reboot": { "when": "Always" } }),
            "spec.reboot.when is Always, and spec.hostAccess None keeps refit from the host: use Root or Full".to_owned(),
        ),
        (
            "a-file-that-is-nowhere",
            json!({ "reboot": { "when": "IfRequired", "requiredFiles": ["/run/a", "run/b"] } }),
            "spec.reboot.requiredFiles[1] is \"run/b\": it must be an absolute path on the host, such as \"/run/reboot-required\", \
             without \".\", \"..\", \"//\" or a \"/\" at its end, and of at most 4095 characters"
                .to_owned(),
        ),
        (
            "no-time-to-reboot",
            json!({ "reboot": { "when": "Never", "timeout": "0s" } }),
            "spec.reboot.timeout is 0s: it must be more than 0s".to_owned(),
        ),
        (
            "a-time-that-is-none",
            json!({ "settle": { "minReady": "30" } }),
            "spec.settle.minReady is invalid, time: missing unit in duration \"30\"".to_owned(),
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
        world
            .try_apply(made)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
    for (name, _, why) in &cases {
        let plan = world.plan_condition(name, "Validated", "False", SOON).await;
        assert_eq!(says(&plan, "Validated"), invalid(why), "{name}");
        assert_eq!(says(&plan, "Complete"), NOT_READY, "{name}");
        assert_eq!(status(&plan).applying, None, "{name}");
        let told = format!("Warning ValidateFailed: Failed to validate plan: {why}");
        assert!(
            world.told(name).await.contains(&told),
            "{name}: {:#?}",
            world.told(name).await
        );
    }
    assert_eq!(world.requests().await.jobs_created(), []);

    // Put right, each of them runs.
    for (name, mistake, _) in &cases {
        let fields = mistake.as_object().unwrap().keys();
        let right = fields.map(|field| {
            (
                field.clone(),
                if field == "version" {
                    json!("v2")
                } else {
                    Value::Null
                },
            )
        });
        world
            .edit_plan(name, json!({ "spec": Value::Object(right.collect()) }))
            .await;
        nodes.succeed(name, &nodes.name("one")).await;
        let plan = world.plan_complete(name, SOON).await;
        assert_eq!(says(&plan, "Validated"), VALID, "{name}");
    }
    assert!(controller.is_running());
}

#[tokio::test]
async fn a_plan_s_name_is_as_long_as_a_label_may_be() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}";
    let (fits, too_long, longest) = ("p".repeat(63), "p".repeat(64), "p".repeat(253));
    for name in [&fits, &too_long, &longest] {
        world.plan(&plan(name, spec)).await;
    }
    nodes.succeed(&fits, &node).await;
    let plan = world.plan_complete(&fits, SOON).await;
    let hash = status(&plan).latest_hash;
    assert_eq!(done(&world.node(&node).await, &fits), hash);
    for name in [&too_long, &longest] {
        let plan = world.plan_condition(name, "Validated", "False", SOON).await;
        let why = format!(
            "metadata.name has {} characters, and the label that marks a finished node holds 63",
            name.len()
        );
        assert_eq!(says(&plan, "Validated"), invalid(&why));
        let told = world.told(name).await;
        assert!(
            told.contains(&format!("Warning ValidateFailed: Failed to validate plan: {why}")),
            "{told:#?}"
        );
    }
    assert_eq!(world.requests().await.jobs_created().len(), 1);
}

#[tokio::test]
async fn a_missing_secret_is_told_and_found_within_a_second() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    let history = History::of(&world, "secretive").await;
    let spec = "{version: v1, upgrade: {image: i}, secrets: [{name: one, path: a}, {name: not.there, path: b}, \
                {name: ignored, path: c, ignoreUpdates: true}]}";
    world.plan(&plan("secretive", spec)).await;
    let missing = world
        .plan_condition("secretive", "Validated", "False", SOON)
        .await;
    assert_eq!(
        says(&missing, "Validated"),
        invalid(r#"secrets "one" not found, secrets "not.there" not found"#)
    );
    assert_eq!(says(&missing, "Complete"), NOT_READY);
    assert_eq!(status(&missing).latest_hash, None);

    // How long it takes until the Plan says something, from when the secret was there or gone.
    let within_a_second = async |since: Instant, wanted: &str| {
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
        let took = seen.saturating_duration_since(since);
        assert!(took < AT_ONCE, "{wanted} came after {took:?}");
    };
    let make = async |name: &str| {
        let secret = json!({ "metadata": { "name": name }, "data": { "a": "MQ==" } });
        create::<Secret>(&world.secrets(), secret).await;
        Instant::now()
    };
    let made = make("one").await;
    within_a_second(made, &invalid(r#"secrets "not.there" not found"#)).await;
    let made = make("not.there").await;
    within_a_second(made, VALID).await;
    let complete = world.plan_complete("secretive", SOON).await;
    let hash = status(&complete).latest_hash.unwrap();

    // Gone, and there again with the same content.
    world
        .secrets()
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    within_a_second(Instant::now(), &invalid(r#"secrets "one" not found"#)).await;
    let gone = world.plans().get("secretive").await.unwrap();
    assert_eq!(
        status(&gone).latest_hash.as_ref(),
        Some(&hash),
        "it is what nodes are done with"
    );
    let made = make("one").await;
    within_a_second(made, VALID).await;
    let complete = world.plan_complete("secretive", SOON).await;
    assert_eq!(status(&complete).latest_hash, Some(hash));
    assert_eq!(history.said("LatestResolved"), ["True/Version/"]);
}

#[tokio::test]
async fn a_secret_that_was_made_a_moment_before_its_plan_is_found() {
    let world = World::new().await;
    let faults = world.faults(4).await;
    let controller = world.controller().through(&faults).start();
    world.works(&controller).await;
    // The watch of Secrets tells later than the one of Plans.
    faults.add(Rule::on("watch", "secrets").late_events(Duration::from_secs(3)));
    faults.cut_watches("secrets");
    wait::eventually("the watch is late from now on", SOON, async || {
        match faults.faults() {
            0 => Err("it is not".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    let history = History::of(&world, "together").await;
    create::<Secret>(
        &world.secrets(),
        json!({ "metadata": { "name": "new" }, "data": { "a": "MQ==" } }),
    )
    .await;
    world
        .plan(&plan(
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
        took < Duration::from_secs(2),
        "it did not wait for the watch, and took {took:?}"
    );
    assert_eq!(world.controller_requests().await.count("get", "secrets"), 1);

    // What the watch tells at last is no news.
    let quiet = history.states().len();
    world
        .plan(&plan(
            "later",
            "{version: v1, upgrade: {image: i}, secrets: [{name: next, path: a}]}",
        ))
        .await;
    create::<Secret>(&world.secrets(), json!({ "metadata": { "name": "next" } })).await;
    world.plan_complete("later", SOON).await;
    assert_eq!(history.states().len(), quiet);
    let of_the_first = world.controller_requests().await.0;
    let of_the_first = of_the_first
        .iter()
        .filter(|it| it.resource == "secrets" && it.name == "new")
        .count();
    assert_eq!(of_the_first, 1, "it was read once");
}

#[tokio::test]
async fn a_secret_that_may_not_be_read_is_told() {
    let world = World::new().await;
    let faults = world.faults(5).await;
    let controller = world.controller().through(&faults).start();
    world.works(&controller).await;
    create::<Secret>(&world.secrets(), json!({ "metadata": { "name": "locked" } })).await;
    faults.add(Rule::on("get", "secrets").answer(403));
    world
        .plan(&plan(
            "curious",
            "{version: v1, upgrade: {image: i}, secrets: [{name: locked, path: a}]}",
        ))
        .await;
    let plan = world.plan_condition("curious", "Validated", "False", SOON).await;
    assert_eq!(
        says(&plan, "Validated"),
        invalid(r#"secrets "locked" cannot be read: forbidden by a rule of the test"#)
    );
    assert_eq!(says(&plan, "Complete"), NOT_READY);
    faults.heal();
    world.plan_complete("curious", Duration::from_secs(60)).await;
}

#[tokio::test]
async fn an_image_that_cannot_be_read_does_not_hold_up_the_version() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    let cases = [
        ("upper", "Example.com/UPPER"),
        ("empty", "''"),
        ("tag", "'example.com/x:a b'"),
    ];
    for (name, image) in cases {
        let spec =
            format!("{{version: v1, concurrency: 1, nodeSelector: {{}}, upgrade: {{image: {image}}}}}");
        world.plan(&plan(name, &spec)).await;
    }
    for (name, _) in cases {
        let plan = world.plan_condition(name, "LatestResolved", "True", SOON).await;
        let said = says(&plan, "Complete");
        assert!(
            said.starts_with("False/ImageInvalid/the image "),
            "{name}: {said}"
        );
        assert!(said.contains(" of upgrade: "), "{name}: {said}");
        assert_eq!(says(&plan, "Validated"), VALID, "{name}");
        assert_eq!(status(&plan).latest_version.as_deref(), Some("v1"));
        assert_eq!(
            status(&plan).applying,
            None,
            "a slot is for nodes that are worked on"
        );
        let told = world.told(name).await;
        assert!(
            told.iter()
                .any(|told| told.starts_with("Warning ImageInvalid: the image ")),
            "{told:#?}"
        );
        let entry = &status(&plan).active.unwrap()[0];
        assert_eq!(
            (entry.name.as_str(), entry.reason.as_deref()),
            (node.as_str(), Some("ImageInvalid"))
        );
    }
    for (name, _) in cases {
        world
            .edit_plan(
                name,
                json!({ "spec": { "upgrade": { "image": "example.com/x" } } }),
            )
            .await;
        nodes.succeed(name, &node).await;
        world.plan_complete(name, SOON).await;
    }
}

#[tokio::test]
async fn a_share_of_the_nodes_replaces_the_number_of_slots() {
    let world = World::new().await;
    let nodes = world.puppets(["a", "b", "c", "d"]).await;
    let _controller = world.at_work().await;
    let spec = "{version: v1, concurrency: 1, maxConcurrent: 50%, nodeSelector: {}, upgrade: {image: i}}";
    world.plan(&plan("half", spec)).await;
    let many = |count: usize| move |plan: &Plan| status(plan).applying.unwrap_or_default().len() == count;
    let two = status(&world.plan_until("half", "applies two", SOON, many(2)).await);
    let waiting = two
        .active
        .unwrap()
        .into_iter()
        .filter(|node| node.phase == "Waiting");
    let why = "2 nodes at a time, and all are taken";
    assert!(
        waiting
            .map(|node| node.message.unwrap())
            .all(|message| message == why)
    );
    // A share that is less than one node is one node.
    world
        .edit_plan("half", json!({ "spec": { "maxConcurrent": "1%" } }))
        .await;
    for node in two.applying.unwrap() {
        nodes.succeed("half", &node).await;
    }
    let third = |plan: &Plan| {
        status(plan)
            .nodes
            .is_some_and(|nodes| (nodes.done, nodes.applying) == (2, 1))
    };
    let one = status(&world.plan_until("half", "applies the third", SOON, third).await);
    assert_eq!(one.nodes.unwrap().waiting, 1);
    // Without it `concurrency` counts again.
    world
        .edit_plan(
            "half",
            json!({ "spec": { "maxConcurrent": null, "concurrency": 2 } }),
        )
        .await;
    world.plan_until("half", "applies two again", SOON, many(2)).await;
    for name in ["a", "b", "c", "d"] {
        let node = nodes.name(name);
        if done(&world.node(&node).await, "half").is_none() {
            nodes.succeed("half", &node).await;
        }
    }
    world.plan_complete("half", SOON).await;
    assert_eq!(world.requests().await.most_jobs_at_once("half"), 2);
}

#[tokio::test]
async fn a_suspended_plan_starts_no_node_and_finishes_those_under_way() {
    let world = World::new().await;
    let nodes = world.puppets(["a", "b"]).await;
    let _controller = world.at_work().await;
    let spec = "{version: v1, concurrency: 1, suspend: true, nodeSelector: {}, upgrade: {image: i}}";
    world.plan(&plan("suspended", spec)).await;
    let suspended = "False/Suspended/spec.suspend is true";
    let is_suspended = |plan: &Plan| says(plan, "Complete") == suspended;
    let plan = world
        .plan_until("suspended", "is suspended", SOON, is_suspended)
        .await;
    assert_eq!(says(&plan, "LatestResolved"), "True/Version/");
    assert!(
        world
            .told("suspended")
            .await
            .contains(&"Normal Suspended: spec.suspend is true".to_owned())
    );
    note_is(&world, "suspended", true).await;

    world
        .edit_plan("suspended", json!({ "spec": { "suspend": false } }))
        .await;
    let applying = |plan: &Plan| status(plan).applying.is_some();
    let first = status(&world.plan_until("suspended", "has begun", SOON, applying).await)
        .applying
        .unwrap()
        .remove(0);
    // One that has a slot and no Job yet would go back to waiting.
    wait::eventually("its Job is made", SOON, async || {
        match world.jobs_of("suspended").await.len() {
            0 => Err("there is none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    world
        .edit_plan("suspended", json!({ "spec": { "suspend": true } }))
        .await;
    nodes.succeed("suspended", &first).await;
    let plan = world
        .plan_until("suspended", "is suspended again", SOON, is_suspended)
        .await;
    assert_eq!(status(&plan).progress.as_deref(), Some("1/2"));
    assert_eq!(world.requests().await.jobs_created().len(), 1);

    // The note of our own fields goes when they do.
    world
        .edit_plan("suspended", json!({ "spec": { "suspend": null } }))
        .await;
    let second = ["a", "b"]
        .map(|name| nodes.name(name))
        .into_iter()
        .find(|node| *node != first)
        .unwrap();
    nodes.succeed("suspended", &second).await;
    world.plan_complete("suspended", SOON).await;
    note_is(&world, "suspended", false).await;
}

/// Waits until a Plan has the annotation that says which of refit's own fields it uses, or has none.
async fn note_is(world: &World, name: &str, there: bool) {
    let noted = |plan: &Plan| {
        plan.metadata
            .annotations
            .as_ref()
            .is_some_and(|notes| notes.contains_key("refit.rs/fields"))
            == there
    };
    world
        .plan_until(name, &format!("has a note of its fields: {there}"), SOON, noted)
        .await;
}

#[tokio::test]
async fn plans_elsewhere_are_somebody_else_s() {
    let world = World::new().await;
    let elsewhere = world.beside().await;
    let nodes = world.puppets(["one"]).await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}";
    elsewhere.plan(&plan("theirs", spec)).await;
    let _controller = world.at_work().await;
    world.plan(&plan("ours", spec)).await;
    nodes.succeed("ours", &nodes.name("one")).await;
    world.plan_complete("ours", SOON).await;
    assert_eq!(elsewhere.plans().get("theirs").await.unwrap().status, None);
    let asked = world.controller_requests().await;
    let strange: Vec<_> = asked
        .0
        .iter()
        .filter(|it| it.namespace == elsewhere.namespace())
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
    assert!(asked.forbidden().is_empty(), "{:#?}", asked.forbidden());
}

#[tokio::test]
async fn the_api_refuses_what_system_upgrade_controller_s_does() {
    let world = World::new().await;
    let refused = async |spec: Value| {
        let made = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": "refused" }, "spec": spec,
        });
        format!("{:#}", world.try_apply(made).await.expect_err("it is refused"))
    };
    let said = refused(json!({ "concurrency": 1, "version": "v1" })).await;
    assert!(said.contains("spec.upgrade: Required value"), "{said}");
    let never =
        json!({ "days": ["never"], "startTime": "00:00:00", "endTime": "23:59:59", "timeZone": "UTC" });
    let said = refused(json!({ "version": "v1", "upgrade": { "image": "i" }, "window": never })).await;
    // The words that system-upgrade-controller's suite looks for.
    assert!(said.contains("invalid: spec.window.days"), "{said}");
    for (field, value) in [
        ("concurrency", json!("one")),
        ("maxConcurrent", json!(0)),
        ("maxConcurrent", json!(-1)),
    ] {
        let said = refused(json!({ "version": "v1", "upgrade": { "image": "i" }, field: value })).await;
        assert!(said.contains(&format!("spec.{field}: Invalid value: ")), "{said}");
    }
}

#[test]
fn the_command_line_names_what_is_wrong_with_it_and_what_is_allowed() {
    let whole = ["--name", "n", "--namespace", "ns"];
    let cases: &[(&[&str], &[(&str, &str)], i32, &[&str])] = &[
        (
            &[],
            &[],
            2,
            &["--name is required", "SYSTEM_UPGRADE_CONTROLLER_NAME"],
        ),
        (
            &["--name", "n"],
            &[],
            2,
            &["--namespace is required", "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE"],
        ),
        (
            &["controller", "--name", "a b", "--namespace", "ns"],
            &[],
            2,
            &["--name", "\"a b\"", "63"],
        ),
        (
            &["--name", "n", "--namespace", "NS"],
            &[],
            2,
            &["--namespace", "\"NS\"", "lower-case"],
        ),
        (
            &["--lease-duration", "soon"],
            &[],
            2,
            &["--lease-duration", "soon", "45s"],
        ),
        (
            &["--renew-deadline=-5s"],
            &[],
            2,
            &["--renew-deadline", "-5s", "negative"],
        ),
        (&["--threads", "0"], &[], 2, &["--threads", "0", "1 to 1000"]),
        (
            &["--leader-elect=perhaps"],
            &[],
            2,
            &["--leader-elect", "perhaps", "true or false"],
        ),
        (
            &["--log-format", "xml"],
            &[],
            2,
            &["--log-format", "xml", "text", "json"],
        ),
        (&["--no-such-flag"], &[], 2, &["--no-such-flag"]),
        (&["no-such-command"], &[], 2, &["no-such-command"]),
        (
            &whole,
            &[("CATTLE_ELECTION_RETRY_PERIOD", "x")],
            2,
            &["CATTLE_ELECTION_RETRY_PERIOD", "\"x\"", "45s"],
        ),
        (
            &whole,
            &[("REFIT_LOG_FORMAT", "xml")],
            2,
            &["REFIT_LOG_FORMAT", "\"xml\"", "text or json"],
        ),
        (
            &whole,
            &[("REFIT_LOG", "=loud=")],
            2,
            &["REFIT_LOG", "=loud=", "refit=debug"],
        ),
        (
            &whole,
            &[("REFIT_MANAGE_CRD", "no way")],
            2,
            &["REFIT_MANAGE_CRD", "\"no way\"", "true or false"],
        ),
        (&whole, &[("HTTPS_PROXY", "gopher://x")], 2, &["HTTPS_PROXY"]),
        (
            &whole,
            &[("SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG", "/does/not/exist")],
            1,
            &["/does/not/exist"],
        ),
    ];
    for (args, environment, code, texts) in cases {
        let mut command = assert_cmd::Command::new(crate::support::controller::binary());
        command
            .env_clear()
            .env("HOME", "/does/not/exist")
            .args(*args)
            .envs(environment.iter().copied());
        let output = command.timeout(Duration::from_secs(60)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(*code),
            "{args:?} {environment:?}: {said}"
        );
        assert!(output.stdout.is_empty(), "stdout is for data");
        for text in *texts {
            assert!(
                said.contains(text),
                "{args:?} {environment:?}: {text:?} is not in {said}"
            );
        }
    }
}
