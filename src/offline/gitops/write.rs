//! Replaces files atomically.
//!
//! The new text is written to a temporary file in the same folder, synced, and renamed over it, so a reader sees the
//! old text or the new one even if the process is killed or the power fails. The new file has the mode and owner of the
//! old one; ACLs and extended attributes are not kept, as Git does not keep them. A symbolic link stays, and the file
//! that it names is replaced.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

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
    /// Another process wrote the file meanwhile.
    #[error("{}: the file changed while refit read it; nothing was written, run it again", .0.display())]
    Changed(PathBuf),
}

/// Replaces `old`, which was read from `path`, by `new`.
///
/// # Errors
/// Fails if the file changed since it was read, is not a regular file, or cannot be written; it is unchanged then. A
/// killed process may leave a file that ends in `.refit-pin`.
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
    let (Some(folder), Some(name), true) = (real.parent(), real.file_name(), metadata.is_file()) else {
        return Err(WriteError::NotAFile(path.to_owned()));
    };
    // A rename needs no write permission for the file itself, but a user who may not write it should not replace it.
    let writable = File::options().write(true).open(&real);
    drop(writable.map_err(failed("cannot be written"))?);
    let mut beside = tempfile::Builder::new()
        .prefix(&format!(".{}.", name.to_string_lossy()))
        .suffix(".refit-pin")
        .tempfile_in(folder)
        .map_err(failed("no temporary file can be created next to it"))?;
    beside
        .write_all(new.as_bytes())
        .map_err(failed("the new text cannot be written"))?;
    keep(beside.as_file(), &metadata).map_err(failed("its mode and owner cannot be kept"))?;
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
    fn who_reads_the_old_file_reads_all_of_it_because_it_is_replaced_and_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.yaml");
        fs::write(&file, "old text").unwrap();
        let reader = File::open(&file).unwrap();
        replace(&file, "old text", "new").unwrap();
        assert_eq!(io::read_to_string(reader).unwrap(), "old text");
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }
}
