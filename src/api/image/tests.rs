use proptest::prelude::*;

use super::*;

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Results of docker/distribution 2.8.3 for images that get the tag `v1`.
const TAGGED: &[(&str, &str)] = &[
    ("test/image", "test/image:v1"),
    (
        "img.example.com:5000/test/image",
        "img.example.com:5000/test/image:v1",
    ),
    ("docker.io/library/x", "x:v1"),
    ("index.docker.io/library/x", "x:v1"),
    ("index.docker.io/x", "x:v1"),
    ("docker.io/x", "x:v1"),
    ("docker.io/x/y", "x/y:v1"),
    ("docker.io/library/x/y", "library/x/y:v1"),
    ("library/x", "x:v1"),
    ("library/x/y", "library/x/y:v1"),
    ("x", "x:v1"),
    ("localhost", "localhost:v1"),
    ("localhost/x", "localhost/x:v1"),
    ("localhost:5000/x", "localhost:5000/x:v1"),
    ("sub.docker.io/x", "sub.docker.io/x:v1"),
    ("Docker.io/x", "Docker.io/x:v1"),
    ("FOO.COM/x", "FOO.COM/x:v1"),
    ("Foo/bar", "Foo/bar:v1"),
    ("1.2.3.4:5000/x", "1.2.3.4:5000/x:v1"),
    ("[::1]/x", "[::1]/x:v1"),
    ("[fd00::1]:5000/x", "[fd00::1]:5000/x:v1"),
    ("my_host.com/x", "my_host.com/x:v1"),
    ("a.b/x__y/z--w.v", "a.b/x__y/z--w.v:v1"),
];

/// Images that it does not change, because they have a tag or a digest; `HEX` is 64 hex digits.
const KEPT: &[&str] = &[
    "test/image:v0",
    "img.example.com:5000/test/image:v0",
    "docker.io/library/x:latest",
    "x:latest",
    "x:Y",
    "x:_t",
    "host:5000",
    "x:5000/y:1",
    "test/image@sha256:HEX",
    "test/image:v0@sha256:HEX",
    "x@sha512:HEXHEX",
];

/// Images that it refuses, and its messages.
const REFUSED: &[(&str, &str)] = &[
    ("x@sha512:HEX", "invalid checksum digest length"),
    ("x@md5:HEX", "unsupported digest algorithm"),
    (
        "HEX",
        "invalid repository name (HEX), cannot specify 64-byte hexadecimal strings",
    ),
    (
        "X",
        "invalid reference format: repository name (library/X) must be lowercase",
    ),
    (
        "x/Y",
        "invalid reference format: repository name (x/Y) must be lowercase",
    ),
    (
        "É",
        "invalid reference format: repository name (library/É) must be lowercase",
    ),
];

/// Images that it refuses with "invalid reference format", separated by semicolons.
const INVALID: &str = ";x:;:x;x@;x@sha256:abc;É/x;ü;x:ü;x___y;x..y;-x;x-;x/;/x;x//y;x y;x\n;x:.t;x:1:2;a:b/c;a@b/c;\
    x.com:port/y;x.com:/y;http://x/y;[]/x;[xyz]/x;[::1]x/y;[fd00::1]:/x;docker.io/";

fn hex(text: &str) -> String {
    text.replace("HEX", HEX)
}

#[test]
fn a_name_without_tag_and_digest_gets_the_version_in_its_short_form() {
    for (image, with_tag) in TAGGED {
        assert_eq!(tagged(image, "v1").as_deref(), Ok(*with_tag), "{image:?}");
    }
    assert_eq!(tagged("test/image", "test").as_deref(), Ok("test/image:test"));
}

#[test]
fn an_image_with_a_tag_or_a_digest_stays_as_it_is() {
    for image in KEPT {
        let image = hex(image);
        assert_eq!(tagged(&image, "v1"), Ok(image.clone()));
        assert_eq!(
            tagged(&image, "no tag"),
            Ok(image.clone()),
            "the version is not asked for"
        );
    }
}

#[test]
fn an_invalid_image_is_refused_in_distributions_words() {
    let invalid = INVALID
        .split(';')
        .map(|image| (image, "invalid reference format"));
    for (image, words) in REFUSED.iter().copied().chain(invalid) {
        let error = tagged(&hex(image), "v1").unwrap_err();
        assert_eq!(error.to_string(), hex(words), "{image:?}");
    }
    let upper = format!("x@sha256:{}", HEX.to_uppercase());
    assert_eq!(
        tagged(&upper, "v1").unwrap_err().to_string(),
        "invalid checksum digest format"
    );
}

#[test]
fn a_name_has_at_most_255_characters_with_its_host() {
    let fits = format!("x.io/{}", "b".repeat(250));
    assert_eq!(tagged(&fits, "v1"), Ok(format!("{fits}:v1")));
    assert_eq!(tagged(&format!("{fits}b"), "v1"), Err(ImageError::TooLong));
    let fits = "b".repeat(237); // and `docker.io/library/`
    assert_eq!(tagged(&fits, "v1"), Ok(format!("{fits}:v1")));
    let error = tagged(&format!("{fits}b"), "v1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "repository name must not be more than 255 characters"
    );
}

#[test]
fn a_version_that_is_no_tag_is_refused() {
    let long = "t".repeat(129);
    for version in ";v1 beta;.v;-v;v1+k3s1;ü;v1\n".split(';').chain([long.as_str()]) {
        assert_eq!(tagged("x", version), Err(ImageError::Tag), "{version:?}");
    }
    for version in ["v1.2-3_4", "_v", "V", "0", &"t".repeat(128)] {
        assert_eq!(tagged("x", version), Ok(format!("x:{version}")));
    }
}

proptest! {
    #[test]
    fn an_image_that_was_given_a_tag_keeps_it(image in "([a-z]{1,5}[.:/_-]){0,4}[a-z0-9]{1,5}", version in "[A-Za-z0-9_][A-Za-z0-9_.-]{0,9}") {
        if let Ok(once) = tagged(&image, &version) {
            prop_assert_eq!(tagged(&once, "other"), Ok(once.clone()));
        }
    }
}
