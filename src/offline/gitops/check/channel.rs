//! The channel of a Plan in a file: URLs that give no version, and what a caller may query.

use jiff::Timestamp;

use super::Subject;
use crate::gitops::pin::{Verdict, decide_version};
use crate::gitops::placeholder::is_placeholder;
use crate::gitops::yaml::Node;
use crate::gitops::{Finding, Rule};
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
        if let Some(node) = self.node(FIELD).filter(|_| is_placeholder(url)) {
            self.report_placeholder(FIELD, node);
            return;
        }
        if url.trim() != url {
            let message =
                format!("{FIELD} is {url:?}; the space belongs to the URL, which the server does not know");
            let hint = format!("write `{}`", url.trim());
            self.report(Rule::BadChannel, FIELD, message, Some(hint));
            return;
        }
        let intended = intended(url, distribution_of(spec.upgrade_image()));
        let (rule, message) = match check_url(url) {
            Err(error) => (Rule::BadChannel, format!("{FIELD}: {error}")),
            Ok(()) if intended.is_some() => {
                let message = format!("{FIELD} is {:?}, which gives no version", redacted(url));
                (Rule::ChannelWithoutVersion, message)
            }
            Ok(()) => return,
        };
        let hint = match intended {
            Some(IntendedChannel::Channel(url)) => format!("write `{url}`"),
            Some(IntendedChannel::Version(_)) if self.has("spec.version") => {
                "remove it; version is there already".to_owned()
            }
            Some(IntendedChannel::Version(version)) => format!("write `version: {version}`"),
            None => "write a URL such as `https://update.k3s.io/v1-release/channels/stable`".to_owned(),
        };
        self.report(rule, FIELD, message, Some(hint));
    }

    pub(super) fn channel(&self) -> Option<Channel> {
        let text = |field: &str| {
            self.node(field)
                .and_then(Node::text)
                .filter(|text| !text.is_empty())
        };
        let url = text("spec.channel").filter(|url| !is_placeholder(url))?;
        // A Plan with both keeps a channel for `refit pin`, which queries it to update the version.
        let hint = if text("spec.version").is_some() {
            "the Plan stays at its version: refit pin cannot tell whether there is a newer one"
        } else {
            "without a version no node is started, and the next ones wait until the channel answers"
        };
        Some(Channel {
            url: url.to_owned(),
            program: text("spec.upgrade.image").and_then(distribution_of),
            policy: self.node("spec.versionPolicy.range").and_then(|range| {
                let range = range.text()?.parse().ok()?;
                text("spec.version").is_none().then(|| Policy {
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

/// What the author of a channel intended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IntendedChannel {
    Channel(String),
    /// It is a version, which belongs in another field.
    Version(String),
}

/// What was intended by a channel that gives no version: a word without a server, a web page, a script that installs, an
/// image. `None` for a URL that may give one.
fn intended(url: &str, program: Option<&str>) -> Option<IntendedChannel> {
    let server = |program: &str, name: &str| {
        Some(IntendedChannel::Channel(format!(
            "https://update.{program}.io/{CHANNELS}/{name}"
        )))
    };
    let channel = |url: String| Some(IntendedChannel::Channel(url));
    if !url.contains(['/', ':']) {
        let version = url.parse::<Version>().ok();
        let is_release = version
            .as_ref()
            .is_some_and(|version| version.is_semantic() || version.builder().is_some());
        if is_release {
            return Some(IntendedChannel::Version(url.to_owned()));
        }
        if NAMES.contains(&url) || version.is_some_and(|version| version.minor().is_some()) {
            let name = if NAMES.contains(&url) {
                url.to_owned()
            } else {
                format!("v{}", url.trim_start_matches(['v', 'V']))
            };
            return server(program.unwrap_or("k3s"), &name);
        }
    }
    if let Some(rest) = url.strip_prefix("github:").filter(|rest| !rest.starts_with('/')) {
        return channel(format!("github://{rest}"));
    }
    // As in `git clone`.
    if let Some(rest) = url
        .strip_prefix("git@")
        .or_else(|| url.strip_prefix("ssh://git@"))
    {
        return intended(&rest.replacen(':', "/", 1), program);
    }
    // People paste a URL behind a scheme that is there already: `https://https://…`.
    let (mut rest, mut schemes) = (url, 0);
    while let Some((scheme, after)) = rest.split_once("://") {
        if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return None;
        }
        (rest, schemes) = (after, schemes + 1);
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (path, name) = path.split_once('#').unwrap_or((path, ""));
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let host = host.to_ascii_lowercase();
    let host = host.trim_start_matches("www.");
    let repository =
        |owner: &str, name: &str| channel(format!("github://{owner}/{}", name.trim_end_matches(".git")));
    let found = match (host, segments.as_slice()) {
        // GitHub redirects this page to the newest release, whose last path segment is the version.
        ("github.com", [_, _, "releases", "latest"]) => None,
        ("update.k3s.io" | "update.rke2.io", ["v1-release", "channels", name]) => {
            let program = if host == "update.k3s.io" { "k3s" } else { "rke2" };
            meant_name(name).and_then(|name| server(program, &name))
        }
        ("github.com", [_, _, "releases", "tag", version]) => Some(IntendedChannel::Version(
            version.replace("%2B", "+").replace("%2b", "+"),
        )),
        ("github.com", [owner, name, ..]) | ("api.github.com", ["repos", owner, name, ..]) => {
            repository(owner, name)
        }
        ("hub.docker.com", ["r", owner, name, ..]) => channel(format!("oci://docker.io/{owner}/{name}")),
        ("hub.docker.com", ["_", name, ..]) => channel(format!("oci://docker.io/library/{name}")),
        ("docker.io" | "index.docker.io" | "ghcr.io" | "quay.io" | "registry.k8s.io", [_, ..]) => {
            let path = path.trim_end_matches('/').split([':', '@']).next();
            channel(format!("oci://{host}/{}", path.unwrap_or_default()))
        }
        ("get.k3s.io", _) => server("k3s", "stable"),
        ("get.rke2.io", _) => server("rke2", "stable"),
        // The list of channels, with the ID of one of them as the fragment.
        ("update.k3s.io" | "update.rke2.io", ["v1-release", "channels"]) if !name.is_empty() => None,
        ("update.k3s.io" | "update.rke2.io", segments) => {
            let is_name = |name: &&&str| NAMES.contains(*name) || name.starts_with('v') && name.contains('.');
            let name = segments.last().filter(is_name).copied().unwrap_or("stable");
            server(if host == "update.k3s.io" { "k3s" } else { "rke2" }, name)
        }
        // As browsers show it.
        _ if schemes == 0 && host.contains('.') && check_url(&format!("https://{rest}")).is_ok() => {
            channel(format!("https://{rest}"))
        }
        _ => None,
    };
    match found {
        None if schemes != 1 && host.contains('.') => channel(format!("https://{rest}")),
        found => found,
    }
}

/// What was intended by a name that no channel of K3s or RKE2 has: `stabel`, `1.34`, `v1.34.2`. `None` for a name that
/// one may have.
fn meant_name(name: &str) -> Option<String> {
    if NAMES.contains(&name) {
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
    fn the_intended_channel_is_suggested_for_a_url_without_a_version() {
        let channel = |url: &str| Some(IntendedChannel::Channel(url.to_owned()));
        let stable = "https://update.k3s.io/v1-release/channels/stable";
        for (url, meant_url) in [
            ("stable", stable),
            ("1.34", "https://update.k3s.io/v1-release/channels/v1.34"),
            ("v1.34", "https://update.k3s.io/v1-release/channels/v1.34"),
            ("update.k3s.io/v1-release/channels/stable", stable),
            ("https://update.k3s.io", stable),
            ("https://update.k3s.io/v1-release/channels", stable),
            ("https://update.k3s.io/v1-release/channels#", stable),
            ("https://update.k3s.io/v1-release/channel/stable", stable),
            ("https://update.k3s.io/v1-release/channels/stabel", stable),
            ("https://update.k3s.io/v1-release/channels/Stable", stable),
            (
                "https://update.rke2.io/v1-release/channels/1.34",
                "https://update.rke2.io/v1-release/channels/v1.34",
            ),
            (
                "https://update.k3s.io/v1-release/channels/v1.34.2+k3s1",
                "https://update.k3s.io/v1-release/channels/v1.34",
            ),
            ("https://https://update.k3s.io/v1-release/channels/stable", stable),
            ("https://get.k3s.io", stable),
            (
                "https://get.rke2.io/",
                "https://update.rke2.io/v1-release/channels/stable",
            ),
            ("https://github.com/k3s-io/k3s", "github://k3s-io/k3s"),
            ("https://github.com/k3s-io/k3s.git", "github://k3s-io/k3s"),
            ("https://github.com/k3s-io/k3s/releases", "github://k3s-io/k3s"),
            ("github.com/k3s-io/k3s", "github://k3s-io/k3s"),
            ("github:k3s-io/k3s", "github://k3s-io/k3s"),
            ("git@github.com:k3s-io/k3s.git", "github://k3s-io/k3s"),
            ("ssh://git@github.com/k3s-io/k3s.git", "github://k3s-io/k3s"),
            (
                "https://api.github.com/repos/k3s-io/k3s/releases/latest",
                "github://k3s-io/k3s",
            ),
            (
                "docker.io/rancher/k3s-upgrade:v1",
                "oci://docker.io/rancher/k3s-upgrade",
            ),
            (
                "https://hub.docker.com/r/rancher/k3s-upgrade/tags",
                "oci://docker.io/rancher/k3s-upgrade",
            ),
            (
                "channels.example.com/stable",
                "https://channels.example.com/stable",
            ),
        ] {
            assert_eq!(intended(url, None), channel(meant_url), "{url}");
            assert!(check_url(meant_url).is_ok(), "{meant_url}");
            assert_eq!(intended(meant_url, None), None, "{meant_url}");
        }
        assert_eq!(
            intended("stable", Some("rke2")),
            channel("https://update.rke2.io/v1-release/channels/stable")
        );
        for url in [
            "v1.34.2+k3s1",
            "https://github.com/k3s-io/k3s/releases/tag/v1.34.2%2Bk3s1",
        ] {
            assert_eq!(
                intended(url, None),
                Some(IntendedChannel::Version("v1.34.2+k3s1".to_owned())),
                "{url}"
            );
        }
        for url in [
            stable,
            "https://update.k3s.io/v1-release/channels/v1.34",
            "https://update.k3s.io/v1-release/channels/v1.34-testing",
            "https://update.k3s.io/v1-release/channels/own",
            "https://update.k3s.io/v1-release/channels#v1.34",
            "http://update.k3s.io/v1-release/channels/stable/",
            "https://github.com/k3s-io/k3s/releases/latest",
            "https://channels.example.com/stable",
            "http://127.0.0.1:8080/stable",
            "oci://ghcr.io/a/b",
            "ftp://a/b",
            "a word",
        ] {
            assert_eq!(intended(url, None), None, "{url}");
        }
    }
}
