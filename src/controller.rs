//! The shell round the core: watches fill the world, `decide` answers, `act` carries it out.

pub mod client;
pub mod crd;
pub mod lease;
