//! Vectors from the documentation of Go's `golang.org/x/net/http/httpproxy`, and what people set.

use super::*;

fn proxies(pairs: &[(&str, &str)]) -> Result<ProxyEnv, ProxyError> {
    ProxyEnv::read(|name| Some(pairs.iter().find(|(key, _)| *key == name)?.1.to_owned()))
}

/// Whether a URL goes through the proxy when `NO_PROXY` is `exempt`.
fn proxied(exempt: &str, url: &str) -> bool {
    let both = [
        ("HTTP_PROXY", "http://p:1"),
        ("HTTPS_PROXY", "http://p:2"),
        ("NO_PROXY", exempt),
    ];
    proxies(&both).unwrap().proxy_for(&url.parse().unwrap()).is_some()
}

#[test]
fn each_scheme_has_its_proxy() {
    let pairs = [
        ("HTTP_PROXY", "http://plain:3128"),
        ("https_proxy", "http://u:p@tls:3129"),
    ];
    let env = proxies(&pairs).unwrap();
    for (url, expected) in [
        ("http://a.example/x", Some("http://plain:3128/")),
        ("https://a.example/x", Some("http://u:p@tls:3129/")),
        ("ftp://a.example/x", None),
    ] {
        let url = url.parse().unwrap();
        assert_eq!(env.proxy_for(&url).map(Url::as_str), expected, "{url}");
        assert_eq!(ProxyEnv::default().proxy_for(&url), None, "{url}");
    }
}

#[test]
fn upper_case_goes_before_lower_case_unless_it_is_empty() {
    let env = proxies(&[
        ("http_proxy", "http://lower"),
        ("HTTP_PROXY", "http://upper"),
        ("HTTPS_PROXY", ""),
        ("https_proxy", "http://lower"),
    ])
    .unwrap();
    for (url, host) in [("http://a", "upper"), ("https://a", "lower")] {
        let proxy = env.proxy_for(&url.parse().unwrap()).unwrap();
        assert_eq!(proxy.host_str(), Some(host), "{url}");
    }
}

#[test]
fn a_proxy_without_a_scheme_is_an_http_proxy() {
    for (value, url) in [
        ("proxy:3128", "http://proxy:3128/"),
        ("10.0.0.1:3128", "http://10.0.0.1:3128/"),
        ("u:p@proxy:3128", "http://u:p@proxy:3128/"),
        ("proxy", "http://proxy/"),
        ("https://proxy", "https://proxy/"),
        ("socks5://proxy:1080", "socks5://proxy:1080"),
    ] {
        let env = proxies(&[("HTTP_PROXY", value)]).unwrap();
        assert_eq!(env.proxy_for(&"http://a".parse().unwrap()).unwrap().as_str(), url);
    }
}

#[test]
fn the_error_for_an_invalid_proxy_has_no_value() {
    for value in [
        "ftp://u:s3cret@proxy",
        "http://",
        "u:s3cret@a b",
        "http://u:s3cret@[",
    ] {
        let error = proxies(&[("HTTPS_PROXY", value)]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the environment variable HTTPS_PROXY is not the URL of a proxy, such as http://proxy.example:3128"
        );
    }
}

#[test]
fn this_host_is_never_reached_through_a_proxy() {
    for url in [
        "http://localhost",
        "https://localhost:6443",
        "http://127.0.0.1:80",
        "http://127.9.9.9",
        "http://[::1]:8",
    ] {
        assert!(!proxied("", url), "{url}");
    }
    assert!(proxied("", "http://localhost.example"));
}

#[test]
fn a_name_exempts_itself_and_its_subdomains() {
    for (exempt, url, expected) in [
        ("example.com", "http://example.com", false),
        ("example.com", "http://EXAMPLE.com.", false),
        ("EXAMPLE.com", "http://a.b.example.com", false),
        ("example.com", "http://notexample.com", true),
        ("example.com", "http://example.com.evil", true),
        (".example.com", "http://example.com", true),
        (".example.com", "http://a.example.com", false),
        ("*.example.com", "http://a.example.com", false),
        ("*.example.com", "http://example.com", true),
        ("example.com:443", "https://example.com", false),
        ("example.com:443", "http://example.com", true),
        ("example.com:8443", "https://a.example.com:8443", false),
        (" a , ,example.com ,", "http://example.com", false),
        ("*", "http://example.com", false),
        ("*", "http://10.0.0.1", false),
        (".", "http://example.com", true),
        ("example.com:x", "http://example.com", true),
    ] {
        assert_eq!(proxied(exempt, url), expected, "{exempt} {url}");
    }
}

#[test]
fn an_address_or_a_network_exempts_addresses_only() {
    for (exempt, url, expected) in [
        ("10.0.0.1", "http://10.0.0.1", false),
        ("10.0.0.1", "http://10.0.0.2", true),
        ("10.0.0.1:80", "http://10.0.0.1", false),
        ("10.0.0.1:81", "http://10.0.0.1", true),
        ("10.43.0.0/16", "https://10.43.0.1:443", false),
        ("10.43.0.0/16", "https://10.44.0.1:443", true),
        ("0.0.0.0/0", "http://192.0.2.1", false),
        ("192.0.2.1/32", "http://192.0.2.1", false),
        ("192.0.2.1/32", "http://192.0.2.0", true),
        ("10.0.0.0/33", "http://10.0.0.0", true),
        ("fd00::/8", "http://[fd12::1]", false),
        ("fd00::/8", "http://[fe80::1]", true),
        ("::/0", "http://10.0.0.1", true),
        ("[fd12::1]:80", "http://[fd12::1]", false),
        ("fd12::1", "http://[fd12::1]", false),
        ("10.43.0.0/16", "http://kubernetes.default.svc", true),
    ] {
        assert_eq!(proxied(exempt, url), expected, "{exempt} {url}");
    }
}
