use super::*;
use crate::PlanSpec;

fn prometheus(change: impl FnOnce(&mut PrometheusCheck)) -> CheckSpec {
    let mut request = PrometheusCheck {
        url: "http://prometheus.monitoring:9090".to_owned(),
        query: "vector(0)".to_owned(),
        min: None,
        max: Some(0.0),
    };
    change(&mut request);
    CheckSpec {
        name: "errors".to_owned(),
        prometheus: Some(request),
        ..CheckSpec::default()
    }
}

fn http(url: &str) -> CheckSpec {
    CheckSpec {
        name: "shop".to_owned(),
        http: Some(HttpCheck {
            url: url.to_owned(),
            contains: None,
        }),
        ..CheckSpec::default()
    }
}

fn read(checks: Vec<CheckSpec>) -> Result<Vec<Check>, String> {
    let spec = PlanSpec {
        checks: Some(checks),
        ..PlanSpec::default()
    };
    spec.checks().map_err(|error| error.to_string())
}

#[test]
fn a_check_has_sane_defaults() {
    let checks = read(vec![prometheus(|_| {}), http("https://shop.example.com/healthz")]).unwrap();
    for check in &checks {
        assert_eq!(
            (check.interval, check.timeout, check.passes),
            (Duration::from_secs(60), Duration::from_secs(10), 1)
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one case for each mistake")]
fn a_check_that_could_pass_by_mistake_is_invalid() {
    let secret = || {
        Some(SecretRef {
            name: "prometheus".to_owned(),
        })
    };
    let both = CheckSpec {
        http: http("https://a.test").http,
        ..prometheus(|_| {})
    };
    let cases: [(CheckSpec, &str); 20] = [
        (
            CheckSpec {
                name: "A b".to_owned(),
                ..http("https://a.test")
            },
            "spec.checks[0].name is \"A b\": it must be 1 to 63 lower-case letters, digits and '-', with a letter or digit at each end",
        ),
        (
            both,
            "spec.checks[0] has prometheus and http: it must have one of them",
        ),
        (
            CheckSpec {
                name: "x".to_owned(),
                ..CheckSpec::default()
            },
            "spec.checks[0] asks nothing: it must have prometheus or http",
        ),
        (
            http("shop.example.com"),
            "spec.checks[0].http.url is not a URL such as https://shop.example.com/healthz",
        ),
        (
            http("ftp://a.test"),
            "spec.checks[0].http.url is not a URL such as https://shop.example.com/healthz",
        ),
        (
            http("https://u:p@a.test"),
            "spec.checks[0].http.url has credentials: put them into a secret, and name it in secretRef",
        ),
        (
            prometheus(|it| it.url = "http://a.test/api/v1/query".to_owned()),
            "spec.checks[0].prometheus.url has a query or a fragment: it must be the address of the server, without /api/v1/query",
        ),
        (
            prometheus(|it| it.query = " ".to_owned()),
            "spec.checks[0].prometheus.query is missing",
        ),
        (
            prometheus(|it| it.query = "x".repeat(2049)),
            "spec.checks[0].prometheus.query has 2049 bytes: it must have at most 2048",
        ),
        (
            prometheus(|it| it.max = None),
            "spec.checks[0].prometheus has neither min nor max, so that any value would pass",
        ),
        (
            prometheus(|it| it.min = Some(0.5)),
            "spec.checks[0].prometheus.min is more than max, so that no value would pass",
        ),
        (
            prometheus(|it| it.max = Some(f64::NAN)),
            "spec.checks[0].prometheus.min is more than max, so that no value would pass",
        ),
        (
            CheckSpec {
                secret_ref: secret(),
                ..prometheus(|_| {})
            },
            "spec.checks[0].prometheus.url is plain http, which would expose the credentials of secretRef: use https",
        ),
        (
            CheckSpec {
                secret_ref: Some(SecretRef::default()),
                ..http("https://a.test")
            },
            "spec.checks[0].secretRef.name is \"\": it must be the name of a secret in the Plan's namespace",
        ),
        (
            CheckSpec {
                ca_secret_ref: Some(SecretRef {
                    name: "a/b".to_owned(),
                }),
                ..http("https://a.test")
            },
            "spec.checks[0].caSecretRef.name is \"a/b\": it must be the name of a secret in the Plan's namespace",
        ),
        (
            CheckSpec {
                interval: Some("1".to_owned()),
                ..http("https://a.test")
            },
            "spec.checks[0].interval is invalid, time: missing unit in duration \"1\"",
        ),
        (
            CheckSpec {
                interval: Some("1s".to_owned()),
                ..http("https://a.test")
            },
            "spec.checks[0].interval is 1s: it must be at least 5s",
        ),
        (
            CheckSpec {
                timeout: Some("1m".to_owned()),
                ..http("https://a.test")
            },
            "spec.checks[0].timeout is 1m0s: it must be more than 0s, and at most 30s",
        ),
        (
            CheckSpec {
                timeout: Some("-1s".to_owned()),
                ..http("https://a.test")
            },
            "spec.checks[0].timeout is -1s: it must be more than 0s, and at most 30s",
        ),
        (
            CheckSpec {
                passes: Some(0),
                ..http("https://a.test")
            },
            "spec.checks[0].passes is 0: it must be a number from 1 to 100",
        ),
    ];
    for (check, error) in cases {
        assert_eq!(read(vec![check]).unwrap_err(), error);
    }
    assert_eq!(
        read(vec![http("https://a.test"), http("https://b.test")]).unwrap_err(),
        "spec.checks[1].name is \"shop\", as that of spec.checks[0]"
    );
    assert_eq!(
        read(vec![http("https://a.test"); 17]).unwrap_err(),
        "spec.checks has 17 checks: it must have at most 16"
    );
    assert_eq!(
        read(vec![CheckSpec {
            http: Some(HttpCheck {
                url: "https://a.test".to_owned(),
                contains: Some(String::new())
            }),
            ..http("")
        }])
        .unwrap_err(),
        "spec.checks[0].http.contains is empty, which every body contains"
    );
    let local = CheckSpec {
        secret_ref: secret(),
        ..http("http://127.0.0.1:8080")
    };
    assert!(read(vec![local]).is_ok());
}
