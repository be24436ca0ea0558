//! What the tags of a Plan's images stand for, where its Jobs run by digest. That is asked once for each hash: the first
//! answer that is in status is everybody's, and before it is there no Job is made.

use std::collections::BTreeMap;

use super::facts::Text;
use super::resolve::Resolved;
use crate::api::{PinnedImage, PinnedStatus, PlanSpec, PlanStatus};
use crate::channel::Named;
use crate::job::image;

/// With what the registry of an image is asked: as the image is pulled.
pub(super) fn access(spec: &PlanSpec, image: &str) -> Named {
    let name = |name: &str| Some(name).filter(|name| !name.is_empty()).map(Text::from);
    let pull = spec.image_pull_secrets.iter().flatten();
    Named {
        ca: spec
            .channel_ca_secret_ref
            .as_ref()
            .and_then(|reference| name(&reference.name)),
        pull: pull.filter_map(|reference| name(&reference.name)).collect(),
        ..Named::open(image)
    }
}

/// The images of a Plan at its version, and their digests.
#[derive(Debug, Default)]
pub(super) struct Digests {
    /// Images whose tag has to be asked for.
    wanted: Vec<String>,
    /// Those that are known, by image.
    pub(super) known: BTreeMap<String, String>,
    /// Those that this process has been told, and the hash.
    read: (Option<Text>, BTreeMap<String, String>),
    /// All that is wanted is in the stored status.
    is_stored: bool,
}

impl Digests {
    /// The Plan is at another version, or says other things.
    pub(super) fn want(&mut self, spec: &PlanSpec, version: &str) {
        self.wanted.clear();
        if !spec.pins_digests() || version.is_empty() {
            return;
        }
        for container in spec.prepare.iter().chain([&spec.upgrade]) {
            if let Ok(image) = image::tagged(&container.image, version)
                && !image.contains('@')
                && !self.wanted.contains(&image)
            {
                self.wanted.push(image);
            }
        }
    }

    /// Looks again at what is known at the hash that the Plan has now. What is stored counts before what was told since.
    pub(super) fn settle(&mut self, status: &PlanStatus, resolved: Option<&Resolved>) {
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
        let told = (self.read.0.as_ref() == hash).then_some(&self.read.1);
        self.is_stored = self
            .wanted
            .iter()
            .all(|image| stored.contains_key(image.as_str()));
        self.known.clear();
        for image in &self.wanted {
            let digest = stored.get(image.as_str()).copied();
            let digest = digest.or_else(|| told?.get(image).map(String::as_str));
            if let Some(digest) = digest {
                self.known.insert(image.clone(), digest.to_owned());
            }
        }
    }

    /// An answer for the hash that the Plan has now.
    pub(super) fn read(&mut self, hash: &str, image: String, digest: String) {
        if self.read.0.as_deref() != Some(hash) {
            self.read = (Some(hash.into()), BTreeMap::new());
        }
        self.read.1.insert(image, digest);
    }

    /// Images of which nobody has said yet what their tag stands for.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &String> {
        self.wanted
            .iter()
            .filter(|image| !self.known.contains_key(*image))
    }

    /// All is known, and stored status says so.
    pub(super) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// As status shows it.
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
