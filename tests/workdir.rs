//! A folder with files in which a test runs the program, and the result of a run.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A folder that is removed with its value.
pub(crate) struct Workdir(tempfile::TempDir);

impl Workdir {
    pub(crate) fn new<const N: usize>(files: [(&str, &str); N]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// `refit` with the arguments of a line, in this folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        command_in(self.path(), line)
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_with(line, &[], "")
    }

    /// Runs the program with more environment variables and this standard input.
    pub(crate) fn run_with(&self, line: &str, variables: &[(&str, &str)], input: &str) -> Ran {
        let mut command = self.command(line);
        command.envs(variables.iter().copied());
        Ran::of(line, command, input)
    }
}

/// Runs the program in a folder of the repository.
pub(crate) fn run_in(folder: &Path, line: &str) -> Ran {
    Ran::of(line, command_in(folder, line), "")
}

/// `refit` with the arguments of a line, which is split as a shell does, without the variables of this process that would
/// change its result.
fn command_in(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command.current_dir(folder).args(shlex::split(line).expect(line));
    let prefixes = [
        "SYSTEM_UPGRADE_",
        "REFIT_",
        "KUBE",
        "HTTP",
        "http",
        "NO_PROXY",
        "no_proxy",
        "GITHUB_",
    ];
    for (name, _) in std::env::vars() {
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    // Images of the tests' Plans are in registries on the internet, which no test asks.
    command.env("REFIT_CHANNEL_HOST", "127.0.0.1");
    command
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The arguments, for messages.
    line: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The methods that check a result fail with all of it, and return it for the next check.
impl Ran {
    fn of(line: &str, mut command: Command, input: &str) -> Self {
        let streams = command.stdin(Stdio::piped());
        let streams = streams.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        // A process that does not read its input reports that in other ways.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Self {
            line: line.to_owned(),
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Standard output is exactly this.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert_eq!(self.out, text, "refit {}: {}", self.line, self.err);
        self
    }

    /// Standard error is exactly this.
    #[track_caller]
    pub(crate) fn reports(self, text: &str) -> Self {
        assert_eq!(self.err, text, "refit {}: {}", self.line, self.out);
        self
    }

    #[track_caller]
    pub(crate) fn out_has(self, text: &str) -> Self {
        assert!(self.out.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn out_lacks(self, text: &str) -> Self {
        assert!(!self.out.contains(text), "{text:?} is in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn out_starts(self, text: &str) -> Self {
        assert!(self.out.starts_with(text), "{text:?} does not begin {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn err_has(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn err_lacks(self, text: &str) -> Self {
        assert!(!self.err.contains(text), "{text:?} is in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn err_starts(self, text: &str) -> Self {
        assert!(self.err.starts_with(text), "{text:?} does not begin {self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The last line of standard output.
    pub(crate) fn last_line(&self) -> &str {
        self.out.lines().last().unwrap_or_default()
    }
}
