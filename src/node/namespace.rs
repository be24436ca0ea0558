//! From the container to the host: the mount namespace of process 1. What runs after that sees the host's files, and what it
//! starts is the host's.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::host::Host;

const HOST_NAMESPACE: &str = "/proc/1/ns/mnt";
const OWN_NAMESPACE: &str = "/proc/self/ns/mnt";

/// The host's mount namespace could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum NotEntered {
    /// Process 1 is refit.
    #[error("process 1 is refit itself, not the host's: the pod needs hostPID")]
    NotTheHost,
    /// The kernel does not let us.
    #[error(
        "the mount namespace of process 1 cannot be entered: {0}; the pod needs hostPID and a privileged container"
    )]
    Refused(rustix::io::Errno),
    /// There is nothing behind it.
    #[error(transparent)]
    Host(#[from] super::HostError),
}

/// Goes to the host. Call it before there is a second thread, which the kernel does not take along.
///
/// # Errors
/// Why not. Nothing has changed then.
pub fn enter_host() -> Result<Host, NotEntered> {
    if std::process::id() == 1 {
        return Err(NotEntered::NotTheHost);
    }
    // Without a container in between there is nothing to enter.
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
