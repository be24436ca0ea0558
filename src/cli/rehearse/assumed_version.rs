//! The version that a channel is assumed to give if it is not asked: one that its name and the ranges of its Plans admit, and
//! that is not older than the nodes.

use std::cmp::Ordering;
use std::fmt;

use refit_api::Plan;
use refit_base::version::{Range, Version};
use refit_rehearse::nodes::build_of;

/// The version if nothing asks for another one.
pub(super) const VERSION: &str = "v1.34.1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AssumedVersion {
    pub(super) version: String,
    pub(super) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Usual,
    OnCluster,
    Kubelet,
    Name,
    Range,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Usual => "",
            Self::OnCluster => ", as on the cluster",
            Self::Kubelet => ", which the newest kubelet has",
            Self::Name => ", as its name says",
            Self::Range => ", which spec.versionPolicy.range admits",
        })
    }
}

/// The version for the Plans of a channel, or for a Plan without one. `kubelet` is the newest one of the nodes. `None` if the
/// ranges of the Plans have no version in common.
pub(super) fn assumed(
    plans: &[&Plan],
    channel: Option<&str>,
    kubelet: Option<&Version>,
) -> Option<AssumedVersion> {
    let build = build(plans, channel);
    let of_kubelet = kubelet.map(|kubelet| of_kubelet(kubelet, build));
    let usual: Version = format!("{VERSION}{build}").parse().ok()?;
    let least = of_kubelet.clone().filter(|kubelet| *kubelet > usual);
    let (least, why) = least.map_or((usual.clone(), Why::Usual), |kubelet| (kubelet, Why::Kubelet));
    let name = channel.and_then(range_of_name);
    let policies = plans.iter().filter_map(|plan| plan.spec.version_policy().ok());
    let ranges: Vec<Range> = policies.filter_map(|policy| policy.range).collect();
    let limits: Vec<&Range> = name.iter().chain(&ranges).collect();
    let named = limits.iter().flat_map(|limit| near(limit, build));
    let candidates = named.chain(of_kubelet.clone()).chain([usual, least.clone()]);
    let admitted: Vec<Version> = candidates
        .filter(|version| limits.iter().all(|limit| limit.has(version)))
        .collect();
    let (candidates, releases): (Vec<_>, Vec<_>) = admitted.into_iter().partition(Version::is_prerelease);
    let admitted = if releases.is_empty() { candidates } else { releases };
    let (older, newer): (Vec<_>, Vec<_>) = admitted.into_iter().partition(|version| *version < least);
    let version = newer
        .into_iter()
        .min_by(order)
        .or_else(|| older.into_iter().max_by(order))?;
    let why = if version == least {
        why
    } else if of_kubelet.is_some_and(|kubelet| kubelet == version) {
        Why::Kubelet
    } else if name.is_some_and(|name| !name.has(&least)) {
        Why::Name
    } else {
        Why::Range
    };
    let version = version.text().to_owned();
    Some(AssumedVersion { version, why })
}

/// The usual version, for Plans whose ranges have none in common.
pub(super) fn usual(plan: &Plan, channel: Option<&str>) -> AssumedVersion {
    AssumedVersion {
        version: format!("{VERSION}{}", build(&[plan], channel)),
        why: Why::Usual,
    }
}

/// The build of the distribution that the Plans install.
fn build(plans: &[&Plan], channel: Option<&str>) -> &'static str {
    let upgrade = plans.last().and_then(|plan| plan.spec.upgrade.as_ref());
    build_of(upgrade.map_or("", |upgrade| &upgrade.image), channel)
}

/// The release that has this kubelet.
fn of_kubelet(kubelet: &Version, build: &str) -> Version {
    let text = kubelet.text();
    let is_released = match kubelet.builder() {
        Some(builder) => build.contains(builder) && !kubelet.is_variant(),
        None => build.is_empty() && !kubelet.is_variant(),
    };
    // Others add builds of their own, such as `-eks-1a2b3c`.
    let numbers = text.split(['+', '-']).next().unwrap_or(text);
    let other = || format!("{numbers}{build}").parse().ok();
    let other = (!is_released).then(other).flatten();
    other.unwrap_or_else(|| kubelet.clone())
}

