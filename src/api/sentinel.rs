//! What the node side says of a node's boots, and how the controller reads it: the sentinel file of a finished upgrade, its
//! report in the termination message of `refit sentinel`, and why `refit reboot` failed.
//!
//! Both sides share these types, and either may be of another version than the other: fields that are not known are passed
//! over. What cannot be understood is refused: evidence is not guessed at.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Folder of the sentinel files on the host. `/run` is a tmpfs: they do not outlive the boot that they tell of.
pub const SENTINEL_DIR: &str = "/run/refit";

/// What comes before the boot in which nothing was found, in the sentence that says so.
pub const IN_BOOT: &str = "in boot ";

/// Longest name of a file on Linux, in bytes.
const MAX_NAME_LEN: usize = 255;

/// Name of a sentinel file: UID of the Plan, UID of the node and hash, with dots between.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SentinelName(String);

/// A name that no sentinel file has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be <plan uid>.<node uid>.<hash>, each of letters, digits and '-'")]
pub struct NotASentinelName;

impl SentinelName {
    /// The name for a Plan, a node and a hash.
    ///
    /// # Errors
    /// One of the three is empty, or has characters that no UID and no hash has.
    pub fn new(plan_uid: &str, node_uid: &str, hash: &str) -> Result<Self, NotASentinelName> {
        let parts = [plan_uid, node_uid, hash];
        let is_part = |part: &&str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let name = parts.join(".");
        if parts.iter().all(is_part) && name.len() <= MAX_NAME_LEN {
            Ok(Self(name))
        } else {
            Err(NotASentinelName)
        }
    }

    /// The name of the file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SentinelName {
    type Err = NotASentinelName;

    fn from_str(text: &str) -> Result<Self, NotASentinelName> {
        match text.split('.').collect::<Vec<_>>()[..] {
            [plan_uid, node_uid, hash] => Self::new(plan_uid, node_uid, hash),
            _ => Err(NotASentinelName),
        }
    }
}

impl fmt::Display for SentinelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text is a boot ID as Linux makes them: a UUID in lower case.
pub fn is_boot_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// What was found on the node when its upgrade had succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SentinelReport {
    /// The boot under which the upgrade succeeded, as in the Node's `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// Whether the node has to reboot.
    pub required: bool,
}

/// A text that is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAReport {
    /// It is no JSON, or lacks something.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It names no boot.
    #[error("{0:?} is no boot ID")]
    BootId(String),
}

impl SentinelReport {
    /// The report in a termination message or in a sentinel file.
    ///
    /// # Errors
    /// What it is not.
    pub fn parse(text: &str) -> Result<Self, NotAReport> {
        let report: Self =
            serde_json::from_str(text).map_err(|error| NotAReport::Unreadable(error.to_string()))?;
        if is_boot_id(&report.boot_id) {
            Ok(report)
        } else {
            Err(NotAReport::BootId(report.boot_id))
        }
    }

    /// The termination message, and the content of the sentinel file.
    pub fn to_text(&self) -> String {
        // Text and bool: there is nothing in it that JSON cannot hold.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why `refit reboot` did not get its node to reboot. Its termination message is the reason, a colon and a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootFault {
    /// There is no sentinel of this boot on the node: nothing proves that the upgrade succeeded in it.
    SentinelMissing,
    /// No program of the commands is on the host.
    CommandMissing,
    /// All commands failed.
    CommandFailed,
    /// The host could not be looked at.
    HostUnreadable,
}

impl RebootFault {
    /// Every fault there is.
    pub const ALL: [Self; 4] = [
        Self::SentinelMissing,
        Self::CommandMissing,
        Self::CommandFailed,
        Self::HostUnreadable,
    ];

    /// One word for it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::SentinelMissing => "SentinelMissing",
            Self::CommandMissing => "CommandMissing",
            Self::CommandFailed => "CommandFailed",
            Self::HostUnreadable => "HostUnreadable",
        }
    }

    /// Trying again in this boot cannot help.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::SentinelMissing)
    }

    /// The fault in a termination message, and the sentence about it.
    pub fn parse(message: &str) -> Option<(Self, &str)> {
        let (reason, sentence) = message.trim().split_once(": ")?;
        let fault = Self::ALL.into_iter().find(|fault| fault.reason() == reason)?;
        Some((fault, sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "0b7f5d3c-5f0e-4a57-9d8c-1f5f5a6b7c8d";
    const NODE: &str = "1c8a6e4d-6a1f-4b68-8e9d-2a6a6b7c8d9e";
    const HASH: &str = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";
    const BOOT: &str = "5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d";

    #[test]
    fn a_sentinel_is_named_after_plan_node_and_hash() {
        let name = SentinelName::new(PLAN, NODE, HASH).unwrap();
        assert_eq!(name.as_str(), format!("{PLAN}.{NODE}.{HASH}"));
        assert_eq!(name.as_str().parse(), Ok(name));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        for name in [
            "", "a", "a.b", "a.b.c.d", "a..c", "../b.c", "a.b/c.d", ".a.b", "a.b.", "a b.c.d", "é.b.c",
            "a.b.c\n",
        ] {
            assert_eq!(name.parse::<SentinelName>(), Err(NotASentinelName), "{name:?}");
        }
        assert!(SentinelName::new(&"p".repeat(200), &"n".repeat(60), "h").is_err());
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = SentinelReport {
            boot_id: BOOT.to_owned(),
            required: true,
        };
        assert_eq!(
            report.to_text(),
            format!(r#"{{"bootId":"{BOOT}","required":true}}"#)
        );
        assert_eq!(SentinelReport::parse(&report.to_text()), Ok(report.clone()));
        let later = format!(r#"{{"required":true,"bootId":"{BOOT}","files":["/run/reboot-required"]}}"#);
        assert_eq!(SentinelReport::parse(&format!("{later}\n")), Ok(report));
    }

    #[test]
    fn garbage_is_no_report() {
        for text in [
            "",
            "upgraded",
            "{}",
            "null",
            r#"{"bootId":"5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d"}"#,
            r#"{"bootId":"5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d","required":"true"}"#,
            r#"{"bootId":"5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6d","required":true}x"#,
            r#"{"bootId":"","required":true}"#,
            r#"{"bootId":"5E1B0D4E-0A9A-4A52-B7A3-0D2F3A4B5C6D","required":true}"#,
            r#"{"bootId":"5e1b0d4e-0a9a-4a52-b7a3-0d2f3a4b5c6","required":true}"#,
            r#"{"bootId":"5e1b0d4e00a9a-4a52-b7a3-0d2f3a4b5c6d","required":true}"#,
        ] {
            assert!(SentinelReport::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_fault_is_read_out_of_its_message() {
        for fault in RebootFault::ALL {
            let message = format!("{}: what: happened\n", fault.reason());
            assert_eq!(RebootFault::parse(&message), Some((fault, "what: happened")));
        }
        for message in ["", "SentinelMissing", "Gone: x", "error: SentinelMissing: x"] {
            assert_eq!(RebootFault::parse(message), None, "{message:?}");
        }
    }
}
