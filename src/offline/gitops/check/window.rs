//! Windows that never open, and windows that are shorter than a Job may run.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::jobs;
use super::subject::Subject;
use crate::gitops::rule::Rule;
use refit_api::PlanSpec;
use refit_api::window::Window;
use refit_job::render::active_deadline_seconds;

/// The instant from which windows are tried: any instant without a change of daylight saving time nearby, such as a
/// Monday in winter.
const MONDAY: i64 = 1_768_780_800; // 2026-01-19T00:00:00Z

impl Subject<'_> {
    pub(super) fn check_window(&mut self, spec: &PlanSpec) {
        let zone = TimeZone::UTC;
        let Some(window) = spec
            .window
            .as_ref()
            .and_then(|window| Window::parse(window, &zone).ok())
        else {
            return;
        };
        let Ok(now) = Timestamp::from_second(MONDAY) else {
            return;
        };
        let Some(opens) = window.next_open(now) else {
            let message = "spec.window has no days, so it never opens".to_owned();
            let hint = "name the days, such as `days: [mo, tu, we, th, fr]`".to_owned();
            if !self.has("spec.window.days") {
                self.report(Rule::Window, "spec.window.days", message, Some(hint));
            }
            return;
        };
        // The window may be open at that instant, so the length is that of the next one.
        let Some(opens) = window.closes(opens).and_then(|closes| window.next_open(closes)) else {
            return; // it never closes
        };
        let Some(closes) = window.closes(opens) else {
            return;
        };
        let length = closes.duration_since(opens);
        let deadline = active_deadline_seconds(spec, &jobs::settings()).map(SignedDuration::from_secs);
        let Some(deadline) = deadline.filter(|deadline| *deadline > length) else {
            return;
        };
        let says = if spec.job_active_deadline_secs.is_some_and(|seconds| seconds > 0) {
            "spec.jobActiveDeadlineSecs"
        } else {
            "the default deadline of a Job"
        };
        let message = format!(
            "spec.window is open for {}, but {says} is {}: a Job may run long after the window closes",
            seconds(length),
            seconds(deadline)
        );
        let hint = "make the window longer or the deadline shorter; a Job that runs when the window closes is not stopped"
            .to_owned();
        self.report(Rule::Window, "spec.window", message, Some(hint));
    }
}

fn seconds(length: SignedDuration) -> String {
    match length.as_secs() {
        1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}
