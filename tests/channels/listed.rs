//! The list of a channel server's channels, as update.k3s.io gives it.

use std::sync::{Arc, Mutex, PoisonError};

use refit::channel::{Access, Credentials};
use serde_json::{Value, json};

use super::seen::{Log, answer, basic, bearer, client, offer, versions};
use crate::support::serve::Server;

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

struct List {
    server: Server,
    log: Log,
    answer: Arc<Mutex<(u16, Vec<(&'static str, String)>, String)>>,
}

impl List {
    async fn start() -> Self {
        let log = Log::default();
        let answers = Arc::new(Mutex::new((200, vec![("etag", "\"1\"".to_owned())], list())));
        let handler = {
            let (log, answers) = (log.clone(), answers.clone());
            move |request| {
                let asked = log.note(&request);
                let (code, headers, body) = answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let etag = headers
                    .iter()
                    .find(|(name, _)| *name == "etag")
                    .map(|(_, etag)| etag.clone());
                let same = etag.is_some() && asked.header("if-none-match") == etag.as_deref();
                async move {
                    Ok(if same {
                        answer(304, &headers, "")
                    } else {
                        answer(code, &headers, body)
                    })
                }
            }
        };
        Self {
            server: Server::start(None, handler).await.unwrap(),
            log,
            answer: answers,
        }
    }

    fn url(&self, id: &str) -> String {
        format!("http://127.0.0.1:{}/v1-release/channels#{id}", self.server.port())
    }

    fn set(&self, code: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = (code, headers, body.to_owned());
    }
}

#[tokio::test]
async fn a_channel_is_found_in_the_list_by_its_id() {
    let server = List::start().await;
    let client = client();
    for (id, version) in [("stable", "v1.33.4+k3s1"), ("latest", "v1.34.1+k3s1")] {
        let offered = offer(&client, &server.url(id), &Access::default()).await.unwrap();
        assert_eq!(versions(&offered), [version]);
    }
    let asked = server.log.take();
    assert_eq!(asked[0].target, "/v1-release/channels");
    assert_eq!(asked[0].header("x-suc-cluster-id"), Some("cluster"));
    for (id, why) in [
        (
            "stabel",
            "the channel server has no channel \"stabel\"; did you mean \"stable\"?",
        ),
        ("v1.99", "the channel server has no channel \"v1.99\""),
        (
            "v1.16-testing",
            "channel \"v1.16-testing\" of the channel server has no version now",
        ),
        (
            "nothing",
            "channel \"nothing\" of the channel server has no version now",
        ),
        (
            "odd",
            "\"v1 beta\" cannot be an image tag and a label value: it has other characters than letters, digits, '.', '_' and '-'",
        ),
    ] {
        let error = offer(&client, &server.url(id), &Access::default())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), why);
    }
}

#[tokio::test]
async fn a_list_that_is_the_same_is_not_sent_again() {
    let server = List::start().await;
    let client = client();
    for expected in [None, Some("\"1\""), Some("\"1\"")] {
        let offered = offer(&client, &server.url("stable"), &Access::default())
            .await
            .unwrap();
        assert_eq!(versions(&offered), ["v1.33.4+k3s1"]);
        assert_eq!(server.log.take()[0].header("if-none-match"), expected);
    }
    server.set(200, &[("etag", "\"2\"")], &list().replace("v1.33.4", "v1.33.5"));
    let offered = offer(&client, &server.url("stable"), &Access::default())
        .await
        .unwrap();
    assert_eq!(versions(&offered), ["v1.33.5+k3s1"]);
    // What was read with credentials is for who has them.
    let asked = |access: Access| {
        let (client, url) = (client.clone(), server.url("stable"));
        async move { offer(&client, &url, &access).await.unwrap() }
    };
    server.log.take();
    asked(bearer("one")).await;
    asked(bearer("two")).await;
    assert!(
        server
            .log
            .take()
            .iter()
            .all(|asked| asked.header("if-none-match").is_none())
    );
}

#[tokio::test]
async fn a_server_that_redirects_is_a_channel_all_the_same() {
    let server = List::start().await;
    server.set(302, &[("location", "/releases/v1.2.3+k3s1")], "");
    let offered = offer(&client(), &server.url("stable"), &Access::default())
        .await
        .unwrap();
    assert_eq!(versions(&offered), ["v1.2.3+k3s1"]);
}

#[tokio::test]
async fn what_is_no_list_is_told() {
    let server = List::start().await;
    for (code, headers, body, why) in [
        (
            200,
            &[("content-type", "text/html")][..],
            "<html>",
            "the answer is an HTML page, not a version",
        ),
        (200, &[], "v1.2.3", "the answer is no list of channels"),
        (200, &[], "{}", "the answer is no list of channels"),
        (
            200,
            &[],
            r#"{"data": []}"#,
            "the channel server has no channel \"stable\"",
        ),
        (304, &[], "", "unexpected response: HTTP/1.1 304 Not Modified"),
        (404, &[], "", "unexpected response: HTTP/1.1 404 Not Found"),
    ] {
        server.set(code, headers, body);
        let error = offer(&client(), &server.url("stable"), &Access::default())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), why, "{body}");
    }
    server.set(200, &[], &" ".repeat((1 << 20) + 1));
    let error = offer(&client(), &server.url("stable"), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the answer has more than 1 MiB");
}

#[tokio::test]
async fn credentials_go_to_the_channel_as_the_secret_says_and_to_no_redirect() {
    let server = List::start().await;
    let elsewhere = List::start().await;
    let there = format!("http://127.0.0.1:{}/v1.2.3", elsewhere.server.port());
    server.set(302, &[("location", &there)], "");
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
            let offered = offer(&client(), url, &access).await.unwrap();
            assert_eq!(versions(&offered), ["v1.2.3"]);
            let asked = server.log.take();
            assert_eq!(asked.len(), 1);
            let sent: Vec<_> = asked[0].headers.get_all(name).iter().collect();
            assert_eq!(sent, [value], "{url}");
        }
    }
    assert!(elsewhere.log.take().is_empty());
}
