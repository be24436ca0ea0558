//! The Kubernetes distribution that an upgrade image installs.

const DISTRIBUTIONS: [&str; 2] = ["k3s", "rke2"];
/// What an image that installs a distribution calls itself in addition to the distribution's name: `k3s-upgrade`,
/// `system-agent-installer-rke2`. Mirrors keep these words, or add others.
const INSTALLERS: [&str; 2] = ["upgrade", "installer"];

/// Its versions are not those of Kubernetes.
const TALOS: &str = "Talos";

/// The distribution that this image installs, if its name says so. The version becomes the image's tag, so an image
/// with a version of another distribution does not exist.
pub fn distribution_of(image: &str) -> Option<&'static str> {
    let name = name_of(image);
    let has = |word: &str| words(name).any(|part| part.eq_ignore_ascii_case(word));
    let known = DISTRIBUTIONS.into_iter().find(|distribution| has(distribution));
    known.filter(|_| INSTALLERS.into_iter().any(has))
}

/// What the image installs, if its name says so: a distribution, or what has versions without a build.
pub fn installed_by(image: &str) -> Option<&'static str> {
    let is_kubeadm = || words(name_of(image)).any(|word| word.eq_ignore_ascii_case("kubeadm"));
    distribution_of(image)
        .or_else(|| is_kubeadm().then_some("kubeadm"))
        .or_else(|| is_of_talos(image).then_some(TALOS))
}

/// Whether versions of what an image installs have a build, such as `+k3s1`.
pub fn has_builds(installed: &str) -> bool {
    DISTRIBUTIONS.contains(&installed)
}

/// Whether it is an image of Talos Linux: its installer, also from the image factory, or its client.
pub fn is_of_talos(image: &str) -> bool {
    [
        "siderolabs/installer",
        "siderolabs/talosctl",
        "factory.talos.dev/",
    ]
    .into_iter()
    .any(|known| image.contains(known))
}

/// Whether the image installs Kubernetes, so that kubelets report the version, as far as its name says.
pub fn installs_kubernetes(image: &str) -> bool {
    installed_by(image).is_some_and(|installed| installed != TALOS)
}

/// The version that kubelets report after the upgrade to this one. A release candidate of RKE2 contains the Kubernetes of
/// the release: kubelets of `v1.34.2-rc1+rke2r1` report `v1.34.2+rke2r1`. Those of K3s report the candidate.
pub fn kubelet_version(version: &str) -> String {
    let candidate = version.find("-rc").filter(|_| version.contains("rke2r"));
    let parts = candidate.and_then(|at| {
        let build = version[at + 1..].find(['+', '-'])?;
        Some((&version[..at], &version[at + 1 + build..]))
    });
    parts.map_or_else(
        || version.to_owned(),
        |(numbers, build)| format!("{numbers}{build}"),
    )
}

/// A version as its releases and kubelets write it, for people: status has `-` instead of `+`, as image tags have.
pub fn released_version(version: &str) -> String {
    let build = ["-k3s", "-rke2r"].iter().find_map(|build| version.rfind(build));
    build.map_or_else(
        || version.to_owned(),
        |at| format!("{}+{}", &version[..at], &version[at + 1..]),
    )
}

/// Whether it is the image of k3s-io/k3s-upgrade or rancher/rke2-upgrade, perhaps from a mirror.
pub fn is_upgrade_image(image: &str) -> bool {
    let distribution = name_of(image).strip_suffix("-upgrade");
    distribution.is_some_and(|name| DISTRIBUTIONS.contains(&name))
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
}

/// The last part of the path, without tag and digest.
fn name_of(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_status_is_written_as_its_release() {
        for (status, release) in [
            ("v1.34.1-k3s1", "v1.34.1+k3s1"),
            ("v1.34.1-rc1-rke2r1", "v1.34.1-rc1+rke2r1"),
            ("v1.34.1+k3s1", "v1.34.1+k3s1"),
            ("v1.34.1-rc.1", "v1.34.1-rc.1"),
        ] {
            assert_eq!(released_version(status), release);
        }
    }

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

    #[test]
    fn an_image_names_what_it_installs_also_if_that_has_no_builds() {
        for (image, expected) in [
            ("rancher/k3s-upgrade", Some("k3s")),
            ("example/kubeadm-upgrade:v1", Some("kubeadm")),
            ("example/upgrade-kubeadm", Some("kubeadm")),
            ("ghcr.io/siderolabs/talosctl:v1.11.5", Some(TALOS)),
            ("mirror.example:5000/siderolabs/installer@sha256:00", Some(TALOS)),
            ("factory.talos.dev/metal-installer/3765:v1.11.5", Some(TALOS)),
            ("example/kubeadm/upgrade", None),
            ("example/upgrade", None),
        ] {
            assert_eq!(installed_by(image), expected, "{image}");
            assert_eq!(
                installs_kubernetes(image),
                expected.is_some_and(|name| name != TALOS)
            );
        }
    }

    #[test]
    fn kubelets_of_a_release_candidate_of_rke2_report_the_release() {
        for (version, reported) in [
            ("v1.34.2-rc1+rke2r1", "v1.34.2+rke2r1"),
            ("v1.34.2-rc12-rke2r2", "v1.34.2-rke2r2"),
            ("v1.34.2+rke2r1", "v1.34.2+rke2r1"),
            ("v1.34.2-rc1+k3s1", "v1.34.2-rc1+k3s1"),
            ("v1.34.2-rc.1", "v1.34.2-rc.1"),
        ] {
            assert_eq!(kubelet_version(version), reported);
        }
    }

    #[test]
    fn an_upgrade_image_is_known_by_its_whole_name() {
        assert!(is_upgrade_image("mirror.example:5000/a/rke2-upgrade@sha256:00"));
        assert!(is_upgrade_image("rancher/k3s-upgrade:v1.33.4-k3s1"));
        for image in [
            "mirror/rancher-rke2-upgrade",
            "k3s-upgrade/tools",
            "ubuntu:22.04",
            "",
        ] {
            assert!(!is_upgrade_image(image), "{image}");
        }
    }
}
