//! Images, and the version that is to be their tag.

use super::jobs::containers;
use super::subject::Subject;
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::reference::Reference;
use crate::gitops::rule::Rule;
use refit_api::names::ENV_PLAN_LATEST_VERSION;
use refit_api::{ContainerSpec, PlanSpec};
use refit_base::version::tag::{check, is_semver, munge};
use refit_base::version::{Range, Version, distribution_of};

/// Tags that name different versions over time.
const MOVING_TAGS: [&str; 8] = [
    "latest", "stable", "testing", "edge", "nightly", "main", "master", "dev",
];
/// What to do with a range in the place of a version. Only a channel has versions to choose from.
pub(super) const RANGE_HINT: &str =
    "move the range to spec.versionPolicy.range, and replace the version by a channel";

impl Subject<'_> {
    pub(super) fn check_images(&mut self, spec: &PlanSpec) {
        self.check_version_word(spec);
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (version, channel) = (given(&spec.version), given(&spec.channel));
        let is_refused = |field, read: &Option<String>| self.is_refused(field, read.as_ref());
        if is_refused("spec.version", &spec.version) || is_refused("spec.channel", &spec.channel) {
            return;
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
            let name = reference.name;
            let own = reference.tag.unwrap_or_default();
            let follows = follows_version(of, &reference);
            let found = match (&version, &channel) {
                (None, None) if reference.is_name_only => (
                    format!(
                        "{field} is {:?} without a tag, and the Plan has no version to use as the tag",
                        of.image
                    ),
                    "give the Plan a version or a channel, or give the image a tag".to_owned(),
                ),
                (None, Some(_)) if !reference.is_name_only && follows => (
                    format!(
                        "{field} is {:?}, so a new version from spec.channel does not change what runs",
                        of.image
                    ),
                    version_becomes_tag(name),
                ),
                (Some(version), _) => {
                    let tag = munge(version);
                    if own == tag || reference.is_name_only {
                        continue;
                    }
                    // Of other images the tag is often no version of what they upgrade.
                    let is_upgrade = name.ends_with("-upgrade");
                    let is_moving = MOVING_TAGS.contains(&own) && is_upgrade && !of.image.contains('@');
                    if is_semver(own) && is_semver(&tag) && follows || is_moving {
                        (
                            format!(
                                "{field} has the tag {own:?}, so spec.version {version:?} does not choose what runs"
                            ),
                            version_becomes_tag(name),
                        )
                    } else if reference.tag.is_none() && is_upgrade {
                        (
                            format!(
                                "{field} has a digest and no tag, so spec.version does not choose what runs"
                            ),
                            format!("if it is the digest of that version, write `{name}:{tag}` before it"),
                        )
                    } else {
                        continue;
                    }
                }
                _ => continue,
            };
            self.report(Rule::ImageTag, &field, found.0, Some(found.1));
        }
    }

    /// Reports a version that means another one over time.
    fn check_version_word(&mut self, spec: &PlanSpec) {
        const FIELD: &str = "spec.version";
        let Some(version) = &spec.version else { return };
        // An invalid version has been reported by the controller's validation.
        if check(&munge(version)).is_err() {
            return;
        }
        if is_placeholder(version) {
            self.report_placeholder_text(FIELD, version);
        } else if MOVING_TAGS.contains(&version.to_ascii_lowercase().as_str()) {
            let message = format!("{FIELD} is {version:?}, which means another version over time");
            let hint = "pin a version, or follow a channel; a finished node is not upgraded again when the tag moves";
            self.report(Rule::ImageTag, FIELD, message, Some(hint.to_owned()));
        } else if version.parse::<Version>().is_err() && version.parse::<Range>().is_ok() {
            let message = format!("{FIELD} is {version:?}, a range, which becomes a tag as it is");
            let hint = Some(RANGE_HINT.to_owned());
            self.report(Rule::ImageTag, FIELD, message, hint);
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
