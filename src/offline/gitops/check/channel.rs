//! The channel of a Plan in a file: URLs that give no version, and what a caller may query.

use jiff::Timestamp;

use super::subject::Subject;
use crate::gitops::finding::Finding;
use crate::gitops::pin::{Verdict, decide_version};
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::rule::Rule;
use refit_api::{PlanSpec, redacted};
use refit_base::nearest::nearest;
use refit_base::version::policy::{Offered, Policy};
use refit_base::version::{Offer, Version, distribution_of};
use refit_channel::check_url;

/// Host and path of a channel server, before the name of a channel.
const CHANNELS: &str = "v1-release/channels";
/// Channels of K3s and RKE2 that have no version in their names.
const NAMES: [&str; 3] = ["stable", "latest", "testing"];

#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    pub url: String,
    /// The request needs a Secret, which exists only on the cluster.
    pub with_secret: bool,
    /// The distribution that the Plan's image installs.
    pub(super) program: Option<&'static str>,
    /// The range that limits the channel of a Plan without a version.
    pub(super) policy: Option<Policy>,
    /// The finding for an unreachable channel, without the cause. `None` if its rule is switched off.
    pub(super) finding: Option<Finding>,
}

impl Channel {
    /// Why the Plan takes none of these versions.
    pub fn refusal(&self, offer: &Offer, now: Timestamp) -> Option<String> {
        let newest = offer.newest()?;
        let why = self.other_distribution(&newest.version);
        why.or_else(|| {
            let (policy, offered) = (self.policy.as_ref()?, Offered::from(offer));
            match decide_version(None, self.program, &offered, policy, now) {
                Verdict::Kept(why) => Some(why),
                Verdict::Refused(why) => Some(why.to_string()),
                Verdict::Same | Verdict::Take(_) => None,
            }
        })
    }

    fn other_distribution(&self, version: &str) -> Option<String> {
        let program = self.program?;
        let version = version.parse::<Version>().ok()?;
        let builder = version.builder()?;
        (builder != program).then(|| {
            format!(
                "{} is a version of {builder}, and the image installs {program}",
                version.text()
            )
        })
    }

    /// The finding for a channel that gives no version.
    pub fn unreachable(&self, why: &str) -> Option<Finding> {
        let mut finding = self.finding.clone()?;
        finding.message = format!("spec.channel gives no version: {why}");
        Some(finding)
    }
}

impl Subject<'_> {
    /// Reports a channel that the controller cannot ask, or that gives no version.
    pub(super) fn check_channel(&mut self, spec: &PlanSpec) {
        const FIELD: &str = "spec.channel";
        let Some(url) = spec.channel.as_deref().filter(|url| !url.is_empty()) else {
            return;
        };
        if is_placeholder(url) {
            self.report_placeholder_text(FIELD, url);
            return;
        }
        if url.trim() != url {
            let message =
                format!("{FIELD} is {url:?}; the space belongs to the URL, which the server does not know");
            let hint = format!("write `{}`", url.trim());
            self.report(Rule::BadChannel, FIELD, message, Some(hint));
            return;
        }
        let meant = meant(url);
        let (rule, message) = match check_url(url) {
            Err(error) => (Rule::BadChannel, format!("{FIELD}: {error}")),
            Ok(()) if meant.is_some() => {
                let message = format!("{FIELD} is {:?}, which gives no version", redacted(url));
                (Rule::NoRelease, message)
            }
            Ok(()) => return,
        };
        let hint = match meant {
            Some(url) => format!("write `{url}`"),
            None => "write a URL such as `https://update.k3s.io/v1-release/channels/stable`".to_owned(),
        };
        self.report(rule, FIELD, message, Some(hint));
    }

    pub(super) fn channel(&self) -> Option<Channel> {
        let text = |field: &str| self.text(field).filter(|text| !text.is_empty());
        let url = text("spec.channel").filter(|url| !is_placeholder(url))?;
        // A Plan with both keeps a channel for `refit pin`, which queries it to update the version.
        let has_version = text("spec.version").is_some() || self.is_refused("spec.version", None);
        let hint = if has_version {
            "the Plan stays at its version: refit pin cannot tell whether there is a newer one"
        } else {
            "without a version no node is started, and the next ones wait until the channel answers"
        };
        Some(Channel {
            url: url.to_owned(),
            program: text("spec.upgrade.image").and_then(distribution_of),
            policy: self.node("spec.versionPolicy.range").and_then(|range| {
                let range = range.text()?.parse().ok()?;
                (!has_version).then(|| Policy {
                    range: Some(range),
                    ..Policy::default()
                })
            }),
            with_secret: self.has("spec.channelSecretRef") || self.has("spec.channelCASecretRef"),
            finding: self.finding(
                Rule::ChannelUnreachable,
                self.offset("spec.channel"),
                Some("spec.channel"),
                String::new(),
                Some(hint.to_owned()),
            ),
        })
    }
}

