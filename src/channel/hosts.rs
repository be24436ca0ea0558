//! The hosts that channels may point to. A Plan's author names any URL, and the controller can reach what the author
//! cannot: the metadata service of a cloud, which gives credentials of the machine to any client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::error::ChannelError;
pub use refit_api::check::is_loopback;

/// Names of metadata services that are not link-local.
const METADATA: [&str; 3] = ["metadata.google.internal", "metadata.goog", "metadata"];
/// Addresses of metadata services that are not link-local: of Google and of Oracle, of Alibaba, and of Azure's host.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];
/// The network of the services of AWS: metadata, time, names, and the credentials of pods.
const AWS_V6: [u8; 4] = [0xfd, 0x00, 0x0e, 0xc2];
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];

/// Environment variable with patterns, separated by commas.
pub const CHANNEL_HOST: &str = "REFIT_CHANNEL_HOST";

/// The hosts that may be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// If there is none, all hosts except for link-local ones and metadata services.
    patterns: Vec<HostPattern>,
}

/// `update.k3s.io`, or `*.example.com` for all hosts below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(String);

impl std::str::FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.trim().trim_end_matches('.').to_ascii_lowercase();
        let suffix = name.strip_prefix("*.").unwrap_or(&name);
        let is_address = suffix
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|_| suffix == name);
        let is_label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if is_address || suffix.split('.').all(is_label) {
            return Ok(Self(name.trim_matches(['[', ']']).to_owned()));
        }
        Err(
            "must be a host without scheme, port and path, such as update.k3s.io, or *. and a suffix"
                .to_owned(),
        )
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => self.0 == host,
        }
    }
}

impl Hosts {
    pub fn new(patterns: Vec<HostPattern>) -> Self {
        Self { patterns }
    }

    fn is_named(&self, host: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(host))
    }

    /// Checks the host of a URL. Names are checked again when they are resolved.
    ///
    /// # Errors
    /// Fails if the URL has no host, the host matches none of the patterns, or, without patterns, it is a metadata service
    /// or a link-local address.
    pub fn check(&self, url: &Url) -> Result<(), ChannelError> {
        let (host, is_metadata) = match url.host() {
            None => return Err(ChannelError::NotAUrl),
            Some(Host::Domain(name)) => {
                // With a final dot, a DNS name is the same name in its absolute form.
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                let is_metadata = METADATA.contains(&name.as_str());
                (name, is_metadata)
            }
            Some(Host::Ipv4(ip)) => (ip.to_string(), is_metadata(ip.into())),
            Some(Host::Ipv6(ip)) => (ip.to_string(), is_metadata(ip.into())),
        };
        if self.is_named(&host) {
            return Ok(());
        }
        if !self.patterns.is_empty() {
            return Err(ChannelError::HostNotAllowed(host));
        }
        if is_metadata {
            return Err(ChannelError::Metadata(host));
        }
        Ok(())
    }
}

/// The error of a name that has only addresses which are refused.
#[derive(Debug, thiserror::Error)]
#[error("{}", ChannelError::Metadata(.0.clone()))]
struct OnlyMetadata(String);

impl Resolve for Hosts {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().trim_end_matches('.').to_ascii_lowercase();
        let is_named = self.is_named(&name);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let fit = found.iter().copied();
            let fit: Vec<_> = fit
                .filter(|address| is_named || !is_metadata(address.ip()))
                .collect();
            if fit.is_empty() && !found.is_empty() {
                return Err(OnlyMetadata(name).into());
            }
            Ok(Box::new(fit.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is link-local, or that of a metadata service.
fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local() || METADATA_V4.contains(&ip),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local()
                || METADATA_V6.contains(&ip)
                || ip.octets().starts_with(&AWS_V6)
                || inner(ip).is_some_and(|ip| is_metadata(ip.into()))
        }
    }
}

