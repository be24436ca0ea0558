//! The channel client against real sockets on loopback, with responses as they occur on the Internet.

mod hostile;
mod kinds;
mod responder;

use std::io::Write as _;
use std::path::Path;

use std::time::Duration;

use super::client::Backend;
use super::poller::{Poller, TIMEOUT};
use super::*;
use refit_base::proxy::ProxyEnv;
use refit_base::version::Offer;
use refit_base::version::tag::{accept, munge};
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
    ChannelClient::new(
        &[],
        CLUSTER_ID,
        "refit/1.2.3",
        ProxyEnv::default(),
        Hosts::default(),
    )
    .unwrap()
}

impl ChannelClient {
    /// The newest version of a channel, as a tag.
    async fn resolve(&self, url: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        let access = &Access::default();
        let offer = self.offer(ChannelRequest {
            url,
            latest_version,
            access,
        });
        Ok(munge(&offer.await?.newest().unwrap().version))
    }
}

fn patient(timeout: Duration) -> ChannelClient {
    let Backend::Http(poller) = client().0 else {
        panic!("it asks nobody")
    };
    ChannelClient(Backend::Http(Poller { timeout, ..poller }))
}

/// Result of one response of a channel at `/v1-release/channels/stable`.
async fn resolved(answer: &str) -> Result<String, ChannelError> {
    let responder = Responder::start(answer).await;
    client()
        .resolve(&responder.url("/v1-release/channels/stable"), None)
        .await
}

async fn refused(answer: &str) -> String {
    resolved(answer).await.unwrap_err().to_string()
}

/// The error for a redirect to this location.
async fn refused_redirect(location: &str) -> String {
    refused(&redirect("302 Found", location)).await
}

/// A client with these proxies and certificate authorities.
fn client_with(proxies: &[(&str, &str)], authorities: &[&Path]) -> ChannelClient {
    let authorities: Vec<_> = authorities.iter().map(|path| path.to_path_buf()).collect();
    let proxies = environment(proxies);
    ChannelClient::new(&authorities, CLUSTER_ID, "refit/1.2.3", proxies, Hosts::default()).unwrap()
}

async fn error_of(client: &ChannelClient, url: &str) -> String {
    client.resolve(url, None).await.unwrap_err().to_string()
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
async fn a_channel_request_omits_unknown_headers() {
    let responder = Responder::start(&redirect("302 Found", "/test")).await;
    let proxies = ProxyEnv::default();
    let client = ChannelClient::new(&[], "", "refit/1.2.3", proxies, Hosts::default()).unwrap();
    client.resolve(&responder.url("/"), Some("")).await.unwrap();
    assert!(!responder.seen().contains("x-suc"), "{}", responder.seen());
}

#[tokio::test]
async fn a_redirect_ends_in_the_version() {
    for status in ["301 M", "302 Found", "303 S", "307 T", "308 P"] {
        let location = "https://github.com/k3s-io/k3s/releases/tag/v1.30.1%2Bk3s1";
        let version = resolved(&redirect(status, location)).await;
        assert_eq!(version.as_deref(), Ok("v1.30.1-k3s1"), "{status}");
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
        let found = resolved(&redirect("302 Found", location)).await;
        assert_eq!(found.as_deref(), Ok(version), "{location}");
    }
}

#[tokio::test]
async fn a_redirect_to_what_is_no_version_is_refused() {
    for location in ["/", "https://other.example", "/a/.."] {
        let error = refused_redirect(location).await;
        assert_eq!(error, "the answer does not end in a version", "{location}");
    }
    for location in "/v1%20beta /v1:2 /-v1 /%E2%82%AC /v1.2.3%3Fz=1 /%1b[2J /%FF".split(' ') {
        let error = refused_redirect(location).await;
        let is_named = error.contains("cannot be an image tag and a label value");
        assert!(is_named && !error.contains('\u{1b}'), "{location}: {error}");
    }
    let long = refused_redirect(&format!("/{}", "v".repeat(64))).await;
    assert!(long.ends_with("it has more than 63 characters"), "{long}");
    for location in ["javascript:alert(1)", "ftp://other.example/v1", "https://[", ""] {
        let error = refused_redirect(location).await;
        assert_eq!(error, "the redirect's Location is not a URL", "{location}");
    }
}

#[tokio::test]
async fn a_login_page_is_not_a_version() {
    for location in ["https://sso.example/login?return=/stable", "/login?"] {
        assert_eq!(
            refused_redirect(location).await,
            "the redirect's Location has a query: that is a login page or a search, not a version"
        );
    }
    // Without a query it looks like any word, which may be a first version, but not the successor of a release.
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
        let error = resolve("/stable", location).await.unwrap_err();
        assert_eq!(error, back, "{location}");
    }
    // A last path element that looks like a version is one, whatever precedes it.
    assert_eq!(
        resolve("/v1.2.3+k3s1", "https://other.example/v1.2.3+k3s1").await,
        Ok("v1.2.3-k3s1".to_owned())
    );
}

