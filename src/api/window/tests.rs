//! The accepted times, days and zones, and the errors for others, were recorded from the parser of
//! system-upgrade-controller (kured's timewindow 1.13.1).

use jiff::civil::date;
use proptest::prelude::*;

use super::*;

fn spec(days: &str, start: &str, end: &str, zone: &str) -> TimeWindowSpec {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    TimeWindowSpec {
        days: (!days.is_empty()).then(|| days.split(',').map(str::to_owned).collect()),
        start_time: text(start),
        end_time: text(end),
        time_zone: text(zone),
    }
}

fn parse(days: &str, start: &str, end: &str, zone: &str) -> Result<Window, ErrorList> {
    Window::parse(&spec(days, start, end, zone), &TimeZone::UTC)
}

fn window(days: &str, start: &str, end: &str, zone: &str) -> Window {
    parse(days, start, end, zone).unwrap()
}

fn at(instant: &str) -> Timestamp {
    instant.parse().unwrap()
}

#[test]
fn times_are_read_as_go_reads_them() {
    for (text, hour, minute, second) in [
        ("8:00", 8, 0, 0),
        ("08:00", 8, 0, 0),
        ("08:00pm", 20, 0, 0),
        ("8pm", 20, 0, 0),
        ("08pm", 20, 0, 0),
        ("20", 20, 0, 0),
        ("8", 8, 0, 0),
        ("00", 0, 0, 0),
        ("23:59:59", 23, 59, 59),
        ("1:02:03", 1, 2, 3),
        ("8:05", 8, 5, 0),
        ("8am", 8, 0, 0),
        ("0pm", 12, 0, 0),
        ("12pm", 12, 0, 0),
        ("12am", 0, 0, 0),
        ("12:30am", 0, 30, 0),
        ("00:30pm", 12, 30, 0),
        ("00:00am", 0, 0, 0),
        ("23:59:59.5", 23, 59, 59),
        ("23:59:59,5", 23, 59, 59),
        ("08:00:00.1234567890123", 8, 0, 0),
    ] {
        assert_eq!(time(text), Ok(Time::constant(hour, minute, second, 0)), "{text}");
    }
}

#[test]
fn a_time_that_go_does_not_read_is_refused_in_its_words() {
    let texts = ";8:00pm;08:00PM;8:00 PM;24:00;0800;24;13pm;12:60pm;8:5;23:60;23:59:60;1:2:03;1:02:3; 8;8 ;8AM;\
                 10:00:00am;23:59:59.;23:59.5;123;1a;８;+8;-1;8:00am;5.5;000;08:00 pm;012pm;8p;8:;:;8:00:;8:00:00:;\
                 08:00pm1;8:00\t;am;pm;12:30:am;1:2:3:4;23:59:59.5.5;23:59:59.,5;pmam";
    for text in texts.split(';') {
        let refused = parse("mo", text, "23:59", "").unwrap_err();
        assert_eq!(refused.to_string(), format!("Invalid time format: {text}"));
    }
}

#[test]
fn all_mistakes_are_reported_in_the_order_days_zone_start_end() {
    for (days, start, end, zone, messages) in [
        (
            "never,mo,8",
            "x",
            "y",
            "Mars/Phobos",
            "Invalid weekday: never; Invalid weekday, number out of range: 8; unknown time zone Mars/Phobos; Invalid time \
             format: x; Invalid time format: y",
        ),
        (
            "mo",
            "x",
            "y",
            "",
            "Invalid time format: x; Invalid time format: y",
        ),
        ("mo", "8", "y", "", "Invalid time format: y"),
        ("mo", "8", "", "", "Invalid time format: "),
        ("mo", "", "8", "", "Invalid time format: "),
    ] {
        assert_eq!(parse(days, start, end, zone).unwrap_err().to_string(), messages);
    }
    let errors = parse("mo,never", "x", "", "/etc").unwrap_err();
    let fields: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(fields, ["days[1]", "timeZone", "startTime", "endTime"]);
}

#[test]
fn days_are_words_of_any_case_or_numbers_from_sunday() {
    let days = |words: &str| window(words, "8", "9", "").days;
    for (number, words) in DAYS.iter().enumerate() {
        for word in words {
            assert_eq!(days(word), Days(1 << number), "{word}");
            assert_eq!(days(&word.to_uppercase()), Days(1 << number), "{word}");
        }
    }
    assert_eq!(days("mo,,fri,1,+5,-0,00"), Days(0b010_0011));
    assert_eq!(days(""), Days(0));
}

