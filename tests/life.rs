//! What happens to nodes: from the first label to the last, and whatever comes in between.

mod change;
mod cordon;
mod delay;
mod failure;
mod health;
mod limit;
mod pace;
mod prepare;
mod readme;
