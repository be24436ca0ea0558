//! Moves the process from the container into the mount namespace of the host's process 1. After that it sees the host's
//! files, and its children run on the host.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::host::Host;

const HOST_NAMESPACE: &str = "/proc/1/ns/mnt";
const OWN_NAMESPACE: &str = "/proc/self/ns/mnt";

#[derive(Debug, thiserror::Error)]
pub enum NotEntered {
    /// Process 1 is refit itself, so the container has no access to the host's process namespace.
    #[error("process 1 is refit itself, not the host's: the pod needs hostPID")]
    NotTheHost,
    /// The kernel refuses it.
    #[error(
        "the mount namespace of process 1 cannot be entered: {0}; the pod needs hostPID and a privileged container"
    )]
    Refused(rustix::io::Errno),
    /// The host's root directory cannot be opened.
    #[error(transparent)]
    Host(#[from] super::HostError),
}

/// Enters the host's mount namespace. Call it before a second thread exists, because the kernel moves only
/// single-threaded processes (`setns(2)`).
///
/// # Errors
/// Fails without a change if the namespace cannot be entered.
pub fn enter_host() -> Result<Host, NotEntered> {
    // Without `hostPID` refit itself is process 1, and would enter its own namespace.
    if std::process::id() == 1 {
        return Err(NotEntered::NotTheHost);
    }
    // Without a container there is nothing to enter.
    let is_there = std::fs::read_link(HOST_NAMESPACE).ok() == std::fs::read_link(OWN_NAMESPACE).ok();
    if !is_there {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace =
            rustix::fs::open(HOST_NAMESPACE, flags, Mode::empty()).map_err(NotEntered::Refused)?;
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(LinkNameSpaceType::Mount),
        )
        .map_err(NotEntered::Refused)?;
    }
    Ok(Host::open(Path::new("/"))?)
}
