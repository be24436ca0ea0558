//! Progress of a drain: the annotation `refit.rs/drain` of its Node, which a drain may patch anyway. `refit drain` writes
//! it, and the controller shows it in status. No decision depends on it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::text::{MAX_MESSAGE, MAX_NAME, shorten_in_place};

/// Maximum number of waiting pods to name; the others are counted.
pub const WAITS_NAMED: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainNote {
    /// Number of pods that are gone.
    pub evicted: usize,
    /// Number of pods to evict.
    pub total: usize,
    /// Pods that cannot be evicted yet, the longest wait first, at most [`WAITS_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<DrainWait>,
    /// Number of further pods that cannot be evicted yet.
    #[serde(default, skip_serializing_if = "refit_base::is_zero")]
    pub more: usize,
    /// Number of volumes that are still attached, once all pods are gone.
    #[serde(default, skip_serializing_if = "refit_base::is_zero")]
    pub attached: usize,
    /// One of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Pods of `drain.waitFor` that have not ended, before the first eviction, at most [`WAITS_NAMED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningPod>,
}

/// A pod that the drain waits for before it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningPod {
    /// Namespace and name, separated by `/`.
    pub pod: String,
    pub since: Timestamp,
    /// When the drain no longer waits for it.
    pub until: Timestamp,
}

/// A pod that cannot be evicted yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainWait {
    /// Namespace and name, separated by `/`.
    pub pod: String,
    /// The PodDisruptionBudget that refuses the eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdb: Option<String>,
    pub since: Timestamp,
    /// The API server's message.
    pub why: String,
}

/// Maximum length of the annotation, in bytes. Anyone who may patch the Node can write it.
const MAX_ANNOTATION: usize = 16 * 1024;

/// The value of the annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDrain {
    /// Name of the Plan.
    pub plan: String,
    /// UID of the pod in which the drain runs. The note of another pod says nothing.
    pub pod: String,
    #[serde(flatten)]
    pub note: DrainNote,
}

impl NodeDrain {
    /// Parses the annotation, and shortens its texts; `None` if it is invalid or too long.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ANNOTATION {
            return None;
        }
        let mut drain: Self = serde_json::from_str(text).ok()?;
        let Self { plan, pod, note } = &mut drain;
        // Another version of refit, or another client, may have named more pods.
        note.more = note
            .more
            .saturating_add(note.waiting.len().saturating_sub(WAITS_NAMED));
        note.waiting.truncate(WAITS_NAMED);
        let names = note.waiting.iter_mut().flat_map(|wait| {
            let DrainWait { pod, pdb, why, .. } = wait;
            shorten_in_place(why, MAX_MESSAGE);
            std::iter::once(pod).chain(pdb)
        });
        let volume = note.volume.as_mut();
        note.running.truncate(WAITS_NAMED);
        let running = note.running.iter_mut().map(|running| &mut running.pod);
        for name in [plan, pod].into_iter().chain(names).chain(volume).chain(running) {
            shorten_in_place(name, MAX_NAME);
        }
        Some(drain)
    }

    /// The value of the annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for DrainWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, since, why, .. } = self;
        match &self.pdb {
            Some(pdb) => write!(
                f,
                "{pod} waits for PodDisruptionBudget {pdb} since {since:.0} ({why})"
            ),
            None => write!(f, "{pod} waits since {since:.0} ({why})"),
        }
    }
}

