//! draft
#![allow(
    dead_code,
    unreachable_pub,
    reason = "two programs include this, the tests and the demo, and each uses a part of it"
)]
pub mod audit;
pub mod bed;
pub mod binaries;
pub mod controlplane;
pub mod kubeconfig;
pub mod names;
pub mod pki;
pub mod process;
pub mod terminal;
