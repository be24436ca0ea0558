//! Access to the host's files below a root directory.
//!
//! Symbolic links resolve as on the host and never leave it: an absolute link starts at the host's root, and `..` stops
//! there. Nothing is written unless the folder of the sentinel is not a link and belongs to root.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use refit_api::sentinel::{NotAReport, SENTINEL_DIR, is_boot_id};
use refit_api::{SentinelName, SentinelReport};

/// Where Linux reports the boot ID.
const BOOT_ID_DIR: &str = "/proc/sys/kernel/random";
const BOOT_ID_FILE: &str = "boot_id";

/// Limit of Linux for links in one path (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Maximum size of the files that are read here.
const MAX_CONTENT: u64 = 4096;

/// Name of a sentinel that is being written. No sentinel's name begins with a dot.
const UNFINISHED: &str = ".unfinished";

/// Permissions that others must not have on the folder of the sentinel.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A file on the host could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The root directory is missing.
    #[error("the host's root directory is not at {}: {error}", .dir.display())]
    Root { dir: PathBuf, error: io::Error },
    /// An error on a file or a folder.
    #[error("cannot {what} {path} on the host: {error}")]
    File {
        what: &'static str,
        path: String,
        error: io::Error,
    },
    /// Linux reports an invalid boot ID.
    #[error("{BOOT_ID_DIR}/{BOOT_ID_FILE} on the host has {0:?}, which is not a boot ID")]
    BootId(String),
    /// Others could write the sentinel.
    #[error(
        "{SENTINEL_DIR} on the host belongs to user {owner} and has mode {mode:03o}: it must be refit's own, and writable by no other user; remove it"
    )]
    Shared {
        /// Owner of the folder.
        owner: u32,
        /// Mode of the folder.
        mode: u32,
    },
}

/// The sentinel of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It does not exist.
    Nothing,
    Report(SentinelReport),
    /// Its content is invalid.
    Garbage(NotAReport),
}

/// The host, by its root directory.
#[derive(Debug)]
pub struct Host {
    dir: PathBuf,
    root: OwnedFd,
}

impl Host {
    /// The host whose root directory is `dir`.
    ///
    /// # Errors
    /// Fails if the directory does not exist or cannot be opened.
    pub fn open(dir: &Path) -> Result<Self, HostError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(|error| HostError::Root {
            dir: dir.to_owned(),
            error: error.into(),
        })?;
        Ok(Self {
            dir: dir.to_owned(),
            root,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The host's boot ID. The kubelet reads it from the same file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has no boot ID.
    pub fn boot_id(&self) -> Result<String, HostError> {
        let path = format!("{BOOT_ID_DIR}/{BOOT_ID_FILE}");
        let read = || -> io::Result<String> {
            let dir = self.directory(BOOT_ID_DIR)?;
            read_file(rustix::fs::openat(dir, BOOT_ID_FILE, READ, Mode::empty())?)
        };
        let text = read().map_err(|error| file_error("read", &path, error))?;
        let boot_id = text.trim();
        if is_boot_id(boot_id) {
            Ok(boot_id.to_owned())
        } else {
            Err(HostError::BootId(boot_id.to_owned()))
        }
    }

    /// When a file was last modified, in seconds since 1970; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the path cannot be looked at.
    pub fn modified(&self, path: &str) -> Result<Option<i64>, HostError> {
        let Some(found) = self.look_for(path)? else {
            return Ok(None);
        };
        let stat = rustix::fs::fstat(&found).map_err(|error| file_error("look at", path, error.into()))?;
        Ok(Some(stat.st_mtime))
    }

    /// The whole of a regular file, after symbolic links, as text; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has more than `limit` bytes.
    pub fn read_whole(&self, path: &str, limit: u64) -> Result<Option<String>, HostError> {
        let Some(found) = self.look_for(path)? else {
            return Ok(None);
        };
        let read = || -> io::Result<String> {
            if !is_a(&rustix::fs::fstat(&found)?, FileType::RegularFile) {
                return Err(io::Error::other("only a regular file is read"));
            }
            // What was found cannot be read itself; its link opens the same file, wherever the path leads by now.
            let link = format!("/proc/self/fd/{}", found.as_raw_fd());
            let file = rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut bytes = Vec::new();
            File::from(file).take(limit + 1).read_to_end(&mut bytes)?;
            if u64::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            } else {
                Err(io::Error::other(format!("it has more than {limit} bytes")))
            }
        };
        read().map(Some).map_err(|error| file_error("read", path, error))
    }

    /// Whether a path exists, after symbolic links.
    ///
    /// # Errors
    /// Fails if a directory on the way cannot be read.
    pub fn exists(&self, path: &str) -> Result<bool, HostError> {
        Ok(self.look_for(path)?.is_some())
    }

    /// Opens a path, if it exists, after symbolic links.
    fn look_for(&self, path: &str) -> Result<Option<OwnedFd>, HostError> {
        match self.walk(path) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(file_error("look at", path, error.into())),
        }
    }

