//! Tags of a repository in a registry, and the digests that they stand for.

use refit::channel::{Access, ChannelError, Credentials, DockerConfig};

use super::registry::{Door, PASSWORD, Registry, State, USER, index_digest};
use super::seen::{Asked, basic, bearer, client, offer, versions};
use crate::support::pki::Authority;

/// So many versions, and what else is found among tags.
pub(super) fn tags(count: usize) -> std::collections::BTreeSet<String> {
    let version = |number: usize| format!("v1.{}.{}-k3s1", number / 100, number % 100);
    let mut tags: std::collections::BTreeSet<_> = (0..count).map(version).collect();
    tags.insert(format!("sha256-{}.sig", "0".repeat(64)));
    tags.insert("_latest".to_owned());
    tags
}

fn pull(config: &str) -> Access {
    Access {
        pull: vec![DockerConfig::parse(config.as_bytes()).unwrap()],
        ..Access::default()
    }
}

fn challenged(asked: &[Asked]) -> usize {
    asked
        .iter()
        .filter(|asked| asked.header("authorization").is_none())
        .count()
}

#[tokio::test]
async fn three_thousand_tags_behind_a_token_are_read_in_one_pass_and_known_by_their_entity_tags_afterwards() {
    let registry = Registry::start(State {
        door: Door::Token,
        tags: tags(3000),
        page: 1000,
        etags: true,
        ..State::default()
    })
    .await;
    let client = client();
    let access = pull(&registry.docker_config());
    let first = offer(&client, &registry.channel(), &access).await.unwrap();
    assert_eq!(first.releases.len(), 3000);
    assert!(first.releases.iter().all(|release| release.published.is_none()));
    assert_eq!(first.partial, None);
    let asked = registry.log.take();
    assert_eq!(
        (asked.len(), challenged(&asked)),
        (5, 1),
        "a challenge, and four pages of 3,002 tags"
    );
    let tokens = registry.token_log.take();
    assert_eq!(tokens.len(), 1, "one token for the whole pass");
    assert_eq!(
        tokens[0].query("scope").as_deref(),
        Some("repository:team/k3s:pull")
    );
    assert_eq!(tokens[0].query("service").as_deref(), Some("registry.example"));

    let second = offer(&client, &registry.channel(), &access).await.unwrap();
    assert_eq!(versions(&second), versions(&first));
    let asked = registry.log.take();
    assert_eq!(asked.len(), 5);
    assert!(
        asked.iter().all(|asked| asked.header("if-none-match").is_some()),
        "nothing is read twice"
    );

    registry.set(|state| assert!(state.tags.insert("v9.9.9".to_owned())));
    let third = offer(&client, &registry.channel(), &access).await.unwrap();
    assert_eq!(third.releases.len(), 3001);
    // A tag that is gone is gone.
    registry.set(|state| assert!(state.tags.remove("v1.0.0-k3s1")));
    let fourth = offer(&client, &registry.channel(), &access).await.unwrap();
    assert_eq!(fourth.releases.len(), 3000);
    assert!(!versions(&fourth).contains(&"v1.0.0-k3s1"));
}

#[tokio::test]
async fn a_registry_says_who_may_read() {
    for (door, access) in [
        (Door::Open, None),
        (Door::AnonymousToken, None),
        (Door::AnonymousToken, Some(basic(USER, PASSWORD))),
        (Door::Token, Some(basic(USER, PASSWORD))),
        (Door::Basic, Some(basic(USER, PASSWORD))),
        (
            Door::Header("x-jfrog-art-api", "key-s3cret"),
            Some(Access {
                credentials: Some(Credentials::Header {
                    name: "X-JFrog-Art-Api".to_owned(),
                    value: "key-s3cret".to_owned(),
                }),
                ..Access::default()
            }),
        ),
        (
            Door::Header("authorization", "Bearer s3cret"),
            Some(bearer("s3cret")),
        ),
    ] {
        let registry = Registry::start(State {
            door,
            tags: tags(5),
            page: 2,
            ..State::default()
        })
        .await;
        for _ in 0..2 {
            let offered = offer(
                &client(),
                &registry.channel(),
                &access.clone().unwrap_or_default(),
            )
            .await;
            assert_eq!(offered.unwrap().releases.len(), 5, "{door:?}");
        }
    }
    for door in [Door::Token, Door::Basic] {
        let registry = Registry::start(State {
            door,
            tags: tags(5),
            ..State::default()
        })
        .await;
        let access = pull(&registry.docker_config());
        assert_eq!(
            offer(&client(), &registry.channel(), &access)
                .await
                .unwrap()
                .releases
                .len(),
            5,
            "{door:?}"
        );
    }
    let registry = Registry::start(State {
        door: Door::Token,
        tags: tags(5),
        ..State::default()
    })
    .await;
    let access = pull(&registry.identity_config());
    assert_eq!(
        offer(&client(), &registry.channel(), &access)
            .await
            .unwrap()
            .releases
            .len(),
        5
    );
    assert!(
        registry
            .token_log
            .take()
            .iter()
            .all(|asked| !asked.target.contains("s3cret"))
    );
}