#[test]
fn an_invalid_day_is_refused_in_go_s_words() {
    let refused = |word| parse(word, "8", "9", "").unwrap_err().to_string();
    for word in ["never", "mond", " mo", "1.0", "9999999999999999999999"] {
        assert_eq!(refused(word), format!("Invalid weekday: {word}"));
    }
    for word in ["7", "-1", "07"] {
        assert_eq!(
            refused(word),
            format!("Invalid weekday, number out of range: {word}")
        );
    }
}

#[test]
fn zones_are_iana_names_in_their_own_case() {
    let names = "UTC Europe/Berlin US/Eastern GMT Etc/GMT+3 EST EST5EDT CET Asia/Kathmandu America/Argentina/Buenos_Aires \
                 Etc/UTC Asia/Calcutta Asia/Kolkata Europe/Kyiv Europe/Kiev";
    for name in names.split(' ') {
        assert_eq!(window("mo", "8", "9", name).zone.iana_name(), Some(name));
    }
    let refused = |name| parse("mo", "8", "9", name).unwrap_err().to_string();
    for name in [
        "utc",
        "local",
        "europe/berlin",
        "a\\b",
        "Mars/Phobos",
        "Europe/Berlin ",
        "Z",
    ] {
        assert_eq!(refused(name), format!("unknown time zone {name}"));
    }
    for name in ["../x", "/etc/localtime", "\\x"] {
        assert_eq!(refused(name), "time: invalid location name");
    }
}

#[test]
fn no_zone_is_utc_and_local_is_the_zone_of_the_process() {
    assert_eq!(window("mo", "8", "9", "").zone, TimeZone::UTC);
    let berlin = ZONES.get("Europe/Berlin").unwrap();
    let parsed = Window::parse(&spec("mo", "8", "9", "Local"), &berlin).unwrap();
    // Monday, 08:30 in Berlin
    assert!(parsed.contains(at("2026-03-02T07:30:00Z")));
    assert!(!parsed.contains(at("2026-03-02T08:30:00Z")));
}

/// Checks a window in a zone, such as `sa,su 22:00 04:00 Europe/Berlin`, at each instant: whether it contains the
/// instant, when it opens next, and when it closes. What is `None` is not checked; `-` stands for never.
#[track_caller]
fn check(text: &str, cases: &[(&str, Option<bool>, &str, &str)]) {
    let words: Vec<_> = text.split(' ').collect();
    let [days, start, end, zone] = words[..] else {
        panic!("{text}")
    };
    let window = window(days, start, end, zone);
    let time = |text: &str| (text != "-").then(|| at(text));
    for (now, is_inside, opens, closes) in cases {
        let moment = at(now);
        if let Some(is_inside) = is_inside {
            assert_eq!(window.contains(moment), *is_inside, "{text} contains {now}");
        }
        if !opens.is_empty() {
            assert_eq!(window.next_open(moment), time(opens), "{text} opens after {now}");
        }
        if !closes.is_empty() {
            assert_eq!(window.closes(moment), time(closes), "{text} closes after {now}");
        }
    }
}

#[test]
fn the_whole_last_second_is_inside_and_what_comes_after_is_not() {
    check(
        "mo 08:00 09:30 UTC",
        &[
            ("2026-03-02T07:59:59.999999999Z", Some(false), "", ""),
            ("2026-03-02T08:00:00Z", Some(true), "", ""),
            ("2026-03-02T08:10:00.5Z", Some(true), "", "2026-03-02T09:30:01Z"),
            ("2026-03-02T09:30:00.999999999Z", Some(true), "", ""),
            ("2026-03-02T09:30:01Z", Some(false), "", ""),
        ],
    );
}

#[test]
fn a_window_that_ends_when_it_starts_is_open_for_that_second() {
    check(
        "mo,tu 08:00 08:00 UTC",
        &[
            ("2026-03-02T07:59:59.999999999Z", Some(false), "", ""),
            ("2026-03-02T08:00:00Z", Some(true), "", ""),
            ("2026-03-02T08:00:00.999999999Z", Some(true), "", ""),
            ("2026-03-02T08:00:01Z", Some(false), "2026-03-03T08:00:00Z", ""),
        ],
    );
}

