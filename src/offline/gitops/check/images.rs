//! Images, and the version that is to be their tag.

use super::Subject;
use super::jobs::{ANY_VERSION, containers};
use super::suspicious::MOVING_TAGS;
use crate::gitops::Rule;
use crate::gitops::placeholder::is_placeholder;
use refit_api::names::ENV_PLAN_LATEST_VERSION;
use refit_api::{ContainerSpec, PlanSpec, image};
use refit_base::version::distribution_of;
use refit_base::version::tag::{is_semver, munge};

impl Subject<'_> {
    pub(super) fn check_images(&mut self, spec: &PlanSpec) {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (version, channel) = (given(&spec.version), given(&spec.channel));
        let is_refused = |field: &str, read: &Option<String>| read.is_none() && self.has(field);
        if is_refused("spec.version", &spec.version) || is_refused("spec.channel", &spec.channel) {
            return; // one that was refused for its type
        }
        for (container, of) in containers(spec) {
            let field = format!("spec.{container}.image");
            if is_placeholder(&of.image) {
                if let Some(node) = self.node(&field) {
                    self.report_placeholder(&field, node);
                }
                continue;
            }
            let Some(reference) = Reference::read(&of.image) else {
                continue;
            };
            match (&version, &channel) {
                (None, None) if reference.is_name_only => {
                    let message = format!(
                        "{field} is {:?} without a tag, and the Plan has no version to use as the tag",
                        of.image
                    );
                    let hint = "give the Plan a version or a channel, or give the image a tag".to_owned();
                    self.report(Rule::UntaggedImage, &field, message, Some(hint));
                }
                (None, Some(_)) if !reference.is_name_only && follows_version(of, &reference) => {
                    let message = format!(
                        "{field} is {:?}, so a new version from spec.channel does not change what runs",
                        of.image
                    );
                    let hint = version_becomes_tag(reference.name);
                    self.report(Rule::TagBesideChannel, &field, message, Some(hint));
                }
                (Some(version), _) => {
                    let version = munge(version);
                    let tag = reference.tag.unwrap_or_default();
                    if tag != version
                        && is_semver(tag)
                        && is_semver(&version)
                        && follows_version(of, &reference)
                    {
                        let message = format!("{field} has the tag {tag:?}, but spec.version is {version:?}");
                        let hint = version_becomes_tag(reference.name);
                        self.report(Rule::TagDiffers, &field, message, Some(hint));
                    } else if tag != version
                        && MOVING_TAGS.contains(&tag)
                        // Of other images the tag is often no version of what they upgrade.
                        && reference.name.ends_with("-upgrade")
                        && !of.image.contains('@')
                    {
                        let message =
                            format!("{field} has the tag {tag:?}, so spec.version does not choose what runs");
                        let hint = version_becomes_tag(reference.name);
                        self.report(Rule::MovingTag, &field, message, Some(hint));
                    } else if reference.tag.is_none()
                        && !reference.is_name_only
                        && reference.name.ends_with("-upgrade")
                    {
                        let message = format!(
                            "{field} has a digest and no tag, so spec.version does not choose what runs"
                        );
                        let name = reference.name;
                        let hint = format!(
                            "check that it is the digest of `{name}:{version}`; with this tag before the digest, `refit pin --digest` changes both"
                        );
                        self.report(Rule::MovingTag, &field, message, Some(hint));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether the tag of the image is the version that it installs. Other images are tools with versions of their own,
/// which take the Plan's version as an argument or from the environment.
fn follows_version(of: &ContainerSpec, reference: &Reference<'_>) -> bool {
    let texts = of.command.iter().chain(&of.args).flatten();
    let values = of
        .envs
        .iter()
        .flatten()
        .filter_map(|variable| variable.value.as_ref());
    let is_argument = texts
        .chain(values)
        .any(|text| text.contains(ENV_PLAN_LATEST_VERSION));
    !is_argument && (reference.name.ends_with("-upgrade") || distribution_of(&of.image).is_some())
}

fn version_becomes_tag(name: &str) -> String {
    format!("write `{name}`: refit adds the version as the tag")
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
    /// `None` if the text is not an image.
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
    fn the_tag_of_a_tool_that_takes_the_version_is_its_own() {
        let follows = |image: &str, rest: serde_json::Value| {
            let mut spec = serde_json::json!({ "image": image });
            spec.as_object_mut()
                .unwrap()
                .extend(rest.as_object().unwrap().clone());
            let spec: ContainerSpec = serde_json::from_value(spec).unwrap();
            follows_version(&spec, &Reference::read(image).unwrap())
        };
        let variable = "$(SYSTEM_UPGRADE_PLAN_LATEST_VERSION)";
        for (image, rest, expected) in [
            ("rancher/k3s-upgrade:v1.33.3-k3s1", serde_json::json!({}), true),
            (
                "mirror/rancher-rke2-upgrade:v1.33.3-rke2r1",
                serde_json::json!({}),
                true,
            ),
            ("a/linux-upgrade:1.2.3", serde_json::json!({}), true),
            (
                "a/talos-upgrade:0.4.3",
                serde_json::json!({ "args": [format!("--tag={variable}")] }),
                false,
            ),
            (
                "a/os-upgrade:0.4.3",
                serde_json::json!({ "command": ["sh", "-c", "run ${SYSTEM_UPGRADE_PLAN_LATEST_VERSION#v}"] }),
                false,
            ),
            (
                "a/os-upgrade:0.4.3",
                serde_json::json!({ "envs": [{ "name": "TO", "value": variable }] }),
                false,
            ),
            // It reads the variable, or a script in a Secret does.
            (
                "ghcr.io/siderolabs/talosctl:v1.11.5",
                serde_json::json!({ "args": ["upgrade-k8s"] }),
                false,
            ),
            (
                "bash:5.2.37",
                serde_json::json!({ "command": ["bash", "/run/script"] }),
                false,
            ),
        ] {
            assert_eq!(follows(image, rest), expected, "{image}");
        }
    }

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