impl fmt::Display for DrainNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.running.is_empty() {
            for (number, running) in self.running.iter().take(WAITS_NAMED).enumerate() {
                let RunningPod { pod, since, until } = running;
                let and = if number > 0 { "; " } else { "" };
                write!(
                    f,
                    "{and}waits for {pod} to end since {since:.0}, until {until:.0}"
                )?;
            }
            return match self.more {
                0 => Ok(()),
                more => write!(f, "; {more} more run"),
            };
        }
        write!(f, "{} of {} pods are gone", self.evicted, self.total)?;
        for wait in self.waiting.iter().take(WAITS_NAMED) {
            write!(f, "; {wait}")?;
        }
        match self
            .more
            .saturating_add(self.waiting.len().saturating_sub(WAITS_NAMED))
        {
            0 => {}
            more => write!(f, "; {more} more wait")?,
        }
        let volume = self.volume.as_deref().unwrap_or("?");
        match self.attached {
            0 => Ok(()),
            1 => write!(f, "; volume {volume} is still attached"),
            more => write!(f, "; {more} volumes are still attached, such as {volume}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pod: &str) -> DrainWait {
        DrainWait {
            pod: pod.to_owned(),
            pdb: Some("web".to_owned()),
            since: "2026-01-01T09:00:00.5Z".parse().unwrap(),
            why: "The disruption budget web needs 3 healthy pods and has 3 currently".to_owned(),
        }
    }

    #[test]
    fn a_note_names_pods_budgets_and_since_when() {
        let note = DrainNote {
            evicted: 2,
            total: 7,
            waiting: vec![wait("shop/web-1")],
            more: 4,
            attached: 2,
            volume: Some("kubernetes.io/csi/ebs.csi.aws.com^vol-1".to_owned()),
            running: Vec::new(),
        };
        assert_eq!(
            note.to_string(),
            "2 of 7 pods are gone; shop/web-1 waits for PodDisruptionBudget web since 2026-01-01T09:00:00Z (The disruption \
             budget web needs 3 healthy pods and has 3 currently); 4 more wait; 2 volumes are still attached, such as \
             kubernetes.io/csi/ebs.csi.aws.com^vol-1"
        );
        let drain = NodeDrain {
            plan: "p".to_owned(),
            pod: "u".to_owned(),
            note,
        };
        assert_eq!(NodeDrain::parse(&drain.to_text()), Some(drain));
    }

    #[test]
    fn before_the_first_eviction_a_note_names_the_pods_that_the_drain_waits_for() {
        let running = |pod: &str| RunningPod {
            pod: pod.to_owned(),
            since: "2026-01-01T09:00:00.5Z".parse().unwrap(),
            until: "2026-01-01T09:30:00.5Z".parse().unwrap(),
        };
        let note = DrainNote {
            running: vec![running("ci/runner-7"), running("ci/runner-8")],
            more: 1,
            ..DrainNote::default()
        };
        assert_eq!(
            note.to_string(),
            "waits for ci/runner-7 to end since 2026-01-01T09:00:00Z, until 2026-01-01T09:30:00Z; waits for ci/runner-8 to end since \
             2026-01-01T09:00:00Z, until 2026-01-01T09:30:00Z; 1 more run"
        );
        let drain = NodeDrain {
            plan: "p".to_owned(),
            pod: "u".to_owned(),
            note: DrainNote {
                running: vec![running(&"x".repeat(900)); 9],
                ..note
            },
        };
        let read = NodeDrain::parse(&drain.to_text()).unwrap().note.running;
        assert_eq!((read.len(), read[0].pod.len()), (WAITS_NAMED, MAX_NAME));
    }

    #[test]
    fn a_note_of_unknown_origin_names_no_more_than_its_share() {
        let note = DrainNote {
            evicted: 0,
            total: 9,
            waiting: ["a/1", "a/2", "a/3", "a/4", "a/5"].map(wait).to_vec(),
            more: 1,
            ..DrainNote::default()
        };
        let text = note.to_string();
        assert!(text.contains("a/3 waits") && !text.contains("a/4"), "{text}");
        assert!(text.ends_with("; 3 more wait"), "{text}");
        let drain = NodeDrain {
            plan: "p".repeat(300),
            pod: "u".to_owned(),
            note,
        };
        let read = NodeDrain::parse(&drain.to_text()).unwrap();
        assert_eq!((read.note.waiting.len(), read.note.more), (3, 3));
        assert_eq!(read.plan.len(), MAX_NAME);
        assert_eq!(read.note.to_string(), text);
        assert_eq!(NodeDrain::parse("{\"plan\":\"p\",\"evicted\":true}"), None);
        assert_eq!(NodeDrain::parse(&" ".repeat(MAX_ANNOTATION + 1)), None);
    }
}
