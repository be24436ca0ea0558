//! Windows that never open, and windows that are shorter than a Job may run.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::jobs;
use super::subject::Subject;
use crate::gitops::rule::Rule;
use refit_api::PlanSpec;
use refit_api::schedule::Windows;
use refit_api::wait_for::longest;
use refit_base::go::GoDuration;
use refit_job::render::active_deadline_seconds;

/// The instant from which windows are tried: any instant without a change of daylight saving time nearby, such as a
/// Monday in winter.
const MONDAY: i64 = 1_768_780_800; // 2026-01-19T00:00:00Z

impl Subject<'_> {
    pub(super) fn check_window(&mut self, spec: &PlanSpec) {
        let windows = spec.start_windows(&TimeZone::UTC);
        let (Some(windows), Ok(now)) = (windows, Timestamp::from_second(MONDAY)) else {
            return;
        };
        if windows.next_open(now).is_some() {
            self.check_length(spec, &windows, now);
        } else if spec.window.is_some() && !self.has("spec.window.days") {
            let message = "spec.window has no days, so it never opens".to_owned();
            let hint = "name the days, such as `days: [mo, tu, we, th, fr]`".to_owned();
            self.report(Rule::Window, "spec.window.days", message, Some(hint));
        }
    }

    fn check_length(&mut self, spec: &PlanSpec, windows: &Windows, now: Timestamp) {
        // One that is invalid, and was left out, may be the longest.
        let is_whole = spec.window.is_some() || spec.windows.as_ref().map(Vec::len) == Some(windows.0.len());
        let Some(length) = windows.longest(now).filter(|_| is_whole) else {
            return; // it never closes
        };
        let deadline = active_deadline_seconds(spec, &jobs::settings()).map(SignedDuration::from_secs);
        let Some(deadline) = deadline.filter(|deadline| *deadline > length) else {
            return;
        };
        let waits = longest(&spec.drain_waits().unwrap_or_default());
        let work = deadline - SignedDuration::from_secs(waits.as_secs());
        let says = if spec.job_active_deadline_secs.is_some_and(|seconds| seconds > 0) {
            "spec.jobActiveDeadlineSecs"
        } else {
            "the default deadline of a Job"
        };
        let needs = if waits == GoDuration::ZERO {
            format!("{says} is {}", seconds(work))
        } else {
            format!(
                "a Job may take {} ({says}), and up to {waits} of spec.drain.waitFor",
                seconds(work)
            )
        };
        let shorter = if deadline - work > work {
            "shorten spec.drain.waitFor[].timeout"
        } else {
            "the deadline shorter"
        };
        let length = seconds(length);
        let (field, message, hint) = if spec.window.is_some() {
            (
                "spec.window",
                format!(
                    "spec.window is open for {length}, but {needs}: a Job may run long after the window closes"
                ),
                format!(
                    "make the window longer or {shorter}; a Job that runs when the window closes is not stopped"
                ),
            )
        } else {
            (
                "spec.windows",
                format!(
                    "spec.windows are open for at most {length}, but {needs}: no node starts that may still be in progress at their end"
                ),
                format!("make a window longer or {shorter}"),
            )
        };
        self.report(Rule::Window, field, message, Some(hint));
    }
}

fn seconds(length: SignedDuration) -> String {
    match length.as_secs() {
        1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, check};
    use crate::gitops::source::Source;

    /// The message and the hint for a Plan with more lines of spec.
    fn finding(lines: &str) -> String {
        let text = format!(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: p, namespace: a}}\nspec:\n  concurrency: 1\n  \
             version: v1.33.4+k3s1\n  nodeSelector: {{matchLabels: {{a: b}}}}\n  serviceAccountName: system-upgrade\n  \
             upgrade: {{image: rancher/k3s-upgrade}}\n{lines}"
        );
        let found = check(&[Source::new("p.yaml", None, text)], &Options::default()).findings;
        let texts: Vec<_> = found
            .iter()
            .map(|one| format!("{}; {}", one.message, one.hint.as_deref().unwrap_or_default()))
            .collect();
        texts.join("\n")
    }

    #[test]
    fn the_time_of_a_job_is_told_from_its_waits() {
        const WAITS: &str = "  drain: {waitFor: [{podSelector: {matchLabels: {a: b}}, timeout: 4h}]}\n";
        let window = "  window: {days: [sa], startTime: \"22:00\", endTime: \"23:00\"}\n";
        assert_eq!(
            finding(&format!("{window}{WAITS}")),
            "spec.window is open for 3601 seconds, but a Job may take 900 seconds (the default deadline of a Job), and up to \
             4h0m0s of spec.drain.waitFor: a Job may run long after the window closes; make the window longer or shorten \
             spec.drain.waitFor[].timeout; a Job that runs when the window closes is not stopped"
        );
        assert_eq!(finding(window), "");
        let windows =
            "  windows: [{cron: \"0 22 * * fri\", duration: 30m}, {cron: \"0 22 * * sat\", duration: 1h}]\n";
        assert_eq!(finding(windows), "");
        assert_eq!(
            finding(&format!("{windows}  jobActiveDeadlineSecs: 7200\n")),
            "spec.windows are open for at most 3600 seconds, but spec.jobActiveDeadlineSecs is 7200 seconds: no node starts \
             that may still be in progress at their end; make a window longer or the deadline shorter"
        );
        let found = finding(&format!("{windows}{WAITS}"));
        assert!(
            found.ends_with("make a window longer or shorten spec.drain.waitFor[].timeout"),
            "{found}"
        );
    }
}
