//! The page that `--html` writes, of a rehearsal or of a cluster.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

use super::output;
use refit_formats::page;
use refit_formats::page::Document;

/// Checks the file before the work, which may take minutes.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        anyhow::bail!(
            "--html {}: there is no folder {}",
            path.display(),
            folder.display()
        );
    }
    anyhow::ensure!(!path.is_dir(), "--html {}: this is a folder", path.display());
    Ok(())
}

/// The page as text.
pub(super) fn text(document: &Document) -> anyhow::Result<String> {
    page::file(document).context("the page has no text form; this is a bug")
}

/// Writes the page, and prints why it cannot: the result is printed all the same.
pub(super) fn write_or_report(path: &Path, document: &Document) -> bool {
    let written = write(path, document);
    if let Err(error) = &written {
        output::error(output::error_chain(error));
    }
    written.is_ok()
}

/// Writes the page. A file that is there is replaced as a whole, or left as it is.
pub(super) fn write(path: &Path, document: &Document) -> anyhow::Result<()> {
    let failed = || format!("the page cannot be written to {}", path.display());
    let text = text(document)?;
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        // A device or a pipe, such as /dev/stdout, has no content to keep.
        fs::write(path, text).with_context(failed)?;
    } else {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // A temporary file is for its owner alone by default; this one is to be shown, as far as the umask allows.
        let mut beside = tempfile::Builder::new()
            .prefix(".refit-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .with_context(failed)?;
        beside.write_all(text.as_bytes()).with_context(failed)?;
        beside.persist(path).with_context(failed)?;
    }
    output::note(format_args!("wrote {}", path.display()));
    Ok(())
}
