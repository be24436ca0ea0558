//! Messages of cordon and drain: a line of text as in kubectl, or a JSON object.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::pods::PodId;
use refit_api::DrainNote;

/// The value of `--dry-run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    #[default]
    None,
    /// Only prints.
    Client,
    /// Sends dry-run requests.
    Server,
}

impl DryRun {
    /// The suffix that kubectl adds to each line.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum Event {
    /// A node was cordoned, uncordoned or drained, or was in that state already.
    Node {
        node: String,
        is: &'static str,
    },
    Warning {
        message: String,
    },
    /// An eviction is requested.
    Evicting {
        #[serde(flatten)]
        pod: PodId,
    },
    /// A pod cannot be evicted yet. Reported once per reason.
    Refused {
        #[serde(flatten)]
        pod: PodId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pdb: Option<String>,
        message: String,
    },
    /// The drain waits for a set time.
    Waits {
        node: String,
        duration: String,
        why: &'static str,
    },
    /// A pod is gone; `is` is `evicted` or `deleted`.
    Gone {
        #[serde(flatten)]
        pod: PodId,
        is: &'static str,
    },
    /// The drain no longer waits for a pod.
    GivenUp {
        #[serde(flatten)]
        pod: PodId,
        seconds: i64,
    },
    /// A pod cannot be evicted.
    Failed {
        #[serde(flatten)]
        pod: PodId,
        message: String,
    },
    /// Progress of a node's drain.
    Progress {
        node: String,
        pending: usize,
        #[serde(flatten)]
        note: DrainNote,
    },
    NotDrained {
        node: String,
        evicted: usize,
        total: usize,
        pending: Vec<String>,
        message: String,
    },
}

impl Event {
    /// Whether kubectl prints it to standard output.
    pub fn is_data(&self) -> bool {
        matches!(
            self,
            Self::Node { .. } | Self::Evicting { .. } | Self::Gone { .. } | Self::GivenUp { .. }
        )
    }

    /// The message as text.
    pub fn to_line(&self, dry_run: DryRun) -> String {
        let suffix = match self {
            Self::Node { .. } | Self::Evicting { .. } => dry_run.suffix(),
            _ => "",
        };
        format!("{self}{suffix}")
    }

    /// The message as JSON.
    pub fn to_json(&self, dry_run: DryRun, now: Timestamp) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Line<'a> {
            time: String,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            dry_run: bool,
            #[serde(flatten)]
            event: &'a Event,
        }
        let line = Line {
            time: format!("{now:.3}"),
            dry_run: dry_run != DryRun::None,
            event: self,
        };
        serde_json::to_string(&line).unwrap_or_default()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, is } => write!(f, "node/{node} {is}"),
            Self::Waits { node, duration, why } => write!(f, "node/{node} waits {duration} {why}"),
            Self::Warning { message } => write!(f, "Warning: {message}"),
            Self::Evicting { pod } => write!(f, "evicting pod {}", pod.path()),
            Self::Refused { pod, message, .. } => write!(
                f,
                "error when evicting pods/{:?} -n {:?} (will retry after {}s): {message}",
                pod.name,
                pod.namespace,
                super::tracker::RETRY.as_secs()
            ),
            Self::Gone { pod, is } => write!(f, "pod/{} {is}", pod.name),
            Self::GivenUp { pod, seconds } => write!(
                f,
                "pod {:?} has DeletionTimestamp older than {seconds} seconds, skipping",
                pod.name
            ),
            Self::Failed { pod, message } => write!(
                f,
                "error when evicting pods/{:?} -n {:?}: {message}",
                pod.name, pod.namespace
            ),
            Self::Progress { node, note, .. } => write!(f, "draining node {node:?}: {note}"),
            Self::NotDrained {
                node,
                pending,
                message,
                ..
            } => {
                write!(
                    f,
                    "There are pending pods in node {node:?} when an error occurred: {message}"
                )?;
                pending.iter().try_for_each(|pod| write!(f, "\npod/{pod}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> PodId {
        PodId {
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            uid: "u1".to_owned(),
        }
    }

    #[test]
    fn drain_events_print_as_kubectl_prints_them() {
        let node = Event::Node {
            node: "one".to_owned(),
            is: "already cordoned",
        };
        assert_eq!(node.to_line(DryRun::None), "node/one already cordoned");
        assert_eq!(
            node.to_line(DryRun::Client),
            "node/one already cordoned (dry run)"
        );
        let evicting = Event::Evicting { pod: pod() };
        assert_eq!(
            evicting.to_line(DryRun::Server),
            "evicting pod shop/web-1 (server dry run)"
        );
        let gone = Event::Gone {
            pod: pod(),
            is: "evicted",
        };
        assert_eq!(gone.to_line(DryRun::None), "pod/web-1 evicted");
        let given_up = Event::GivenUp {
            pod: pod(),
            seconds: 5,
        };
        assert_eq!(
            given_up.to_line(DryRun::None),
            "pod \"web-1\" has DeletionTimestamp older than 5 seconds, skipping"
        );
        let refused = Event::Refused {
            pod: pod(),
            pdb: Some("web".to_owned()),
            message: "no".to_owned(),
        };
        assert_eq!(
            refused.to_line(DryRun::None),
            "error when evicting pods/\"web-1\" -n \"shop\" (will retry after 5s): no"
        );
        assert!(gone.is_data() && !refused.is_data());
    }

    #[test]
    fn a_line_of_json_says_what_when_and_of_whom() {
        let now = "2026-01-01T09:00:00.1234Z".parse().unwrap();
        let refused = Event::Refused {
            pod: pod(),
            pdb: Some("web".to_owned()),
            message: "no".to_owned(),
        };
        assert_eq!(
            refused.to_json(DryRun::None, now),
            r#"{"time":"2026-01-01T09:00:00.123Z","event":"refused","namespace":"shop","name":"web-1","uid":"u1","pdb":"web","message":"no"}"#
        );
        let progress = Event::Progress {
            node: "one".to_owned(),
            pending: 1,
            note: DrainNote {
                evicted: 2,
                total: 3,
                ..DrainNote::default()
            },
        };
        assert_eq!(
            progress.to_json(DryRun::Server, now),
            r#"{"time":"2026-01-01T09:00:00.123Z","dryRun":true,"event":"progress","node":"one","pending":1,"evicted":2,"total":3}"#
        );
    }
}
