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

/// Headers and bodies that a server may send to whoever asks it.
#[tokio::test]
async fn odd_responses_of_any_kind_of_channel_are_errors_and_soon() {
    let many = (0..2_000).map(|number| format!("X-{number}: {}\r\n", "h".repeat(100)));
    let gzip = "\u{1f}\u{8b}".to_owned() + &"\u{0}".repeat(1_000);
    let odd = [
        format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\n[]", many.collect::<String>()),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\n[]", "h".repeat(2 << 20)),
        // Nothing unpacks it: refit does not say that it could.
        format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{gzip}",
            gzip.len()
        ),
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1e99\r\nContent-Length: 0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 429 Too Many Requests\r\nRetry-After: {}\r\nContent-Length: 0\r\n\r\n", "9".repeat(300)),
        "HTTP/1.1 403 Forbidden\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 99999999999999999999\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: -1\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"https://[fd00:ec2::254]/\"\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"file:///etc/passwd\"\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\nLocation: http://0xa9fea9fe/v9\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: gopher://127.0.0.1:6379/v9\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 18446744073709551615\r\n\r\n[]".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n[]".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{\"tags\":[\"v1\"],\"tags\":[\"v2\"]}x".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n".to_owned(),
    ];
    let client = patient(Duration::from_secs(5));
    for answer in odd {
        let responder = Responder::start(&answer).await;
        let [_, listed, github, oci] = kinds(&responder.address);
        for channel in [listed, github, oci] {
            let outcome =
                tokio::time::timeout(Duration::from_secs(120), client.resolve(&channel, None)).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("{channel}: {answer:.100} has no end"));
            if let Ok(version) = outcome {
                assert!(
                    version.starts_with('v'),
                    "{channel}: {answer:.100} gave {version}"
                );
            }
        }
        assert!(!responder.seen().contains("169.254"), "{answer:.100}");
    }
}
