//! A payload that reboots its node in a Plan without `reboot`: the Job succeeds, the node counts as done, the next one starts,
//! and then the first one goes down.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::subject::Subject;
use crate::gitops::objects::Object;
use crate::gitops::rule::Rule;
use refit_api::{ContainerSpec, Plan};

/// Words before a command that run it.
const RUNNERS: [&str; 20] = [
    "sudo",
    "doas",
    "exec",
    "nohup",
    "setsid",
    "env",
    "nsenter",
    "chroot",
    "systemd-run",
    "timeout",
    "busybox",
    "if",
    "then",
    "else",
    "do",
    "!",
    "{",
    "(",
    "nice",
    "command",
];

/// A script in a Secret of the same files.
#[derive(Clone, Debug)]
pub(super) struct Script {
    namespace: Option<String>,
    secret: String,
    key: String,
    /// The command that reboots.
    reboots: String,
}

impl Script {
    /// The scripts of a Secret that reboot the machine on which they run.
    pub(super) fn read(object: &Object<'_>) -> Vec<Self> {
        if object.kind != "Secret" || object.api_version != "v1" {
            return Vec::new();
        }
        let value = object.node.to_json();
        let entries = |field: &str| value[field].as_object().cloned().unwrap_or_default();
        let plain = entries("stringData").into_iter();
        let plain = plain.filter_map(|(key, text)| Some((key, text.as_str()?.to_owned())));
        let encoded = entries("data").into_iter().filter_map(|(key, text)| {
            let text = text.as_str()?.split_whitespace().collect::<String>();
            Some((key, String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()?))
        });
        let found = plain.chain(encoded).filter_map(|(key, text)| {
            Some(Self {
                namespace: object.metadata("namespace").map(str::to_owned),
                secret: object.metadata("name")?.to_owned(),
                key,
                reboots: in_script(&text)?,
            })
        });
        found.collect()
    }

    /// Whether a container of the Plan names the script, and the Plan mounts its Secret.
    fn is_run_by(&self, plan: &Plan, container: &ContainerSpec) -> bool {
        let own = plan.metadata.namespace.as_ref();
        let is_near = self
            .namespace
            .as_ref()
            .is_none_or(|it| own.is_none_or(|own| own == it));
        let mut secrets = plan.spec.secrets.iter().flatten();
        is_near
            && secrets.any(|secret| secret.name == self.secret)
            && words(container).any(|word| word.contains(&self.key))
    }
}

impl Subject<'_> {
    pub(super) fn check_reboots(&mut self, plan: &Plan, scripts: &[&Script]) {
        if plan.spec.reboot.is_some() {
            return;
        }
        let all = super::jobs::containers(&plan.spec);
        for (name, container) in all.filter(|(name, _)| matches!(*name, "prepare" | "upgrade")) {
            let written = ["command", "args"].map(|part| format!("spec.{name}.{part}"));
            let place = written.into_iter().find(|field| self.has(field));
            let place = place.unwrap_or_else(|| format!("spec.{name}"));
            let script = || {
                let script = scripts.iter().find(|script| script.is_run_by(plan, container))?;
                let (key, secret) = (&script.key, &script.secret);
                Some(format!(
                    "{key} of Secret {secret}, which runs `{}`",
                    script.reboots
                ))
            };
            let command = in_container(container).map(|command| format!("`{command}`"));
            let Some(command) = command.or_else(script) else {
                continue;
            };
            let message = format!(
                "{place} runs {command}, and the Plan has no `reboot`, so the node may count as done before it goes down"
            );
            let hint = "set `reboot: {by: Payload}` in the spec, so that the node counts when it is back; or remove the command, and have \
                        refit reboot the node: `reboot: {when: Always}`";
            self.report(Rule::PayloadReboots, &place, message, Some(hint.to_owned()));
        }
    }
}

fn words(container: &ContainerSpec) -> impl Iterator<Item = &String> {
    container
        .command
        .iter()
        .flatten()
        .chain(container.args.iter().flatten())
}

