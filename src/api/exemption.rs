//! The annotation `refit.rs/despite` of a Plan: exemptions, separated by commas, each
//! `<limit>[+<limit>][/<node>[+<node>]]@<hash> [by <who> at <when>: <why>]`. In the roll-out of this hash, nodes start in
//! spite of these limits: all of its nodes, or those that the exemption names. The hash is `status.latestHash`, or its first
//! characters, so an exemption never applies to the next roll-out.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::annotation::{Entry, entries};
use super::approval::{is_hash, short_hash};
use super::text::{MAX_MESSAGE, MAX_NAME, shorten};
use super::{DespiteStatus, annotation};
use refit_base::names::shortened;

/// Exemptions that are read.
pub const MAX_EXEMPTIONS: usize = 8;
/// Nodes that an exemption may name.
pub const MAX_EXEMPT_NODES: usize = 32;
/// Bytes of the reason that an exemption gives.
pub const MAX_WHY: usize = 256;
/// Bytes of what is shown of who wrote an exemption, when and why.
const MAX_BY: usize = MAX_NAME + MAX_WHY;
/// Nodes that a text names.
const NAMED: usize = 5;

/// A limit that an exemption may lift. No other limit can be lifted: not a majority of the control plane, not the locks of
/// nodes, and no number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartLimit {
    /// `notBefore`, `window` and `windows`, also their ends.
    Window,
    /// The soak of waves, but no approval.
    Soak,
    /// The answers to `checks`.
    Checks,
    /// The blackouts of the Plan and of the `ConfigMap` `refit`, but not its `freeze`.
    Blackout,
}

impl StartLimit {
    pub const ALL: [Self; 4] = [Self::Window, Self::Soak, Self::Checks, Self::Blackout];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Soak => "soak",
            Self::Checks => "checks",
            Self::Blackout => "blackout",
        }
    }
}

impl FromStr for StartLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|limit| limit.as_str() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            let hint = match text {
                "notBefore" | "windows" => "window includes notBefore and windows",
                "freeze" => "refit unfreeze ends a freeze",
                _ => "nodes never start in spite of quorum, locks, budgets or approvals",
            };
            format!("{:?} is none of {all}; {hint}", shorten(text, MAX_NAME))
        })
    }
}

/// Limits that do not count for nodes in one roll-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exemption {
    pub limits: BTreeSet<StartLimit>,
    /// Empty means all nodes of the roll-out.
    pub nodes: BTreeSet<String>,
    hash: String,
}

impl Exemption {
    pub fn new(limits: BTreeSet<StartLimit>, nodes: BTreeSet<String>, hash: &str) -> Self {
        let hash = short_hash(hash).to_owned();
        Self { limits, nodes, hash }
    }

    /// The entries of the annotation that concern this hash, each with the exemption, or why it is none.
    pub fn all<'a>(
        annotation: &'a str,
        hash: &'a str,
    ) -> impl Iterator<Item = (Entry<'a>, Result<Self, String>)> {
        let of_others =
            |entry: &Entry<'_>| entry.version.is_some_and(is_long) && !is_hash(entry.version, hash);
        let known = entries(annotation).filter(move |entry| !of_others(entry));
        known.take(MAX_EXEMPTIONS + 1).enumerate().map(|(index, entry)| {
            let read = if index < MAX_EXEMPTIONS {
                Self::read(&entry)
            } else {
                Err(format!("only {MAX_EXEMPTIONS} exemptions are read"))
            };
            (entry, read)
        })
    }

    fn read(entry: &Entry<'_>) -> Result<Self, String> {
        let hash = entry.version.filter(|hash| is_long(hash)).ok_or(
            "it must name the roll-out: @ and 8 or more characters of status.latestHash follow the limits",
        )?;
        let (limits, nodes) = match entry.plan.split_once('/') {
            Some((limits, nodes)) => (limits, nodes.split('+').collect::<BTreeSet<_>>()),
            None => (entry.plan, BTreeSet::new()),
        };
        if nodes.len() > MAX_EXEMPT_NODES {
            return Err(format!(
                "it names {} nodes, and may name {MAX_EXEMPT_NODES}",
                nodes.len()
            ));
        }
        if let Some(node) = nodes.iter().find(|node| node.is_empty() || node.len() > MAX_NAME) {
            return Err(format!("{:?} is no name of a node", shorten(node, MAX_NAME)));
        }
        let limits: Result<BTreeSet<StartLimit>, String> = limits.split('+').map(str::parse).collect();
        let nodes = nodes.into_iter().map(str::to_owned).collect();
        Ok(Self::new(limits?, nodes, hash))
    }

    /// What status says of an entry of the annotation.
    pub fn status(entry: &Entry<'_>, read: &Result<Self, String>, hash: &str) -> DespiteStatus {
        let text = |limit: &StartLimit| limit.as_str().to_owned();
        let known = read.as_ref().ok();
        DespiteStatus {
            hash: short_hash(hash).to_owned(),
            limits: known
                .map(|it| it.limits.iter().map(text).collect())
                .unwrap_or_default(),
            nodes: known
                .map(|it| it.nodes.iter().cloned().collect())
                .unwrap_or_default(),
            by: annotation::rest(entry.text).map(|by| shorten(by, MAX_BY).into_owned()),
            invalid: read.as_ref().err().map(|why| {
                shorten(
                    &format!("{:?}: {why}", shorten(entry.plan, MAX_NAME)),
                    MAX_MESSAGE,
                )
                .into_owned()
            }),
            ended: None,
        }
    }
}

