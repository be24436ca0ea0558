//! `refit agent --kairos-labels` on a real API server, under the role and the policy of `deploy/overlays/agent` and
//! `deploy/overlays/agent-kairos`. The host is a folder.

use std::collections::BTreeMap;
use std::path::Path;

use kube::ResourceExt;
use refit_api::names::ANNOTATION_REBOOT_NEEDED;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::node_account::{apply_shipped, client_with, patch, pod_of, shipped};
use crate::testenv::context::TestContext;
use crate::testenv::controller::binary;
use crate::testenv::manifest;
use crate::testenv::process::{Process, Program};
use crate::testenv::wait::{self, SOON};

const ALPINE: &str =
    "KAIROS_ID=\"kairos\"\nKAIROS_FLAVOR=\"alpine\"\nKAIROS_FAMILY=\"alpine\"\nKAIROS_NAME=\"Kairos A\"\n";
const DEBIAN: &str = "KAIROS_ID=\"kairos\"\nKAIROS_FLAVOR=\"debian\"\nKAIROS_VERSION=\"v4.0.3\"\n";

/// The policy of `deploy/overlays/agent` with the patch of `agent-kairos`.
fn policy_with_component(ctx: &TestContext) -> Value {
    let mut objects = shipped(ctx, "overlays/agent/admission.yaml");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/overlays/agent-kairos/admission.yaml");
    let operations: Vec<Value> = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for operation in &operations {
        let path = operation["path"].as_str().unwrap();
        let found = objects[0].pointer_mut(path).expect(path);
        match operation["op"].as_str().unwrap() {
            "test" => assert_eq!(*found, operation["value"], "{path}"),
            "replace" => *found = operation["value"].clone(),
            other => panic!("{other}"),
        }
    }
    objects.swap_remove(0)
}

