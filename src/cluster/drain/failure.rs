//! Errors of cordon and drain, short enough for a termination message.

use super::cordon::CordonError;
use super::tracker::EvictionTracker;

/// Maximum length of the details about pods in the last line, in bytes. The controller shows the last 512 bytes of a
/// failed container.
const LAST_LINE: usize = 400;

/// Why something was not done, and the exit code of a process that ends with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub message: String,
    pub exit_code: u8,
}

/// Exit code of an error.
const FAILED: u8 = 1;
/// Exit code of a drain that released its nodes as they were, because pods had not ended in time: that of a test that
/// Automake skips.
pub(super) const SKIPPED: u8 = 77;
/// Exit code of a drain that pods kept from its begin, and that would wait as long again (`EX_TEMPFAIL` in `sysexits.h`).
pub(super) const OVERDUE: u8 = 75;
/// The exit code of a process that a signal has stopped is this plus the signal.
const STOPPED: u8 = 128;

impl Failure {
    pub(super) fn new(message: String) -> Self {
        Self {
            message,
            exit_code: FAILED,
        }
    }

    /// A signal of this name has stopped the process.
    pub(super) fn stopped(signal: &str, message: String) -> Self {
        let number = if signal == "SIGINT" { 2 } else { 15 };
        Self {
            message,
            exit_code: STOPPED + number,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.exit_code > STOPPED
    }
}

impl From<CordonError> for Failure {
    fn from(error: CordonError) -> Self {
        Self::new(error.to_string())
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
    let Some((_, first)) = failed.first() else {
        return Ok(());
    };
    // A signal decides the exit code of the process, whichever other nodes have failed.
    let exit_code = match failed.iter().find(|(_, failure)| failure.is_stopped()) {
        Some((_, stopped)) => stopped.exit_code,
        None if failed.iter().all(|(_, it)| it.exit_code == first.exit_code) => first.exit_code,
        None => FAILED,
    };
    let lines = failed
        .iter()
        .map(|(node, why)| format!("unable to {act} node {node:?}: {why}"));
    Err(Failure {
        // The command line prints `error: ` in front of the first line.
        message: lines.collect::<Vec<_>>().join("\nerror: "),
        exit_code,
    })
}

#[cfg(test)]
mod tests;