#[tokio::test]
async fn a_redirect_without_a_location_is_an_error() {
    for status in [301, 302, 303, 307, 308] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        let expected = format!("the redirect ({status}) has no Location");
        assert_eq!(refused(&answer).await, expected);
    }
}

#[tokio::test]
async fn other_responses_are_reported_as_system_upgrade_controller_reports_them() {
    // The reason phrase is the standard one, whatever the server sends.
    for (status, shown) in [
        ("404 Not Found", "404 Not Found"),
        ("503 Service Unavailable", "503 Service Unavailable"),
        ("401 Unauthorized", "401 Unauthorized"),
        ("304 Not Modified", "304 Not Modified"),
        ("300 Multiple Choices", "300 Multiple Choices"),
        ("404 <script>", "404 Not Found"),
        ("599 Odd", "599"),
    ] {
        let error = refused(&format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).await;
        assert_eq!(error, format!("unexpected response: HTTP/1.1 {shown}"));
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
        let found = client().resolve(&responder.url(path), None).await;
        assert_eq!(found.as_deref(), Ok(version));
    }
    let error = error_of(&client(), &responder.url("")).await;
    assert_eq!(error, "the answer does not end in a version");
    let json = page("200 OK", "application/json", "{}");
    for answer in [json.as_str(), "HTTP/1.1 204 No Content\r\n\r\n"] {
        assert_eq!(resolved(answer).await.as_deref(), Ok("stable"), "{answer}");
    }
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
        let error = refused(&answer).await;
        assert_eq!(error, "the answer is an HTML page, not a version", "{answer}");
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
async fn a_channel_that_cannot_be_asked_is_reported_without_its_url() {
    let responder = Responder::start("").await;
    let url = responder.url("/s3cret").replace("http://", "http://user:s3cret@");
    responder.stop().await;
    for (url, why) in [
        (url.as_str(), "refused"),
        (
            "https://user:s3cret@nowhere.invalid/s3cret",
            "the request to the channel failed: ",
        ),
        (
            "ftp://user:s3cret@a/v1",
            "only http, https, github and oci are supported",
        ),
        (
            "file:///etc/passwd",
            "only http, https, github and oci are supported",
        ),
        ("data:,v1", "only http, https, github and oci are supported"),
    ] {
        let error = error_of(&client(), url).await;
        assert!(error.contains(why) && !error.contains("s3cret"), "{url}: {error}");
    }
    for url in ";stable;/v1-release;http://;https://user:s3cret@[;http://user:s3cret@a b/".split(';') {
        let error = client().resolve(url, None).await.unwrap_err();
        assert_eq!(error, ChannelError::NotAUrl, "{url}");
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
        assert!(text.starts_with("the request to the channel failed: "), "{text}");
    }
}

#[tokio::test]
async fn the_urls_password_goes_to_the_channel_and_to_no_redirect() {
    let responder = Responder::start(&redirect("302 Found", "/v1.2.3")).await;
    let url = responder.url("/stable").replace("http://", "http://user:p%40ss@");
    client().resolve(&url, None).await.unwrap();
    // user:p@ss
    let request = responder.seen();
    assert!(
        request.contains("authorization: Basic dXNlcjpwQHNz\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn a_certificate_must_be_trusted() {
    let (responder, pem) = tls_responder(&redirect("302 Found", "/v1.2.3")).await;
    let url = format!("https://localhost:{}/stable", responder.address.port());
    let error = error_of(&client(), &url).await;
    assert!(
        error.contains("invalid peer certificate: UnknownIssuer"),
        "{error}"
    );

    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "# our own authority\n{pem}").unwrap();
    let trusting = client_with(&[], &[file.path()]);
    assert_eq!(trusting.resolve(&url, None).await.unwrap(), "v1.2.3");
    let elsewhere = error_of(&trusting, &url.replace("localhost", "127.0.0.1")).await;
    assert!(elsewhere.contains("certificate"), "{elsewhere}");
}

#[test]
fn a_ca_file_that_is_none_is_an_error_at_the_start() {
    let new = |path: &Path| {
        ChannelClient::new(
            &[path.to_owned()],
            "",
            "refit",
            ProxyEnv::default(),
            Hosts::default(),
        )
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
    let direct = ("no_proxy", "direct.invalid,.below.invalid");
    let client = client_with(&[("http_proxy", &through), direct], &[]);
    let version = client.resolve("http://channel.invalid/stable", None).await;
    assert_eq!(version.as_deref(), Ok("v1.2.3"));
    let seen = proxy.seen();
    assert!(
        seen.starts_with("GET http://channel.invalid/stable HTTP/1.1\r\n"),
        "{seen}"
    );
    assert!(
        seen.contains("\r\nproxy-authorization: Basic dTpwQHNz\r\n"),
        "{seen}"
    );

    // These do not use the proxy: their names do not exist, and the proxy gets no request.
    for url in ["http://direct.invalid/stable", "http://a.below.invalid/stable"] {
        assert!(client.resolve(url, None).await.is_err());
    }
    assert_eq!(proxy.seen(), seen);
}

#[tokio::test]
async fn a_channel_on_this_host_is_not_asked_through_a_proxy() {
    let proxy = Responder::start(&redirect("302 Found", "/wrong")).await;
    let channel = Responder::start(&redirect("302 Found", "/right")).await;
    let client = client_with(&[("HTTP_PROXY", &format!("http://{}", proxy.address))], &[]);
    let version = client.resolve(&channel.url("/stable"), None).await;
    assert_eq!(version.as_deref(), Ok("right"));
}

#[tokio::test]
async fn https_goes_through_the_proxy_in_a_tunnel() {
    let (channel, pem) = tls_responder(&redirect("302 Found", "/v1.2.3")).await;
    let proxy = Responder::tunnel_to(channel.address).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{pem}").unwrap();
    let client = client_with(&[("HTTPS_PROXY", &proxy.address.to_string())], &[file.path()]);
    let version = client.resolve("https://channel.invalid/stable", None).await;
    assert_eq!(version.as_deref(), Ok("v1.2.3"));
    let seen = proxy.seen();
    assert!(
        seen.starts_with("CONNECT channel.invalid:443 HTTP/1.1\r\n"),
        "{seen}"
    );
}

#[tokio::test]
async fn a_proxy_that_refuses_is_reported_without_its_password() {
    let proxy =
        Responder::start("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").await;
    let address = format!("http://u:s3cret@{}", proxy.address);
    let client = client_with(&[("HTTPS_PROXY", &address)], &[]);
    let error = error_of(&client, "https://channel.invalid/stable").await;
    assert!(error.contains("proxy") && !error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn a_client_with_static_answers_sends_no_request() {
    let client = ChannelClient::with_answers(|url, latest| match url {
        "https://nowhere.invalid/stable" => {
            Ok(Offer::one(format!("v2-after-{}", latest.unwrap_or("nothing"))))
        }
        _ => Err(ChannelError::NotAUrl),
    });
    let answer = client.resolve("https://nowhere.invalid/stable", Some("v1")).await;
    assert_eq!(answer, Ok("v2-after-v1".to_owned()));
    assert_eq!(client.resolve("other", None).await, Err(ChannelError::NotAUrl));
}
