//! What to drain, and how.

use super::pods::Rules;
use refit_api::selector::Selector;
use refit_api::{AfterTimeout, WaitFor};
use refit_base::go::GoDuration;

/// Options of a drain, from kubectl's flags.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--pod-selector`, as text.
    pub pod_selector: String,
    /// Which pods may be evicted.
    pub rules: Rules,
    /// `--grace-period` in seconds. If absent, each pod's own.
    pub grace_period: Option<u32>,
    /// `--timeout`. If absent, there is no time limit.
    pub timeout: Option<GoDuration>,
    pub disable_eviction: bool,
    pub wait_for_detach: bool,
    /// `--evict-last`: groups of pods that are evicted after all others, one after the other.
    pub evict_last: Vec<Selector>,
    /// `--wait-for`: pods that may end by themselves before the first eviction.
    pub wait_for: Vec<WaitFor>,
    /// `--load-balancer-delay`.
    pub load_balancer_delay: GoDuration,
    /// `--settle-delay`.
    pub settle_delay: GoDuration,
    /// `--after-timeout`.
    pub after_timeout: AfterTimeout,
    /// `--conditions`.
    pub conditions: bool,
    /// `--chunk-size`; 0 means one page.
    pub chunk_size: u32,
}

impl Options {
    /// The time limit, for a message that it is exceeded.
    pub(super) fn reached(&self) -> String {
        self.timeout
            .map_or_else(String::new, |timeout| timeout.to_string())
    }
}

/// Selection of nodes.
#[derive(Clone, Debug)]
pub enum NodeSelection {
    Names(Vec<String>),
    /// By label selector.
    Selector(String),
}
