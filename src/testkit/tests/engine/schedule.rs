//! `spec.windows`, `spec.blackouts` and `spec.notBefore`.

use super::scenario::Scenario;
use refit_api::{AfterWait, BlackoutSpec, PlanSpec, WindowSpec};
use refit_facts::PodStage;
use refit_fixtures::plan_with;

/// Scenarios begin on a Thursday at nine.
fn window(spec: &mut PlanSpec, cron: &str, duration: &str) {
    spec.windows.get_or_insert_default().push(WindowSpec {
        cron: Some(cron.to_owned()),
        duration: Some(duration.to_owned()),
        ..WindowSpec::default()
    });
}

fn blackout(spec: &mut PlanSpec, start: &str, end: &str) {
    spec.blackouts.get_or_insert_default().push(BlackoutSpec {
        start: Some(start.to_owned()),
        end: Some(end.to_owned()),
        reason: Some("inventory".to_owned()),
        ..BlackoutSpec::default()
    });
}

#[test]
fn nodes_start_while_one_of_the_windows_is_open() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(1700);
            window(spec, "0 10 * * *", "30m");
            window(spec, "0 22 * * *", "30m");
        }),
    );
    assert_eq!(scenario.complete("p")[1], "Waiting");
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-01T10:00:00Z")
    );
    let waits = scenario.entry("p", "a");
    assert_eq!(
        waits.message.as_deref(),
        Some("spec.windows is closed and opens at 2026-01-01T10:00:00Z")
    );
    scenario.pass_secs(3590);
    assert!(scenario.live_nodes("p").is_empty());
    scenario.pass_secs(15);
    let first = scenario.live_nodes("p")[0].clone();
    assert_eq!(scenario.status("p").next_window, None);
    scenario.pass_secs(1500);
    scenario.succeed(&first);
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-01T22:00:00Z")
    );
    scenario.pass_secs(42_000);
    assert_eq!(scenario.live_nodes("p").len(), 1);
}

#[test]
fn a_node_starts_only_if_it_will_be_through_by_its_time_limit() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(1800);
            spec.suspend = Some(true);
            window(spec, "0 9 * * *", "1h");
        }),
    );
    scenario.pass_secs(1900);
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    assert!(scenario.live_nodes("p").is_empty());
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("WindowTooShort"));
    let text = "a node that starts now might not finish by 2026-01-01T10:00:00Z, when no node may be in progress: its time limit \
                is 30m, and the longest time in this roll-out was none yet; nodes may start again at 2026-01-02T09:00:00Z";
    assert_eq!(entry.message.as_deref(), Some(text));
    assert_eq!(scenario.complete("p")[1], "WindowTooShort");
    assert_eq!(scenario.events_of("WindowTooShort"), [text]);
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-02T09:00:00Z")
    );
    scenario.pass_secs(23 * 3600 + 1800);
    assert_eq!(scenario.status("p").next_window, None);
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}

#[test]
fn the_longest_time_of_this_roll_out_counts_where_it_is_shorter_and_survives_a_restart() {
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(3000);
            window(spec, "0 9 * * *", "1h");
        }),
    );
    let first = scenario.live_nodes("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.pass_secs(1200);
    scenario.succeed(&first);
    let longest = scenario.status("p").longest_run.clone().unwrap();
    assert!(longest.starts_with("20m"), "{longest}");
    scenario.restart();
    let second = scenario.live_nodes("p");
    assert_eq!(
        second.len(),
        1,
        "39 minutes are left, more than the first took, and less than its limit"
    );
    scenario.pass_secs(1210);
    scenario.succeed(&second[0]);
    assert!(scenario.live_nodes("p").is_empty(), "twenty are left");
    let [.., message] = scenario.complete("p");
    assert!(
        message.contains("its time limit is 50m") && message.contains("in this roll-out was 20m"),
        "{message}"
    );
    scenario.pass_secs(24 * 3600);
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.status("p").longest_run, None, "another roll-out");
}

#[test]
fn a_window_that_is_never_long_enough_says_so_and_one_without_time_limit_starts_a_first_node() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(7200);
            window(spec, "0 9 * * *", "1h");
        }),
    );
    let [.., message] = scenario.complete("p");
    assert!(
        message.contains("no window is ever long enough, the longest has 1h: lengthen one, or shorten spec.jobActiveDeadlineSecs"),
        "{message}"
    );
    assert_eq!(scenario.status("p").next_window, None);
    scenario.edit("p", |spec| spec.job_active_deadline_secs = Some(0));
    scenario.pass_secs(3000);
    // The controller's maximum is absent here, so that there is no limit.
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}

#[test]
fn the_limits_of_reboot_and_settle_are_part_of_the_time_limit() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(600);
            spec.reboot = Some(refit_fixtures::reboot(refit_api::RebootWhen::Always));
            spec.settle = Some(Box::default());
            spec.post_complete_delay = Some("5m".to_owned());
            window(spec, "0 9 * * *", "39m");
        }),
    );
    let [.., message] = scenario.complete("p");
    assert!(message.contains("its time limit is 40m"), "{message}");
    scenario.edit_and_settle("p", |spec| spec.post_complete_delay = None);
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}

