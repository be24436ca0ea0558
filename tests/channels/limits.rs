//! URLs of channels that hold a credential or lead to where none should.

use refit_base::proxy::ProxyEnv;
use refit_channel::{Access, ChannelClient, ChannelError, ChannelRequest, Credentials, Hosts};

use super::received::{offer_of, versions};
use crate::testenv::channel::ChannelServer;

/// A client that asks only these hosts, or all if there are none.
fn client(hosts: &[&str]) -> ChannelClient {
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    ChannelClient::new(&[], "", "refit/test", ProxyEnv::default(), Hosts::new(hosts)).unwrap()
}

async fn error(client: &ChannelClient, url: &str, access: &Access) -> ChannelError {
    let request = ChannelRequest {
        url,
        latest_version: None,
        access,
    };
    client.offer(request).await.unwrap_err()
}

#[tokio::test]
async fn credentials_are_not_sent_over_plain_http_to_another_host() {
    let client = client(&[]);
    let bearer = Credentials::Bearer("s3cret".to_owned());
    let access = Access {
        credentials: Some(bearer),
        ..Access::default()
    };
    for url in [
        "http://channel.invalid/stable",
        "http://channel.invalid/list#stable",
        "github+http://channel.invalid/a/b",
    ] {
        let error = error(&client, url, &access).await.to_string();
        assert!(error.contains("plain http"), "{url}: {error}");
    }
    let error = error(
        &client,
        "http://user:s3cret@channel.invalid/stable",
        &Access::default(),
    )
    .await;
    assert!(error.to_string().contains("plain http"), "{error}");
}

#[tokio::test]
async fn no_channel_leads_to_a_metadata_service_nor_does_a_redirect_or_a_token_server() {
    let server = ChannelServer::start().await;
    let host = server.url("").trim_start_matches("http://").to_owned();
    let metadata = "http://169.254.169.254/latest/meta-data";
    server.redirects("/v2/a/redirected/tags/list", metadata);
    let client = client(&[]);
    for url in [
        metadata.to_owned(),
        "http://[fd00:ec2::254]/latest#stable".to_owned(),
        "http://metadata.google.internal/computeMetadata/v1".to_owned(),
        "oci://169.254.169.254/a/b".to_owned(),
        "github+http://169.254.169.254/a/b".to_owned(),
        format!("oci://{host}/a/redirected"),
    ] {
        let error = error(&client, &url, &Access::default()).await;
        assert!(matches!(error, ChannelError::Metadata(_)), "{url}: {error}");
    }
}

#[tokio::test]
async fn channels_are_asked_at_the_hosts_that_are_named_and_at_no_other() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.2.3");
    let host = server.url("").trim_start_matches("http://").to_owned();
    server.redirects(
        "/v2/a/redirected/tags/list",
        "http://localhost:1/v2/a/b/tags/list",
    );
    let named = client(&["127.0.0.1", "*.example.com"]);
    let offered = offer_of(&named, &server.url("/stable"), &Access::default()).await;
    assert_eq!(versions(&offered), ["v1.2.3"]);
    for url in [
        "https://update.k3s.io/stable".to_owned(),
        format!("oci://{host}/a/redirected"),
    ] {
        let error = error(&named, &url, &Access::default()).await;
        assert!(matches!(error, ChannelError::HostNotAllowed(_)), "{url}: {error}");
    }
    assert!(server.asked("/v2/a/b/tags/list").is_empty());
}