#[tokio::test]
async fn whoever_is_not_let_in_is_told_so_and_nothing_that_was_sent_is_shown() {
    for door in [Door::Token, Door::Basic] {
        let registry = Registry::start(State {
            door,
            tags: tags(5),
            ..State::default()
        })
        .await;
        let ask = async |access: Access| {
            let error = offer(&client(), &registry.channel(), &access).await.unwrap_err();
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
            error.to_string()
        };
        let none = "credentials are asked for, and there are none (HTTP/1.1 401 Unauthorized)";
        assert_eq!(ask(Access::default()).await, none, "{door:?}");
        let wrong = "the credentials are not accepted (HTTP/1.1 401 Unauthorized)";
        for access in [basic(USER, "wrong-s3cret"), bearer("wrong-s3cret")] {
            assert_eq!(ask(access).await, wrong, "{door:?}");
        }
        // A pull secret for another registry is none for this one.
        let elsewhere = registry.docker_config().replace(&registry.host(), "ghcr.io");
        assert_eq!(ask(pull(&elsewhere)).await, none);
    }
}

#[tokio::test]
async fn a_token_that_ends_in_the_middle_is_renewed() {
    let registry = Registry::start(State {
        door: Door::Token,
        tags: tags(50),
        page: 10,
        token_uses: Some(2),
        ..State::default()
    })
    .await;
    let access = basic(USER, PASSWORD);
    assert_eq!(
        offer(&client(), &registry.channel(), &access)
            .await
            .unwrap()
            .releases
            .len(),
        50
    );
    assert_eq!(registry.token_log.take().len(), 3);
    // One that is never good is not asked for for ever.
    registry.set(|state| state.token_uses = Some(0));
    let error = offer(&client(), &registry.channel(), &access).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Denied { given: true, .. }),
        "{error}"
    );
    assert_eq!(registry.token_log.take().len(), 1);
}

#[tokio::test]
async fn a_challenge_that_would_show_a_password_is_not_answered() {
    let registry = Registry::start(State {
        door: Door::Token,
        tags: tags(5),
        ..State::default()
    })
    .await;
    let plain = format!("http://127.0.0.1:{}/token", registry.token_port());
    for realm in [
        "",
        "/token",
        "file:///etc/passwd",
        "https://user:pw@[",
        "ftp://127.0.0.1/token",
    ] {
        registry.set(|state| state.realm = Some(realm.to_owned()));
        let error = offer(&client(), &registry.channel(), &basic(USER, PASSWORD))
            .await
            .unwrap_err();
        assert_eq!(error, ChannelError::Challenge, "{realm}");
    }
    assert!(registry.token_log.take().is_empty());
    // From TLS to none.
    let authority = Authority::new("registries").unwrap();
    let secure = Registry::start_tls(
        State {
            door: Door::Token,
            tags: tags(5),
            ..State::default()
        },
        &authority,
    )
    .await;
    let mut access = basic(USER, PASSWORD);
    access.ca = Some(authority.pem().to_owned());
    assert_eq!(
        offer(&client(), &secure.channel(), &access)
            .await
            .unwrap()
            .releases
            .len(),
        5
    );
    secure.set(|state| state.realm = Some(plain));
    let error = offer(&client(), &secure.channel(), &access).await.unwrap_err();
    assert_eq!(error, ChannelError::Challenge);
    assert!(registry.token_log.take().is_empty());
}

