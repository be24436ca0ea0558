//! Which version a Plan takes, on a running controller: a channel that goes astray, guards, approvals, digests; and what
//! `refit resolve` says of it.

mod resolve;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use refit::api::{ChannelStatus, Plan};
use serde_json::json;

use crate::channels::registry::{Door, Registry, State, index_digest};
use crate::support::channel::{Answer, ChannelServer};
use crate::support::history::History;
use crate::support::plan::{plan, says, status};
use crate::support::wait::SOON;
use crate::support::world::World;

fn version(plan: &Plan) -> String {
    status(plan).latest_version.unwrap_or_default()
}

fn channel(plan: &Plan) -> ChannelStatus {
    status(plan).channel.unwrap_or_default()
}

fn guarded(url: &str, policy: &str) -> String {
    format!(
        "{{concurrency: 1, nodeSelector: {{}}, channel: {url:?}, versionPolicy: {policy}, upgrade: {{image: example.com/i}}}}"
    )
}

/// Has the channel asked, and waits until that is done.
async fn poll_now(world: &World, name: &str, value: &str) -> Plan {
    let patch = json!({ "metadata": { "annotations": { "refit.rs/poll-now": value } } });
    world.edit_plan(name, patch).await;
    world
        .plan_until(name, &format!("was asked for {value}"), SOON, |plan| {
            channel(plan).polled_for.as_deref() == Some(value)
        })
        .await
}

fn version_of(job: &Job) -> String {
    let labels = job.metadata.labels.clone().unwrap_or_default();
    labels["upgrade.cattle.io/version"].clone()
}

fn image_of(job: &Job) -> String {
    let pod = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .unwrap();
    pod.containers[0].image.clone().unwrap()
}

/// How often each version was run.
async fn runs(world: &World, name: &str) -> Vec<String> {
    let mut versions: Vec<_> = world.jobs_of(name).await.iter().map(version_of).collect();
    versions.sort();
    versions
}

#[tokio::test]
async fn a_channel_that_goes_astray_leads_nobody_astray() {
    for policy in ["{}", "null"] {
        let world = World::new().await;
        let nodes = world.puppets(["a", "b", "c"]).await;
        let server = ChannelServer::start().await;
        server.redirects("/stable", "/v1.33.2+k3s1");
        let controller = world.at_work().await;
        let history = History::of(&world, "server").await;
        world
            .plan(&plan("server", &guarded(&server.url("/stable"), policy)))
            .await;
        let begun = world
            .plan_until("server", "has begun", SOON, |plan| {
                status(plan).applying.is_some()
            })
            .await;
        let first = status(&begun).applying.unwrap()[0].clone();

        // It goes back while a node is under way.
        server.redirects("/stable", "/v1.26.9+k3s1");
        let back = poll_now(&world, "server", "back").await;
        assert_eq!(channel(&back).withdrawn.as_deref(), Some("v1.26.9-k3s1"));
        let behind = "spec.channel gives v1.26.9-k3s1, which is older than v1.33.2-k3s1";
        assert_eq!(channel(&back).last_error.as_deref(), Some(behind));
        nodes.succeed("server", &first).await;
        let held = world
            .plan_until("server", "holds the others", SOON, |plan| {
                says(plan, "Complete") == format!("False/ChannelWithdrawn/{behind}")
            })
            .await;
        assert_eq!(status(&held).progress.as_deref(), Some("1/3"));

        // Then it is no channel at all.
        let html = "the answer is an HTML page, not a version";
        let word = "\"login\" is no semantic version, and \"v1.33.2-k3s1\" is: the channel does not give what it gave";
        let down = "unexpected response: HTTP/1.1 500 Internal Server Error";
        let answers = [
            (
                "html",
                Answer::Plain(200, "text/html", "<html>hello</html>".to_owned()),
                html,
            ),
            ("login", Answer::Redirect(302, "/login".to_owned()), word),
            ("down", Answer::Plain(500, "text/plain", String::new()), down),
        ];
        for (value, answer, why) in answers {
            server.answers("/stable", answer);
            let plan = poll_now(&world, "server", value).await;
            assert_eq!(channel(&plan).last_error.as_deref(), Some(why), "{value}");
            assert_eq!(version(&plan), "v1.33.2-k3s1", "{value}");
            assert_eq!(status(&plan).applying, None, "{value}: no node starts");
            assert!(
                says(&plan, "Complete").starts_with("False/ChannelWithdrawn/"),
                "{value}"
            );
        }
        // Another controller believes it no more.
        controller.kill();
        let controller = controller.start_again();
        world.works(&controller).await;
        let plan = poll_now(&world, "server", "again").await;
        assert!(says(&plan, "Complete").starts_with("False/ChannelWithdrawn/"));
        assert_eq!(runs(&world, "server").await, ["v1.33.2-k3s1"]);

        // And then it is well.
        server.redirects("/stable", "/v1.33.3+k3s1");
        let well = poll_now(&world, "server", "well").await;
        assert_eq!(
            (channel(&well).last_error, channel(&well).withdrawn),
            (None, None)
        );
        let mut left: BTreeSet<_> = ["a", "b", "c"].map(|node| nodes.name(node)).into();
        while !left.is_empty() {
            let plan = world
                .plan_until("server", "begins with the next node", SOON, |plan| {
                    let applying = status(plan).applying.unwrap_or_default();
                    applying.first().is_some_and(|node| left.contains(node))
                })
                .await;
            let node = status(&plan).applying.unwrap()[0].clone();
            nodes.succeed("server", &node).await;
            left.remove(&node);
        }
        let done = world.plan_complete("server", SOON).await;
        assert_eq!(version(&done), "v1.33.3-k3s1");
        let mut versions: Vec<_> = history.states().iter().map(version).collect();
        versions.dedup();
        versions.retain(|version| !version.is_empty());
        assert_eq!(
            versions,
            ["v1.33.2-k3s1", "v1.33.3-k3s1"],
            "it was never anywhere else"
        );
        let told = world.told("server").await;
        for why in [behind, html, word, down] {
            let event =
                format!("Warning ResolveFailed: Failed to resolve latest version from Spec.Channel: {why}");
            assert_eq!(
                told.iter().filter(|told| **told == event).count(),
                1,
                "{event}: {told:#?}"
            );
        }
        let held = format!("Warning ChannelWithdrawn: {behind}");
        assert!(told.contains(&held), "{told:#?}");
        let resolved = "Normal Resolved: Resolved latest version from Spec.Channel: v1.33.3-k3s1".to_owned();
        assert!(told.contains(&resolved), "{told:#?}");
        if policy == "{}" {
            let older = "Warning VersionHeld: v1.26.9+k3s1 is not taken: it is older than v1.33.2-k3s1; \
                         spec.versionPolicy.allowDowngrade lets it through; the Plan stays at v1.33.2-k3s1";
            assert!(told.iter().any(|told| told == older), "{told:#?}");
            assert_eq!(says(&done, "UpToDate"), "True/Latest/");
        } else {
            assert_eq!(
                says(&done, "UpToDate"),
                "",
                "a Plan without a policy has no condition of ours"
            );
        }
    }
}

