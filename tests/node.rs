//! `refit probe`, `refit sentinel` and `refit reboot` as processes: on a host in a folder, and, with the permission, on
//! a host in separate namespaces.

mod folder;
mod namespaces;
