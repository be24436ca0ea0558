//! What every part of refit uses: versions and their order, values in Go's syntax, "did you mean", lists of names, proxies, tables, the
//! back-off. Pure: no client, no runtime.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod go;
pub mod names;
pub mod nearest;
pub mod proxy;
pub mod table;
pub mod version;

/// Whether serde may skip the field of a number.
pub fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}