#[tokio::test]
async fn authorities_of_a_channel_are_for_it_alone() {
    let authority = Authority::new("registries").unwrap();
    let registry = Registry::start_tls(
        State {
            tags: tags(5),
            ..State::default()
        },
        &authority,
    )
    .await;
    let client = client();
    let access = Access {
        ca: Some(authority.pem().to_owned()),
        ..Access::default()
    };
    assert!(offer(&client, &registry.channel(), &access).await.is_ok());
    let secure = registry.channel().replace("oci://", "oci+https://");
    let other = Authority::new("others").unwrap().pem().to_owned();
    for ca in [None, Some(other)] {
        let access = Access {
            ca,
            ..Access::default()
        };
        let error = offer(&client, &secure, &access).await.unwrap_err().to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_password_follows_no_redirect_to_another_host() {
    let evil = Registry::start(State {
        tags: tags(5),
        ..State::default()
    })
    .await;
    for door in [
        Door::Basic,
        Door::Token,
        Door::Header("authorization", "Bearer s3cret"),
    ] {
        let registry = Registry::start(State {
            door,
            ..State::default()
        })
        .await;
        let access = match door {
            Door::Header(..) => bearer("s3cret"),
            _ => basic(USER, PASSWORD),
        };
        let there = format!("http://{}/v2/team/k3s/tags/list?n=1000", evil.host());
        registry.set(|state| state.instead = Some((307, vec![("location", there)], String::new())));
        // As registry.k8s.io does: the tags are elsewhere, and for everybody.
        let offered = offer(&client(), &registry.channel(), &access).await.unwrap();
        assert_eq!(offered.releases.len(), 5, "{door:?}");
        let asked = evil.log.take();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].header("authorization"), None, "{door:?}");
        // Nor does it when it is asked for there.
        for asks in [Door::Basic, Door::Token] {
            evil.set(|state| state.door = asks);
            let error = offer(&client(), &registry.channel(), &access).await.unwrap_err();
            assert!(matches!(error, ChannelError::Denied { .. }), "{error:?}");
            let mut asked = evil.log.take();
            asked.extend(evil.token_log.take());
            assert!(
                asked.iter().all(|asked| asked.header("authorization").is_none()),
                "{asked:?}"
            );
        }
        evil.set(|state| state.door = Door::Open);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_list_of_tags_is_told_as_what_it_is() {
    let registry = Registry::start(State {
        tags: tags(5),
        ..State::default()
    })
    .await;
    let tags = |code: u16, headers: &[(&'static str, &str)], body: &str| {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        registry.set(|state| state.instead = Some((code, headers, body.to_owned())));
    };
    for (code, headers, body, why) in [
        (
            200,
            &[("content-type", "text/html")][..],
            "<html>",
            "the answer is an HTML page, not a version",
        ),
        (
            200,
            &[],
            "<!doctype html><title>Sign in",
            "the answer is an HTML page, not a version",
        ),
        (200, &[], "[]", "the answer is no list of tags"),
        (
            200,
            &[],
            r#"{"tags": null}"#,
            "the repository has no tag that could be a version",
        ),
        (
            200,
            &[],
            r#"{"tags": ["_x", "-y"]}"#,
            "the repository has no tag that could be a version",
        ),
        (304, &[], "", "unexpected response: HTTP/1.1 304 Not Modified"),
        (
            404,
            &[],
            "s3cret",
            "there is no such repository, or not for those who ask (HTTP/1.1 404 Not Found)",
        ),
        (
            500,
            &[],
            "s3cret",
            "unexpected response: HTTP/1.1 500 Internal Server Error",
        ),
        (
            403,
            &[],
            "s3cret",
            "credentials are asked for, and there are none (HTTP/1.1 403 Forbidden)",
        ),
        (
            401,
            &[],
            "",
            "the registry asks for credentials in a way that is not known, or that would show them",
        ),
        (
            401,
            &[("www-authenticate", "Negotiate")],
            "",
            "the registry asks for credentials in a way that is not known, or that would show them",
        ),
        (302, &[], "", "the redirect (302) has no Location"),
        (
            302,
            &[("location", "/v2/team/k3s/tags/list")],
            "",
            "the answer is redirected again and again",
        ),
        (
            200,
            &[("link", "</v2/team/k3s/tags/list?n=1000>; rel=next")],
            r#"{"tags": ["v1"]}"#,
            "the next page of the answer is on another host, or one that was read before",
        ),
        (
            200,
            &[("link", "<http://evil.example/x>; rel=next")],
            r#"{"tags": ["v1"]}"#,
            "the next page of the answer is on another host, or one that was read before",
        ),
    ] {
        tags(code, headers, body);
        let error = offer(&client(), &registry.channel(), &Access::default())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), why, "{code} {headers:?} {body}");
    }
    tags(200, &[], &" ".repeat((8 << 20) + 1));
    let error = offer(&client(), &registry.channel(), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the answer has more than 8 MiB");
    tags(429, &[("retry-after", "60")], "");
    let client = client();
    registry.log.take();
    for _ in 0..2 {
        let error = offer(&client, &registry.channel(), &Access::default())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "the rate limit is used up");
    }
    assert_eq!(registry.log.take().len(), 1);
}

#[tokio::test]
async fn a_token_server_that_gives_no_token_is_told() {
    let registry = Registry::start(State {
        door: Door::Token,
        tags: tags(5),
        ..State::default()
    })
    .await;
    for (code, body, why) in [
        (200, "{}", "the registry's token server gives no token"),
        (
            200,
            r#"{"token": ""}"#,
            "the registry's token server gives no token",
        ),
        (
            200,
            r#"{"token": "s3cret\nx"}"#,
            "the registry's token server gives no token",
        ),
        (200, "s3cret", "the answer is no token"),
        (200, "<html>s3cret", "the answer is an HTML page, not a version"),
        (500, "s3cret", "the registry's token server gives no token"),
        (
            403,
            "s3cret",
            "the credentials are not accepted (HTTP/1.1 403 Forbidden)",
        ),
        (429, "s3cret", "the rate limit is used up"),
    ] {
        registry.set(|state| state.token_answer = Some((code, body.to_owned())));
        let error = offer(&client(), &registry.channel(), &basic(USER, PASSWORD))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), why, "{code} {body}");
        assert!(!format!("{error:?}").contains("s3cret"));
    }
}

