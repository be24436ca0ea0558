//! The controller's default settings, as in the manifests that refit ships; the same for every command.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;

use refit_job::JobSettings;
use refit_offline::gitops::input::read_text;

/// Name of the manifest in messages.
const NAME: &str = "deploy/config.yaml";
const CONFIG: &str = include_str!("../../deploy/config.yaml");

/// The variables of the `ConfigMap` in a file, or in the shipped manifest, and the name of the source.
///
/// # Errors
/// Fails if the file cannot be read or has no `ConfigMap`.
pub(super) fn config(file: Option<&Path>) -> anyhow::Result<(String, BTreeMap<String, String>)> {
    let (name, text) = match file {
        Some(path) => {
            let text = read_text(path)?;
            (path.display().to_string(), text)
        }
        None => (NAME.to_owned(), CONFIG.to_owned()),
    };
    let map: ConfigMap = serde_saphyr::from_str(&text).with_context(|| format!("{name}: not a ConfigMap"))?;
    Ok((name, map.data.unwrap_or_default()))
}

/// Describes the assumed settings.
pub(super) fn describe(jobs: &JobSettings) -> String {
    let deadline = match jobs.active_deadline_seconds {
        0 => "no deadline for Jobs".to_owned(),
        seconds => format!("Job deadline {seconds}s"),
    };
    format!(
        "the controller's settings are those of {NAME} ({deadline}, {} retries); --config reads another file",
        jobs.backoff_limit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_are_shipped_can_be_read() {
        let (name, data) = config(None).unwrap();
        assert_eq!(name, "deploy/config.yaml");
        assert!(data.contains_key("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT"));
    }
}