/// The newest one.
pub(super) fn newest<'v>(kubelets: impl Iterator<Item = &'v str>) -> Option<Version> {
    kubelets.filter_map(|kubelet| kubelet.parse().ok()).max_by(order)
}

fn order(one: &Version, other: &Version) -> Ordering {
    one.partial_cmp(other)
        .unwrap_or_else(|| one.compare_numbers(other))
}

/// The range of the releases of Kubernetes that a channel's name tells: `1.36` for `…/channels/v1.36`.
fn range_of_name(channel: &str) -> Option<Range> {
    let (_, path) = channel.split_once("://")?.1.split_once('/')?;
    let path = path.split('?').next().unwrap_or_default();
    let name = path.trim_end_matches('/').rsplit(['/', '#']).next()?;
    let version: Version = name.parse().ok()?;
    version.minor().filter(|_| version.major() == 1)?;
    // `v1.36-testing` is a channel, and no prerelease.
    let text = match version.builder() {
        Some(_) => name,
        None => name.split(['-', '+', '_']).next()?,
    };
    text.parse().ok()
}

/// Versions that a range may have: those that it names, and releases of the minor versions beside them.
fn near(range: &Range, build: &str) -> Vec<Version> {
    let mut found = Vec::new();
    for word in range.text().split([' ', ',', '|']) {
        let is_above = word.starts_with('>') && !word.starts_with(">=");
        let word = word.trim_start_matches(['<', '>', '=', '~', '^', '!', 'v', 'V']);
        let word = word.trim_end_matches(['.', 'x', 'X', '*']);
        let Ok(version) = word.parse::<Version>() else {
            continue;
        };
        let Some(minor) = version.minor().filter(|_| version.major() == 1) else {
            found.push(word.to_owned());
            continue;
        };
        if version.builder().is_some() {
            found.push(format!("v{word}"));
        } else if word.split('.').count() > 2 {
            found.push(format!("v{word}{build}"));
        }
        // The first patch that `>` lets through.
        let patch = word.split(['.', '+', '-']).nth(2).filter(|_| is_above);
        if let Some(patch) = patch.and_then(|patch| patch.parse::<u64>().ok()) {
            found.push(format!("v1.{minor}.{}{build}", patch + 1));
        }
        let minors = [minor.saturating_sub(1), minor, minor + 1];
        found.extend(minors.map(|minor| format!("v1.{minor}.1{build}")));
    }
    found.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(image: &str, range: &str) -> Plan {
        let policy = if range.is_empty() {
            serde_json::Value::Null
        } else {
            serde_json::json!({ "range": range })
        };
        let plan = serde_json::json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": "p" },
            "spec": { "upgrade": { "image": image }, "versionPolicy": policy },
        });
        serde_json::from_value(plan).unwrap()
    }

    /// Image, channel, range and newest kubelet, then the version and why.
    const ASSUMED: &str = "