#[test]
fn an_overnight_window_belongs_to_the_day_on_which_it_starts() {
    // 7 March 2026 is a Saturday. system-upgrade-controller checks the weekday of the moment instead: there the first
    // of these is inside and the last two are not.
    check(
        "sat 22:00 04:00 UTC",
        &[
            ("2026-03-07T01:00:00Z", Some(false), "", ""),
            ("2026-03-07T21:59:59Z", Some(false), "", ""),
            ("2026-03-07T23:00:00Z", Some(true), "", "2026-03-08T04:00:01Z"),
            ("2026-03-08T04:00:01Z", Some(false), "", ""),
            ("2026-03-08T23:00:00Z", Some(false), "", ""),
            ("2026-03-08T01:00:00Z", Some(true), "", ""),
            ("2026-03-08T04:00:00.5Z", Some(true), "", ""),
        ],
    );
}

#[test]
fn a_window_without_days_never_opens() {
    check(
        " 00:00 23:59:59 Europe/Berlin",
        &[("2026-03-07T01:00:00Z", Some(false), "-", "")],
    );
}

#[test]
fn a_window_of_every_day_and_hour_never_closes() {
    let now = "2026-03-07T01:00:00Z";
    check(
        "0,1,2,3,4,5,6 00:00:00 23:59:59 Europe/Berlin",
        &[(now, None, now, "-")],
    );
    // `23:59` ends a minute before midnight every day.
    check(
        "0,1,2,3,4,5,6 00:00 23:59 UTC",
        &[(now, None, "", "2026-03-07T23:59:01Z")],
    );
    // Two whole days in a row close only once.
    check(
        "sa,su 00:00 23:59:59 UTC",
        &[(now, None, "", "2026-03-09T00:00:00Z")],
    );
}

#[test]
fn a_closed_window_has_no_end_and_opens_next_week_if_it_must() {
    check(
        "mo 08:00 09:00 UTC",
        &[
            ("2026-03-02T10:00:00Z", None, "", "-"),
            ("2026-03-02T09:00:01Z", None, "2026-03-09T08:00:00Z", ""),
        ],
    );
}

#[test]
fn the_hour_that_summer_time_skips_is_never_inside() {
    // Berlin, Sunday 29 March 2026: 02:00 is followed by 03:00, at 01:00 UTC.
    check(
        "sun 02:30 03:15 Europe/Berlin",
        &[
            ("2026-03-29T00:00:00Z", None, "2026-03-29T01:00:00Z", ""),
            ("2026-03-29T01:00:00Z", None, "", "2026-03-29T01:15:01Z"),
        ],
    );
    // A window entirely in that hour does not open on that day.
    check(
        "sun 02:15 02:45 Europe/Berlin",
        &[("2026-03-29T00:00:00Z", None, "2026-04-05T00:15:00Z", "")],
    );
    // A window that the skipped hour cuts short ends there.
    check(
        "sun 01:00 02:30 Europe/Berlin",
        &[("2026-03-29T00:30:00Z", None, "", "2026-03-29T01:00:00Z")],
    );
}

#[test]
fn the_hour_that_comes_twice_is_inside_twice() {
    // Berlin, Sunday 25 October 2026: 03:00 is followed by 02:00, at 01:00 UTC.
    check(
        "sun 02:15 02:45 Europe/Berlin",
        &[
            ("2026-10-25T00:00:00Z", None, "2026-10-25T00:15:00Z", ""),
            ("2026-10-25T00:15:00Z", None, "", "2026-10-25T00:45:01Z"),
            ("2026-10-25T00:45:01Z", None, "2026-10-25T01:15:00Z", ""),
            ("2026-10-25T01:15:00Z", None, "", "2026-10-25T01:45:01Z"),
        ],
    );
}

#[test]
fn half_an_hour_of_summer_time_is_seen_too() {
    // Lord Howe, Sunday 4 October 2026: 02:00 is followed by 02:30, at 15:30 UTC of the day before.
    check(
        "sun 02:15 02:45 Australia/Lord_Howe",
        &[
            ("2026-10-03T12:00:00Z", None, "2026-10-03T15:30:00Z", ""),
            ("2026-10-03T15:30:00Z", None, "", "2026-10-03T15:45:01Z"),
        ],
    );
}

#[test]
fn a_day_that_the_zone_skips_has_no_window() {
    // Apia went from Thursday 29 to Saturday 31 December 2011.
    let friday = window("fri", "08:00", "09:00", "Pacific/Apia");
    let zone = ZONES.get("Pacific/Apia").unwrap();
    let wednesday = zone.to_timestamp(date(2011, 12, 28).at(0, 0, 0, 0)).unwrap();
    let next = zone.to_timestamp(date(2012, 1, 6).at(8, 0, 0, 0)).unwrap();
    assert_eq!(friday.next_open(wednesday), Some(next));
}

