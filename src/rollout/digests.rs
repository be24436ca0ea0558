//! The digests of a Plan's images, for Plans with `pinDigest`. Each is resolved once per hash: the first response that
//! is stored in status applies to all nodes, and no Job is created before.

use std::collections::BTreeMap;

use super::resolve::Resolved;
use refit_api::{ChannelRef, PinnedImage, PinnedStatus, PlanSpec, PlanStatus, image};
use refit_facts::{Hash, Text};

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

/// The images of a Plan at its version, and their digests.
#[derive(Debug, Default)]
pub(super) struct Digests {
    /// Images with a tag to resolve.
    wanted: Vec<String>,
    /// Known digests, by image.
    pub(super) known: BTreeMap<String, String>,
    /// Digests that this process has resolved, and for which hash.
    read: (Option<Hash>, BTreeMap<String, String>),
    /// Whether the stored status has all of them.
    is_stored: bool,
}

impl Digests {
    /// Sets the images for another version or another spec.
    pub(super) fn want(&mut self, spec: &PlanSpec, version: &str) {
        self.wanted.clear();
        if !spec.pins_digests() || version.is_empty() {
            return;
        }
        let before = spec
            .preflight
            .as_deref()
            .into_iter()
            .chain(spec.prepare.as_deref());
        for container in before
            .chain(spec.upgrade_container())
            .chain(spec.verify.as_deref())
        {
            if let Ok(image) = image::tagged(&container.image, version)
                && !image.contains('@')
                && !self.wanted.contains(&image)
            {
                self.wanted.push(image);
            }
        }
    }

    /// Updates the known digests for the current hash. Stored digests take precedence over newer responses, so that a
    /// tag that moves during the roll-out changes the image of no node.
    pub(super) fn refresh(&mut self, status: &PlanStatus, resolved: Option<&Resolved>) {
        if self.wanted.is_empty() {
            self.known.clear();
            self.is_stored = true;
            return;
        }
        let hash = resolved.map(|resolved| &resolved.hash);
        let stored = status.pinned.as_ref();
        let stored = stored.filter(|pinned| hash.is_some_and(|hash| pinned.hash == **hash));
        let stored: BTreeMap<&str, &str> = stored
            .into_iter()
            .flat_map(|pinned| &pinned.images)
            .map(|pinned| (pinned.image.as_str(), pinned.digest.as_str()))
            .collect();
        let read = (self.read.0.as_ref() == hash).then_some(&self.read.1);
        self.is_stored = self
            .wanted
            .iter()
            .all(|image| stored.contains_key(image.as_str()));
        self.known.clear();
        for image in &self.wanted {
            let digest = stored.get(image.as_str()).copied();
            let digest = digest.or_else(|| read?.get(image).map(String::as_str));
            if let Some(digest) = digest {
                self.known.insert(image.clone(), digest.to_owned());
            }
        }
    }

    /// Adds a response for the current hash.
    pub(super) fn read(&mut self, hash: &str, image: String, digest: String) {
        if self.read.0.as_deref() != Some(hash) {
            self.read = (Some(hash.into()), BTreeMap::new());
        }
        self.read.1.insert(image, digest);
    }

    /// Images without a known digest.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &String> {
        self.wanted
            .iter()
            .filter(|image| !self.known.contains_key(*image))
    }

    /// Whether all digests are known and in the stored status.
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
