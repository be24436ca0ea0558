//! Files written whole or not at all.
//!
//! The new text goes to a file beside the old one, is brought to the disk, and takes the old one's name: whoever looks
//! sees the old text or the new one, whenever the process is killed or the power fails. The new file has the old one's
//! mode and owner; through a symbolic link the file behind it is replaced, and the link stays.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

/// What the file beside the old one ends with.
const SUFFIX: &str = ".refit-pin";

/// Why a file cannot be replaced. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file system says no.
    #[error("{path}: {doing}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What could not be done.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It is no file with a text of its own.
    #[error("{}: not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Other names lead to the same file.
    #[error("{path}: {links} names (hard links) lead to this file, and a file that is replaced whole keeps only one", path = .path.display())]
    HardLinks {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// Somebody else has written it meanwhile.
    #[error("{}: somebody has changed the file meanwhile; nothing was written", .0.display())]
    Changed(PathBuf),
}

/// Puts `new` in place of `old`, which is what was read from there.
///
/// # Errors
/// The file is as it was. The directory may hold a file that ends in `.refit-pin` if the process was killed: the next
/// write of the same file removes it.
pub fn replace(path: &Path, old: &str, new: &str) -> Result<(), WriteError> {
    let failed = |doing| {
        move |source| WriteError::Io {
            path: path.to_owned(),
            doing,
            source,
        }
    };
    let real = fs::canonicalize(path).map_err(failed("cannot be found"))?;
    let metadata = fs::metadata(&real).map_err(failed("cannot be looked at"))?;
    if !metadata.is_file() {
        return Err(WriteError::NotAFile(path.to_owned()));
    }
    if metadata.nlink() > 1 {
        return Err(WriteError::HardLinks {
            path: path.to_owned(),
            links: metadata.nlink(),
        });
    }
    // To rename over it needs no right on the file itself. Who may not write it is not to replace it either.
    drop(
        File::options()
            .write(true)
            .open(&real)
            .map_err(failed("cannot be written"))?,
    );
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(WriteError::NotAFile(path.to_owned()));
    };
    let prefix = format!(".{}.", name.to_string_lossy());
    remove_leftovers(folder, &prefix);
    let mut beside = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(SUFFIX)
        .tempfile_in(folder)
        .map_err(failed("a file beside it cannot be made"))?;
    // By this the next process knows that this one is alive. Where locks are not to be had, leftovers stay.
    let _ = beside.as_file().try_lock();
    beside
        .write_all(new.as_bytes())
        .map_err(failed("the new text cannot be written"))?;
    keep(beside.as_file(), &metadata).map_err(failed("its mode and owner cannot be kept"))?;
    beside
        .as_file()
        .sync_all()
        .map_err(failed("the new text cannot be brought to the disk"))?;
    if fs::read(&real).map_err(failed("cannot be read"))? != old.as_bytes() {
        return Err(WriteError::Changed(path.to_owned()));
    }
    beside
        .persist(&real)
        .map_err(|error| error.error)
        .map_err(failed("cannot be replaced"))?;
    // The new text has its name; that it keeps it over a power failure is not worth an error.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Mode and owner. A change of owner takes bits off the mode, so that comes last.
fn keep(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(old.permissions())
}

/// What a process that was killed has left. One that is at work holds a lock on its file.
fn remove_leftovers(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(SUFFIX) {
            let abandoned = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
            if abandoned {
                // Not ours to insist on.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_new_text_has_the_old_ones_mode_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.yaml");
        fs::write(&file, "old").unwrap();
        for mode in [0o600, 0o664, 0o755] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let old = fs::read_to_string(&file).unwrap();
            replace(&file, &old, &format!("new {mode}")).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), format!("new {mode}"));
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(names(folder.path()), ["plan.yaml"]);
    }

    #[test]
    fn a_link_stays_a_link_and_the_file_behind_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (
            folder.path().join("real/plan.yaml"),
            folder.path().join("link.yaml"),
        );
        fs::create_dir(folder.path().join("real")).unwrap();
        fs::write(&file, "old").unwrap();
        symlink("real/plan.yaml", &link).unwrap();
        replace(&link, "old", "new").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("real/plan.yaml"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(names(folder.path()), ["link.yaml", "real"]);
    }

    #[test]
    fn what_somebody_else_has_written_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.yaml");
        fs::write(&file, "theirs").unwrap();
        assert!(matches!(
            replace(&file, "old", "new"),
            Err(WriteError::Changed(_))
        ));
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
        assert_eq!(names(folder.path()), ["plan.yaml"]);
    }

    #[test]
    fn a_file_with_two_names_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, "old").unwrap();
        fs::hard_link(&one, &two).unwrap();
        assert!(matches!(
            replace(&one, "old", "new"),
            Err(WriteError::HardLinks { links: 2, .. })
        ));
        assert_eq!(fs::read_to_string(&one).unwrap(), "old");
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_what_a_live_one_holds_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.yaml");
        fs::write(&file, "old").unwrap();
        fs::write(folder.path().join(".plan.yaml.dead.refit-pin"), "half").unwrap();
        fs::write(folder.path().join(".other.yaml.dead.refit-pin"), "half").unwrap();
        let live = File::create(folder.path().join(".plan.yaml.live.refit-pin")).unwrap();
        live.try_lock().unwrap();
        replace(&file, "old", "new").unwrap();
        assert_eq!(
            names(folder.path()),
            [
                ".other.yaml.dead.refit-pin",
                ".plan.yaml.live.refit-pin",
                "plan.yaml"
            ]
        );
    }
}