    /// Whether a path is an executable file, after symbolic links.
    pub(super) fn is_program(&self, path: &str) -> bool {
        let found = self.walk(path).and_then(|file| rustix::fs::fstat(&file));
        found.is_ok_and(|stat| is_a(&stat, FileType::RegularFile) && stat.st_mode & 0o111 != 0)
    }

    /// Checks that a sentinel can be written, and leaves none.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or written, or if others may write to it.
    pub fn try_sentinel(&self) -> Result<(), HostError> {
        let dir = self.sentinel_dir()?;
        let path = format!("{SENTINEL_DIR}/{UNFINISHED}");
        write_unfinished(&dir, "").map_err(|error| file_error("write", &path, error))?;
        rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty())
            .map_err(|error| file_error("remove", &path, error.into()))
    }

    /// Writes a sentinel atomically.
    ///
    /// # Errors
    /// Fails as [`try_sentinel`](Self::try_sentinel).
    pub fn write_sentinel(&self, name: &SentinelName, report: &SentinelReport) -> Result<(), HostError> {
        let dir = self.sentinel_dir()?;
        // A rename, so that a container that is killed in between leaves no partial report. No fsync, because the
        // report is void in any other boot.
        let write = || -> io::Result<()> {
            write_unfinished(&dir, &format!("{}\n", report.to_text()))?;
            Ok(rustix::fs::renameat(&dir, UNFINISHED, &dir, name.as_str())?)
        };
        write().map_err(|error| file_error("write", &format!("{SENTINEL_DIR}/{name}"), error))
    }

    /// Removes a sentinel if it exists.
    ///
    /// # Errors
    /// Fails if the sentinel exists and cannot be removed, or if others may write to its folder.
    pub fn remove_sentinel(&self, name: &SentinelName) -> Result<(), HostError> {
        let dir = self.sentinel_dir()?;
        match rustix::fs::unlinkat(&dir, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(file_error(
                "remove",
                &format!("{SENTINEL_DIR}/{name}"),
                error.into(),
            )),
        }
    }

    /// # Errors
    /// Fails if the sentinel exists and cannot be read, or if others may write to its folder.
    pub fn read_sentinel(&self, name: &SentinelName) -> Result<Found, HostError> {
        let path = format!("{SENTINEL_DIR}/{name}");
        let (above, below) = sentinel_place();
        let open = || -> io::Result<OwnedFd> {
            Ok(rustix::fs::openat(
                self.directory(above)?,
                below,
                DIRECTORY,
                Mode::empty(),
            )?)
        };
        let read = |dir: &OwnedFd| -> io::Result<String> {
            read_file(rustix::fs::openat(dir, name.as_str(), READ, Mode::empty())?)
        };
        // The folder is opened once and checked: between two lookups by path someone could replace it.
        let text = match open() {
            Ok(dir) => read(&own(dir)?),
            Err(error) => Err(error),
        };
        match text {
            Ok(text) => Ok(SentinelReport::parse(&text).map_or_else(Found::Garbage, Found::Report)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
            Err(error) => Err(file_error("read", &path, error)),
        }
    }

    /// Opens the folder of the sentinels, and creates it if necessary. `/run` may be a link on the host, the folder may
    /// not.
    fn sentinel_dir(&self) -> Result<OwnedFd, HostError> {
        let (above, below) = sentinel_place();
        let open = || -> io::Result<OwnedFd> {
            let run = self.directory(above)?;
            match rustix::fs::mkdirat(&run, below, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(rustix::fs::openat(&run, below, DIRECTORY, Mode::empty())?)
        };
        own(open().map_err(|error| file_error("make", SENTINEL_DIR, error))?)
    }

    fn directory(&self, path: &str) -> io::Result<OwnedFd> {
        let found = self.walk(path)?;
        if is_a(&rustix::fs::fstat(&found)?, FileType::Directory) {
            Ok(found)
        } else {
            Err(Errno::NOTDIR.into())
        }
    }

    /// Opens a path, resolved as on the host. `openat2` with `RESOLVE_IN_ROOT` would do the same, but needs Linux 5.6.
    fn walk(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        let mut links = 0;
        // The directories from the root to the current one.
        let mut above: Vec<OwnedFd> = Vec::new();
        let mut ahead = parts(path);
        while let Some(part) = ahead.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    above.pop();
                    continue;
                }
                _ => {}
            }
            let here = above.last().unwrap_or(&self.root);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = rustix::fs::openat(here, part.as_str(), flags, Mode::empty())?;
            if !is_a(&rustix::fs::fstat(&found)?, FileType::Symlink) {
                above.push(found);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP);
            }
            // The target is resolved from the host's root, not from the container's: that is the point of this walk.
            let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
            let target = target.into_string().map_err(|_| Errno::ILSEQ)?;
            if target.starts_with('/') {
                above.clear();
            }
            ahead.extend(parts(&target));
        }
        match above.pop() {
            Some(found) => Ok(found),
            None => rustix::io::fcntl_dupfd_cloexec(&self.root, 0),
        }
    }
}

