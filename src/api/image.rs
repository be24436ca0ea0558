//! Image references: their parts, and how a version becomes the tag of one (S36).
//!
//! The grammar is that of distribution's `reference` package, which all container runtimes use:
//! <https://github.com/distribution/reference/blob/main/regexp.go>.

use std::sync::LazyLock;

use regex::Regex;

/// Why an image reference is invalid, or cannot take the version as its tag, with distribution's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It could also be the ID of an image.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    #[error("repository name must not be more than {MAX_NAME_LEN} characters")]
    TooLong,
    #[error("invalid reference format")]
    Malformed,
    #[error("invalid checksum digest format")]
    Digest,
    #[error("invalid checksum digest length")]
    DigestLength,
    /// Its digest uses another algorithm than sha256, sha384 and sha512.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    #[error("invalid tag format")]
    Tag,
}

/// What the registry of an image says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageAnswer {
    /// The digest to which its tag resolves.
    Found(String),
    /// The registry says that there is no such image: its status line.
    Missing(String),
    /// Why the registry cannot be asked, which says nothing about the image.
    Unknown(String),
}

/// Maximum length of a reference: a name of 255 bytes, a tag of 128, and a digest of some hundred.
const MAX_LEN: usize = 1024;
const MAX_NAME_LEN: usize = 255;
const MAX_TAG_LEN: usize = 128;
const DEFAULT_HOST: &str = "docker.io";
const LEGACY_DEFAULT_HOST: &str = "index.docker.io";
const OFFICIAL: &str = "library/";

/// Name, tag and digest, anchored. Explicit classes, because `\w` of `regex` is Unicode-aware and Go's is not.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let label = "(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)";
    let host = format!(r"(?:{label}(?:\.{label})*(?::[0-9]+)?/)");
    let part = "(?:[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)";
    let tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    let algorithm = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*";
    Regex::new(&format!(
        r"\A{host}?{part}(?:/{part})*(?::({tag}))?(?:@({algorithm}):([0-9A-Fa-f]{{32,}}))?\z"
    ))
    .ok()
});

/// `image` with `version` as its tag, in its short form (`docker.io/library/x` becomes `x`), if it has neither tag nor
/// digest; otherwise `image` unchanged.
///
/// # Errors
/// Fails if `image` is not a reference, or `version` is not a tag.
pub fn tagged(image: &str, version: &str) -> Result<String, ImageError> {
    let reference = ImageReference::parse(image)?;
    if reference.tag.is_some() || reference.digest.is_some() {
        return Ok(image.to_owned());
    }
    if !is_tag(version) {
        return Err(ImageError::Tag);
    }
    Ok(format!("{}:{version}", reference.short_name()))
}

/// Whether `text` can be the tag of an image: at most 128 of `[A-Za-z0-9_.-]`, beginning with none of `.-`.
pub fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG_LEN
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// A reference with the default host and path: `x` is `docker.io/library/x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// Host of the registry, with its port.
    pub host: String,
    pub path: String,
    pub tag: Option<String>,
    /// `algorithm:hex`.
    pub digest: Option<String>,
}

impl ImageReference {
    /// Parses a reference as distribution's `ParseDockerRef`.
    ///
    /// # Errors
    /// Fails with distribution's message.
    pub fn parse(image: &str) -> Result<Self, ImageError> {
        if image.len() > MAX_LEN {
            return Err(ImageError::TooLong);
        }
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
        // distribution accepts IPv6 hosts beyond its grammar, so a plain host replaces them here.
        let matched_host = if is_ipv6_host(host) { "localhost" } else { host };
        let text = format!("{matched_host}/{rest}");
        let captures = REFERENCE
            .as_ref()
            .and_then(|reference| reference.captures(&text))
            .ok_or(ImageError::Malformed)?;
        let group = |index| captures.get(index).map(|group| group.as_str());
        let digest = group(2).zip(group(3));
        if let Some((algorithm, hex)) = digest {
            check_digest(algorithm, hex)?;
        }
        // A path contains neither.
        let path = rest.split([':', '@']).next().unwrap_or_default().to_owned();
        if host.len() + 1 + path.len() > MAX_NAME_LEN {
            return Err(ImageError::TooLong);
        }
        Ok(Self {
            host: host.to_owned(),
            path,
            tag: group(1).map(str::to_owned),
            digest: digest.map(|(algorithm, hex)| format!("{algorithm}:{hex}")),
        })
    }

    fn short_name(&self) -> String {
        if self.host != DEFAULT_HOST {
            return format!("{}/{}", self.host, self.path);
        }
        match self.path.strip_prefix(OFFICIAL) {
            Some(official) if !official.contains('/') => official.to_owned(),
            _ => self.path.clone(),
        }
    }
}

fn check_digest(algorithm: &str, hex: &str) -> Result<(), ImageError> {
    let digits = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(ImageError::DigestAlgorithm),
    };
    if hex.len() != digits {
        return Err(ImageError::DigestLength);
    }
    if hex.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(ImageError::Digest);
    }
    Ok(())
}

/// Splits off the registry's host. The part before the first `/` is a host if it has a dot, a port or an upper-case
/// letter, or is `localhost`.
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

/// `[address]`, optionally with a port.
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
