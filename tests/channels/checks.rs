//! `spec.checks` without a controller: the limits of a request, and what an answer means.

use refit_api::{CheckAnswer, CheckSpec, PlanSpec};
use refit_base::proxy::ProxyEnv;
use refit_channel::{Access, ChannelClient, Hosts};
use serde_json::{Value, json};

use crate::testenv::channel::{Answer, ChannelServer};

async fn ask(client: &ChannelClient, check: Value, access: &Access) -> CheckAnswer {
    let check: CheckSpec = serde_json::from_value(check).unwrap();
    let spec = PlanSpec {
        checks: Some(vec![check]),
        ..PlanSpec::default()
    };
    client.check(&spec.checks().unwrap()[0], access).await
}

fn client(hosts: &[&str]) -> ChannelClient {
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    ChannelClient::new(&[], "", "refit/test", ProxyEnv::default(), Hosts::new(hosts)).unwrap()
}

#[tokio::test]
async fn a_check_is_asked_within_the_limits_of_channels_and_follows_no_redirect() {
    let server = ChannelServer::start().await;
    server.answers("/ok", Answer::Plain(200, "text/plain", "all is well".to_owned()));
    server.redirects("/moved", "/ok");
    server.answers("/large", Answer::Plain(200, "text/plain", "x".repeat(1 << 20)));
    server.answers(
        "/large/api/v1/query",
        Answer::Plain(200, "text/plain", "x".repeat(1 << 20)),
    );
    let bad =
        json!({ "status": "error", "errorType": "bad_data", "error": "1:5: parse error: unexpected end" });
    server.answers(
        "/bad/api/v1/query",
        Answer::Plain(400, "application/json", bad.to_string()),
    );
    server.answers("/broken", Answer::Break);
    server.answers("/hang", Answer::Hang);
    let within = |timeout: &str, path: &str| json!({ "name": "x", "timeout": timeout, "http": { "url": server.url(path) } });
    // The longest that there is.
    let http = |path: &str| within("30s", path);
    let text = |path: &str, text: &str| json!({ "name": "x", "timeout": "30s", "http": { "url": server.url(path), "contains": text } });
    let query = |path: &str| {
        let question = json!({ "url": server.url(path), "query": "up", "max": 1 });
        json!({ "name": "x", "timeout": "30s", "prometheus": question })
    };
    let open = Access::default();
    let any = client(&[]);
    for (check, passed, message) in [
        (http("/ok"), true, "HTTP/1.1 200 OK"),
        (
            text("/ok", "well"),
            true,
            "HTTP/1.1 200 OK, with the text of contains",
        ),
        (
            text("/ok", "ill"),
            false,
            "HTTP/1.1 200 OK, and the body does not contain the text of contains",
        ),
        (
            text("/large", "y"),
            false,
            "HTTP/1.1 200 OK, and the body does not contain the text of contains",
        ),
        (
            http("/moved"),
            false,
            "HTTP/1.1 302 Found: redirects are not followed; name the final URL",
        ),
        (http("/absent"), false, "HTTP/1.1 404 Not Found"),
        (within("2s", "/hang"), false, "no answer within 2s"),
        (
            query("/large"),
            false,
            "the answer has more than 256 KiB: aggregate the query",
        ),
        (
            query("/bad"),
            false,
            "HTTP/1.1 400 Bad Request: 1:5: parse error: unexpected end",
        ),
    ] {
        let answer = ask(&any, check.clone(), &open).await;
        assert_eq!(
            (answer.passed, answer.message.as_str()),
            (passed, message),
            "{check}"
        );
    }
    let broken = ask(&any, http("/broken"), &open).await;
    assert!(
        !broken.passed && broken.message.starts_with("the request failed: "),
        "{broken:?}"
    );
    let answer = ask(&client(&["shop.example.com"]), http("/ok"), &open).await;
    assert_eq!(
        answer.message,
        "127.0.0.1 is not a host that --channel-host allows"
    );
    let metadata = json!({ "name": "x", "http": { "url": "http://169.254.169.254/latest" } });
    let answer = ask(&any, metadata, &open).await;
    assert!(
        answer.message.starts_with("169.254.169.254 is link-local"),
        "{answer:?}"
    );
}
