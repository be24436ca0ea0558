use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::settings::Flags;

/// An API server with these pods, which refuses lists if `may_list` is false.
fn server(pods: Vec<Value>, may_list: bool) -> Client {
    let transport = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let status = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Forbidden" };
            json!({ "kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason })
        };
        let (code, body) = match path.strip_prefix("/api/v1/namespaces/system-upgrade/pods") {
            Some("") if may_list => {
                let query = request.uri().query().unwrap_or_default();
                let selected =
                    "labelSelector=upgrade.cattle.io%2Fcontroller%3Dsuc%2C%21upgrade.cattle.io%2Fplan";
                assert!(query.contains(selected), "{query}");
                (
                    200,
                    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods }),
                )
            }
            Some("") => (403, status(403)),
            Some(name) => {
                let found = pods
                    .iter()
                    .find(|pod| pod["metadata"]["name"].as_str() == name.strip_prefix('/'));
                found.map_or_else(|| (404, status(404)), |pod| (200, pod.clone()))
            }
            None => panic!("{path}"),
        };
        async move {
            let body = Body::from(serde_json::to_vec(&body)?);
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(transport, "default")
}

fn pod(name: &str, node: &str, image: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": name, "uid": format!("{name}-uid") },
        "spec": {
            "nodeName": node, "imagePullSecrets": [{ "name": "pull" }],
            "containers": [
                { "name": "sidecar", "image": "sidecar" },
                { "name": "x", "image": image, "env": [{ "name": "SYSTEM_UPGRADE_CONTROLLER_NAME", "value": "suc" }] },
            ],
        },
    })
}

fn settings(hostname: &str, environment: &[(&str, &str)]) -> Settings {
    let given = [
        ("SYSTEM_UPGRADE_CONTROLLER_NAME", "suc"),
        ("SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", "system-upgrade"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
    ];
    let lookup = |name: &str| {
        let found = environment.iter().chain(&given).find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::resolve(Flags::default(), &lookup, hostname).unwrap().0
}

async fn image(client: &Client, settings: &Settings) -> String {
    let mut jobs = settings.jobs.clone();
    fill_in(&mut jobs, client, settings).await;
    jobs.own_image
}

#[tokio::test]
async fn the_image_is_that_of_the_pod_that_the_downward_api_or_the_host_name_names() {
    let client = server(
        vec![pod("suc-1", "a", "refit:v1"), pod("suc-2", "b", "refit:v2")],
        false,
    );
    let named = settings(
        "elsewhere",
        &[("POD_NAME", "suc-2"), ("POD_NAMESPACE", "system-upgrade")],
    );
    assert_eq!(image(&client, &named).await, "refit:v2");
    assert_eq!(image(&client, &settings("suc-1", &[])).await, "refit:v1");
    let given = settings("suc-1", &[("REFIT_IMAGE", "mine:v9")]);
    let mut jobs = given.jobs.clone();
    fill_in(&mut jobs, &client, &given).await;
    assert_eq!(jobs.own_image, "mine:v9");
    assert_eq!(
        jobs.own_image_pull_secrets,
        ["pull"],
        "those of the pod all the same"
    );
}

/// On the host's network the host name is the node's.
#[tokio::test]
async fn with_the_hosts_network_the_image_is_that_of_the_controllers_pod_on_this_node() {
    let pods = || {
        vec![
            pod("suc-1", "node-a", "refit:v1"),
            pod("suc-2", "node-b", "refit:v2"),
        ]
    };
    let client = server(pods(), true);
    assert_eq!(image(&client, &settings("node-b", &[])).await, "refit:v2");
    let named = settings(
        "host.example.com",
        &[("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "node-a")],
    );
    assert_eq!(image(&client, &named).await, "refit:v1");
    let by_uid = settings("host.example.com", &[("POD_UID", "suc-2-uid")]);
    assert_eq!(image(&client, &by_uid).await, "refit:v2");
    // A pod that happens to have the name of the node is not this one.
    let mut others = pods();
    others.push(json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "node-a", "uid": "u" },
        "spec": { "containers": [{ "name": "other", "image": "other" }] },
    }));
    assert_eq!(
        image(&server(others, true), &settings("node-a", &[])).await,
        "refit:v1"
    );
}

#[tokio::test]
async fn an_image_that_cannot_be_determined_is_not_guessed() {
    let nowhere = settings("node-c", &[]);
    let client = server(vec![pod("suc-1", "node-a", "refit:v1")], true);
    assert_eq!(image(&client, &nowhere).await, "");
    let why = find(&client, &nowhere).await.unwrap_err();
    assert!(
        why.contains("no pod system-upgrade/node-c") && why.contains("on this node, node-c"),
        "{why}"
    );
    // Both may be this one, in the middle of an update.
    let client = server(
        vec![
            pod("suc-1", "node-a", "refit:v1"),
            pod("suc-2", "node-a", "refit:v2"),
        ],
        true,
    );
    let why = find(&client, &settings("node-a", &[])).await.unwrap_err();
    assert!(why.contains("different images"), "{why}");
    let client = server(vec![pod("suc-1", "node-a", "refit:v1")], false);
    let why = find(&client, &settings("node-a", &[])).await.unwrap_err();
    assert!(why.contains("cannot be listed"), "{why}");
    // The pod of this name in a later life.
    let wrong = settings("suc-1", &[("POD_UID", "other")]);
    assert!(
        find(&server(vec![pod("suc-1", "node-a", "v")], true), &wrong)
            .await
            .is_err()
    );
}
