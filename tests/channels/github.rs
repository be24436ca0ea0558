//! Releases on GitHub: a server that answers as GitHub's REST API does.

use http::Response;
use jiff::Timestamp;
use refit_channel::{Access, ChannelError};
use serde_json::{Value, json};

use super::received::{
    HTML, ReceivedRequest, Stub, answer, bearer, client, offer, offer_of, refusal_of, versions,
};
use crate::testenv::serve::Body;

/// The time of the server.
const NOW: &str = "Sat, 21 Nov 2026 20:00:00 GMT";
const RESET: i64 = 1_795_292_000;
const TOKEN: &str = "ghp_s3cret";

type Github = Stub<State>;

#[derive(Default)]
struct State {
    releases: Vec<Value>,
    /// Requests left before the rate limit, if there is one.
    left: Option<u32>,
    /// The answer of the API instead of the releases.
    instead: Option<(u16, Vec<(&'static str, String)>, String)>,
    private: bool,
    /// A number that changes the body and the entity tag, but no release, as GitHub's counts of downloads do.
    downloads: u32,
    renamed: bool,
}

fn release(tag: &str, draft: bool, prerelease: bool) -> Value {
    json!({
        "url": "https://api.github.com/repos/k3s-io/k3s/releases/1", "id": 1, "tag_name": tag, "target_commitish": "main",
        "name": tag, "draft": draft, "prerelease": prerelease, "created_at": "2026-08-01T10:00:00Z",
        "published_at": if draft { Value::Null } else { "2026-08-02T11:12:13Z".into() },
        "assets": [{"name": "k3s", "size": 1, "uploader": {"login": "bot"}}], "body": "## Changes\n<html>", "author": null,
    })
}

impl Github {
    async fn with(releases: Vec<Value>) -> Self {
        let state = State {
            releases,
            ..State::default()
        };
        Self::start(state, State::answer).await
    }

    fn channel(&self) -> String {
        format!("github://127.0.0.1:{}/k3s-io/k3s", self.port())
    }

    fn api(&self) -> Vec<ReceivedRequest> {
        let mut received = self.log.take();
        received.retain(|request| request.path().starts_with("/api/"));
        received
    }
}

impl State {
    fn answer(&mut self, received: &ReceivedRequest) -> Response<Body> {
        match received.path() {
            "/api/v3/repos/k3s-io/k3s/releases" if self.renamed => {
                let query = received.target.split_once('?').unwrap().1;
                let moved = format!("/api/v3/repositories/1/releases?{query}");
                answer(301, &[("location", moved)], "")
            }
            "/api/v3/repos/k3s-io/k3s/releases" | "/api/v3/repositories/1/releases" => self.api(received),
            _ => answer(404, &[], r#"{"message":"Not Found"}"#),
        }
    }

    /// docs.github.com, "List releases", "Using pagination", "Rate limits", "Conditional requests".
    fn api(&mut self, received: &ReceivedRequest) -> Response<Body> {
        assert_eq!(received.header("accept"), Some("application/vnd.github+json"));
        assert_eq!(received.header("x-github-api-version"), Some("2022-11-28"));
        assert!(
            received.header("user-agent").is_some(),
            "GitHub refuses requests without a user agent"
        );
        let mut headers = vec![
            ("date", NOW.to_owned()),
            ("content-type", "application/json; charset=utf-8".to_owned()),
        ];
        if let Some((code, more, body)) = &self.instead {
            headers.extend(more.clone());
            return answer(*code, &headers, body.clone());
        }
        let authorized = match received.header("authorization") {
            None if self.private => return answer(404, &headers, r#"{"message":"Not Found"}"#),
            None => false,
            Some(given) if given == format!("Bearer {TOKEN}") => true,
            Some(_) => return answer(401, &headers, r#"{"message":"Bad credentials"}"#),
        };
        let number =
            |name: &str, default: usize| received.query(name).map_or(default, |text| text.parse().unwrap());
        let (per_page, page) = (number("per_page", 30).min(100), number("page", 1));
        let visible = self
            .releases
            .iter()
            .filter(|release| authorized || release["draft"] == false);
        let visible: Vec<_> = visible.collect();
        let shown: Vec<_> = visible
            .iter()
            .skip((page - 1) * per_page)
            .take(per_page)
            .collect();
        let body = serde_json::to_string(&shown).unwrap();
        let etag = format!(
            "W/\"{:x}-{}-{authorized}\"",
            body.len() * 31 + body.bytes().map(usize::from).sum::<usize>(),
            self.downloads
        );
        headers.push(("etag", etag.clone()));
        let unchanged = received.header("if-none-match") == Some(&etag);
        if let Some(left) = &mut self.left
            && !(unchanged && authorized)
        {
            if *left == 0 {
                headers.push(("x-ratelimit-remaining", "0".to_owned()));
                headers.push(("x-ratelimit-reset", RESET.to_string()));
                return answer(
                    403,
                    &headers,
                    r#"{"message":"API rate limit exceeded for 127.0.0.1."}"#,
                );
            }
            *left -= 1;
        }
        if unchanged {
            return answer(304, &headers, "");
        }
        let last = visible.len().div_ceil(per_page);
        let host = received.header("host").unwrap();
        let link = |page: usize, relation: &str| {
            format!(
                "<https://{host}/api/v3/repositories/1/releases?per_page={per_page}&page={page}>; rel=\"{relation}\""
            )
        };
        let mut links = Vec::new();
        if page > 1 {
            links.extend([link(page - 1, "prev"), link(1, "first")]);
        }
        if page < last {
            links.extend([link(page + 1, "next"), link(last, "last")]);
        }
        if !links.is_empty() {
            headers.push(("link", links.join(", ")));
        }
        answer(200, &headers, body)
    }
}

/// This number of releases, of which a tenth are drafts and a tenth prereleases.
fn many(count: usize) -> Vec<Value> {
    let tag = |patch: usize| format!("v1.33.{patch}+k3s1");
    (0..count)
        .rev()
        .map(|number| release(&tag(number), number % 10 == 3, number % 10 == 7))
        .collect()
}

#[tokio::test]
async fn releases_are_all_but_drafts_and_prereleases_with_their_dates() {
    let github = Github::with(vec![
        release("v1.35.0-rc1+k3s1", false, true),
        release("v1.34.2+k3s1", true, false),
        release("v1.34.1+k3s1", false, false),
        release("kubelet/v1.0.0", false, false),
        release("v1.33.4+k3s1", false, false),
    ])
    .await;
    for access in [Access::default(), bearer(TOKEN)] {
        let offered = offer_of(&client(), &github.channel(), &access).await;
        assert_eq!(versions(&offered), ["v1.33.4+k3s1", "v1.34.1+k3s1"]);
        assert_eq!(offered.partial, None);
        let published: Option<Timestamp> = "2026-08-02T11:12:13Z".parse().ok();
        let mut releases = offered.releases.iter();
        assert!(releases.all(|release| release.published == published));
    }
    let received = github.api();
    let sent: Vec<_> = received
        .iter()
        .map(|request| request.header("authorization"))
        .collect();
    assert_eq!(sent, [None, Some("Bearer ghp_s3cret")]);
}

#[tokio::test]
async fn all_pages_are_read_and_only_the_first_one_again_while_it_has_the_same_releases() {
    for access in [Access::default(), bearer(TOKEN)] {
        let github = Github::with(many(250)).await;
        let client = client();
        let first = offer_of(&client, &github.channel(), &access).await;
        // A token also shows drafts, which are no releases.
        assert_eq!(first.releases.len(), 200, "a fifth are drafts and prereleases");
        assert_eq!(github.api().len(), 3);

        github.set(|state| state.left = Some(1));
        let second = offer_of(&client, &github.channel(), &access).await;
        assert_eq!(versions(&first), versions(&second));
        let received = github.api();
        assert_eq!(received.len(), 1, "each request counts towards 60 an hour");
        assert!(received[0].header("if-none-match").is_some());

        github.set(|state| (state.left, state.downloads) = (Some(1), 1));
        let third = offer_of(&client, &github.channel(), &access).await;
        assert_eq!(versions(&first), versions(&third));
        assert_eq!(github.api().len(), 1, "a download is no release");

        github.set(|state| {
            state.left = None;
            state.releases.insert(0, release("v1.34.0+k3s1", false, false));
        });
        let fourth = offer_of(&client, &github.channel(), &access).await;
        assert_eq!((fourth.releases.len(), github.api().len()), (201, 3));
        assert!(versions(&fourth).contains(&"v1.34.0+k3s1"));
    }
}

#[tokio::test]
async fn releases_read_with_a_token_are_not_given_to_others() {
    let github = Github::with(vec![release("v1.0.0", false, false)]).await;
    github.set(|state| state.private = true);
    let client = client();
    assert!(offer(&client, &github.channel(), &bearer(TOKEN)).await.is_ok());
    github.log.take();
    for access in [Access::default(), bearer("another")] {
        let error = refusal_of(&client, &github.channel(), &access).await.to_string();
        assert!(!error.contains("another"), "{error}");
    }
    let requests = github.api();
    assert!(
        requests
            .iter()
            .all(|request| request.header("if-none-match").is_none())
    );
}

#[tokio::test]
async fn after_the_rate_limit_is_used_up_the_error_says_when_the_next_try_is_and_which_field_names_a_token() {
    let github = Github::with(many(10)).await;
    github.set(|state| state.left = Some(0));
    let client = client();
    for requests in [1, 0] {
        let error = refusal_of(&client, &github.channel(), &Access::default()).await;
        assert_eq!(
            error.to_string(),
            "the rate limit is exhausted; next try at 2026-11-21T20:13:20Z; set a token: spec.channelSecretRef, or --token-file on \
             the command line"
        );
        assert_eq!(github.api().len(), requests, "until then no request is sent");
    }
    // Requests with a token have a limit of their own, and an unchanged page does not count.
    let access = bearer(TOKEN);
    github.set(|state| state.left = Some(1));
    for _ in 0..2 {
        let offered = offer_of(&client, &github.channel(), &access).await;
        assert_eq!((offered.releases.len(), offered.partial), (8, None));
    }
    github.set(|state| state.releases.insert(0, release("v1.34.0+k3s1", false, false)));
    let error = refusal_of(&client, &github.channel(), &access).await;
    assert_eq!(
        error.to_string(),
        "the rate limit is exhausted; next try at 2026-11-21T20:13:20Z"
    );
}

#[tokio::test]
async fn limits_without_a_time_of_reset_are_respected_too() {
    for (code, header) in [
        (429, ("retry-after", "60")),
        (403, ("retry-after", "60")),
        (429, ("x-other", "1")),
    ] {
        let github = Github::with(Vec::new()).await;
        github
            .set(|state| state.instead = Some((code, vec![(header.0, header.1.to_owned())], String::new())));
        let client = client();
        let until = "2026-11-21T20:01:00Z".parse().ok();
        for _ in 0..2 {
            let error = refusal_of(&client, &github.channel(), &bearer(TOKEN)).await;
            assert_eq!(error, ChannelError::RateLimited { until, remedy: None });
        }
        assert_eq!(github.api().len(), 1, "{code} {header:?}");
    }
}

#[tokio::test]
async fn a_refusal_by_the_api_is_named() {
    let github = Github::with(many(3)).await;
    let client = client();
    let refusal = async |url: &str, token: &str| refusal_of(&client, url, &bearer(token)).await.to_string();
    let wrong = refusal(&github.channel(), "wrong-s3cret").await;
    assert_eq!(
        wrong,
        "the server refused the credentials (HTTP/1.1 401 Unauthorized)"
    );
    let missing = refusal(&github.channel().replace("k3s-io/k3s", "k3s-io/k4s"), TOKEN).await;
    assert_eq!(
        missing,
        "the repository does not exist, or these credentials cannot read it (HTTP/1.1 404 Not Found)"
    );
    github.set(|state| state.instead = Some((403, Vec::new(), String::new())));
    let forbidden = refusal(&github.channel(), TOKEN).await;
    assert_eq!(
        forbidden,
        "the server refused the credentials (HTTP/1.1 403 Forbidden)"
    );
    let no_list = "the answer is not a list of releases";
    let none = "the repository has no release other than drafts and prereleases";
    for (kind, body, why) in [
        ("text/html", "<html>Sign in", HTML),
        ("text/plain", " <!DOCTYPE html>", HTML),
        ("application/json", "{}", no_list),
        ("application/json", "", no_list),
        ("application/json", r#"[{"name": "v1"}]"#, no_list),
        ("application/json", "[]", none),
    ] {
        github.set(|state| {
            state.instead = Some((200, vec![("content-type", kind.to_owned())], body.to_owned()));
        });
        let error = refusal_of(&client, &github.channel(), &Access::default()).await;
        assert_eq!(error.to_string(), why, "{body}");
    }
}

#[tokio::test]
async fn a_failure_of_the_api_is_an_error_and_not_an_answer_that_was_kept() {
    let github = Github::with(many(3)).await;
    let client = client();
    offer_of(&client, &github.channel(), &Access::default()).await;
    github.set(|state| state.instead = Some((503, Vec::new(), "<html>Unicorn".to_owned())));
    let error = refusal_of(&client, &github.channel(), &Access::default()).await;
    assert_eq!(
        error.to_string(),
        "unexpected response: HTTP/1.1 503 Service Unavailable"
    );
}

#[tokio::test]
async fn a_renamed_repository_is_found_with_its_token() {
    let github = Github::with(many(120)).await;
    github.set(|state| (state.renamed, state.private) = (true, true));
    let client = client();
    for _ in 0..2 {
        let offered = offer_of(&client, &github.channel(), &bearer(TOKEN)).await;
        assert_eq!(offered.releases.len(), 96);
    }
}

#[tokio::test]
async fn a_token_follows_no_redirect_to_another_host() {
    let github = Github::with(Vec::new()).await;
    let evil = Github::with(many(3)).await;
    let there = format!(
        "http://127.0.0.1:{}/api/v3/repositories/1/releases?per_page=100",
        evil.port()
    );
    for code in [301, 302, 307, 308] {
        github.set(|state| state.instead = Some((code, vec![("location", there.clone())], String::new())));
        let _ = offer(&client(), &github.channel(), &bearer(TOKEN)).await;
    }
    let received = evil.log.take();
    assert_eq!(received.len(), 4);
    for request in received {
        assert!(!format!("{request:?}").contains("s3cret"), "{request:?}");
    }
    // Nor is the next page read there.
    let next = format!("<http://localhost:{}/x?page=2>; rel=\"next\"", evil.port());
    let page = serde_json::to_string(&many(3)).unwrap();
    github.set(|state| state.instead = Some((200, vec![("link", next)], page)));
    let error = refusal_of(&client(), &github.channel(), &bearer(TOKEN)).await;
    assert_eq!(error, ChannelError::Paging);
    assert!(evil.log.take().is_empty());
}

#[tokio::test]
async fn pages_in_a_circle_and_answers_without_end_are_errors() {
    let github = Github::with(Vec::new()).await;
    let page = serde_json::to_string(&many(3)).unwrap();
    let link = "</api/v3/repos/k3s-io/k3s/releases?per_page=100>; rel=\"next\"";
    github.set(|state| state.instead = Some((200, vec![("link", link.to_owned())], page)));
    let error = refusal_of(&client(), &github.channel(), &Access::default()).await;
    assert_eq!(error, ChannelError::Paging);
    github.set(|state| state.instead = Some((302, vec![("location", link.to_owned())], String::new())));
    let error = refusal_of(&client(), &github.channel(), &bearer(TOKEN)).await;
    assert!(
        error == ChannelError::Redirects || error.to_string().contains("404"),
        "{error}"
    );
    github.set(|state| state.instead = Some((200, Vec::new(), " ".repeat((16 << 20) + 1))));
    let error = refusal_of(&client(), &github.channel(), &Access::default()).await;
    assert_eq!(error.to_string(), "the answer has more than 16 MiB");
}
