//! Images that follow the version of their Plan.

use std::collections::BTreeSet;

use super::plan::{PinRequest, PlanInFile};
use crate::gitops::reference::Reference;
use crate::gitops::yaml::Step;
use refit_base::version::distribution_of;
use refit_base::version::tag::{is_semver, munge};

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

/// The images that run at the new version because of their name or of the edit, without those that get a digest.
pub fn images_to_run(request: &PinRequest) -> Vec<String> {
    let (now, wanted) = (request.plan.version.as_deref(), &request.version);
    let images = request.plan.images.iter();
    let images = images.filter_map(|(_, image)| versioned_image(image, now, wanted));
    let images = images.filter(|image| !image.has_tag || request.images && !image.has_digest);
    let patched = request.plan.patched_images.iter();
    let patched = patched.filter_map(|image| versioned_image(image, now, wanted));
    let all = images.chain(patched.filter(|image| !image.has_tag));
    all.map(|image| image.tagged).collect()
}

/// An image that keeps its tag although the version changes, and so continues to install another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptTag {
    pub image: String,
    /// The version that it installs; empty if it has a digest and no tag.
    pub tag: String,
    /// The tag was the version of the Plan, so a flag changes it too.
    pub was_version: bool,
}

/// Images whose tag is the old version, and those of an upgrade whose tag is a third one, or that have only a digest.
pub fn kept_tags(request: &PinRequest) -> BTreeSet<KeptTag> {
    let moved: Vec<_> = tags(request).into_iter().map(|(path, _)| path).collect();
    let now = request.plan.version.as_deref().map(munge);
    let wanted = munge(&request.version);
    let kept = |(path, image): &(Vec<Step>, String)| {
        let reference = Reference::read(image)?;
        let is_for_version = reference.name.ends_with("-upgrade") || distribution_of(image).is_some();
        let Some(tag) = reference.tag else {
            return (!reference.is_name_only && is_for_version).then(|| KeptTag {
                image: image.clone(),
                tag: String::new(),
                was_version: false,
            });
        };
        let tag = tag.to_owned();
        let was_version = now.as_ref() == Some(&tag);
        // Other images have tags that are not versions of what they upgrade.
        let is_other = is_for_version && is_semver(&tag) && is_semver(&wanted) && tag != wanted;
        (!moved.contains(path) && (was_version || is_other)).then(|| KeptTag {
            image: image.clone(),
            tag,
            was_version,
        })
    };
    request.plan.images.iter().filter_map(kept).collect()
}
