//! When nodes start, and how long they are waited for after their Jobs.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::invalid::{ErrorList, Invalid, at};
use crate::plan::PlanSpec;
use crate::schedule::{Blackout, PlanWindow, Windows};
use crate::text::{MAX_NAME, shorten};
use crate::window::Window;
use refit_base::go::GoDuration;

/// Maximum number of windows, and of blackouts, of a Plan.
pub const MAX_SCHEDULE_ENTRIES: usize = 64;

pub(super) fn window(spec: &PlanSpec, local: &TimeZone) -> Result<Option<Windows>, ErrorList> {
    let window = spec.window.as_ref();
    let window = window.map(|window| Window::parse(window, local)).transpose();
    let window = window.map_err(|errors| errors.below(&at("window")))?;
    Ok(window.map(|window| Windows(vec![PlanWindow::Weekly(window)])))
}

/// Another delay stops system-upgrade-controller from reading any Plan.
pub(super) fn post_complete_delay(spec: &PlanSpec) -> Result<SignedDuration, Invalid> {
    let field = at("postCompleteDelay");
    let delay: GoDuration = match &spec.post_complete_delay {
        Some(delay) => field.parse(delay)?,
        None => GoDuration::ZERO,
    };
    if delay.is_negative() {
        return Err(field.invalid("is negative"));
    }
    Ok(SignedDuration::from_nanos(delay.as_nanos()))
}

pub(super) fn windows(spec: &PlanSpec, local: &TimeZone, errors: &mut ErrorList) -> Option<Windows> {
    let windows = spec.windows.as_deref()?;
    let list = at("windows");
    if spec.window.is_some() {
        let problem =
            "and spec.windows are both set: move the window into spec.windows, or remove one of them";
        let hint = "remove it, after you have moved it into spec.windows";
        errors.push(at("window").invalid(problem).hint(hint));
    }
    if windows.is_empty() {
        let problem = "is empty, so that no node would ever start: remove it, or add a window";
        errors.push(list.invalid(problem).hint("remove it"));
    }
    // A longer list must not cost time in each decision.
    errors.take(entries("windows", windows))?;
    let mut parse = |(index, window)| {
        let window = PlanWindow::parse(window, local);
        errors.take(window.map_err(|errors| errors.below(&list.index(index))))
    };
    Some(Windows(
        windows.iter().enumerate().filter_map(&mut parse).collect(),
    ))
}

pub(super) fn blackouts(spec: &PlanSpec, local: &TimeZone, errors: &mut ErrorList) -> Vec<Blackout> {
    let blackouts = spec.blackouts.as_deref().unwrap_or_default();
    let list = at("blackouts");
    if errors.take(entries("blackouts", blackouts)).is_none() {
        return Vec::new();
    }
    let mut parse = |(index, blackout)| {
        let blackout = Blackout::parse(blackout, local);
        errors.take(blackout.map_err(|errors| errors.below(&list.index(index))))
    };
    blackouts.iter().enumerate().filter_map(&mut parse).collect()
}

fn entries<T>(field: &str, list: &[T]) -> Result<(), Invalid> {
    match list.len() {
        entries if entries > MAX_SCHEDULE_ENTRIES => Err(at(field).invalid(format_args!(
            "has {entries} entries, and may have {MAX_SCHEDULE_ENTRIES}"
        ))),
        _ => Ok(()),
    }
}

pub(super) fn not_before(spec: &PlanSpec) -> Result<(), Invalid> {
    match &spec.not_before {
        Some(text) if text.parse::<Timestamp>().is_err() => {
            let text = shorten(text, MAX_NAME);
            let problem =
                format!("is {text:?}, which is not a time in RFC 3339 such as 2026-12-05T02:00:00Z");
            Err(at("notBefore").invalid(problem))
        }
        _ => Ok(()),
    }
}
