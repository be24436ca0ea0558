//! The image that a container gets (S36): the Plan's, with the version as its tag where it names neither tag nor digest.
//!
//! What an image reference is, and what its short form is, follows docker/distribution, which every container runtime
//! does too. The grammar is oci-spec's; what distribution does before and after it, and oci-spec leaves out, is here.

use oci_spec::distribution::{ParseError, Reference};

/// Why an image cannot be used as it is written, or cannot take the version as its tag; in distribution's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is the ID of an image: nothing could tell it from one.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// Its path has upper-case letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// Host and path are too long together.
    #[error("repository name must not be more than {MAX_NAME_LEN} characters")]
    TooLong,
    /// It is something else that is no reference.
    #[error("{0}")]
    Malformed(String),
    /// The version is no tag.
    #[error("invalid tag format")]
    Tag,
}

const MAX_NAME_LEN: usize = 255;
const MAX_TAG_LEN: usize = 128;
const DEFAULT_HOST: &str = "docker.io";
const LEGACY_DEFAULT_HOST: &str = "index.docker.io";
const OFFICIAL: &str = "library/";

/// `image` with `version` as its tag, in its short form (`docker.io/library/x` is `x`), where it names neither tag nor
/// digest; otherwise `image` as it is.
pub fn tagged(image: &str, version: &str) -> Result<String, ImageError> {
    let name = Name::parse(image)?;
    if !name.is_all {
        return Ok(image.to_owned());
    }
    if !is_tag(version) {
        return Err(ImageError::Tag);
    }
    Ok(format!("{}:{version}", name.short()))
}

/// Whether `text` can be the tag of an image: at most 128 of `[A-Za-z0-9_.-]`, and the first none of `.-`.
pub fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG_LEN
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// The name in a reference, with what is not written out filled in.
struct Name {
    host: String,
    path: String,
    /// Neither tag nor digest follows.
    is_all: bool,
}

impl Name {
    fn parse(image: &str) -> Result<Self, ImageError> {
        if image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ImageError::Identifier(image.to_owned()));
        }
        let (host, rest) = split_host(image);
        let rest = if host == DEFAULT_HOST && !rest.contains('/') {
            format!("{OFFICIAL}{rest}")
        } else {
            rest.to_owned()
        };
        let before_tag = rest.split(':').next().unwrap_or_default();
        if before_tag.to_lowercase() != before_tag {
            return Err(ImageError::Uppercase(before_tag.to_owned()));
        }
        check_grammar(host, &rest).map_err(|error| ImageError::Malformed(error.to_string()))?;
        // A path has neither of the two.
        let path = rest.split([':', '@']).next().unwrap_or_default().to_owned();
        if host.len() + 1 + path.len() > MAX_NAME_LEN {
            return Err(ImageError::TooLong);
        }
        Ok(Self {
            host: host.to_owned(),
            is_all: path.len() == rest.len(),
            path,
        })
    }

    fn short(&self) -> String {
        if self.host != DEFAULT_HOST {
            return format!("{}/{}", self.host, self.path);
        }
        match self.path.strip_prefix(OFFICIAL) {
            Some(official) if !official.contains('/') => official.to_owned(),
            _ => self.path.clone(),
        }
    }
}

/// The registry's host and the rest. What is before the first `/` is a host when it cannot be a path: it has a dot, a port
/// or an upper-case letter, or is `localhost`.
fn split_host(image: &str) -> (&str, &str) {
    match image.split_once('/') {
        Some((LEGACY_DEFAULT_HOST, rest)) => (DEFAULT_HOST, rest),
        Some((host, rest))
            if host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host =>
        {
            (host, rest)
        }
        _ => (DEFAULT_HOST, image),
    }
}

fn check_grammar(host: &str, rest: &str) -> Result<(), ParseError> {
    if !rest.is_ascii() {
        return Err(ParseError::ReferenceInvalidFormat); // a letter of a tag is any letter to oci-spec
    }
    // oci-spec knows no IPv6 hosts; another one stands in for them.
    let host = if is_ipv6_host(host) { "localhost" } else { host };
    let reference = Reference::try_from(format!("{host}/{rest}"))?;
    match reference.digest() {
        Some(digest) if digest.bytes().any(|b| b.is_ascii_uppercase()) => {
            Err(ParseError::DigestInvalidFormat)
        }
        _ => Ok(()),
    }
}

/// `[address]`, with a port or without.
fn is_ipv6_host(host: &str) -> bool {
    let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    !address.is_empty()
        && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        && (port.is_empty() || port.strip_prefix(':').is_some_and(digits))
}

#[cfg(test)]
mod tests;
