//! Versions that a kubelet can have.

/// The oldest minor version that counts as one of Kubernetes: others, as Talos, are at `v1.9`.
const OLDEST_MINOR: u64 = 20;

/// True for `v1.33.4`, with or without a build suffix.
pub fn is_kubelet_version(version: &str) -> bool {
    let parsed = version
        .strip_prefix('v')
        .and_then(|version| semver::Version::parse(version).ok());
    parsed.is_some_and(|version| version.major == 1 && version.minor >= OLDEST_MINOR)
}