#[tokio::test]
async fn a_version_ages_while_controllers_come_and_go() {
    let world = World::new().await;
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.33.2+k3s1");
    let controller = world.at_work().await;
    let history = History::of(&world, "aged").await;
    let policy = "{minimumAge: 20s}";
    world
        .plan(&plan("aged", &guarded(&server.url("/stable"), policy)))
        .await;
    let held = world
        .plan_until("aged", "holds the version", SOON, |plan| {
            channel(plan).candidate.is_some()
        })
        .await;
    let told = channel(&held);
    assert_eq!(told.candidate.as_deref(), Some("v1.33.2+k3s1"));
    let time = |text: &Option<String>| text.as_deref().unwrap().parse::<Timestamp>().unwrap();
    let (since, due) = (time(&told.since), time(&told.due));
    assert_eq!(due, since + SignedDuration::from_secs(20));
    let sentence = format!(
        "v1.33.2+k3s1 is taken at {due}: it was first seen at {since}, and spec.versionPolicy.minimumAge is 20s; a shorter one \
         lets it through sooner"
    );
    assert_eq!(says(&held, "UpToDate"), format!("False/TooYoung/{sentence}"));
    assert_eq!(says(&held, "LatestResolved"), format!("False/Held/{sentence}"));
    controller.kill();
    let controller = controller.start_again();
    world.works(&controller).await;
    controller.kill();
    let controller = controller.start_again();
    let taken = history
        .until("has taken it", SOON, |plan| version(plan) == "v1.33.2-k3s1")
        .await;
    for plan in taken.iter().filter(|plan| channel(plan).candidate.is_some()) {
        assert_eq!(time(&channel(plan).since), since, "it is seen first once");
    }
    let plan = taken.last().unwrap();
    let condition = status(plan)
        .conditions
        .into_iter()
        .find(|condition| condition.type_ == "LatestResolved")
        .unwrap();
    let at = time(&condition.last_transition_time);
    assert!(at >= due, "{at} is before {due}");
    assert!(
        at < due + SignedDuration::from_secs(10),
        "{at}: others have begun to count anew"
    );
    world.works(&controller).await;
    let events = world.told("aged").await;
    let held = format!("Normal VersionHeld: {sentence}");
    assert_eq!(
        events.iter().filter(|told| **told == held).count(),
        1,
        "{events:#?}"
    );
}

