//! What `prepare` of a Plan runs in the images of K3s and RKE2, whose entrypoint takes `prepare <plan>`.

use super::ContainerSpec;
use crate::version::distribution_of;

/// The program that those images start (`scripts/upgrade.sh` of k3s-io/k3s-upgrade and rancher/rke2-upgrade).
const ENTRYPOINT: &str = "upgrade.sh";

/// What a `prepare` container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// Without arguments the entrypoint upgrades.
    Upgrades,
    /// `prepare` without a Plan: the script exits with 1.
    WithoutPlan,
    /// `prepare` with the name of a Plan, for which it waits.
    WaitsFor(String),
}

impl Prepare {
    /// `None` if the container runs something else.
    pub fn parse(image: &str, command: &[String], args: &[String]) -> Option<Self> {
        let is_ours = distribution_of(image).is_some();
        let mut words = command.iter().chain(args).map(String::as_str);
        if let Some(program) = command.first() {
            if program.rsplit('/').next() != Some(ENTRYPOINT) {
                return None;
            }
            words.next();
        }
        match words.next() {
            Some("prepare") => {}
            None => return (is_ours && command.is_empty()).then_some(Self::Upgrades),
            Some(_) => return None,
        }
        match words.next() {
            Some(plan) if !plan.trim().is_empty() => Some(Self::WaitsFor(plan.to_owned())),
            // In other images, `prepare` may be a program that needs no argument.
            _ => is_ours.then_some(Self::WithoutPlan),
        }
    }

    /// What the container runs, if its image is one of K3s or RKE2.
    pub fn of(container: &ContainerSpec) -> Option<Self> {
        distribution_of(&container.image)?;
        let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        Self::parse(
            &container.image,
            &words(&container.command),
            &words(&container.args),
        )
    }

    /// The Plan that it waits for.
    pub fn plan(&self) -> Option<&str> {
        match self {
            Self::WaitsFor(plan) => Some(plan),
            Self::Upgrades | Self::WithoutPlan => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(image: &str, command: &[&str], args: &[&str]) -> Option<Prepare> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Prepare::parse(image, &own(command), &own(args))
    }

    #[test]
    fn prepare_is_known_by_its_arguments_and_by_the_entrypoint_s_name() {
        let servers = Some(Prepare::WaitsFor("servers".to_owned()));
        let args = ["prepare", "servers"];
        assert_eq!(parse("any", &[], &args), servers);
        assert_eq!(parse("any", &["/bin/upgrade.sh"], &args), servers);
        assert_eq!(parse("any", &["upgrade.sh", "prepare", "servers"], &[]), servers);
        assert_eq!(parse("any", &["sh"], &args), None);
        assert_eq!(parse("rancher/k3s-upgrade", &["sh", "-c"], &["prepare x"]), None);
        assert_eq!(parse("any", &[], &["upgrade"]), None);
        assert_eq!(parse("any", &[], &[]), None);
    }

    #[test]
    fn prepare_without_a_plan_fails_and_without_arguments_upgrades_in_the_images_that_need_them() {
        let without = Some(Prepare::WithoutPlan);
        for image in [
            "rancher/k3s-upgrade",
            "registry.example.com:5000/rancher/rke2-upgrade:v1.34.1-rke2r1",
            "k3s-upgrade@sha256:abc",
        ] {
            assert_eq!(parse(image, &[], &["prepare"]), without, "{image}");
            assert_eq!(parse(image, &[], &["prepare", ""]), without, "{image}");
            assert_eq!(parse(image, &[], &[]), Some(Prepare::Upgrades), "{image}");
            assert_eq!(parse(image, &["upgrade.sh"], &[]), None, "{image}");
        }
        assert_eq!(parse("example.com/tool", &[], &["prepare"]), None);
    }

    #[test]
    fn a_container_of_another_image_is_not_judged() {
        let of = |image: &str| {
            Prepare::of(&ContainerSpec {
                image: image.to_owned(),
                args: Some(vec!["prepare".to_owned(), "server".to_owned()]),
                ..ContainerSpec::default()
            })
        };
        let server = Some(Prepare::WaitsFor("server".to_owned()));
        assert_eq!(of("registry.example:5000/mirror/rke2-upgrade:v1"), server);
        assert_eq!(of("busybox"), None);
    }
}