#[test]
fn a_window_at_the_end_of_time_does_not_overflow() {
    let window = window("mo", "08:00", "09:00", "Europe/Berlin");
    assert_eq!(window.next_open(Timestamp::MAX), None);
    assert_eq!(window.closes(Timestamp::MAX), None);
    assert!(window.next_open(Timestamp::MIN).is_some());
}

#[test]
fn a_window_prints_as_what_it_means() {
    let shown = |days, zone| window(days, "10pm", "4:00", zone).to_string();
    assert_eq!(
        shown("tu,mo", "Europe/Berlin"),
        "Mon,Tue 22:00:00-04:00:00 Europe/Berlin"
    );
    assert_eq!(shown("", ""), "never 22:00:00-04:00:00 UTC");
}

/// Instants within two days of a clock change, or anywhere in 60 years.
fn instants(zone: &'static str) -> impl Strategy<Value = Timestamp> {
    let near_jump = (at("1985-01-01T00:00:00Z").as_second()..at("2045-01-01T00:00:00Z").as_second())
        .prop_flat_map(move |from| {
            let from = Timestamp::from_second(from).unwrap();
            let jump = ZONES
                .get(zone)
                .unwrap()
                .following(from)
                .next()
                .map_or(from, |jump| jump.timestamp());
            (-172_800_000..172_800_000_i64).prop_map(move |off| jump + SignedDuration::from_millis(off))
        });
    let anywhere = (-3_000_000_000_000..3_000_000_000_000_i64)
        .prop_map(|milli| Timestamp::from_millisecond(milli).unwrap());
    prop_oneof![4 => near_jump, 1 => anywhere]
}

fn windows(zone: &'static str) -> impl Strategy<Value = Window> {
    let time = || (0..24_i8, 0..60_i8, prop_oneof![Just(0_i8), 0..60_i8]);
    (0..128_u8, time(), time()).prop_map(move |(days, start, end)| Window {
        days: Days(days),
        start: Time::constant(start.0, start.1, start.2, 0),
        end: Time::constant(end.0, end.1, end.2, 0),
        zone: ZONES.get(zone).unwrap(),
    })
}

/// A window and an instant in a zone: one of the usual ones, one with changes at midnight, one with half hours, and one
/// that skipped a day.
fn in_a_zone() -> impl Strategy<Value = (Window, Timestamp)> {
    let zones = [
        "Europe/Berlin",
        "America/St_Johns",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    proptest::sample::select(zones.to_vec()).prop_flat_map(|zone| (windows(zone), instants(zone)))
}

/// Whether the window has the same state at every minute from `from` to `to`.
fn stays(window: &Window, from: Timestamp, to: Timestamp, open: bool) -> bool {
    let step = SignedDuration::from_secs(60);
    let mut at = from;
    let mut all = true;
    while at < to && all {
        all = window.contains(at) == open;
        at += step;
    }
    all
}

fn holds(window: &Window, now: Timestamp) -> Result<(), TestCaseError> {
    let instant_before = SignedDuration::from_nanos(1);
    match window.next_open(now) {
        None => prop_assert!(window.days == Days(0)),
        Some(open) => {
            prop_assert!(open >= now);
            prop_assert!(window.contains(open), "next_open {open} is closed");
            prop_assert!(
                open == now || !window.contains(open - instant_before),
                "open before {open}"
            );
            prop_assert!(stays(window, now, open, false), "open between {now} and {open}");
        }
    }
    if let Some(closed) = window.closes(now) {
        prop_assert!(closed > now && window.contains(now));
        prop_assert!(!window.contains(closed), "closes {closed} is open");
        prop_assert!(window.contains(closed - instant_before), "closed before {closed}");
        prop_assert!(
            stays(window, now, closed, true),
            "closed between {now} and {closed}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1600))]

    #[test]
    fn a_window_opens_and_closes_when_it_says((window, now) in in_a_zone()) {
        holds(&window, now)?;
    }

    /// No local time outside of the window is ever inside, whatever the zone does.
    #[test]
    fn nothing_is_open_at_a_time_of_day_outside_of_the_window(
        window in windows("America/St_Johns"),
        now in instants("America/St_Johns"),
    ) {
        let clock = second_of_day(window.zone.to_datetime(now).time());
        let (start, end) = (second_of_day(window.start), second_of_day(window.end));
        let named = if start <= end { start <= clock && clock <= end } else { clock >= start || clock <= end };
        prop_assert!(named || !window.contains(now));
    }
}
