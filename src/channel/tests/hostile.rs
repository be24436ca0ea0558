//! Headers with anything in them end with a value or an error. As many cases as in `tests/hostile_input.rs`.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use refit_fixtures::repetitions::cases;
use url::Url;

use crate::link::next_page;
use crate::oci::challenges;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: cases(1_000),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A header made of pieces that its grammar knows, of any length.
fn header(pieces: &'static [&'static str]) -> impl Strategy<Value = HeaderValue> {
    let known = vec(proptest::sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat().into_bytes());
    let long = (proptest::sample::select(pieces), 1..6_000_usize)
        .prop_map(|(piece, times)| piece.repeat(times).into_bytes());
    let any = vec(any::<u8>(), 0..200);
    prop_oneof![4 => known, 1 => long, 2 => any].prop_map(|mut bytes| {
        bytes.retain(|byte| *byte == b'\t' || *byte >= 0x20 && *byte != 0x7f);
        HeaderValue::from_bytes(&bytes).unwrap()
    })
}

const LINK: &[&str] = &[
    "<",
    ">",
    ";",
    ",",
    "\"",
    "\\",
    "rel=",
    "next",
    "rel=next",
    "rel=\"next\"",
    "/v2/?n=1",
    "http://other.example/",
    "//",
    "..",
    " ",
    "\t",
    "=",
    "é",
    "https://r.example:0/",
    "\u{202e}",
];
const CHALLENGE: &[&str] = &[
    "Bearer",
    "Basic",
    " ",
    ",",
    "=",
    "\"",
    "\\",
    "realm=",
    "realm=\"https://a.example\"",
    "scope",
    "==",
    "\t",
    "é",
    "a=b",
    "token68==",
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_link_leads_to_the_same_host_or_nowhere(links in vec(header(LINK), 0..4)) {
        let url = Url::parse("https://r.example/v2/a/tags/list").unwrap();
        if let Ok(Some(next)) = next_page(&url, &links) {
            prop_assert_eq!((next.host_str(), next.scheme(), next.port()), (url.host_str(), url.scheme(), url.port()));
        }
    }

    #[test]
    fn any_challenge_is_parsed_or_skipped(headers in vec(header(CHALLENGE), 0..4)) {
        let total: usize = headers.iter().map(HeaderValue::len).sum();
        let headers: HeaderMap = headers.into_iter().map(|value| (WWW_AUTHENTICATE, value)).collect();
        prop_assert!(challenges(&headers).len() <= total);
    }

    #[test]
    fn any_location_is_a_url_or_refused(location in header(LINK)) {
        let url = Url::parse("https://r.example/stable").unwrap();
        if let Ok(text) = location.to_str()
            && let Ok(target) = url.join(text)
        {
            let base = target.path().rsplit('/').next().unwrap_or_default();
            let _ = refit_base::version::tag::accept(None, base);
        }
    }
}