/// The channel that is meant by a page, a script or a repository of a known site, or by a URL without its scheme or with two.
/// `None` for a URL that may give a version.
fn meant(url: &str) -> Option<String> {
    let rest = url.rsplit_once("://").map_or(url, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.to_ascii_lowercase();
    let schemes = url.matches("://").count();
    let is_page = schemes != 1 || url.starts_with("http");
    // A path such as `./channel.txt` is no host.
    let is_host = host.contains('.') && host.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !is_page || !is_host || url.contains(char::is_whitespace) {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let stable = |program: &str| Some(format!("https://update.{program}.io/{CHANNELS}/stable"));
    let found = match (host.trim_start_matches("www."), segments.as_slice()) {
        // GitHub redirects this page to the newest release, whose last path segment is the version.
        ("github.com", [_, _, "releases", "latest"]) => None,
        ("github.com", [owner, name, ..]) => {
            Some(format!("github://{owner}/{}", name.trim_end_matches(".git")))
        }
        ("docker.io" | "ghcr.io" | "quay.io" | "registry.k8s.io", [_, ..]) => {
            let path = path.trim_end_matches('/').split([':', '@']).next();
            Some(format!("oci://{host}/{}", path.unwrap_or_default()))
        }
        ("update.k3s.io" | "update.rke2.io", _) if path.starts_with(CHANNELS) => {
            // The list of channels, with the ID of one of them as the fragment, or one of its own.
            let name = path[CHANNELS.len()..].trim_matches('/');
            let is_list = name.is_empty() || name == "#";
            let near = if is_list {
                Some("stable".to_owned())
            } else {
                meant_name(name)
            };
            near.map(|near| format!("https://{host}/{CHANNELS}/{near}"))
        }
        ("get.k3s.io" | "update.k3s.io", _) => stable("k3s"),
        ("get.rke2.io" | "update.rke2.io", _) => stable("rke2"),
        _ => None,
    };
    let with_scheme = || (schemes != 1).then(|| format!("https://{rest}"));
    found
        .or_else(with_scheme)
        .filter(|meant| check_url(meant).is_ok())
}

/// The channel of K3s or RKE2 that is meant by `stabel`, `1.34` or `v1.34.2`. `None` for a name that a channel may have.
fn meant_name(name: &str) -> Option<String> {
    if NAMES.contains(&name) || name.starts_with('#') {
        return None;
    }
    if let Some(near) = nearest(name, NAMES) {
        return Some(near.to_owned());
    }
    let version: Version = name.parse().ok()?;
    let minor = format!("v{}.{}", version.major(), version.minor()?);
    (name != minor && !name.starts_with(&format!("{minor}-"))).then_some(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_suggested_for_a_url_without_a_version() {
        let stable = "https://update.k3s.io/v1-release/channels/stable";
        let rke2 = "https://update.rke2.io/v1-release/channels/stable";
        for (url, channel) in [
            ("update.k3s.io/v1-release/channels/stable", stable),
            ("https://update.k3s.io", stable),
            ("https://update.k3s.io/v1-release/channels", stable),
            ("https://update.k3s.io/v1-release/channels#", stable),
            ("https://update.k3s.io/v1-release/channel/stable", stable),
            ("https://https://update.k3s.io/v1-release/channels/stable", stable),
            ("https://update.k3s.io/v1-release/channels/stabel", stable),
            (
                "https://update.rke2.io/v1-release/channels/1.34",
                "https://update.rke2.io/v1-release/channels/v1.34",
            ),
            ("https://get.k3s.io", stable),
            ("https://get.rke2.io/", rke2),
            ("https://github.com/k3s-io/k3s", "github://k3s-io/k3s"),
            ("https://github.com/k3s-io/k3s.git", "github://k3s-io/k3s"),
            ("https://github.com/k3s-io/k3s/releases", "github://k3s-io/k3s"),
            ("github.com/k3s-io/k3s", "github://k3s-io/k3s"),
            (
                "docker.io/rancher/k3s-upgrade:v1",
                "oci://docker.io/rancher/k3s-upgrade",
            ),
            (
                "channels.example.com/stable",
                "https://channels.example.com/stable",
            ),
        ] {
            assert_eq!(meant(url).as_deref(), Some(channel), "{url}");
            assert_eq!(meant(channel), None, "{channel}");
        }
        for url in [
            "https://update.k3s.io/v1-release/channels/v1.34",
            "https://update.k3s.io/v1-release/channels#v1.34",
            "http://update.k3s.io/v1-release/channels/stable/",
            "https://github.com/k3s-io/k3s/releases/latest",
            "http://127.0.0.1:8080/stable",
            "./channel.txt",
            "../channels/stable",
            "oci://ghcr.io/a/b",
            "ftp://a/b",
            "stable",
            "a word",
        ] {
            assert_eq!(meant(url), None, "{url}");
        }
    }
}
