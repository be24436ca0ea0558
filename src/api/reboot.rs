//! `spec.reboot`, `spec.settle` and `spec.hostAccess`: what a Plan asks of its nodes beyond the end of their Jobs. The doc
//! comments of the fields are what `kubectl explain` prints; what is absent is filled in by the functions here.
//!
//! Whether the values make sense is asked by `validate`; nothing here decides about a node.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::PlanSpec;
use super::duration::{DurationError, GoDuration};

/// Files that say, on Debian, Ubuntu and their like, that a reboot is required.
pub const REQUIRED_FILES: [&str; 2] = ["/run/reboot-required", "/var/run/reboot-required"];

/// What reboots a host: systemd's own way, then that of all others. The first one that works is enough.
pub const COMMANDS: [&[&str]; 2] = [&["systemctl", "reboot"], &["reboot"]];

/// `reboot.timeout` where it is absent: firmware, memory checks and a file system check of a large machine.
pub const REBOOT_TIMEOUT: GoDuration = GoDuration::from_nanos(15 * 60_000_000_000);

/// `settle.timeout` where it is absent.
pub const SETTLE_TIMEOUT: GoDuration = GoDuration::from_nanos(10 * 60_000_000_000);

/// `settle.minReady` where it is absent and the node has rebooted: one that falls over again does so soon.
pub const MIN_READY_AFTER_REBOOT: GoDuration = GoDuration::from_nanos(10_000_000_000);

/// Whether and how a node reboots after its upgrade.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebootSpec {
    /// `Never`, `Always`, or `IfRequired`: when one of `requiredFiles` is on the host after the upgrade. Absent means `Never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<RebootWhen>,
    /// Absolute paths on the host. With `IfRequired`, one that is there asks for the reboot. Absent means
    /// `/run/reboot-required` and `/var/run/reboot-required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub required_files: Option<Vec<String>>,
    /// Program on the host, by its name or absolute path, and its arguments, which reboot it. It runs in the host's mount and
    /// process namespaces, without a shell. Absent means `systemctl reboot`, and `reboot` where that is missing or fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub command: Option<Vec<String>>,
    /// How long the node may take from the request to Ready with a new boot ID, as a Go duration such as `15m`. Then it
    /// has failed. Absent means `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// When a node counts as done.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettleSpec {
    /// How long the node must have been Ready without a break, as a Go duration such as `30s`. Absent means `0s`, and `10s`
    /// after a reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready: Option<String>,
    /// The node's kubelet must be of the Plan's version. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<bool>,
    /// The controllers of the pods that were evicted must have as many ready pods again as they want. The node is
    /// schedulable meanwhile, and keeps its slot. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<bool>,
    /// How long all that may take, as a Go duration such as `10m`. Then the node has failed. Absent means `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// Whether a node reboots.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebootWhen {
    /// It does not.
    #[default]
    Never,
    /// It does.
    Always,
    /// It does when a file on the host says so.
    IfRequired,
}

impl RebootWhen {
    /// Every word there is, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Never, Self::Always, Self::IfRequired];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::Always => "Always",
            Self::IfRequired => "IfRequired",
        }
    }
}

/// What the pods of a Job get of the host.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostAccess {
    /// All, as with system-upgrade-controller.
    #[default]
    Full,
    /// The root file system, and no namespaces.
    Root,
    /// Nothing that the Plan does not name.
    None,
}

impl HostAccess {
    /// Every word there is, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Full, Self::Root, Self::None];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "Full",
            Self::Root => "Root",
            Self::None => "None",
        }
    }
}

/// A word out of a few. The derive would describe each, in a form that structural schemas do not have.
fn one_of(words: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": words })
}

impl JsonSchema for RebootWhen {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "RebootWhen".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        one_of(&Self::ALL.map(Self::as_str))
    }
}

impl JsonSchema for HostAccess {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "HostAccess".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        one_of(&Self::ALL.map(Self::as_str))
    }
}

impl RebootSpec {
    /// A reboot that says nothing.
    const SILENT: Self = Self {
        when: None,
        required_files: None,
        command: None,
        timeout: None,
    };

    /// Whether the node reboots.
    pub fn when(&self) -> RebootWhen {
        self.when.unwrap_or_default()
    }

    /// Files of which one asks for the reboot.
    pub fn required_files(&self) -> Vec<&str> {
        match &self.required_files {
            Some(files) => files.iter().map(String::as_str).collect(),
            None => REQUIRED_FILES.to_vec(),
        }
    }

    /// Commands that reboot the host, the next one for when one is missing or fails. Each has a program.
    pub fn commands(&self) -> Vec<Vec<&str>> {
        match &self.command {
            Some(command) => vec![command.iter().map(String::as_str).collect()],
            None => COMMANDS.map(<[&str]>::to_vec).into(),
        }
    }

    /// From the request to Ready with a new boot ID.
    ///
    /// # Errors
    /// It is no duration; `validate` has said so.
    pub fn timeout(&self) -> Result<GoDuration, DurationError> {
        read(self.timeout.as_deref(), REBOOT_TIMEOUT)
    }
}

