//! Errors of cordon and drain, short enough for a termination message.

use super::cordon::CordonError;
use super::tracker::EvictionTracker;

/// Maximum length of the details about pods in the last line, in bytes. The controller shows the last 512 bytes of a
/// failed container.
const LAST_LINE: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An error with its message.
    #[error("{0}")]
    Failed(String),
    /// Nodes were released as they were, because pods had not ended in time.
    #[error("{0}")]
    Skipped(String),
    /// Pods had not ended in time, and a drain that is tried again would wait as long again.
    #[error("{0}")]
    Overdue(String),
    /// A signal stopped the process.
    #[error("{message}")]
    Stopped {
        /// Name of the signal.
        signal: &'static str,
        /// The progress until then.
        message: String,
    },
}

/// Exit code of a drain that released its nodes as they were: that of a test that Automake skips.
const SKIPPED: u8 = 77;
/// Exit code of a drain that pods kept from its begin (`EX_TEMPFAIL` in `sysexits.h`).
const OVERDUE: u8 = 75;

impl Failure {
    /// The exit code of a process: 128 plus the signal that stopped it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Skipped(_) => SKIPPED,
            Self::Overdue(_) => OVERDUE,
            Self::Stopped { signal: "SIGINT", .. } => 128 + 2,
            Self::Stopped { .. } => 128 + 15,
        }
    }
}

impl From<CordonError> for Failure {
    fn from(error: CordonError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        CordonError::from(error).into()
    }
}

/// What was evicted, what was not, and why, as far as it fits into a termination message.
pub(super) fn last_line(why: &str, tracker: &EvictionTracker) -> String {
    let note = tracker.note();
    let mut line = format!("{why}; {} of {} pods are gone", note.evicted, note.total);
    let failures = tracker
        .failures()
        .map(|(pod, why)| format!("{}: {why}", pod.path()));
    let waits = note.waiting.iter().map(ToString::to_string);
    let waiting: Vec<_> = note.waiting.iter().map(|wait| wait.pod.as_str()).collect();
    let failed: Vec<_> = tracker.failures().map(|(pod, _)| pod).collect();
    let others = tracker
        .pending()
        .filter(|(pod, _)| !failed.contains(pod) && !waiting.contains(&pod.path().as_str()))
        .map(|(pod, leaving)| {
            let how = if leaving {
                "is still terminating"
            } else {
                "was not evicted"
            };
            format!("{} {how}", pod.path())
        });
    let mut left = 0;
    for part in failures.chain(waits).chain(others) {
        if line.len() + part.len() <= LAST_LINE {
            line = format!("{line}; {part}");
        } else {
            left += 1;
        }
    }
    match left + note.more {
        0 => line,
        more => format!("{line}; and {more} more"),
    }
}

/// One error for all nodes that failed.
pub(super) fn all_or(act: &str, failed: &[(String, Failure)]) -> Result<(), Failure> {
    let message = |nodes: &[(String, Failure)]| {
        let lines: Vec<_> = nodes
            .iter()
            .map(|(node, why)| format!("unable to {act} node {node:?}: {why}"))
            .collect();
        // The command line prints `error: ` in front of the first line.
        lines.join("\nerror: ")
    };
    // A signal decides the exit code of the process, whichever other nodes have failed.
    let signal = failed.iter().find_map(|(_, failure)| match failure {
        Failure::Stopped { signal, .. } => Some(*signal),
        Failure::Failed(_) | Failure::Skipped(_) | Failure::Overdue(_) => None,
    });
    let is_skipped = |(_, failure): &(String, Failure)| matches!(failure, Failure::Skipped(_));
    let is_overdue = |(_, failure): &(String, Failure)| matches!(failure, Failure::Overdue(_));
    match signal {
        _ if failed.is_empty() => Ok(()),
        Some(signal) => Err(Failure::Stopped {
            signal,
            message: message(failed),
        }),
        None if failed.iter().all(is_skipped) => Err(Failure::Skipped(message(failed))),
        None if failed.iter().all(is_overdue) => Err(Failure::Overdue(message(failed))),
        None => Err(Failure::Failed(message(failed))),
    }
}

#[cfg(test)]
mod tests;
