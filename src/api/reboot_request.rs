//! Requests of nodes to be rebooted: the annotation `refit.rs/reboot-needed`, which `refit agent` writes to its own
//! Node, and the annotation of the update operators of Flatcar and `CoreOS`.
//!
//! A kubelet can write them too, but only to its own Node (`NodeRestriction`), so a node can request no reboot but its own.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::names;
use super::text::{MAX_NAME, shorten, shorten_in_place};
use refit_base::names::shortened;

/// Maximum length of the annotation, in bytes.
const MAX_ANNOTATION: usize = 16 * 1024;
/// Maximum number of reasons, and of packages, that are kept.
pub const MAX_ENTRIES: usize = 32;
/// Maximum number of entries that a message names.
const NAMED: usize = 3;

/// Prefixes of the annotations of the update operators: Flatcar's, and its predecessor's.
const UPDATE_OPERATORS: [&str; 2] = [
    "flatcar-linux-update.v1.flatcar-linux.net/",
    "container-linux-update.v1.coreos.com/",
];

/// What a node says about the reboot that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebootRequest {
    /// The boot in which the node needs it. In any other boot the request is void. Absent in the annotations of update
    /// operators, whose agents withdraw their request after the reboot.
    #[serde(rename = "bootID", skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Since when the node needs it, by its clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What says so: paths of files, commands, or `com.coreos.update1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Packages that need it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// How many reboots have not changed that, for the same reasons.
    #[serde(default, skip_serializing_if = "refit_base::is_zero")]
    pub survived: u32,
}

impl RebootRequest {
    /// The request of a node, by its annotations.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let own = annotations.get(names::ANNOTATION_REBOOT_NEEDED);
        own.and_then(|text| Self::parse(text)).or_else(|| {
            UPDATE_OPERATORS
                .iter()
                .find_map(|prefix| Self::of_update_operator(annotations, prefix))
        })
    }

    /// Parses the annotation of the agent, and shortens its texts; `None` if it is invalid, too long or names no boot.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ANNOTATION {
            return None;
        }
        let mut request: Self = serde_json::from_str(text).ok()?;
        request.truncate();
        // An empty boot ID would be that of every node whose kubelet reports none.
        request
            .boot_id
            .as_deref()
            .is_some_and(|boot| !boot.is_empty())
            .then_some(request)
    }

    fn of_update_operator(annotations: &BTreeMap<String, String>, prefix: &str) -> Option<Self> {
        let is_set = |name: &str| {
            annotations
                .get(&format!("{prefix}{name}"))
                .is_some_and(|value| value == "true")
        };
        (is_set("reboot-needed") && !is_set("reboot-paused")).then(|| {
            let version = annotations
                .get(&format!("{prefix}new-version"))
                .filter(|version| !version.is_empty());
            let packages = version.map(|version| shorten(version, MAX_NAME).into_owned());
            Self {
                reasons: vec![format!("{prefix}reboot-needed")],
                packages: packages.into_iter().collect(),
                ..Self::default()
            }
        })
    }

    /// Limits the number of entries, and their lengths.
    pub fn truncate(&mut self) {
        for entries in [&mut self.reasons, &mut self.packages] {
            entries.truncate(MAX_ENTRIES);
            for entry in entries.iter_mut() {
                shorten_in_place(entry, MAX_NAME);
            }
        }
        self.boot_id
            .iter_mut()
            .for_each(|boot| shorten_in_place(boot, MAX_NAME));
    }

    /// The value of the annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the node, in this boot, needs a reboot.
    pub fn is_for(&self, boot_id: &str) -> bool {
        self.boot_id.as_deref().is_none_or(|boot| boot == boot_id)
    }
}

impl fmt::Display for RebootRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortened(&self.reasons, NAMED))?;
        if self.packages.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", shortened(&self.packages, NAMED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect()
    }

    fn request() -> RebootRequest {
        RebootRequest {
            boot_id: Some("b1".to_owned()),
            since: Some("2026-01-01T09:00:00Z".parse().unwrap()),
            reasons: vec!["/run/reboot-required".to_owned()],
            packages: ["linux-image-6.1", "libc6", "dbus", "libssl3"]
                .map(str::to_owned)
                .into(),
            survived: 0,
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let text = request().to_text();
        assert_eq!(
            text,
            r#"{"bootID":"b1","since":"2026-01-01T09:00:00Z","reasons":["/run/reboot-required"],"packages":["linux-image-6.1","libc6","dbus","libssl3"]}"#
        );
        assert_eq!(RebootRequest::parse(&text), Some(request()));
        let of_node = annotations(&[(names::ANNOTATION_REBOOT_NEEDED, &text)]);
        assert_eq!(RebootRequest::of(&of_node), Some(request()));
        assert_eq!(
            request().to_string(),
            "/run/reboot-required: linux-image-6.1, libc6, dbus and 1 more"
        );
    }

    #[test]
    fn a_request_counts_in_its_boot_only() {
        assert!(request().is_for("b1"));
        assert!(!request().is_for("b2") && !request().is_for(""));
    }

    #[test]
    fn a_request_without_a_boot_or_with_too_much_text_is_none() {
        for text in ["", "true", "{}", r#"{"bootID":""}"#, r#"{"bootID":7}"#] {
            assert_eq!(RebootRequest::parse(text), None, "{text}");
        }
        let long = format!(
            r#"{{"bootID":"b1","reasons":["{}"]}}"#,
            "x".repeat(MAX_ANNOTATION)
        );
        assert_eq!(RebootRequest::parse(&long), None);
        let many = RebootRequest {
            packages: vec!["p".repeat(300); 50],
            ..request()
        };
        let read = RebootRequest::parse(&many.to_text()).unwrap();
        assert_eq!(read.packages.len(), MAX_ENTRIES);
        assert!(read.packages.iter().all(|package| package.len() <= MAX_NAME));
    }

    #[test]
    fn the_requests_of_update_operators_are_read_unless_they_are_paused() {
        for prefix in UPDATE_OPERATORS {
            let needed = format!("{prefix}reboot-needed");
            let version = format!("{prefix}new-version");
            let of_node = annotations(&[(&needed, "true"), (&version, "3510.2.1")]);
            let request = RebootRequest::of(&of_node).unwrap();
            assert_eq!((request.boot_id.as_deref(), request.is_for("any")), (None, true));
            assert_eq!(request.to_string(), format!("{needed}: 3510.2.1"));
            assert_eq!(RebootRequest::of(&annotations(&[(&needed, "false")])), None);
            let paused = format!("{prefix}reboot-paused");
            assert_eq!(
                RebootRequest::of(&annotations(&[(&needed, "true"), (&paused, "true")])),
                None
            );
        }
    }
}
