//! A command line that someone wrote where a list of arguments belongs.

/// What runs the text that stands for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gitops::check) enum Runs {
    /// The text is a whole command line.
    Line,
    /// A shell with a flag such as `-c`: the text is its script.
    Script,
    /// A shell without arguments.
    Shell,
    /// A program that may not be a shell.
    Arguments,
}

/// The list of arguments in a text.
pub(super) fn arguments(text: &str, runs: Runs) -> Option<Vec<String>> {
    if runs == Runs::Shell {
        return if text.starts_with('-') {
            let mut words = words(&format!("sh {text}"))?;
            (words.remove(0) == "sh").then_some(words)
        } else if needs_shell(text) {
            Some(["-c", text.trim_end()].map(str::to_owned).to_vec())
        } else {
            // `sh echo hi` looks for a file `echo`.
            shlex::split(text).filter(|words| words.first().is_some_and(|word| word.contains('/')))
        };
    }
    // Nothing says that a shell reads them.
    if needs_shell(text) {
        return None;
    }
    let mut words = shlex::split(text).filter(|words| !words.is_empty())?;
    // `a, b` is a list without brackets; `a,b` may be one value.
    if let Some((_, others)) = words.split_last_mut()
        && !others.is_empty()
        && others.iter().all(|word| word.ends_with(','))
    {
        for word in others {
            word.pop();
        }
    }
    let may_be_list = words.len() == 1 && words[0].contains(',') && !words[0].contains('=');
    (!may_be_list).then_some(words)
}

/// Splits a command line as a shell would: a Plan's command is not read by a shell.
pub(in crate::gitops::check) fn words(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(line)?;
    let first = words.first()?;
    let is_shell = is_shell(first);
    let script = words.iter().position(|word| is_script_flag(word));
    let is_quoted = line.contains(['"', '\'', '\\']);
    match script {
        // `sh -c echo hi` was not meant to run `echo` without arguments.
        Some(at) if is_shell && !is_quoted => {
            let mut words = words[..=at].to_vec();
            let (_, script) = line.split_once(&words[at])?;
            // The script may be in the arguments.
            words.extend(Some(script.trim().to_owned()).filter(|script| !script.is_empty()));
            Some(words)
        }
        _ => {
            // A shell reads the text after its script flag as a script. No shell reads the other words.
            let beside = match script.and_then(|at| words.get(at + 2..)) {
                Some(beside) if is_shell => beside.join(" "),
                _ => line.to_owned(),
            };
            Some(if needs_shell(&beside) {
                ["/bin/sh", "-c", line.trim_end()].map(str::to_owned).to_vec()
            } else {
                words
            })
        }
    }
}

/// Whether the word is a shell flag before a script: `-c`, `-euc`.
pub(in crate::gitops::check) fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

pub(in crate::gitops::check) fn is_shell(program: &str) -> bool {
    matches!(
        program.rsplit('/').next(),
        Some("sh" | "bash" | "ash" | "dash" | "zsh")
    )
}

/// Whether the line uses shell syntax. `$(NAME)` is expanded by Kubernetes.
fn needs_shell(line: &str) -> bool {
    const BUILTINS: [&str; 16] = [
        "cd", "export", "set", "unset", "source", ".", "eval", "exec", "trap", "ulimit", "umask", "alias",
        "if", "for", "while", "until",
    ];
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_assignment = first.split_once('=').is_some_and(|(name, _)| is_variable(name));
    let has_home = line
        .split_whitespace()
        .any(|word| word == "~" || word.starts_with("~/"));
    let braces = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let is_brace = braces.is_some_and(|(inner, _)| inner.contains(',') && !inner.contains([':', '"']));
    // Kubernetes replaces names, not commands.
    let mut replaced = line.split("$(").skip(1).filter_map(|rest| rest.split(')').next());
    if replaced.any(|name| name.contains(' ')) {
        return true;
    }
    if BUILTINS.contains(&first) || is_assignment || has_home || is_brace {
        return true;
    }
    let without = line.replace("$(", "");
    let is_own = line.contains("$(") && !without.contains(['|', '&', ';', '<', '>', '$', '`', '*', '\n']);
    !is_own && line.contains(['|', '&', ';', '<', '>', '$', '`', '*', '\n'])
}

pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}
