//! References to images.

use refit_api::image;

/// A valid version, used if the Plan's version is unknown.
pub(super) const ANY_VERSION: &str = "v0";

/// The parts of an image that count here.
pub(super) struct Reference<'i> {
    /// Without tag and digest.
    pub(super) name: &'i str,
    /// The tag, where there is one.
    pub(super) tag: Option<&'i str>,
    /// There is neither tag nor digest.
    pub(super) is_name_only: bool,
}

impl<'i> Reference<'i> {
    /// `None` if the text is not an image.
    pub(super) fn read(image: &'i str) -> Option<Self> {
        let tagged = image::tagged(image, ANY_VERSION).ok()?;
        let before_digest = image.split('@').next().unwrap_or_default();
        let path = before_digest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match before_digest[path..].split_once(':') {
            Some((_, tag)) => (&before_digest[..before_digest.len() - tag.len() - 1], Some(tag)),
            None => (before_digest, None),
        };
        Some(Self {
            name,
            tag,
            is_name_only: tagged != image,
        })
    }
}
