//! What happens in a rehearsal as plain lines, for pipes and logs.

use jiff::Timestamp;

use crate::rehearse::record::{Happening, What};
use crate::rehearse::report::offset;

/// The line for it; nothing for mere progress.
pub(super) fn line(happening: &Happening, start: Timestamp) -> Option<String> {
    let what = match &happening.what {
        What::Phase(_) | What::GoesOn => return None,
        What::Resolved(version) => format!("version {version}"),
        What::Begins => "begins".to_owned(),
        What::Done => "done".to_owned(),
        What::Complete => "complete".to_owned(),
        What::Waits { reason, message } if message.is_empty() => format!("waits: {reason}"),
        What::Waits { message, .. } => format!("waits: {}", one_line(message)),
        What::Failed { reason, message } => format!("FAILED: {reason}: {}", one_line(message)),
    };
    let at = offset(happening.at.duration_since(start));
    Some(match &happening.node {
        Some(node) => format!("{at:>10}  {}  {node}  {what}", happening.plan),
        None => format!("{at:>10}  {}  {what}", happening.plan),
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_a_line() {
        let start: Timestamp = "2026-01-05T09:00:00Z".parse().unwrap();
        let tell = |node: Option<&str>, what| {
            let happening = Happening {
                at: "2026-01-05T10:02:03Z".parse().unwrap(),
                plan: "k3s".to_owned(),
                node: node.map(str::to_owned),
                what,
            };
            line(&happening, start)
        };
        assert_eq!(
            tell(Some("node-1"), What::Done).as_deref(),
            Some("  +1:02:03  k3s  node-1  done")
        );
        let failed = What::Failed {
            reason: "BackoffLimitExceeded".to_owned(),
            message: "two\nlines".to_owned(),
        };
        assert_eq!(
            tell(Some("node-1"), failed).as_deref(),
            Some("  +1:02:03  k3s  node-1  FAILED: BackoffLimitExceeded: two lines")
        );
        assert_eq!(
            tell(None, What::Complete).as_deref(),
            Some("  +1:02:03  k3s  complete")
        );
        assert_eq!(tell(None, What::Phase("Upgrading".to_owned())), None);
    }
}
