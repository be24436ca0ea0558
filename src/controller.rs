//! The shell round the core: watches fill the world, `decide` answers, `act` carries it out.

pub mod act;
pub mod client;
pub mod crd;
pub mod engine;
pub mod events;
pub mod lease;
pub mod objects;
pub mod observe;
