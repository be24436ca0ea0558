//! Images that follow the version of their Plan.

use std::collections::BTreeSet;

use super::plan::{PatchedImage, PinRequest, PlanInFile};
use crate::gitops::reference::Reference;
use crate::gitops::source::Source;
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
    let patched = patched.filter_map(|of| versioned_image(&of.image, now, wanted));
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
    /// File and line, if the image is not in the patch that has the version.
    pub place: Option<String>,
}

/// Images whose tag is the old version, and those of an upgrade whose tag is a third one, or that have only a digest.
pub fn kept_tags(request: &PinRequest) -> BTreeSet<KeptTag> {
    let moved: Vec<_> = tags(request).into_iter().map(|(path, _)| path).collect();
    let now = request.plan.version.as_deref().map(munge);
    let wanted = munge(&request.version);
    let kept = |image: &str, place: Option<&str>| {
        let reference = Reference::read(image)?;
        let is_for_version = is_for_version(image, &reference);
        let kept = |tag: &str, was_version: bool| KeptTag {
            image: image.to_owned(),
            tag: tag.to_owned(),
            was_version,
            place: place.map(str::to_owned),
        };
        let Some(tag) = reference.tag else {
            return (!reference.is_name_only && is_for_version).then(|| kept("", false));
        };
        let was_version = now.as_deref() == Some(tag);
        // Other images have tags that are not versions of what they upgrade.
        let is_other = is_for_version && is_semver(tag) && is_semver(&wanted) && tag != wanted;
        (was_version || is_other).then(|| kept(tag, was_version))
    };
    let own = request.plan.images.iter();
    let own = own.filter(|(path, _)| !moved.contains(path));
    let patched = request.plan.patched_images.iter();
    let patched = patched.filter_map(|of| kept(&of.image, Some(&of.place)));
    own.filter_map(|(_, image)| kept(image, None))
        .chain(patched)
        .collect()
}

/// Whether the tag of the image is the version that it installs.
fn is_for_version(image: &str, reference: &Reference<'_>) -> bool {
    reference.name.ends_with("-upgrade") || distribution_of(image).is_some()
}

/// Images of a patch that their tag or digest chooses, and not the version of the Plan; with their lines.
pub fn fixed_images<'p>(source: &Source, plan: &'p PlanInFile) -> impl Iterator<Item = (usize, &'p str)> {
    plan.images.iter().filter_map(|(path, image)| {
        let reference = Reference::read(image)?;
        let is_fixed = !reference.is_name_only && is_for_version(image, &reference);
        is_fixed.then(|| (plan.line_of(source, path), image.as_str()))
    })
}

/// An image of a Plan whose version is in a patch: the image follows that version, and `pin` does not edit it.
pub fn patched_image_to_run(request: &PinRequest) -> Option<&PatchedImage> {
    let now = request.plan.version.as_deref();
    let mut patched = request.plan.patched_images.iter();
    patched.find(|of| versioned_image(&of.image, now, &request.version).is_some())
}
