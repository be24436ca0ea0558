//! `spec.reboot`, `spec.settle` and `spec.hostAccess`: reboots, the conditions for a node to be done, and the access of
//! Jobs to the host. The doc comments of the fields are what `kubectl explain` prints; the functions here supply the
//! defaults.
//!
//! `validate` checks the values. Nothing here decides about a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_enum::field_enum;
use super::settle::{DaemonSetsSpec, SettleConditionSpec};
use refit_base::go::{DurationError, GoDuration};

/// Files that report a required reboot on Debian, Ubuntu and derivatives.
pub const REQUIRED_FILES: [&str; 2] = ["/run/reboot-required", "/var/run/reboot-required"];

/// Commands that reboot a host, tried in this order: systemd's, then the generic one.
pub const COMMANDS: [&[&str]; 2] = [&["systemctl", "reboot"], &["reboot"]];

/// Default of `reboot.timeout`. Leaves time for the firmware, memory checks and a file system check of a large machine.
pub const REBOOT_TIMEOUT: GoDuration = GoDuration::from_nanos(15 * 60_000_000_000);

/// Default of `settle.timeout`.
pub const SETTLE_TIMEOUT: GoDuration = GoDuration::from_nanos(10 * 60_000_000_000);

/// Default of `settle.minReady` for a node that has rebooted: a node that fails again usually does so within seconds.
pub const MIN_READY_AFTER_REBOOT: GoDuration = GoDuration::from_nanos(10_000_000_000);

/// Whether and how a node reboots after its upgrade.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebootSpec {
    /// Who reboots the node: `Refit`, as `when` says, or `Payload` (the container `upgrade`). With `Payload`, only
    /// `timeout` may be set besides. Defaults to `Refit`.
    ///
    /// `Payload` reboots it after it has ended with success, as `shutdown -r +1` does; the node is done when it is
    /// Ready in another boot than that in which its Job began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<RebootBy>,
    /// `Never`, `Always`, or `IfRequired`: if one of `requiredFiles` exists after the upgrade. Defaults to `Never`,
    /// and with `trigger` to `Always`, the only value there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<RebootWhen>,
    /// Absolute paths on the host. Defaults to `/run/reboot-required` and `/var/run/reboot-required`.
    ///
    /// With `IfRequired`, the node reboots if one of them exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub required_files: Option<Vec<String>>,
    /// Program on the host that reboots it, and its arguments. Defaults to `systemctl reboot`, and `reboot` if that is
    /// missing or fails.
    ///
    /// Run without a shell in the host's mount and process namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub command: Option<Vec<String>>,
    /// Time from the request until the node is Ready with a new boot ID, as a Go duration; after that the node fails.
    /// Defaults to `15m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// Conditions that a node must meet before it is done.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettleSpec {
    /// How long the node must be Ready without interruption, as a Go duration. Defaults to `0s`, or to `10s` after a
    /// reboot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready: Option<String>,
    /// If true, the kubelet must report the Plan's version. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<bool>,
    /// If true, the Node's `osImage`, such as `Talos (v1.11.2)`, must have the Plan's version as a word, with or
    /// without a `v`. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image: Option<bool>,
    /// If true, the controllers of the evicted pods must have as many ready pods as before the drain, or as many as
    /// they want if that is less. Defaults to false.
    ///
    /// The node is schedulable meanwhile, and keeps its slot. Without the permissions of the component
    /// `deploy/overlays/read-workloads`, only ReplicaSets and StatefulSets count, and must have all pods that they
    /// want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<bool>,
    /// Conditions of the Node that must have this status, such as those of the node problem detector.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub conditions: Option<Vec<SettleConditionSpec>>,
    /// Taints that must be gone, each as `key` or `key:Effect`, such as `node.cilium.io/agent-not-ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub taints_gone: Option<Vec<String>>,
    /// Pods of DaemonSets on the node that must be Ready; `{}` means all. Defaults to none.
    ///
    /// The controller must be allowed to list pods, by the component `deploy/overlays/read-workloads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon_sets: Option<DaemonSetsSpec>,
    /// Time limit for all conditions together, as a Go duration such as `10m`. Defaults to `10m`.
    ///
    /// After that the node fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

