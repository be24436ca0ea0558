//! The interface between the commands on a node and the controller: the sentinel file of a finished upgrade, its report
//! in the termination message of `refit sentinel`, and the errors of `refit reboot`.
//!
//! The two sides may have different versions, so unknown fields are ignored. Anything else that cannot be parsed is an
//! error, because refit does not guess at evidence.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::reason::Reason;

/// Folder of the sentinel files on the host. `/run` is usually a tmpfs, so they do not outlive their boot.
pub const SENTINEL_DIR: &str = "/run/refit";

/// Text before the boot ID in the message that no sentinel was found.
pub const IN_BOOT: &str = "in boot ";

/// Maximum length of a file name on Linux, in bytes.
const MAX_NAME_LEN: usize = 255;

/// Name of a sentinel file: UID of the Plan, UID of the node and hash, separated by dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SentinelName(String);

/// An invalid name of a sentinel file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be <plan uid>.<node uid>.<hash>, each of letters, digits and '-'")]
pub struct NotASentinelName;

impl SentinelName {
    /// The name for a Plan, a node and a hash.
    ///
    /// # Errors
    /// Fails if one of the three is empty, or has characters that no UID and no hash contains.
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

/// Whether a text is a boot ID of Linux: a UUID in lower case.
pub fn is_boot_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// The report about a successful upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SentinelReport {
    /// The boot in which the upgrade succeeded, as in the Node's `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// Whether the node must reboot.
    pub required: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAReport {
    /// It is not JSON, or a field is missing.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("{0:?} is not a boot ID")]
    BootId(String),
}

impl SentinelReport {
    /// Parses a termination message or a sentinel file.
    ///
    /// # Errors
    /// Fails if it is malformed.
    pub fn parse(text: &str) -> Result<Self, NotAReport> {
        let report: Self =
            serde_json::from_str(text).map_err(|error| NotAReport::Unreadable(error.to_string()))?;
        if is_boot_id(&report.boot_id) {
            Ok(report)
        } else {
            Err(NotAReport::BootId(report.boot_id))
        }
    }

    /// The text of the termination message and of the sentinel file.
    pub fn to_text(&self) -> String {
        // Cannot fail: it contains only a string and a bool.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why `refit reboot` failed. Its termination message is the reason, a colon and a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootFault {
    /// The node has no sentinel of this boot, so nothing proves that the upgrade succeeded in it.
    SentinelMissing,
    /// None of the programs is on the host.
    CommandMissing,
    CommandFailed,
    /// A file on the host could not be read.
    HostUnreadable,
}

impl RebootFault {
    pub const ALL: [Self; 4] = [
        Self::SentinelMissing,
        Self::CommandMissing,
        Self::CommandFailed,
        Self::HostUnreadable,
    ];

    pub const fn reason(self) -> Reason {
        match self {
            Self::SentinelMissing => Reason::SentinelMissing,
            Self::CommandMissing => Reason::CommandMissing,
            Self::CommandFailed => Reason::CommandFailed,
            Self::HostUnreadable => Reason::HostUnreadable,
        }
    }

    /// Whether a retry in this boot cannot help.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::SentinelMissing)
    }

    /// Parses a termination message into the fault and its sentence.
    pub fn parse(message: &str) -> Option<(Self, &str)> {
        let (reason, sentence) = message.trim().split_once(": ")?;
        let fault = Self::ALL
            .into_iter()
            .find(|fault| fault.reason().name() == reason)?;
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