#[tokio::test]
async fn a_tag_stands_for_the_digest_of_the_index() {
    for (door, no_digest) in [(Door::Open, false), (Door::Token, false), (Door::Basic, true)] {
        let registry = Registry::start(State {
            door,
            no_digest,
            ..State::default()
        })
        .await;
        let image = format!("{}/team/k3s:v1.33.4-k3s1", registry.host());
        let access = pull(&registry.docker_config());
        assert_eq!(
            client().digest(&image, &access).await,
            Ok(index_digest()),
            "{door:?}"
        );
        if no_digest {
            continue;
        }
        let asked = registry.log.take();
        assert!(
            asked.iter().all(|asked| asked.method == "HEAD"),
            "nothing is pulled"
        );
    }
    let registry = Registry::start(State::default()).await;
    let ask = async |image: &str| client().digest(image, &Access::default()).await;
    let pinned = format!("{}/team/k3s@{}", registry.host(), index_digest());
    assert_eq!(ask(&pinned).await, Ok(index_digest()));
    assert!(registry.log.take().is_empty(), "it says itself");
    let error = ask(&format!("{}/team/k3s:v9", registry.host()))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no such image (HTTP/1.1 404 Not Found)"
    );
    let error = ask("not an image").await.unwrap_err().to_string();
    assert!(error.starts_with("the image is no reference such as"), "{error}");
    for (headers, body, why) in [
        (
            vec![("docker-content-digest", "sha256:xyz".to_owned())],
            "<html>",
            "the answer is an HTML page, not a version",
        ),
        (
            vec![("docker-content-digest", "md5:00".to_owned())],
            "x",
            "the answer is no manifest",
        ),
    ] {
        registry.set(|state| state.instead = Some((200, headers, body.to_owned())));
        let error = ask(&format!("{}/team/k3s:v1", registry.host()))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), why);
    }
}

#[tokio::test]
async fn a_channels_own_credentials_are_not_for_images() {
    let registry = Registry::start(State {
        door: Door::Basic,
        ..State::default()
    })
    .await;
    let image = format!("{}/team/k3s:v1.33.4-k3s1", registry.host());
    let error = client().digest(&image, &basic(USER, PASSWORD)).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Denied { given: false, .. }),
        "{error:?}"
    );
    assert!(
        registry
            .log
            .take()
            .iter()
            .all(|asked| asked.header("authorization").is_none())
    );
}