#[tokio::test]
async fn a_proposal_is_taken_when_somebody_approves_it() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.33.2+k3s1");
    let _controller = world.at_work().await;
    let approve = async |version: &str| {
        let patch = json!({ "metadata": { "annotations": { "refit.rs/approve": version } } });
        world.edit_plan("proposed", patch).await;
    };
    world
        .plan(&plan(
            "proposed",
            &guarded(&server.url("/stable"), "{propose: true}"),
        ))
        .await;
    let first =
        "v1.33.2+k3s1 is proposed: the annotation refit.rs/approve: v1.33.2+k3s1 on the Plan lets it through";
    world
        .plan_until("proposed", "proposes", SOON, |plan| {
            says(plan, "UpToDate") == format!("False/NotApproved/{first}")
        })
        .await;
    approve("v1.33.2+k3s1").await;
    nodes.succeed("proposed", &node).await;
    world.plan_complete("proposed", SOON).await;
    server.redirects("/stable", "/v1.34.0+k3s1");
    let next = poll_now(&world, "proposed", "1").await;
    assert_eq!(version(&next), "v1.33.2-k3s1");
    assert_eq!(channel(&next).candidate.as_deref(), Some("v1.34.0+k3s1"));
    assert_eq!(says(&next, "Complete"), "True/Complete/");
    approve("v1.34.0+k3s1").await;
    nodes.succeed("proposed", &node).await;
    let done = world
        .plan_until("proposed", "is at the next one", SOON, |plan| {
            version(plan) == "v1.34.0-k3s1" && says(plan, "Complete") == "True/Complete/"
        })
        .await;
    assert_eq!(
        (channel(&done).candidate, says(&done, "UpToDate")),
        (None, "True/Latest/".to_owned())
    );
    assert_eq!(runs(&world, "proposed").await, ["v1.33.2-k3s1", "v1.34.0-k3s1"]);
    let told = world.told("proposed").await;
    assert!(
        told.contains(&format!("Normal VersionProposed: {first}")),
        "{told:#?}"
    );
}

const TAGS: [&str; 8] = [
    "latest",
    "v1.33.3-k3s1",
    "v1.33.4-k3s1",
    "v1.33.4-k3s1-amd64",
    "v1.33.5-rc1-k3s1",
    "v1.33",
    "v1.34.0-k3s1",
    "v1.9.0-k3s1",
];

fn registry_state() -> State {
    State {
        tags: TAGS.map(str::to_owned).into(),
        page: 3,
        ..State::default()
    }
}

#[tokio::test]
async fn of_many_releases_the_newest_in_range_is_taken_and_runs_by_its_digest() {
    let world = World::new().await;
    let nodes = world.puppets(["a", "b"]).await;
    let registry = Registry::start(State {
        door: Door::Token,
        ..registry_state()
    })
    .await;
    let _controller = world.at_work().await;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "puller" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": registry.docker_config() },
    }))
    .unwrap();
    world
        .secrets()
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let image = format!("{}/team/k3s", registry.host());
    let spec = format!(
        "{{concurrency: 1, nodeSelector: {{}}, channel: {:?}, imagePullSecrets: [{{name: puller}}], upgrade: {{image: {image:?}}}, \
         versionPolicy: {{range: 1.33.x, pinDigest: true}}}}",
        registry.channel()
    );
    world.plan(&plan("pinned", &spec)).await;
    let begun = world
        .plan_until("pinned", "has begun", SOON, |plan| {
            status(plan).applying.is_some()
        })
        .await;
    assert_eq!(version(&begun), "v1.33.4-k3s1");
    let pinned = status(&begun).pinned.unwrap();
    assert_eq!(Some(&pinned.hash), status(&begun).latest_hash.as_ref());
    assert_eq!(pinned.images[0].image, format!("{image}:v1.33.4-k3s1"));
    assert_eq!(pinned.images[0].digest, index_digest());
    // Which of them is the first is up to their names.
    let first = status(&begun).applying.unwrap().remove(0);
    let other = ["a", "b"].map(|node| nodes.name(node));
    let other = other.into_iter().find(|name| *name != first).unwrap();
    nodes.succeed("pinned", &first).await;
    // From now on it says nothing more.
    registry.set(|state| state.door = Door::Header("x-nobody", "knows"));
    nodes.succeed("pinned", &other).await;
    let done = world.plan_complete("pinned", SOON).await;
    assert_eq!(says(&done, "UpToDate"), "True/Latest/");
    let jobs = world.jobs_of("pinned").await;
    let images: BTreeSet<_> = jobs.iter().map(image_of).collect();
    let by_digest = format!("{image}:v1.33.4-k3s1@{}", index_digest());
    assert_eq!((jobs.len(), images), (2, [by_digest].into()));
}