/// The IPv4 address to which an IPv6 address leads.
fn inner(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = ip.octets();
    let at = |start: usize| {
        octets
            .get(start..)?
            .first_chunk::<4>()
            .map(|four| Ipv4Addr::from(*four))
    };
    match ip.segments() {
        // NAT64 (RFC 6052, 8215), and SIIT (RFC 2765).
        [0x64, 0xff9b, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => at(12),
        // 6to4 (RFC 3056).
        [0x2002, ..] => at(2),
        _ => ip.to_ipv4(),
    }
}

/// The hosts of flags, or else of an environment variable with a list of them.
///
/// # Errors
/// Fails with what a pattern may be.
pub fn hosts(flags: &[HostPattern], variable: Option<&str>) -> Result<Hosts, String> {
    if !flags.is_empty() {
        return Ok(Hosts::new(flags.to_vec()));
    }
    let names = variable.unwrap_or_default().split(',').map(str::trim);
    let patterns: Result<_, String> = names.filter(|name| !name.is_empty()).map(str::parse).collect();
    patterns.map(Hosts::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &Hosts, url: &str) -> Result<(), String> {
        let url = Url::parse(url).unwrap();
        hosts.check(&url).map_err(|error| error.to_string())
    }

    fn named(names: &[&str]) -> Hosts {
        Hosts::new(names.iter().map(|name| name.parse().unwrap()).collect())
    }

    #[test]
    fn link_local_addresses_and_metadata_services_are_refused_however_they_are_written() {
        for host in [
            "169.254.169.254",
            "169.254.1.1:8080",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "[fe80::1]",
            "[febf::1]",
            "[fd00:ec2::254]",
            "[::ffff:169.254.169.254]",
            "[::a9fe:a9fe]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::a9fe:a9fe]",
            "[::ffff:0:a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "[fd00:ec2::23]",
            "[fd20:ce::254]",
            "[fd00:c1::a9fe:a9fe]",
            "169.254.169.254.",
            "0xa9.254.0xa9fe",
            "%31%36%39.254.169.254",
            "１６９.254.169.254",
            "metadata。google。internal",
            "metadata.google.internal",
            "METADATA.google.internal.",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            let error = check(&Hosts::default(), &format!("http://{host}/latest")).unwrap_err();
            assert!(
                error.contains("is link-local, or the metadata service of a cloud")
                    && error.contains("--channel-host"),
                "{host}: {error}"
            );
        }
        for host in [
            "update.k3s.io",
            "10.0.0.1",
            "127.0.0.1:8080",
            "[::1]",
            "[fd00::1]",
            "169.253.0.1",
        ] {
            assert_eq!(
                check(&Hosts::default(), &format!("http://{host}/")),
                Ok(()),
                "{host}"
            );
        }
    }

    #[test]
    fn patterns_limit_channels_to_hosts_and_may_name_a_link_local_one() {
        let hosts = named(&["update.k3s.io", "*.Example.com", "169.254.1.1", "[::1]"]);
        for allowed in [
            "https://update.k3s.io/x",
            "https://UPDATE.K3S.IO.:8443/x",
            "https://a.example.com/",
            "https://a.b.example.com/",
            "http://169.254.1.1/",
            "http://[::1]/",
        ] {
            assert_eq!(check(&hosts, allowed), Ok(()), "{allowed}");
        }
        for refused in [
            "https://example.com/",
            "https://example.com.evil.test/",
            "https://evilexample.com/",
            "https://update.k3s.io.evil.test/",
            "http://127.0.0.1/",
            "http://169.254.169.254/",
        ] {
            let error = check(&hosts, refused).unwrap_err();
            assert!(
                error.contains("is not a host that --channel-host allows"),
                "{refused}: {error}"
            );
        }
    }

    #[test]
    fn a_pattern_is_a_host_or_a_suffix() {
        for wrong in [
            "",
            "https://a.test",
            "a.test:80",
            "a.test/x",
            "*",
            "a.*.test",
            "*.",
            "*.[::1]",
            "a..b",
            "a b",
        ] {
            assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
        }
        let of_variable = hosts(&[], Some(" a.test, *.b.test,")).unwrap();
        assert_eq!(of_variable, named(&["a.test", "*.b.test"]));
        assert_eq!(
            hosts(&["c.test".parse().unwrap()], Some("a.test")).unwrap(),
            named(&["c.test"])
        );
        assert_eq!(hosts(&[], None), Ok(Hosts::default()));
        assert!(hosts(&[], Some("a.test,http://b")).is_err());
    }

    #[tokio::test]
    async fn a_name_is_checked_by_its_addresses_too() {
        let resolve = |hosts: Hosts, name: &str| hosts.resolve(name.parse().unwrap());
        let found: Vec<_> = resolve(Hosts::default(), "localhost").await.unwrap().collect();
        assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty());
        // The resolver of the host answers with the address that the name is.
        let error = resolve(Hosts::default(), "169.254.169.254").await.err().unwrap();
        assert!(error.to_string().contains("is link-local"), "{error}");
        assert!(
            resolve(named(&["169.254.169.254"]), "169.254.169.254")
                .await
                .is_ok()
        );
    }
}