/// Whether it is long enough to identify a hash.
fn is_long(hash: &str) -> bool {
    is_hash(Some(hash), hash)
}

impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits.iter().map(|limit| limit.as_str()).collect();
        f.write_str(&limits.join("+"))?;
        if !self.nodes.is_empty() {
            let nodes: Vec<_> = self.nodes.iter().map(String::as_str).collect();
            write!(f, "/{}", nodes.join("+"))?;
        }
        write!(f, "@{}", self.hash)
    }
}

impl DespiteStatus {
    /// Whether nodes may start because of it.
    pub fn is_in_effect(&self) -> bool {
        self.invalid.is_none() && self.ended.is_none()
    }

    /// Whether both are the same entry of the annotation.
    pub fn is_same(&self, other: &Self) -> bool {
        let ended = other.ended.clone();
        *other
            == Self {
                ended,
                ..self.clone()
            }
    }

    /// What it lifts for which nodes, who wrote it, when and why, in a few words.
    pub fn describe(&self) -> String {
        let limits = self.limits.join(", ");
        let nodes = match &*self.nodes {
            [] => String::new(),
            nodes => format!(" for {}", shortened(nodes, NAMED)),
        };
        let by = self
            .by
            .as_deref()
            .map_or_else(String::new, |by| format!(", {by}"));
        format!("{limits}{nodes}{by}")
    }
}

/// The text as the reason of an exemption: it must not end its entry.
pub fn one_entry(why: &str) -> String {
    let is_separator = |c: char| c == ',' || c.is_control();
    why.trim().replace(is_separator, ";")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";

    fn read(text: &str) -> Vec<Result<Exemption, String>> {
        Exemption::all(text, HASH).map(|(_, read)| read).collect()
    }

    fn exemption(limits: &[StartLimit], nodes: &[&str]) -> Exemption {
        let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        Exemption::new(limits.iter().copied().collect(), nodes, HASH)
    }

    #[test]
    fn an_exemption_is_read_as_it_is_written() {
        use StartLimit::{Blackout, Checks, Soak, Window};
        for (wanted, text) in [
            (exemption(&[Window], &[]), "window@21c75c607087"),
            (
                exemption(&[Window, Soak, Checks, Blackout], &["a.example", "b"]),
                "window+soak+checks+blackout/a.example+b@21c75c607087",
            ),
        ] {
            assert_eq!(wanted.to_string(), text);
            assert_eq!(read(text), [Ok(wanted.clone())]);
            let signed = format!(" {text} by bob at 2026-01-01T09:00:00Z: the storage fails,");
            assert_eq!(read(&signed), [Ok(wanted)]);
        }
    }

    #[test]
    fn an_exemption_of_another_roll_out_is_none_and_a_wrong_one_says_why() {
        assert!(read("window@aaaaaaaaaaaa by bob, ,").is_empty());
        for (text, why) in [
            ("window", "8 or more characters of status.latestHash"),
            ("window@21c75", "8 or more characters of status.latestHash"),
            (
                "quorum@21c75c607087",
                "\"quorum\" is none of window, soak, checks, blackout",
            ),
            ("window+@21c75c607087", "\"\" is none of"),
            ("Window@21c75c607087", "\"Window\" is none of"),
            ("window/@21c75c607087", "\"\" is no name of a node"),
            ("window/a++b@21c75c607087", "\"\" is no name of a node"),
        ] {
            let all = read(text);
            assert!(all[0].as_ref().unwrap_err().contains(why), "{text}: {all:?}");
        }
    }

    #[test]
    fn what_anyone_writes_is_bounded() {
        let many = vec!["window@21c75c607087"; 1_000].join(",");
        let all = read(&many);
        assert_eq!(all.len(), MAX_EXEMPTIONS + 1);
        assert!(all[MAX_EXEMPTIONS].is_err());
        let names: Vec<_> = (0..100).map(|number| format!("node-{number}")).collect();
        let text = format!("window/{}@21c75c607087", names.join("+"));
        assert!(read(&text)[0].as_ref().unwrap_err().contains("names 100 nodes"));
        let long = format!("{}@21c75c607087 by {}", "x".repeat(100_000), "y".repeat(100_000));
        let (entry, read) = Exemption::all(&long, HASH).next().unwrap();
        let status = Exemption::status(&entry, &read, HASH);
        assert!(
            serde_json::to_string(&status).unwrap().len() < 2_048,
            "{status:?}"
        );
    }
}