#[tokio::test]
async fn a_registry_that_tells_no_digest_starts_no_node_until_it_does() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let registry = Registry::start(State {
        door: Door::Basic,
        ..registry_state()
    })
    .await;
    let controller = world.at_work().await;
    let spec = format!(
        "{{concurrency: 1, nodeSelector: {{}}, version: v1.33.4+k3s1, upgrade: {{image: {:?}}}, versionPolicy: {{pinDigest: true}}}}",
        format!("{}/team/k3s", registry.host())
    );
    world.plan(&plan("unpinned", &spec)).await;
    let held = world
        .plan_until("unpinned", "says that there is no digest", SOON, |plan| {
            says(plan, "Complete").starts_with("False/DigestUnknown/the digest of ")
        })
        .await;
    assert_eq!((status(&held).applying, status(&held).pinned), (None, None));
    assert!(world.jobs_of("unpinned").await.is_empty());
    let told = world.told("unpinned").await;
    assert_eq!(
        told.iter()
            .filter(|told| told.starts_with("Warning DigestUnknown: "))
            .count(),
        1,
        "{told:#?}"
    );
    registry.set(|state| state.door = Door::Open);
    nodes.succeed("unpinned", &nodes.name("one")).await;
    world.plan_complete("unpinned", SOON).await;
    world.works(&controller).await;
}

#[tokio::test]
async fn a_node_that_would_skip_too_much_waits_and_the_others_go_on() {
    let world = World::new().await;
    let nodes = world.puppets(["far", "near"]).await;
    let (far, near) = (nodes.name("far"), nodes.name("near"));
    nodes.kubelet.set_kubelet_version(&far, "v1.31.4+k3s1").await;
    nodes.kubelet.set_kubelet_version(&near, "v1.32.4+k3s1").await;
    let _controller = world.at_work().await;
    let spec = "{concurrency: 1, nodeSelector: {}, version: v1.33.2+k3s1, upgrade: {image: i}, versionPolicy: {maxMinorSkip: 1}}";
    world.plan(&plan("steps", spec)).await;
    nodes.succeed("steps", &near).await;
    let why = "v1.33.2-k3s1 is 2 minor versions from the node's kubelet, v1.31.4+k3s1, and spec.versionPolicy.maxMinorSkip is 1; \
               a version in between, or a higher limit, lets it through";
    let held = world
        .plan_until("steps", "holds the far one", SOON, |plan| {
            says(plan, "Complete") == format!("False/MinorSkip/Node {far}: {why}")
        })
        .await;
    assert_eq!(
        (status(&held).applying, status(&held).progress.as_deref()),
        (None, Some("1/2"))
    );
    let entry = status(&held).active.unwrap().remove(0);
    assert_eq!((entry.name, entry.message.as_deref()), (far.clone(), Some(why)));
    // Somebody has brought it nearer.
    nodes.kubelet.set_kubelet_version(&far, "v1.32.4+k3s1").await;
    nodes.succeed("steps", &far).await;
    world.plan_complete("steps", SOON).await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_is_told_in_the_words_of_validate() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    for (name, policy, why) in [
        (
            "range",
            "{range: newest}",
            "spec.versionPolicy.range is invalid, \"newest\" is no range of versions: \"newest\" is no version: numbers such as \
             1.31.4 are expected; write for example \">=1.30 <1.32\", \"1.31.x\" or \"~1.31\"",
        ),
        (
            "age",
            "{minimumAge: 3 days}",
            "spec.versionPolicy.minimumAge is invalid, time: unknown unit \" days\" in duration \"3 days\"",
        ),
    ] {
        let spec = format!("{{version: v1, upgrade: {{image: i}}, versionPolicy: {policy}}}");
        world.plan(&plan(name, &spec)).await;
        let refused = world.plan_condition(name, "Validated", "False", SOON).await;
        assert_eq!(says(&refused, "Validated"), format!("False/Error/{why}"));
        let file = world.dir().join(format!("{name}.yaml"));
        std::fs::write(&file, plan(name, &spec)).unwrap();
        let validated = std::process::Command::new(env!("CARGO_BIN_EXE_refit"))
            .arg("validate")
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8(validated.stdout).unwrap();
        assert!(said.contains(why), "{said}");
        assert_eq!(validated.status.code(), Some(1));
    }
    // The schema refuses it before anybody else.
    let negative = plan(
        "negative",
        "{version: v1, upgrade: {image: i}, versionPolicy: {maxMinorSkip: -1}}",
    );
    let negative: serde_json::Value = serde_saphyr::from_str(&negative).unwrap();
    let refused = world.try_apply(negative).await.unwrap_err();
    assert!(
        format!("{refused:#}").contains("spec.versionPolicy.maxMinorSkip"),
        "{refused:#}"
    );
}
