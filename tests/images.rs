//! A release whose image does not exist yet, against a registry on this machine.

use serde_json::json;

use crate::channels::registry::{Registry, RegistryAuth, State};
use crate::harness::{Harness, is_cordoned};
use crate::steering::UserCli;
use crate::testenv::channel::ChannelServer;

#[tokio::test]
async fn a_release_whose_image_is_not_there_yet_cordons_no_node_and_is_rolled_out_once_the_image_exists() {
    let harness = Harness::new(["one", "two"]).await;
    let registry = Registry::start(State {
        auth: RegistryAuth::AnonymousToken,
        ..State::default()
    })
    .await;
    let server = ChannelServer::start().await;
    server.redirects("/missing", "/v1.34.9+k3s1");
    let _controller = harness.ctx.controller().env("REFIT_CHECK_IMAGES", "true").start();
    let image = format!("{}/team/k3s", registry.host());
    let spec = json!({
        "cordon": true, "channel": server.url("/missing"), "version": null,
        "installs": "Other", "upgrade": { "image": image },
    });
    harness.plan_with("p", spec).await;
    let waits = harness.held_up("p", "one", "ImageMissing").await;
    let why = format!(
        "the registry has no image {image}:v1.34.9-k3s1 (HTTP/1.1 404 Not Found): wait until it is published, or correct the image \
         or the version"
    );
    assert_eq!(waits.message.as_deref(), Some(why.as_str()));
    harness.expect_events("ImageMissing", [why.clone()]).await;
    for node in ["one", "two"] {
        assert!(!is_cordoned(&harness.get(node).await));
    }
    assert!(harness.ctx.jobs_of("p").await.is_empty());
    let cli = UserCli::admin(&harness);
    cli.refit("explain p")
        .await
        .ends(1)
        .says("ImageMissing")
        .says(&why)
        .says("REFIT_CHECK_IMAGES");
    cli.refit("status p").await.says("ImageMissing");
    let requests = registry.log.take();
    assert!(
        requests.iter().all(|request| request.method == "HEAD"),
        "nothing is pulled: {requests:?}"
    );

    registry.set(|state| {
        state.images.insert("v1.34.9-k3s1".to_owned());
    });
    harness.complete("p").await;
    for node in ["one", "two"] {
        assert!(!is_cordoned(&harness.get(node).await));
    }
}
