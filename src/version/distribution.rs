//! The Kubernetes distribution that an upgrade image installs.

/// Names of the images that install a distribution. Mirrors keep the name in other registries.
const IMAGES: [(&str, &str); 2] = [("k3s-upgrade", "k3s"), ("rke2-upgrade", "rke2")];

/// The distribution that this image installs, if its name says so. The version becomes the image's tag, so an image
/// with a version of another distribution does not exist.
pub fn distribution_of(image: &str) -> Option<&'static str> {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let known = IMAGES.iter().find(|(known, _)| *known == name);
    known.map(|(_, distribution)| *distribution)
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
            ("example/k3s-upgrade-extra", None),
            ("ubuntu:22.04", None),
            ("", None),
        ] {
            assert_eq!(distribution_of(image), expected, "{image}");
        }
    }
}
