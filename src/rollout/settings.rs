//! Settings that all Plans share.

use jiff::SignedDuration;

use refit_facts::Text;
use refit_job::JobSettings;

/// Settings that all Plans share.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Namespace of the controller and of its Plans.
    pub namespace: String,
    pub job: JobSettings,
    pub polling_interval: SignedDuration,
    /// How long a node must have been registered to start.
    pub min_node_age: SignedDuration,
    /// Whether images that follow the version must exist before nodes start.
    pub checks_images: bool,
    /// Whether nodes start only if their drains would end, unless a Plan says otherwise.
    pub checks_drains: bool,
    /// The node on which the controller runs.
    pub own_node: Text,
    /// Zone of `timeZone: Local`.
    pub local_zone: jiff::tz::TimeZone,
    /// Whether nodes can be held by other objects than Plans.
    pub has_front_ends: bool,
    /// Whether nodes get lifecycle conditions.
    pub node_conditions: bool,
}
