//! The channel server answers as it is told.

use std::time::Duration;

use http::header::LOCATION;

use crate::support::channel::{Answer, ChannelServer};
use crate::support::pki::Authority;

fn client() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
}

#[tokio::test]
async fn a_channel_answers_as_it_is_told() {
    let channel = ChannelServer::start().await;
    channel
        .redirects("/stable", "https://example.com/releases/v1.2.3+k3s1")
        .answers("/moved", Answer::Redirect(308, "/elsewhere".to_owned()))
        .fails("/down", 503)
        .is_a_page("/portal")
        .loops("/loop")
        .answers("/hang", Answer::Hang)
        .answers("/break", Answer::Break);
    let http = client().build().unwrap();
    let ask = async |path: &str| {
        http.get(channel.url(path))
            .header("user-agent", "somebody")
            .send()
            .await
    };
    let location = |answer: &reqwest::Response| answer.headers()[LOCATION].to_str().unwrap().to_owned();

    let stable = ask("/stable?channel=x").await.unwrap();
    assert_eq!(
        (stable.status().as_u16(), location(&stable)),
        (302, "https://example.com/releases/v1.2.3+k3s1".to_owned())
    );
    let moved = ask("/moved").await.unwrap();
    assert_eq!(
        (moved.status().as_u16(), location(&moved)),
        (308, "/elsewhere".to_owned())
    );
    assert_eq!(ask("/down").await.unwrap().status().as_u16(), 503);
    assert_eq!(ask("/nothing").await.unwrap().status().as_u16(), 404);
    let page = ask("/portal").await.unwrap();
    assert!(page.status().is_success() && page.text().await.unwrap().contains("<html>"));
    assert_eq!(location(&ask("/loop").await.unwrap()), channel.url("/loop"));
    assert!(
        tokio::time::timeout(Duration::from_millis(200), ask("/hang"))
            .await
            .is_err()
    );
    assert!(ask("/break").await.unwrap_err().status().is_none());

    let asked = channel.asked("/stable");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].headers["user-agent"], "somebody");

    channel.redirects("/stable", "https://example.com/releases/v1.2.4+k3s1");
    assert!(location(&ask("/stable").await.unwrap()).ends_with("v1.2.4+k3s1"));
}

#[tokio::test]
async fn a_channel_over_tls_is_trusted_by_who_has_its_authority() {
    let authority = Authority::new("a-company").unwrap();
    let channel = ChannelServer::start_tls(&authority).await;
    channel.redirects("/stable", "https://example.com/v1");
    let certificate = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let trusting = client().tls_certs_only([certificate]).build().unwrap();
    assert_eq!(
        trusting
            .get(channel.url("/stable"))
            .send()
            .await
            .unwrap()
            .status()
            .as_u16(),
        302
    );
    let doubting = client().tls_certs_only([]).build().unwrap();
    doubting.get(channel.url("/stable")).send().await.unwrap_err();
}
