//! What holds for channels of every kind.

use super::*;

/// Every kind of channel, at `address`.
fn kinds(address: &std::net::SocketAddr) -> [String; 4] {
    [
        format!("http://{address}/stable"),
        format!("http://{address}/channels#stable"),
        format!("github://{address}/a/b"),
        format!("oci://{address}/a/b"),
    ]
}

#[tokio::test]
async fn a_request_to_any_kind_of_channel_ends_at_its_timeout() {
    assert_eq!(TIMEOUT, Duration::from_secs(30));
    let silent = Responder::start("").await;
    silent.hang();
    let drips = Responder::start("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n ").await;
    drips.pour(" ", Duration::from_millis(20));
    let client = patient(Duration::from_millis(300));
    for responder in [&silent, &drips] {
        for channel in kinds(&responder.address) {
            let error = error_of(&client, &channel).await;
            assert_eq!(error, "no answer within 300ms", "{channel}");
        }
    }
}

#[tokio::test]
async fn a_pass_of_pages_without_end_has_an_end() {
    // Each page links to another one.
    let endless = Responder::start("").await;
    endless.pages();
    let client = client();
    let [.., github, oci] = kinds(&endless.address);
    let error = client.resolve(&oci, None).await.unwrap_err();
    assert_eq!(error, ChannelError::TooManyTags(1));
    let access = Access::default();
    let ask = ChannelRequest {
        url: &github,
        latest_version: None,
        access: &access,
    };
    let offered = client.offer(ask).await.unwrap();
    assert_eq!(offered.releases.len(), 1);
    assert_eq!(
        offered.partial.as_deref(),
        Some("only the newest 1000 releases are read")
    );
}

#[tokio::test]
async fn no_channel_error_shows_the_target_of_a_redirect() {
    let gone = Responder::start("").await;
    let channels = kinds(&gone.address);
    gone.stop().await;
    for channel in channels {
        let error = error_of(&client(), &channel).await;
        assert!(
            error.contains("refused") && !error.contains("127.0.0.1"),
            "{error}"
        );
    }
}
