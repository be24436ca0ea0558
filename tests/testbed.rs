//! The test bed is trusted by all other tests, so it is tested itself.

mod audit;
mod binaries;
mod channel;
mod control_plane;
mod controller;
mod faults;
mod lifetime;
mod whole;
mod world;
