//! What the channels of Plans give to refit, and gave to system-upgrade-controller.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cluster, Finding, Severity};
use refit_api::Plan;

/// The channels that decide the version of a Plan.
pub fn channels(cluster: &Cluster) -> BTreeSet<String> {
    polled(cluster).map(|(_, channel)| channel.to_owned()).collect()
}

fn polled(cluster: &Cluster) -> impl Iterator<Item = (&Plan, &str)> {
    cluster.plans.iter().filter_map(|plan| {
        let channel = plan
            .spec
            .channel
            .as_deref()
            .filter(|_| plan.spec.version.is_none())?;
        Some((plan, channel))
    })
}

/// Compares the answer of each channel with the version that the Plan has.
pub fn check(cluster: &Cluster, answers: &BTreeMap<String, Result<String, String>>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (plan, channel) in polled(cluster) {
        let Some(answer) = answers.get(channel) else {
            continue;
        };
        let metadata = &plan.metadata;
        let title = format!(
            "Plan {}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        );
        let known = plan
            .status
            .as_ref()
            .and_then(|status| status.latest_version.as_deref())
            .unwrap_or_default();
        match answer {
            Err(why) => {
                let change = format!(
                    "refit gets no version from its channel: {why}; the Plan has {}",
                    or_none(known)
                );
                let remedy = "correct the channel, or set spec.version; `refit resolve` shows the answer";
                found.push(Finding::new(Severity::Action, "channel", title, change).remedy(remedy));
            }
            // Status has the version as an image tag, with `-` for `+`.
            Ok(version) if version.replace('+', "-") != known => {
                let change = format!(
                    "its channel gives {version} to refit, and the Plan has {}: a redirect other than 302, a newer release, or one that was withdrawn",
                    or_none(known)
                );
                let remedy =
                    "expect a roll-out of that version, unless it is older; set spec.version to prevent it";
                found.push(Finding::new(Severity::Change, "channel-version", title, change).remedy(remedy));
            }
            Ok(_) => {}
        }
    }
    found
}

fn or_none(version: &str) -> &str {
    if version.is_empty() { "no version" } else { version }
}
