//! `spec.trigger`: what makes a node run a Plan, besides a new version. The doc comments of the values are what the
//! documentation prints.

use super::field_enum::field_enum;
use super::plan::{ContainerSpec, PlanSpec};
use super::reboot::{RebootBy, RebootWhen};

/// The version of a Plan on request that names none. Under system-upgrade-controller such a Plan has no version and runs
/// nowhere.
pub const ON_REQUEST: &str = "on-request";

field_enum! {
    /// What makes a node run a Plan.
    Trigger {
        /// The node says that it must be rebooted.
        RebootNeeded,
    }
}

impl PlanSpec {
    /// Whether the Plan concerns a node only while that node requests it.
    pub fn is_on_request(&self) -> bool {
        self.trigger.is_some()
    }

    /// When the node reboots: `reboot.when`, or its default, which depends on the trigger.
    pub fn reboot_when(&self) -> RebootWhen {
        match &self.reboot {
            Some(reboot) if reboot.when.is_none() && self.is_on_request() => RebootWhen::Always,
            Some(reboot) => reboot.when(),
            None => RebootWhen::Never,
        }
    }

    /// Whether the Plan may reboot a node, by refit or by its payload.
    pub fn may_reboot(&self) -> bool {
        self.has_sentinel() || self.payload_reboots()
    }

    /// Whether refit may reboot a node. The Jobs of the Plan then have a sentinel.
    pub fn has_sentinel(&self) -> bool {
        self.reboot_when() != RebootWhen::Never
    }

    /// Whether the container `upgrade` reboots the node after it has ended.
    pub fn payload_reboots(&self) -> bool {
        let by = self.reboot.as_ref().and_then(|reboot| reboot.by);
        by == Some(RebootBy::Payload)
    }

    /// The container that upgrades the node. Only a Plan with a trigger can do without; in any other it is empty if it is
    /// absent, and so is its image, which is reported.
    pub fn upgrade_container(&self) -> Option<&ContainerSpec> {
        const EMPTY: &ContainerSpec = &ContainerSpec {
            image: String::new(),
            command: None,
            args: None,
            envs: None,
            env_from: None,
            volumes: None,
            security_context: None,
        };
        let absent = (!self.is_on_request()).then_some(EMPTY);
        self.upgrade.as_deref().or(absent)
    }

    /// The image that upgrades the node; empty if there is none.
    pub fn upgrade_image(&self) -> &str {
        self.upgrade.as_ref().map_or("", |upgrade| &upgrade.image)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> PlanSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_plan_on_request_reboots_always_unless_it_says_otherwise() {
        let on_request = spec(json!({"trigger": "RebootNeeded", "reboot": {}}));
        assert_eq!(on_request.reboot_when(), RebootWhen::Always);
        assert!(on_request.may_reboot());
        let never = spec(json!({"trigger": "RebootNeeded", "reboot": {"when": "Never"}}));
        assert!(!never.may_reboot());
        assert!(!spec(json!({"trigger": "RebootNeeded"})).may_reboot());
        assert_eq!(spec(json!({"reboot": {}})).reboot_when(), RebootWhen::Never);
    }

    #[test]
    fn only_a_plan_on_request_can_have_no_upgrade() {
        assert!(
            spec(json!({"trigger": "RebootNeeded"}))
                .upgrade_container()
                .is_none()
        );
        assert_eq!(
            spec(json!({})).upgrade_container(),
            Some(&ContainerSpec::default())
        );
        let both = spec(json!({"trigger": "RebootNeeded", "upgrade": {"image": "i"}}));
        assert_eq!(both.upgrade_container().unwrap().image, "i");
        assert_eq!(
            json!(spec(json!({"trigger": "RebootNeeded"}))),
            json!({"trigger": "RebootNeeded"})
        );
    }

    #[test]
    fn triggers_are_read_as_they_are_listed() {
        for trigger in Trigger::ALL {
            assert_eq!(json!(trigger), json!(trigger.as_str()));
        }
        assert!(serde_json::from_value::<PlanSpec>(json!({"trigger": "Sometimes"})).is_err());
    }
}
