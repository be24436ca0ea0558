//! The Kubernetes distribution that an upgrade image installs.

const DISTRIBUTIONS: [&str; 2] = ["k3s", "rke2"];
/// What an image that installs a distribution calls itself beside the distribution's name: `k3s-upgrade`,
/// `system-agent-installer-rke2`. Mirrors keep these words, or add others.
const INSTALLERS: [&str; 2] = ["upgrade", "installer"];

/// The distribution that this image installs, if its name says so. The version becomes the image's tag, so an image
/// with a version of another distribution does not exist.
pub fn distribution_of(image: &str) -> Option<&'static str> {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let has = |word: &str| {
        name.split(|c: char| !c.is_ascii_alphanumeric())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    let known = DISTRIBUTIONS.into_iter().find(|distribution| has(distribution));
    known.filter(|_| INSTALLERS.into_iter().any(has))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_image_names_its_distribution_in_whatever_registry() {
        for (image, expected) in [
            ("rancher/k3s-upgrade", Some("k3s")),
            ("docker.io/rancher/rke2-upgrade:v1.33.4-rke2r1", Some("rke2")),
            ("mirror.example:5000/a/rke2-upgrade@sha256:00", Some("rke2")),
            ("k3s-upgrade", Some("k3s")),
            ("rancher/k3s-upgrade/tools", None),
            ("example/k3s-upgrade-extra", Some("k3s")),
            ("mirror/rancher-rke2-upgrade", Some("rke2")),
            ("rancher/system-agent-installer-rke2", Some("rke2")),
            ("rancher/K3S-upgrade", Some("k3s")),
            ("example/k3s-backup", None),
            ("example/upgrade", None),
            ("ubuntu:22.04", None),
            ("", None),
        ] {
            assert_eq!(distribution_of(image), expected, "{image}");
        }
    }
}
