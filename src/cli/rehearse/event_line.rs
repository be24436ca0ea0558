//! Prints the events of a rehearsal as lines, for pipes and logs.

use refit_api::HookPhase;
use refit_rehearse::record::{EventKind, RolloutEvent};
use refit_rehearse::report::TimeFormat;
use refit_rehearse::words::one_line;

/// The line of an event; `None` for mere progress.
pub(super) fn line(event: &RolloutEvent, times: &TimeFormat) -> Option<String> {
    let what = match &event.what {
        EventKind::Phase(_) | EventKind::Resumed => return None,
        EventKind::Resolved(version) => format!("version {version}"),
        EventKind::NodeStarted => "begins".to_owned(),
        EventKind::Done => "done".to_owned(),
        EventKind::Complete => "complete".to_owned(),
        EventKind::Hook(hook, HookPhase::Running) => format!("runs `{}`", hook.as_str()),
        EventKind::Hook(hook, HookPhase::Succeeded) => format!("`{}` has succeeded", hook.as_str()),
        EventKind::Hook(hook, HookPhase::Failed) => format!("`{}` has FAILED", hook.as_str()),
        EventKind::Repeats(due) => format!("runs again, as was due at {due}"),
        EventKind::Waits { reason, message } if message.is_empty() => format!("waits: {reason}"),
        EventKind::Waits { message, .. } => format!("waits: {}", one_line(message)),
        EventKind::Failed { reason, message } => format!("FAILED: {reason}: {}", one_line(message)),
    };
    let what = times.in_message(&event.plan, &what);
    let at = times.of_plan(&event.plan, event.at);
    Some(match &event.node {
        Some(node) => format!("{at:>10}  {}  {node}  {what}", event.plan),
        None => format!("{at:>10}  {}  {what}", event.plan),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_api::{NodePhase, Reason};

    #[test]
    fn each_notable_event_is_a_line() {
        let times = TimeFormat::since("2026-01-05T09:00:00Z".parse().unwrap());
        let print = |node: Option<&str>, what| {
            let event = RolloutEvent {
                at: "2026-01-05T10:02:03Z".parse().unwrap(),
                plan: "k3s".to_owned(),
                node: node.map(str::to_owned),
                what,
            };
            line(&event, &times)
        };
        assert_eq!(
            print(Some("node-1"), EventKind::Done).as_deref(),
            Some("  +1:02:03  k3s  node-1  done")
        );
        let failed = EventKind::Failed {
            reason: Reason::BackoffLimitExceeded.into(),
            message: "two\nlines".to_owned(),
        };
        assert_eq!(
            print(Some("node-1"), failed).as_deref(),
            Some("  +1:02:03  k3s  node-1  FAILED: BackoffLimitExceeded: two lines")
        );
        assert_eq!(
            print(None, EventKind::Complete).as_deref(),
            Some("  +1:02:03  k3s  complete")
        );
        assert_eq!(print(None, EventKind::Phase(NodePhase::Upgrading.into())), None);
    }
}
