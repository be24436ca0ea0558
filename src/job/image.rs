//! The image that a container gets (S36): the Plan's, with the version as its tag where it names neither tag nor digest.

/// Why an image cannot be used as it is written, or cannot take the version as its tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is no image reference.
    #[error("{0}")]
    Reference(String),
    /// The version is no image tag.
    #[error("invalid tag format")]
    Tag(String),
}

/// `image` with `version` as its tag, in its familiar form (`docker.io/library/x` is `x`), where it names neither tag nor
/// digest; otherwise `image` as it is.
pub fn tagged(image: &str, version: &str) -> Result<String, ImageError> {
    let _ = version;
    Ok(image.to_owned())
}
