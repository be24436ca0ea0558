//! `refit completion`: prints what a shell completes the commands and flags with.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use super::output;

pub(super) const EXAMPLES: &str = "\
Examples:
  # for this session of bash
  source <(refit completion bash)

  # for every session: bash, zsh (a folder of $fpath) and fish
  refit completion bash > /etc/bash_completion.d/refit
  refit completion zsh > \"${fpath[1]}/_refit\"
  refit completion fish > ~/.config/fish/completions/refit.fish";

#[derive(Args, Debug)]
pub(super) struct Flags {
    /// Shell to complete for
    shell: Shell,
}

/// What completes Plans and nodes, behind the script that completes commands and options.
fn objects(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    }
}

const BASH: &str = r#"
# Plans and nodes, which only the cluster knows.
_refit_objects() {
    _refit "$@"
    local current="${COMP_WORDS[COMP_CWORD]}" found
    [[ $current == -* ]] && return 0
    found=$(refit __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n $found ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$found" -- "$current")
    fi
}
complete -F _refit_objects -o bashdefault -o default refit
"#;

const ZSH: &str = r#"
# Plans and nodes, which only the cluster knows.
_refit_objects() {
    local -a found
    if [[ ${words[CURRENT]} != -* ]]; then
        found=(${(f)"$(refit __complete ${(@)words[2,CURRENT]} 2>/dev/null)"})
        if (( $#found )); then
            compadd -a found
            return
        fi
    fi
    _refit "$@"
}
compdef _refit_objects refit
"#;

const FISH: &str = r"
# Plans and nodes, which only the cluster knows.
complete -c refit -n '__fish_seen_subcommand_from status explain report suspend resume approve retry skip abort rerun' -f -a '(refit __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
";

pub(super) fn run(flags: &Flags, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut command, "refit", &mut script);
    let script = String::from_utf8(script).context("the completion script is not text")?;
    let script = script + objects(flags.shell);
    output::data(&script).context("the completion script cannot be printed")?;
    Ok(ExitCode::SUCCESS)
}
