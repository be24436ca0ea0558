//! `--fault`: what goes wrong on one node of a rehearsal. The simulated kubelet does it, steered by annotations.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;

use crate::assumptions::Span;
use crate::pod_lifecycle::STEERING_PREFIX;
use refit_api::PlanSpec;
use refit_base::names::shortened;
use refit_base::nearest::nearest;

/// Termination message of a container that `--fault` selects.
pub const FAULT_MESSAGE: &str = "made to fail by --fault";
/// When a late node joins, unless the fault says it.
const LATE: SignedDuration = SignedDuration::from_mins(10);
/// What is allowed after the name of the node.
const ALLOWED: &str = "away, drain, late, late=TIME, prepare or reboot";
/// Maximum number of nodes in a message.
const SHOWN: usize = 20;

/// What goes wrong on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub node: String,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The node does not come back from its reboot.
    Away,
    /// `drain` fails.
    Drain,
    /// The node joins the cluster so long after the start.
    Late(SignedDuration),
    /// `prepare` fails.
    Prepare,
    /// The host accepts the request to reboot, and does nothing.
    Reboot,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Names of nodes have no colon.
        let Some((node, kind)) = text.split_once(':').filter(|(node, _)| !node.is_empty()) else {
            return Err(format!("write NODE:FAULT; the fault is {ALLOWED}"));
        };
        let (word, time) = kind
            .split_once('=')
            .map_or((kind, None), |(word, time)| (word, Some(time)));
        let kind = match (word, time) {
            ("away", None) => FaultKind::Away,
            ("drain", None) => FaultKind::Drain,
            ("prepare", None) => FaultKind::Prepare,
            ("reboot", None) => FaultKind::Reboot,
            ("late", None) => FaultKind::Late(LATE),
            ("late", Some(time)) => {
                let time: Span = time.parse().map_err(|error| format!("{time:?}: {error}"))?;
                FaultKind::Late(time.most())
            }
            _ => return Err(format!("{kind:?} is no fault; write {ALLOWED}")),
        };
        Ok(Self {
            node: node.to_owned(),
            kind,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        match self.kind {
            FaultKind::Away => write!(f, "{node} does not come back from its reboot"),
            FaultKind::Drain => write!(f, "drain fails on {node}"),
            FaultKind::Late(after) => {
                write!(f, "{node} joins the cluster {} after the start", Span::of(after))
            }
            FaultKind::Prepare => write!(f, "prepare fails on {node}"),
            FaultKind::Reboot => write!(f, "{node} stays in its boot when it is to reboot"),
        }
    }
}

impl Fault {
    /// Annotations of the node that have its simulated kubelet do it.
    pub fn steering(&self) -> Vec<(String, String)> {
        let all = match self.kind {
            FaultKind::Away => vec![("comes-back", "never")],
            FaultKind::Reboot => vec![("comes-back", "as-if-nothing")],
            FaultKind::Drain => vec![("drain.exit-code", "1"), ("drain.message", FAULT_MESSAGE)],
            FaultKind::Prepare => vec![("prepare.exit-code", "1"), ("prepare.message", FAULT_MESSAGE)],
            FaultKind::Late(_) => Vec::new(),
        };
        let annotation = |(key, value): (&str, &str)| (format!("{STEERING_PREFIX}{key}"), value.to_owned());
        all.into_iter().map(annotation).collect()
    }

    /// Whether a Plan with this spec gives the fault an occasion.
    pub fn happens_with(&self, spec: &PlanSpec) -> bool {
        match self.kind {
            FaultKind::Away | FaultKind::Reboot => spec.may_reboot(),
            FaultKind::Drain => spec.drain.is_some(),
            FaultKind::Prepare => spec.prepare.is_some(),
            FaultKind::Late(_) => true,
        }
    }

    /// Why the fault has no occasion, if no Plan gives it one.
    pub const fn no_occasion(&self) -> &'static str {
        match self.kind {
            FaultKind::Away | FaultKind::Reboot => "no Plan that selects the node reboots it (spec.reboot)",
            FaultKind::Drain => "no Plan that selects the node drains it (spec.drain)",
            FaultKind::Prepare => "no Plan that selects the node has spec.prepare",
            FaultKind::Late(_) => "no Plan selects the node",
        }
    }

    /// How late the node joins.
    pub const fn late(&self) -> Option<SignedDuration> {
        match self.kind {
            FaultKind::Late(after) => Some(after),
            _ => None,
        }
    }

    /// Why the fault names no node of the cluster.
    pub fn unknown<'n>(&self, nodes: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let nodes: Vec<&str> = nodes.into_iter().collect();
        if nodes.contains(&self.node.as_str()) {
            return None;
        }
        let hint = nearest(&self.node, nodes.iter().copied());
        let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        Some(format!(
            "--fault: the cluster has no node {}{hint} (the nodes are {})",
            self.node,
            shortened(&nodes, SHOWN)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_of_one_node_and_of_a_known_kind() {
        for (text, expected) in [
            ("a:away", "a does not come back from its reboot"),
            ("a.example.com:drain", "drain fails on a.example.com"),
            ("a:prepare", "prepare fails on a"),
            ("a:reboot", "a stays in its boot when it is to reboot"),
            ("a:late", "a joins the cluster 10m after the start"),
            ("a:late=1h30m", "a joins the cluster 1h30m after the start"),
        ] {
            assert_eq!(
                text.parse::<Fault>().map(|fault| fault.to_string()),
                Ok(expected.to_owned())
            );
        }
        for (text, why) in [
            (
                "a",
                "write NODE:FAULT; the fault is away, drain, late, late=TIME, prepare or reboot",
            ),
            (
                ":away",
                "write NODE:FAULT; the fault is away, drain, late, late=TIME, prepare or reboot",
            ),
            (
                "a:gone",
                "\"gone\" is no fault; write away, drain, late, late=TIME, prepare or reboot",
            ),
            (
                "a:away=5m",
                "\"away=5m\" is no fault; write away, drain, late, late=TIME, prepare or reboot",
            ),
            (
                "a:late=soon",
                "\"soon\": \"soon\" is not a duration such as 90s, 5m or 1h30m (a range is written 4m..9m)",
            ),
        ] {
            assert_eq!(text.parse::<Fault>(), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_fault_of_a_node_that_is_not_there_names_the_nodes() {
        let fault: Fault = "nod-1:away".parse().unwrap();
        assert_eq!(
            fault.unknown(["node-1", "worker"]).as_deref(),
            Some(
                "--fault: the cluster has no node nod-1; did you mean node-1? (the nodes are node-1, worker)"
            )
        );
        assert_eq!(fault.unknown(["nod-1"]), None);
    }
}
