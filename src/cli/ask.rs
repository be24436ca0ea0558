//! Asks channels and registries, for the commands that read Plans from files.
//!
//! A credential is given for a host, and goes to no other: the files may name any.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use futures::StreamExt as _;

use crate::channel::{Access, Ask, ChannelClient, ChannelError, Credentials, DockerConfig, Offer, host};
use crate::controller::client::AGENT;
use crate::proxy::ProxyEnv;

/// How many channels are asked side by side.
const AT_ONCE: usize = 8;
/// Where the token for GitHub is, in GitHub Actions and for its own tools.
const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
const GITHUB: &str = "github.com";

/// How channels are asked.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Channels")]
pub(super) struct Asking {
    /// PEM file of certificate authorities to trust beside the public ones. May be repeated
    #[arg(long, value_name = "FILE")]
    ca_file: Vec<PathBuf>,

    /// File with the token for the channels of a host, sent to no other. May be repeated. For github.com `GITHUB_TOKEN` is
    /// used where it is set
    #[arg(long, value_name = "HOST=FILE", value_parser = token_file)]
    token_file: Vec<(String, PathBuf)>,

    /// Docker's configuration with logins for registries [default: config.json in `DOCKER_CONFIG` or ~/.docker, if it is there]
    #[arg(long, value_name = "FILE")]
    registry_config: Option<PathBuf>,
}

fn token_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((host, file)) if !host.is_empty() && !host.contains('/') && !file.is_empty() => {
            Ok((host.to_ascii_lowercase(), file.into()))
        }
        _ => Err("write HOST=FILE, such as git.example.com=token.txt".to_owned()),
    }
}

/// What each channel said, or why nothing.
pub(super) type Answers = BTreeMap<String, Result<Offer, ChannelError>>;
/// The digest of each image, or why there is none.
pub(super) type Digests = BTreeMap<String, Result<String, ChannelError>>;

/// Who asks, and with what.
struct Asker {
    client: ChannelClient,
    tokens: BTreeMap<String, String>,
    pull: Vec<DockerConfig>,
    runtime: tokio::runtime::Runtime,
}

impl Asking {
    /// Asks each channel once. `HTTPS_PROXY` and the like are heeded.
    pub(super) fn ask(&self, channels: BTreeSet<String>) -> anyhow::Result<Answers> {
        if channels.is_empty() {
            return Ok(Answers::new());
        }
        let asker = self.asker()?;
        let questions = channels.into_iter().map(|channel| {
            let (client, access) = (asker.client.clone(), asker.access(&channel));
            async move {
                let ask = Ask {
                    url: &channel,
                    latest_version: None,
                    access: &access,
                };
                let answer = client.offer(ask).await;
                (channel, answer)
            }
        });
        let answers = futures::stream::iter(questions)
            .buffer_unordered(AT_ONCE)
            .collect();
        let answers = asker.runtime.block_on(answers);
        // A name that is still being looked up is not waited for.
        asker.runtime.shutdown_background();
        Ok(answers)
    }

    /// Asks for the digest of each image once.
    pub(super) fn digests(&self, images: BTreeSet<String>) -> anyhow::Result<Digests> {
        if images.is_empty() {
            return Ok(Digests::new());
        }
        let asker = self.asker()?;
        let access = Access {
            pull: asker.pull.clone(),
            ..Access::default()
        };
        let questions = images.into_iter().map(|image| {
            let (client, access) = (asker.client.clone(), access.clone());
            async move {
                let digest = client.digest(&image, &access).await;
                (image, digest)
            }
        });
        let digests = futures::stream::iter(questions)
            .buffer_unordered(AT_ONCE)
            .collect();
        let digests = asker.runtime.block_on(digests);
        asker.runtime.shutdown_background();
        Ok(digests)
    }

    fn asker(&self) -> anyhow::Result<Asker> {
        let proxies = ProxyEnv::read(|name| std::env::var(name).ok())?;
        let mut tokens = BTreeMap::new();
        let github = std::env::var(GITHUB_TOKEN)
            .ok()
            .map(|token| token.trim().to_owned());
        if let Some(token) = github.filter(|token| !token.is_empty()) {
            tokens.insert(GITHUB.to_owned(), token);
        }
        for (host, file) in &self.token_file {
            let token = std::fs::read_to_string(file)
                .with_context(|| format!("{} cannot be read", file.display()))?;
            let token = token.trim().to_owned();
            if token.is_empty() {
                return Err(anyhow!(
                    "{} is empty: it is to hold the token for {host}",
                    file.display()
                ));
            }
            tokens.insert(host.clone(), token);
        }
        Ok(Asker {
            client: ChannelClient::new(&self.ca_file, "", AGENT, proxies)?,
            tokens,
            pull: self.logins()?.into_iter().collect(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("the runtime cannot be started")?,
        })
    }

    fn logins(&self) -> anyhow::Result<Option<DockerConfig>> {
        let read = |path: &Path| {
            let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
            DockerConfig::parse(&text).map_err(|why| anyhow!("{}: {why}", path.display()))
        };
        if let Some(path) = &self.registry_config {
            return read(path).map(Some);
        }
        let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")));
        // One that nobody has named may be anything, or not for us to read.
        Ok(folder.and_then(|folder| read(&folder.join("config.json")).ok()))
    }
}

impl Asker {
    fn access(&self, channel: &str) -> Access {
        let token = host(channel).and_then(|host| self.tokens.get(&host));
        Access {
            credentials: token.cloned().map(Credentials::Bearer),
            ca: None,
            pull: self.pull.clone(),
        }
    }
}