impl SettleSpec {
    /// A Plan that asks for nothing.
    const SILENT: Self = Self {
        min_ready: None,
        kubelet_version: None,
        workloads: None,
        timeout: None,
    };

    /// How long the node must have been Ready.
    ///
    /// # Errors
    /// It is no duration; `validate` has said so.
    pub fn min_ready(&self, after_reboot: bool) -> Result<GoDuration, DurationError> {
        let absent = if after_reboot {
            MIN_READY_AFTER_REBOOT
        } else {
            GoDuration::ZERO
        };
        read(self.min_ready.as_deref(), absent)
    }

    /// Whether the kubelet must be of the Plan's version.
    pub fn kubelet_version(&self) -> bool {
        self.kubelet_version.unwrap_or_default()
    }

    /// Whether the controllers of evicted pods must be whole again.
    pub fn workloads(&self) -> bool {
        self.workloads.unwrap_or_default()
    }

    /// How long all that may take.
    ///
    /// # Errors
    /// It is no duration; `validate` has said so.
    pub fn timeout(&self) -> Result<GoDuration, DurationError> {
        read(self.timeout.as_deref(), SETTLE_TIMEOUT)
    }
}

impl PlanSpec {
    /// `spec.reboot`, or what its absence means.
    pub fn reboot_or_default(&self) -> &RebootSpec {
        const SILENT: &RebootSpec = &RebootSpec::SILENT;
        self.reboot.as_ref().unwrap_or(SILENT)
    }

    /// `spec.settle`, or what its absence means.
    pub fn settle_or_default(&self) -> &SettleSpec {
        const SILENT: &SettleSpec = &SettleSpec::SILENT;
        self.settle.as_ref().unwrap_or(SILENT)
    }

    /// `spec.hostAccess`, or what its absence means.
    pub fn host_access(&self) -> HostAccess {
        self.host_access.unwrap_or_default()
    }

    /// Whether a node may have to reboot for the Plan: its Job has a sentinel then.
    pub fn may_reboot(&self) -> bool {
        self.reboot_or_default().when() != RebootWhen::Never
    }
}

fn read(text: Option<&str>, absent: GoDuration) -> Result<GoDuration, DurationError> {
    text.map_or(Ok(absent), str::parse)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reboot(spec: serde_json::Value) -> RebootSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn what_is_absent_has_a_meaning() {
        let spec = PlanSpec::default();
        assert!(!spec.may_reboot());
        assert_eq!(spec.host_access(), HostAccess::Full);
        let silent = spec.reboot_or_default();
        assert_eq!(silent.when(), RebootWhen::Never);
        assert_eq!(silent.timeout().unwrap().to_string(), "15m0s");
        assert_eq!(
            silent.required_files(),
            ["/run/reboot-required", "/var/run/reboot-required"]
        );
        assert_eq!(silent.commands(), [vec!["systemctl", "reboot"], vec!["reboot"]]);
        let settle = spec.settle_or_default();
        assert_eq!(settle.timeout().unwrap().to_string(), "10m0s");
        assert_eq!(settle.min_ready(false).unwrap(), GoDuration::ZERO);
        assert_eq!(settle.min_ready(true).unwrap().to_string(), "10s");
        assert!(!settle.kubelet_version() && !settle.workloads());
    }

    #[test]
    fn what_is_written_counts_alone() {
        let spec = reboot(json!({
            "when": "IfRequired", "requiredFiles": ["/etc/again"], "command": ["/sbin/shutdown", "-r", "now"], "timeout": "1h"
        }));
        assert_eq!(spec.when(), RebootWhen::IfRequired);
        assert_eq!(spec.required_files(), ["/etc/again"]);
        assert_eq!(spec.commands(), [["/sbin/shutdown", "-r", "now"]]);
        assert_eq!(spec.timeout().unwrap().to_string(), "1h0m0s");
        let settle: SettleSpec =
            serde_json::from_value(json!({"minReady": "0s", "workloads": true})).unwrap();
        assert_eq!(
            settle.min_ready(true).unwrap(),
            GoDuration::ZERO,
            "zero is not absent"
        );
        assert!(settle.workloads());
    }

    #[test]
    fn a_reboot_that_does_not_say_when_is_none() {
        let spec: PlanSpec = serde_json::from_value(json!({"reboot": {"command": ["reboot"]}})).unwrap();
        assert!(!spec.may_reboot());
        let spec: PlanSpec = serde_json::from_value(json!({"reboot": {"when": "Always"}})).unwrap();
        assert!(spec.may_reboot());
    }

    #[test]
    fn words_are_read_as_they_are_listed() {
        for when in RebootWhen::ALL {
            assert_eq!(json!(when), json!(when.as_str()));
        }
        for access in HostAccess::ALL {
            assert_eq!(json!(access), json!(access.as_str()));
        }
        assert!(serde_json::from_value::<RebootSpec>(json!({"when": "sometimes"})).is_err());
        assert!(serde_json::from_value::<HostAccess>(json!("full")).is_err());
    }
}
