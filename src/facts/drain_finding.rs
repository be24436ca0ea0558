//! Why a drain that has not begun would not end.

use refit_api::ids::Text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainFinding {
    /// A pod, as `namespace/name`.
    pub pod: Text,
    pub why: String,
    /// How many further pods would keep it from ending.
    pub more: usize,
}
