//! The images of a Plan that follow its version, for a caller that may ask their registries.

use jiff::Timestamp;

use super::jobs::containers;
use super::subject::Subject;
use crate::gitops::finding::Finding;
use crate::gitops::pin::{Verdict, decide_version};
use crate::gitops::placeholder::given;
use crate::gitops::reference::ANY_VERSION;
use crate::gitops::rule::Rule;
use refit_api::{PlanSpec, image};
use refit_base::version::policy::{Offered, Policy};
use refit_base::version::tag::munge;
use refit_base::version::{Offer, distribution_of};

/// The images of a Plan that get its version as their tag.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedImages {
    /// The channel that gives the version, if the Plan has none.
    pub channel: Option<String>,
    version: Option<String>,
    /// The distribution that the Plan's image installs.
    program: Option<&'static str>,
    policy: Policy,
    images: Vec<VersionedImage>,
}

#[derive(Clone, Debug, PartialEq)]
struct VersionedImage {
    /// Without a tag.
    name: String,
    /// The finding if it does not exist, without the cause.
    finding: Finding,
}

/// An image at the version of its Plan.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageAtVersion {
    pub image: String,
    finding: Finding,
}

impl ImageAtVersion {
    /// The finding for an image that its registry does not have, by the registry's answer.
    pub fn missing(&self, answer: &str) -> Finding {
        Finding {
            message: format!("the registry has no image {} ({answer})", self.image),
            ..self.finding.clone()
        }
    }
}

impl VersionedImages {
    /// The images at the version of the Plan, or at the one that it takes from what its channel offers.
    pub fn at_version(&self, offer: Option<&Offer>, now: Timestamp) -> Vec<ImageAtVersion> {
        let offered = || {
            let offered = Offered::from(offer?);
            match decide_version(None, self.program, &offered, &self.policy, now) {
                Verdict::Take(version) => Some(version),
                Verdict::Same | Verdict::Kept(_) | Verdict::Refused(_) => None,
            }
        };
        let Some(version) = self.version.clone().or_else(offered) else {
            return Vec::new();
        };
        let tag = munge(&version);
        let at_version = |of: &VersionedImage| {
            Some(ImageAtVersion {
                image: image::tagged(&of.name, &tag).ok()?,
                finding: of.finding.clone(),
            })
        };
        self.images.iter().filter_map(at_version).collect()
    }
}

impl Subject<'_> {
    pub(super) fn versioned_images(&self, spec: &PlanSpec) -> Option<VersionedImages> {
        let (version, channel) = (given(spec.version.as_ref()), given(spec.channel.as_ref()));
        let is_unknown = self.is_refused("spec.version", spec.version.as_ref());
        if version.is_none() && (is_unknown || channel.is_none()) {
            return None;
        }
        let hint = "no node starts before it is there: wait until it is published, or correct the image or the version";
        let image = |(container, of): (&str, &refit_api::ContainerSpec)| {
            let field = format!("spec.{container}.image");
            // An image with a tag or a digest does not become another one.
            let follows = image::tagged(&of.image, ANY_VERSION).ok()? != of.image;
            let offset = self.offset(&field);
            let hint = Some(hint.to_owned());
            let finding = self.finding(Rule::ImageMissing, offset, Some(&field), String::new(), hint)?;
            follows.then(|| VersionedImage {
                name: of.image.clone(),
                finding,
            })
        };
        let images: Vec<_> = containers(spec).filter_map(image).collect();
        (!images.is_empty()).then(|| VersionedImages {
            channel: channel.filter(|_| version.is_none()),
            version,
            program: distribution_of(spec.upgrade_image()),
            policy: spec.version_policy().unwrap_or_default(),
            images,
        })
    }
}