field_enum! {
    /// Who reboots a node.
    #[derive(Default)]
    RebootBy {
        /// refit, by a pod of its own.
        #[default]
        Refit,
        /// The container of the user.
        Payload,
    }
}

field_enum! {
    /// When a node reboots.
    #[derive(Default)]
    RebootWhen {
        /// It does not reboot.
        #[default]
        Never,
        /// It reboots after every upgrade.
        Always,
        /// It reboots if one of `requiredFiles` exists on the host.
        IfRequired,
    }
}

field_enum! {
    /// How much of the host the pods of a Job can access.
    #[derive(Default)]
    HostAccess {
        /// Root file system and namespaces, as under system-upgrade-controller.
        #[default]
        Full,
        /// The root file system, but no namespaces.
        Root,
        /// Only what the Plan names.
        None,
    }
}

impl RebootSpec {
    pub fn when(&self) -> RebootWhen {
        self.when.unwrap_or_default()
    }

    /// Files that require a reboot if any of them exists.
    pub fn required_files(&self) -> Vec<&str> {
        match &self.required_files {
            Some(files) => files.iter().map(String::as_str).collect(),
            None => REQUIRED_FILES.to_vec(),
        }
    }

    /// Commands that reboot the host, tried in order. None is empty.
    pub fn commands(&self) -> Vec<Vec<&str>> {
        match &self.command {
            Some(command) => vec![command.iter().map(String::as_str).collect()],
            None => COMMANDS.map(<[&str]>::to_vec).into(),
        }
    }

    /// Time from the request until the node is Ready with a new boot ID.
    ///
    /// # Errors
    /// Fails if it is not a duration; `validate` has reported it.
    pub fn timeout(&self) -> Result<GoDuration, DurationError> {
        read(self.timeout.as_deref(), REBOOT_TIMEOUT)
    }
}

impl SettleSpec {
    /// How long the node must have been Ready.
    ///
    /// # Errors
    /// Fails if it is not a duration; `validate` has reported it.
    pub fn min_ready(&self, after_reboot: bool) -> Result<GoDuration, DurationError> {
        let absent = if after_reboot {
            MIN_READY_AFTER_REBOOT
        } else {
            GoDuration::ZERO
        };
        read(self.min_ready.as_deref(), absent)
    }

    /// Whether the kubelet must report the Plan's version.
    pub fn waits_for_kubelet_version(&self) -> bool {
        self.kubelet_version.unwrap_or_default()
    }

    /// Whether the Node's `osImage` must have the Plan's version.
    pub fn waits_for_os_image(&self) -> bool {
        self.os_image.unwrap_or_default()
    }

    /// Whether the controllers of evicted pods must be available again.
    pub fn waits_for_workloads(&self) -> bool {
        self.workloads.unwrap_or_default()
    }

    /// Time limit of settling.
    ///
    /// # Errors
    /// Fails if it is not a duration; `validate` has reported it.
    pub fn timeout(&self) -> Result<GoDuration, DurationError> {
        read(self.timeout.as_deref(), SETTLE_TIMEOUT)
    }
}

fn read(text: Option<&str>, absent: GoDuration) -> Result<GoDuration, DurationError> {
    text.map_or(Ok(absent), str::parse)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::PlanSpec;

    fn reboot(spec: serde_json::Value) -> RebootSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn an_absent_reboot_field_has_its_default() {
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
        assert!(!settle.waits_for_kubelet_version() && !settle.waits_for_workloads());
    }

    #[test]
    fn a_written_reboot_field_replaces_its_default() {
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
        assert!(settle.waits_for_workloads());
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
