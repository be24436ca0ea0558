//! URLs without their credentials, for status, messages and output. A URL may have a password before its host, and a
//! token or a signature in its query.

use std::borrow::Cow;

const HIDDEN: &str = "REDACTED";
/// Parts of the names of query parameters that hold a credential: `access_token`, `X-Amz-Signature`, `sig`, `api_key`.
const SECRET: [&str; 9] = [
    "token", "secret", "pass", "pwd", "sig", "auth", "cred", "key", "jwt",
];

/// A channel's URL without credentials: the password, and the user, who may be a token; and parameters of the query
/// whose names are those of credentials.
pub fn redacted(url: &str) -> Cow<'_, str> {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, url),
    };
    // Everything up to the last `@` before the path (WHATWG URL; a backslash begins the path, too).
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let (user, host) = match rest[..end].rfind('@') {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    };
    let (path, query, fragment) = split(host);
    let has_secret = query.is_some_and(|query| parameters(query).any(|(name, value)| is_secret(name, value)));
    if user.is_none() && !has_secret {
        return Cow::Borrowed(url);
    }
    let mut shown = String::new();
    if let Some(scheme) = scheme {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    if user.is_some() {
        shown.push_str(HIDDEN);
        shown.push('@');
    }
    shown.push_str(path);
    if let Some(query) = query {
        for (index, (name, value)) in parameters(query).enumerate() {
            shown.push(if index == 0 { '?' } else { '&' });
            shown.push_str(name);
            if let Some(value) = value {
                shown.push('=');
                shown.push_str(if is_secret(name, Some(value)) {
                    HIDDEN
                } else {
                    value
                });
            }
        }
    }
    if let Some(fragment) = fragment {
        shown.push('#');
        shown.push_str(fragment);
    }
    Cow::Owned(shown)
}

/// Path, query and fragment.
fn split(rest: &str) -> (&str, Option<&str>, Option<&str>) {
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, fragment)) => (rest, Some(fragment)),
        None => (rest, None),
    };
    match rest.split_once('?') {
        Some((path, query)) => (path, Some(query), fragment),
        None => (rest, None, fragment),
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (parameter, None),
    })
}

fn is_secret(name: &str, value: Option<&str>) -> bool {
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    let name = name.to_ascii_lowercase();
    value.is_some() && SECRET.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_credentials() {
        for (url, shown) in [
            ("https://user:pw@h.test/a", "https://REDACTED@h.test/a"),
            ("https://ghp_token@h.test", "https://REDACTED@h.test"),
            ("https://u:p@w@h.test/a@b", "https://REDACTED@h.test/a@b"),
            (
                "https://h.test/a?access_token=x&n=1#stable",
                "https://h.test/a?access_token=REDACTED&n=1#stable",
            ),
            (
                "https://s3.test/a?X-Amz-Credential=c%2Fd&X-Amz-Signature=ab&X-Amz-Date=1",
                "https://s3.test/a?X-Amz-Credential=REDACTED&X-Amz-Signature=REDACTED&X-Amz-Date=1",
            ),
            ("https://h.test/a?%74oken=x", "https://h.test/a?%74oken=REDACTED"),
            ("user:pw@h.test/a", "REDACTED@h.test/a"),
            ("https://u:p@h.test\\@x", "https://REDACTED@h.test\\@x"),
        ] {
            assert_eq!(redacted(url), shown, "{url}");
        }
    }

    #[test]
    fn a_url_without_credentials_is_shown_as_it_is() {
        for url in [
            "https://update.k3s.io/v1-release/channels#v1.33",
            "https://h.test/a?channel=stable&flag",
            "github://k3s-io/k3s",
            "oci://[::1]:5000/a@b",
            "stable",
            "",
        ] {
            assert!(
                matches!(redacted(url), Cow::Borrowed(shown) if shown == url),
                "{url}"
            );
        }
    }
}
