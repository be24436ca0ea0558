//! What a Plan that installs Kubernetes claims of its done nodes.

use super::distribution::kubelet_version;
use super::parts::Version;

/// The version that each kubelet must report after the upgrade.
#[derive(Clone, Debug)]
pub struct Claim(Version);

impl Claim {
    /// `None` if the version is not that of a release of Kubernetes: a tag such as `v1.34` can stand for any of its patches.
    pub fn of(version: &str) -> Option<Self> {
        let version = reported(version)?;
        // Kubernetes has always been version 1.
        let is_release = version.major() == 1 && version.written >= 3;
        is_release.then_some(Self(version))
    }

    /// Whether the kubelet has another version. One that cannot be read shows nothing.
    pub fn is_denied_by(&self, kubelet: &str) -> bool {
        let Some(kubelet) = reported(kubelet) else {
            return false;
        };
        // Without a suffix, such as `v1.34.1`, it is the version of each build.
        let has_suffix = self.0.text().contains(['-', '+']);
        self.0 != kubelet && (has_suffix || self.0.compare_numbers(&kubelet).is_ne())
    }

    pub fn is_newer_than(&self, kubelet: &str) -> bool {
        reported(kubelet).is_some_and(|kubelet| kubelet < self.0)
    }
}

/// The version as kubelets report it.
fn reported(version: &str) -> Option<Version> {
    kubelet_version(version).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Claim;

    #[test]
    fn a_kubelet_has_the_version_in_each_spelling_and_of_each_build_if_none_is_named() {
        for (version, kubelet, is_denied, is_older) in [
            ("v1.34.2-k3s1", "v1.34.2+k3s1", false, false),
            ("v1.34.2-k3s2", "v1.34.2+k3s1", true, true),
            ("v1.34.2-k3s1", "v1.34.2+k3s2", true, false),
            ("v1.34.2-k3s1", "v1.33.9+k3s1", true, true),
            ("v1.34.2-k3s1", "v1.34.2+rke2r1", true, false),
            ("v1.34.2", "v1.34.2+k3s1", false, false),
            ("v1.34.2", "v1.34.2-eks-1a2b3c4", false, false),
            ("1.34.2", "v1.34.2", false, false),
            ("v1.34.2", "v1.34.1", true, true),
            ("v1.34.2", "v1.35.0", true, false),
            ("v1.34.2", "unknown", false, false),
            ("v1.34.2-rc1-rke2r1", "v1.34.2+rke2r1", false, false),
            ("v1.34.2-rc1-rke2r1", "v1.34.1+rke2r1", true, true),
        ] {
            let claim = Claim::of(version).unwrap();
            assert_eq!(claim.is_denied_by(kubelet), is_denied, "{version} {kubelet}");
            assert_eq!(
                claim.is_newer_than(kubelet),
                is_older && is_denied,
                "{version} {kubelet}"
            );
        }
        for other in ["v1.34", "2026.11.1", "latest", "stable", ""] {
            assert!(Claim::of(other).is_none(), "{other}");
        }
    }
}
