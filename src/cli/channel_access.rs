//! Queries channels and registries for the commands that read Plans from files.
//!
//! A credential belongs to a host and is sent to no other, because a file may name any host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use futures::StreamExt as _;

use super::cluster::runtime;
use refit_api::image::ImageAnswer;
use refit_base::proxy::ProxyEnv;
use refit_base::version::Offer;
use refit_channel::hosts::{CHANNEL_HOST, HostPattern, hosts};
use refit_channel::{
    Access, ChannelClient, ChannelError, ChannelRequest, Credentials, DockerConfig, host, list_of,
};
use refit_cluster::kube::client::AGENT;
use refit_offline::gitops::Finding;
use refit_offline::gitops::check::ImageAtVersion;

/// Maximum number of channels queried at a time.
const MAX_CONCURRENT: usize = 8;
/// Variable with the token for GitHub, set by GitHub Actions and read by GitHub's own tools.
const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
const GITHUB: &str = "github.com";

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Channels")]
pub(super) struct ChannelFlags {
    /// PEM file of certificate authorities to trust in addition to the public ones. May be repeated
    #[arg(long, value_name = "FILE")]
    ca_file: Vec<PathBuf>,

    /// File with the token for the channels of a host, sent to no other. May be repeated. For github.com,
    /// `GITHUB_TOKEN` is used if it is set
    #[arg(long, value_name = "HOST=FILE", value_parser = token_file)]
    token_file: Vec<(String, PathBuf)>,

    /// Host that channels and their redirects may point to, such as update.k3s.io or *.example.com, and no other. May
    /// be repeated [env: `REFIT_CHANNEL_HOST`, separated by ','] [default: all except for link-local addresses and
    /// metadata services of clouds]
    #[arg(long, value_name = "HOST")]
    channel_host: Vec<HostPattern>,

    /// Docker's configuration with logins for registries [default: config.json in `DOCKER_CONFIG` or ~/.docker, if it
    /// is there]
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

/// The response of each channel.
pub(super) type Offers = BTreeMap<String, Result<Offer, ChannelError>>;
/// The digest of each image.
pub(super) type Digests = BTreeMap<String, Result<String, ChannelError>>;
/// What the registry of each image says, if it may be asked.
pub(super) type Images = BTreeMap<String, ImageAnswer>;

struct ChannelAccess {
    client: ChannelClient,
    tokens: BTreeMap<String, String>,
    pull: Vec<DockerConfig>,
    runtime: tokio::runtime::Runtime,
}

impl ChannelFlags {
    /// Queries each channel once, through the proxies in `HTTPS_PROXY` and the like.
    pub(super) fn ask(&self, channels: BTreeSet<String>) -> anyhow::Result<Offers> {
        if channels.is_empty() {
            return Ok(Offers::new());
        }
        let asker = self.asker()?;
        let questions = channels.into_iter().map(|channel| {
            let (client, access) = (asker.client.clone(), asker.access(&channel));
            async move {
                let ask = ChannelRequest {
                    url: &channel,
                    latest_version: None,
                    access: &access,
                };
                let mut answer = client.offer(ask).await;
                if let Err(error) = &answer
                    && let Some(list) = list_of(&channel, error)
                {
                    // A server that has no list keeps its first answer.
                    let names = client.offer(ChannelRequest { url: &list, ..ask }).await;
                    if let Err(ChannelError::NoChannel { .. } | ChannelError::NoName(_)) = names {
                        answer = names;
                    }
                }
                (channel, answer)
            }
        });
        let answers = futures::stream::iter(questions)
            .buffer_unordered(MAX_CONCURRENT)
            .collect();
        let answers = asker.runtime.block_on(answers);
        // A name resolution that hangs on its thread would delay the exit.
        asker.runtime.shutdown_background();
        Ok(answers)
    }

    /// Queries the digest of each image once.
    pub(super) fn digests(&self, images: BTreeSet<String>) -> anyhow::Result<Digests> {
        self.ask_registries(images, false)
    }

    /// Asks once for each image whether it exists.
    pub(super) fn look_up(&self, images: BTreeSet<String>) -> anyhow::Result<Images> {
        let digests = self.ask_registries(images, true)?.into_iter();
        let answers = digests.filter_map(|(image, digest)| {
            let answer = match digest {
                Ok(digest) => ImageAnswer::Found(digest),
                // Whoever allows only some hosts knows that others are not asked.
                Err(ChannelError::HostNotAllowed(_)) => return None,
                Err(error) => error.about_image(),
            };
            Some((image, answer))
        });
        Ok(answers.collect())
    }

    /// Asks for each of these images whether it exists: the findings about those that do not, and why a registry does not
    /// say it.
    pub(super) fn missing(&self, images: &[ImageAtVersion]) -> anyhow::Result<(Vec<Finding>, Vec<String>)> {
        let names = images.iter().map(|image| image.image.clone()).collect();
        let found = self.look_up(names)?;
        let unknown = found.iter().filter_map(|(image, answer)| match answer {
            ImageAnswer::Unknown(why) => Some(format!(
                "refit cannot ask the registry whether image {image} exists: {why}"
            )),
            ImageAnswer::Found(_) | ImageAnswer::Missing(_) => None,
        });
        let missing = images.iter().filter_map(|image| match found.get(&image.image)? {
            ImageAnswer::Missing(answer) => Some(image.missing(answer)),
            ImageAnswer::Found(_) | ImageAnswer::Unknown(_) => None,
        });
        Ok((missing.collect(), unknown.collect()))
    }

    fn ask_registries(&self, images: BTreeSet<String>, briefly: bool) -> anyhow::Result<Digests> {
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
                let digest = if briefly {
                    client.look_up(&image, &access).await
                } else {
                    client.digest(&image, &access).await
                };
                (image, digest)
            }
        });
        let digests = futures::stream::iter(questions)
            .buffer_unordered(MAX_CONCURRENT)
            .collect();
        let digests = asker.runtime.block_on(digests);
        asker.runtime.shutdown_background();
        Ok(digests)
    }

    fn asker(&self) -> anyhow::Result<ChannelAccess> {
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
                    "{} is empty; write the token for {host} into it",
                    file.display()
                ));
            }
            tokens.insert(host.clone(), token);
        }
        let variable = std::env::var(CHANNEL_HOST).ok();
        let hosts = hosts(&self.channel_host, variable.as_deref())
            .map_err(|allowed| anyhow!("{CHANNEL_HOST}: each host {allowed}"))?;
        Ok(ChannelAccess {
            client: ChannelClient::new(&self.ca_file, "", AGENT, proxies, hosts)?,
            tokens,
            pull: self.logins()?.into_iter().collect(),
            runtime: runtime()?,
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
        // The default file may be unreadable or have another format, so only a file that a flag names must be valid.
        Ok(folder.and_then(|folder| read(&folder.join("config.json")).ok()))
    }
}

impl ChannelAccess {
    fn access(&self, channel: &str) -> Access {
        let token = host(channel).and_then(|host| self.tokens.get(&host));
        Access {
            identity: None,
            credentials: token.cloned().map(Credentials::Bearer),
            ca: None,
            pull: self.pull.clone(),
        }
    }
}
