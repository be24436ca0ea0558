//! How many repetitions run of the tests that repeat a scenario for each write or each seed: all, or with
//! `REFIT_SAMPLE=10` a tenth, as in `just unit`.

/// One of how many repetitions runs.
pub(super) fn rate() -> u64 {
    std::env::var("REFIT_SAMPLE").map_or(1, |text| {
        let rate = text.parse().ok().filter(|rate| (1..=20).contains(rate));
        rate.unwrap_or_else(|| panic!("REFIT_SAMPLE is a number from 1 to 20, not {text:?}"))
    })
}

/// The writes before `end` that are disturbed. Different offsets give different samples of them.
pub(super) fn writes(end: u64, offset: u64) -> impl Iterator<Item = u64> {
    let rate = rate();
    (0..end).filter(move |write| write % rate == offset % rate)
}
