//! Versions and their order: `v1.30.1+k3s1`, `v1.30.0-rc1+rke2r1`, `22.04`, `2026.08.1`.
//!
//! Two versions are compared by their numbers, then by prerelease, then by build number. `+` and `-` before a build are
//! equivalent, because tags cannot contain `+`. Versions that cannot be compared give an error with the reason, never
//! an alphabetical order. Pure.

mod claim;
mod distribution;
mod offer;
mod order;
mod parse;
mod parts;
pub mod policy;
mod range;
pub mod tag;
#[cfg(test)]
mod tests;

pub use claim::Claim;
pub use distribution::{
    distribution_of, has_builds, installed_by, installs_kubernetes, is_of_talos, is_upgrade_image,
    kubelet_version, released_version,
};
pub use offer::{Offer, Release};
pub use order::Incomparable;
pub use parts::{NotAVersion, Version, quoted};
pub use range::{MAX_LEN as MAX_RANGE_LEN, Range, RangeError};
