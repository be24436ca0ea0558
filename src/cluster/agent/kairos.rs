//! Labels and annotations of Kairos hosts (`kairos.io/*`), with the keys and values of kairos-operator's node labeler. Pure.

use std::collections::BTreeMap;

use super::metadata::{Change, Metadata};
use refit_api::text::{MAX_MESSAGE, shorten};

const PREFIX: &str = "kairos.io/";

/// Labels of variables in `/etc/kairos-release`: `flavor-release` has the value of `KAIROS_FLAVOR_RELEASE`.
const LABELS: [&str; 12] = [
    "id",
    "family",
    "flavor",
    "flavor-release",
    "variant",
    "release",
    "model",
    "arch",
    "trusted-boot",
    "fips",
    "software-version-prefix",
    "software-version",
];
/// Annotations of such variables.
const ANNOTATIONS: [&str; 6] = [
    "name",
    "id-like",
    "init-version",
    "version",
    "bug-report-url",
    "home-url",
];
/// Label of each Kairos host. A user sets it to `false` to keep labelers off a node.
const MANAGED: &str = "managed";
const BOOT_STATE: &str = "boot-state";

/// Maximum length of a label's value.
const MAX_LABEL: usize = 63;

/// Parts of the kernel's command line and the boot states that they mean. The first that is found counts.
const BOOT_STATES: [(&str, &str); 8] = [
    ("COS_ACTIVE", "active"),
    ("COS_PASSIVE", "passive"),
    ("COS_RECOVERY", "recovery"),
    ("COS_SYSTEM", "recovery"),
    ("recovery-mode", "recovery"),
    ("live:LABEL", "livecd"),
    ("live:CDLABEL", "livecd"),
    ("netboot", "livecd"),
];

/// What the host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    /// Kairos, with what its Node is to have of the keys of this module.
    Kairos(Metadata),
    Other,
}

impl Distribution {
    /// By `/etc/kairos-release` and `/etc/os-release`, each `None` if it does not exist, and the kernel's command line.
    pub(super) fn of(kairos_release: Option<&str>, os_release: Option<&str>, command_line: &str) -> Self {
        // Older versions of Kairos have no file of their own, so of such a host only these two labels are known.
        if kairos_release.is_none() && !os_release.is_some_and(is_kairos) {
            return Self::Other;
        }
        let release = variables(kairos_release.unwrap_or_default());
        let value = |name: &str| {
            let variable = format!("KAIROS_{}", name.to_uppercase().replace('-', "_"));
            release
                .get(variable.as_str())
                .copied()
                .filter(|value| !value.is_empty())
        };
        let label = |name: &&str| Some((key(name), label_value(value(name)?)));
        let of_host = [
            (key(MANAGED), "true".to_owned()),
            (key(BOOT_STATE), boot_state(command_line).to_owned()),
        ];
        let annotation = |name: &&str| Some((key(name), annotation_value(value(name)?)));
        Self::Kairos(Metadata {
            labels: LABELS.iter().filter_map(label).chain(of_host).collect(),
            annotations: ANNOTATIONS.iter().filter_map(annotation).collect(),
        })
    }
}

/// What changes on the Node. Other keys under `kairos.io/` are a user's, and stay.
pub(super) fn change(host: &Distribution, node: &Metadata) -> Change {
    let nothing = Metadata::default();
    let managed = node.labels.get(&key(MANAGED)).map(String::as_str);
    let wanted = match (host, managed) {
        (_, Some("false")) => return Change::default(),
        (Distribution::Kairos(wanted), _) => wanted,
        // No labeler writes the other keys without this one, so without it they are a user's.
        (Distribution::Other, Some("true")) => &nothing,
        (Distribution::Other, _) => return Change::default(),
    };
    Change {
        labels: differences(label_keys(), &wanted.labels, &node.labels),
        annotations: differences(annotation_keys(), &wanted.annotations, &node.annotations),
    }
}

pub(super) fn label_keys() -> impl Iterator<Item = String> {
    LABELS.into_iter().chain([MANAGED, BOOT_STATE]).map(key)
}

pub(super) fn annotation_keys() -> impl Iterator<Item = String> {
    ANNOTATIONS.into_iter().map(key)
}

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn differences(
    keys: impl Iterator<Item = String>,
    wanted: &BTreeMap<String, String>,
    present: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    keys.filter(|key| wanted.get(key) != present.get(key))
        .map(|key| {
            let value = wanted.get(&key).cloned();
            (key, value)
        })
        .collect()
}

fn is_kairos(os_release: &str) -> bool {
    let id = variables(os_release).remove("ID");
    id.is_some_and(|id| id.to_lowercase().contains("kairos"))
}

/// Lines such as `NAME=value` or `NAME="value"`, without comments. Of several with one name the last counts.
fn variables(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name, value.trim_matches(['"', '\''])))
        .collect()
}

fn boot_state(command_line: &str) -> &'static str {
    let found = BOOT_STATES.iter().find(|(part, _)| command_line.contains(part));
    found.map_or("unknown", |(_, state)| state)
}

fn label_value(text: &str) -> String {
    const ENDS: [char; 3] = ['-', '_', '.'];
    let is_valid = |character: char| character.is_ascii_alphanumeric() || ENDS.contains(&character);
    let value = text.replace(|character| !is_valid(character), "-");
    let value = value.trim_matches(ENDS);
    // The part that is left may end with one of them again.
    let value = value
        .get(..MAX_LABEL)
        .map_or(value, |part| part.trim_matches(ENDS));
    value.to_owned()
}

/// The API server admits any text. A terminal that shows it should get no control characters.
fn annotation_value(text: &str) -> String {
    shorten(&text.replace(char::is_control, "-"), MAX_MESSAGE).into_owned()
}

#[cfg(test)]
mod tests;
