//! The channel client against real sockets on loopback, with the answers that the world gives.

mod responder;

use std::io::Write as _;
use std::path::Path;

use super::*;
use responder::{Responder, tls_responder};

const CLUSTER_ID: &str = "0a1b2c3d-cluster";

fn environment(pairs: &[(&str, &str)]) -> ProxyEnv {
    ProxyEnv::read(|name| {
        pairs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
    .unwrap()
}

fn client() -> ChannelClient {
    ChannelClient::new(&[], CLUSTER_ID, "refit/1.2.3", ProxyEnv::default()).unwrap()
}

/// A client that waits so long for an answer.
fn patient(timeout: Duration) -> ChannelClient {
    let Means::Http(http) = client().0 else {
        panic!("it asks nobody")
    };
    ChannelClient(Means::Http(Http { timeout, ..http }))
}

/// What the client makes of one answer of a channel at `/v1-release/channels/stable`.
async fn resolved(answer: &str) -> Result<String, ChannelError> {
    let responder = Responder::start(answer).await;
    client()
        .resolve(&responder.url("/v1-release/channels/stable"), None)
        .await
}

async fn refused(answer: &str) -> String {
    resolved(answer).await.unwrap_err().to_string()
}

fn redirect(status: &str, location: &str) -> String {
    format!("HTTP/1.1 {status}\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

fn page(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn the_request_is_system_upgrade_controllers() {
    let responder = Responder::start(&redirect("302 Found", "/local/test")).await;
    let url = responder.url("/channels/latest?arch=amd64#x");
    assert_eq!(client().resolve(&url, Some("v1.2.3-k3s1")).await.unwrap(), "test");
    let address = responder.address;
    assert_eq!(
        responder.seen(),
        format!(
            "GET /channels/latest?arch=amd64 HTTP/1.1\r\n\
             x-suc-cluster-id: 0a1b2c3d-cluster\r\n\
             x-suc-latest-version: v1.2.3-k3s1\r\n\
             accept: */*\r\n\
             user-agent: refit/1.2.3\r\n\
             host: {address}\r\n\r\n"
        )
    );
}

#[tokio::test]
async fn what_is_not_known_is_not_told() {
    let responder = Responder::start(&redirect("302 Found", "/test")).await;
    let client = ChannelClient::new(&[], "", "refit/1.2.3", ProxyEnv::default()).unwrap();
    client.resolve(&responder.url("/"), Some("")).await.unwrap();
    assert!(!responder.seen().contains("x-suc"), "{}", responder.seen());
}

#[tokio::test]
async fn a_redirect_ends_in_the_version() {
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let location = "https://github.com/k3s-io/k3s/releases/tag/v1.30.1%2Bk3s1";
        assert_eq!(
            resolved(&redirect(status, location)).await.unwrap(),
            "v1.30.1-k3s1",
            "{status}"
        );
    }
    for (location, version) in [
        ("/local", "local"),
        ("/local/test", "test"),
        ("/local/v1.2.3+test", "v1.2.3-test"),
        ("v1.2.3", "v1.2.3"),
        ("../v1.2.4/", "v1.2.4"),
        ("//other.example/a/v1.2.5///", "v1.2.5"),
        ("https://user:s3cret@other.example/v1.2.6", "v1.2.6"),
        ("/a%2Fv1.2.7", "v1.2.7"),
        ("/v1.2.8#notes", "v1.2.8"),
    ] {
        assert_eq!(
            resolved(&redirect("302 Found", location)).await.unwrap(),
            version,
            "{location}"
        );
    }
}

#[tokio::test]
async fn a_redirect_to_what_is_no_version_is_refused() {
    for location in ["/", "https://other.example", "/a/.."] {
        assert_eq!(
            refused(&redirect("302 Found", location)).await,
            "the answer does not end in a version",
            "{location}"
        );
    }
    for location in [
        "/v1%20beta",
        "/v1:2",
        "/-v1",
        "/%E2%82%AC",
        "/v1.2.3%3Fz=1",
        "/%1b[2J",
        "/%FF",
    ] {
        let text = refused(&redirect("302 Found", location)).await;
        assert!(
            text.contains("cannot be an image tag and a label value"),
            "{location}: {text}"
        );
        assert!(!text.contains('\u{1b}'));
    }
    let long = format!("/{}", "v".repeat(64));
    assert!(
        refused(&redirect("302 Found", &long))
            .await
            .ends_with("it has more than 63 characters")
    );
    for location in ["javascript:alert(1)", "ftp://other.example/v1", "https://["] {
        assert_eq!(
            refused(&redirect("302 Found", location)).await,
            "the redirect's Location is not a URL",
            "{location}"
        );
    }
}

#[tokio::test]
async fn a_login_page_is_not_a_version() {
    assert_eq!(
        refused(&redirect("302 Found", "https://sso.example/login?return=/stable")).await,
        "the redirect's Location has a query: that is a login page or a search, not a version"
    );
    assert_eq!(
        refused(&redirect("302 Found", "/login?")).await,
        "the redirect's Location has a query: that is a login page or a search, not a version"
    );
    // Without a query it looks like any word, which a Plan may start with but not move to from a release.
    let word = resolved(&redirect("302 Found", "/login")).await.unwrap();
    assert!(accept(Some("v1.30.1-k3s1"), &word).is_err());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let responder = Responder::start("").await;
    responder.answer_with(&redirect("302 Found", &responder.url("/round/and/about")));
    assert_eq!(
        client().resolve(&responder.url("/round"), None).await.unwrap(),
        "about"
    );
    assert_eq!(responder.seen().matches("GET ").count(), 1);
}

#[tokio::test]
async fn a_redirect_back_to_the_channel_is_refused() {
    let responder = Responder::start("").await;
    let resolve = async |path: &str, location: &str| {
        responder.answer_with(&redirect("301 Moved Permanently", location));
        let answer = client().resolve(&responder.url(path), None).await;
        answer.map_err(|error| error.to_string())
    };
    let back = "the redirect leads back to the channel, not to a version";
    for location in ["/stable", "stable/", "https://other.example/a/stable"] {
        assert_eq!(
            resolve("/stable", location).await.unwrap_err(),
            back,
            "{location}"
        );
    }
    // What is named like a version is one, wherever it is.
    assert_eq!(
        resolve("/v1.2.3+k3s1", "https://other.example/v1.2.3+k3s1").await,
        Ok("v1.2.3-k3s1".to_owned())
    );
}

#[tokio::test]
async fn a_redirect_without_a_location_is_an_error() {
    for status in [301, 302, 303, 307, 308] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(
            refused(&answer).await,
            format!("the redirect ({status}) has no Location")
        );
    }
    assert_eq!(
        refused(&redirect("302 Found", "")).await,
        "the redirect's Location is not a URL"
    );
}

#[tokio::test]
async fn other_answers_are_told_as_system_upgrade_controller_tells_them() {
    for (answer, text) in [
        ("404 Not Found", "unexpected response: HTTP/1.1 404 Not Found"),
        (
            "503 Service Unavailable",
            "unexpected response: HTTP/1.1 503 Service Unavailable",
        ),
        (
            "401 Unauthorized",
            "unexpected response: HTTP/1.1 401 Unauthorized",
        ),
        (
            "304 Not Modified",
            "unexpected response: HTTP/1.1 304 Not Modified",
        ),
        (
            "300 Multiple Choices",
            "unexpected response: HTTP/1.1 300 Multiple Choices",
        ),
        ("404 <script>", "unexpected response: HTTP/1.1 404 Not Found"),
        ("599 Odd", "unexpected response: HTTP/1.1 599"),
    ] {
        assert_eq!(
            refused(&format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n")).await,
            text
        );
    }
}

#[tokio::test]
async fn a_plain_answer_means_the_channels_own_last_element() {
    let responder = Responder::start(&page("200 OK", "text/plain", "whatever")).await;
    for (path, version) in [
        ("/v1.2.3", "v1.2.3"),
        ("/a/v1.2.3+k3s1", "v1.2.3-k3s1"),
        ("/v1.2.4/?z=1", "v1.2.4"),
    ] {
        assert_eq!(
            client().resolve(&responder.url(path), None).await.unwrap(),
            version
        );
    }
    assert_eq!(
        client()
            .resolve(&responder.url(""), None)
            .await
            .unwrap_err()
            .to_string(),
        "the answer does not end in a version"
    );
    assert_eq!(
        resolved(&page("200 OK", "application/json", "{}")).await.unwrap(),
        "stable"
    );
    assert_eq!(
        resolved("HTTP/1.1 204 No Content\r\n\r\n").await.unwrap(),
        "stable"
    );
}

#[tokio::test]
async fn an_html_page_is_not_a_version() {
    let body = "<!DOCTYPE html><title>Sign in</title>";
    for answer in [
        page("200 OK", "text/html; charset=utf-8", "v1.2.3"),
        page("200 OK", "Text/HTML", ""),
        page("200 OK", "application/xhtml+xml", ""),
        page("200 OK", "text/plain", body),
        page(
            "203 Non-Authoritative Information",
            "application/octet-stream",
            &format!("\u{feff} \r\n\t{body}"),
        ),
        page("200 OK", "text/plain", "<HTML lang=en>"),
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
    ] {
        assert_eq!(
            refused(&answer).await,
            "the answer is an HTML page, not a version",
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_body_without_an_end_is_not_read_to_it() {
    let responder = Responder::start("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").await;
    responder.pour("0123456789abcdef".repeat(64).as_str(), Duration::ZERO);
    assert_eq!(
        client().resolve(&responder.url("/v1.2.3"), None).await.unwrap(),
        "v1.2.3"
    );
}

#[tokio::test]
async fn a_body_that_drips_ends_with_the_time_that_a_channel_has() {
    let responder = Responder::start("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").await;
    responder.pour("v", Duration::from_millis(20));
    let client = patient(Duration::from_millis(300));
    let error = client.resolve(&responder.url("/v1.2.3"), None).await.unwrap_err();
    assert_eq!(error, ChannelError::TimedOut(Duration::from_millis(300)));
    assert_eq!(error.to_string(), "no answer within 300ms");
}

#[tokio::test]
async fn a_channel_that_hangs_ends_with_the_time_that_it_has() {
    let responder = Responder::start("").await;
    responder.hang();
    assert_eq!(TIMEOUT, Duration::from_secs(30));
    let client = patient(Duration::from_millis(200));
    let error = client.resolve(&responder.url("/v1"), None).await.unwrap_err();
    assert_eq!(error, ChannelError::TimedOut(Duration::from_millis(200)));
}

#[tokio::test]
async fn what_cannot_be_asked_is_told_without_the_url() {
    let responder = Responder::start("").await;
    let url = responder.url("/s3cret").replace("http://", "http://user:s3cret@");
    responder.stop().await;
    let text = client().resolve(&url, None).await.unwrap_err().to_string();
    assert!(text.contains("refused"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");

    let text = client()
        .resolve("http://user:s3cret@nowhere.invalid/s3cret", None)
        .await
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("the channel cannot be asked: "), "{text}");
    assert!(!text.contains("s3cret"), "{text}");

    for url in [
        "",
        "stable",
        "/v1-release",
        "http://",
        "https://user:s3cret@[",
        "http://user:s3cret@a b/",
    ] {
        let error = client().resolve(url, None).await.unwrap_err();
        assert_eq!(error, ChannelError::NotAUrl, "{url}");
    }
    for url in ["ftp://user:s3cret@a/v1", "file:///etc/passwd", "data:,v1"] {
        let text = client().resolve(url, None).await.unwrap_err().to_string();
        assert!(
            text.ends_with("only http, https, github and oci are asked") && !text.contains("s3cret"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_an_error() {
    for answer in [
        "",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /v1",
    ] {
        let text = refused(answer).await;
        assert!(text.starts_with("the channel cannot be asked: "), "{text}");
    }
}

#[tokio::test]
async fn the_urls_password_goes_to_the_channel_and_to_no_redirect() {
    let responder = Responder::start(&redirect("302 Found", "/v1.2.3")).await;
    let url = responder.url("/stable").replace("http://", "http://user:p%40ss@");
    client().resolve(&url, None).await.unwrap();
    // user:p@ss
    assert!(
        responder.seen().contains("authorization: Basic dXNlcjpwQHNz\r\n"),
        "{}",
        responder.seen()
    );
}

#[tokio::test]
async fn a_certificate_must_be_trusted() {
    let (responder, pem) = tls_responder(&redirect("302 Found", "/v1.2.3")).await;
    let url = format!("https://localhost:{}/stable", responder.address.port());
    let text = client().resolve(&url, None).await.unwrap_err().to_string();
    assert!(text.contains("invalid peer certificate: UnknownIssuer"), "{text}");

    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "# our own authority\n{pem}").unwrap();
    let trusting = ChannelClient::new(
        &[file.path().to_owned()],
        CLUSTER_ID,
        "refit/1.2.3",
        ProxyEnv::default(),
    )
    .unwrap();
    assert_eq!(trusting.resolve(&url, None).await.unwrap(), "v1.2.3");
    let elsewhere = url.replace("localhost", "127.0.0.1");
    let text = trusting.resolve(&elsewhere, None).await.unwrap_err().to_string();
    assert!(text.contains("certificate"), "{text}");
}

#[test]
fn a_ca_file_that_is_none_is_an_error_at_the_start() {
    let new = |path: &Path| {
        ChannelClient::new(&[path.to_owned()], "", "refit", ProxyEnv::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        new(Path::new("/does/not/exist")),
        r#"CA file "/does/not/exist" cannot be read"#
    );
    let mut file = tempfile::NamedTempFile::new().unwrap();
    assert!(new(file.path()).ends_with("has no certificate"));
    writeln!(
        file,
        "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----"
    )
    .unwrap();
    assert!(new(file.path()).ends_with("has a certificate that cannot be used"));
}

#[tokio::test]
async fn a_channel_is_asked_through_the_environments_proxy() {
    let proxy = Responder::start(&redirect("302 Found", "/v1.2.3")).await;
    let through = format!("http://u:p%40ss@{}", proxy.address);
    let proxies = environment(&[
        ("http_proxy", &through),
        ("no_proxy", "direct.invalid,.below.invalid"),
    ]);
    let client = ChannelClient::new(&[], "", "refit/1.2.3", proxies).unwrap();
    assert_eq!(
        client
            .resolve("http://channel.invalid/stable", None)
            .await
            .unwrap(),
        "v1.2.3"
    );
    let seen = proxy.seen();
    assert!(
        seen.starts_with("GET http://channel.invalid/stable HTTP/1.1\r\n"),
        "{seen}"
    );
    assert!(
        seen.contains("\r\nproxy-authorization: Basic dTpwQHNz\r\n"),
        "{seen}"
    );

    // These are not: their names do not exist, and the proxy hears nothing.
    for url in ["http://direct.invalid/stable", "http://a.below.invalid/stable"] {
        assert!(client.resolve(url, None).await.is_err());
    }
    assert_eq!(proxy.seen(), seen);
}

#[tokio::test]
async fn a_channel_on_this_host_is_not_asked_through_a_proxy() {
    let proxy = Responder::start(&redirect("302 Found", "/wrong")).await;
    let channel = Responder::start(&redirect("302 Found", "/right")).await;
    let proxies = environment(&[("HTTP_PROXY", &format!("http://{}", proxy.address))]);
    let client = ChannelClient::new(&[], "", "refit/1.2.3", proxies).unwrap();
    assert_eq!(
        client.resolve(&channel.url("/stable"), None).await.unwrap(),
        "right"
    );
}

#[tokio::test]
async fn https_goes_through_the_proxy_in_a_tunnel() {
    let (channel, pem) = tls_responder(&redirect("302 Found", "/v1.2.3")).await;
    let proxy = Responder::tunnel_to(channel.address).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{pem}").unwrap();
    let proxies = environment(&[("HTTPS_PROXY", &proxy.address.to_string())]);
    let client = ChannelClient::new(&[file.path().to_owned()], "", "refit/1.2.3", proxies).unwrap();
    assert_eq!(
        client
            .resolve("https://channel.invalid/stable", None)
            .await
            .unwrap(),
        "v1.2.3"
    );
    assert!(
        proxy
            .seen()
            .starts_with("CONNECT channel.invalid:443 HTTP/1.1\r\n"),
        "{}",
        proxy.seen()
    );
}

#[tokio::test]
async fn a_proxy_that_refuses_is_told_without_its_password() {
    let proxy =
        Responder::start("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").await;
    let proxies = environment(&[("HTTPS_PROXY", &format!("http://u:s3cret@{}", proxy.address))]);
    let client = ChannelClient::new(&[], "", "refit/1.2.3", proxies).unwrap();
    let text = client
        .resolve("https://channel.invalid/stable", None)
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("proxy") && !text.contains("s3cret"), "{text}");
}

/// Every kind of channel, asked of what answers at `address`.
fn kinds(address: &std::net::SocketAddr) -> [String; 4] {
    [
        format!("http://{address}/stable"),
        format!("http://{address}/channels#stable"),
        format!("github://{address}/a/b"),
        format!("oci://{address}/a/b"),
    ]
}

#[tokio::test]
async fn every_kind_ends_with_the_time_that_it_has() {
    let silent = Responder::start("").await;
    silent.hang();
    let drips = Responder::start("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n[").await;
    drips.pour(" ", Duration::from_millis(20));
    let client = patient(Duration::from_millis(300));
    for responder in [&silent, &drips] {
        for channel in kinds(&responder.address) {
            let error = client.resolve(&channel, None).await.unwrap_err();
            assert_eq!(
                error,
                ChannelError::TimedOut(Duration::from_millis(300)),
                "{channel}"
            );
        }
    }
}

#[tokio::test]
async fn a_pass_of_pages_without_end_has_an_end() {
    // Each page has another one behind it.
    let endless = Responder::start("").await;
    endless.pages();
    let client = client();
    let [.., github, oci] = kinds(&endless.address);
    let error = client.resolve(&oci, None).await.unwrap_err();
    assert_eq!(error, ChannelError::TooManyTags(1));
    let access = Access::default();
    let ask = Ask {
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
async fn no_kind_shows_where_it_was_sent() {
    let gone = Responder::start("").await;
    let channels = kinds(&gone.address);
    gone.stop().await;
    for channel in channels {
        let text = client().resolve(&channel, None).await.unwrap_err().to_string();
        assert!(text.contains("refused") && !text.contains("127.0.0.1"), "{text}");
    }
}

#[tokio::test]
async fn a_client_that_was_given_its_answers_asks_nobody() {
    let client = ChannelClient::given(|url, latest| match url {
        "https://nowhere.invalid/stable" => {
            Ok(Offer::one(format!("v2-after-{}", latest.unwrap_or("nothing"))))
        }
        _ => Err(ChannelError::NotAUrl),
    });
    let answer = client.resolve("https://nowhere.invalid/stable", Some("v1")).await;
    assert_eq!(answer, Ok("v2-after-v1".to_owned()));
    assert_eq!(client.resolve("other", None).await, Err(ChannelError::NotAUrl));
}