k3s-upgrade | v1-release/channels/stable | - | - | v1.34.1+k3s1 | Usual
k3s-upgrade | v1-release/channels/v1.34 | - | - | v1.34.1+k3s1 | Usual
k3s-upgrade | v1-release/channels/v1.36 | - | - | v1.36.1+k3s1 | Name
k3s-upgrade | v1-release/channels/v1.36/?a=b | - | - | v1.36.1+k3s1 | Name
k3s-upgrade | v1-release/channels#v1.36 | - | - | v1.36.1+k3s1 | Name
rke2-upgrade | channels/v1.36-testing | - | - | v1.36.1+rke2r1 | Name
rke2-upgrade | channels/v1.30 | - | - | v1.30.1+rke2r1 | Name
k3s-upgrade | releases/v1.36.4+k3s2 | - | - | v1.36.4+k3s2 | Name
k3s-upgrade | channels/v1.36 | - | v1.35.1+k3s1 | v1.36.1+k3s1 | Name
k3s-upgrade | channels/v1.36 | - | v1.36.4+k3s1 | v1.36.4+k3s1 | Kubelet
k3s-upgrade | channels/v1.33 | - | v1.33.6+k3s1 | v1.33.6+k3s1 | Kubelet
k3s-upgrade | channels/v1.34 | - | v1.36.4+k3s1 | v1.34.1+k3s1 | Name
k3s-upgrade | channels/stable | - | v1.33.4+k3s1 | v1.34.1+k3s1 | Usual
k3s-upgrade | channels/stable | - | v1.34.1+k3s2 | v1.34.1+k3s2 | Kubelet
k3s-upgrade | channels/stable | - | v1.36.4+k3s1 | v1.36.4+k3s1 | Kubelet
k3s-upgrade | channels/stable | 1.36.x | - | v1.36.1+k3s1 | Range
k3s-upgrade | channels/stable | ~1.36 | v1.36.4+k3s1 | v1.36.4+k3s1 | Kubelet
k3s-upgrade | channels/stable | >=1.33 | v1.35.4+k3s1 | v1.35.4+k3s1 | Kubelet
k3s-upgrade | channels/stable | >=1.35 <1.37 | - | v1.35.1+k3s1 | Range
k3s-upgrade | channels/stable | <1.33 | - | v1.32.1+k3s1 | Range
k3s-upgrade | channels/stable | >1.36.2 | - | v1.36.3+k3s1 | Range
k3s-upgrade | channels/v1.36 | >1.36.2 <1.37 | v1.36.2+k3s1 | v1.36.3+k3s1 | Range
k3s-upgrade | channels/stable | 1.33.4 | - | v1.33.4+k3s1 | Range
k3s-upgrade | channels/stable | >=1.36.0-rc1 | - | v1.36.1+k3s1 | Range
k3s-upgrade | channels/stable | 1.36.0-rc1 | - | v1.36.0-rc1+k3s1 | Range
k3s-upgrade | channels/stable | >=1.36.4+k3s2 | - | v1.36.4+k3s2 | Range
k3s-upgrade | channels/stable | 1.32.x || 1.36.x | - | v1.36.1+k3s1 | Range
example/upgrade | channels/stable | >=22.04 | - | 22.04 | Range
example/upgrade | channels/stable | 2026.x | - | 2026 | Range
kubeadm-upgrade | channels/stable | - | v1.35.1-eks-1a2b3c | v1.35.1 | Kubelet
kubeadm-upgrade | channels/stable | - | v1.35.1 | v1.35.1 | Kubelet
example/upgrade | 1.36 | - | v1.35.1 | v1.36.1 | Name
example/upgrade | ubuntu/22.04 | - | - | v1.34.1 | Usual
";

    #[test]
    fn a_channel_gives_a_version_of_its_name_and_its_range_and_none_older_than_the_nodes() {
        for line in ASSUMED.lines().filter(|line| !line.is_empty()) {
            let cells: Vec<&str> = line.split(" | ").collect();
            let given = |at: usize| Some(cells[at]).filter(|cell| *cell != "-");
            let plan = plan(cells[0], given(2).unwrap_or_default());
            let channel = format!("https://example.com/{}", cells[1]);
            let kubelet = newest(given(3).into_iter());
            let found = assumed(&[&plan], Some(&channel), kubelet.as_ref()).unwrap();
            let found = format!("{} {:?}", found.version, found.why);
            assert_eq!(found, format!("{} {}", cells[4], cells[5]), "{line}");
        }
    }

    #[test]
    fn plans_of_one_channel_get_a_version_that_the_ranges_of_all_have() {
        let of = |ranges: [&str; 2]| {
            let plans = ranges.map(|range| plan("k3s-upgrade", range));
            let plans: Vec<&Plan> = plans.iter().collect();
            Some(assumed(&plans, Some("oci://example.com/k3s-upgrade"), None)?.version)
        };
        assert_eq!(of([">=1.35", ""]).as_deref(), Some("v1.35.1+k3s1"));
        assert_eq!(of([">=1.35", "<1.37"]).as_deref(), Some("v1.35.1+k3s1"));
        assert_eq!(of(["1.35.x", "1.36.x"]), None);
    }
}
