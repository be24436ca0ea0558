//! Settings of Jobs from the controller's environment (S3). The controller reads the environment.

use refit_api::{ApiAccess, PlanSpec, names};

/// Settings that all Jobs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// Name of this controller, the label of its Jobs.
    pub controller_name: String,
    /// Image of refit, which cordons and drains.
    pub own_image: String,
    /// Names of the Secrets with which `own_image` is pulled. They follow the Plan's.
    pub own_image_pull_secrets: Vec<String>,
    /// `SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS`: for Plans without a value, or with a negative one.
    pub active_deadline_seconds: i64,
    /// `SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX`: upper bound for all Jobs. 0 means none.
    pub active_deadline_seconds_max: i64,
    /// `SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT`.
    pub backoff_limit: i32,
    /// `SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS`: image that cordons and drains Windows nodes. Empty means none.
    pub kubectl_image_windows: String,
    /// `SYSTEM_UPGRADE_JOB_PRIVILEGED`: whether `upgrade` is privileged if the Plan has no security context.
    pub privileged: bool,
    /// `SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY`, for the Plan's images.
    pub image_pull_policy: String,
    /// `SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH`.
    pub ttl_seconds_after_finish: i32,
    /// `SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY`.
    pub pod_replacement_policy: String,
    /// `ALLOW_USER_DEFINED_SECURITY_CONTEXT`: whether Plans may set security contexts.
    pub allow_user_defined_security_context: bool,
    /// `REFIT_JOB_API_ACCESS`: [`JobSettings::api_access`] of Plans with refit's own account for work on nodes.
    pub own_account_api_access: ApiAccess,
}

impl JobSettings {
    /// Settings with system-upgrade-controller's defaults (S3).
    pub fn new(controller_name: impl Into<String>, own_image: impl Into<String>) -> Self {
        Self {
            controller_name: controller_name.into(),
            own_image: own_image.into(),
            own_image_pull_secrets: Vec::new(),
            active_deadline_seconds: 600,
            active_deadline_seconds_max: 0,
            backoff_limit: 2,
            kubectl_image_windows: String::new(),
            privileged: true,
            image_pull_policy: "IfNotPresent".into(),
            ttl_seconds_after_finish: 900,
            pod_replacement_policy: "TerminatingOrFailed".into(),
            allow_user_defined_security_context: true,
            own_account_api_access: ApiAccess::All,
        }
    }

    /// Which containers of the Plan's pods get a token: what the Plan says. Otherwise all, as under
    /// system-upgrade-controller: who chose an account for a Plan may have chosen it for what `upgrade` does with it. Only the
    /// account that refit's manifests contain has another default.
    pub fn api_access(&self, spec: &PlanSpec) -> ApiAccess {
        let is_own = spec.service_account_name.as_deref() == Some(names::JOB_SERVICE_ACCOUNT);
        let default = if is_own {
            self.own_account_api_access
        } else {
            ApiAccess::All
        };
        spec.api_access.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_job_settings_have_the_defaults_of_system_upgrade_controller() {
        insta::assert_debug_snapshot!(JobSettings::new("controller", "image"), @r#"
        JobSettings {
            controller_name: "controller",
            own_image: "image",
            own_image_pull_secrets: [],
            active_deadline_seconds: 600,
            active_deadline_seconds_max: 0,
            backoff_limit: 2,
            kubectl_image_windows: "",
            privileged: true,
            image_pull_policy: "IfNotPresent",
            ttl_seconds_after_finish: 900,
            pod_replacement_policy: "TerminatingOrFailed",
            allow_user_defined_security_context: true,
            own_account_api_access: All,
        }
        "#);
    }
}