/// The command of a container that reboots the machine.
fn in_container(container: &ContainerSpec) -> Option<String> {
    let all: Vec<&str> = words(container).map(String::as_str).collect();
    // The script of a shell, wherever the shell stands: behind `nsenter … --`, for example.
    let mut scripts = all
        .windows(3)
        .filter(|window| is_shell(window[0]) && is_script_flag(window[1]));
    if let Some(found) = scripts.find_map(|window| in_script(window[2])) {
        return Some(found);
    }
    let image = container.image.rsplit('/').next().unwrap_or_default();
    let program = image.split([':', '@']).next().unwrap_or_default();
    let has_command = container
        .command
        .as_ref()
        .is_some_and(|command| !command.is_empty());
    let line: Vec<&str> = if has_command {
        all
    } else {
        // The name of an image is usually that of its program.
        std::iter::once(program).chain(all).collect()
    };
    is_reboot(&line).then(|| line.join(" "))
}

/// The command of a script that reboots the machine. One that then sleeps does not end before the node goes down, and ends
/// with success in the next boot.
fn in_script(text: &str) -> Option<String> {
    let lines = text.replace("\\\n", " ");
    let commands = lines
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.split([';', '|', '&']));
    let mut commands = commands.map(unquoted);
    let found = commands.find_map(|command| {
        let words: Vec<&str> = command.split_whitespace().collect();
        is_reboot(&words).then(|| words.join(" "))
    })?;
    let sleeps = commands.any(|command| command.split_whitespace().next() == Some("sleep"));
    (!sleeps).then_some(found)
}

/// A command without quotes, so that `sh -c "reboot"` is one.
fn unquoted(command: &str) -> Cow<'_, str> {
    command.replace(['"', '\''], " ").into()
}

/// Whether the words are a command that reboots the machine, perhaps behind one that runs it.
fn is_reboot(words: &[&str]) -> bool {
    let name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let is_runner = words
        .first()
        .is_some_and(|first| RUNNERS.contains(&&*name(first)) || is_shell(first));
    let candidates = if is_runner { words.len() } else { 1 };
    (0..candidates.min(words.len())).any(|at| {
        let args = &words[at + 1..];
        let has = |wanted: &[&str]| args.iter().any(|arg| wanted.contains(arg));
        match &*name(words[at]) {
            "reboot" => !has(&["--help", "-w", "--wtmp-only", "--halt", "--poweroff", "-p"]),
            "shutdown" => has(&["-r", "--reboot"]),
            "systemctl" => has(&["reboot", "kexec", "soft-reboot"]),
            "init" | "telinit" => args.first() == Some(&"6"),
            "kexec" => has(&["-e", "--exec"]),
            "talosctl" => has(&["upgrade", "reboot"]),
            "bootc" => has(&["--apply"]),
            "rpm-ostree" => has(&["--reboot", "-r"]),
            "transactional-update" => has(&["reboot"]),
            _ => false,
        }
    })
}

fn is_shell(program: &str) -> bool {
    matches!(
        program.rsplit('/').next(),
        Some("sh" | "bash" | "ash" | "dash" | "zsh")
    )
}

/// Whether the word is a shell flag before a script: `-c`, `-euc`.
fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_reboot_are_found_and_words_about_reboots_are_not() {
        for (script, found) in [
            ("apt-get upgrade -y && shutdown -r +1", Some("shutdown -r +1")),
            (
                "set -e\nnsenter -t 1 -m -- systemctl reboot",
                Some("nsenter -t 1 -m -- systemctl reboot"),
            ),
            ("chroot /host /sbin/reboot", Some("chroot /host /sbin/reboot")),
            (
                "if [ -f /run/reboot-required ]; then reboot; fi",
                Some("then reboot"),
            ),
            ("nohup sh -c 'sleep 60; reboot' &", Some("reboot")),
            ("rpm-ostree upgrade --reboot", Some("rpm-ostree upgrade --reboot")),
            ("bootc switch --apply $IMAGE", Some("bootc switch --apply $IMAGE")),
            ("init 6", Some("init 6")),
            ("systemctl reboot\nsleep infinity", None),
            ("echo reboot", None),
            ("# reboot later", None),
            ("touch /run/reboot-required", None),
            ("test -f /var/run/reboot-required && echo 'reboot needed'", None),
            ("shutdown -c", None),
            ("systemctl restart kubelet", None),
            ("apt-get install reboot-notifier", None),
        ] {
            assert_eq!(in_script(script).as_deref(), found, "{script}");
        }
    }
}
