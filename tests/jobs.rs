//! What Jobs look like once a real API server has admitted them, how often they are made, and whose they are.

mod adoption;
mod chart;
mod exclusive;
mod identity;
mod neighbours;
mod order;
mod secrets;
mod shape;