/// Labels and annotations of the Node under `kairos.io/`, but for the state of the boot, which is that of this machine.
async fn of_kairos(ctx: &TestContext, node: &str) -> BTreeMap<String, String> {
    let node = ctx.node(node).await;
    let all = node.labels().iter().chain(node.annotations());
    let of_kairos =
        all.filter_map(|(key, value)| Some((key.strip_prefix("kairos.io/")?.to_owned(), value.clone())));
    of_kairos.filter(|(key, _)| key != "boot-state").collect()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn an_agent_labels_its_own_kairos_node_under_the_shipped_policy_and_follows_its_host() {
    let ctx = TestContext::new().await;
    let _kubelet = ctx.run_nodes(2).await;
    let nodes: Vec<_> = ctx.my_nodes().await.iter().map(ResourceExt::name_any).collect();
    let [one, two] = &nodes[..] else {
        panic!("{nodes:?}")
    };
    apply_shipped(
        &ctx,
        &["overlays/agent/rbac.yaml", "overlays/agent/admission.yaml"],
    )
    .await;
    let account = format!("{}-agent", ctx.namespace());
    let token = ctx
        .token_of(&account, &pod_of(&ctx, "agent", one, &account).await)
        .await;
    let client = client_with(&ctx, "agent", &token).await;
    let label = |key: &str, value: &str| json!({ "metadata": { "labels": { key: value } } });
    let refused = wait::eventually("the policy is in force", SOON, async || {
        let tried = patch(
            &client,
            one,
            label("kairos.io/flavor", &ctx.now().to_string().replace(':', "-")),
        );
        tried
            .await
            .err()
            .ok_or_else(|| "the patch was admitted".to_owned())
    })
    .await;
    assert!(
        refused.contains("changes no label of its node but its own"),
        "{refused}"
    );

    // Keys of a user, and a request of a person.
    let of_user = json!({ "metadata": {
        "labels": { "kairos.io/rack": "r1", "kairos.io/flavor": null },
        "annotations": { ANNOTATION_REBOOT_NEEDED: "by a person" },
    } });
    patch(&ctx.client, one, of_user).await.unwrap();
    let host = ctx.dir().join("host");
    let release = host.join("etc/kairos-release");
    std::fs::create_dir_all(host.join("etc")).unwrap();
    std::fs::write(&release, ALPINE).unwrap();
    let kubeconfig = ctx.write_kubeconfig("agent-process", &token);
    let start = || -> Process {
        let program = Program::new("agent", binary(), ctx.dir())
            .args([
                "agent",
                "--period",
                "1s",
                "--no-files",
                "--kairos-labels",
                "--node",
            ])
            .arg(one)
            .args(["--host".into(), host.clone().into_os_string()])
            .args(["--kubeconfig".into(), kubeconfig.clone().into_os_string()]);
        program.start().unwrap()
    };
    let agent = start();
    let said = async || agent.log();
    wait::until("the policy without the component refuses", said, |log| {
        log.contains("changes no") && log.contains("retrying every 1 s")
    })
    .await;

    manifest::apply(&ctx.client, &policy_with_component(&ctx))
        .await
        .unwrap();
    let present = async || of_kairos(&ctx, one).await;
    let expected = map(&[
        ("family", "alpine"),
        ("flavor", "alpine"),
        ("id", "kairos"),
        ("managed", "true"),
        ("name", "Kairos A"),
        ("rack", "r1"),
    ]);
    wait::until("the node has the labels of its host", present, |it| {
        *it == expected
    })
    .await;
    assert!(ctx.node(one).await.labels().contains_key("kairos.io/boot-state"));
    for (node, change, word) in [
        (two, label("kairos.io/flavor", "x"), "bound to node"),
        (one, label("kairos.io/rack", "x"), "changes no label"),
        (one, label("kairos.io/rack-2", "x"), "changes no label"),
        (
            one,
            json!({ "metadata": { "labels": { "kairos.io/rack": null } } }),
            "changes no label",
        ),
        (
            one,
            json!({ "metadata": { "annotations": { "kairos.io/flavor": "x" } } }),
            "changes no annotation",
        ),
        (
            one,
            json!({ "spec": { "unschedulable": true } }),
            "but the annotations",
        ),
    ] {
        let refused = patch(&client, node, change.clone())
            .await
            .expect_err("another key");
        assert!(refused.contains(word), "{change}: {refused}");
    }

    // The host changes, as after an upgrade.
    std::fs::write(&release, DEBIAN).unwrap();
    let expected = map(&[
        ("flavor", "debian"),
        ("id", "kairos"),
        ("managed", "true"),
        ("rack", "r1"),
        ("version", "v4.0.3"),
    ]);
    wait::until("the node follows its host", present, |it| *it == expected).await;

    // A user keeps the agent off the node.
    patch(&ctx.client, one, label("kairos.io/managed", "false"))
        .await
        .unwrap();
    // It reads the node once it has seen the file, and would write it at once.
    let asked = async || {
        let requests = ctx.requests().await.by(&account);
        (requests.count("get", "nodes"), requests.count("patch", "nodes"))
    };
    let (reads, writes) = asked().await;
    std::fs::write(&release, ALPINE).unwrap();
    wait::until("the agent has read the node", asked, |it| it.0 > reads).await;
    agent.kill();
    assert_eq!(asked().await.1, writes, "the node stays as it is");
    assert_eq!(present().await["flavor"], "debian");
    patch(&ctx.client, one, label("kairos.io/managed", "true"))
        .await
        .unwrap();
    let agent = start();
    wait::until("the node follows its host again", present, |it| {
        it["flavor"] == "alpine"
    })
    .await;

    // It runs something else.
    std::fs::remove_file(&release).unwrap();
    std::fs::write(host.join("etc/os-release"), "ID=debian\n").unwrap();
    let expected = map(&[("rack", "r1")]);
    wait::until("only the user's label is left", present, |it| *it == expected).await;
    let node = ctx.node(one).await;
    assert!(!node.labels().contains_key("kairos.io/boot-state"));
    assert_eq!(node.annotations()[ANNOTATION_REBOOT_NEEDED], "by a person");
    assert_eq!(of_kairos(&ctx, two).await, BTreeMap::new());
    agent.signal(Signal::TERM);
    assert_eq!(agent.end(SOON).await.and_then(|status| status.code()), Some(0));
}
