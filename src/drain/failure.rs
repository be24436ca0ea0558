//! Why a node was not cordoned or drained, in lines that a termination message has room for.

use super::board::Board;
use super::cordon::CordonError;

/// How much the last line says of single pods, in bytes. The controller shows the last 512 bytes of a failed container.
const LAST_LINE: usize = 400;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// As the text says.
    #[error("{0}")]
    Failed(String),
    /// It was told to stop, by this signal.
    #[error("{message}")]
    Stopped {
        /// Name of the signal.
        signal: &'static str,
        /// What was done until then.
        message: String,
    },
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

/// What was evicted, what was not, and why: as many pods as a termination message shows.
pub(super) fn last_line(why: &str, board: &Board) -> String {
    let note = board.note();
    let mut line = format!("{why}; {} of {} pods are gone", note.evicted, note.total);
    let failures = board
        .failures()
        .map(|(pod, why)| format!("{}: {why}", pod.path()));
    let waits = note.waiting.iter().map(ToString::to_string);
    let waiting: Vec<_> = note.waiting.iter().map(|wait| wait.pod.as_str()).collect();
    let failed: Vec<_> = board.failures().map(|(pod, _)| pod).collect();
    let others = board
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

/// One failure for all nodes that failed.
pub(super) fn all_or(act: &str, failed: &[(String, Failure)]) -> Result<(), Failure> {
    let message = |nodes: &[(String, Failure)]| {
        let lines: Vec<_> = nodes
            .iter()
            .map(|(node, why)| format!("unable to {act} node {node:?}: {why}"))
            .collect();
        lines.join("\nerror: ")
    };
    let signal = failed.iter().find_map(|(_, failure)| match failure {
        Failure::Stopped { signal, .. } => Some(*signal),
        Failure::Failed(_) => None,
    });
    match signal {
        _ if failed.is_empty() => Ok(()),
        Some(signal) => Err(Failure::Stopped {
            signal,
            message: message(failed),
        }),
        None => Err(Failure::Failed(message(failed))),
    }
}

#[cfg(test)]
mod tests;
