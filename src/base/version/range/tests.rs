//! The limits of a range, which is written by whoever may write Plans.

use super::*;

#[test]
fn a_range_of_more_than_a_kibibyte_is_refused_and_one_up_to_it_is_read() {
    let terms = |count: usize| vec![">=1.1"; count].join(" ");
    let longest = format!(
        "{}{}",
        terms(MAX_BOUNDS),
        " ".repeat(MAX_LEN - 6 * MAX_BOUNDS + 1)
    );
    assert!(longest.len() == MAX_LEN && longest.parse::<Range>().is_ok());
    assert!(format!("{longest} ").parse::<Range>().is_err());
    let error = terms(MAX_BOUNDS + 1).parse::<Range>().unwrap_err().to_string();
    assert!(
        error.contains("it has 65 bounds, and at most 64 are read"),
        "{error}"
    );
    // Without a limit this takes hours.
    let error = terms(1_000_000).parse::<Range>().unwrap_err().to_string();
    assert!(
        error.contains("it has 5999999 bytes, and at most 1024 are read"),
        "{error}"
    );
    assert!(error.len() < 400, "{error}");
}

#[test]
fn a_range_is_empty_if_any_of_its_bounds_exclude_each_other() {
    for (range, is_empty) in [
        (">=1.2 <1.1", true),
        (">1.2.0 <1.2.0", true),
        (">=1.2.0 <=1.2.0", false),
        (">=1.2.0 <1.2.0", true),
        (">=1.1 >=1.4 <1.6 <1.3", true),
        (">=1.4 >=1.1 <1.3 <1.6", true),
        (">=1.1 <1.6 >=1.4 <1.5", false),
        (">1.2.0-rc1 <1.2.0-rc2", false),
        (">=1.2.0-rc1 >1.2.0 <1.2.0", true),
        (">=2024.1 <1.5", true),
        ("1.2.0 1.3.0", true),
        ("1.2.0 1.2.0", false),
        (">=1.2.0 <1.2.0 || 1.3", false),
    ] {
        assert_eq!(range.parse::<Range>().is_err(), is_empty, "{range}");
    }
}
