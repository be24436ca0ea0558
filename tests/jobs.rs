//! Jobs as a real API server stores them, how often they are created, and who owns them.

mod adoption;
mod chart;
mod exclusive;
mod identity;
mod neighbours;
mod order;
mod shape;
