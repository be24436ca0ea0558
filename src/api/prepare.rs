//! What `prepare` of a Plan runs in the images of K3s and RKE2, whose entrypoint takes `prepare <plan>`.

use super::plan::ContainerSpec;
use refit_base::version::is_upgrade_image;

/// The program that those images start (`scripts/upgrade.sh` of k3s-io/k3s-upgrade and rancher/rke2-upgrade).
pub const ENTRYPOINT: &str = "upgrade.sh";

/// Shells that may run the script.
const SHELLS: [&str; 4] = ["sh", "ash", "bash", "dash"];
/// Programs that the images have too; the script runs any.
const PROGRAMS: [&str; 18] = [
    "ash", "bash", "cat", "chroot", "command", "cp", "echo", "env", "eval", "exec", "exit", "kubectl",
    "nsenter", "printf", "sh", "sleep", "test", "true",
];

/// What a `prepare` container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// The function `upgrade`, which is also the default of the image.
    Upgrades,
    /// The script without a function, which does nothing.
    Nothing,
    /// `prepare` without a Plan: the script exits with 1.
    WithoutPlan,
    /// `prepare` with the name of a Plan, for which it waits.
    WaitsFor(String),
    /// Something that is neither a function of the script nor a program: exits with 127.
    NotFound(String),
}

impl Prepare {
    /// `None` if the container runs something else.
    pub fn parse(image: &str, command: &[String], args: &[String]) -> Option<Self> {
        let is_ours = is_upgrade_image(image);
        let Some(first) = command.first() else {
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            return match words.as_slice() {
                [] => is_ours.then_some(Self::Upgrades),
                words => Self::function(is_ours, words),
            };
        };
        let words: Vec<&str> = command.iter().chain(args).map(String::as_str).collect();
        // A function of the script is not a program.
        if is_ours && is_no_program(first) {
            return Some(Self::NotFound(first.clone()));
        }
        let line;
        let words = match words.as_slice() {
            [shell, "-c", script, ..] if SHELLS.contains(&base(shell)) => {
                line = script.strip_prefix("exec ").unwrap_or(script);
                // Other characters may be syntax of the shell, which is not interpreted here.
                let is_simple = |c: char| c.is_ascii_alphanumeric() || "/._- ".contains(c);
                if !line.chars().all(is_simple) {
                    return None;
                }
                line.split(' ').filter(|word| !word.is_empty()).collect()
            }
            [shell, rest @ ..] if SHELLS.contains(&base(shell)) => rest.to_vec(),
            _ => words,
        };
        match words.as_slice() {
            [program, rest @ ..] if base(program) == ENTRYPOINT => match rest {
                [] => is_ours.then_some(Self::Nothing),
                rest => Self::function(is_ours, rest),
            },
            _ => None,
        }
    }

    /// What the script runs with these words.
    fn function(is_ours: bool, words: &[&str]) -> Option<Self> {
        match words {
            ["prepare", plan, ..] if !plan.trim().is_empty() => Some(Self::WaitsFor((*plan).to_owned())),
            // In other images, these may be programs that need no argument.
            _ if !is_ours => None,
            ["prepare", ..] => Some(Self::WithoutPlan),
            ["upgrade", ..] => Some(Self::Upgrades),
            [] => Some(Self::Nothing),
            // A path, one of the script's other functions, or a program.
            [other, ..] if other.contains(['/', '_']) || PROGRAMS.contains(other) => None,
            [other, ..] => Some(Self::NotFound((*other).to_owned())),
        }
    }

    /// What the container runs, if its image is one of K3s or RKE2.
    pub fn of(container: &ContainerSpec) -> Option<Self> {
        if !is_upgrade_image(&container.image) {
            return None;
        }
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
            Self::Upgrades | Self::Nothing | Self::WithoutPlan | Self::NotFound(_) => None,
        }
    }
}

/// The name of a program without its folder.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

/// Whether `command` has a function of the script, or a whole line, in the place of a program.
fn is_no_program(first: &str) -> bool {
    let word = first.split_whitespace().next().unwrap_or_default();
    let is_function = ["prepare", "upgrade"]
        .iter()
        .any(|one| word.eq_ignore_ascii_case(one));
    is_function || (base(word) == ENTRYPOINT && word != first)
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
        assert_eq!(parse("rancher/k3s-upgrade", &["sh", "-c"], &["true"]), None);
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
            assert_eq!(
                parse(image, &[], &["upgrade"]),
                Some(Prepare::Upgrades),
                "{image}"
            );
            assert_eq!(
                parse(image, &["upgrade.sh"], &[]),
                Some(Prepare::Nothing),
                "{image}"
            );
        }
        for image in ["example.com/tool", ""] {
            assert_eq!(parse(image, &[], &["prepare"]), None);
            assert_eq!(parse(image, &["upgrade.sh"], &[]), None);
            assert_eq!(parse(image, &[], &["servers"]), None);
        }
    }

    #[test]
    fn a_word_that_is_no_function_of_the_script_is_not_found() {
        for (command, args, word) in [
            (&[][..], &["k3s-server"][..], "k3s-server"),
            (&[], &["prepare k3s-server"], "prepare k3s-server"),
            (&[], &["Prepare", "server"], "Prepare"),
            (&["upgrade.sh"], &["server"], "server"),
            (&["sh", "/bin/upgrade.sh"], &["server"], "server"),
            (&["sh", "-c", "upgrade.sh server"], &[], "server"),
            (&["prepare", "server"], &[], "prepare"),
            (&["upgrade.sh prepare server"], &[], "upgrade.sh prepare server"),
        ] {
            let parsed = parse("rancher/k3s-upgrade", command, args);
            assert_eq!(
                parsed,
                Some(Prepare::NotFound(word.to_owned())),
                "{command:?} {args:?}"
            );
        }
        for args in [
            &["sleep", "5"][..],
            &["/bin/true"],
            &["replace_binary"],
            &["sh", "-c", "x"],
        ] {
            assert_eq!(parse("rancher/k3s-upgrade", &[], args), None, "{args:?}");
        }
    }

    #[test]
    fn a_shell_that_runs_only_the_script_is_seen_through() {
        let servers = Some(Prepare::WaitsFor("servers".to_owned()));
        for (command, args) in [
            (&["/bin/sh", "/bin/upgrade.sh"][..], &["prepare", "servers"][..]),
            (&["sh", "-c", "upgrade.sh prepare servers"], &[]),
            (&["bash", "-c"], &["exec /bin/upgrade.sh  prepare servers"]),
        ] {
            assert_eq!(
                parse("rancher/k3s-upgrade", command, args),
                servers,
                "{command:?} {args:?}"
            );
        }
        for script in [
            "sleep 5; upgrade.sh prepare servers",
            "upgrade.sh prepare $PLAN",
            "true",
        ] {
            assert_eq!(
                parse("rancher/k3s-upgrade", &["sh", "-c", script], &[]),
                None,
                "{script}"
            );
        }
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
