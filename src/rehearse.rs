//! The cluster in the process: the parts of Kubernetes that a roll-out needs, played by pure state machines in a time
//! that is handed to them.
//!
//! Nothing here has a clock, a random number, a thread or a connection: what an API server would deliver is an
//! argument, what it would be sent is a result.

pub mod podlife;
