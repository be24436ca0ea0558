//! `spec.trigger`: what makes a node run a Plan, besides a new version. The doc comments of the values are what the
//! documentation prints.

use super::field_enum::field_enum;

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{ContainerSpec, PlanSpec};
    use crate::reboot::RebootWhen;

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
