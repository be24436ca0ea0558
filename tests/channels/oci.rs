//! Tags of a repository in a registry, and the digests that they stand for.

use refit_api::image::ImageAnswer;
use refit_channel::{Access, ChannelError, Credentials, DockerConfig};

use super::received::{HTML, ReceivedRequest, basic, bearer, client, offer_of, refusal_of, versions};
use super::registry::{PASSWORD, Registry, RegistryAuth, State, USER, index_digest, tags};
use crate::testenv::pki::Authority;

fn pull(config: &str) -> Access {
    Access {
        pull: vec![DockerConfig::parse(config.as_bytes()).unwrap()],
        ..Access::default()
    }
}

fn without_credentials(requests: &[ReceivedRequest]) -> usize {
    let mut requests = requests.to_vec();
    requests.retain(|request| request.header("authorization").is_none());
    requests.len()
}

/// A registry with five tags.
async fn guarded(auth: RegistryAuth) -> Registry {
    let state = State {
        auth,
        tags: tags(5),
        ..State::default()
    };
    Registry::start(state).await
}

/// How many releases the registry offers.
async fn count(registry: &Registry, access: &Access) -> usize {
    offer_of(&client(), &registry.channel(), access)
        .await
        .releases
        .len()
}

#[tokio::test]
async fn three_thousand_tags_behind_a_token_are_read_in_one_pass() {
    let registry = Registry::start(State {
        auth: RegistryAuth::Token,
        tags: tags(3000),
        page: 1000,
        ..State::default()
    })
    .await;
    let client = client();
    let access = pull(&registry.docker_config());
    let first = offer_of(&client, &registry.channel(), &access).await;
    assert_eq!(first.releases.len(), 3000);
    assert!(first.releases.iter().all(|release| release.published.is_none()));
    assert_eq!(first.partial, None);
    let received = registry.log.take();
    assert_eq!(
        (received.len(), without_credentials(&received)),
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

    // A deleted tag is not offered any more.
    registry.set(|state| {
        assert!(state.tags.insert("v9.9.9".to_owned()));
        assert!(state.tags.remove("v1.0.0-k3s1"));
    });
    let second = offer_of(&client, &registry.channel(), &access).await;
    assert_eq!(second.releases.len(), 3000);
    assert!(versions(&second).contains(&"v9.9.9") && !versions(&second).contains(&"v1.0.0-k3s1"));
}

#[tokio::test]
async fn every_way_to_authenticate_to_a_registry_works() {
    let header = Access {
        credentials: Some(Credentials::Header {
            name: "X-JFrog-Art-Api".to_owned(),
            value: "key-s3cret".to_owned(),
        }),
        ..Access::default()
    };
    for (auth, access) in [
        (RegistryAuth::Open, Access::default()),
        (RegistryAuth::AnonymousToken, Access::default()),
        (RegistryAuth::AnonymousToken, basic(USER, PASSWORD)),
        (RegistryAuth::Token, basic(USER, PASSWORD)),
        (RegistryAuth::Basic, basic(USER, PASSWORD)),
        (RegistryAuth::Header("x-jfrog-art-api", "key-s3cret"), header),
        (
            RegistryAuth::Header("authorization", "Bearer s3cret"),
            bearer("s3cret"),
        ),
    ] {
        let registry = Registry::start(State {
            auth,
            tags: tags(5),
            page: 2,
            ..State::default()
        })
        .await;
        for _ in 0..2 {
            assert_eq!(count(&registry, &access).await, 5, "{auth:?}");
        }
    }
    for auth in [RegistryAuth::Token, RegistryAuth::Basic] {
        let registry = guarded(auth).await;
        let access = pull(&registry.docker_config());
        assert_eq!(count(&registry, &access).await, 5, "{auth:?}");
    }
}

#[tokio::test]
async fn an_identity_token_is_refused_with_what_to_write_instead_and_sent_nowhere() {
    let registry = guarded(RegistryAuth::Token).await;
    let host = registry.host();
    let config =
        format!(r#"{{"auths": {{"{host}": {{"auth": "MDA6", "identitytoken": "refresh-s3cret"}}}}}}"#);
    let error = refusal_of(&client(), &registry.channel(), &pull(&config)).await;
    assert_eq!(
        error.to_string(),
        "the registry's login is an OAuth identity token, which refit does not support; write a user name and a password, or \
         \"auth\" with both, or a \"registrytoken\""
    );
    assert!(registry.token_log.take().is_empty());
    assert_eq!(without_credentials(&registry.log.take()), 1);
    // A registry that demands nothing is read.
    registry.set(|state| state.auth = RegistryAuth::Open);
    assert_eq!(count(&registry, &pull(&config)).await, 5);
}

#[tokio::test]
async fn a_refused_client_gets_an_error_that_shows_no_credential() {
    for auth in [RegistryAuth::Token, RegistryAuth::Basic] {
        let registry = guarded(auth).await;
        let ask = async |access: Access| {
            let error = refusal_of(&client(), &registry.channel(), &access).await;
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
            error.to_string()
        };
        let none = "the server requires credentials, and there are none (HTTP/1.1 401 Unauthorized)";
        assert_eq!(ask(Access::default()).await, none, "{auth:?}");
        let wrong = "the server refused the credentials (HTTP/1.1 401 Unauthorized)";
        for access in [basic(USER, "wrong-s3cret"), bearer("wrong-s3cret")] {
            assert_eq!(ask(access).await, wrong, "{auth:?}");
        }
        // A pull secret for another registry is none for this one.
        let elsewhere = registry.docker_config().replace(&registry.host(), "ghcr.io");
        assert_eq!(ask(pull(&elsewhere)).await, none);
    }
}

#[tokio::test]
async fn a_token_that_expires_between_pages_is_renewed() {
    let registry = Registry::start(State {
        auth: RegistryAuth::Token,
        tags: tags(50),
        page: 10,
        token_uses: Some(2),
        ..State::default()
    })
    .await;
    let access = basic(USER, PASSWORD);
    assert_eq!(count(&registry, &access).await, 50);
    assert_eq!(registry.token_log.take().len(), 3);
    // A token that is never valid is not requested again.
    registry.set(|state| state.token_uses = Some(0));
    let error = refusal_of(&client(), &registry.channel(), &access).await;
    assert!(
        matches!(error, ChannelError::Denied { given: true, .. }),
        "{error}"
    );
    assert_eq!(registry.token_log.take().len(), 1);
}

#[tokio::test]
async fn a_challenge_that_would_leak_a_password_gets_no_answer() {
    let registry = guarded(RegistryAuth::Token).await;
    let plain = format!("http://127.0.0.1:{}/token", registry.token_port());
    for realm in [
        "",
        "/token",
        "file:///etc/passwd",
        "https://user:pw@[",
        "ftp://127.0.0.1/token",
    ] {
        registry.set(|state| state.realm = Some(realm.to_owned()));
        let error = refusal_of(&client(), &registry.channel(), &basic(USER, PASSWORD)).await;
        assert_eq!(error, ChannelError::Challenge, "{realm}");
    }
    assert!(registry.token_log.take().is_empty());
    // From TLS to none.
    let authority = Authority::new("registries").unwrap();
    let secure = Registry::start_tls(
        State {
            auth: RegistryAuth::Token,
            tags: tags(5),
            ..State::default()
        },
        &authority,
    )
    .await;
    let mut access = basic(USER, PASSWORD);
    access.ca = Some(authority.pem().to_owned());
    assert_eq!(count(&secure, &access).await, 5);
    secure.set(|state| state.realm = Some(plain));
    let error = refusal_of(&client(), &secure.channel(), &access).await;
    assert_eq!(error, ChannelError::Challenge);
    assert!(registry.token_log.take().is_empty());
}

#[tokio::test]
async fn the_certificate_authority_of_a_channel_is_trusted_for_that_channel_only() {
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
    offer_of(&client, &registry.channel(), &access).await;
    let secure = registry.channel().replace("oci://", "oci+https://");
    let other = Authority::new("others").unwrap().pem().to_owned();
    for ca in [None, Some(other)] {
        let access = Access {
            ca,
            ..Access::default()
        };
        let error = refusal_of(&client, &secure, &access).await.to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_password_follows_no_redirect_to_another_host() {
    let evil = guarded(RegistryAuth::Open).await;
    for auth in [
        RegistryAuth::Basic,
        RegistryAuth::Token,
        RegistryAuth::Header("authorization", "Bearer s3cret"),
    ] {
        let registry = Registry::start(State {
            auth,
            ..State::default()
        })
        .await;
        let access = match auth {
            RegistryAuth::Header(..) => bearer("s3cret"),
            _ => basic(USER, PASSWORD),
        };
        let there = format!("http://{}/v2/team/k3s/tags/list?n=1000", evil.host());
        registry.set(|state| state.instead = Some((307, vec![("location", there)], String::new())));
        // As registry.k8s.io does: the tags are on another host, and need no credentials.
        let offered = offer_of(&client(), &registry.channel(), &access).await;
        assert_eq!(offered.releases.len(), 5, "{auth:?}");
        let received = evil.log.take();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].header("authorization"), None, "{auth:?}");
        // The password is not sent there either when the other host requires one.
        for asks in [RegistryAuth::Basic, RegistryAuth::Token] {
            evil.set(|state| state.auth = asks);
            let error = refusal_of(&client(), &registry.channel(), &access).await;
            assert!(matches!(error, ChannelError::Denied { .. }), "{error:?}");
            let mut received = evil.log.take();
            received.extend(evil.token_log.take());
            assert_eq!(without_credentials(&received), received.len(), "{received:?}");
        }
        evil.set(|state| state.auth = RegistryAuth::Open);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_list_of_tags_is_named() {
    let registry = guarded(RegistryAuth::Open).await;
    let tags = |code: u16, headers: &[(&'static str, &str)], body: &str| {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        registry.set(|state| state.instead = Some((code, headers, body.to_owned())));
    };
    let html = &[("content-type", "text/html")][..];
    let none = "the repository has no tag that could be a version";
    let challenge = "the registry requires an authentication that refit does not support, or that would expose the credentials";
    let next = "the next page of the answer is on another host, or one that was read before";
    let again = "the server redirects too often";
    let missing =
        "the repository does not exist, or these credentials cannot read it (HTTP/1.1 404 Not Found)";
    let forbidden = "the server requires credentials, and there are none (HTTP/1.1 403 Forbidden)";
    let v1 = r#"{"tags": ["v1"]}"#;
    for (code, headers, body, why) in [
        (200, html, "<html>", HTML),
        (200, &[], "<!doctype html><title>Sign in", HTML),
        (200, &[], "[]", "the answer is not a list of tags"),
        (200, &[], r#"{"tags": null}"#, none),
        (200, &[], r#"{"tags": ["_x", "-y"]}"#, none),
        (304, &[], "", "unexpected response: HTTP/1.1 304 Not Modified"),
        (404, &[], "s3cret", missing),
        (
            500,
            &[],
            "s3cret",
            "unexpected response: HTTP/1.1 500 Internal Server Error",
        ),
        (403, &[], "s3cret", forbidden),
        (401, &[], "", challenge),
        (401, &[("www-authenticate", "Negotiate")], "", challenge),
        (302, &[], "", "the redirect (302) has no Location"),
        (302, &[("location", "/v2/team/k3s/tags/list")], "", again),
        (
            200,
            &[("link", "</v2/team/k3s/tags/list?n=1000>; rel=next")],
            v1,
            next,
        ),
        (200, &[("link", "<http://evil.example/x>; rel=next")], v1, next),
    ] {
        tags(code, headers, body);
        let error = refusal_of(&client(), &registry.channel(), &Access::default()).await;
        assert_eq!(error.to_string(), why, "{code} {headers:?} {body}");
    }
    tags(200, &[], &" ".repeat((8 << 20) + 1));
    let error = refusal_of(&client(), &registry.channel(), &Access::default()).await;
    assert_eq!(error.to_string(), "the answer has more than 8 MiB");
    tags(429, &[("retry-after", "60")], "");
    let client = client();
    registry.log.take();
    for _ in 0..2 {
        let error = refusal_of(&client, &registry.channel(), &Access::default()).await;
        let error = error.to_string();
        let remedy = "; log in: spec.imagePullSecrets, or --registry-config on the command line";
        assert!(
            error.starts_with("the rate limit is exhausted; next try at 2") && error.ends_with(remedy),
            "{error}"
        );
    }
    assert_eq!(registry.log.take().len(), 1);
}

#[tokio::test]
async fn a_token_server_that_gives_no_token_is_reported() {
    let registry = guarded(RegistryAuth::Token).await;
    let none = "the registry's token server returned no token";
    for (code, body, why) in [
        (200, "{}", none),
        (200, r#"{"token": ""}"#, none),
        (200, r#"{"token": "s3cret\nx"}"#, none),
        (200, "s3cret", "the answer is not a token"),
        (200, "<html>s3cret", HTML),
        (500, "s3cret", none),
        (
            403,
            "s3cret",
            "the server refused the credentials (HTTP/1.1 403 Forbidden)",
        ),
    ] {
        registry.set(|state| state.token_answer = Some((code, body.to_owned())));
        let error = refusal_of(&client(), &registry.channel(), &basic(USER, PASSWORD)).await;
        assert_eq!(error.to_string(), why, "{code} {body}");
        assert!(!format!("{error:?}").contains("s3cret"));
    }
    registry.set(|state| state.token_answer = Some((429, "s3cret".to_owned())));
    let error = refusal_of(&client(), &registry.channel(), &basic(USER, PASSWORD)).await;
    assert!(
        matches!(error, ChannelError::RateLimited { remedy: None, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_tag_stands_for_the_digest_of_the_index() {
    for (auth, no_digest) in [
        (RegistryAuth::Open, false),
        (RegistryAuth::Token, false),
        (RegistryAuth::Basic, true),
    ] {
        let registry = Registry::start(State {
            auth,
            no_digest,
            ..State::default()
        })
        .await;
        let image = format!("{}/team/k3s:v1.33.4-k3s1", registry.host());
        let access = pull(&registry.docker_config());
        let digest = client().digest(&image, &access).await;
        assert_eq!(digest, Ok(index_digest()), "{auth:?}");
        if no_digest {
            continue;
        }
        let received = registry.log.take();
        assert!(
            received.iter().all(|request| request.method == "HEAD"),
            "nothing is pulled"
        );
    }
    let registry = Registry::start(State::default()).await;
    let ask = async |image: &str| client().digest(image, &Access::default()).await;
    let pinned = format!("{}/team/k3s@{}", registry.host(), index_digest());
    assert_eq!(ask(&pinned).await, Ok(index_digest()));
    assert!(registry.log.take().is_empty(), "it says itself");
    let refusal = async |image: &str| ask(image).await.unwrap_err().to_string();
    let missing = refusal(&format!("{}/team/k3s:v9", registry.host())).await;
    assert_eq!(missing, "the image does not exist (HTTP/1.1 404 Not Found)");
    let invalid = refusal("not an image").await;
    assert!(
        invalid.starts_with("the image is not a reference such as"),
        "{invalid}"
    );
    for (digest, body, why) in [
        ("sha256:xyz", "<html>", HTML),
        ("md5:00", "x", "the answer is not a manifest"),
    ] {
        let headers = vec![("docker-content-digest", digest.to_owned())];
        registry.set(|state| state.instead = Some((200, headers, body.to_owned())));
        assert_eq!(refusal(&format!("{}/team/k3s:v1", registry.host())).await, why);
    }
}

#[tokio::test]
async fn only_a_registry_that_says_no_shows_that_an_image_does_not_exist() {
    let registry = Registry::start(State::default()).await;
    let image = |tag: &str| format!("{}/team/k3s:{tag}", registry.host());
    let ask = async |image: &str| {
        let digest = client().look_up(image, &Access::default()).await;
        digest.map_or_else(ChannelError::about_image, ImageAnswer::Found)
    };
    assert_eq!(
        ask(&image("v1.33.4-k3s1")).await,
        ImageAnswer::Found(index_digest())
    );
    let missing = ImageAnswer::Missing("HTTP/1.1 404 Not Found".to_owned());
    assert_eq!(ask(&image("v9")).await, missing);
    let requests = registry.log.take();
    assert!(
        requests.iter().all(|request| request.method == "HEAD"),
        "{requests:?}"
    );
    // 405: as some proxies answer HEAD.
    for code in [400, 401, 403, 405, 429, 500, 503] {
        registry.set(|state| state.instead = Some((code, Vec::new(), String::new())));
        let answer = ask(&image("v9")).await;
        assert!(matches!(answer, ImageAnswer::Unknown(_)), "{code}: {answer:?}");
    }
    registry.set(|state| {
        state.instead = None;
        state.auth = RegistryAuth::Token;
        state.token_answer = Some((404, "{}".to_owned()));
    });
    let answer = ask(&image("v9")).await;
    assert!(
        matches!(answer, ImageAnswer::Unknown(_)),
        "the token server is not the registry: {answer:?}"
    );
    for nowhere in ["127.0.0.1:1/team/k3s:v1", "registry.invalid/team/k3s:v1"] {
        let answer = ask(nowhere).await;
        assert!(matches!(answer, ImageAnswer::Unknown(_)), "{nowhere}: {answer:?}");
    }
}

#[tokio::test]
async fn the_credentials_of_a_channel_are_not_sent_for_images() {
    let registry = Registry::start(State {
        auth: RegistryAuth::Basic,
        ..State::default()
    })
    .await;
    let image = format!("{}/team/k3s:v1.33.4-k3s1", registry.host());
    let error = client().digest(&image, &basic(USER, PASSWORD)).await.unwrap_err();
    assert!(
        matches!(error, ChannelError::Denied { given: false, .. }),
        "{error:?}"
    );
    let requests = registry.log.take();
    assert_eq!(without_credentials(&requests), requests.len());
}
