use super::*;
use refit_fixtures::processor_time;

fn weekly(days: &[&str], start: &str, end: &str, zone: &str) -> WindowSpec {
    WindowSpec {
        days: Some(days.iter().map(|day| (*day).to_owned()).collect()),
        start_time: Some(start.to_owned()),
        end_time: Some(end.to_owned()),
        time_zone: Some(zone.to_owned()),
        ..WindowSpec::default()
    }
}

fn cron(cron: &str, duration: &str, zone: &str) -> WindowSpec {
    WindowSpec {
        cron: Some(cron.to_owned()),
        duration: Some(duration.to_owned()),
        time_zone: Some(zone.to_owned()),
        ..WindowSpec::default()
    }
}

fn windows(specs: &[WindowSpec]) -> Windows {
    let parse = |spec| PlanWindow::parse(spec, &TimeZone::UTC).unwrap();
    Windows(specs.iter().map(parse).collect())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn windows_are_open_while_one_of_them_is_and_those_that_adjoin_are_one() {
    // A Thursday.
    let both = windows(&[
        weekly(&["thu"], "22:00", "23:59:59", "UTC"),
        cron("0 0 * * fri", "4h", "UTC"),
        cron("0 12 * * fri", "30m", "UTC"),
    ]);
    for (now, open, opens, closes) in [
        ("2026-01-01T09:00:00Z", false, "2026-01-01T22:00:00Z", None),
        (
            "2026-01-01T22:00:00Z",
            true,
            "2026-01-01T22:00:00Z",
            Some("2026-01-02T04:00:00Z"),
        ),
        (
            "2026-01-02T03:59:59Z",
            true,
            "2026-01-02T03:59:59Z",
            Some("2026-01-02T04:00:00Z"),
        ),
        ("2026-01-02T04:00:00Z", false, "2026-01-02T12:00:00Z", None),
        (
            "2026-01-02T12:29:59.9Z",
            true,
            "2026-01-02T12:29:59.9Z",
            Some("2026-01-02T12:30:00Z"),
        ),
        ("2026-01-02T12:30:00Z", false, "2026-01-08T22:00:00Z", None),
    ] {
        let now = at(now);
        assert_eq!(both.contains(now), open, "{now}");
        assert_eq!(both.next_open(now), Some(at(opens)), "{now}");
        assert_eq!(both.closes(now), closes.map(at), "{now}");
    }
    assert_eq!(
        both.longest(at("2026-01-01T09:00:00Z")),
        Some(SignedDuration::from_hours(6))
    );
}

#[test]
fn a_window_that_opens_again_before_it_closes_never_closes() {
    let always = windows(&[cron("*/10 * * * *", "15m", "UTC")]);
    assert_eq!(always.closes(at("2026-01-01T09:00:00Z")), None);
    assert_eq!(always.longest(at("2026-01-01T09:00:00Z")), None);
    let day = windows(&[weekly(
        &["mo", "tu", "we", "th", "fr", "sa", "su"],
        "00:00",
        "23:59:59",
        "UTC",
    )]);
    assert_eq!(day.closes(at("2026-01-01T09:00:00Z")), None);
}

#[test]
fn the_duration_of_a_window_is_elapsed_time_also_when_the_clock_changes() {
    for (now, closes) in [
        // 01:00 to 05:00 has three hours when summer time begins, and five when it ends; four hours are four hours.
        ("2026-03-29T00:30:00Z", "2026-03-29T04:00:00Z"),
        ("2026-10-25T00:30:00Z", "2026-10-25T03:00:00Z"),
        ("2026-06-01T23:30:00Z", "2026-06-02T03:00:00Z"),
    ] {
        let night = windows(&[cron("0 1 * * *", "4h", "Europe/Berlin")]);
        assert_eq!(night.closes(at(now)), Some(at(closes)), "{now}");
    }
    // At the hour that comes twice, it opens twice, and stays open in between.
    let twice = windows(&[cron("30 2 * * *", "1h", "Europe/Berlin")]);
    assert_eq!(
        twice.closes(at("2026-10-25T00:30:00Z")),
        Some(at("2026-10-25T02:30:00Z"))
    );
}

#[test]
fn nodes_may_start_again_when_the_blackout_is_over_and_a_window_is_open() {
    let days = |start: &str, end: &str| {
        let spec = BlackoutSpec {
            start: Some(start.to_owned()),
            end: Some(end.to_owned()),
            ..BlackoutSpec::default()
        };
        Blackout::parse(&spec, &TimeZone::UTC).unwrap()
    };
    let night = windows(&[cron("0 22 * * *", "2h", "UTC")]);
    let (holidays, audit) = (days("12-24", "01-02"), days("2027-01-03", "2027-01-04"));
    let (both, holidays) = ([holidays.clone(), audit], [holidays]);
    let open = |at| night.next_open(at);
    for (now, start) in [
        ("2026-12-23T23:00:00Z", Some("2026-12-23T23:00:00Z")),
        ("2026-12-24T00:00:00Z", Some("2027-01-05T22:00:00Z")),
        ("2027-01-05T01:00:00Z", Some("2027-01-05T22:00:00Z")),
    ] {
        let found = next_start(at(now), &[&both], open);
        assert_eq!(found, start.map(at), "{now}");
    }
    assert_eq!(
        blackout_at(&holidays, at("2026-12-24T00:00:00Z")).map(|it| it.1),
        Some(at("2027-01-03T00:00:00Z"))
    );
    assert_eq!(
        next_blackout(&holidays, at("2026-12-01T00:00:00Z")),
        Some(at("2026-12-24T00:00:00Z"))
    );
    let whole_year = [days("01-01", "12-31")];
    assert_eq!(next_start(at("2026-06-01T00:00:00Z"), &[&whole_year], open), None);
}

#[test]
fn an_error_names_its_field() {
    for (spec, field) in [
        (weekly(&["mon"], "25:00", "04:00", "UTC"), "startTime"),
        (weekly(&["mon"], "22:00", "25:00", "UTC"), "endTime"),
        (weekly(&["someday"], "22:00", "04:00", "UTC"), "days[0]"),
        (weekly(&[], "22:00", "04:00", "UTC"), "days"),
        (weekly(&["mon"], "22:00", "04:00", "Europe/Bonn"), "timeZone"),
        (cron("0 22 * *", "4h", "UTC"), "cron"),
        (cron("0 22 30 2 *", "4h", "UTC"), "cron"),
        (cron("0 22 * * *", "4", "UTC"), "duration"),
        (cron("0 22 * * *", "0s", "UTC"), "duration"),
        (cron("0 22 * * *", "200h", "UTC"), "duration"),
        (cron("0 22 * * *", "4h", "Mars"), "timeZone"),
        (
            WindowSpec {
                cron: Some("0 22 * * *".to_owned()),
                ..weekly(&["mon"], "22:00", "04:00", "UTC")
            },
            "days",
        ),
        (
            WindowSpec {
                duration: Some("4h".to_owned()),
                ..weekly(&["mon"], "22:00", "04:00", "UTC")
            },
            "duration",
        ),
    ] {
        let errors = PlanWindow::parse(&spec, &TimeZone::UTC).unwrap_err();
        assert_eq!(errors.iter().next().unwrap().path.as_str(), field, "{errors}");
    }
}

#[test]
fn hostile_windows_are_evaluated_a_bounded_number_of_times() {
    let minutes = cron("0-58 * * * *", "1m", "Europe/Berlin");
    let leap = cron("0 0 29 2 mon", "168h", "Europe/Berlin");
    let day = weekly(&["mo"], "00:00", "00:00:01", "Europe/Berlin");
    // Before the hour that summer time skips.
    let now = at("2026-03-28T09:00:00Z");
    for others in [&minutes, &leap, &day] {
        let mut all = vec![others.clone(); 63];
        all.push(minutes.clone());
        let all = windows(&all);
        let begin = processor_time();
        assert!(all.contains(now));
        let closes = all.closes(now).unwrap();
        assert_eq!(closes, at("2026-03-28T09:59:00Z"));
        assert!(all.longest(now).is_some());
        let took = processor_time().saturating_sub(begin);
        assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    }
    let endless = windows(&vec![cron("* * * * *", "1m", "UTC"); 64]);
    let closes = endless.closes(now).unwrap();
    assert!(closes > at("2026-03-28T12:00:00Z"), "{closes}");
}
