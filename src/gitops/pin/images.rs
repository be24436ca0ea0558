//! Images that follow the version of their Plan.

use std::collections::BTreeSet;

use super::{PinRequest, PlanInFile};
use crate::gitops::check::Reference;
use crate::gitops::yaml::Step;
use crate::version::tag::munge;

/// Paths of images that follow the version, and their new values.
pub(super) fn tags(request: &PinRequest) -> Vec<(Vec<Step>, String)> {
    let images = request.plan.images.iter();
    images
        .filter_map(|(path, image)| {
            let versioned_image = versioned_image(image, request.plan.version.as_deref(), &request.version)?;
            let digest = request.digests.get(&versioned_image.tagged);
            let image = match digest {
                Some(digest) => format!("{}@{digest}", versioned_image.tagged),
                // A digest belongs to one version, so the tag cannot change without it.
                None if request.images && versioned_image.has_tag && !versioned_image.has_digest => {
                    versioned_image.tagged
                }
                None => return None,
            };
            Some((path.clone(), image))
        })
        .collect()
}

struct VersionedImage {
    /// The image with the new version as its tag, without a digest.
    tagged: String,
    has_tag: bool,
    has_digest: bool,
}

/// `None` for an image with a tag other than the current version, or with a digest and no tag.
fn versioned_image(image: &str, now: Option<&str>, wanted: &str) -> Option<VersionedImage> {
    let reference = Reference::read(image)?;
    let follows = match reference.tag {
        Some(tag) => Some(tag) == now.map(munge).as_deref(),
        None => reference.is_name_only,
    };
    follows.then(|| VersionedImage {
        tagged: format!("{}:{}", reference.name, munge(wanted)),
        has_tag: reference.tag.is_some(),
        has_digest: image.contains('@'),
    })
}

/// The images of a Plan that follow its version, with the new version as their tag.
pub fn versioned_images(plan: &PlanInFile, wanted: &str) -> Vec<String> {
    let images = plan.images.iter();
    let tagged = images.filter_map(|(_, image)| versioned_image(image, plan.version.as_deref(), wanted));
    tagged.map(|versioned_image| versioned_image.tagged).collect()
}

/// Images that keep the old version as their tag, and so would continue to install it.
pub fn left_behind(request: &PinRequest) -> BTreeSet<&str> {
    let moved: Vec<_> = tags(request).into_iter().map(|(path, _)| path).collect();
    let images = request.plan.images.iter();
    images
        .filter(|(path, image)| {
            let versioned_image = versioned_image(image, request.plan.version.as_deref(), &request.version);
            versioned_image.is_some_and(|versioned_image| versioned_image.has_tag) && !moved.contains(path)
        })
        .map(|(_, image)| image.as_str())
        .collect()
}
