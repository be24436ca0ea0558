//! What registries say about a Plan's images at its version, before nodes start.
//!
//! With `pinDigest` each image is resolved once per hash: the first response that is stored in status applies to all
//! nodes, and no Job is created before. Without it, refit asks once per hash whether the images that follow the version
//! exist, and no node starts while a registry says that one does not.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::later::later;
use super::resolve::Resolved;
use super::settings::Defaults;
use refit_api::image::{self, ImageAnswer};
use refit_api::{ChannelRef, PinnedImage, PinnedStatus, PlanSpec, PlanStatus};
use refit_facts::{Hash, Text};
use refit_job::render::all_containers;

/// When a registry is asked again for an image that it does not have. Releases and their images come minutes apart.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// The pull policy with which kubelets ask no registry.
const NEVER: &str = "Never";

/// The credentials for the registry of an image: those with which the kubelet pulls it.
pub(super) fn access(spec: &PlanSpec, image: &str) -> ChannelRef {
    let name = |name: &str| Some(name).filter(|name| !name.is_empty()).map(Text::from);
    let pull = spec.image_pull_secrets.iter().flatten();
    ChannelRef {
        ca: spec
            .channel_ca_secret_ref
            .as_ref()
            .and_then(|reference| name(&reference.name)),
        pull: pull.filter_map(|reference| name(&reference.name)).collect(),
        ..ChannelRef::open(image)
    }
}

/// The images of a Plan at its version, and what their registries say.
#[derive(Debug, Default)]
pub(super) struct Digests {
    /// Images to ask for, with their tags.
    wanted: Vec<String>,
    /// Whether Jobs run the digests.
    pins: bool,
    /// Known digests, by image, with `pinDigest`.
    pub(super) known: BTreeMap<String, String>,
    /// The answers that this process has got, for which hash, and when.
    answers: (Option<Hash>, BTreeMap<String, (ImageAnswer, Timestamp)>),
    /// Whether the stored status has all digests that Jobs need.
    is_stored: bool,
}

impl Digests {
    /// Sets the images for another version or another spec.
    pub(super) fn want(&mut self, spec: &PlanSpec, version: &str, defaults: &Defaults) {
        self.wanted.clear();
        self.pins = spec.pins_digests();
        let checks = defaults.checks_images && defaults.job.image_pull_policy != NEVER;
        if !self.pins && !checks || version.is_empty() {
            return;
        }
        for (_, container) in all_containers(spec) {
            let Ok(image) = image::tagged(&container.image, version) else {
                continue;
            };
            // An image with a tag of its own was there for the version before.
            let follows_version = image != container.image;
            if (follows_version || self.pins && !image.contains('@')) && !self.wanted.contains(&image) {
                self.wanted.push(image);
            }
        }
    }

    /// Updates the known digests for the current hash. Stored digests take precedence over newer responses, so that a
    /// tag that moves during the roll-out changes the image of no node.
    pub(super) fn refresh(&mut self, status: &PlanStatus, resolved: Option<&Resolved>) {
        let hash = resolved.map(|resolved| &resolved.hash);
        if self.answers.0.as_ref() != hash {
            self.answers = (hash.cloned(), BTreeMap::new());
        }
        self.known.clear();
        if !self.pins || self.wanted.is_empty() {
            self.is_stored = true;
            return;
        }
        let stored = status.pinned.as_ref();
        let stored = stored.filter(|pinned| hash.is_some_and(|hash| pinned.hash == **hash));
        let stored: BTreeMap<&str, &str> = stored
            .into_iter()
            .flat_map(|pinned| &pinned.images)
            .map(|pinned| (pinned.image.as_str(), pinned.digest.as_str()))
            .collect();
        self.is_stored = self
            .wanted
            .iter()
            .all(|image| stored.contains_key(image.as_str()));
        for image in &self.wanted {
            let read = match self.answers.1.get(image) {
                Some((ImageAnswer::Found(digest), _)) => Some(digest.as_str()),
                _ => None,
            };
            if let Some(digest) = stored.get(image.as_str()).copied().or(read) {
                self.known.insert(image.clone(), digest.to_owned());
            }
        }
    }

    /// Adds an answer for the current hash.
    pub(super) fn read(&mut self, hash: &str, image: String, answer: ImageAnswer, now: Timestamp) {
        if self.answers.0.as_deref() != Some(hash) {
            self.answers = (Some(hash.into()), BTreeMap::new());
        }
        let answer = match (self.answers.1.remove(&image), answer) {
            // A registry that said no and is now silent has not changed its mind.
            (Some((missing @ ImageAnswer::Missing(_), _)), ImageAnswer::Unknown(_)) => missing,
            (_, answer) => answer,
        };
        self.answers.1.insert(image, (answer, now));
    }

    /// Whether Jobs run the digests.
    pub(super) fn pins(&self) -> bool {
        self.pins
    }

    /// Images for which nodes wait.
    pub(super) fn open(&self) -> impl Iterator<Item = &String> {
        self.wanted.iter().filter(|image| {
            if self.pins {
                return !self.known.contains_key(*image);
            }
            let answer = self.answers.1.get(*image);
            answer.is_none_or(|(answer, _)| matches!(answer, ImageAnswer::Missing(_)))
        })
    }

    /// The first image that its registry does not have.
    pub(super) fn missing(&self) -> Option<&String> {
        self.open().find(|image| self.answer_of_missing(image).is_some())
    }

    /// The answer of the registry that does not have the image.
    pub(super) fn answer_of_missing(&self, image: &str) -> Option<&str> {
        match self.answers.1.get(image)? {
            (ImageAnswer::Missing(line), _) => Some(line),
            _ => None,
        }
    }

    /// When to ask for an image: a time that has come, unless its registry has just said no.
    pub(super) fn due(&self, image: &str, now: Timestamp) -> Timestamp {
        match self.answers.1.get(image) {
            // An answer of later than `now` is from before the clock was set back.
            Some((ImageAnswer::Missing(_), asked)) if *asked <= now => later(*asked, ASK_AGAIN),
            _ => now,
        }
    }

    /// Whether all digests that Jobs need are known and in the stored status.
    pub(super) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// The digests as they are stored in status.
    pub(super) fn status(&self, hash: &str) -> Option<PinnedStatus> {
        let image = |(image, digest): (&String, &String)| PinnedImage {
            image: image.clone(),
            digest: digest.clone(),
        };
        (!self.known.is_empty()).then(|| PinnedStatus {
            hash: hash.to_owned(),
            images: self.known.iter().map(image).collect(),
        })
    }
}
