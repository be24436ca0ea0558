//! Commands on the host that say whether it needs a reboot, by their exit codes.

use std::fmt;
use std::str::FromStr;

use super::request::Answer;

/// Commands whose exit codes are known: their first words, and the code that means yes.
///
/// `needs-restarting(1)` of dnf-utils and dnf5: 1 if a reboot is required with `-r`, otherwise 0. `zypper(8)`:
/// `ZYPPER_EXIT_INF_REBOOT_NEEDED` is 102.
const TOOLS: [(&[&str], u8); 4] = [
    (&["needs-restarting"], 1),
    (&["dnf", "needs-restarting"], 1),
    (&["dnf5", "needs-restarting"], 1),
    (&["zypper", "needs-rebooting"], 102),
];

/// A command, and what its exit code means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelCommand {
    words: Vec<String>,
    /// The exit code that means yes.
    yes: u8,
}

/// Why a text is not a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    #[error("it names no program")]
    Empty,
    #[error("{0:?} is not an exit code: it must be a number from 0 to 255")]
    Code(String),
}

impl FromStr for SentinelCommand {
    type Err = BadCommand;

    /// `COMMAND`, or `CODE:COMMAND`. Words are separated by blanks; there is no shell and no quoting.
    fn from_str(text: &str) -> Result<Self, BadCommand> {
        let is_code = |code: &&str| !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_digit());
        let code = text.split_once(':').filter(|(code, _)| is_code(&code.trim()));
        let (yes, command) = match code {
            Some((code, rest)) => {
                let parsed = code.trim().parse::<u8>();
                (Some(parsed.map_err(|_| BadCommand::Code(code.to_owned()))?), rest)
            }
            None => (None, text),
        };
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let program = words.first().ok_or(BadCommand::Empty)?;
        let program = program.rsplit('/').next().unwrap_or_default();
        let is_tool = |tool: &&(&[&str], u8)| {
            let named = std::iter::once(program).chain(words.iter().skip(1).map(String::as_str));
            named.take(tool.0.len()).eq(tool.0.iter().copied())
        };
        let known = TOOLS.iter().find(is_tool).map(|(_, code)| *code);
        Ok(Self {
            // 0 means yes, as for kured's `--reboot-sentinel-command`.
            yes: yes.or(known).unwrap_or(0),
            words,
        })
    }
}

impl fmt::Display for SentinelCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

impl SentinelCommand {
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// What an exit code means; `None` if it is neither yes nor no.
    pub(super) fn answer(&self, code: i32) -> Option<Answer> {
        let no = i32::from(self.yes == 0);
        if code == i32::from(self.yes) {
            Some(Answer::Needed { since: None })
        } else {
            (code == no).then_some(Answer::NotNeeded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> SentinelCommand {
        text.parse().unwrap()
    }

    #[test]
    fn the_tools_of_fedora_and_suse_are_known_by_name() {
        let yes = |text| command(text).yes;
        assert_eq!(yes("needs-restarting -r"), 1);
        assert_eq!(yes("/usr/bin/needs-restarting --reboothint"), 1);
        assert_eq!(yes("dnf needs-restarting -r"), 1);
        assert_eq!(yes("zypper needs-rebooting"), 102);
        assert_eq!(yes("zypper ps"), 0);
        assert_eq!(yes("test -f /var/run/reboot-required"), 0);
        assert_eq!(yes("7:needs-restarting -r"), 7);
        assert_eq!(
            command("102: zypper  needs-rebooting").to_string(),
            "zypper needs-rebooting"
        );
    }

    #[test]
    fn an_exit_code_that_means_neither_yes_nor_no_is_no_answer() {
        let needed = Some(Answer::Needed { since: None });
        let kured = command("test -f /x");
        assert_eq!(
            [0, 1, 2].map(|code| kured.answer(code)),
            [needed, Some(Answer::NotNeeded), None]
        );
        let suse = command("zypper needs-rebooting");
        assert_eq!(
            [102, 0, 1, 127].map(|code| suse.answer(code)),
            [needed, Some(Answer::NotNeeded), None, None]
        );
    }

    #[test]
    fn a_command_without_a_program_is_refused() {
        assert_eq!("".parse::<SentinelCommand>(), Err(BadCommand::Empty));
        assert_eq!("1: ".parse::<SentinelCommand>(), Err(BadCommand::Empty));
        assert_eq!(
            "300:x".parse::<SentinelCommand>(),
            Err(BadCommand::Code("300".to_owned()))
        );
        assert_eq!(command("a:b c").words(), ["a:b", "c"]);
    }
}
