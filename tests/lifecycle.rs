//! Upgrades of nodes from start to end, with interruptions.

mod change;
mod cordon;
mod delay;
mod failure;
mod health;
mod limit;
mod pace;
mod prepare;
mod readme;