#[test]
fn system_upgrade_controllers_window_starts_nodes_until_it_closes() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(7200);
            spec.window = Some(refit_api::TimeWindowSpec {
                days: Some(vec!["thu".to_owned()]),
                start_time: Some("09:00".to_owned()),
                end_time: Some("09:30".to_owned()),
                time_zone: None,
            });
        }),
    );
    assert_eq!(scenario.live_nodes("p"), ["a"]);
    scenario.finish();
}

#[test]
fn in_a_blackout_no_node_starts_and_none_that_might_not_be_through_before_it() {
    let mut scenario = Scenario::with(
        &["a", "b", "c", "d", "e"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(600);
            blackout(spec, "2026-01-01T09:30:00Z", "2026-01-01T12:00:00Z");
        }),
    );
    for _ in 0..4 {
        let node = scenario.live_nodes("p")[0].clone();
        scenario.comes_to(&node, PodStage::Upgrade);
        scenario.pass_secs(390);
        scenario.succeed(&node);
    }
    assert!(scenario.live_nodes("p").is_empty(), "three minutes are left");
    assert_eq!(scenario.complete("p")[1], "WindowTooShort");
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-01T12:00:00Z")
    );
    scenario.pass_secs(300);
    let text = "a blackout of spec.blackouts lasts until 2026-01-01T12:00:00Z: inventory";
    let [_, reason, message] = scenario.complete("p");
    assert_eq!((&*reason, &*message), ("Blackout", text));
    assert_eq!(scenario.events_of("Blackout"), [text]);
    scenario.pass_secs(8_940);
    scenario.finish();
}

#[test]
fn a_yearly_blackout_holds_whatever_the_windows_say() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(600);
            window(spec, "0 * * * *", "1h");
            blackout(spec, "12-24", "01-02");
        }),
    );
    assert_eq!(scenario.complete("p")[1], "Blackout");
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-03T00:00:00Z")
    );
    scenario.pass_secs(38 * 3600);
    assert!(scenario.live_nodes("p").is_empty());
    scenario.pass_secs(3600 + 10);
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}

#[test]
fn before_not_before_no_node_starts_and_one_in_progress_finishes() {
    let mut scenario = Scenario::with(&["a", "b"], plan_with("p", |_| ()));
    let first = scenario.live_nodes("p")[0].clone();
    scenario.edit("p", |spec| {
        spec.not_before = Some("2026-01-01T12:00:00Z".to_owned());
    });
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.succeed(&first);
    assert!(scenario.live_nodes("p").is_empty());
    let text = "no node starts before spec.notBefore, 2026-01-01T12:00:00Z";
    let [_, reason, message] = scenario.complete("p");
    assert_eq!((&*reason, &*message), ("NotBefore", text));
    assert_eq!(scenario.events_of("NotBefore"), [text]);
    scenario.pass_secs(3 * 3600 - 30);
    assert!(scenario.live_nodes("p").is_empty());
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn after_not_before_the_window_decides() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(600);
            spec.not_before = Some("2026-01-01T12:00:00+01:00".to_owned());
            window(spec, "0 14 * * *", "1h");
        }),
    );
    assert_eq!(scenario.complete("p")[1], "NotBefore");
    scenario.pass_secs(2 * 3600 + 10);
    assert_eq!(scenario.complete("p")[1], "Waiting");
    scenario.pass_secs(3 * 3600);
    assert_eq!(scenario.live_nodes("p"), ["a"]);
}

#[test]
fn a_window_that_is_too_short_for_what_a_drain_may_wait_for_names_that() {
    let scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(600);
            spec.drain = Some(super::wait_for::waiting(AfterWait::Evict).spec.drain.unwrap());
            window(spec, "0 22 * * *", "30m");
        }),
    );
    let message = &scenario.complete("p")[2];
    let says = "lengthen one, or shorten spec.drain.waitFor[].timeout; for a node, its time limit is 40m, with 30m for \
                spec.drain.waitFor, and";
    assert!(message.contains(says), "{message}");
}

#[test]
fn a_window_that_is_too_short_for_any_node_says_so_while_it_is_closed() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.job_active_deadline_secs = Some(1800);
            window(spec, "0 22 * * *", "15m");
        }),
    );
    let [_, reason, message] = scenario.complete("p");
    assert_eq!(reason, "WindowTooShort");
    assert!(
        message.starts_with("no window is ever long enough, the longest has 15m: lengthen one"),
        "{message}"
    );
    scenario.pass_secs(13 * 3600 + 60);
    assert_eq!(scenario.complete("p")[1], "WindowTooShort");
    assert!(scenario.live_nodes("p").is_empty());
}
