//! Images, and the version that is to be their tag.

use super::jobs::{ANY_VERSION, containers};
use super::{Subject, is_placeholder};
use crate::api::PlanSpec;
use crate::channel::version::{is_semver, munge};
use crate::gitops::Rule;
use crate::job::image;

impl Subject<'_> {
    pub(super) fn check_images(&mut self, spec: &PlanSpec) {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (version, channel) = (given(&spec.version), given(&spec.channel));
        if version.is_none() && self.has("spec.version") && spec.version.is_none() {
            return; // one that was refused for its type
        }
        for (container, of) in containers(spec) {
            let field = format!("spec.{container}.image");
            if is_placeholder(&of.image) {
                if let Some(node) = self.node(&field) {
                    self.placeholder(&field, node);
                }
                continue;
            }
            let Some(reference) = Reference::read(&of.image) else {
                continue;
            };
            match (&version, &channel) {
                (None, None) if reference.is_name_only => {
                    let message = format!("{field} is {:?}, and there is no version to be its tag", of.image);
                    let hint = "give the Plan a `version` or a `channel`, or the image a tag".to_owned();
                    self.tell(Rule::UntaggedImage, &field, message, Some(hint));
                }
                (None, Some(_)) if !reference.is_name_only => {
                    let message = format!("{field} is {:?}, whatever version the channel says", of.image);
                    let hint = format!(
                        "take it off: `{}` alone gets the version as its tag",
                        reference.name
                    );
                    self.tell(Rule::TagBesideChannel, &field, message, Some(hint));
                }
                (Some(version), _) => {
                    let version = munge(version);
                    let tag = reference.tag.unwrap_or_default();
                    if tag != version && is_semver(tag) && is_semver(&version) {
                        let message = format!("{field} has the tag {tag:?}, and spec.version is {version:?}");
                        let hint = format!(
                            "take off the tag: `{}` gets the version as its tag",
                            reference.name
                        );
                        self.tell(Rule::TagDiffers, &field, message, Some(hint));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The parts of an image that count here.
pub(in crate::gitops) struct Reference<'i> {
    /// Without tag and digest.
    pub(in crate::gitops) name: &'i str,
    /// The tag, where there is one.
    pub(in crate::gitops) tag: Option<&'i str>,
    /// There is neither tag nor digest.
    pub(in crate::gitops) is_name_only: bool,
}

impl<'i> Reference<'i> {
    /// Nothing for what is no image.
    pub(in crate::gitops) fn read(image: &'i str) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_taken_apart() {
        let parts = |image| Reference::read(image).map(|r| (r.name, r.tag, r.is_name_only));
        assert_eq!(parts("ubuntu"), Some(("ubuntu", None, true)));
        assert_eq!(
            parts("docker.io/library/ubuntu"),
            Some(("docker.io/library/ubuntu", None, true))
        );
        assert_eq!(
            parts("a.example:5000/b/c"),
            Some(("a.example:5000/b/c", None, true))
        );
        assert_eq!(
            parts("a.example:5000/b/c:v1"),
            Some(("a.example:5000/b/c", Some("v1"), false))
        );
        let digest = format!("b/c:v1@sha256:{}", "a".repeat(64));
        assert_eq!(parts(&digest), Some(("b/c", Some("v1"), false)));
        assert_eq!(parts("not an image"), None);
    }
}
