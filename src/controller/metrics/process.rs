//! Figures of this process, from `/proc`. Elsewhere than on Linux there are none.

use std::fs;

use super::list;
use super::sample::Sample;

/// The unit of the times in `/proc/self/stat`: `USER_HZ`, 100 on every architecture that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;
/// Places of the fields in `/proc/self/stat` after the name of the program (proc(5)).
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const START_TIME: usize = 19;

pub(super) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain anything, even blanks and parentheses.
    let fields: Vec<f64> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_ascii_whitespace()
        .map(|field| field.parse().unwrap_or_default())
        .collect();
    let seconds = |at: usize| fields.get(at).map(|ticks| ticks / TICKS_PER_SECOND);
    if let (Some(user), Some(system)) = (seconds(USER_TIME), seconds(SYSTEM_TIME)) {
        samples.push(Sample::of(&list::PROCESS_CPU, user + system));
    }
    if let (Some(start), Some(boot)) = (seconds(START_TIME), boot_time()) {
        samples.push(Sample::of(&list::PROCESS_START, boot + start));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let kibibytes: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
        Some(kibibytes * 1024.0)
    };
    let memory = [
        (&list::PROCESS_RESIDENT, "VmRSS:"),
        (&list::PROCESS_VIRTUAL, "VmSize:"),
    ];
    for (metric, key) in memory {
        samples.extend(bytes(key).map(|bytes| Sample::of(metric, bytes)));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The folder itself is open, too.
        samples.push(Sample::count(&list::PROCESS_FDS, open.count().saturating_sub(1)));
    }
    samples
}

/// When the machine booted, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}
