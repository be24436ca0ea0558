//! Releases on GitHub: a server that answers as GitHub's REST API and its release pages do.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Response, StatusCode};
use jiff::Timestamp;
use refit::channel::{Access, ChannelError};
use serde_json::{Value, json};

use super::seen::{Asked, Log, answer, bearer, client, offer, versions};
use crate::support::serve::{Body, Server};

/// When the server believes to be.
const NOW: &str = "Sat, 21 Nov 2026 20:00:00 GMT";
const RESET: i64 = 1_795_292_000;
const TOKEN: &str = "ghp_s3cret";

struct Github {
    server: Server,
    state: Arc<Mutex<State>>,
    log: Log,
}

#[derive(Default)]
struct State {
    releases: Vec<Value>,
    /// Requests that are left, where they are counted.
    left: Option<u32>,
    /// Whatever else is answered to the API.
    instead: Option<(u16, Vec<(&'static str, String)>, String)>,
    private: bool,
    /// The tag that the pages call the latest.
    latest: Option<String>,
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
    async fn start(releases: Vec<Value>) -> Self {
        let state = Arc::new(Mutex::new(State {
            releases,
            ..State::default()
        }));
        let log = Log::default();
        let handler = {
            let (state, log) = (state.clone(), log.clone());
            move |request| {
                let asked = log.note(&request);
                let answer = state
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .answer(&asked);
                async move { Ok(answer) }
            }
        };
        let server = Server::start(None, handler).await.unwrap();
        Self { server, state, log }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn channel(&self) -> String {
        format!("github://127.0.0.1:{}/k3s-io/k3s", self.server.port())
    }

    fn api(&self) -> Vec<Asked> {
        let mut asked = self.log.take();
        asked.retain(|asked| asked.path().starts_with("/api/"));
        asked
    }
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Response<Body> {
        match asked.path() {
            "/api/v3/repos/k3s-io/k3s/releases" if self.renamed => {
                let query = asked.target.split_once('?').unwrap().1;
                let moved = format!("/api/v3/repositories/1/releases?{query}");
                answer(301, &[("location", moved)], "")
            }
            "/api/v3/repos/k3s-io/k3s/releases" | "/api/v3/repositories/1/releases" => self.api(asked),
            "/k3s-io/k3s/releases/latest" => {
                assert_eq!(asked.header("authorization"), None, "pages are for everybody");
                let location = match &self.latest {
                    Some(tag) => format!("/k3s-io/k3s/releases/tag/{}", tag.replace('+', "%2B")),
                    None => "/k3s-io/k3s/releases".to_owned(),
                };
                answer(302, &[("location", location)], "")
            }
            "/k3s-io/k3s/releases" => answer(200, &[("content-type", "text/html".to_owned())], "<html>"),
            _ => answer(404, &[], r#"{"message":"Not Found"}"#),
        }
    }

    /// docs.github.com, "List releases", "Using pagination", "Rate limits", "Conditional requests".
    fn api(&mut self, asked: &Asked) -> Response<Body> {
        assert_eq!(asked.header("accept"), Some("application/vnd.github+json"));
        assert_eq!(asked.header("x-github-api-version"), Some("2022-11-28"));
        assert!(
            asked.header("user-agent").is_some(),
            "GitHub refuses who does not say what it is"
        );
        let mut headers = vec![
            ("date", NOW.to_owned()),
            ("content-type", "application/json; charset=utf-8".to_owned()),
        ];
        if let Some((code, more, body)) = &self.instead {
            headers.extend(more.clone());
            return answer(*code, &headers, body.clone());
        }
        let authorized = match asked.header("authorization") {
            None if self.private => return answer(404, &headers, r#"{"message":"Not Found"}"#),
            None => false,
            Some(given) if given == format!("Bearer {TOKEN}") => true,
            Some(_) => return answer(401, &headers, r#"{"message":"Bad credentials"}"#),
        };
        let number =
            |name: &str, default: usize| asked.query(name).map_or(default, |text| text.parse().unwrap());
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
            "W/\"{:x}-{authorized}\"",
            body.len() * 31 + body.bytes().map(usize::from).sum::<usize>()
        );
        headers.push(("etag", etag.clone()));
        let unchanged = asked.header("if-none-match") == Some(&etag);
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
        let host = asked.header("host").unwrap();
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

/// So many releases, of which some are drafts and prereleases.
fn many(count: usize) -> Vec<Value> {
    let tag = |patch: usize| format!("v1.33.{patch}+k3s1");
    (0..count)
        .rev()
        .map(|number| release(&tag(number), number % 10 == 3, number % 10 == 7))
        .collect()
}

#[tokio::test]
async fn releases_are_all_but_drafts_and_prereleases_and_say_when_they_were_published() {
    let github = Github::start(vec![
        release("v1.35.0-rc1+k3s1", false, true),
        release("v1.34.2+k3s1", true, false),
        release("v1.34.1+k3s1", false, false),
        release("kubelet/v1.0.0", false, false),
        release("v1.33.4+k3s1", false, false),
    ])
    .await;
    for access in [Access::default(), bearer(TOKEN)] {
        let offered = offer(&client(), &github.channel(), &access).await.unwrap();
        assert_eq!(versions(&offered), ["v1.33.4+k3s1", "v1.34.1+k3s1"]);
        assert_eq!(offered.partial, None);
        let published: Timestamp = "2026-08-02T11:12:13Z".parse().unwrap();
        assert!(
            offered
                .releases
                .iter()
                .all(|release| release.published == Some(published))
        );
    }
    let asked = github.api();
    let sent: Vec<_> = asked.iter().map(|asked| asked.header("authorization")).collect();
    assert_eq!(sent, [None, Some("Bearer ghp_s3cret")]);
}

#[tokio::test]
async fn all_pages_are_read_and_afterwards_only_what_has_changed() {
    let github = Github::start(many(250)).await;
    github.set(|state| state.left = Some(3));
    let client = client();
    let access = bearer(TOKEN);
    let offered = offer(&client, &github.channel(), &access).await.unwrap();
    assert_eq!(offered.releases.len(), 200, "four of five are for everybody");
    assert_eq!(github.api().len(), 3);

    // Nothing new: all of it is known by its entity tags, and nothing counts towards the limit.
    let again = offer(&client, &github.channel(), &access).await.unwrap();
    assert_eq!(versions(&again), versions(&offered));
    let asked = github.api();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|asked| asked.header("if-none-match").is_some()));

    github.set(|state| {
        state.releases.insert(0, release("v1.34.0+k3s1", false, false));
        state.left = None;
    });
    let newer = offer(&client, &github.channel(), &access).await.unwrap();
    assert_eq!(newer.releases.len(), 201);
    assert!(versions(&newer).contains(&"v1.34.0+k3s1"));
}

#[tokio::test]
async fn without_a_token_the_later_pages_are_not_asked_again_while_the_first_is_the_same() {
    let github = Github::start(many(250)).await;
    let client = client();
    let first = offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    assert_eq!(github.api().len(), 3);
    let second = offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    assert_eq!(github.api().len(), 1, "each counts towards 60 an hour");
    assert_eq!(versions(&first), versions(&second));
    github.set(|state| state.releases.insert(0, release("v1.34.0+k3s1", false, false)));
    let third = offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    assert_eq!(github.api().len(), 3);
    assert!(versions(&third).contains(&"v1.34.0+k3s1"));
}

#[tokio::test]
async fn what_was_read_with_a_token_is_not_told_to_others() {
    let github = Github::start(vec![release("v1.0.0", false, false)]).await;
    github.set(|state| state.private = true);
    let client = client();
    assert!(offer(&client, &github.channel(), &bearer(TOKEN)).await.is_ok());
    github.log.take();
    for access in [Access::default(), bearer("another")] {
        let error = offer(&client, &github.channel(), &access)
            .await
            .unwrap_err()
            .to_string();
        assert!(!error.contains("another"), "{error}");
    }
    assert!(
        github
            .api()
            .iter()
            .all(|asked| asked.header("if-none-match").is_none())
    );
}

#[tokio::test]
async fn a_used_up_rate_limit_is_not_strained_and_the_page_answers_instead() {
    let github = Github::start(many(10)).await;
    github.set(|state| {
        state.left = Some(0);
        state.latest = Some("v1.33.9+k3s1".to_owned());
    });
    let client = client();
    let offered = offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    assert_eq!(versions(&offered), ["v1.33.9+k3s1"]);
    assert_eq!(offered.releases[0].published, None);
    assert_eq!(
        offered.partial.as_deref(),
        Some(
            "GitHub's API does not answer (the rate limit is used up, until 2026-11-21T20:13:20Z); the latest release is read \
             off its page"
        )
    );
    assert_eq!(github.api().len(), 1);
    // Until it is lifted, only the page is asked.
    offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    assert_eq!(github.api().len(), 0);
    // Another one has a limit of its own.
    github.set(|state| state.left = Some(9));
    let offered = offer(&client, &github.channel(), &bearer(TOKEN)).await.unwrap();
    assert_eq!((offered.releases.len(), offered.partial), (8, None));
}

#[tokio::test]
async fn what_the_api_said_before_is_not_forgotten_when_only_the_page_answers() {
    let github = Github::start(many(10)).await;
    let client = client();
    offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    github.set(|state| {
        state.instead = Some((502, Vec::new(), "<html>Unicorn".to_owned()));
        state.latest = Some("v1.34.0+k3s1".to_owned());
    });
    let offered = offer(&client, &github.channel(), &Access::default())
        .await
        .unwrap();
    assert_eq!(offered.releases.len(), 9);
    assert!(versions(&offered).contains(&"v1.34.0+k3s1"));
    assert!(
        offered
            .partial
            .unwrap()
            .contains("unexpected response: HTTP/1.1 502 Bad Gateway")
    );
}

#[tokio::test]
async fn limits_that_only_say_how_long_are_heeded_too() {
    for (code, header) in [
        (429, ("retry-after", "60")),
        (403, ("retry-after", "60")),
        (429, ("x-other", "1")),
    ] {
        let github = Github::start(Vec::new()).await;
        github
            .set(|state| state.instead = Some((code, vec![(header.0, header.1.to_owned())], String::new())));
        let client = client();
        for _ in 0..2 {
            let error = offer(&client, &github.channel(), &bearer(TOKEN))
                .await
                .unwrap_err();
            assert_eq!(error, ChannelError::RateLimited { until: None });
        }
        assert_eq!(github.api().len(), 1, "{code} {header:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_no_reason_to_look_elsewhere() {
    let github = Github::start(many(3)).await;
    github.set(|state| state.latest = Some("v9.9.9".to_owned()));
    let client = client();
    let error = offer(&client, &github.channel(), &bearer("wrong-s3cret"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the credentials are not accepted (HTTP/1.1 401 Unauthorized)"
    );
    let missing = github.channel().replace("k3s-io/k3s", "k3s-io/k4s");
    let error = offer(&client, &missing, &Access::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no such repository, or not for those who ask (HTTP/1.1 404 Not Found)"
    );
    github.set(|state| state.instead = Some((403, Vec::new(), String::new())));
    let error = offer(&client, &github.channel(), &bearer(TOKEN))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the credentials are not accepted (HTTP/1.1 403 Forbidden)"
    );
    for (kind, body, why) in [
        (
            "text/html",
            "<html>Sign in",
            "the answer is an HTML page, not a version",
        ),
        (
            "text/plain",
            " <!DOCTYPE html>",
            "the answer is an HTML page, not a version",
        ),
        ("application/json", "{}", "the answer is no list of releases"),
        ("application/json", "", "the answer is no list of releases"),
        (
            "application/json",
            r#"[{"name": "v1"}]"#,
            "the answer is no list of releases",
        ),
        (
            "application/json",
            "[]",
            "the repository has no release that is no draft and no prerelease",
        ),
    ] {
        github.set(|state| {
            state.instead = Some((200, vec![("content-type", kind.to_owned())], body.to_owned()));
        });
        let error = offer(&client, &github.channel(), &Access::default())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), why, "{body}");
    }
}

#[tokio::test]
async fn a_page_that_names_no_release_is_no_answer() {
    let github = Github::start(Vec::new()).await;
    github.set(|state| state.instead = Some((503, Vec::new(), String::new())));
    for latest in [None, Some("v1%20beta"), Some("a/v1.0.0"), Some("v1?x=1")] {
        github.set(|state| state.latest = latest.map(str::to_owned));
        let error = offer(&client(), &github.channel(), &Access::default())
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "unexpected response: HTTP/1.1 503 Service Unavailable",
            "{latest:?}"
        );
    }
}

#[tokio::test]
async fn a_renamed_repository_is_found_with_its_token() {
    let github = Github::start(many(120)).await;
    github.set(|state| (state.renamed, state.private) = (true, true));
    let client = client();
    for _ in 0..2 {
        let offered = offer(&client, &github.channel(), &bearer(TOKEN)).await.unwrap();
        assert_eq!(offered.releases.len(), 96);
    }
}

#[tokio::test]
async fn a_token_follows_no_redirect_to_another_host() {
    let github = Github::start(Vec::new()).await;
    let evil = Github::start(many(3)).await;
    let there = format!(
        "http://127.0.0.1:{}/api/v3/repositories/1/releases?per_page=100",
        evil.server.port()
    );
    for code in [301, 302, 307, 308] {
        github.set(|state| state.instead = Some((code, vec![("location", there.clone())], String::new())));
        let _ = offer(&client(), &github.channel(), &bearer(TOKEN)).await;
    }
    let asked = evil.log.take();
    assert_eq!(asked.len(), 4);
    for asked in asked {
        assert!(!format!("{asked:?}").contains("s3cret"), "{asked:?}");
    }
    // Nor is the next page read there.
    let next = format!("<http://localhost:{}/x?page=2>; rel=\"next\"", evil.server.port());
    let page = serde_json::to_string(&many(3)).unwrap();
    github.set(|state| state.instead = Some((200, vec![("link", next)], page)));
    let error = offer(&client(), &github.channel(), &bearer(TOKEN))
        .await
        .unwrap_err();
    assert_eq!(error, ChannelError::Paging);
    assert!(evil.log.take().is_empty());
}

#[tokio::test]
async fn pages_that_go_round_and_answers_without_end_are_left() {
    let github = Github::start(Vec::new()).await;
    let page = serde_json::to_string(&many(3)).unwrap();
    let link = "</api/v3/repos/k3s-io/k3s/releases?per_page=100>; rel=\"next\"".to_owned();
    github.set(|state| state.instead = Some((200, vec![("link", link)], page)));
    let error = offer(&client(), &github.channel(), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error, ChannelError::Paging);
    let link = "</api/v3/repos/k3s-io/k3s/releases?per_page=100>; rel=\"next\"".to_owned();
    github.set(|state| {
        state.instead = Some((
            StatusCode::FOUND.as_u16(),
            vec![("location", link)],
            String::new(),
        ));
    });
    let error = offer(&client(), &github.channel(), &bearer(TOKEN))
        .await
        .unwrap_err();
    assert!(
        error == ChannelError::Redirects || error.to_string().contains("404"),
        "{error}"
    );
    github.set(|state| state.instead = Some((200, Vec::new(), " ".repeat((16 << 20) + 1))));
    let error = offer(&client(), &github.channel(), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the answer has more than 16 MiB");
}
