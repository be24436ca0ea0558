//! Asks channels, for the commands that read Plans from files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;

use crate::channel::{ChannelClient, ChannelError};
use crate::controller::client::AGENT;
use crate::proxy::ProxyEnv;

/// How many channels are asked side by side.
const AT_ONCE: usize = 8;

/// How channels are asked.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Channels")]
pub(super) struct Asking {
    /// PEM file of certificate authorities to trust beside the public ones. May be repeated
    #[arg(long, value_name = "FILE")]
    ca_file: Vec<PathBuf>,
}

/// What each channel said: the version as it was released, or why there is none.
pub(super) type Answers = BTreeMap<String, Result<String, ChannelError>>;

impl Asking {
    /// Asks each channel once. `HTTPS_PROXY` and the like are heeded.
    pub(super) fn ask(&self, channels: BTreeSet<String>) -> anyhow::Result<Answers> {
        if channels.is_empty() {
            return Ok(Answers::new());
        }
        let proxies = ProxyEnv::read(|name| std::env::var(name).ok())?;
        let client = ChannelClient::new(&self.ca_file, "", AGENT, proxies)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the runtime cannot be started")?;
        let answers = runtime.block_on(
            futures::stream::iter(channels)
                .map(|channel| {
                    let client = client.clone();
                    async move {
                        let answer = client.release(&channel, None).await;
                        (channel, answer)
                    }
                })
                .buffer_unordered(AT_ONCE)
                .collect(),
        );
        // A name that is still being looked up is not waited for.
        runtime.shutdown_background();
        Ok(answers)
    }
}