/// Opens a regular file without following a link, and without waiting for the writer of a FIFO.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The parts of a path, in reverse order.
fn parts(path: &str) -> Vec<String> {
    path.rsplit('/').map(str::to_owned).collect()
}

/// The parent folder of the sentinels' folder, and its name there.
fn sentinel_place() -> (&'static str, &'static str) {
    SENTINEL_DIR.rsplit_once('/').unwrap_or(("/", SENTINEL_DIR))
}

/// Checks that the folder of the sentinels belongs to root, and that only root may write to it.
fn own(dir: OwnedFd) -> Result<OwnedFd, HostError> {
    let stat = rustix::fs::fstat(&dir).map_err(|error| file_error("look at", SENTINEL_DIR, error.into()))?;
    let mode = stat.st_mode & 0o777;
    if stat.st_uid == rustix::process::geteuid().as_raw() && mode & WRITABLE_BY_OTHERS == 0 {
        Ok(dir)
    } else {
        Err(HostError::Shared {
            owner: stat.st_uid,
            mode,
        })
    }
}

fn is_a(stat: &Stat, wanted: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == wanted
}

fn read_file(file: OwnedFd) -> io::Result<String> {
    let mut text = String::new();
    // The host wrote the file, and a payload may have replaced it by one that does not end.
    File::from(file).take(MAX_CONTENT).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a new file, and removes one that an earlier attempt has left.
fn write_unfinished(dir: &OwnedFd, text: &str) -> io::Result<()> {
    // A container that was killed while it wrote leaves the file, and `EXCL` below would fail on it for ever.
    match rustix::fs::unlinkat(dir, UNFINISHED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, UNFINISHED, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(text.as_bytes())
}

fn file_error(what: &'static str, path: &str, error: io::Error) -> HostError {
    HostError::File {
        what,
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests;
