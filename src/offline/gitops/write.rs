//! Replaces files atomically.
//!
//! The new text is written to a temporary file in the same folder, synced, and renamed over it, so a reader sees the
//! old text or the new one even if the process is killed or the power fails. The new file has the mode, owner and
//! extended attributes of the old one. A symbolic link stays, and the file that it names is replaced.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    XattrFlags, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fremovexattr, fsetxattr,
};
use rustix::io::Errno;

/// Suffix of the temporary file.
const SUFFIX: &str = ".refit-pin";

/// Why a file was not replaced. It is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{path}: {doing}: {source}", path = .path.display())]
    Io {
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        source: io::Error,
    },
    #[error("{}: not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file has other hard links, which would keep the old text.
    #[error("{path}: the file has {links} names (hard links), and refit, which replaces files, would keep only one", path = .path.display())]
    HardLinks { path: PathBuf, links: u64 },
    /// Another process wrote the file meanwhile.
    #[error("{}: the file changed while refit read it; nothing was written, run it again", .0.display())]
    Changed(PathBuf),
}

/// Replaces `old`, which was read from `path`, by `new`.
///
/// # Errors
/// Fails if the file changed since it was read, is not a regular file with one name, or cannot be written; it is
/// unchanged then. A killed process may leave a file that ends in `.refit-pin`; the next write of the same file removes
/// it.
pub fn replace(path: &Path, old: &str, new: &str) -> Result<(), WriteError> {
    let failed = |doing| {
        move |source| WriteError::Io {
            path: path.to_owned(),
            doing,
            source,
        }
    };
    let real = fs::canonicalize(path).map_err(failed("cannot be found"))?;
    let metadata = fs::metadata(&real).map_err(failed("cannot be examined"))?;
    if !metadata.is_file() {
        return Err(WriteError::NotAFile(path.to_owned()));
    }
    if metadata.nlink() > 1 {
        return Err(WriteError::HardLinks {
            path: path.to_owned(),
            links: metadata.nlink(),
        });
    }
    // A rename needs no write permission for the file itself, but a user who may not write it should not replace it.
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
        .map_err(failed("no temporary file can be created next to it"))?;
    // The lock tells other processes that this one is alive. On file systems without locks, leftovers stay.
    let _ = beside.as_file().try_lock();
    beside
        .write_all(new.as_bytes())
        .map_err(failed("the new text cannot be written"))?;
    keep(beside.as_file(), &metadata).map_err(failed("its mode and owner cannot be kept"))?;
    keep_attributes(&real, beside.as_file()).map_err(failed("its extended attributes cannot be kept"))?;
    beside
        .as_file()
        .sync_all()
        .map_err(failed("the new text cannot be synced to disk"))?;
    if fs::read(&real).map_err(failed("cannot be read"))? != old.as_bytes() {
        return Err(WriteError::Changed(path.to_owned()));
    }
    beside
        .persist(&real)
        .map_err(|error| error.error)
        .map_err(failed("cannot be replaced"))?;
    // The rename has succeeded. A failed sync only risks that a power failure undoes it, so it is not an error.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Copies mode and owner. A change of owner clears bits of the mode, so the mode is set last.
fn keep(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(old.permissions())
}

/// Copies extended attributes: security labels, ACLs and user attributes.
fn keep_attributes(old: &Path, new: &File) -> io::Result<()> {
    let old = File::open(old)?;
    let names = match list_attributes(&old) {
        // The file system has no extended attributes.
        Err(Errno::NOTSUP) => return Ok(()),
        names => names?,
    };
    let names = || names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    // A default access list of the folder would let others at a file that had none.
    let inherited = list_attributes(new)?;
    for name in inherited.split(|byte| *byte == 0) {
        if may_be_set_by_owner(name) && names().all(|own| own != name) {
            fremovexattr(new, name)?;
        }
    }
    for name in names() {
        let value = match attribute(&old, name) {
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => continue,
            value => value?,
        };
        if attribute(new, name).is_ok_and(|same| same == value) {
            continue;
        }
        match fsetxattr(new, name, &value, XattrFlags::empty()) {
            // Without permission to set security labels, the file keeps the system's default label; there is no other
            // way to replace it.
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) if !may_be_set_by_owner(name) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Whether the owner of a file may set the attribute.
fn may_be_set_by_owner(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl")
}

fn list_attributes(file: &File) -> rustix::io::Result<Vec<u8>> {
    let length = flistxattr_query(file)?;
    let mut names = vec![0_u8; length];
    let length = flistxattr(file, &mut names)?;
    names.truncate(length);
    Ok(names)
}

fn attribute(file: &File, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let length = fgetxattr_query(file, name)?;
    let mut value = vec![0_u8; length];
    let length = fgetxattr(file, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// Removes temporary files of killed processes. A running process holds a lock on its file.
fn remove_leftovers(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(SUFFIX) {
            let abandoned = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
            if abandoned {
                // A leftover that cannot be removed does no harm.
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
    fn the_new_file_has_the_old_ones_extended_attributes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.yaml");
        fs::write(&file, "old").unwrap();
        let open = File::open(&file).unwrap();
        let name = b"user.owner".as_slice();
        let set = fsetxattr(&open, name, b"team a", XattrFlags::empty());
        replace(&file, "old", "new").unwrap();
        let new = File::open(&file).unwrap();
        // A file system without attributes has nothing to lose.
        if set == Err(Errno::NOTSUP) {
            assert_eq!(list_attributes(&new), Err(Errno::NOTSUP));
        } else {
            assert_eq!(list_attributes(&new).unwrap(), b"user.owner\0");
            assert_eq!(attribute(&new, name).unwrap(), b"team a");
        }
    }

    #[test]
    fn a_default_access_list_of_the_folder_is_not_put_on_a_file_that_has_none() {
        const DEFAULT: &[u8] = b"system.posix_acl_default";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.yaml");
        fs::write(&file, "old").unwrap();
        // Owner, a user, group, mask and others, each with tag, permissions and ID, behind the number of the format.
        let mut list = vec![2, 0, 0, 0];
        for (tag, permissions, id) in [
            (1, 7, u32::MAX),
            (2, 4, 1234),
            (4, 4, u32::MAX),
            (16, 4, u32::MAX),
            (32, 4, u32::MAX),
        ] {
            list.extend([tag, 0, permissions, 0]);
            list.extend(id.to_le_bytes());
        }
        let open = File::open(folder.path()).unwrap();
        match fsetxattr(&open, DEFAULT, &list, XattrFlags::empty()) {
            // A file system without them has nothing to inherit.
            Err(Errno::NOTSUP) => assert!(attribute(&open, DEFAULT).is_err()),
            done => done.unwrap(),
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&file, "old", "new").unwrap();
        let new = File::open(&file).unwrap();
        assert_eq!(list_attributes(&new).unwrap_or_default(), b"");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
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
    fn a_file_that_someone_else_has_written_meanwhile_stays() {
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
    fn a_temporary_file_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not() {
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
