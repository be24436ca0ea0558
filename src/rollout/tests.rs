//! The decision in a toy cluster, by hand and by dice.

mod adoption;
mod build;
mod cancel;
mod channel;
mod chaos;
mod dice;
mod events;
mod fail;
mod finish;
mod give_back;
mod jobs;
mod lost;
mod next;
mod policy;
mod put_off;
mod reboot;
mod recover;
mod schema;
mod settle;
mod speed;
mod start;
mod status;
mod toy;
mod world;
