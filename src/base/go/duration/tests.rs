use proptest::prelude::*;

use super::*;

/// What Go 1.26 makes of a text: nanoseconds, and how it prints them.
const READ: &[(&str, i64, &str)] = &[
    ("0", 0, "0s"),
    ("-0", 0, "0s"),
    ("+0", 0, "0s"),
    ("0s", 0, "0s"),
    ("0h0m", 0, "0s"),
    ("1s", 1_000_000_000, "1s"),
    ("1.s", 1_000_000_000, "1s"),
    (".5s", 500_000_000, "500ms"),
    ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
    ("+5s", 5_000_000_000, "5s"),
    ("00001s", 1_000_000_000, "1s"),
    ("1h30m", 5_400_000_000_000, "1h30m0s"),
    ("30m1h", 5_400_000_000_000, "1h30m0s"),
    ("1h30m5s", 5_405_000_000_000, "1h30m5s"),
    ("1m30s", 90_000_000_000, "1m30s"),
    ("90s", 90_000_000_000, "1m30s"),
    ("5400s", 5_400_000_000_000, "1h30m0s"),
    ("60ns", 60, "60ns"),
    ("999ns", 999, "999ns"),
    ("1500ns", 1_500, "1.5µs"),
    ("1.5us", 1_500, "1.5µs"),
    ("1.5\u{b5}s", 1_500, "1.5µs"),
    ("1.5\u{3bc}s", 1_500, "1.5µs"),
    ("1\u{b5}s1ns", 1_001, "1.001µs"),
    ("999999ns", 999_999, "999.999µs"),
    ("1ms1ns", 1_000_001, "1.000001ms"),
    ("100ms", 100_000_000, "100ms"),
    ("1.0000000001s", 1_000_000_000, "1s"),
    ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
    ("0.9999999999999999999999h", 3_600_000_000_000, "1h0m0s"),
    ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
    ("0.830103483285477580700h", 2_988_372_539_827, "49m48.372539827s"),
    ("39h9m14.425s", 140_954_425_000_000, "39h9m14.425s"),
    ("10m0.000000001s", 600_000_000_001, "10m0.000000001s"),
    ("4294967296s", 4_294_967_296_000_000_000, "1193046h28m16s"),
    ("153722867m", 9_223_372_020_000_000_000, "2562047h47m0s"),
    ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
    ("9223372036854775.807us", i64::MAX, "2562047h47m16.854775807s"),
    ("9223372036.854775807s", i64::MAX, "2562047h47m16.854775807s"),
    ("2562047h47m16.854775807s", i64::MAX, "2562047h47m16.854775807s"),
    ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
    ("-2562047h47m16.854775808s", i64::MIN, "-2562047h47m16.854775808s"),
];

/// What Go 1.26 refuses, and its error messages.
const REFUSED: &[(&str, &str)] = &[
    ("", r#"time: invalid duration """#),
    ("-", r#"time: invalid duration "-""#),
    ("+", r#"time: invalid duration "+""#),
    (".", r#"time: invalid duration ".""#),
    ("s", r#"time: invalid duration "s""#),
    (".s", r#"time: invalid duration ".s""#),
    ("-.s", r#"time: invalid duration "-.s""#),
    ("--1s", r#"time: invalid duration "--1s""#),
    (" 1h", r#"time: invalid duration " 1h""#),
    (
        "9223372036854775808ns",
        r#"time: invalid duration "9223372036854775808ns""#,
    ),
    (
        "-9223372036854775809ns",
        r#"time: invalid duration "-9223372036854775809ns""#,
    ),
    (
        "2562047h47m16.854775808s",
        r#"time: invalid duration "2562047h47m16.854775808s""#,
    ),
    ("153722868m", r#"time: invalid duration "153722868m""#),
    ("3000000h", r#"time: invalid duration "3000000h""#),
    (
        "99999999999999999999s",
        r#"time: invalid duration "99999999999999999999s""#,
    ),
    ("1", r#"time: missing unit in duration "1""#),
    ("1.", r#"time: missing unit in duration "1.""#),
    ("0.5", r#"time: missing unit in duration "0.5""#),
    ("1h30", r#"time: missing unit in duration "1h30""#),
    ("1.5.5s", r#"time: missing unit in duration "1.5.5s""#),
    ("1d", r#"time: unknown unit "d" in duration "1d""#),
    ("1H", r#"time: unknown unit "H" in duration "1H""#),
    ("1 h", r#"time: unknown unit " h" in duration "1 h""#),
    ("1h ", r#"time: unknown unit "h " in duration "1h ""#),
    ("1h-30m", r#"time: unknown unit "h-" in duration "1h-30m""#),
    ("1_000s", r#"time: unknown unit "_" in duration "1_000s""#),
    ("1\"s", r#"time: unknown unit "\"s" in duration "1\"s""#),
    ("1\\s", r#"time: unknown unit "\\s" in duration "1\\s""#),
    ("1\ns", r#"time: unknown unit "\x0as" in duration "1\x0as""#),
    (
        "3\u{b5}",
        r#"time: unknown unit "\xc2\xb5" in duration "3\xc2\xb5""#,
    ),
];

#[test]
fn durations_are_parsed_and_printed_as_in_go() {
    for (text, nanos, printed) in READ {
        let duration: GoDuration = text.parse().unwrap();
        assert_eq!(duration.as_nanos(), *nanos, "{text:?}");
        assert_eq!(duration.to_string(), *printed, "{text:?}");
    }
}

#[test]
fn durations_that_go_refuses_are_refused_with_its_errors() {
    for (text, message) in REFUSED {
        let error = text.parse::<GoDuration>().unwrap_err();
        assert_eq!(error.to_string(), *message, "{text:?}");
    }
}

#[test]
fn a_sum_past_the_longest_span_is_refused() {
    let twice_the_least = "-9223372036854775808ns9223372036854775808ns"; // wraps to 0 in Go
    assert!(twice_the_least.parse::<GoDuration>().is_err());
}

#[test]
fn seconds_round_towards_zero_and_negative_durations_have_no_std_duration() {
    let duration = |text: &str| text.parse::<GoDuration>().unwrap();
    assert_eq!(duration("61.9s").as_secs(), 61);
    assert_eq!(duration("-1.5s").as_secs(), -1);
    assert_eq!(
        duration("1.5s").to_std(),
        Some(std::time::Duration::from_millis(1_500))
    );
    assert_eq!(duration("-1ns").to_std(), None);
}

proptest! {
    #[test]
    fn every_span_is_read_back_as_it_is_printed(nanos: i64) {
        let duration = GoDuration::from_nanos(nanos);
        prop_assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration));
    }
}
