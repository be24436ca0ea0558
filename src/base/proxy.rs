//! Finds the proxy for a URL as Go's `net/http` does from the environment: `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`,
//! in upper or lower case (S3). Loopback addresses never use a proxy.

use std::net::IpAddr;

use url::{Host, Url};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyEnv {
    http: Option<Url>,
    https: Option<Url>,
    exempt: Vec<Exempt>,
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exempt {
    /// `*`
    All,
    /// `10.0.0.0/8`
    Net(IpAddr, u8),
    /// `10.0.0.1` or `10.0.0.1:80`
    Ip(IpAddr, Option<u16>),
    /// `example.com` (with its subdomains) or `.example.com` (only its subdomains), with or without a port.
    Domain {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

/// A proxy URL is invalid. The error does not quote it, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {variable} is not the URL of a proxy, such as http://proxy.example:3128")]
pub struct ProxyError {
    pub variable: &'static str,
}

impl ProxyEnv {
    /// Reads the environment through `lookup`.
    ///
    /// # Errors
    /// Fails if a proxy URL is invalid.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let either = |upper: &'static str, lower: &'static str| {
            [upper, lower].into_iter().find_map(|name| {
                lookup(name)
                    .filter(|value| !value.is_empty())
                    .map(|value| (name, value))
            })
        };
        let proxy = |found: Option<(&'static str, String)>| {
            found
                .map(|(variable, value)| proxy_url(&value).ok_or(ProxyError { variable }))
                .transpose()
        };
        Ok(Self {
            http: proxy(either("HTTP_PROXY", "http_proxy"))?,
            https: proxy(either("HTTPS_PROXY", "https_proxy"))?,
            exempt: either("NO_PROXY", "no_proxy")
                .map(|(_, list)| list.split(',').filter_map(Exempt::parse).collect())
                .unwrap_or_default(),
        })
    }

    /// The proxy for `url`, if any.
    pub fn proxy_for(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "http" => self.http.as_ref()?,
            "https" => self.https.as_ref()?,
            _ => return None,
        };
        let port = url.port_or_known_default()?;
        let direct = match url.host()? {
            Host::Ipv4(ip) => self.is_exempt_ip(ip.into(), port),
            Host::Ipv6(ip) => self.is_exempt_ip(ip.into(), port),
            Host::Domain(name) => self.is_exempt_name(name, port),
        };
        (!direct).then_some(proxy)
    }

    fn is_exempt_ip(&self, ip: IpAddr, port: u16) -> bool {
        // Go never proxies loopback, whatever NO_PROXY says (`useProxy` in golang.org/x/net/http/httpproxy).
        ip.is_loopback()
            || self.exempt.iter().any(|exempt| match exempt {
                Exempt::All => true,
                Exempt::Net(net, bits) => contains(*net, *bits, ip),
                Exempt::Ip(exempt, at) => *exempt == ip && at.is_none_or(|at| at == port),
                Exempt::Domain { .. } => false,
            })
    }

    fn is_exempt_name(&self, name: &str, port: u16) -> bool {
        let name = name.trim_end_matches('.');
        name == "localhost"
            || self.exempt.iter().any(|exempt| match exempt {
                Exempt::All => true,
                Exempt::Domain {
                    suffix,
                    itself,
                    port: at,
                } => {
                    let below = name
                        .strip_suffix(suffix.as_str())
                        .is_some_and(|rest| rest.ends_with('.'));
                    (below || *itself && name == suffix) && at.is_none_or(|at| at == port)
                }
                Exempt::Net(..) | Exempt::Ip(..) => false,
            })
    }
}

impl Exempt {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_ascii_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Self::All);
        }
        if let Some((ip, bits)) = entry.split_once('/') {
            let (ip, bits) = (ip.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
            return (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some(Self::Net(ip, bits));
        }
        if let Ok(ip) = entry.parse() {
            return Some(Self::Ip(ip, None));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse::<u16>().ok()?)),
            None => (entry.as_str(), None),
        };
        if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            return Some(Self::Ip(ip, port));
        }
        let below = host
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(host);
        let (suffix, itself) = match below.strip_prefix('.') {
            // A leading dot exempts subdomains only, a plain name itself too: Go's rule; curl's differs.
            Some(suffix) => (suffix, false),
            None => (below, true),
        };
        (!suffix.is_empty()).then(|| Self::Domain {
            suffix: suffix.to_owned(),
            itself,
            port,
        })
    }
}

fn contains(net: IpAddr, bits: u8, ip: IpAddr) -> bool {
    match (net, ip) {
        (IpAddr::V4(net), IpAddr::V4(ip)) => {
            (net.to_bits() ^ ip.to_bits())
                .checked_shr(32 - u32::from(bits))
                .unwrap_or(0)
                == 0
        }
        (IpAddr::V6(net), IpAddr::V6(ip)) => {
            (net.to_bits() ^ ip.to_bits())
                .checked_shr(128 - u32::from(bits))
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

/// Go accepts `proxy:3128` as `http://proxy:3128`.
fn proxy_url(value: &str) -> Option<Url> {
    let usable =
        |url: &Url| matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") && url.has_host();
    Url::parse(value).ok().filter(usable).or_else(|| {
        let guess = (!value.contains("://")).then(|| Url::parse(&format!("http://{value}")).ok())??;
        usable(&guess).then_some(guess)
    })
}

#[cfg(test)]
mod tests;
