use super::*;

fn cron(text: &str, time_zone: &str) -> Repeat {
    let spec = RepeatSpec {
        cron: Some(text.to_owned()),
        time_zone: Some(time_zone.to_owned()),
        ..RepeatSpec::default()
    };
    Repeat::parse(&spec, &TimeZone::UTC).unwrap()
}

fn every(text: &str) -> Repeat {
    let spec = RepeatSpec {
        every: Some(text.to_owned()),
        ..RepeatSpec::default()
    };
    Repeat::parse(&spec, &TimeZone::UTC).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The next times, each after the one before.
fn times(repeat: &Repeat, from: &str, count: usize) -> Vec<String> {
    let next = |last: &Timestamp| repeat.next(Some(*last), *last);
    let times = std::iter::successors(repeat.next(None, at(from)), next);
    times.take(count).map(|time| time.to_string()).collect()
}

#[test]
fn a_cron_expression_gives_the_times_of_its_zone() {
    let weekly = cron("0 3 * * sun", "Europe/Berlin");
    // Summer time ends on 25 October 2026.
    assert_eq!(
        times(&weekly, "2026-10-12T00:00:00Z", 3),
        [
            "2026-10-18T01:00:00Z",
            "2026-10-25T02:00:00Z",
            "2026-11-01T02:00:00Z"
        ]
    );
    assert_eq!(weekly.to_string(), "0 3 * * sun Europe/Berlin");
}

#[test]
fn a_time_that_summer_time_skips_does_not_come_and_one_that_occurs_twice_comes_twice() {
    let nightly = cron("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        times(&nightly, "2026-03-28T12:00:00Z", 2),
        ["2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]
    );
    assert_eq!(
        times(&nightly, "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]
    );
}

#[test]
fn every_counts_from_the_last_repetition_and_before_it_from_now() {
    let weekly = every("168h");
    let now = at("2026-01-05T09:00:00.7Z");
    assert_eq!(weekly.next(None, now), Some(at("2026-01-12T09:00:00Z")));
    let last = at("2026-01-04T03:00:00Z");
    assert_eq!(weekly.next(Some(last), now), Some(at("2026-01-11T03:00:00Z")));
    assert_eq!(weekly.to_string(), "every 168h");
}

#[test]
fn the_next_time_is_never_one_that_has_passed() {
    let now = at("2026-01-05T09:00:00Z");
    let last = Some(at("2025-06-01T00:00:00Z"));
    assert_eq!(every("24h").next(last, now), Some(at("2026-01-06T00:00:00Z")));
    assert_eq!(
        cron("0 9 * * *", "UTC").next(last, now),
        Some(at("2026-01-06T09:00:00Z"))
    );
}

#[test]
fn a_clock_that_is_a_little_behind_repeats_no_time_and_one_that_was_set_back_does_not_wait_for_the_old_time()
{
    let daily = cron("0 9 * * *", "UTC");
    let last = Some(at("2026-01-05T09:00:00Z"));
    let behind = at("2026-01-05T08:59:58Z");
    assert_eq!(daily.next(last, behind), Some(at("2026-01-06T09:00:00Z")));
    assert_eq!(every("24h").next(last, behind), Some(at("2026-01-06T09:00:00Z")));
    let set_back = at("2025-12-01T12:00:00Z");
    assert_eq!(daily.next(last, set_back), Some(at("2025-12-02T09:00:00Z")));
    assert_eq!(
        every("24h").next(last, set_back),
        Some(at("2025-12-02T12:00:00Z"))
    );
}

#[test]
fn an_invalid_repeat_says_what_to_write() {
    let parse = |cron: Option<&str>, every: Option<&str>, zone: Option<&str>| {
        let spec = RepeatSpec {
            cron: cron.map(str::to_owned),
            every: every.map(str::to_owned),
            time_zone: zone.map(str::to_owned),
        };
        Repeat::parse(&spec, &TimeZone::UTC).unwrap_err().to_string()
    };
    assert_eq!(
        parse(None, None, None),
        "spec.repeat has neither cron nor every: write one of them, such as `cron: 0 3 * * sun`"
    );
    assert_eq!(
        parse(Some("0 3 * * sun"), Some("168h"), None),
        "spec.repeat.every is set, and so is spec.repeat.cron: remove one of them"
    );
    assert_eq!(
        parse(None, Some("168h"), Some("UTC")),
        "spec.repeat.timeZone is set, and spec.repeat.cron is not, so that it has no effect: remove it"
    );
    for every in ["7d", "9m59s", "-1h", "0s", ""] {
        let text = format!(
            "spec.repeat.every is {every:?}: it must be a Go duration such as \"168h\", of at least 10m"
        );
        assert_eq!(parse(None, Some(every), None), text);
    }
    assert_eq!(
        parse(Some("0 3 * *"), None, None),
        "spec.repeat.cron is \"0 3 * *\": it has 4 fields, and must have 5: minute, hour, day of the month, month, day of the week"
    );
    assert_eq!(
        parse(Some("0 0 30 2 *"), None, None),
        "spec.repeat.cron is \"0 0 30 2 *\": no date matches, so that the Plan would never repeat"
    );
    let zone = parse(Some("0 3 * * sun"), None, Some("Europe/Berlln"));
    assert!(zone.starts_with("spec.repeat.timeZone is invalid, "), "{zone}");
}

proptest::proptest! {
    /// Whatever was missed, the next time comes after now, and for `every` at the distance of all others.
    #[test]
    fn the_next_time_comes_after_now(missed in 0i64..100_000_000, hours in 1i64..1000) {
        let due = at("2026-01-04T03:00:00Z");
        let now = due + SignedDuration::from_secs(missed);
        let every = every(&format!("{hours}h"));
        for repeat in [cron("0 3 * * sun", "Europe/Berlin"), cron("*/7 1,2 * * *", "Europe/Berlin"), every.clone()] {
            proptest::prop_assert!(repeat.next(Some(due), now).unwrap() > now);
        }
        let next = every.next(Some(due), now).unwrap();
        proptest::prop_assert_eq!(next.duration_since(due).as_secs() % (hours * 3600), 0);
        proptest::prop_assert!(next.duration_since(now) <= SignedDuration::from_hours(hours));
    }
}
