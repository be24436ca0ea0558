//! Common parts of the commands that run on a node: the host's files and the termination message.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::output;

#[derive(Args, Clone, Debug)]
pub(super) struct Message {
    /// File for the container's termination message; if it does not exist, the message is only printed
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    message_file: PathBuf,
}

/// A file that was opened before the mount namespace changed.
pub(super) struct OpenMessage(Option<std::fs::File>, PathBuf);

impl Message {
    /// Opens the file without creating it: a kubelet creates it, and elsewhere nothing would read it.
    pub(super) fn open(&self) -> anyhow::Result<OpenMessage> {
        let path = &self.message_file;
        match std::fs::File::options().write(true).truncate(true).open(path) {
            Ok(file) => Ok(OpenMessage(Some(file), path.clone())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(OpenMessage(None, path.clone())),
            Err(error) => Err(error).with_context(|| format!("{} cannot be written", path.display())),
        }
    }
}

impl OpenMessage {
    pub(super) fn write(self, text: &str) -> anyhow::Result<()> {
        let Self(Some(mut file), path) = self else {
            return Ok(());
        };
        file.write_all(text.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}

pub(super) fn mounted(dir: &Path) -> anyhow::Result<refit_cluster::node::Host> {
    Ok(refit_cluster::node::Host::open(dir)?)
}

pub(super) fn errors(sentences: &[String]) {
    sentences.iter().for_each(output::error);
}
