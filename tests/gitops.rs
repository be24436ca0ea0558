//! Plans in files: what `refit validate` finds in them, what `refit pin` writes into them, what `refit render` makes of
//! them. None of it needs a cluster.

mod corpus;
mod generated;
mod killed;
mod pin;
mod render;
mod server;
mod validate;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refit::gitops::Source;

/// The folder with the files of these tests.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/gitops")
        .join(name)
}

/// The files of a folder, sorted, with their texts.
fn files(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn source(name: &str, text: &str) -> Source {
    Source::new(name, Some(Path::new(name)), text.to_owned())
}

/// Runs the program itself, in a folder, with nothing of this process' environment that it would heed.
fn refit(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command.current_dir(folder).args(arguments);
    for (name, _) in std::env::vars() {
        let heeded = [
            "SYSTEM_UPGRADE_",
            "REFIT_",
            "KUBE",
            "HTTP",
            "http",
            "NO_PROXY",
            "no_proxy",
        ];
        if heeded.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
