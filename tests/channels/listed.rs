//! The list of a channel server's channels, as update.k3s.io gives it.

use refit_channel::{Access, Credentials};
use serde_json::{Value, json};

use super::received::{HTML, Stub, answer, basic, bearer, client, offer_of, refusal_of, versions};

fn channel(id: &str, latest: &Value) -> Value {
    json!({
        "id": id, "type": "channel", "links": {"self": format!("https://update.k3s.io/v1-release/channels/{id}")},
        "name": id, "latest": latest, "latestRegexp": "v1\\.33\\..*",
    })
}

fn list() -> String {
    json!({
        "type": "collection", "links": {"self": "https://update.k3s.io/v1-release/channels"}, "actions": {},
        "resourceType": "channels",
        "data": [
            channel("stable", &"v1.33.4+k3s1".into()),
            channel("latest", &"v1.34.1+k3s1".into()),
            channel("v1.16-testing", &"".into()),
            channel("nothing", &Value::Null),
            channel("odd", &"v1 beta".into()),
        ],
    })
    .to_string()
}

/// Code, headers and body of the answer.
type Canned = (u16, Vec<(&'static str, String)>, String);
type List = Stub<Canned>;

impl List {
    async fn with_list() -> Self {
        let state = (200, vec![("etag", "\"1\"".to_owned())], list());
        Self::start(state, |(code, headers, body), received| {
            let etag = headers.iter().find(|(name, _)| *name == "etag");
            let known = received.header("if-none-match");
            if etag.is_some_and(|(_, etag)| known == Some(etag.as_str())) {
                answer(304, headers, "")
            } else {
                answer(*code, headers, body.clone())
            }
        })
        .await
    }

    fn url(&self, id: &str) -> String {
        format!("http://127.0.0.1:{}/v1-release/channels#{id}", self.port())
    }

    fn respond(&self, code: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let answer = (code, headers.collect(), body.to_owned());
        self.set(|state| *state = answer);
    }
}

#[tokio::test]
async fn a_channel_is_found_in_the_list_by_its_id() {
    let server = List::with_list().await;
    let client = client();
    for (id, version) in [("stable", "v1.33.4+k3s1"), ("latest", "v1.34.1+k3s1")] {
        let offered = offer_of(&client, &server.url(id), &Access::default()).await;
        assert_eq!(versions(&offered), [version]);
    }
    let received = server.log.take();
    assert_eq!(received[0].target, "/v1-release/channels");
    assert_eq!(received[0].header("x-suc-cluster-id"), Some("cluster"));
    let all = "stable, latest, nothing, odd, v1.16-testing";
    for (id, why) in [
        (
            "stabel",
            format!("the channel server has no channel \"stabel\"; did you mean \"stable\"? it has {all}"),
        ),
        ("v1.99", format!("the channel server has no channel \"v1.99\"; it has {all}")),
        ("", format!("the channel's URL has no channel name after its #; the server has {all}")),
        (
            "v1.16-testing",
            "channel \"v1.16-testing\" of the channel server has no version at present".to_owned(),
        ),
        ("nothing", "channel \"nothing\" of the channel server has no version at present".to_owned()),
        (
            "odd",
            "\"v1 beta\" cannot be an image tag and a label value: it has characters other than letters, digits, '.', '_' and '-'"
                .to_owned(),
        ),
    ] {
        let error = refusal_of(&client, &server.url(id), &Access::default()).await;
        assert_eq!(error.to_string(), why);
    }
}

#[tokio::test]
async fn an_unchanged_list_is_not_sent_again() {
    let server = List::with_list().await;
    let client = client();
    for expected in [None, Some("\"1\""), Some("\"1\"")] {
        let offered = offer_of(&client, &server.url("stable"), &Access::default()).await;
        assert_eq!(versions(&offered), ["v1.33.4+k3s1"]);
        assert_eq!(server.log.take()[0].header("if-none-match"), expected);
    }
    server.respond(200, &[("etag", "\"2\"")], &list().replace("v1.33.4", "v1.33.5"));
    let offered = offer_of(&client, &server.url("stable"), &Access::default()).await;
    assert_eq!(versions(&offered), ["v1.33.5+k3s1"]);
    // A list that was read with credentials is not given to other requests.
    server.log.take();
    for token in ["one", "two"] {
        offer_of(&client, &server.url("stable"), &bearer(token)).await;
    }
    let requests = server.log.take();
    assert!(
        requests
            .iter()
            .all(|request| request.header("if-none-match").is_none())
    );
}

#[tokio::test]
async fn a_list_that_redirects_is_read_as_a_channel() {
    let server = List::with_list().await;
    server.respond(302, &[("location", "/releases/v1.2.3+k3s1")], "");
    let offered = offer_of(&client(), &server.url("stable"), &Access::default()).await;
    assert_eq!(versions(&offered), ["v1.2.3+k3s1"]);
}

#[tokio::test]
async fn an_answer_that_is_no_channel_list_is_reported() {
    let server = List::with_list().await;
    let html = &[("content-type", "text/html")][..];
    let no_list = "the answer is not a list of channels";
    let none = "the channel server has no channel \"stable\"; it has none";
    for (code, headers, body, why) in [
        (200, html, "<html>", HTML),
        (200, &[], "v1.2.3", no_list),
        (200, &[], "{}", no_list),
        (200, &[], r#"{"data": []}"#, none),
        (304, &[], "", "unexpected response: HTTP/1.1 304 Not Modified"),
        (404, &[], "", "unexpected response: HTTP/1.1 404 Not Found"),
    ] {
        server.respond(code, headers, body);
        let error = refusal_of(&client(), &server.url("stable"), &Access::default()).await;
        assert_eq!(error.to_string(), why, "{body}");
    }
    server.respond(200, &[], &" ".repeat((1 << 20) + 1));
    let error = refusal_of(&client(), &server.url("stable"), &Access::default()).await;
    assert_eq!(error.to_string(), "the answer has more than 1 MiB");
}

#[tokio::test]
async fn credentials_go_to_the_channel_as_the_secret_says_and_to_no_redirect() {
    let server = List::with_list().await;
    let elsewhere = List::with_list().await;
    let there = format!("http://127.0.0.1:{}/v1.2.3", elsewhere.port());
    server.respond(302, &[("location", &there)], "");
    let header = Access {
        credentials: Some(Credentials::Header {
            name: "PRIVATE-TOKEN".to_owned(),
            value: "s3cret".to_owned(),
        }),
        ..Access::default()
    };
    let plain = server.url("").replace('#', "/stable");
    let with_password = plain.replace("http://", "http://other:password@");
    for (access, name, value) in [
        (bearer("s3cret"), "authorization", "Bearer s3cret"),
        (basic("u", "p:w"), "authorization", "Basic dTpwOnc="),
        (header, "private-token", "s3cret"),
    ] {
        for url in [&plain, &with_password, &server.url("stable")] {
            let offered = offer_of(&client(), url, &access).await;
            assert_eq!(versions(&offered), ["v1.2.3"]);
            let received = server.log.take();
            assert_eq!(received.len(), 1);
            let sent: Vec<_> = received[0].headers.get_all(name).iter().collect();
            assert_eq!(sent, [value], "{url}");
        }
    }
    assert!(elsewhere.log.take().is_empty());
}
