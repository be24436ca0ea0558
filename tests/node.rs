//! `refit probe`, `refit sentinel` and `refit reboot` as processes: on a host in a folder, and, where this may be done, on one
//! in namespaces of its own.

mod folder;
mod namespaces;
