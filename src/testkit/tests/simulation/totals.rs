use std::collections::BTreeMap;

use super::super::faults::Tally;
use super::SimulationResult;

/// The results of many runs.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) tally: Tally,
    pub(super) played: u64,
    /// Broken invariants by seed.
    pub(super) broken: BTreeMap<u64, String>,
    /// Digests by seed.
    pub(super) digests: BTreeMap<u64, u64>,
}

impl Totals {
    pub(super) fn add(&mut self, seed: u64, played: Result<SimulationResult, String>) {
        self.played += 1;
        match played {
            Ok(SimulationResult {
                tally,
                upgrades,
                reboots,
                requests,
                digest,
            }) => {
                self.digests.insert(seed, digest);
                let requests = u64::try_from(requests).unwrap();
                let more = [
                    ("(upgrades)", upgrades),
                    ("(reboots)", reboots),
                    ("(requests)", requests),
                ];
                for (kind, count) in tally.into_iter().chain(more) {
                    *self.tally.entry(kind).or_default() += count;
                }
            }
            Err(why) => {
                println!(
                    "broken: {}",
                    why[why.rfind("\nREFIT_SEED").unwrap_or_default()..].trim()
                );
                self.broken.insert(seed, why);
            }
        }
    }

    pub(super) fn print(&self, began: std::time::Instant) {
        let faults: u64 = self
            .tally
            .iter()
            .filter(|(kind, _)| !kind.starts_with('('))
            .map(|(_, count)| count)
            .sum();
        println!(
            "{} simulations with {faults} faults in {:.1?}, broken: {:?}",
            self.played,
            began.elapsed(),
            self.broken.keys()
        );
    }
}
