//! What the commands for the node side have in common: where the host is, and the message that their container leaves.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::output;

/// The message of the container.
#[derive(Args, Clone, Debug)]
pub(super) struct Message {
    /// File for the container's termination message; where there is none, it is not written
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    message_file: PathBuf,
}

/// A file that was opened while it could be seen.
pub(super) struct OpenMessage(Option<std::fs::File>, PathBuf);

impl Message {
    /// Opens the file, which is not made: a kubelet does, and elsewhere nobody would read it.
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
    /// Leaves the message.
    pub(super) fn write(self, text: &str) -> anyhow::Result<()> {
        let Self(Some(mut file), path) = self else {
            return Ok(());
        };
        file.write_all(text.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}

/// The host as it is mounted.
pub(super) fn mounted(dir: &Path) -> anyhow::Result<crate::node::Host> {
    Ok(crate::node::Host::open(dir)?)
}

/// Says several things that went wrong.
pub(super) fn errors(sentences: &[String]) {
    sentences.iter().for_each(output::error);
}
